"""Links between stages in one process: who gets in, what arrives, and how the end of a link is noticed."""

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from errno import EBADF, ECONNRESET
from pathlib import Path
from typing import TypeVar

import pytest
from attrs import evolve

from p2pexo.engine.batch import Batch, Entry
from p2pexo.ring import listener, tls
from p2pexo.ring.certificates import Credentials, make_credentials
from p2pexo.ring.links import Arrived, LinkDelayed, Linked, LinkError, LinkEvent, LinkLost
from p2pexo.ring.messages import Hello, Step
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.ring.stage import Endpoint, Neighbours, StageSpec
from p2pexo.ring.tls import TlsIncoming, TlsOutgoing, accept, dial
from p2pexo.ring.tls_links import TlsLinks

HELLO = Hello("p1", Epoch(1, 1, "leader"), 0, 2, "float32")
STEP = Step(Batch(1, (Entry(1, (5,), 0, 0),)))
DIALLER, ACCEPTOR, STRANGER = (make_credentials(name) for name in ("dialler", "acceptor", "stranger"))


E = TypeVar("E")


class Stage:
    """The links of one stage, and what they have posted."""

    def __init__(self, rank: int, stages: int = 2) -> None:
        plans = tuple(StagePlan("peer", layer, layer + 1) for layer in range(stages))
        placement = Placement("p1", "test/model", "r1", Epoch(1, 1, "leader"), plans)
        self.posted: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
        self.links = TlsLinks(StageSpec(placement, rank, Path(), ("127.0.0.1",)), "float32", self.posted.put)

    def join(self, previous: "Stage", following: "Stage", count: int = 1) -> None:
        neighbours = Neighbours(
            Epoch(1, count, "leader"),
            previous.links.certificate,
            following.links.certificate,
            following.links.endpoints,
        )
        self.links.join(neighbours)

    def wait_for(self, kind: type[E]) -> E:
        while True:
            event = self.posted.get(timeout=15)
            if isinstance(event, kind):
                return event


@pytest.fixture
def pair() -> Iterator[tuple[Stage, Stage]]:
    first, second = Stage(0), Stage(1)
    yield first, second
    first.links.drop()
    second.links.drop()


def link(first: Stage, second: Stage, count: int = 1) -> None:
    first.join(second, second, count)
    second.join(first, first, count)
    assert (
        first.wait_for(Linked).neighbours.epoch == second.wait_for(Linked).neighbours.epoch == Epoch(1, count, "leader")
    )


def shake_hands(dialler: Credentials, trusted: Credentials, hello: Hello) -> tuple[object, object]:
    """What becomes of a dial to an acceptor that trusts DIALLER and expects HELLO: at the dialler, and at the acceptor."""
    outcome: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                outcome.append(accept(server.accept()[0], ACCEPTOR.server_context(DIALLER.certificate), HELLO))
            except LinkError as error:
                outcome.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            context = dialler.client_context(trusted.certificate)
            dialled: object = dial(Endpoint(*server.getsockname()), context, hello)
        except LinkError as error:
            dialled = error
        thread.join(10)
    for end in (dialled, *outcome):
        if isinstance(end, TlsOutgoing | TlsIncoming):
            end.close()
    return dialled, outcome[0]


def test_the_right_neighbour_gets_in():
    dialled, accepted = shake_hands(DIALLER, ACCEPTOR, HELLO)
    assert isinstance(dialled, TlsOutgoing)
    assert isinstance(accepted, TlsIncoming)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"placement": "p2"}, "placement is p2 there but should be p1"),
        ({"epoch": Epoch(1, 2, "leader")}, "epoch is 1.2.leader there but should be 1.1.leader"),
        ({"rank": 1}, "rank is 1 there but should be 0"),
        ({"dtype": "bfloat16"}, "dtype is bfloat16 there but should be float32"),
    ],
)
def test_a_mismatch_is_told_to_both_sides(change: dict[str, object], line: str):
    dialled, accepted = shake_hands(DIALLER, ACCEPTOR, evolve(HELLO, **change))
    assert line in str(dialled)
    assert line in str(accepted)


@pytest.mark.parametrize(
    ("dialler", "trusted"), [(STRANGER, ACCEPTOR), (DIALLER, STRANGER)], ids=["stranger dials", "stranger answers"]
)
def test_a_certificate_that_is_not_the_neighbours_is_refused(dialler: Credentials, trusted: Credentials):
    dialled, accepted = shake_hands(dialler, trusted, HELLO)
    assert isinstance(dialled, LinkError)
    assert "not from the previous stage" in str(accepted)


def test_frames_of_any_size_arrive_in_order(pair: tuple[Stage, Stage]):
    first, second = pair
    link(first, second)
    payloads = [b"", b"x", bytes(14_999), bytes(15_001), bytes(range(256)) * 20_000]
    for payload in payloads:
        first.links.send(STEP, payload)
    frames = [second.wait_for(Arrived).frame for _ in payloads]
    assert [bytes(frame.payload) for frame in frames] == payloads
    assert {frame.message for frame in frames} == {STEP}


