"""How each request of this node fared: one line in the log at its end, and the last ones kept to be shown. Nothing of what was said."""

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

import structlog
import trio
from attrs import asdict, define, evolve, frozen

from p2pexo.generation.errors import GenerationError
from p2pexo.generation.events import Delta, Event, Failed, Finished
from p2pexo.generation.request import Request
from p2pexo.ring.plan import Placement

KEPT_REQUESTS = 20
"""Raise it and more is shown of what happened before; lower it and memory is saved."""

log = structlog.get_logger(__name__)


@frozen
class RequestRecord:
    """A request that has ended. Seconds are rounded to milliseconds, speeds to tenths."""

    id: str
    model: str
    outcome: str = "cancelled"
    """``stop``, ``length`` or ``tool_calls``, the kind of its error, or ``cancelled``: the client left, or the node stopped."""
    ended_at: float = 0.0
    """Unix seconds."""
    total_s: float = 0.0
    """From its arrival at this node."""
    placement: str = ""
    """The ring that had it last; empty if none ever had."""
    epoch: str = ""
    node: str = ""
    """The name of the one that ran the first stage of that ring."""
    rings: int = 0
    """How many it has been sent to, one after the other."""
    first_token_s: float | None = None
    """From its arrival at this node, too."""
    queue_s: float | None = None
    """How long it waited at the ring for its prompt to be begun. This and what follows is known of whole answers alone."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the prompt."""
    completion_tokens: int | None = None
    prefill_tokens_per_s: float | None = None
    """Of the prompt, but for what was cached, to the first token."""
    decode_tokens_per_s: float | None = None
    """Behind the first token, also while another ring had to be waited for."""


@define
class Recorder:
    """Watches one request. Times are seconds of any steady clock."""

    record: RequestRecord
    """As it is by now."""
    _began: float

    def sent(self, placement: Placement, node: str) -> None:
        self.record = evolve(
            self.record, placement=placement.id, epoch=str(placement.epoch), node=node, rings=self.record.rings + 1
        )

    def told(self, event: Event, now: float) -> None:
        """An event on its way to the client."""
        match event:
            case Delta() if self.record.first_token_s is None:
                self.record = evolve(self.record, first_token_s=round(now - self._began, 3))
            case Finished():
                self._finish(event)
            case Failed():
                self.record = evolve(self.record, outcome=event.error.kind)
            case _:
                pass

    def end(self, now: float, ended_at: float) -> None:
        """``ended_at``: now, on the wall's clock."""
        self.record = evolve(self.record, ended_at=round(ended_at, 3), total_s=round(now - self._began, 3))

    def _finish(self, finished: Finished) -> None:
        self.record = evolve(
            self.record,
            outcome=finished.reason.value,
            queue_s=round(finished.queue_s, 3),
            prompt_tokens=finished.usage.prompt_tokens,
            cached_tokens=finished.usage.cached_tokens,
            completion_tokens=finished.usage.completion_tokens,
            prefill_tokens_per_s=_tenths(finished.prefill_tokens_per_s),
            decode_tokens_per_s=_tenths(finished.decode_tokens_per_s),
        )


class Records:
    """Of the last requests that ended."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._kept: deque[RequestRecord] = deque(maxlen=KEPT_REQUESTS)

    def newest(self) -> tuple[RequestRecord, ...]:
        """The one that ended last comes first."""
        return tuple(reversed(self._kept))

    @contextmanager
    def watching(self, request: Request) -> Generator[Recorder]:
        """Keep and log what became of a request, when the block is left."""
        recorder = Recorder(RequestRecord(request.id, request.model), trio.current_time())
        try:
            yield recorder
        except trio.BrokenResourceError:  # nobody listens any more
            raise
        except Exception:
            recorder.record = evolve(recorder.record, outcome=GenerationError.kind)
            raise
        finally:
            recorder.end(trio.current_time(), self._wall_clock())
            self._kept.append(recorder.record)
            _log(recorder.record)


def _log(record: RequestRecord) -> None:
    told = asdict(
        record, filter=lambda attribute, value: attribute.name not in ("id", "ended_at") and value is not None
    )
    log.info("request ended", request=record.id, **told)


def _tenths(speed: float | None) -> float | None:
    return None if speed is None else round(speed, 1)
