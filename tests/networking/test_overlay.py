import errno
from contextlib import asynccontextmanager

import pytest
import trio

from networking.documents import MAX_VALUE_BYTES
from networking.membership import MemberState
from networking.overlay import FactTooLargeError, NotLeaderError, RequestRefusedError, SavedState
from networking.simulation import SimulatedCluster, SimulatedTransport, open_cluster, simulate
from networking.transport import Address, PeerId, StreamClosedError, TransportError
from networking.wire import PROTOCOL_VERSION, Hello, Life, encode

ECHO = "/test/echo"


def run(story, count=2, seed=1, serve=None):
    """Run a story on a settled cluster; ``serve(overlay)`` registers handlers before each node runs."""

    async def main():
        async with open_cluster(count, seed=seed, on_start=serve) as cluster:
            await story(cluster)

    simulate(main, seed=seed)


def serve_echo(overlay):
    async def echo(peer, body):
        if body == b"refuse":
            raise RequestRefusedError("not today")
        if body == b"fail":
            raise ValueError("a bug")
        if body == b"dawdle":
            await trio.sleep(60)
        return peer.encode() + b": " + body

    overlay.serve_requests(ECHO, echo)


@pytest.mark.parametrize("target", ["peer-1", "peer-2"])
def test_a_request_is_answered_also_by_oneself(target):
    async def story(cluster):
        answer = await cluster.node("peer-1").overlay.request(PeerId(target), ECHO, b"hello", timeout_s=2)
        assert answer == b"peer-1: hello"

    run(story, serve=serve_echo)


@pytest.mark.parametrize("target", ["peer-1", "peer-2"])
@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (b"refuse", RequestRefusedError, "^not today$"),
        (b"fail", TransportError, "a bug"),
        (b"dawdle", TransportError, "within 2 s"),
    ],
)
def test_a_request_that_is_not_answered_says_why(target, body, error, message):
    async def story(cluster):
        overlay = cluster.node("peer-1").overlay
        with pytest.raises(error, match=message):
            await overlay.request(PeerId(target), ECHO, body, timeout_s=2)
        assert await overlay.request(PeerId(target), ECHO, b"again", timeout_s=2)

    run(story, serve=serve_echo)


@pytest.mark.parametrize("target", ["peer-1", "peer-2", "stranger"])
def test_a_request_that_nobody_serves_fails(target):
    async def story(cluster):
        with pytest.raises(TransportError):
            await cluster.node("peer-1").overlay.request(PeerId(target), "/test/unknown", b"", timeout_s=2)

    run(story)


def test_a_request_to_a_peer_that_dies_fails():
    async def story(cluster):
        one, other = cluster.nodes

        async def crash_soon():
            await trio.sleep(1)
            other.crash()

        cluster.nursery.start_soon(crash_soon)
        with pytest.raises(StreamClosedError):
            await one.overlay.request(other.peer, ECHO, b"dawdle", timeout_s=10)

    run(story, serve=serve_echo)


@pytest.mark.parametrize("target", ["peer-1", "peer-2"])
def test_a_stream_carries_frames_both_ways_until_one_side_ends_it(target):
    def serve(overlay):
        async def double(stream):
            while True:
                frame = await stream.receive()
                await stream.send(frame + frame)

        overlay.serve_streams("/test/double", double)

    async def story(cluster):
        stream = await cluster.node("peer-1").overlay.open(PeerId(target), "/test/double")
        assert stream.peer == target
        for frame in (b"a", b"", bytes(100_000)):
            await stream.send(frame)
            assert await stream.receive() == frame + frame
        await stream.finish()
        with pytest.raises(StreamClosedError):
            await stream.receive()

    run(story, serve=serve)


@pytest.mark.parametrize("target", ["peer-1", "peer-2"])
def test_a_stream_ends_when_its_handler_returns(target):
    def serve(overlay):
        async def greet(stream):
            await stream.send(b"hello")

        overlay.serve_streams("/test/greet", greet)

    async def story(cluster):
        stream = await cluster.node("peer-1").overlay.open(PeerId(target), "/test/greet")
        assert await stream.receive() == b"hello"
        with trio.fail_after(10), pytest.raises(StreamClosedError):
            await stream.receive()

    run(story, serve=serve)


class FullDisk:
    def __init__(self):
        self.attempts = 0

    def load(self):
        return SavedState()

    def save(self, state):
        self.attempts += 1
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_no_node(caplog):
    async def story(cluster):
        one, other = cluster.nodes
        one.crash()
        one.state = FullDisk()
        await one.start()
        await cluster.settled()
        other.crash()
        await cluster.settled()
        assert one.view.leader == one.peer
        assert one.state.attempts > 1

    run(story)
    assert "No space left" in caplog.text


def test_only_the_leader_sets_the_payload():
    async def story(cluster):
        leader = cluster.leader
        (follower,) = (node for node in cluster.nodes if node is not leader)
        leader.overlay.set_payload(b"placed")
        await cluster.until(lambda: follower.view.payload == b"placed")
        with pytest.raises(NotLeaderError, match=leader.peer):
            follower.overlay.set_payload(b"mine")

    run(story)


