"""The two links of a stage, over TLS: dials the next stage, lets the previous one in, and begins anew for each epoch."""

import socket
import threading
from collections.abc import Callable

import structlog
from attrs import evolve

from p2pexo.ring.certificates import Credentials, make_credentials
from p2pexo.ring.links import Arrived, LinkDelayed, Linked, LinkError, LinkLost, Post
from p2pexo.ring.listener import Listener
from p2pexo.ring.messages import Hello, Message
from p2pexo.ring.stage import Endpoint, Neighbours, StageSpec
from p2pexo.ring.tls import TlsIncoming, TlsOutgoing, accept, dial

_FIRST_RETRY_S = 0.05
_LONGEST_RETRY_S = 1.0
_LOGGED_REFUSALS = 10
"""Per epoch. Raise it and a stranger that knocks for ever writes more into the log."""

_logger = structlog.get_logger(__name__)


class TlsLinks:
    """Implements ``links.Links``. Listens from the start; turns everyone away until told who the neighbours are."""

    def __init__(self, spec: StageSpec, dtype: str, post: Post) -> None:
        self._hello = Hello(spec.placement.id, spec.placement.epoch, spec.rank, len(spec.placement.stages), dtype)
        self._post = post
        self._credentials = make_credentials("stage")  # no more: whoever connects is shown it
        self._listener = Listener(spec.listen_hosts, self._welcome)
        self._pair: _Pair | None = None
        self._listener.start()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self._listener.endpoints

    @property
    def certificate(self) -> str:
        return self._credentials.certificate

    def join(self, neighbours: Neighbours) -> None:
        self.drop()
        hello = evolve(self._hello, epoch=neighbours.epoch)
        try:
            self._pair = _Pair(neighbours, hello, self._credentials, self._post)
        except (OSError, ValueError) as error:
            raise LinkError(f"a neighbour's certificate can't be used: {error}") from error
        self._pair.start()

    def send(self, message: Message, payload: bytes | memoryview = b"") -> None:
        if self._pair is None:
            raise LinkError("this stage is not linked to a next one")
        self._pair.send(message, payload)

    def drop(self) -> None:
        if self._pair is not None:
            self._pair.close()
            self._pair = None

    def _welcome(self, connection: socket.socket) -> None:
        pair = self._pair
        if pair is None:
            connection.close()
        else:
            pair.welcome(connection)


class _Pair:
    """The links of one ``join``. Once closed it stays closed; what it still posts is known by its neighbours to be stale."""

    def __init__(self, neighbours: Neighbours, hello: Hello, credentials: Credentials, post: Post) -> None:
        self._neighbours = neighbours
        self._hello = hello
        self._client_context = credentials.client_context(neighbours.next_certificate)
        self._server_context = credentials.server_context(neighbours.previous_certificate)
        self._post = post
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._is_linked = False
        self._incoming: TlsIncoming | None = None
        self._outgoing: TlsOutgoing | None = None
        self._description = ""
        self._refusals = 0

    def start(self) -> None:
        _start_thread("dial next", self._dial_until_welcome)

    def send(self, message: Message, payload: bytes | memoryview) -> None:
        if self._outgoing is None:
            raise LinkError("this stage is not linked to the next one yet")
        self._outgoing.send(message, payload)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            if self._outgoing is not None:
                self._outgoing.hang_up()
            if self._incoming is not None:
                self._incoming.hang_up()
                if not self._is_linked:
                    self._incoming.close()

    def welcome(self, connection: socket.socket) -> None:
        """Runs in a thread of the connection's own."""
        expected = evolve(self._hello, rank=(self._hello.rank - 1) % self._hello.stages)
        try:
            incoming = accept(connection, self._server_context, expected)
        except LinkError as error:
            self._log_refusal(error)
        else:
            self._keep_incoming(incoming)

    def _dial_until_welcome(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._closed.is_set():
            reasons: list[str] = []
            for endpoint in self._neighbours.next_endpoints:
                try:
                    outgoing = dial(endpoint, self._client_context, self._hello)
                except LinkError as error:
                    reasons.append(str(error))
                else:
                    self._description = f"tls {endpoint}"
                    self._keep_outgoing(outgoing)
                    return
            if retry_s == _LONGEST_RETRY_S:  # before that, the next stage may only not have been told of us yet
                self._post(LinkDelayed(self._neighbours, "; ".join(reasons) or "no address of the next stage is known"))
            self._closed.wait(retry_s)
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S)

    def _keep_incoming(self, incoming: TlsIncoming) -> None:
        """A previous stage that comes again before this one is linked has given its earlier link up."""
        with self._lock:
            superseded = incoming
            if not self._closed.is_set() and not self._is_linked:
                superseded, self._incoming = self._incoming, incoming
        if superseded is not None:
            superseded.close()
        self._link_if_complete()

    def _keep_outgoing(self, outgoing: TlsOutgoing) -> None:
        with self._lock:
            if self._closed.is_set():
                outgoing.close()
                return
            self._outgoing = outgoing
        _start_thread("watch next", self._watch, outgoing)
        self._link_if_complete()

    def _link_if_complete(self) -> None:
        """Until both links stand nothing is read: what an eager neighbour sends waits in the system's buffers."""
        with self._lock:
            incoming = self._incoming
            if self._closed.is_set() or self._is_linked or incoming is None or self._outgoing is None:
                return
            self._is_linked = True
        self._post(Linked(self._neighbours, self._description))
        _start_thread("hear previous", self._hear, incoming)

    def _hear(self, incoming: TlsIncoming) -> None:
        try:
            while True:
                self._post(Arrived(self._neighbours, incoming.receive()))
        except LinkError as error:
            self._post(LinkLost(self._neighbours, str(error)))
        finally:
            incoming.close()

    def _watch(self, outgoing: TlsOutgoing) -> None:
        try:
            outgoing.watch()
        except LinkError as error:
            if self._give_up(outgoing):
                self._closed.wait(_FIRST_RETRY_S)
                self._dial_until_welcome()
            else:
                self._post(LinkLost(self._neighbours, str(error)))
        finally:
            outgoing.close()

    def _give_up(self, outgoing: TlsOutgoing) -> bool:
        """Whether a lost link may be dialled again: only while nothing has been sent on it, so before this is linked."""
        with self._lock:
            if self._is_linked or self._outgoing is not outgoing:
                return False
            self._outgoing = None
            return True

    def _log_refusal(self, error: LinkError) -> None:
        self._refusals += 1
        if self._refusals <= _LOGGED_REFUSALS:
            _logger.warning("link refused", reason=str(error), epoch=str(self._neighbours.epoch))


def _start_thread(name: str, target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, name=name, daemon=True).start()
