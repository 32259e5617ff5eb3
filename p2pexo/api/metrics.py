"""What ``GET /metrics`` tells Prometheus: every generation is watched here on its way, whichever dialect asked for it."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from attrs import define, frozen
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from p2pexo.api.backend import Generator
from p2pexo.api.stage_metrics import StageFigures
from p2pexo.cluster.snapshot import ClusterSnapshot
from p2pexo.generation.events import Delta, Event, Failed, Finished, Started
from p2pexo.generation.request import Request

MEDIA_TYPE = CONTENT_TYPE_LATEST

_LABELS = ("dialect", "model")
_FIRST_TOKEN_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SPEEDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_NEXT_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """The figures of one application, in a registry of its own. Each answer of several to one question counts for itself."""

    def __init__(self, snapshot: Callable[[], ClusterSnapshot] | None = None) -> None:
        """``snapshot``, of the cluster, tells what stages are busy with; without it nothing is said of them."""
        self._registry = CollectorRegistry()
        if snapshot is not None:
            self._registry.register(StageFigures(snapshot))
        self.requests = Counter(
            "p2pexo_requests",
            "Generations that ended, by how: stop, length, tool_calls, the kind of error, or cancelled",
            (*_LABELS, "outcome"),
            registry=self._registry,
        )
        self.prompt_tokens = self._counter("p2pexo_prompt_tokens", "Tokens of prompts")
        self.completion_tokens = self._counter("p2pexo_completion_tokens", "Tokens generated")
        self.queued = self._gauge("p2pexo_requests_queued", "Generations whose prompt the model has not begun to read")
        self.running = self._gauge("p2pexo_requests_running", "Generations that the model works on")
        self.first_token = self._histogram(
            "p2pexo_time_to_first_token_seconds", "From the request to its first token", _FIRST_TOKEN_S
        )
        self.next_token = self._histogram(
            "p2pexo_time_between_tokens_seconds", "From one piece of an answer to the next, by token", _NEXT_TOKEN_S
        )
        self.queue = self._histogram(
            "p2pexo_queue_seconds",
            "From a request's arrival at the model to the beginning of its prompt",
            _FIRST_TOKEN_S,
        )
        self.prefill_speed = self._histogram(
            "p2pexo_prefill_tokens_per_second", "Of a prompt, but for what was cached, to its first token", _SPEEDS
        )
        self.decode_speed = self._histogram(
            "p2pexo_decode_tokens_per_second", "Of an answer, behind its first token", _SPEEDS
        )

    def watch(self, generator: Generator, dialect: str) -> Generator:
        """The same generator, with all that it does for ``dialect`` counted."""
        return _Watched(generator, self, dialect)

    def render(self) -> bytes:
        """Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(name, meaning, _LABELS, registry=self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, _LABELS, registry=self._registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, meaning, _LABELS, buckets=buckets, registry=self._registry)


class Meter:
    """Watches one generation. Times are seconds of any steady clock."""

    def __init__(self, metrics: Metrics, dialect: str, model: str, now: float) -> None:
        labels = (dialect, model)
        self._requests = metrics.requests
        self._labels = labels
        self._prompt_tokens = metrics.prompt_tokens.labels(*labels)
        self._completion_tokens = metrics.completion_tokens.labels(*labels)
        self._first_token = metrics.first_token.labels(*labels)
        self._next_token = metrics.next_token.labels(*labels)
        self._queue = metrics.queue.labels(*labels)
        self._prefill_speed = metrics.prefill_speed.labels(*labels)
        self._decode_speed = metrics.decode_speed.labels(*labels)
        self._running = metrics.running.labels(*labels)
        self._place = metrics.queued.labels(*labels)
        """Where the generation is counted as present."""
        self._place.inc()
        self._outcome = "cancelled"
        self._last = now
        self._has_token = False

    def observe(self, event: Event, now: float) -> None:
        match event:
            case Delta():
                self._token(len(event.tokens), now)
            case Started():
                self._start()
            case Finished():
                self._outcome = event.reason.value
                self._prompt_tokens.inc(event.usage.prompt_tokens)
                self._completion_tokens.inc(event.usage.completion_tokens)
                self._time(event)
            case Failed():
                self._outcome = event.error.kind
            case _:
                pass

    def close(self) -> None:
        """The generation is over, whether it came to its end or not."""
        self._place.dec()
        self._requests.labels(*self._labels, self._outcome).inc()

    def _start(self) -> None:
        self._place.dec()
        self._place = self._running
        self._place.inc()

    def _time(self, finished: Finished) -> None:
        self._queue.observe(finished.queue_s)
        if (speed := finished.prefill_tokens_per_s) is not None:
            self._prefill_speed.observe(speed)
        if (speed := finished.decode_tokens_per_s) is not None:
            self._decode_speed.observe(speed)

    def _token(self, tokens: int, now: float) -> None:
        took, self._last = now - self._last, now
        if self._has_token:
            self._next_token.observe(took / max(tokens, 1))
        else:
            self._has_token = True
            self._first_token.observe(took)


@frozen
class _Watched:
    """Implements ``Generator``."""

    _generator: Generator
    _metrics: Metrics
    _dialect: str

    @asynccontextmanager
    async def generate(self, request: Request) -> AsyncGenerator[AsyncIterable[Event]]:
        meter = Meter(self._metrics, self._dialect, request.model, trio.current_time())
        try:
            async with self._generator.generate(request) as events:
                yield _Observed(aiter(events), meter)
        finally:
            meter.close()


@define
class _Observed:
    _events: AsyncIterator[Event]
    _meter: Meter

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        self._meter.observe(event, trio.current_time())
        return event
