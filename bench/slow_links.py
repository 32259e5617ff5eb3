"""Links that take time: a relay between two stages that hands every byte on only so long after it came."""

from collections import deque

import trio

from p2pexo.ring.stage import Endpoint

_PIECE_BYTES = 65536


async def relay(target: Endpoint, delay_s: float, *, task_status: trio.TaskStatus[Endpoint]) -> None:
    """Listen on loopback and relay each connection to the target. Bytes on their way don't hold up those behind them."""

    async def serve(stream: trio.SocketStream) -> None:
        there = await trio.open_tcp_stream(target.host, target.port)
        async with stream, there, trio.open_nursery() as nursery:
            nursery.start_soon(_hand_on, stream, there, delay_s, nursery.cancel_scope)
            nursery.start_soon(_hand_on, there, stream, delay_s, nursery.cancel_scope)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(Endpoint("127.0.0.1", listener.socket.getsockname()[1]))
        await trio.serve_listeners(serve, [listener], handler_nursery=nursery)


async def _hand_on(
    source: trio.SocketStream, target: trio.SocketStream, delay_s: float, scope: trio.CancelScope
) -> None:
    """Until either side closes."""
    due: deque[tuple[float, bytes]] = deque()
    came = trio.Semaphore(0)

    async def deliver() -> None:
        while True:
            await came.acquire()
            at, data = due.popleft()
            await trio.sleep_until(at)
            await target.send_all(data)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliver)
            while data := await source.receive_some(_PIECE_BYTES):
                due.append((trio.current_time() + delay_s, bytes(data)))
                came.release()
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    scope.cancel()
