"""A ring in virtual time: stages that take what a formula says, between which batches hop, under a real scheduler."""

import heapq
from collections.abc import Callable, Sequence

from p2pexo.engine.batch import Batch, BatchResult, Sampled
from p2pexo.engine.scheduler import Advance, Scheduler


class VirtualRing:
    def __init__(
        self, scheduler: Scheduler, stages: Sequence[Callable[[int], float]], *, hop_s: float = 0.0, token: int = 9
    ) -> None:
        """``stages``: of each one the seconds that it takes for so many rows."""
        self.scheduler = scheduler
        self.now = 0.0
        self.sent: list[Batch] = []
        self.drawn: dict[int, list[float]] = {}
        """By sequence: when each token came."""
        self._stages = stages
        self._hop_s = hop_s
        self._token = token
        self._free = [0.0] * len(stages)
        self._coming: list[tuple[float, int, BatchResult, float]] = []

    def run(self, until: float) -> None:
        while self.now < until and self.step():
            pass

    def step(self) -> bool:
        """Send the next batch, or else take in the next result; whether there was anything to do."""
        if self.now >= self._free[0] and (batch := self.scheduler.next_batch()):
            self._send(batch)
            return True
        if self._coming and (self._free[0] <= self.now or self._coming[0][0] <= self._free[0]):
            at, _, result, sent_at = heapq.heappop(self._coming)
            self.now = max(self.now, at)
            self._take(result, sent_at)
            return True
        busy, self.now = self.now < self._free[0], max(self.now, self._free[0])
        return busy

    def _send(self, batch: Batch) -> None:
        self.sent.append(batch)
        if not batch.entries:
            return
        at, times = self.now, tuple(stage(batch.rows) for stage in self._stages)
        for rank, seconds in enumerate(times):
            self._free[rank] = max(at, self._free[rank]) + seconds
            at = self._free[rank] + (self._hop_s if len(times) > 1 else 0.0)
        wanted = [each.sequence for each in batch.entries if each.sample_index is not None]
        result = BatchResult(batch.number, tuple(Sampled(each, self._token) for each in wanted), stage_s=times)
        heapq.heappush(self._coming, (at, batch.number, result, self.now))

    def _take(self, result: BatchResult, sent_at: float) -> None:
        for outcome in self.scheduler.apply(result, self.now - sent_at):
            assert isinstance(outcome, Advance)
            if outcome.drawn is not None:
                self.drawn.setdefault(outcome.sequence, []).append(self.now)
