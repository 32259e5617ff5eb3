from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from networking.actions import Close, Send
from networking.controls import LINGER_S, QUIET_S, Controls
from networking.wire import Goodbye


class Stuck:
    """A connection, and the stream on it, to a peer that reads and says nothing."""

    peer = "b"
    outbound = True
    closed = False
    remote_address = "/ip4/10.0.0.1/tcp/1"

    def __init__(self):
        self.cut_off = trio.Event()

    async def open(self, protocol):
        return SimpleNamespace(send=self.never, receive=self.never, finish=self.never, abort=lambda: None)

    async def never(self, *_frame):
        # As when a frame is begun: only the end of the connection helps, a cancellation does not.
        with trio.CancelScope(shield=True):
            await self.cut_off.wait()
        await trio.sleep_forever()

    def abort(self):
        self.cut_off.set()


class Machine:
    """Has nothing to say."""

    def __init__(self, patience=1.0):
        self.patience = patience
        self.connected = self.disconnected = self.received = lambda *_arguments, **_more: []


def test_a_peer_that_reads_nothing_is_cut_off_soon_after_the_last_word():
    async def main():
        connection: Any = Stuck()
        machine: Any = Machine()
        controls = Controls(machine, lambda actions: None, hello_within_s=4.0)
        async with trio.open_nursery() as nursery:
            controls.connected(connection, nursery)
            await trio.testing.wait_all_tasks_blocked()
            controls.send(Send(1, Goodbye()))
            controls.close(Close(1, after_sending=True))
            with trio.fail_after(LINGER_S + 1):
                await controls.all_closed()
        assert connection.cut_off.is_set()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("patience", [1.0, 2.0])
def test_a_connection_that_was_not_heard_for_long_does_not_count(patience):
    async def main():
        connection: Any = Stuck()
        machine: Any = Machine(patience)
        controls = Controls(machine, lambda actions: None, 4.0, trio.current_time)
        async with trio.open_nursery() as nursery:
            controls.connected(connection, nursery)
            assert controls.is_connected(connection.peer)
            await trio.sleep(QUIET_S * patience - 0.1)
            assert controls.is_connected(connection.peer)
            await trio.sleep(0.1)
            assert not controls.is_connected(connection.peer)
            assert controls.connection_to(connection.peer) is connection
            connection.abort()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("patience", [1.0, 2.0])
def test_a_node_that_keeps_bad_time_waits_longer_for_the_control_stream_of_the_other_side(patience):
    async def main():
        connection: Any = Stuck()
        connection.outbound = False
        machine: Any = Machine(patience)
        controls = Controls(machine, lambda actions: None, 4.0, trio.current_time)
        async with trio.open_nursery() as nursery:
            controls.connected(connection, nursery)
            await trio.sleep(4.0 * patience - 0.1)
            assert not connection.cut_off.is_set()
            await trio.sleep(0.2)
            assert connection.cut_off.is_set()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
