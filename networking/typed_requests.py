"""Requests whose questions and answers are values: numbers, texts, attrs classes, and collections of them, as JSON."""

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from attrs import frozen

from networking.json_values import decode_value, encode_value
from networking.requests import RequestHandler, RequestRefusedError
from networking.transport import PeerId, TransportError

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Peers(Protocol):
    """What is needed of an ``Overlay``."""

    async def request(self, peer: PeerId, protocol: str, body: bytes, *, timeout_s: float) -> bytes: ...
    def serve_requests(self, protocol: str, handler: RequestHandler) -> None: ...


@frozen
class RequestKind(Generic[Question, Answer]):
    """One kind of request: its protocol, such as ``/shop/price/1``, and the types of question and answer.

    Fields that one side doesn't know are ignored, so a newer version may add some with a default; else raise the number.
    """

    protocol: str
    question: type[Question]
    answer: type[Answer]

    async def ask(self, peers: Peers, peer: PeerId, question: Question, *, timeout_s: float) -> Answer:
        """Raises TransportError, and RequestRefusedError with the handler's own words."""
        reply = await peers.request(peer, self.protocol, encode_value(question, self.question), timeout_s=timeout_s)
        try:
            return decode_value(reply, self.answer)
        except ValueError as error:
            raise TransportError(f"peer {peer} gave no answer of this version to {self.protocol}: {error}") from error

    def serve(self, peers: Peers, handler: Callable[[PeerId, Question], Awaitable[Answer]]) -> None:
        """``handler`` returns the answer, or raises RequestRefusedError with the reason. Call it before the overlay runs."""

        async def handle(peer: PeerId, body: bytes) -> bytes:
            try:
                question = decode_value(body, self.question)
            except ValueError as error:
                raise RequestRefusedError(f"not a question of this version of {self.protocol}: {error}") from error
            return encode_value(await handler(peer, question), self.answer)

        peers.serve_requests(self.protocol, handle)
