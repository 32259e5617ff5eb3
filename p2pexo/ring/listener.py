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

_BREATH_S = 0.1

_logger = structlog.get_logger(__name__)


class Listener:
    """Listens on a free port of each host from the start; ``welcome`` runs in a thread per connection, and owns it."""

    def __init__(self, hosts: tuple[str, ...], welcome: Callable[[socket.socket], None]) -> None:
        """Raises OSError if none of the hosts can be listened on."""
        self._welcome = welcome
        self._sockets = _listen_on(hosts)
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
                        self._let_in(connection)
                    except OSError as error:
                        if error.errno not in (errno.EMFILE, errno.ENFILE):
                            continue  # it ended before we took it
                        self._make_room(error)
                    except RuntimeError as error:  # Python's word for no more threads
                        self._make_room(error)

    def _make_room(self, error: Exception) -> None:
        _logger.warning("too little left to let a link in; those who shake hands are sent away", error=str(error))
        self._push_out(keep=0)
        time.sleep(_BREATH_S)

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


def _listen_on(hosts: tuple[str, ...]) -> list[socket.socket]:
    listening: list[socket.socket] = []
    reasons: list[str] = []
    for host in hosts:
        try:
            listening.append(_listen(host))
        except OSError as error:
            _logger.warning("can't listen for links on a host; the others remain", host=host, error=str(error))
            reasons.append(f"{host}: {error}")
    if not listening:
        raise OSError(f"can't listen for the previous stage on any host ({'; '.join(reasons) or 'none was given'})")
    return listening


def _listen(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family, backlog=64)
    listening.setblocking(False)
    return listening
