"""One and the same text, whatever the ring and whoever else is being answered. Holds to the bit with the reference BLAS."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from p2pexo.engine.batch import BatchResult, Drawing
from p2pexo.engine.limits import Limits
from p2pexo.engine.pacing import Pace
from p2pexo.engine.scheduler import Advance, Scheduler
from p2pexo.engine.stage import StageEngine
from p2pexo.generation.request import Sampling

CUTS = [(0, 4), (0, 1, 4), (0, 1, 3, 4)]
DRAWINGS = {"greedy": Sampling(temperature=0), "seeded": Sampling(temperature=1.0, seed=7)}
OTHERS = [
    Sampling(temperature=0.7, seed=1, top_p=0.9),
    Sampling(temperature=0),
    Sampling(seed=7),
    Sampling(seed=3, frequency_penalty=0.5, repetition_penalty=1.1),
    Sampling(seed=4, top_k=40, min_p=0.05),
    Sampling(temperature=1.5, seed=5, logit_bias=((9, 3.0),)),
    Sampling(seed=6, presence_penalty=1.0),
]


def answers(
    stages: Sequence[StageEngine], wanted: Sequence[tuple[tuple[int, ...], Sampling]], count: int, limits: Limits
) -> list[list[int]]:
    """What is drawn for each prompt, all of them at once."""
    for stage in stages:
        stage.clear()
    scheduler = Scheduler(limits, Pace(len(stages)))
    drawn = {scheduler.add(prompt, Drawing(sampling)): list[int]() for prompt, sampling in wanted}
    while batch := scheduler.next_batch():
        hidden: Any = None
        for stage in stages:
            hidden = stage.run(batch, hidden)
        assert isinstance(hidden, BatchResult)
        assert not hidden.failures
        for outcome in scheduler.apply(hidden):
            assert isinstance(outcome, Advance)
            if outcome.drawn is not None:
                drawn[outcome.sequence].append(outcome.drawn.token)
                if len(drawn[outcome.sequence]) == count:
                    scheduler.remove(outcome.sequence)
    return list(drawn.values())


def ring_of(directory: Path, cuts: Sequence[int]) -> list[StageEngine]:
    return [
        StageEngine.load(directory, first_layer=first, end_layer=end, precision="dequantise")
        for first, end in pairwise(cuts)
    ]


def random_prompt(random: Random, vocabulary: int) -> tuple[int, ...]:
    return tuple(random.choices(range(3, vocabulary), k=random.randint(2, 40)))


def test_a_text_is_the_same_behind_a_head_that_others_have_computed(tiny_model: Path) -> None:
    random = Random(13)
    head = tuple(random.choices(range(3, 320), k=50))
    wanted = [(head + tail, sampling) for tail, sampling in zip(((), (4,), (5, 6), (7,)), OTHERS[:4], strict=True)]
    ring = ring_of(tiny_model, (0, 2, 4))
    alone = [answers(ring, [each], 12, Limits(rows=16, kept_tokens=0))[0] for each in wanted]
    one_after_another = Limits(rows=16, running=1)
    assert answers(ring, wanted * 2, 12, one_after_another) == alone * 2


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_text_is_the_same_in_every_ring_and_in_every_company(tiny_model: Path, name: str) -> None:
    random = Random(11)
    first, *others = [random_prompt(random, 320) for _ in range(8)]
    wanted = [(first, DRAWINGS[name]), *zip(others, OTHERS, strict=True)]
    limits = Limits(rows=16, together=5, cache_tokens=256 * 7)
    texts: list[list[int]] = []
    companies: list[list[list[int]]] = []
    for cuts in CUTS:
        ring = ring_of(tiny_model, cuts)
        texts += answers(ring, wanted[:1], 60, Limits())
        companies.append(answers(ring, wanted, 60, limits))
    texts += [company[0] for company in companies]
    assert texts == [texts[0]] * 6
    assert companies == [companies[0]] * 3


def test_the_real_model_says_the_same_among_others(real_model: Path) -> None:
    """Short, as every row takes its time here."""
    random = Random(12)
    layers: int = json.loads((real_model / "config.json").read_text())["num_hidden_layers"]
    prompts = [tuple(random.choices(range(1000, 40_000), k=k)) for k in (2, 3, 1)]
    wanted = list(zip(prompts, [*DRAWINGS.values(), OTHERS[0]], strict=True))
    company = answers(ring_of(real_model, (0, 12, layers)), wanted, 4, Limits())
    whole = ring_of(real_model, (0, layers))
    assert company[:2] == [answers(whole, wanted[number : number + 1], 4, Limits())[0] for number in (0, 1)]
