"""Answers generation streams on the node that runs stage 0: a request in, events out, until the reader has gone."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import structlog
import trio

from networking.transport import Stream, StreamClosedError
from p2pexo.cluster.observed import observe
from p2pexo.cluster.seams import Overlay, Stage
from p2pexo.generation.codec import DecodeError, decode, encode_event
from p2pexo.generation.errors import (
    GenerationError,
    InvalidRequestError,
    PlacementDeletedError,
    RingBrokenError,
)
from p2pexo.generation.events import Event, Failed, Finished
from p2pexo.ring.plan import Placement
from p2pexo.serving.calls import GENERATE_PROTOCOL, GenerateCall
from p2pexo.serving.channels import produced

FirstStage = Callable[[str], tuple[Stage, Placement] | None]
"""The stage 0 that this node runs of a placement, None if it doesn't."""

log = structlog.get_logger(__name__)


class Host:
    def __init__(self, overlay: Overlay, first_stage: FirstStage) -> None:
        self._overlay = overlay
        self._first_stage = first_stage
        overlay.serve_streams(GENERATE_PROTOCOL, self._serve)

    @asynccontextmanager
    async def generate(self, call: GenerateCall) -> AsyncGenerator[trio.MemoryReceiveChannel[Event]]:
        """The events of a request, ended by ``Finished`` or ``Failed``. Leaving the block cancels the request."""

        async def produce(send: trio.MemorySendChannel[Event]) -> None:
            try:
                await self._relay(call, send)
            except GenerationError as error:
                await send.send(Failed(error.report()))

        async with produced(produce) as channel:
            yield channel

    async def _relay(self, call: GenerateCall, send: trio.MemorySendChannel[Event]) -> None:
        stage = self._stage(call.placement_id)
        async with stage.generate(call.request) as events:
            async for event in events:
                if isinstance(event, Failed) and event.error.kind == RingBrokenError.kind:
                    self._raise_if_deleted(call.placement_id)
                await send.send(event)
                if isinstance(event, Finished | Failed):
                    return
        self._raise_if_deleted(call.placement_id)
        raise RingBrokenError(f"stage 0 of placement {call.placement_id} ended in the middle of the answer")

    def _stage(self, placement_id: str) -> Stage:
        found = self._first_stage(placement_id)
        if found is None:
            self._raise_if_deleted(placement_id)
            raise RingBrokenError(f"stage 0 of placement {placement_id} does not run on this node, or not yet")
        return found[0]

    def _raise_if_deleted(self, placement_id: str) -> None:
        deletion = observe(self._overlay.view).placements.deletion_of(placement_id)
        if deletion is not None:
            raise PlacementDeletedError(f"the model was stopped: {deletion.reason}")

    async def _serve(self, stream: Stream) -> None:
        """One stream; when its reader goes, so does the request."""
        with suppress(StreamClosedError):
            try:
                call = decode(await stream.receive(), GenerateCall)
            except DecodeError as error:
                refusal = InvalidRequestError(f"not a request of this version: {error}")
                await stream.send(encode_event(Failed(refusal.report())))
                return
            await self._answer(call, stream)

    async def _answer(self, call: GenerateCall, stream: Stream) -> None:
        async with self.generate(call) as events, trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_left, stream, nursery.cancel_scope)
            await _send_events(events, stream)
            nursery.cancel_scope.cancel()


async def _send_events(events: trio.MemoryReceiveChannel[Event], stream: Stream) -> None:
    with suppress(StreamClosedError):
        async for event in events:
            await stream.send(encode_event(event))
        await stream.finish()


async def _cancel_when_left(stream: Stream, scope: trio.CancelScope) -> None:
    """The asking side sends nothing more; what can be received is only that it is gone."""
    with suppress(StreamClosedError):
        while True:
            await stream.receive()
    scope.cancel()
