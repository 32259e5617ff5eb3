# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""Every architecture, as a tiny model with random weights: cut into stages it computes what mlx-lm's own model does.

mlx-lm loads the same files by its own means, and walks through the whole model in its own ``__call__``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest
from tiny_models import CONFIGS, tiny_config, write_tiny

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry
from p2pexo.engine.families import FAMILIES, Family, UnsupportedModelError, build
from p2pexo.engine.loading import load_layers
from p2pexo.engine.mlx_models import model_module
from p2pexo.engine.stage import StageEngine
from p2pexo.generation.request import Sampling
from p2pexo.models.architectures import ARCHITECTURES, text_config
from p2pexo.models.directory import ModelFilesError
from p2pexo.models.support import runs_whole

pytestmark = pytest.mark.usefixtures("uncompiled")

PROMPT = (5, 17, 300, 42, 8, 9, 120, 33, 44, 55, 66, 77, 88, 99, 11, 22, 31, 41)
"""Longer than the windows, the chunks and the index of the tiny models."""

COUNT = 8
ROUNDED = {"mistral3": 1e-4}
"""mlx-lm gives all of this model's layers plain caches; rotating ones, as here, add up the same numbers in another order."""

EXACT = 0.0
CHUNKED = 1e-4
"""A product of a few rows may be rounded otherwise than that of many."""

Tiny = Callable[[str], Path]
Logits = Callable[[tuple[int, ...]], mx.array]
"""Of the last token of those given, which follow those given before."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made: dict[str, Path] = {}

    def directory(model_type: str) -> Path:
        if model_type not in made:
            made[model_type] = write_tiny(tmp_path_factory.mktemp(model_type), model_type)
        return made[model_type]

    return directory


def layers_of(model_type: str) -> int:
    return text_config(tiny_config(model_type))["num_hidden_layers"]


def cuts_of(model_type: str) -> list[tuple[int, ...]]:
    layers = layers_of(model_type)
    return [(0, layers), (0, 2, layers), (0, 1, 3, layers)]


class Stages:
    """A model in several parts, without what a stage does beside computing."""

    def __init__(self, directory: Path, cuts: Sequence[int], precision: str = "keep") -> None:
        self.parts: list[Family] = [
            load_layers(directory, first_layer=a, end_layer=b, precision=precision, progress=lambda share: None)[0]
            for a, b in pairwise(cuts)
        ]
        self.caches = [part.new_caches() for part in self.parts]

    def logits(self, tokens: tuple[int, ...]) -> mx.array:
        hidden = self.parts[0].embed(mx.array(tokens))
        for part, caches in zip(self.parts, self.caches, strict=True):
            hidden = part.layers(hidden, caches)
        return self.parts[-1].head(hidden)[0, -1]


def whole(directory: Path) -> Logits:
    """mlx-lm's own model, loader, caches and call."""
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    model, _ = load_model(directory)
    model.set_dtype(mx.float32)
    caches = make_prompt_cache(model)
    return lambda tokens: model(mx.array(tokens)[None], cache=caches)[0, -1]


def greedy(logits: Logits, chunks: Sequence[tuple[int, ...]]) -> tuple[list[int], mx.array]:
    """The tokens that follow a prompt in chunks, and the logits that each was drawn from."""
    rows = [logits(chunk) for chunk in chunks][-1:]
    while len(rows) < COUNT:
        rows.append(logits((best(rows[-1]),)))
    return [best(row) for row in rows], mx.stack(rows)


def best(row: mx.array) -> int:
    return cast(int, mx.argmax(row).item())


@pytest.mark.parametrize("model_type", CONFIGS)
def test_stages_compute_what_the_whole_model_does(tiny: Tiny, model_type: str) -> None:
    directory = tiny(model_type)
    tokens, logits = greedy(whole(directory), [PROMPT])
    for cuts in cuts_of(model_type):
        drawn, rows = greedy(Stages(directory, cuts).logits, [PROMPT])
        assert drawn == tokens
        assert float(mx.abs(rows - logits).max()) <= ROUNDED.get(model_type, EXACT)
        drawn, rows = greedy(Stages(directory, cuts).logits, [PROMPT[:5], PROMPT[5:6], PROMPT[6:]])
        assert drawn == tokens
        assert float(mx.abs(rows - logits).max()) <= CHUNKED


