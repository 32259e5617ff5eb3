from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from p2pexo.cluster.demand import demand
from p2pexo.cluster.machines import Candidate
from p2pexo.cluster.placement import plan
from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError
from p2pexo.models.card import Card

CARD = Card(
    id="owner/model",
    revision="r1",
    architecture="llama",
    layers=30,
    hidden_size=576,
    context_length=4,
    layer_bytes=100,
    embedding_bytes=300,
    head_bytes=320,
    kv_bytes_per_token=5,
    dense_factor=4.0,
)
LAYER = 120


def machines(*budgets: int, **changes: Any) -> list[Candidate]:
    return [Candidate(f"peer{index}", f"mac-{index}", budget, **changes) for index, budget in enumerate(budgets)]


def test_one_machine_that_fits_is_enough() -> None:
    (stage,) = plan(CARD, machines(1000, 10_000, 5000))
    assert (stage.peer, stage.first_layer, stage.end_layer) == ("peer1", 0, 30)
    assert stage.reserved_bytes == 30 * (100 + 5 * stage.cache_tokens) + 300 + 320
    assert 4 < stage.cache_tokens <= 16


def test_equal_machines_get_equal_shares_when_a_split_is_asked_for() -> None:
    stages = plan(CARD, machines(10**9, 10**9, 10**9), min_stages=3)
    assert [stage.end_layer - stage.first_layer for stage in stages] == [10, 10, 10]
    assert {stage.peer for stage in stages} == {"peer0", "peer1", "peer2"}


def test_layers_go_by_memory_with_both_ends_counted_where_they_sit() -> None:
    stages = plan(CARD, machines(300 + 10 * LAYER, 320 + 20 * LAYER))
    assert sorted(stage.end_layer - stage.first_layer for stage in stages) == [10, 20]
    assert sum(stage.reserved_bytes for stage in stages) == 30 * LAYER + 300 + 320
    assert {stage.cache_tokens for stage in stages} == {4}


def test_room_for_conversations_is_equal_on_all_stages_and_leaves_most_of_the_memory_free() -> None:
    card = evolve(CARD, context_length=100)
    stages = plan(card, machines(10_820, 10_820), min_stages=2)
    assert [(stage.end_layer - stage.first_layer, stage.cache_tokens) for stage in stages] == [(15, 105)] * 2
    assert [stage.reserved_bytes for stage in stages] == [15 * (100 + 5 * 105) + end for end in (300, 320)]
    (alone,) = plan(card, machines(10**9))
    assert alone.cache_tokens == 400


def test_a_machine_that_holds_the_model_comes_before_a_larger_one() -> None:
    small = evolve(machines(10_000)[0], preference=1)
    large = Candidate("peer9", "studio", 90_000)
    assert [stage.peer for stage in plan(CARD, [large, small])] == ["peer0"]


def test_machines_that_compute_in_different_formats_share_no_ring() -> None:
    mac, other_mac = (Candidate(f"mac{each}", "mac", 2400, device="gpu") for each in (1, 2))
    linux = [Candidate(f"linux{each}", "linux", 10_000, dense=True) for each in (1, 2)]
    both = [mac, *linux, other_mac]
    assert {stage.peer for stage in plan(CARD, both)} == {"mac1", "mac2"}
    assert {stage.peer for stage in plan(CARD, both, precision="keep", min_stages=2)} == {"mac1", "mac2"}
    assert {stage.peer for stage in plan(CARD, [mac, *linux])} == {"linux1", "linux2"}
    assert len({stage.peer for stage in plan(CARD, both, precision="dequantise", min_stages=4)}) == 4


def test_what_keeps_machines_apart_is_said() -> None:
    mixed = [Candidate("mac", "mac", 2400, device="gpu"), Candidate("linux", "linux", 2400)]
    with pytest.raises(InvalidRequestError, match=r"1 node can run.*1 in fp32, 1 in the model's own"):
        plan(CARD, mixed, min_stages=2)
    with pytest.raises(InsufficientMemoryError, match="can't share a ring: here 1 in fp32, 1 in the model's own"):
        plan(CARD, mixed)


def test_of_two_rings_of_one_size_that_of_gpus_is_taken() -> None:
    mac, linux = Candidate("mac", "mac", 10_000, device="gpu"), Candidate("linux", "linux", 90_000, preference=1)
    assert [stage.peer for stage in plan(CARD, [linux, mac])] == ["mac"]


