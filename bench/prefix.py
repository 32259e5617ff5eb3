# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# some of MLX's signatures are untyped
"""What it brings to begin with what another conversation has computed: time to the first token of a 1,000-token head.

``ttft_ratio``: of a prompt whose head is new ÷ of one whose head was asked before, medians over rounds in turns. Then, on
a model of random weights, 500 different prompts: ``memory_growth`` is how much the stage's memory grows over the last 400
of them, ÷ the budget for what is kept, which the first hundred have filled.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, cast

import mlx.core as mx
import psutil
import trio
from attrs import evolve
from harness import MODEL, Workshop, ask, print_figures, raw_request, running_ring, set_up
from mlx.utils import tree_flatten

from p2pexo.engine.limits import Limits
from p2pexo.engine.mlx_models import model_module

ROUNDS = 5
"""Raise it for steadier figures; each takes some fifteen seconds."""
HEAD = "The lighthouse keeper looked at the storm and wrote down what he saw. " * 66
"""Of some 1,000 tokens."""
PROMPTS = 500
FILLED = 100
"""Prompts after which the budget is full."""
KEPT_TOKENS = 8192
LAYERS, WIDTH, HEADS = 4, 256, 4


async def first_token(workshop: Workshop, rounds: int) -> float:
    ratios: list[float] = []
    async with running_ring(workshop, 1, limits=Limits()) as ring:
        await ask(ring, raw_request("warm", "Once", 2))
        for number in range(rounds):
            head = f"{number}. {HEAD}"
            new, known = [
                (await ask(ring, raw_request(f"{number}-{tail}", head + tail, 1))).prefill_s
                for tail in ("What did he see?", "Who was he?")
            ]
            ratios.append(new / known)
            print(f"first token after {new:.2f} s, with a known head after {known:.3f} s")
    return median(ratios)


async def growth(workshop: Workshop) -> float:
    """Bytes by which the stage grew after its budget was full, ÷ the budget."""
    budget = KEPT_TOKENS * LAYERS * 2 * WIDTH * 4
    async with running_ring(workshop, 1, limits=Limits(kept_tokens=KEPT_TOKENS), layers=LAYERS) as ring:
        process = psutil.Process(ring.pid)
        filled = 0
        for number in range(PROMPTS):
            await ask(ring, raw_request(f"memory-{number}", f"{number} bottles of rum. " * 20, 2))
            if number == FILLED:
                filled = process.memory_info().rss
        grown = process.memory_info().rss - filled
    print(f"{grown / 1e6:.1f} MB more after {PROMPTS} prompts than after {FILLED}; the budget is {budget / 1e6:.0f} MB")
    return grown / budget


def write_small_model(real: Path, directory: Path) -> None:
    """Random weights under the real tokenizer."""
    shutil.copytree(real, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors*"))
    config = {
        **cast(Mapping[str, Any], json.loads((real / "config.json").read_text())),
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": WIDTH // HEADS,
    }
    config.pop("quantization", None)
    config.pop("quantization_config", None)
    (directory / "config.json").write_text(json.dumps(config))
    module = model_module("llama")
    model = module.Model(module.ModelArgs.from_dict(config))
    mx.save_safetensors(
        str(directory / "model.safetensors"), cast(dict[str, mx.array], dict(tree_flatten(model.parameters())))
    )


async def main(rounds: int) -> None:
    workshop = set_up()
    with tempfile.TemporaryDirectory() as directory:
        write_small_model(workshop.model_directory, Path(directory))
        grown = await growth(evolve(workshop, model_directory=Path(directory)))
    ratio = await first_token(workshop, rounds)
    print_figures(ttft_ratio=ratio, memory_growth=grown, prompts=PROMPTS, rounds=rounds, model=MODEL.id)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
