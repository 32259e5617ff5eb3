"""A step that is begun before it is asked for changes no token, whatever is asked for instead."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from attrs import evolve, frozen

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Fork
from p2pexo.engine.stage import StageEngine
from p2pexo.generation.request import Sampling

GREEDY = Drawing(Sampling(temperature=0))
SEEDED = Drawing(Sampling(temperature=1.0, seed=7))
PROMPT = (5, 17, 300, 42, 8, 9, 120)
OTHER = (11, 4, 250)
WINDOW = 12
SLIDING: dict[str, Any] = {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": WINDOW}


@frozen
class Ring:
    stages: tuple[StageEngine, ...]

    @classmethod
    def load(cls, directory: Path, *cuts: int) -> "Ring":
        return cls(tuple(StageEngine.load(directory, first_layer=low, end_layer=high) for low, high in pairwise(cuts)))

    @property
    def is_ahead(self) -> bool:
        return any(stage._lookahead is not None for stage in self.stages)

    def run(self, *entries: Entry, release: tuple[int, ...] = (), keep: tuple[int, ...] = ()) -> BatchResult:
        hidden: Any = None
        for stage in self.stages:
            hidden = stage.run(Batch(0, entries, release, keep), hidden)
        assert isinstance(hidden, BatchResult)
        return hidden


class Talk:
    """One sequence, answered token by token."""

    def __init__(
        self, sequence: int, prompt: Sequence[int], drawing: Drawing = GREEDY, fork: Fork | None = None
    ) -> None:
        start = fork.tokens if fork else 0
        self.next = Entry(sequence, tuple(prompt[start:]), start, 0, drawing, fork)
        self.tokens: list[int] = []

    def take(self, result: BatchResult) -> None:
        (token,) = [each.token for each in result.sampled if each.sequence == self.next.sequence]
        self.tokens.append(token)
        position = self.next.position + len(self.next.tokens)
        self.next = Entry(self.next.sequence, (token,), position, len(self.tokens))

    def go_on(self, ring: Ring, count: int) -> list[int]:
        for _ in range(count):
            self.take(ring.run(self.next))
        return self.tokens


@pytest.fixture(scope="module")
def whole(tiny_model: Path) -> Ring:
    """It looks ahead."""
    return Ring.load(tiny_model, 0, 4)


@pytest.fixture(scope="module")
def cut(tiny_model: Path) -> Ring:
    """It never does."""
    return Ring.load(tiny_model, 0, 2, 4)


@pytest.fixture(autouse=True)
def forgotten(whole: Ring, cut: Ring) -> None:
    for stage in (*whole.stages, *cut.stages):
        stage.clear()


@pytest.mark.parametrize("drawing", [GREEDY, SEEDED, Drawing(Sampling(temperature=0.8, seed=3, top_p=0.9, top_k=40))])
def test_an_answer_alone_is_looked_ahead_in_and_stays_the_same(whole: Ring, cut: Ring, drawing: Drawing) -> None:
    tokens = Talk(1, PROMPT, drawing).go_on(whole, 20)
    assert whole.is_ahead
    assert tokens == Talk(1, PROMPT, drawing).go_on(cut, 20)
    assert not cut.is_ahead


@pytest.mark.parametrize("drawing", [GREEDY, SEEDED])
def test_another_one_joins_and_leaves(whole: Ring, cut: Ring, drawing: Drawing) -> None:
    def together(ring: Ring) -> tuple[list[int], list[int]]:
        first, second = Talk(1, PROMPT, drawing), Talk(2, OTHER)
        first.go_on(ring, 3)
        second.take(ring.run(second.next))  # by itself, while the first one is looked ahead of
        for _ in range(3):
            result = ring.run(first.next, second.next)
            first.take(result)
            second.take(result)
        return first.go_on(ring, 4), second.tokens

    assert together(whole) == together(cut) == (Talk(1, PROMPT, drawing).go_on(cut, 10), Talk(2, OTHER).go_on(cut, 4))


def test_two_that_take_turns_disturb_neither(whole: Ring, cut: Ring) -> None:
    first, second = Talk(1, PROMPT), Talk(2, OTHER, SEEDED)
    for _ in range(8):
        first.go_on(whole, 1)
        second.go_on(whole, 1)
    assert whole.is_ahead
    assert first.tokens == Talk(1, PROMPT).go_on(cut, 8)
    assert second.tokens == Talk(2, OTHER, SEEDED).go_on(cut, 8)


def test_one_that_is_released_is_gone_and_its_number_free(whole: Ring, cut: Ring) -> None:
    Talk(1, PROMPT).go_on(whole, 3)
    assert whole.is_ahead
    whole.run(release=(1,))
    assert not whole.is_ahead
    assert Talk(1, OTHER).go_on(whole, 6) == Talk(1, OTHER).go_on(cut, 6)


def test_one_that_begins_anew_under_its_number_is_not_taken_for_the_old_one(whole: Ring, cut: Ring) -> None:
    Talk(1, PROMPT).go_on(whole, 3)
    assert Talk(1, OTHER).go_on(whole, 6) == Talk(1, OTHER).go_on(cut, 6)


@pytest.mark.parametrize("keep", [(1,), ()], ids=["kept", "running"])
def test_another_one_begins_with_all_that_one_has_said(whole: Ring, cut: Ring, keep: tuple[int, ...]) -> None:
    def forked(ring: Ring) -> list[int]:
        first = Talk(1, PROMPT)
        first.go_on(ring, 5)
        said = (*PROMPT, *first.tokens[:-1])
        if keep:
            ring.run(keep=keep)
        return Talk(2, (*said, 77, 78), SEEDED, Fork(1, len(said))).go_on(ring, 6)

    tokens = forked(whole)
    assert tokens == forked(cut)
    said = (*PROMPT, *Talk(3, PROMPT).go_on(cut, 5)[:-1])
    assert tokens == Talk(4, (*said, 77, 78), SEEDED).go_on(cut, 6)


@pytest.mark.parametrize("alone", [WINDOW - len(PROMPT) - 1, WINDOW - len(PROMPT), WINDOW - len(PROMPT) + 1, 20])
def test_a_sliding_window_that_is_full_is_never_overwritten_in_vain(make_model: Any, alone: int) -> None:
    directory = make_model(**SLIDING)
    whole, cut = Ring.load(directory, 0, 4), Ring.load(directory, 0, 2, 4)

    def together(ring: Ring) -> list[int]:
        first, second = Talk(1, PROMPT), Talk(2, OTHER)
        first.go_on(ring, alone)
        second.go_on(ring, 1)
        for _ in range(4):
            result = ring.run(first.next, second.next)
            first.take(result)
            second.take(result)
        return first.go_on(ring, 4) + second.tokens

    assert together(whole) == together(cut)


@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(Sampling(temperature=0, repetition_penalty=1.3)),
        Drawing(Sampling(temperature=0, presence_penalty=1.0)),
        Drawing(Sampling(temperature=0), top_logprobs=2),
    ],
    ids=["repetition", "presence", "logprobs"],
)
def test_where_the_token_itself_is_wanted_first_it_waits(whole: Ring, cut: Ring, drawing: Drawing) -> None:
    tokens = Talk(1, PROMPT, drawing).go_on(whole, 8)
    assert not whole.is_ahead
    assert tokens == Talk(1, PROMPT, drawing).go_on(cut, 8)


def test_nothing_is_begun_behind_the_last_token(whole: Ring) -> None:
    talk = Talk(1, PROMPT, evolve(GREEDY, end_index=4))
    talk.go_on(whole, 3)
    assert whole.is_ahead
    talk.go_on(whole, 1)
    assert not whole.is_ahead


def test_a_step_that_gives_no_numbers_fails_when_it_is_asked_for_and_alone(whole: Ring, cut: Ring) -> None:
    talk = Talk(1, PROMPT)
    talk.go_on(whole, 2)
    (stage,) = whole.stages
    for cache in stage._caches.take([1]):  # as if what was computed before had overflowed
        cache.keys = cache.keys * mx.nan
    talk.go_on(whole, 1)  # was begun before
    (failure,) = whole.run(talk.next).failures
    assert (failure.sequence, "NaN" in failure.message) == (1, True)
    assert not whole.is_ahead
    assert Talk(2, OTHER).go_on(whole, 6) == Talk(2, OTHER).go_on(cut, 6)
