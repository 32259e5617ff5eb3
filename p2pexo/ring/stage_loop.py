"""The engine thread of a stage process: one inbox, handled one message at a time, from loading to the end.

Commands from the node, news from the links and results of batches all come in through it. Nothing here waits for
a neighbour, so a cancel or a new epoch is never further away than the step that is being computed.
"""

import queue
import time
from collections.abc import Callable
from typing import Any

import psutil
import structlog
from attrs import evolve

from p2pexo.engine.batch import BatchResult
from p2pexo.engine.limits import Limits
from p2pexo.engine.pacing import Pace
from p2pexo.engine.scheduler import Scheduler
from p2pexo.generation.errors import EngineError, GenerationError, RingBrokenError
from p2pexo.generation.events import Event, Failed
from p2pexo.generation.request import Request
from p2pexo.ring.activity import ActivityMeter
from p2pexo.ring.capacity import cache_tokens
from p2pexo.ring.conductor import Conductor
from p2pexo.ring.control import Cancel, Command, Happened, Join, Measure, Prepare, Report, Start, StatusChanged, Submit
from p2pexo.ring.engine_errors import explain
from p2pexo.ring.engines import StageEngine, TextModel, find_kit
from p2pexo.ring.links import Arrived, LinkDelayed, Linked, LinkError, LinkEvent, LinkLost, Links
from p2pexo.ring.messages import Frame, Step
from p2pexo.ring.plan import Epoch
from p2pexo.ring.stage import Neighbours, StagePhase, StageSpec, StageStatus
from p2pexo.ring.step_clock import StepClock
from p2pexo.ring.tls_links import TlsLinks

_PROGRESS_STEP = 0.01
"""Share of the weights after which progress is told again."""

_logger = structlog.get_logger(__name__)

Message = Command | LinkEvent | BatchResult


