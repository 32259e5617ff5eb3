import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, cast

import mlx.core as mx
import pytest
from attrs import evolve

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Fork, SequenceFailure
from p2pexo.engine.families import UnsupportedModelError
from p2pexo.engine.mlx_models import model_module
from p2pexo.engine.stage import StageEngine
from p2pexo.generation.request import Sampling

GREEDY = Drawing(Sampling(temperature=0))
SLIDING: dict[str, Any] = {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 6}
PROMPT = (5, 17, 300, 42, 8, 9, 120)


class Ring:
    """The stages of a model in one process, one after another."""

    def __init__(self, directory: Path, cuts: Sequence[int], precision: str = "auto") -> None:
        self.stages = [
            StageEngine.load(directory, first_layer=first, end_layer=end, precision=precision)
            for first, end in pairwise(cuts)
        ]

    def run(self, *entries: Entry, release: tuple[int, ...] = (), keep: tuple[int, ...] = ()) -> BatchResult:
        hidden: Any = None
        for stage in self.stages:
            hidden = stage.run(Batch(0, entries, release, keep), hidden)
        assert isinstance(hidden, BatchResult)
        return hidden

    def generate(self, prompt: Sequence[int], count: int, drawing: Drawing = GREEDY, sequence: int = 0) -> list[int]:
        tokens: list[int] = []
        new, position = tuple(prompt), 0
        for index in range(count):
            result = self.run(Entry(sequence, new, position, index, drawing if index == 0 else None))
            position += len(new)
            new = (result.sampled[0].token,)
            tokens += new
        return tokens


