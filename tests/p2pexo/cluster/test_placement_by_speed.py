from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, permutations
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pexo.cluster.demand import demand
from p2pexo.cluster.facts import LinkSpeed, SpeedsFact
from p2pexo.cluster.machines import Candidate
from p2pexo.cluster.placement import best_of, plan
from p2pexo.cluster.speed import ring_speed
from p2pexo.models.card import Card
from p2pexo.ring.plan import StagePlan

CARD = Card(
    id="owner/model",
    revision="r1",
    architecture="llama",
    layers=30,
    hidden_size=100,
    context_length=4,
    layer_bytes=100,
    embedding_bytes=1000,
    head_bytes=1000,
    kv_bytes_per_token=0,
    tied=True,
)
PLENTY = 10**9


def machine(name: str, speed: float | None, *, budget: int = PLENTY, links: Mapping[str, float] = {}) -> Candidate:
    """``links``: round trips in seconds by name."""
    measured = SpeedsFact(speed, links=[LinkSpeed(peer, seconds) for peer, seconds in links.items()])
    return Candidate(name, name, budget, speeds=measured)


def layers(stages: Sequence[StagePlan]) -> dict[str, int]:
    return {stage.peer: stage.end_layer - stage.first_layer for stage in stages}


def test_a_machine_twice_as_fast_computes_twice_as_much_the_head_included_and_the_embedding_not() -> None:
    stages = plan(CARD, [machine("slow", 1000.0), machine("quick", 3000.0)], min_stages=2)
    assert layers(stages) == {"slow": 10, "quick": 20}
    assert stages[-1].peer == "quick", "which then also computes the head, worth ten layers"


def test_memory_limits_what_a_fast_machine_takes() -> None:
    quick = machine("quick", 9000.0, budget=1500)
    assert layers(plan(CARD, [machine("slow", 1000.0), quick], min_stages=2)) == {"slow": 25, "quick": 5}


def test_fewest_machines_win_and_among_them_the_fastest() -> None:
    assert layers(plan(CARD, [machine("a", 1000.0), machine("b", 2000.0), machine("c", 1500.0)])) == {"b": 30}


def test_a_machine_that_holds_the_files_is_taken_if_it_is_nearly_as_fast() -> None:
    holder = evolve(machine("holder", 1950.0), preference=1)
    assert layers(plan(CARD, [machine("b", 2000.0), holder])) == {"holder": 30}
    assert layers(plan(CARD, [machine("b", 2500.0), holder])) == {"b": 30}


def test_where_one_machine_knows_no_speed_memory_alone_decides() -> None:
    stages = plan(CARD, [machine("a", 1000.0), machine("b", None)], min_stages=2)
    assert layers(stages) == {"a": 15, "b": 15}


def test_machines_are_chosen_and_ordered_so_that_a_token_travels_least() -> None:
    near = {"a": 0.001, "b": 0.001, "c": 0.001}
    far = [machine(name, 1000.0, links=near | {"far": 5.0}) for name in "abc"]
    assert set(layers(plan(CARD, [machine("far", 1100.0), *far], min_stages=3))) == set("abc")


def test_a_slow_cable_counts_for_what_it_carries() -> None:
    slow, quick = LinkSpeed("b", 0.0, 10.0), LinkSpeed("c", 0.0, 1e9)
    first = Candidate("a", "a", PLENTY, speeds=SpeedsFact(1000.0, links=[slow, quick]))
    others = [machine("b", 1200.0, links={"c": 9.0}), machine("c", 1000.0)]
    assert set(layers(plan(CARD, [first, *others], min_stages=2))) == {"a", "c"}


def test_weights_that_are_dequantised_take_longer() -> None:
    card = evolve(CARD, dense_factor=4.0, head_bytes=0)
    both = [machine("a", 1000.0), evolve(machine("b", 1000.0), dense=True)]
    assert layers(plan(card, both, min_stages=2)) == {"a": 24, "b": 6}


def test_eight_machines_and_many_layers_are_planned_alike_in_any_order() -> None:
    links = dict.fromkeys("abcdefgh", 0.001)
    eight = [machine(name, 1000.0 + 100 * rank, links=links) for rank, name in enumerate("abcdefgh")]
    card = evolve(CARD, layers=130)
    for count in (5, 8):
        stages = plan(card, eight, min_stages=count)
        assert len(stages) == count
        assert stages == plan(card, eight[::-1], min_stages=count)


def test_the_expected_speed_counts_stages_and_the_way_round() -> None:
    ring = [machine("a", 1000.0, links={"b": 0.2}), machine("b", 2000.0)]
    stages = [StagePlan("a", 0, 10), StagePlan("b", 10, 30)]
    speed = ring_speed(CARD, ring, stages, "auto")
    assert speed is not None
    assert speed.stage_s == (1.0, 1.5)
    assert speed.decode_tokens_per_s == pytest.approx(1 / (1.0 + 1.5 + 0.2))
    assert speed.prefill_tokens_per_s is None
    told = [evolve(each, speeds=evolve(each.speeds, prefill_flops_per_s=5000.0)) for each in ring]
    prefill = ring_speed(CARD, told, stages, "auto")
    assert prefill is not None
    assert prefill.prefill_tokens_per_s == pytest.approx(5000 / (2 * 20 * 100 / 4))
    assert ring_speed(CARD, [ring[0], machine("b", None)], stages, "auto") is None


