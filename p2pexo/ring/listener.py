"""Lets connections in and hands each to a thread of its own, whatever strangers do.

A connection that is still shaking hands costs one thread for a few seconds. There are never more than ``MAX_GUESTS``:
a newcomer pushes out the one that has taken longest, so strangers that say nothing can't keep the right neighbour out.
"""

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from p2pexo.ring.stage import Endpoint

MAX_GUESTS = 16
"""Raise it and strangers cost more threads; lower it and a crowd of them delays the right neighbour's next attempt more."""

_logger = structlog.get_logger(__name__)


class Listener:
    """Listens on a free port of each host from the start; ``welcome`` runs in a thread per connection, and owns it."""

    def __init__(self, hosts: tuple[str, ...], welcome: Callable[[socket.socket], None]) -> None:
        self._welcome = welcome
        self._sockets = [_listen(host) for host in hosts]
        self._guests: deque[socket.socket] = deque()
        self._lock = threading.Lock()
        self.endpoints = tuple(Endpoint(*each.getsockname()[:2]) for each in self._sockets)

    def start(self) -> None:
        threading.Thread(target=self._accept_for_ever, name="listener", daemon=True).start()

    def _accept_for_ever(self) -> None:
        with selectors.DefaultSelector() as selector:
            for each in self._sockets:
                selector.register(each, selectors.EVENT_READ, each)
            while True:
                for key, _ in selector.select():
                    try:
                        connection, _ = key.data.accept()
                    except OSError as error:
                        self._survive(error)
                    else:
                        self._let_in(connection)

    def _survive(self, error: OSError) -> None:
        """A connection that ended before we took it is nothing; without descriptors, guests must go before more come."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _logger.warning("no file descriptors left for a link", error=str(error))
            self._push_out(keep=0)
            time.sleep(0.1)

    def _let_in(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        # A second handle on the connection, to hang up with: the first one changes hands when TLS wraps it.
        handle = connection.dup()
        self._push_out(keep=MAX_GUESTS - 1)
        with self._lock:
            self._guests.append(handle)
        threading.Thread(target=self._serve, args=(connection, handle), name="guest", daemon=True).start()

    def _serve(self, connection: socket.socket, handle: socket.socket) -> None:
        try:
            self._welcome(connection)
        finally:
            with self._lock:
                if handle in self._guests:
                    self._guests.remove(handle)
                handle.close()

    def _push_out(self, keep: int) -> None:
        with self._lock:
            while len(self._guests) > keep:
                with contextlib.suppress(OSError):
                    self._guests.popleft().shutdown(socket.SHUT_RDWR)


def _listen(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family, backlog=64)
    listening.setblocking(False)
    return listening
