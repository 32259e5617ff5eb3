import pytest
from attrs import evolve

from p2pexo.cluster.facts import LinkSpeed, SpeedsFact
from p2pexo.cluster.machines import Candidate
from p2pexo.cluster.manual import parse_split
from p2pexo.cluster.placement import plan
from p2pexo.cluster.preview import preview
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.models.card import Card

CARD = Card("owner/model", "r1", "llama", 30, 576, 4, 100_000, 300_000, 320_000, 5)
SPEEDS = SpeedsFact(10e6, 10e9, links=[LinkSpeed("peer-a", 0.01), LinkSpeed("peer-b", 0.01)])
MACHINES = [
    Candidate("peer-a", "mac-a", 2_500_000, speeds=SPEEDS),
    Candidate("peer-b", "mac-b", 2_500_000, speeds=SPEEDS),
    Candidate("peer-c", "mac-c", 2_500_000, speeds=evolve(SPEEDS, prefill_flops_per_s=None)),
]


def test_each_number_of_machines_is_shown_with_its_stages_or_why_it_is_impossible() -> None:
    shown = preview(CARD, MACHINES)
    assert [option.machines for option in shown.options] == [1, 2, 3]
    assert shown.chosen == 2
    one, two, three = shown.options
    assert one.stages == ()
    assert one.reason == "needs 4 MB; the machine with most room has 2 MB free"
    assert [(each.node, each.peer) for each in two.stages] == [("mac-a", "peer-a"), ("mac-b", "peer-b")]
    assert two.reason == two.note == ""
    assert [stage.end_layer for stage in two.stages] == [stage.end_layer for stage in plan(CARD, MACHINES)]
    assert all(stage.memory_bytes <= stage.memory_free == 2_500_000 for stage in two.stages)
    assert len(three.stages) == 3


def test_speeds_are_told_where_they_are_measured() -> None:
    _, two, three = preview(CARD, MACHINES).options
    assert two.decode_tokens_per_s == pytest.approx(1 / ((30 * 100_000 + 320_000) / 10e6 + 0.01))
    assert two.prefill_tokens_per_s is not None
    assert three.decode_tokens_per_s is not None
    assert three.prefill_tokens_per_s is None


def test_where_they_are_not_it_is_said_in_words() -> None:
    slow = [evolve(each, speeds=SpeedsFact()) for each in MACHINES[:2]]
    option = preview(CARD, slow, min_stages=2).options[1]
    assert option.stages
    assert option.decode_tokens_per_s is option.prefill_tokens_per_s is option.stages[0].token_s is None
    assert option.note == "mac-a, mac-b: speed not measured yet"


def test_what_is_asked_for_at_least_is_chosen() -> None:
    assert preview(CARD, MACHINES, min_stages=3).chosen == 3
    with pytest.raises(InvalidRequestError, match="min_stages is 4"):
        preview(CARD, MACHINES, min_stages=4)


def test_a_model_that_fits_nowhere_is_explained_for_every_number() -> None:
    small = [evolve(each, budget=600_000) for each in MACHINES]
    shown = preview(CARD, small, running="p1")
    assert shown.chosen is None
    assert shown.running == "p1"
    assert all(option.reason.startswith("needs ") for option in shown.options)


def test_a_split_is_the_only_option() -> None:
    shown = preview(CARD, MACHINES, split=parse_split("mac-a=0-14,mac-c=15-29"))
    (option,) = shown.options
    assert shown.chosen == 2
    assert [stage.node for stage in option.stages] == ["mac-a", "mac-c"]
    refused = preview(CARD, MACHINES, split=parse_split("mac-a=0-27,mac-c=28-29"))
    assert refused.chosen is None
    assert "mac-a=0-27 does not fit" in refused.options[0].reason
