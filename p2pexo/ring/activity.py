"""What a stage does with its time: how busy it is, how large its batches are, how its requests fare. Pure: no clock.

The engine thread notes what happens; whoever tells the node reads it, once for each stretch of time.
"""

from threading import Lock

from attrs import define, evolve, field, frozen

from p2pexo.engine.batch import Batch
from p2pexo.engine.speeds import two_digits
from p2pexo.generation.events import Finished

SMOOTHED_S = 5.0
"""Of how long a time the busy share and the batches tell, about. Raise it and they are steadier; lower it and they follow sooner."""


@frozen
class StageActivity:
    """Of the last seconds. All numbers but the share have two significant digits."""

    busy_share: float = 0.0
    """Of the time, that went into computing; 0 to 1."""
    batches_per_s: float = 0.0
    rows: float = 0.0
    """Tokens computed in one batch, on average; of the last batches, if there were none lately."""
    sequences: float = 0.0
    """Of how many requests they were, on average."""
    hop_s: float | None = None
    """From one stage to the next one, on average round the ring: what the fastest batch's way took beyond the stages' work. Told
    by stage 0 of a ring of several."""
    queue_s: float | None = None
    """How long the request that ended last waited before its prompt was begun. This and the next two are told by stage 0."""
    prefill_tokens_per_s: float | None = None
    """Of the last request that had to compute a prompt."""
    decode_tokens_per_s: float | None = None
    """Of the last request that got more than one token."""
    conversations: int | None = None
    """Whose caches the stage holds: of requests that run, and of ended ones that are kept for others."""
    cache_bytes: float | None = None
    """What they take."""
    requests: int | None = None
    """That run or wait. This and the next one are told by stage 0, once it has had one."""
    capacity: int | None = None
    """How many of them may run at a time."""


@define
class _Sums:
    busy_s: float = 0.0
    batches: int = 0
    rows: int = 0
    sequences: int = 0
    fastest_hops_s: float | None = None


@define
class ActivityMeter:
    """May be written by one thread and read by another."""

    _sums: _Sums = field(factory=_Sums, init=False)
    _shown: StageActivity = field(factory=StageActivity, init=False)
    _share: float = field(default=0.0, init=False)
    _batches_per_s: float = field(default=0.0, init=False)
    _read_at: float | None = field(default=None, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def computed(self, batch: Batch, seconds: float) -> None:
        """One that holds no rows only keeps the caches in order, and isn't counted among the batches."""
        with self._lock:
            self._sums.busy_s += seconds
            if batch.entries:
                self._sums.batches += 1
                self._sums.rows += batch.rows
                self._sums.sequences += len({entry.sequence for entry in batch.entries})

    def holds(self, conversations: int, cache_bytes: int) -> None:
        """After a batch."""
        with self._lock:
            self._shown = evolve(self._shown, conversations=conversations, cache_bytes=two_digits(cache_bytes))

    def has_taken(self, requests: int, capacity: int) -> None:
        """After one has come or gone."""
        with self._lock:
            self._shown = evolve(self._shown, requests=requests, capacity=capacity)

    def returned(self, stages: int, beyond_s: float) -> None:
        """A batch has been round the ring: ``beyond_s``, longer than its stages computed."""
        if stages > 1:
            hop_s = max(0.0, beyond_s) / stages
            with self._lock:
                fastest = self._sums.fastest_hops_s
                self._sums.fastest_hops_s = hop_s if fastest is None else min(fastest, hop_s)

    def ended(self, finished: Finished) -> None:
        speeds = {
            "prefill_tokens_per_s": finished.prefill_tokens_per_s,
            "decode_tokens_per_s": finished.decode_tokens_per_s,
        }
        told = {name: two_digits(speed) for name, speed in speeds.items() if speed is not None}
        with self._lock:
            self._shown = evolve(self._shown, queue_s=two_digits(finished.queue_s), **told)

    def read(self, now: float) -> StageActivity:
        """As it is now, and begin the next stretch of time. The first call only begins one."""
        with self._lock:
            sums, self._sums = self._sums, _Sums()
            since, self._read_at = self._read_at, now
            if since is not None and now > since:
                self._learn(sums, now - since)
            return self._shown

    def _learn(self, sums: _Sums, elapsed_s: float) -> None:
        weight = min(1.0, elapsed_s / SMOOTHED_S)
        self._share += weight * (min(1.0, sums.busy_s / elapsed_s) - self._share)
        self._batches_per_s += weight * (sums.batches / elapsed_s - self._batches_per_s)
        changes: dict[str, float] = {
            "busy_share": round(self._share, 2),
            "batches_per_s": two_digits(self._batches_per_s) if self._batches_per_s > 0.01 else 0.0,
        }
        if sums.batches:
            changes["rows"] = two_digits(sums.rows / sums.batches)
            changes["sequences"] = two_digits(sums.sequences / sums.batches)
        if sums.fastest_hops_s is not None:
            changes["hop_s"] = two_digits(sums.fastest_hops_s)
        self._shown = evolve(self._shown, **changes)
