"""One TLS 1.3 connection on which two machines pair: messages of bounded size, in bounded time.

The certificate is made by the member's process and trusted by nobody: what both sides sign holds its hash, so a
conversation that is relayed through somebody else's TLS connection proves nothing.
"""

import hashlib
import ssl
from typing import Self

import trio

from networking.certificates import SelfSigned
from networking.pairing import PairingError
from networking.pairing_messages import MAX_MESSAGE_BYTES, PairingMessage, decode, encode

SEND_LIMIT_S = 5.0
"""For one message. Raise it and a side that doesn't read is held on to longer; lower it and slow networks are given up."""

_LENGTH_BYTES = 4

CONNECTION_ERRORS = (
    OSError,
    ssl.SSLError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)
"""What a connection may come to an end with."""


class PairingChannel:
    """Messages over one TLS connection. Whoever made the TCP stream below it closes that, without a word of TLS."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream], binding: bytes) -> None:
        self._stream = stream
        self._received = bytearray()
        self.binding = binding
        """What both sides' signatures bind to; 32 bytes."""

    @classmethod
    async def accept(cls, wire: trio.SocketStream, own: SelfSigned) -> Self:
        """The member's side. Raises one of CONNECTION_ERRORS; the caller closes ``wire`` then."""
        stream = trio.SSLStream(wire, own.context(ssl.PROTOCOL_TLS_SERVER), server_side=True)
        await stream.do_handshake()
        return cls(stream, _hash(own.encoded))

    @classmethod
    async def dial(cls, wire: trio.SocketStream) -> Self:
        """The newcomer's side. Raises one of CONNECTION_ERRORS; the caller closes ``wire`` then."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        stream = trio.SSLStream(wire, context)
        await stream.do_handshake()
        certificate: bytes = stream.getpeercert(binary_form=True)
        return cls(stream, _hash(certificate))

    async def send(self, message: PairingMessage) -> None:
        """Raises one of CONNECTION_ERRORS."""
        data = encode(message)
        with trio.fail_after(SEND_LIMIT_S):
            await self._stream.send_all(len(data).to_bytes(_LENGTH_BYTES, "big") + data)

    async def receive(self) -> PairingMessage:
        """Raises PairingError, MalformedPairingError or one of CONNECTION_ERRORS. It is safe to cancel."""
        await self._fill(_LENGTH_BYTES)
        size = int.from_bytes(self._received[:_LENGTH_BYTES], "big")
        if size > MAX_MESSAGE_BYTES:
            raise PairingError(f"the other machine announced {size} bytes, at most {MAX_MESSAGE_BYTES} are taken")
        await self._fill(_LENGTH_BYTES + size)
        data = bytes(self._received[_LENGTH_BYTES : _LENGTH_BYTES + size])
        del self._received[: _LENGTH_BYTES + size]
        return decode(data)

    async def drained(self) -> None:
        """Wait for the other side to close, whatever it still says."""
        while await self._stream.receive_some(MAX_MESSAGE_BYTES):
            pass

    async def _fill(self, size: int) -> None:
        while len(self._received) < size:
            data = await self._stream.receive_some(MAX_MESSAGE_BYTES)
            if not data:
                raise PairingError("the other machine closed the connection")
            self._received += data


def _hash(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()
