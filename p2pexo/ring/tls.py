"""One link: framed TCP inside TLS 1.3, data in one direction only.

OpenSSL's connections must not be used by two threads at once. So the dialling side only ever writes, under a lock, and
looks out for the end of the connection on the bare socket; the accepting side only ever reads, from one thread.

The writer sends a heartbeat when it has nothing else to say. A reader that hears nothing, and a writer whose bytes are
not taken, give the link up after ``SILENCE_S``.
"""

import select
import socket
import ssl
import threading
import time
from errno import EBADF

from p2pexo.ring.links import LinkError
from p2pexo.ring.messages import Frame, Heartbeat, Hello, Message, ProtocolError, Refusal, Welcome, pack, read_frame
from p2pexo.ring.stage import Endpoint

HEARTBEAT_S = 1.0
"""Lower it and a silent peer could be noticed sooner, at the cost of more wake-ups of an idle ring."""
SILENCE_S = 6.0
"""Raise it and a dead cable is noticed later; lower it and a machine that pauses for a moment breaks its ring."""
HANDSHAKE_S = 4.0
"""For connecting, TLS and hello of one attempt. Raise it and a dead address delays the next one longer."""

_SMALL_BYTES = 15_000
"""A payload below this shares a TLS record with its header: copying it is cheaper than sealing and sending a second one."""


class TlsOutgoing:
    """The link to the next stage. ``send`` may be called from any thread; one thread runs ``watch``."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._last_sent = time.monotonic()
        connection.settimeout(SILENCE_S)

    def send(self, message: Message, payload: bytes | memoryview = b"") -> None:
        """Raises LinkError if the next stage is gone or has taken nothing for SILENCE_S."""
        size = memoryview(payload).nbytes
        head = pack(message, size)
        with self._lock:
            try:
                if size < _SMALL_BYTES:
                    self._connection.sendall(b"".join((head, payload)))
                else:
                    self._connection.sendall(head)
                    self._connection.sendall(payload)
            except OSError as error:
                raise LinkError(f"the next stage is gone: {_words(error)}") from error
            self._last_sent = time.monotonic()

    def watch(self) -> None:
        """Send heartbeats until the link ends, then raise LinkError."""
        poller = select.poll()
        poller.register(self._connection.fileno(), select.POLLIN)
        while not poller.poll(HEARTBEAT_S * 1000):
            if time.monotonic() - self._last_sent >= HEARTBEAT_S:
                self.send(Heartbeat())
        raise LinkError("the next stage closed the link")

    def hang_up(self) -> None:
        """End the link from any thread; whoever sends or watches is told so."""
        _hang_up(self._connection)

    def close(self) -> None:
        """Free the socket; by the thread that watches, once it has stopped."""
        with self._lock:
            self._connection.close()


class TlsIncoming:
    """The link from the previous stage. One thread receives; ``close`` may be called from any."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        connection.settimeout(SILENCE_S)

    def receive(self) -> Frame:
        """The next frame that is more than a heartbeat. Raises LinkError."""
        while True:
            try:
                frame = read_frame(self._read)
            except TimeoutError as error:
                raise LinkError(f"no word from the previous stage for {SILENCE_S:.0f} s") from error
            except OSError as error:
                raise LinkError(f"the previous stage is gone: {_words(error)}") from error
            except ProtocolError as error:
                raise LinkError(f"the previous stage sent what can't be understood: {error}") from error
            if not isinstance(frame.message, Heartbeat):
                return frame

    def _read(self, size: int) -> memoryview:
        return _read_exactly(self._connection, size)

    def hang_up(self) -> None:
        """End the link from any thread; the one that receives is told so."""
        _hang_up(self._connection)

    def close(self) -> None:
        """Free the socket; by the thread that receives, once it has stopped."""
        self._connection.close()


def dial(endpoint: Endpoint, context: ssl.SSLContext, hello: Hello) -> TlsOutgoing:
    """Connect to the next stage and be welcomed. Blocks for a few times HANDSHAKE_S at most. Raises LinkError."""
    try:
        connection = socket.create_connection((endpoint.host, endpoint.port), timeout=HANDSHAKE_S)
    except OSError as error:
        raise LinkError(f"can't connect to the next stage at {endpoint}: {_words(error)}") from error
    try:
        _tune(connection)
        connection = sealed = context.wrap_socket(connection)
        sealed.sendall(pack(hello))
        answer = _read_message(sealed)
        if isinstance(answer, Refusal):
            raise LinkError(f"the next stage at {endpoint} refused the link: {answer.reason}")
        if not isinstance(answer, Welcome):
            raise ProtocolError(f"it answered {answer}")
    except (OSError, ProtocolError) as error:
        connection.close()
        raise LinkError(f"the next stage at {endpoint} did not let us in: {_words(error)}") from error
    except LinkError:
        connection.close()
        raise
    return TlsOutgoing(sealed)


def accept(connection: socket.socket, context: ssl.SSLContext, expected: Hello) -> TlsIncoming:
    """Let the previous stage in if the context trusts it and it says that hello. Raises LinkError, and closes then."""
    try:
        _tune(connection)
        connection.settimeout(HANDSHAKE_S)
        connection = sealed = context.wrap_socket(connection, server_side=True)
        hello = _read_message(sealed)
        reason = hello.mismatch(expected) if isinstance(hello, Hello) else f"it began with {hello}"
        sealed.sendall(pack(Refusal(reason) if reason else Welcome()))
    except (OSError, ProtocolError) as error:
        connection.close()
        raise LinkError(f"turned away a connection that is not from the previous stage: {_words(error)}") from error
    if reason:
        connection.close()
        raise LinkError(f"turned away the previous stage: {reason}")
    return TlsIncoming(sealed)


def _read_message(connection: ssl.SSLSocket) -> Message:
    return read_frame(lambda size: _read_exactly(connection, size)).message


def _tune(plain: socket.socket) -> None:
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Where the system can't bound how long sent bytes stay unacknowledged, the next stage's silence ends the ring instead.
    if option := getattr(socket, "TCP_USER_TIMEOUT", None):
        plain.setsockopt(socket.IPPROTO_TCP, option, int(SILENCE_S * 1000))


def _read_exactly(connection: ssl.SSLSocket, size: int) -> memoryview:
    buffer = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        received = connection.recv_into(buffer[filled:])
        if received == 0:
            raise ConnectionError("it closed the connection")
        filled += received
    return buffer


def _hang_up(connection: ssl.SSLSocket) -> None:
    """End the connection below TLS, which a thread that is blocked in it notices, whichever thread calls this."""
    try:
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == EBADF:
        return "this stage has closed the link"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