def test_a_preferred_machine_that_makes_more_stages_necessary_is_passed_over() -> None:
    small = evolve(machines(1000)[0], preference=1)
    large = Candidate("peer9", "studio", 90_000)
    assert [stage.peer for stage in plan(CARD, [small, large])] == ["peer9"]


def test_weights_count_larger_where_they_are_dequantised() -> None:
    quantised, dense = machines(5000)[0], machines(5000, dense=True)[0]
    assert plan(CARD, [quantised])
    with pytest.raises(InsufficientMemoryError):
        plan(CARD, [dense])
    assert plan(CARD, [dense], precision="keep")
    with pytest.raises(InsufficientMemoryError):
        plan(CARD, [quantised], precision="dequantise")


def test_a_model_that_does_not_fit_is_refused_with_what_each_machine_needs_and_has() -> None:
    with pytest.raises(InsufficientMemoryError) as caught:
        plan(CARD, [Candidate("p0", "mini", 3_000, reserved=2_999), Candidate("p1", "studio", 1_500)])
    for part in ("owner/model", "mini", "studio", "needs", "free"):
        assert part in caught.value.message
    assert caught.value.retry_after_s


@pytest.mark.parametrize("min_stages", [0, -1, 4, 31])
def test_impossible_numbers_of_stages_are_refused_by_name(min_stages: int) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan(CARD, machines(10_000, 10_000, 10_000), min_stages=min_stages)
    assert caught.value.param == "min_stages"
    assert str(min_stages) in caught.value.message


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InvalidRequestError):
        plan(evolve(CARD, layers=2), machines(10_000, 10_000, 10_000), min_stages=3)


def test_no_machines_at_all_is_no_crash() -> None:
    with pytest.raises(InvalidRequestError):
        plan(CARD, [])


candidate_lists = st.lists(
    st.builds(
        lambda budget, reserved, dense, preference: (budget, reserved, dense, preference),
        st.integers(0, 1600),
        st.integers(0, 200),
        st.booleans(),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=5,
).map(lambda rows: [Candidate(f"peer{i}", f"mac-{i}", *row) for i, row in enumerate(rows)])

cards = st.builds(
    lambda layers, layer, embedding, head: evolve(
        CARD, layers=layers, layer_bytes=layer, embedding_bytes=embedding, head_bytes=head, dense_factor=2.0
    ),
    st.integers(1, 12),
    st.integers(1, 200),
    st.integers(0, 300),
    st.integers(0, 300),
)


def fewest_by_brute_force(card: Card, candidates: list[Candidate], at_least: int) -> int | None:
    """Tries every ordered choice of machines; each takes as many layers as it holds."""
    for count in range(at_least, min(len(candidates), card.layers) + 1):
        if any(hold(card, ring) for ring in permutations(candidates, count)):
            return count
    return None


def hold(card: Card, ring: Sequence[Candidate]) -> bool:
    start = 0
    for rank, each in enumerate(ring):
        least, most = start + 1, card.layers - (len(ring) - 1 - rank)
        ends = [end for end in range(least, most + 1) if demand(card, each).of_stage(start, end) <= each.free]
        if not ends:
            return False
        start = ends[-1]
    return start == card.layers


@given(cards, candidate_lists, st.integers(1, 3))
def test_a_plan_is_contiguous_within_budget_and_of_the_fewest_stages(
    card: Card, candidates: list[Candidate], min_stages: int
) -> None:
    if min_stages > min(len(candidates), card.layers):
        with pytest.raises(InvalidRequestError):
            plan(card, candidates, min_stages=min_stages)
        return
    fewest = fewest_by_brute_force(card, candidates, min_stages)
    if fewest is None:
        with pytest.raises(InsufficientMemoryError):
            plan(card, candidates, min_stages=min_stages)
        return
    stages = plan(card, candidates, min_stages=min_stages)
    assert len(stages) == fewest
    assert len({stage.peer for stage in stages}) == fewest
    assert [stage.first_layer for stage in stages] == [0, *(stage.end_layer for stage in stages[:-1])]
    assert stages[-1].end_layer == card.layers
    by_peer = {each.peer: each for each in candidates}
    for stage in stages:
        needs = demand(card, by_peer[stage.peer])
        needed = needs.of_stage(stage.first_layer, stage.end_layer, tokens=stage.cache_tokens)
        assert stage.end_layer > stage.first_layer
        assert needed == stage.reserved_bytes <= by_peer[stage.peer].free
    assert stages == plan(card, list(reversed(candidates)), min_stages=min_stages)
