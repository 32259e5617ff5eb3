from collections import Counter
from contextlib import ExitStack

import pytest
from attrs import evolve

from networking.membership import MemberState
from networking.transport import PeerId
from networking.view import Member
from p2pexo.cluster.facts import Placements
from p2pexo.cluster.observed import Cluster
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.serving.balance import Balance
from p2pexo.serving.settings import RouterSettings

A, B = (
    Placement(f"on {peer}", "owner/model", "r1", Epoch(1, count, "x"), (StagePlan(peer, 0, 30),))
    for count, peer in enumerate("ab", start=1)
)
SETTINGS = RouterSettings(distrust_s=5.0)
PIECES = (b"1", b"12", b"123")


def cluster(me: str = "x", suspect: str = "", **requests: int) -> Cluster:
    """``requests``: how many each ring tells, by its peer."""
    members = {
        peer: Member(PeerId(peer), MemberState.SUSPECT if peer in suspect else MemberState.ALIVE, index, ())
        for index, peer in enumerate("abx")
    }
    told = {(peer, f"on {peer}", 0): StageActivity(requests=count, capacity=32) for peer, count in requests.items()}
    return Cluster(me, "x", 1, members, {}, {}, {}, Placements(), activities=told)


@pytest.fixture
def balance() -> Balance:
    return Balance(SETTINGS)


def chosen(
    balance: Balance,
    seen: Cluster,
    *,
    request_id: str = "r",
    pieces: tuple[bytes, ...] = (),
    now: float = 0.0,
    ready: tuple[Placement, ...] = (A, B),
) -> Placement:
    return balance.choose(seen, ready, request_id, pieces, now)


def burst(balance: Balance, seen: Cluster, count: int, sent: ExitStack) -> Counter[str]:
    """So many requests at once, before any news of them; to which peers they go."""
    taken: Counter[str] = Counter()
    for number in range(count):
        ring = chosen(balance, seen, request_id=f"r{number}")
        sent.enter_context(balance.carrying(ring))
        taken[ring.first_peer] += 1
    return taken


@pytest.mark.parametrize("me", ["a", "b", "x"])
def test_a_burst_at_one_node_is_spread_at_once(balance: Balance, me: str) -> None:
    with ExitStack() as sent:
        assert burst(balance, cluster(me), 10, sent) == {"a": 5, "b": 5}


def test_a_burst_fills_up_the_ring_that_others_use_less(balance: Balance) -> None:
    with ExitStack() as sent:
        assert burst(balance, cluster(a=6, b=0), 10, sent) == {"a": 2, "b": 8}


def test_what_has_been_sent_is_counted_once_when_the_ring_tells_of_it(balance: Balance) -> None:
    with ExitStack() as sent:
        burst(balance, cluster(), 8, sent)
        assert burst(balance, cluster(a=4, b=4), 2, sent) == {"a": 1, "b": 1}
        assert burst(balance, cluster(a=9, b=5), 4, sent) == {"b": 4}


def test_what_has_ended_since_is_not_counted_although_the_ring_has_not_told_yet(balance: Balance) -> None:
    with ExitStack() as sent:
        for _ in range(6):
            sent.enter_context(balance.carrying(A))
        seen = cluster(a=6, b=2)
        assert chosen(balance, seen) is B
    assert chosen(balance, seen) is A


def test_a_ring_that_tells_less_than_was_sent_has_at_least_that(balance: Balance) -> None:
    with ExitStack() as sent:
        for _ in range(3):
            sent.enter_context(balance.carrying(A))
        assert chosen(balance, cluster(a=0, b=2)) is B


def test_the_next_turn_of_a_conversation_goes_where_the_last_one_was(balance: Balance) -> None:
    balance.answered(B, PIECES)
    assert chosen(balance, cluster("a", b=2), pieces=PIECES) is B
    assert chosen(balance, cluster("a", b=4), pieces=PIECES) is A
    assert chosen(balance, cluster("a", b=2), pieces=(b"2",)) is A


def test_a_ring_that_broke_a_request_gets_none_while_there_is_another_for_a_time(balance: Balance) -> None:
    balance.lost(A, now=10.0)
    seen = cluster("a", b=9)
    assert chosen(balance, seen, now=10.1) is B
    assert chosen(balance, seen, now=14.9) is B
    assert chosen(balance, seen, now=15.0) is A
    assert chosen(balance, seen, now=10.1, ready=(A,)) is A, "there is no other"


def test_a_ring_that_is_formed_anew_is_trusted_and_has_met_nothing(balance: Balance) -> None:
    balance.answered(A, PIECES)
    balance.lost(A, now=10.0)
    anew = evolve(A, epoch=Epoch(1, 3, "x"))
    assert chosen(balance, cluster("x", a=0, b=1), now=10.1, ready=(anew, B)) is anew
    assert chosen(balance, cluster("b"), pieces=PIECES, now=10.1, ready=(anew, B)) is B


def test_a_ring_with_a_silent_machine_is_taken_only_if_all_are_like_that(balance: Balance) -> None:
    assert chosen(balance, cluster("a", suspect="a", b=9)) is B
    assert chosen(balance, cluster("a", suspect="ab", b=9)) is A


def test_what_is_known_of_a_ring_goes_with_it_and_with_the_last_request_there(balance: Balance) -> None:
    with balance.carrying(A):
        chosen(balance, cluster(), ready=(B,))
        assert chosen(balance, cluster("a")) is B, "the one that is there still counts"
    balance.answered(A, PIECES)
    chosen(balance, cluster(), ready=(B,))
    assert chosen(balance, cluster("b"), pieces=PIECES) is B