def test_facts_are_told_changed_and_deleted():
    async def story(cluster):
        one, other = cluster.nodes
        one.overlay.set_fact("name", b"desk")
        one.overlay.set_fact("other", b"x")
        await cluster.until(lambda: other.view.facts[one.peer] == {"name": b"desk", "other": b"x"}, within_s=0.5)
        one.overlay.set_fact("name", b"shelf")
        one.overlay.delete_fact("other")
        await cluster.until(lambda: other.view.facts[one.peer] == {"name": b"shelf"}, within_s=0.5)

    run(story)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [("", b"", ValueError), (".claim", b"{}", ValueError), ("big", bytes(MAX_VALUE_BYTES + 1), FactTooLargeError)],
)
@pytest.mark.parametrize("volatile", [True, False])
def test_a_fact_that_cannot_be_told_is_refused(key, value, error, volatile):
    async def story(cluster):
        with pytest.raises(error):
            cluster.nodes[0].overlay.set_fact(key, value, volatile=volatile)

    run(story, count=1)


def test_watchers_see_the_present_at_once_and_the_latest_after_each_change():
    async def story(cluster):
        overlay = cluster.nodes[0].overlay
        views = overlay.views()
        assert await anext(views) == overlay.view
        for number in range(10):
            overlay.set_fact("count", str(number).encode())
        assert (await anext(views)).facts[overlay.me]["count"] == b"9"
        with trio.move_on_after(5) as waiting:
            await anext(views)
        assert waiting.cancelled_caught

    run(story, count=1)


def test_members_carry_their_addresses_and_whoever_learns_one_dials():
    async def main():
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(nursery, seed=1)
            cluster.introduce = lambda newcomer: None
            hub, *others = [await cluster.add(name) for name in ("hub", "one", "two")]
            for other in others:
                other.overlay.add_address(hub.address)
            await cluster.settled()
            one, two = others
            assert [each.addresses for each in one.view.members if each.peer == two.peer] == [(two.address,)]
            nursery.cancel_scope.cancel()

    simulate(main, seed=1)


def test_the_address_that_was_dialled_is_proven_on_that_side_alone():
    async def story(cluster):
        one, other = cluster.nodes
        await cluster.until(lambda: all(len(node.overlay._controls._controls) == 1 for node in cluster.nodes))
        dialled = {node.peer: node.view.member(far.peer).proven for node, far in ((one, other), (other, one))}
        assert sorted(dialled.values()) in ([(), (one.address,)], [(), (other.address,)])
        other.crash()
        await cluster.until(lambda: not one.view.member(other.peer) or not one.view.member(other.peer).proven)

    run(story)


def test_a_pair_ends_with_one_connection():
    async def story(cluster):
        await trio.sleep(5)
        for node in cluster.nodes:
            assert len(node.overlay._controls._controls) == 3

    for seed in range(10):
        run(story, count=4, seed=seed)


class Stranger:
    """A peer that says on its control streams what it is told to."""

    def __init__(self, cluster, hello):
        self.transport = SimulatedTransport(cluster.network, PeerId("stranger"), Address("/dns/stranger/tcp/1"))
        self.hello = hello

    def connected(self, connection):
        pass

    def disconnected(self, connection):
        pass

    def broadcast_received(self, topic, data):
        pass

    async def stream_opened(self, protocol, stream, connection):
        pass

    @asynccontextmanager
    async def talking_to(self, node):
        async with trio.open_nursery() as nursery:
            await nursery.start(self.transport.run, self)
            connection = await self.transport.dial(node.address)
            stream = await connection.open("/overlay/1/control")
            await stream.send(self.hello)
            yield stream
            nursery.cancel_scope.cancel()


def test_messages_of_another_version_are_counted_with_one_warning():
    async def story(cluster):
        node = cluster.nodes[0]
        hello = encode(Hello(PROTOCOL_VERSION, Life(1, 1)))
        async with Stranger(cluster, hello).talking_to(node) as stream:
            for frame in (
                b'{"kind": "Serenade"}',
                b'{"kind": "Ask"}',
                b"\xff",
                b'{"kind": "Ask", "about": "me", "new": 1}',
            ):
                await stream.send(frame)
            await cluster.until(lambda: any("stranger were dropped, 3 so far" in each for each in node.view.warnings))
        assert len(node.view.warnings) == 1
        assert cluster.is_settled()

    run(story)


def test_a_peer_that_speaks_another_protocol_version_is_named():
    async def story(cluster):
        node = cluster.nodes[0]
        async with Stranger(cluster, encode(Hello(PROTOCOL_VERSION + 1, Life(1, 1)))).talking_to(node):
            said = f"stranger speaks protocol {PROTOCOL_VERSION + 1}"
            await cluster.until(lambda: any(said in each for each in node.view.warnings))

    run(story)


def test_a_connection_without_hello_is_closed():
    async def story(cluster):
        async with Stranger(cluster, b"no hello").talking_to(cluster.nodes[0]) as stream:
            with pytest.raises(StreamClosedError):
                while True:
                    await stream.receive()

    run(story, count=1)


@pytest.mark.parametrize("doubted_s", [1.0, 1.1, 1.2])
def test_a_node_whose_tick_is_late_hears_what_waits_before_it_gives_anybody_up(doubted_s):
    async def story(cluster):
        one, other = cluster.nodes
        cluster.network.cut_one_way(other.address, one.address)
        await cluster.until(lambda: any(each.state is MemberState.SUSPECT for each in one.view.members))
        await trio.sleep(doubted_s)
        cluster.network.pause(one.address)
        cluster.network.heal()
        await trio.sleep(0.5)
        cluster.network.resume(one.address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(never_alone, one)
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()

    run(story)


async def never_alone(node):
    async for view in node.overlay.views():
        assert len(view.members) == 2