def plain_greedy(directory: Path, prompt: Sequence[int], count: int) -> list[int]:
    """By the whole model of mlx-lm at once, without any cache."""
    config = json.loads((directory / "config.json").read_text())
    module = model_module(config["model_type"])
    model = module.Model(module.ModelArgs.from_dict(config))
    model.load_weights(str(directory / "model.safetensors"))
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(cast(int, mx.argmax(model(mx.array([tokens]))[0, -1]).item()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("cuts", [(0, 4), (0, 2, 4), (0, 1, 3, 4), (0, 1, 2, 3, 4)])
def test_any_cut_gives_the_tokens_of_the_whole_model(tiny_model: Path, cuts: tuple[int, ...]) -> None:
    assert Ring(tiny_model, cuts).generate(PROMPT, 12) == plain_greedy(tiny_model, PROMPT, 12)


@pytest.mark.parametrize(
    "config",
    [
        {"tie_word_embeddings": False},
        {"model_type": "mistral"},
        SLIDING,
        {"model_type": "qwen2"},
        {"model_type": "qwen3", "tie_word_embeddings": False},
    ],
    ids=["untied", "mistral", "sliding", "qwen2", "qwen3"],
)
def test_every_family_gives_the_tokens_of_the_whole_model(make_model, config) -> None:
    directory = make_model(**config)
    assert Ring(directory, (0, 1, 4)).generate(PROMPT, 12) == plain_greedy(directory, PROMPT, 12)


def test_a_model_type_without_a_family_is_refused_by_name(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    with pytest.raises(UnsupportedModelError, match=r"'nonesuch'.*llama"):
        StageEngine.load(tmp_path, first_layer=0, end_layer=4)


def test_a_stage_holds_only_its_layers_and_its_ends(tiny_model: Path) -> None:
    whole = StageEngine.load(tiny_model, first_layer=0, end_layer=4)
    first, middle, last = Ring(tiny_model, (0, 1, 3, 4)).stages
    embedding, norm = 320 * 64 * 4, 64 * 4
    layer = (whole.weight_bytes - embedding - norm) // 4
    assert middle.weight_bytes == 2 * layer
    assert first.weight_bytes == layer + embedding
    assert last.weight_bytes == layer + embedding + norm
    assert (first.is_first, first.is_last, middle.is_first, last.is_last) == (True, False, False, True)
    assert (whole.layers_total, whole.hidden_size, whole.wire_dtype) == (4, 64, "float32")


def test_loading_tells_its_progress(tiny_model: Path) -> None:
    shares: list[float] = []
    StageEngine.load(tiny_model, first_layer=0, end_layer=4, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 4


def test_a_prompt_in_chunks_gives_the_tokens_of_a_whole_one(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    assert ring.run(Entry(1, PROMPT[:3], 0, None, GREEDY)) == BatchResult(0)
    assert ring.run(Entry(1, PROMPT[3:5], 3)) == BatchResult(0)
    token = ring.run(Entry(1, PROMPT[5:], 5, 0)).sampled[0].token
    assert [token] == ring.generate(PROMPT, 1)


def test_ragged_entries_of_a_batch_give_the_tokens_they_give_alone(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    prompts = {1: PROMPT, 2: PROMPT[:2], 3: (7,)}
    alone = {sequence: ring.generate(prompt, 4, sequence=sequence) for sequence, prompt in prompts.items()}
    together: dict[int, list[int]] = {sequence: [] for sequence in prompts}
    new, positions = dict(prompts), dict.fromkeys(prompts, 0)
    for index in range(4):
        entries = [Entry(each, new[each], positions[each], index, GREEDY if index == 0 else None) for each in prompts]
        for sampled in ring.run(*entries).sampled:
            positions[sampled.sequence] += len(new[sampled.sequence])
            new[sampled.sequence] = (sampled.token,)
            together[sampled.sequence].append(sampled.token)
    assert together == alone


@pytest.mark.parametrize("config", [{}, SLIDING], ids=["plain", "sliding"])
def test_prompts_that_begin_together_give_the_tokens_they_give_alone(make_model, config) -> None:
    ring = Ring(make_model(**config), (0, 1, 4))
    prompts = {1: PROMPT * 2, 2: PROMPT[:3], 3: PROMPT[2:] * 3, 4: PROMPT[1:3]}
    alone = {sequence: ring.generate(prompt, 9, sequence=sequence) for sequence, prompt in prompts.items()}
    entries = [Entry(each, prompt, 0, 0, GREEDY) for each, prompt in prompts.items()]
    drawn = {each.sequence: [each.token] for each in ring.run(*entries, Entry(5, (10**6, 4), 0, 0, GREEDY)).sampled}
    assert sorted(drawn) == [1, 2, 3, 4]
    for index in range(1, 9):
        entries = [Entry(each, (drawn[each][-1],), len(prompt) + index - 1, index) for each, prompt in prompts.items()]
        for sampled in ring.run(*entries).sampled:
            drawn[sampled.sequence].append(sampled.token)
    assert drawn == alone


@pytest.mark.parametrize("config", [{}, SLIDING], ids=["plain", "sliding"])
@pytest.mark.parametrize("cuts", [(0, 4), (0, 1, 4)])
def test_sequences_join_leave_and_change_company_at_any_step(make_model, config, cuts: tuple[int, ...]) -> None:
    ring = Ring(make_model(**config), cuts)
    random = Random(5)
    prompts = {number: tuple(random.choices(range(3, 320), k=random.randint(1, 20))) for number in range(1, 9)}
    alone = {number: ring.generate(prompt, 30, sequence=number) for number, prompt in prompts.items()}
    drawn: dict[int, list[int]] = {}
    here: list[int] = []
    while len(drawn) < len(prompts) or here:
        if len(drawn) < len(prompts) and random.random() < 0.3:
            here.append(newest := len(drawn) + 1)
            drawn[newest] = [ring.run(Entry(newest, prompts[newest], 0, 0, GREEDY)).sampled[0].token]
        random.shuffle(here)
        company = here[: random.randint(1, len(here))] if random.random() < 0.5 else here
        entries = [
            Entry(each, (drawn[each][-1],), len(prompts[each]) + len(drawn[each]) - 1, len(drawn[each]))
            for each in company
        ]
        ended = tuple(each for each in here if len(drawn[each]) >= random.randint(25, 30))
        here = [each for each in here if each not in ended]
        result = ring.run(*(entry for entry in entries if entry.sequence in here), release=ended)
        assert not result.failures
        for sampled in result.sampled:
            drawn[sampled.sequence].append(sampled.token)
    assert drawn == {number: alone[number][: len(tokens)] for number, tokens in drawn.items()}


def test_a_failure_leaves_the_others_of_its_batch_as_they_were(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    expected = ring.generate(PROMPT, 4)
    for sequence in (1, 2, 3):
        ring.run(Entry(sequence, PROMPT, 0, 0, GREEDY))
    for index in range(1, 4):
        company = (1, 2, 3) if index < 3 else (1, 3)
        entries = [Entry(each, (expected[index - 1],), len(PROMPT) + index - 1, index) for each in company]
        entries = [evolve(each, tokens=(10**6,)) if index == 2 and each.sequence == 2 else each for each in entries]
        result = ring.run(*entries)
        assert [each.sequence for each in result.failures] == ([2] if index == 2 else [])
        assert {each.token for each in result.sampled} == {expected[index]}


@pytest.mark.parametrize("config", [{}, SLIDING], ids=["plain", "sliding"])
def test_a_sequence_that_begins_with_anothers_tokens_gives_what_it_gives_alone(make_model, config) -> None:
    ring = Ring(make_model(**config), (0, 2, 4))
    drawing = Drawing(Sampling(temperature=1.0, seed=3, repetition_penalty=1.3, presence_penalty=0.4))
    longer = (*PROMPT, 11, 12, 13)
    alone = ring.generate(longer, 8, drawing, sequence=1)
    expected = ring.generate(PROMPT, 8, drawing, sequence=2)
    ring.run(Entry(3, PROMPT[:5], 0, None, drawing))
    drawn: dict[int, list[int]] = {3: [], 4: []}
    entry = Entry(4, longer[4:], 4, 0, drawing, Fork(3, 4))
    drawn[4].append(ring.run(entry).sampled[0].token)
    drawn[3].append(ring.run(Entry(3, PROMPT[5:], 5, 0)).sampled[0].token)
    for index in range(1, 8):
        entries = [
            Entry(each, (drawn[each][-1],), len(prompt) + index - 1, index)
            for each, prompt in ((3, PROMPT), (4, longer))
        ]
        for sampled in ring.run(*entries).sampled:
            drawn[sampled.sequence].append(sampled.token)
    assert drawn == {3: expected, 4: alone}


def test_a_row_of_a_batch_can_be_taken_over_and_outlives_its_company(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    expected = ring.generate(PROMPT, 3)
    for sequence in (1, 2):
        ring.run(Entry(sequence, PROMPT, 0, 0, GREEDY))
    ring.run(*(Entry(each, (expected[0],), len(PROMPT), 1) for each in (1, 2)))
    entry = Entry(3, PROMPT[6:], 6, 0, GREEDY, Fork(1, 6))
    assert ring.run(entry).sampled[0].token == expected[0]
    ring.run(keep=(1, 2))
    ring.run(Entry(2, (expected[1],), len(PROMPT) + 1, 2))
    entry = Entry(4, PROMPT[6:], 6, 0, GREEDY, Fork(1, 6))
    assert ring.run(entry, release=(2,)).sampled[0].token == expected[0]


def test_a_fork_that_cannot_be_made_is_told_as_such(make_model) -> None:
    ring = Ring(make_model(**SLIDING), (0, 1, 4))
    ring.run(Entry(1, PROMPT * 2, 0, 0, GREEDY))
    for fork in (Fork(1, 4), Fork(9, 4)):
        (failure,) = ring.run(Entry(2, PROMPT[4:], 4, 0, GREEDY, fork)).failures
        assert (failure.sequence, failure.is_fork) == (2, True)


def test_a_replayed_answer_goes_on_as_if_undisturbed(tiny_model: Path) -> None:
    drawing = Drawing(Sampling(temperature=1.5, seed=11, frequency_penalty=0.5, repetition_penalty=1.2))
    whole = Ring(tiny_model, (0, 2, 4)).generate(PROMPT, 10, drawing)
    ring = Ring(tiny_model, (0, 1, 4))
    replayed = (*PROMPT, *whole[:6])
    token = ring.run(Entry(9, replayed, 0, 6, drawing)).sampled[0].token
    assert token == whole[6]


def test_a_sequence_with_broken_hidden_states_fails_alone(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    batch = Batch(5, (Entry(1, PROMPT, 0, 0, GREEDY), Entry(2, PROMPT, 0, 0, GREEDY)))
    hidden = bytearray(cast(memoryview, ring.stages[0].run(batch)))
    hidden[: 64 * 4] = b"\xff" * (64 * 4)  # the first row of sequence 1 is not a number
    result = ring.stages[1].run(batch, bytes(hidden))
    assert isinstance(result, BatchResult)
    assert [failure.sequence for failure in result.failures] == [1]
    assert "NaN" in result.failures[0].message
    assert [(each.sequence, each.token) for each in result.sampled] == [(2, ring.generate(PROMPT, 1)[0])]


def test_a_sequence_at_the_wrong_position_fails_alone_and_on_every_stage(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    expected = ring.generate(PROMPT, 2)
    result = ring.run(Entry(7, (4,), 30, 3), Entry(0, (expected[1],), len(PROMPT) + 1, 2))
    assert [failure.sequence for failure in result.failures] == [7]
    assert len(result.sampled) == 1
    assert ring.generate(PROMPT, 2) == expected


def test_a_token_outside_the_vocabulary_does_not_end_the_stage(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 4))
    assert ring.run(Entry(1, (10**6,), 0, 0, GREEDY)).failures
    assert ring.run(Entry(2, (-1,), 0, 0, GREEDY)).failures
    assert ring.generate(PROMPT, 2) == plain_greedy(tiny_model, PROMPT, 2)


def test_a_released_sequence_is_forgotten(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 4))
    ring.generate(PROMPT, 1, sequence=3)
    result = ring.run(Entry(3, (1,), len(PROMPT), 1), release=(3,))
    assert [type(each) for each in result.failures] == [SequenceFailure]


def test_every_stage_tells_whose_caches_it_holds(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    ring.generate(PROMPT, 2, sequence=1)
    ring.generate(PROMPT, 2, sequence=2)
    assert [stage.conversations for stage in ring.stages] == [2, 2]
    assert all(stage.cache_bytes > 0 for stage in ring.stages)
    ring.run(release=(1,))
    assert [stage.conversations for stage in ring.stages] == [1, 1]


def test_clearing_forgets_all_sequences_and_keeps_the_weights(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    expected = ring.generate(PROMPT, 3)
    for stage in ring.stages:
        stage.clear()
    assert ring.run(Entry(0, (1,), len(PROMPT) + 2, 3)).failures
    assert ring.generate(PROMPT, 3) == expected


def test_hidden_states_of_the_wrong_size_are_refused(tiny_model: Path) -> None:
    last = StageEngine.load(tiny_model, first_layer=2, end_layer=4)
    batch = Batch(1, (Entry(1, (1, 2), 0, 0, GREEDY),))
    with pytest.raises(ValueError, match="512"):
        last.run(batch, bytes(64 * 4))
    with pytest.raises(ValueError, match="without the hidden states"):
        last.run(batch, None)


def test_a_batch_without_entries_only_releases(tiny_model: Path) -> None:
    ring = Ring(tiny_model, (0, 2, 4))
    assert ring.run(release=(1, 2)) == BatchResult(0)


@pytest.mark.parametrize("cuts", [(0, 30), (0, 15, 30), (0, 10, 20, 30)])
def test_the_real_model_gives_the_same_tokens_for_any_cut_as_mlx_lm_itself(
    real_model: Path, real_reference: tuple[list[int], list[int]], cuts: tuple[int, ...]
) -> None:
    prompt, expected = real_reference
    assert Ring(real_model, cuts, "dequantise").generate(prompt, len(expected)) == expected


@pytest.fixture(scope="module")
def real_reference(real_model: Path) -> tuple[list[int], list[int]]:
    """A prompt, and what mlx-lm's own loader and generation make of it with the same weights in dense fp32."""
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import dequantize_model, load_model

    model, _ = load_model(real_model)
    model.set_dtype(mx.float32)
    model = dequantize_model(model)
    prompt = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    steps = generate_step(mx.array(prompt), model, max_tokens=10)
    return prompt, [int(token) for token, _ in steps]
