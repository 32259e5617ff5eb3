"""Answers generation streams on the node that runs stage 0: a request in, events out, until the reader has gone."""

from collections.abc import Callable
from contextlib import suppress

import trio

from networking.overlay import Overlay
from networking.transport import Stream, StreamClosedError
from p2pexo.cluster.idle_rings import IdleRings
from p2pexo.cluster.observed import observe
from p2pexo.cluster.seams import Stage
from p2pexo.generation.codec import DecodeError, decode, encode_event
from p2pexo.generation.errors import GenerationError, InvalidRequestError, PlacementDeletedError, RingBrokenError
from p2pexo.generation.events import Event, Failed, Finished
from p2pexo.serving.calls import GENERATE_PROTOCOL, GenerateCall

FirstStage = Callable[[str], Stage | None]
"""The stage 0 that this node runs of a placement, None if it doesn't."""


class Host:
    """Serves as soon as it is made. Which attempt at a request counts is the stage's own business."""

    def __init__(self, overlay: Overlay, first_stage: FirstStage, rings: IdleRings) -> None:
        """``rings`` is told which are in use."""
        self._overlay = overlay
        self._first_stage = first_stage
        self._rings = rings
        overlay.serve_streams(GENERATE_PROTOCOL, self._serve)

    async def _serve(self, stream: Stream) -> None:
        """One stream; when its reader goes, so does the request."""
        async with trio.open_nursery() as nursery:
            await self._answer(stream, nursery)
            nursery.cancel_scope.cancel()

    async def _answer(self, stream: Stream, nursery: trio.Nursery) -> None:
        with suppress(StreamClosedError):
            try:
                call = decode(await stream.receive(), GenerateCall)
                nursery.start_soon(_cancel_when_left, stream, nursery.cancel_scope)
                await self._relay(call, stream)
            except DecodeError as error:
                await _fail(stream, InvalidRequestError(f"not a request of this version: {error}"))
            except GenerationError as error:
                await _fail(stream, error)
            await stream.finish()

    async def _relay(self, call: GenerateCall, stream: Stream) -> None:
        """Raises RingBrokenError or PlacementDeletedError if the stage goes before the answer is complete."""
        stage, request = self._stage(call.placement_id), call.request
        with self._rings.use(call.placement_id, request.keep_alive_s):
            async with stage.generate(request) as events:
                async for event in events:
                    if _is_broken(event):
                        self._raise_if_deleted(call.placement_id)
                    await stream.send(encode_event(event))
                    if isinstance(event, Finished | Failed):
                        return
        self._raise_if_deleted(call.placement_id)
        raise RingBrokenError(f"stage 0 of placement {call.placement_id} ended in the middle of the answer")

    def _stage(self, placement_id: str) -> Stage:
        stage = self._first_stage(placement_id)
        if stage is None:
            self._raise_if_deleted(placement_id)
            raise RingBrokenError(f"stage 0 of placement {placement_id} does not run on this node, or not yet")
        return stage

    def _raise_if_deleted(self, placement_id: str) -> None:
        deletion = observe(self._overlay.view).placements.deletion_of(placement_id)
        if deletion is not None and deletion.was_asked_for:
            raise PlacementDeletedError(f"the model was stopped: {deletion.reason}")


async def _cancel_when_left(stream: Stream, scope: trio.CancelScope) -> None:
    """The asking side sends nothing more; what can be received is only that it is gone."""
    with suppress(StreamClosedError):
        while True:
            await stream.receive()
    scope.cancel()


async def _fail(stream: Stream, error: GenerationError) -> None:
    await stream.send(encode_event(Failed(error.report())))


def _is_broken(event: Event) -> bool:
    return isinstance(event, Failed) and event.error.kind == RingBrokenError.kind