@pytest.mark.parametrize("model_type", CONFIGS)
def test_texts_are_the_same_in_company(tiny: Tiny, model_type: str) -> None:
    """By whole engines: those whose caches can be joined compute several rows at once, the others one after another."""
    layers = layers_of(model_type)
    stages = [StageEngine.load(tiny(model_type), first_layer=a, end_layer=b) for a, b in ((0, 2), (2, layers))]
    prompts = {1: PROMPT, 2: PROMPT[4:9], 3: PROMPT[:13]}
    alone = {number: together(stages, {number: prompt})[number] for number, prompt in prompts.items()}
    assert together(stages, prompts) == alone


def together(stages: Sequence[StageEngine], prompts: Mapping[int, tuple[int, ...]]) -> dict[int, list[int]]:
    new, positions = dict(prompts), dict.fromkeys(prompts, 0)
    drawn: dict[int, list[int]] = {number: [] for number in prompts}
    drawing = Drawing(Sampling(temperature=0))
    for index in range(COUNT):
        entries = [Entry(each, new[each], positions[each], index, None if index else drawing) for each in prompts]
        hidden: Any = None
        for stage in stages:
            hidden = stage.run(Batch(index, tuple(entries)), hidden)
        assert isinstance(hidden, BatchResult)
        assert not hidden.failures
        for sampled in hidden.sampled:
            positions[sampled.sequence] += len(new[sampled.sequence])
            new[sampled.sequence] = (sampled.token,)
            drawn[sampled.sequence].append(sampled.token)
    return drawn


@pytest.mark.parametrize("model_type", CONFIGS)
def test_only_caches_that_can_be_joined_are(model_type: str) -> None:
    family = build(tiny_config(model_type))
    family.keep(2, 3)  # with caches of one kind
    assert family.can_batch is not ARCHITECTURES[model_type].caching.computes_alone


def test_a_rotation_that_depends_on_the_length_is_computed_alone() -> None:
    assert not build(tiny_config("llama", rope_scaling={"rope_type": "dynamic", "factor": 2.0})).can_batch


def test_every_architecture_has_a_family_and_a_tiny_model_and_the_other_way_round() -> None:
    assert set(CONFIGS) == set(ARCHITECTURES)
    stacks = {type(build(tiny_config(each)).parts[1]).__module__.rpartition(".")[2] for each in CONFIGS}
    assert stacks == set(FAMILIES)
    assert all(model_module(each).Model for each in ARCHITECTURES)


def test_a_model_around_one_that_has_no_family_is_refused_by_both_names() -> None:
    config = tiny_config("mistral3")
    config["text_config"] = {
        **tiny_config("glm4_moe_lite"),
        "model_type": "mistral4",
        "rope_parameters": {"rope_theta": 1e4, "type": "default"},
    }
    with pytest.raises(UnsupportedModelError, match=r"'mistral3'.*'mistral4'"):
        build(config)


@pytest.mark.parametrize("change", [{"hidden_size_per_layer_input": 16}, {"num_kv_shared_layers": 2}])
def test_a_model_that_cannot_be_cut_runs_whole(change: dict[str, int]) -> None:
    assert build(tiny_config("gemma4_text", **change)).is_whole
    assert not build(tiny_config("gemma4_text")).is_whole
    assert runs_whole({"model_type": "gemma4", "text_config": {}})


@pytest.mark.parametrize("model_type", ["llama", "gpt_oss", "mistral3"])
def test_a_config_that_describes_no_such_model_is_refused(model_type: str) -> None:
    with pytest.raises(ModelFilesError, match=f"model of type '{model_type}'"):
        build({"model_type": model_type, "num_hidden_layers": 0})


def test_weights_of_another_model_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tiny("llama") / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(tiny_config("gemma3")))
    with pytest.raises(ModelFilesError, match="has no weights as"):
        Stages(tmp_path, (0, 4))
