"""Requests whose questions and answers are values, not bytes: numbers, texts, attrs classes, and collections of them."""

from collections.abc import Awaitable, Callable
from types import NoneType
from typing import Any, Generic, Protocol, TypeVar, cast

from attrs import frozen

from networking.json_values import decode_value, encode_value
from networking.requests import RequestHandler, RequestRefusedError
from networking.transport import PeerId, TransportError

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Value = TypeVar("Value")


class OtherVersionError(TransportError):
    """The answer came, but is none that this version knows."""


class Peers(Protocol):
    """What is needed of an ``Overlay``."""

    async def request(self, peer: PeerId, protocol: str, body: bytes, *, timeout_s: float) -> bytes: ...
    def serve_requests(self, protocol: str, handler: RequestHandler) -> None: ...


@frozen
class RequestKind(Generic[Question, Answer]):
    """One kind of request: its protocol, such as ``/shop/price/1``, and the types of question and answer.

    They travel as JSON, None as nothing. Fields that one side doesn't know are ignored, so a newer version may add some with a
    default; else raise the number.
    """

    protocol: str
    question: type[Question]
    answer: type[Answer]
    encode: Callable[[Any, Any], bytes] = encode_value
    """The bytes of a value, whose type follows: for those that JSON needs help with, such as one of several classes."""
    decode: Callable[[bytes, Any], Any] = decode_value
    """The value of that type again. Raises ValueError."""

    async def ask(self, peers: Peers, peer: PeerId, question: Question, *, timeout_s: float) -> Answer:
        """Raises TransportError, of which OtherVersionError is one, and RequestRefusedError with the handler's own words."""
        reply = await peers.request(peer, self.protocol, self._pack(question, self.question), timeout_s=timeout_s)
        try:
            return self._unpack(reply, self.answer)
        except ValueError as error:
            raise OtherVersionError(
                f"peer {peer} gave no answer of this version to {self.protocol}: {error}"
            ) from error

    def serve(self, peers: Peers, handler: Callable[[PeerId, Question], Awaitable[Answer]]) -> None:
        """``handler`` returns the answer, or raises RequestRefusedError with the reason. Call it before the overlay runs."""

        async def handle(peer: PeerId, body: bytes) -> bytes:
            try:
                question = self._unpack(body, self.question)
            except ValueError as error:
                raise RequestRefusedError(f"not a question of this version of {self.protocol}: {error}") from error
            return self._pack(await handler(peer, question), self.answer)

        peers.serve_requests(self.protocol, handle)

    def _pack(self, value: Value, cls: type[Value]) -> bytes:
        return b"" if cls is NoneType else self.encode(value, cls)

    def _unpack(self, body: bytes, cls: type[Value]) -> Value:
        return cast(Value, None if cls is NoneType else self.decode(body, cls))
