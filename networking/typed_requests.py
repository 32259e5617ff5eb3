"""Requests whose questions and answers are values: numbers, texts, attrs classes, and collections of them, as JSON."""

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import orjson
from attrs import frozen
from cattrs import BaseValidationError, transform_error
from cattrs.preconf.orjson import make_converter

from networking.requests import RequestHandler, RequestRefusedError
from networking.transport import PeerId, TransportError

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Value = TypeVar("Value")

_converter = make_converter()
_converter.register_unstructure_hook(bytes, lambda value: b64encode(value).decode())
_converter.register_structure_hook(bytes, lambda value, _: b64decode(value, validate=True))


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
        reply = await peers.request(peer, self.protocol, _encode(question, self.question), timeout_s=timeout_s)
        try:
            return _decode(reply, self.answer)
        except ValueError as error:
            raise TransportError(f"peer {peer} gave no answer of this version to {self.protocol}: {error}") from error

    def serve(self, peers: Peers, handler: Callable[[PeerId, Question], Awaitable[Answer]]) -> None:
        """``handler`` returns the answer, or raises RequestRefusedError with the reason. Call it before the overlay runs."""

        async def handle(peer: PeerId, body: bytes) -> bytes:
            try:
                question = _decode(body, self.question)
            except ValueError as error:
                raise RequestRefusedError(f"not a question of this version of {self.protocol}: {error}") from error
            return _encode(await handler(peer, question), self.answer)

        peers.serve_requests(self.protocol, handle)


def _encode(value: Value, cls: type[Value]) -> bytes:
    return orjson.dumps(_converter.unstructure(value, unstructure_as=cls))


def _decode(data: bytes, cls: type[Value]) -> Value:
    """Raises ValueError that lists what is wrong."""
    try:
        return _converter.structure(orjson.loads(data), cls)
    except (BaseValidationError, KeyError, TypeError) as error:
        raise ValueError("; ".join(transform_error(error))) from error
