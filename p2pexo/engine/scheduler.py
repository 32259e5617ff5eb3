"""Decides what the next step of the ring computes. Pure: batches come out, results go in; no clock, no tensor, no socket.

A sequence is a list of tokens and a count of how many of them the KV caches hold. Whatever is not yet in the caches is
what there is to compute, so a long prompt, its chunks and a single new token are one and the same case.
"""

from collections import deque

from attrs import define, field, frozen

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Sampled, SequenceFailure
from p2pexo.generation.errors import OverloadedError


@frozen
class Limits:
    running: int = 1
    """Sequences computed at a time. Raise it for throughput, at the cost of KV memory and of each one's speed."""
    waiting: int = 64
    """Sequences that may queue. Raise it and clients wait longer; lower it and they are turned away sooner."""
    batches: int = 1
    """Batches on their way at a time. Raise it to keep several stages busy; no use beyond what the stages can hold."""
    rows: int = 256
    """Rows of one batch, so the chunk of a prefill. Raise it and prefill is faster, but cancelling and other sequences
    wait longer for a step to end."""


@define
class Sequence:
    """One answer in the making."""

    id: int
    tokens: list[int]
    """Prompt and everything drawn so far."""
    drawing: Drawing
    next_index: int
    """Output index of the next token to draw."""
    prompt_length: int
    cached: int = 0
    """How many of ``tokens`` the caches hold, counting those of a batch on its way."""
    in_flight: bool = False

    def next_entry(self, rows: int) -> Entry:
        """What to compute next: as many uncached tokens as ``rows`` allows; drawing a token once none is left."""
        chunk = tuple(self.tokens[self.cached : self.cached + rows])
        is_complete = self.cached + len(chunk) == len(self.tokens)
        return Entry(
            sequence=self.id,
            tokens=chunk,
            position=self.cached,
            sample_index=self.next_index if is_complete else None,
            drawing=self.drawing if self.cached == 0 else None,
        )


@frozen
class Advance:
    """A sequence has come a step further."""

    sequence: int
    processed: int
    """Prompt tokens in the caches now, of ``total``."""
    total: int
    drawn: Sampled | None = None
    """The token drawn in this step, if the prompt was complete."""


@define
class Scheduler:
    """First come, first served. Sequences that only need one row go before the chunks of prompts, which get the rows left."""

    limits: Limits = Limits()
    _waiting: deque[Sequence] = field(factory=deque[Sequence], init=False)
    _running: list[Sequence] = field(factory=list[Sequence], init=False)
    _in_flight: dict[int, Batch] = field(factory=dict[int, Batch], init=False)
    _releases: list[int] = field(factory=list[int], init=False)
    _next_sequence: int = field(default=1, init=False)
    _next_batch: int = field(default=1, init=False)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def ahead(self) -> int:
        """How many sequences a new one would wait for; 0 if it would run at once."""
        return max(0, len(self._running) + len(self._waiting) - self.limits.running + 1)

    def add(self, tokens: tuple[int, ...], drawing: Drawing, *, first_index: int = 0) -> int:
        """Queue a prompt (not empty, with the tokens of an earlier attempt, if any); its id. Raises OverloadedError."""
        if self.ahead > self.limits.waiting:
            raise OverloadedError(
                f"{self.limits.waiting} requests are waiting for this model already, which is the limit; try again later",
                retry_after_s=5,
            )
        sequence = Sequence(self._next_sequence, list(tokens), drawing, first_index, len(tokens))
        self._next_sequence += 1
        self._waiting.append(sequence)
        return sequence.id

    def remove(self, sequence_id: int) -> None:
        """The sequence has ended or is not wanted any more; its caches are released with the next batch."""
        for queue in (self._running, self._waiting):
            for sequence in [each for each in queue if each.id == sequence_id]:
                queue.remove(sequence)
                if sequence.cached:
                    self._releases.append(sequence.id)

    def clear(self) -> None:
        """Forget everything, as when all caches are gone."""
        self._running.clear()
        self._waiting.clear()
        self._in_flight.clear()
        self._releases.clear()

    def next_batch(self) -> Batch | None:
        """The batch to send now, or None until ``add``, ``remove`` or ``apply`` changes something.

        A batch that only releases caches doesn't count as one on its way, so it never waits for a step to end.
        """
        self._admit()
        entries = self._next_entries() if len(self._in_flight) < self.limits.batches else ()
        if not entries and not self._releases:
            return None
        batch = Batch(self._next_batch, entries, tuple(self._releases))
        self._next_batch += 1
        self._releases.clear()
        if entries:
            self._in_flight[batch.number] = batch
        return batch

    def apply(self, result: BatchResult) -> list[Advance | SequenceFailure]:
        """What the result of a batch means for each of its sequences that are still wanted."""
        batch = self._in_flight.pop(result.number, None)
        if batch is None:
            return []
        drawn = {each.sequence: each for each in result.sampled}
        failed = {each.sequence: each for each in result.failures}
        outcomes: list[Advance | SequenceFailure] = []
        for entry in batch.entries:
            sequence = self._find_running(entry.sequence)
            if sequence is None:
                continue
            sequence.in_flight = False
            if failure := failed.get(sequence.id):
                self.remove(sequence.id)
                outcomes.append(failure)
            else:
                outcomes.append(_advance(sequence, drawn.get(sequence.id)))
        return outcomes

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.limits.running:
            self._running.append(self._waiting.popleft())

    def _next_entries(self) -> tuple[Entry, ...]:
        idle = [each for each in self._running if not each.in_flight]
        idle.sort(key=lambda each: len(each.tokens) - each.cached > 1)
        entries: list[Entry] = []
        rows = self.limits.rows
        for sequence in idle:
            if rows == 0:
                break
            entry = sequence.next_entry(rows)
            sequence.cached += len(entry.tokens)
            sequence.in_flight = True
            rows -= len(entry.tokens)
            entries.append(entry)
        return tuple(entries)

    def _find_running(self, sequence_id: int) -> Sequence | None:
        return next((each for each in self._running if each.id == sequence_id), None)


def _advance(sequence: Sequence, drawn: Sampled | None) -> Advance:
    if drawn is not None:
        sequence.tokens.append(drawn.token)
        sequence.next_index += 1
    return Advance(sequence.id, min(sequence.cached, sequence.prompt_length), sequence.prompt_length, drawn)