def test_what_is_sent_before_the_ring_is_closed_arrives_when_it_is():
    with ExitStack() as stack:
        stages = [Stage(rank, 3) for rank in range(3)]
        for stage in stages:
            stack.callback(stage.links.drop)
        first, second, third = stages
        first.join(third, second)
        second.join(first, third)
        third.join(second, first)
        first.wait_for(Linked)
        first.links.send(STEP, b"early")
        assert bytes(second.wait_for(Arrived).frame.payload) == b"early"


def test_both_sides_notice_the_end(pair: tuple[Stage, Stage]):
    first, second = pair
    link(first, second)
    first.links.drop()
    assert second.wait_for(LinkLost).neighbours.epoch == Epoch(1, 1, "leader")
    with pytest.raises(LinkError, match="not linked"):
        first.links.send(STEP)


def test_a_pair_links_again_in_a_new_epoch(pair: tuple[Stage, Stage]):
    first, second = pair
    for count in (1, 2, 3):
        link(first, second, count)
    first.links.send(STEP, b"again")
    assert second.wait_for(Arrived).neighbours.epoch == Epoch(1, 3, "leader")


def test_a_neighbour_that_is_not_told_yet_is_tried_again(pair: tuple[Stage, Stage]):
    first, second = pair
    first.join(second, second)
    assert "did not let us in" in first.wait_for(LinkDelayed).reason
    second.join(first, first)
    first.wait_for(Linked)
    second.wait_for(Linked)


def test_a_certificate_that_is_none_is_refused_at_once(pair: tuple[Stage, Stage]):
    with pytest.raises(LinkError, match="certificate can't be used"):
        pair[0].links.join(Neighbours(Epoch(1, 1, "leader"), "", "nonsense", ()))


def test_a_silent_peer_is_given_up(pair: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tls, "SILENCE_S", 0.3)
    monkeypatch.setattr(tls, "HEARTBEAT_S", 60.0)
    link(*pair)
    # The first end to give up closes its side, so the other one may hear of that before it gives up itself.
    while "no word from the previous stage" not in pair[0].wait_for(LinkLost).reason:
        pass


def test_heartbeats_keep_an_idle_link(pair: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tls, "SILENCE_S", 2.0)
    monkeypatch.setattr(tls, "HEARTBEAT_S", 0.05)
    link(*pair)
    with pytest.raises(queue.Empty):
        pair[1].posted.get(timeout=2.5)
    pair[0].links.send(STEP)
    assert isinstance(pair[1].posted.get(timeout=5), Arrived)


@pytest.mark.parametrize("greeting", [b"", b"GET / HTTP/1.1\r\n\r\n"], ids=["silent", "http"])
def test_a_crowd_of_strangers_does_not_keep_the_neighbour_out(pair: tuple[Stage, Stage], greeting: bytes):
    first, second = pair
    first.join(second, second)
    with ExitStack() as crowd:
        for _ in range(3 * listener.MAX_GUESTS):
            stranger = crowd.enter_context(socket.create_connection(_address(second)))
            stranger.sendall(greeting)
        second.join(first, first)
        for _ in range(3 * listener.MAX_GUESTS):
            crowd.enter_context(socket.create_connection(_address(second)))
        first.wait_for(Linked)
        second.wait_for(Linked)


def test_a_crowd_of_strangers_costs_a_bounded_number_of_threads(pair: tuple[Stage, Stage]):
    first, second = pair
    second.join(first, first)
    guests: Callable[[], int] = lambda: sum(thread.name == "guest" for thread in threading.enumerate())  # noqa: E731
    with ExitStack() as crowd:
        for _ in range(5 * listener.MAX_GUESTS):
            crowd.enter_context(socket.create_connection(_address(second)))
        first.join(second, second)
        second.wait_for(Linked)
        assert guests() <= 2 * listener.MAX_GUESTS


def test_a_host_that_is_not_here_is_passed_over_unless_it_is_the_only_one():
    hosts = listener.Listener(("192.0.2.1", "127.0.0.1"), lambda connection: connection.close()).endpoints
    assert [endpoint.host for endpoint in hosts] == ["127.0.0.1"]
    with pytest.raises(OSError, match=r"192\.0\.2\.1"):
        listener.Listener(("192.0.2.1",), lambda connection: connection.close())


def _address(stage: Stage) -> tuple[str, int]:
    endpoint = stage.links.endpoints[0]
    return endpoint.host, endpoint.port


def test_a_link_that_was_closed_here_says_so_in_words() -> None:
    assert tls._words(OSError(EBADF, "Bad file descriptor")) == "this stage has closed the link"
    assert tls._words(ConnectionResetError(ECONNRESET, "Connection reset by peer")) == "Connection reset by peer"
