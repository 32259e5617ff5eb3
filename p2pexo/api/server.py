"""Serves the application on its own listening socket until cancelled, then lets streams say why they end."""

import logging
import socket
from errno import EADDRINUSE
from typing import Any, cast

import trio
from attrs import define, field
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, LifespanState

from p2pexo.api.lifetime import Lifetime, attach
from p2pexo.api.repairs import (
    MAX_BODY_BYTES,
    Application,
    BoundedTCPServer,
    Receive,
    Scope,
    Send,
    bound_body,
    shield_last_send,
)

KEEP_ALIVE_S = 75.0
"""How long an idle connection stays open. Lower it and the pools of SDKs run into closed connections."""

DRAIN_S = 3.0
"""How long open requests may take to end after the server was told to stop."""

BACKLOG = 512

_logger = logging.getLogger(__name__)


class ListenError(Exception):
    """The API can't listen there; the message says why and what to do."""


async def serve(
    application: Any,
    *,
    host: str,
    port: int,
    max_body_bytes: int = MAX_BODY_BYTES,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application; port 0 takes any free one. ``started`` with the address, such as ``http://127.0.0.1:52415``.

    Runs until cancelled. Then it accepts nothing more, and ends within DRAIN_S. Raises ListenError.
    """
    listener = _listen(host, port)
    stopping = trio.Event()
    connections = _Connections(_wrap(application, stopping, max_body_bytes))
    async with trio.open_nursery() as nursery:
        handlers: trio.Nursery = await nursery.start(connections.hold, stopping)
        try:
            task_status.started(address_of(listener))
            await trio.serve_listeners(connections.serve, [listener], handler_nursery=handlers)
        finally:
            stopping.set()


def address_of(listener: trio.SocketListener) -> str:
    host, port = listener.socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen(host: str, port: int) -> trio.SocketListener:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise ListenError(f"port {port} is taken on {host}; choose another with --api-port") from error
        raise ListenError(f"can't listen on {host}, port {port}: {error.strerror or error}") from error
    return trio.SocketListener(trio.socket.from_stdlib_socket(listening))


@define
class _Connections:
    """The open connections. Shielded: who cancels the server stops the accepting, and streams still get to say goodbye."""

    _application: Application
    _context: WorkerContext = field(factory=lambda: WorkerContext(None), init=False)
    _open: set[trio.SocketStream] = field(factory=set[trio.SocketStream], init=False)

    async def hold(
        self, stopping: trio.Event, *, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own the tasks of all connections; after ``stopping``, end with them within DRAIN_S."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as closing:
                async with trio.open_nursery() as handlers:
                    task_status.started(handlers)
                    await stopping.wait()
                    await self._context.terminated.set()
                    closing.start_soon(self._drop_stragglers, handlers.cancel_scope)
                closing.cancel_scope.cancel()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Whatever goes wrong with a connection ends that one, and never the node."""
        self._open.add(stream)
        try:
            application = ASGIWrapper(cast(Any, self._application))
            await BoundedTCPServer(
                application, _config(), self._context, ConnectionState(LifespanState()), cast(Any, stream)
            )
        except Exception:
            _logger.exception("a connection has failed")
            await trio.aclose_forcefully(stream)
        finally:
            self._open.discard(stream)

    async def _drop_stragglers(self, handlers: trio.CancelScope) -> None:
        """A write to a client that doesn't read is shielded: only closing under it ends it."""
        await trio.sleep(DRAIN_S)
        for stream in tuple(self._open):
            await trio.aclose_forcefully(stream)
        handlers.cancel()


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("p2pexo.api")
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.keep_alive_max_requests = 2**31
    config.include_server_header = False
    return config


def _wrap(application: Application, stopping: trio.Event, max_body_bytes: int) -> Application:
    return shield_last_send(bound_body(_with_lifetime(application, stopping), max_body_bytes))


def _with_lifetime(application: Application, stopping: trio.Event) -> Application:
    async def living(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        async with trio.open_nursery() as nursery:
            attach(scope, Lifetime(nursery, stopping))
            await application(scope, receive, send)
            nursery.cancel_scope.cancel()

    return living
