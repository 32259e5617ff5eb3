"""Scheduled and random faults on a ring that computes letters which depend on every token and layer before them."""

import pytest
from end_to_end.dialects import DIALECTS
from end_to_end.faults.faults import Fault, draw_faults
from end_to_end.faults.harness import Question, Stage

SEED = 6
TOKENS = 60


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_in_each_dialect_outlives_a_killed_stage(stage: Stage, dialect: str) -> None:
    number = DIALECTS.index(dialect)
    fault = Fault("stage", token=20, pick=number)
    outcome = stage.perform(fault, Question(dialect, stream=number % 2 == 0, max_tokens=TOKENS))
    assert outcome.text == outcome.expected, outcome.error
    assert outcome.is_equal


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind",
    [
        "node",
        "leaving node",
        "leader",
        pytest.param("leader beside", marks=pytest.mark.long),
        pytest.param("silent node", marks=pytest.mark.long),
        "silent stage",
        pytest.param("two stages", marks=pytest.mark.long),
    ],
)
def test_an_answer_outlives(stage: Stage, kind: str) -> None:
    outcome = stage.perform(Fault(kind, token=30, pick=1), Question("chat", stream=True, max_tokens=TOKENS))
    assert outcome.text == outcome.expected, outcome.error
    assert outcome.is_equal


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", draw_faults(SEED, 2, ("stage", "node"), TOKENS), ids=lambda fault: fault.kind)
def test_an_answer_outlives_what_a_seed_draws(stage: Stage, fault: Fault) -> None:
    outcome = stage.perform(fault, Question("chat", stream=True, max_tokens=TOKENS))
    assert outcome.text == outcome.expected, outcome.error
    assert outcome.is_equal