class StageLoop:
    """Made and run by one thread: engines hold on to the thread that loads them."""

    def __init__(
        self,
        start: Start,
        inbox: queue.SimpleQueue[Any],
        report: Callable[[Report], None],
        clock: StepClock,
        meter: ActivityMeter,
    ) -> None:
        """``clock`` is told of each step, so that one that hangs shows; ``meter`` of what came of it."""
        self._spec: StageSpec = start.spec
        self._plan = start.spec.placement.stages[start.spec.rank]
        self._is_alone = len(start.spec.placement.stages) == 1
        self._report = report
        self._clock = clock
        self._meter = meter
        self._inbox: queue.SimpleQueue[Message] = inbox
        self._status = StageStatus(StagePhase.STARTING)
        self._neighbours: Neighbours | None = None
        """Of the links that stand or are being made; None if there are none."""
        self._engine, self._conductor, self._links = self._load(start)

    def run(self) -> None:
        """For ever."""
        self._change(
            phase=StagePhase.LISTENING,
            progress=1.0,
            endpoints=self._links.endpoints if self._links else (),
            certificate=self._links.certificate if self._links else "",
            weight_bytes=self._engine.weight_bytes,
            compute=self._engine.compute,
        )
        while True:
            self._handle(self._inbox.get())
            self._handle_what_came()
            while self._start_batch():
                self._handle_what_came()

    def _load(self, start: Start) -> tuple[StageEngine, Conductor | None, Links | None]:
        self._change(phase=StagePhase.LOADING)
        kit = find_kit(start.engine)
        stage = kit.load_stage(
            self._spec.directory,
            first_layer=self._plan.first_layer,
            end_layer=self._plan.end_layer,
            precision=self._spec.placement.precision,
            progress=self._tell_progress,
        )
        conductor = self._conduct(kit.load_text(self._spec.directory), start.limits) if self._spec.is_first else None
        links = None if self._is_alone else TlsLinks(self._spec, stage.wire_dtype, self._inbox.put)
        return stage, conductor, links

    def _conduct(self, text: TextModel, limits: Limits) -> Conductor:
        scheduler = Scheduler(limits, Pace(len(self._spec.placement.stages)))
        return Conductor(text, self._emit, scheduler, time.monotonic, self._meter)

    def _handle_what_came(self) -> None:
        """So that the next batch is chosen in the light of all news."""
        while not self._inbox.empty():
            self._handle(self._inbox.get())

    def _handle(self, message: Message) -> None:
        match message:
            case Join(neighbours):
                self._join(neighbours)
            case Submit(call, request):
                self._submit(call, request)
            case Cancel(call):
                if self._conductor:
                    self._conductor.cancel(call)
            case Linked() | LinkDelayed() | LinkLost() | Arrived():
                if message.neighbours is self._neighbours:
                    self._handle_link(message)
            case BatchResult():
                self._apply(message)
            case Prepare() | Start() | Measure():
                _logger.error("a stage is started once; this command is ignored")

    def _handle_link(self, event: LinkEvent) -> None:
        match event:
            case Linked(_, description):
                self._change(phase=StagePhase.READY, reason="", link=description)
            case LinkDelayed(_, reason):
                if self._status.reason != reason:
                    self._change(reason=reason)
            case LinkLost(_, reason):
                self._break(reason)
            case Arrived(_, frame):
                self._take(frame)

    def _join(self, neighbours: Neighbours) -> None:
        epoch = neighbours.epoch
        if not self._may_join(epoch):
            _logger.warning("told to join an epoch that is over", epoch=str(epoch), joined=str(self._status.epoch))
            return
        self._drop_caches(RingBrokenError(f"the ring is formed anew, as epoch {epoch}"))
        if self._conductor and (tokens := cache_tokens(neighbours.cache_tokens, self._engine.wire_dtype)):
            self._conductor.keep_within(tokens)
        if self._links is None:
            self._change(phase=StagePhase.READY, epoch=epoch, reason="")
        else:
            self._change(phase=StagePhase.LINKING, epoch=epoch, reason="", link="")
            self._neighbours = neighbours
            self._link(self._links, neighbours)

    def _may_join(self, epoch: Epoch) -> bool:
        """Each epoch once. But while it is still linking, a neighbour may have been replaced."""
        joined = self._status.epoch
        return joined is None or epoch > joined or (epoch == joined and self._status.phase is StagePhase.LINKING)

    def _link(self, links: Links, neighbours: Neighbours) -> None:
        try:
            links.join(neighbours)
        except LinkError as error:
            self._break(str(error))

    def _submit(self, call: int, request: Request) -> None:
        if self._conductor is None:
            error = EngineError(f"stage {self._spec.rank} takes no requests; send them to stage 0")
        elif self._status.phase is not StagePhase.READY:
            error = RingBrokenError(f"the ring is not ready, but {self._status.phase}: {self._status.reason}")
        else:
            self._conductor.submit(call, request)
            return
        self._emit(call, Failed(error.report()))

    def _start_batch(self) -> bool:
        """Whether there was a batch to start."""
        if self._conductor is None or self._status.phase is not StagePhase.READY:
            return False
        batch = self._conductor.next_batch()
        if batch is not None:
            self._compute(Step(batch), None)
        return batch is not None

    def _take(self, frame: Frame) -> None:
        match frame.message:
            case Step() if not self._spec.is_first:
                self._compute(frame.message, frame.payload)
            case BatchResult() if self._conductor:
                self._apply(frame.message)
            case _:
                self._break(f"the previous stage sent a {type(frame.message).__name__}, which is none of its business")

    def _apply(self, result: BatchResult) -> None:
        if self._conductor:
            self._conductor.apply(result)

    def _compute(self, step: Step, hidden: memoryview | None) -> None:
        """Run a batch through this stage's layers and pass on what comes out, even if that is only what failed."""
        self._clock.begin(step.batch.rows, time.monotonic())
        try:
            output = self._engine.run(step.batch, hidden)
        except Exception as error:
            _logger.exception("a batch failed", batch=step.batch.number)
            step = step.without_entries(explain(f"{type(error).__name__} on stage {self._spec.rank}: {error}"))
            output = BatchResult(step.batch.number) if self._engine.is_last else memoryview(b"")
        took_s = self._clock.end(time.monotonic())
        self._meter.computed(step.batch, took_s)
        self._meter.holds(self._engine.conversations, self._engine.cache_bytes)
        stage_s = (*step.stage_s, took_s)
        if isinstance(output, BatchResult):
            self._hand_back(evolve(output, failures=step.failures + output.failures, stage_s=stage_s))
        else:
            self._send(evolve(step, stage_s=stage_s), output)

    def _hand_back(self, result: BatchResult) -> None:
        """To stage 0. Alone, it goes through the inbox all the same, so that commands get their turn between steps."""
        if self._is_alone:
            self._inbox.put(result)
        else:
            self._send(result)

    def _send(self, message: Step | BatchResult, payload: bytes | memoryview = b"") -> None:
        try:
            if self._links:
                self._links.send(message, payload)
        except LinkError as error:
            self._break(str(error))

    def _break(self, reason: str) -> None:
        _logger.warning("the ring is broken", reason=reason, epoch=str(self._status.epoch))
        self._drop_caches(RingBrokenError(f"a stage of the ring is gone: {reason}"))
        self._change(phase=StagePhase.BROKEN, reason=reason, link="")

    def _drop_caches(self, error: GenerationError) -> None:
        """Leave the ring, keep the weights."""
        self._neighbours = None
        if self._links:
            self._links.drop()
        self._engine.clear()
        if self._conductor:
            self._conductor.fail_all(error)

    def _emit(self, call: int, event: Event) -> None:
        self._report(Happened(call, event))

    def _tell_progress(self, share: float) -> None:
        if share - self._status.progress >= _PROGRESS_STEP:
            self._change(progress=share)

    def _change(self, **changes: Any) -> None:
        """Tell the node what is new, by the names of ``StageStatus``."""
        self._status = evolve(self._status, resident_bytes=psutil.Process().memory_info().rss, **changes)
        self._report(StatusChanged(self._status))