def test_of_a_mixture_of_experts_only_those_count_that_work_on_a_token() -> None:
    card = evolve(CARD, layer_weights=(50, *[100] * 29), active_weights=(50, *[20] * 29))
    ring = [machine("a", 1000.0), machine("b", 2000.0)]
    told = [evolve(each, speeds=evolve(each.speeds, prefill_flops_per_s=5000.0)) for each in ring]
    speed = ring_speed(card, told, [StagePlan("a", 0, 10), StagePlan("b", 10, 30)], "auto")
    assert speed is not None
    assert speed.stage_s == pytest.approx((0.23, 0.7))
    assert speed.prefill_tokens_per_s == pytest.approx(5000 / (2 * 400 / 4))


def test_layers_are_split_by_the_weights_that_work_and_fit_by_all() -> None:
    card = evolve(CARD, layers=10, head_bytes=0, embedding_bytes=0, tied=False)
    card = evolve(card, layer_weights=(100,) * 10, active_weights=(100, 100, *[25] * 8))
    two = [machine("a", 1000.0), machine("b", 1000.0)]
    assert layers(plan(card, two, min_stages=2)) == {"a": 2, "b": 8}
    small = [evolve(each, budget=600) for each in two]
    assert layers(plan(card, small, min_stages=2)) == {"a": 4, "b": 6}


def all_cuts(layers: int, count: int) -> Iterator[list[int]]:
    for inner in combinations(range(1, layers), count - 1):
        yield [*inner, layers]


def round_s(card: Card, ring: Sequence[Candidate], ends: Sequence[int]) -> float | None:
    """As the definition says it, in other words than the product: stages × the slowest + the way; None if it doesn't fit."""
    times: list[float] = []
    for each, (start, end) in zip(ring, pairwise([0, *ends]), strict=True):
        if demand(card, each).of_stage(start, end) > each.free:
            return None
        size = sum(card.layer_sizes[start:end]) + (card.head_bytes if end == card.layers else 0)
        times.append(size / (each.speeds.decode_bytes_per_s or 0.0))
    way = sum(trip(one, other) / 2 for one, other in zip(ring, [*ring[1:], ring[0]], strict=True))
    return len(ring) * max(times) + way


def trip(one: Candidate, other: Candidate) -> float:
    link = one.link_to(other)
    return link.round_trip_s if link else 0.0


def best_by_brute_force(card: Card, machines: Sequence[Candidate], count: int) -> float | None:
    every = (
        round_s(card, ring, ends) for ring in permutations(machines, count) for ends in all_cuts(card.layers, count)
    )
    return min((each for each in every if each is not None), default=None)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Card, list[Candidate], int]:
    count = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(50, 200), min_size=count, max_size=7))
    changes: dict[str, Any] = {
        "layers": len(sizes),
        "layer_weights": tuple(sizes),
        "layer_bytes": max(sizes),
        "embedding_bytes": draw(st.integers(0, 400)),
        "tied": False,
        "head_bytes": draw(st.integers(0, 400)),
        "kv_bytes_per_token": draw(st.integers(0, 10)),
    }
    machines = [
        Candidate(
            f"peer{index}",
            f"mac-{index}",
            draw(st.integers(100, 2500)),
            preference=draw(st.integers(0, 2)),
            speeds=SpeedsFact(
                draw(st.floats(100, 5000)),
                links=[LinkSpeed(f"peer{other}", draw(st.floats(0, 0.2))) for other in range(index)],
            ),
        )
        for index in range(draw(st.integers(count, 4)))
    ]
    return evolve(CARD, **changes), machines, count


@settings(max_examples=100, deadline=None)
@given(cases())
def test_no_ring_is_faster_by_more_than_five_percent(case: tuple[Card, list[Candidate], int]) -> None:
    card, machines, count = case
    best = best_by_brute_force(card, machines, count)
    stages = best_of(card, machines, count)
    if best is None:
        assert stages is None
        return
    assert stages is not None
    by_peer = {each.peer: each for each in machines}
    reached = round_s(card, [by_peer[stage.peer] for stage in stages], [stage.end_layer for stage in stages])
    assert reached is not None
    assert reached <= 1.05 * best * (1 + 1e-6)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_of_machines_in_a_given_order_no_cut_has_a_faster_slowest_stage(
    case: tuple[Card, list[Candidate], int],
) -> None:
    card, machines, count = case
    stages = best_of(card, machines[:count], count)
    if stages is None:
        return
    by_peer = {each.peer: each for each in machines}
    ring = [by_peer[stage.peer] for stage in stages]
    reached = round_s(card, ring, [stage.end_layer for stage in stages])
    best = min(each for ends in all_cuts(card.layers, count) if (each := round_s(card, ring, ends)) is not None)
    assert reached == pytest.approx(best)
