"""What several batches in flight bring: tokens per second of a filled ring ÷ those of the same ring in lockstep.

In lockstep one batch is on its way at a time; filled, whole batches of the same size are added until no stage is idle. The
emulated stages sleep for a fixed time per batch, everything else about them is real; the real ones run the 4-bit model,
whose rows are what costs on a CPU. Both rings of a pair run at once and are asked in turns.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import trio
from attrs import evolve
from harness import MODEL, Workshop, ask_all, print_figures, raw_request, running_ring, set_up

from p2pexo.engine.limits import Limits
from p2pexo.ring.engines import MLX_ENGINE, SCRIPTED_ENGINE
from p2pexo.ring.scripted import Script

ROUNDS = 3
"""Raise it for steadier figures; each takes some fifteen seconds."""
STAGE_S = 0.02
"""What an emulated stage sleeps per batch. Lower it and the bench is shorter, but measures more of its own overhead."""
BATCH = 4
"""Sequences of a batch of the emulated stages."""
TOKENS = 40
REAL_BATCH = 2
REAL_TOKENS = 12


async def compare(
    workshop: Workshop, rounds: int, stages: int, batches: int, *, real: bool = False, hop_s: float = 0.0
) -> float:
    """The median of the rounds' ratios."""
    batch, tokens = (REAL_BATCH, REAL_TOKENS) if real else (BATCH, TOKENS)
    engine, layers = (MLX_ENGINE, MODEL.layers) if real else (SCRIPTED_ENGINE, stages)
    ring = partial(running_ring, workshop, stages, engine=engine, layers=layers, precision="keep", hop_s=hop_s)
    ratios: list[float] = []
    async with (
        ring(limits=Limits(together=batch, batches=1)) as lockstep,
        ring(limits=Limits(together=batch)) as filled,
    ):
        for number in range(rounds + 1):
            rates: list[float] = []
            for stage, count in ((lockstep, batch), (filled, batch * batches)):
                requests = [raw_request(f"{number}-{each}", f"Once upon {each} ", tokens) for each in range(count)]
                answers = await ask_all(stage, requests)
                rates.append(sum(1 / answer.seconds_per_token for answer in answers))
            print(f"{stages} stages: {rates[0]:.1f} tokens/s in lockstep, {rates[1]:.1f} filled")
            ratios += [rates[1] / rates[0]] if number else []  # the first round warms up
    return median(ratios)


async def main(rounds: int) -> None:
    workshop = set_up()
    with tempfile.TemporaryDirectory() as directory:
        Script(layers=4, batch_s=STAGE_S).write(Path(directory))
        emulated = evolve(workshop, model_directory=Path(directory))
        fill_4 = await compare(emulated, rounds, 4, 4)
        fill_4_hop10 = await compare(emulated, rounds, 4, 6, hop_s=0.01)
        Script(layers=2, batch_s=STAGE_S).write(Path(directory))
        fill_2 = await compare(emulated, rounds, 2, 2)
    real_2 = await compare(workshop, rounds, 2, 2, real=True)
    print_figures(fill_2=fill_2, fill_4=fill_4, fill_4_hop10=fill_4_hop10, real_2=real_2, rounds=rounds)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
