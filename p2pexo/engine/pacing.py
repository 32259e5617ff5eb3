"""How long batches take, learned from their results, and what follows for the next ones. Pure: no clock of its own.

A stage's time for a batch is taken to be a part that every batch costs and a part for each row. How large the two are says
whether it pays to split the sequences at hand into several batches, so that all stages have one: it does where rows are
what costs (compute bound), and gains little where each batch reads all weights anew (memory bound).
"""

from collections.abc import Sequence
from math import ceil

from attrs import define, field

_FASTER, _SLOWER = 0.5, 0.1
"""Weights of a new measurement: quick to believe that a stage is fast, slow to take a pause for a trend."""
_WORTH_A_SPLIT = 0.9
"""More batches, of fewer sequences each, must bring a step down to so much of its time. Raise it and sequences are split
for smaller gains; lower it and they stay longer in batches that don't fill the stages."""
_NO_LOSS = 1.03
"""Fewer batches may make a step so much longer. Raise it and sequences are moved to and fro more often."""
_SMALLEST_CHUNK = 32
"""Rows. Lower it and a prompt disturbs others less, but costs more: each chunk reads all weights."""


@define
class _Mean:
    """Moving means of the rows of batches and of each stage's seconds for them."""

    rows: float
    stage_s: tuple[float, ...]

    def learn(self, rows: int, stage_s: Sequence[float]) -> None:
        weight = _FASTER if sum(stage_s) < sum(self.stage_s) else _SLOWER
        self.rows += weight * (rows - self.rows)
        pairs = zip(self.stage_s, stage_s, strict=True)
        self.stage_s = tuple(old + weight * (min(new, 2 * old + 1e-3) - old) for old, new in pairs)


@define
class Pace:
    stages: int = 1
    _steps: _Mean | None = field(default=None, init=False)
    """Of batches in which every sequence has one row."""
    _chunks: _Mean | None = field(default=None, init=False)
    _hops_s: float = field(default=0.0, init=False)
    """What a batch's way takes beyond the stages' own work."""

    def learn(self, rows: int, is_chunk: bool, stage_s: Sequence[float], round_trip_s: float) -> None:
        """``stage_s``: seconds on each stage; ``round_trip_s``: from sending the batch to its result."""
        if len(stage_s) != self.stages:
            return
        mean = self._chunks if is_chunk else self._steps
        if mean is not None:
            mean.learn(rows, stage_s)
        elif is_chunk:
            self._chunks = _Mean(rows, tuple(stage_s))
        else:
            self._steps = _Mean(rows, tuple(stage_s))
        self._learn_hops(round_trip_s - sum(stage_s))

    @property
    def in_flight(self) -> int:
        """Batches that keep every stage busy, and one in reserve."""
        if self.stages == 1:
            return 1
        times = self._seconds(self._steps.rows if self._steps else 1.0)
        slowest = max(times)
        return (round((sum(times) + self._hops_s) / slowest) if slowest else self.stages) + 1

    def groups(self, sequences: int, *, least: int, most: int, now: int) -> int:
        """How many batches to divide so many sequences into, each of which wants its next token.

        ``least`` and ``most`` bound it; ``now`` is how many there are. The fewest win among those that are about as fast.
        """
        choices = range(min(least, sequences), max(least, min(most, sequences)) + 1)
        if self._steps is None or len(choices) < 2:
            return choices[0]
        times = {count: self._step_s(ceil(sequences / count), count) for count in choices}
        best = min(times.values())
        fewest = next(count for count in choices if times[count] * _WORTH_A_SPLIT <= best)
        if now in times and times[now] * _WORTH_A_SPLIT <= best and times[fewest] > times[now] * _NO_LOSS:
            return now
        return fewest

    def chunk_rows(self, prompt: int, *, most: int, per_stage: float, step_s: float | None) -> int:
        """Rows of the next chunk of a prompt that has so many tokens.

        ``per_stage``: chunks to make of the prompt for each stage of several; ``step_s``: what the chunk may take on the
        slowest stage, None if nobody waits for it.
        """
        rows = most
        if self.stages > 1:
            rows = min(rows, max(2 * _SMALLEST_CHUNK, ceil(prompt / (per_stage * self.stages))))
        if step_s is not None:
            rows = min(rows, self._rows_within(step_s))
        return min(most, max(rows, _SMALLEST_CHUNK))

    def _learn_hops(self, hops_s: float) -> None:
        """The shortest of late: a longer one has waited at a busy stage."""
        self._hops_s = max(0.0, min(hops_s, 1.02 * self._hops_s + 1e-4) if self._hops_s else hops_s)

    def _step_s(self, rows: int, count: int) -> float:
        """From one token of a sequence to its next, with ``count`` batches of so many rows on their way."""
        times = self._seconds(rows)
        return max(sum(times) + self._hops_s, count * max(times))

    def _rows_within(self, seconds: float) -> int:
        rows = [
            (seconds - self._batch_s(stage)) / row_s if row_s else float("inf")
            for stage, row_s in enumerate(self._row_s)
        ]
        fitting = min(rows, default=float("inf"))
        return max(0, int(min(fitting, 1e6)))

    def _seconds(self, rows: float) -> list[float]:
        """Of each stage for a batch of so many rows."""
        return [self._batch_s(stage) + rows * row_s for stage, row_s in enumerate(self._row_s)]

    def _batch_s(self, stage: int) -> float:
        base = self._steps or self._chunks
        return max(0.0, base.stage_s[stage] - base.rows * self._row_s[stage]) if base else 0.0

    @property
    def _row_s(self) -> list[float]:
        """Of each stage, what a row more costs: the slope between steps and chunks; 0 until both are known."""
        steps, chunks = self._steps, self._chunks
        if steps is None or chunks is None or chunks.rows <= steps.rows:
            return [0.0] * self.stages
        more = chunks.rows - steps.rows
        return [max(0.0, (b - a) / more) for a, b in zip(steps.stage_s, chunks.stage_s, strict=True)]
