"""Decides what the next step of the ring computes. Pure: batches come out, results go in; no clock, no tensor, no socket.

A sequence is a list of tokens and a count of how many of them the KV caches hold. Whatever is not yet in the caches is
what there is to compute, so a long prompt, its chunks and a single new token are one and the same case; and a sequence
whose caches had to be given up is simply one of which nothing is cached.
"""

from collections import deque

from attrs import define, field, frozen

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Fork, Sampled, SequenceFailure
from p2pexo.engine.grouping import Grouping
from p2pexo.engine.groups import CACHE_STEP, Group, Sequence
from p2pexo.engine.limits import Limits
from p2pexo.engine.pacing import Pace
from p2pexo.engine.prefixes import Prefixes
from p2pexo.generation.errors import OverloadedError


@frozen
class Advance:
    """A sequence has come a step further."""

    sequence: int
    processed: int
    """Prompt tokens in the caches now, of ``total``."""
    total: int
    drawn: Sampled | None = None
    """The token drawn in this step, if the prompt was complete."""


@frozen
class _Sent:
    batch: Batch
    group: Group | None
    """None if it is a chunk of a prompt."""


@define
class Scheduler:
    """First come, first served, until there is no memory for more. Groups of answering sequences and the prompts, one
    chunk of one prompt at a time, take turns.

    When what runs outgrows the memory, the newest sequence gives up its caches and waits; its tokens are computed again.
    The caches of sequences that have ended are kept as long as nobody needs their memory: a prompt that begins with the
    same tokens begins with a fork of them.
    """

    limits: Limits = field(factory=Limits)
    pace: Pace = field(factory=Pace)
    _waiting: deque[Sequence] = field(factory=deque[Sequence], init=False)
    _running: dict[int, Sequence] = field(factory=dict[int, Sequence], init=False)
    _prompts: deque[Sequence] = field(factory=deque[Sequence], init=False)
    """Of the running ones, those with a chunk to send; the next one first."""
    _prompts_turn: int = field(default=0, init=False)
    _prefixes: Prefixes = field(factory=Prefixes, init=False)
    _groups: Grouping = field(init=False)
    _in_flight: dict[int, _Sent] = field(factory=dict[int, _Sent], init=False)
    _releases: list[int] = field(factory=list[int], init=False)
    _keeps: list[int] = field(factory=list[int], init=False)
    _next_sequence: int = field(default=1, init=False)
    _next_batch: int = field(default=1, init=False)

    def __attrs_post_init__(self) -> None:
        self._groups = Grouping(self.pace, self.limits.together, self._has_room)

    def add(self, tokens: tuple[int, ...], drawing: Drawing, *, first_index: int = 0) -> int:
        """Queue a prompt (not empty, with the tokens of an earlier attempt, if any); its id. Raises OverloadedError."""
        self._admit()
        if len(self._waiting) >= self.limits.waiting:
            raise OverloadedError(
                f"{self.limits.waiting} requests are waiting for this model already, which is the limit; try again later",
                retry_after_s=5,
            )
        sequence = Sequence(self._next_sequence, list(tokens), drawing, first_index, len(tokens))
        self._next_sequence += 1
        self._waiting.append(sequence)
        self._admit()
        return sequence.id

    def ahead_of(self, sequence_id: int) -> int:
        """How many sequences it waits for; 0 if it runs."""
        ids = [each.id for each in self._waiting]
        return len(self._running) + ids.index(sequence_id) if sequence_id in ids else 0

    def remove(self, sequence_id: int) -> None:
        """The sequence has ended or is not wanted any more; its caches are kept, or released with the next batch."""
        if sequence := self._running.get(sequence_id):
            self._stop(sequence, keep=not sequence.in_flight)
        for sequence in [each for each in self._waiting if each.id == sequence_id]:
            self._waiting.remove(sequence)

    def clear(self) -> None:
        """Forget everything, as when all caches are gone."""
        for each in (self._waiting, self._running, self._prompts, self._groups, self._in_flight, self._prefixes):
            each.clear()
        self._releases.clear()
        self._keeps.clear()

    def next_batch(self) -> Batch | None:
        """The batch to send now, or None until ``add``, ``remove`` or ``apply`` changes something.

        A batch without entries doesn't count as one on its way, so releases never wait for a step to end.
        """
        self._admit()
        self._drop_prefixes()
        group, entries = self._next_entries() if len(self._in_flight) < self._most_batches else (None, ())
        if not (entries or self._releases or self._keeps):
            return None
        batch = Batch(self._next_batch, entries, tuple(self._releases), tuple(self._keeps))
        self._next_batch += 1
        self._releases.clear()
        self._keeps.clear()
        if entries:
            self._in_flight[batch.number] = _Sent(batch, group)
        return batch

    def apply(self, result: BatchResult, round_trip_s: float = 0.0) -> list[Advance | SequenceFailure]:
        """What the result of a batch means for each of its sequences that are still wanted.

        ``round_trip_s``: seconds since the batch was sent.
        """
        sent = self._in_flight.pop(result.number, None)
        if sent is None:
            return []
        if sent.group is not None:
            sent.group.is_in_flight = False
        if result.stage_s and not result.failures:
            self.pace.learn(sent.batch.rows, sent.group is None, result.stage_s, round_trip_s)
        drawn = {each.sequence: each for each in result.sampled}
        failed = {each.sequence: each for each in result.failures}
        outcomes: list[Advance | SequenceFailure] = []
        for entry in sent.batch.entries:
            sequence = self._running.get(entry.sequence)
            if sequence is None:
                continue
            sequence.in_flight -= 1
            failure = failed.get(sequence.id)
            if failure and failure.is_fork and entry.fork:
                self._begin_again(sequence, entry.fork)
            elif failure:
                self._stop(sequence)
                outcomes.append(failure)
            else:
                outcomes.append(self._advance(sequence, entry, drawn.get(sequence.id)))
        return outcomes

    def _advance(self, sequence: Sequence, entry: Entry, drawn: Sampled | None) -> Advance:
        processed = min(entry.position + len(entry.tokens), sequence.prompt_length)
        if entry.fork and sequence.uncached:
            self._prompts.append(sequence)
        if drawn is not None:
            sequence.tokens.append(drawn.token)
            sequence.next_index += 1
            if sequence.group is None:
                self._prefixes.add(sequence.id, sequence.tokens[: sequence.cached])
                self._groups.join(sequence)
        return Advance(sequence.id, processed, sequence.prompt_length, drawn)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.limits.running:
            sequence = self._waiting[0]
            if self._running and not self._has_room(sequence.room + CACHE_STEP):  # the others grow, too
                return
            self._waiting.popleft()
            self._running[sequence.id] = sequence
            self._prompts.append(sequence)

    def _next_entries(self) -> tuple[Group | None, tuple[Entry, ...]]:
        """A step of the group, or a chunk of a prompt, whichever has waited longest."""
        self._groups.level(self._most_batches)
        ready = self._groups.at_home
        if self._prompts and not (ready and ready[0].turn < self._prompts_turn):
            return None, self._next_chunks()
        for group in ready:
            if self._make_room(group):
                group.is_in_flight, group.turn = True, self._next_batch
                return group, tuple(each.next_entry(1) for each in group.sequences)
        return None, ()

    def _next_chunks(self) -> tuple[Entry, ...]:
        """A chunk of the next prompt. In a ring of one, where prompts can't follow one another through the stages, a short
        prompt takes those behind it along that are about as long, as far as they are whole and new."""
        self._prompts_turn = self._next_batch
        sequence = self._prompts.popleft()
        rows = self._chunk_rows(sequence)
        entries = [self._chunk(sequence, rows)]
        rows -= len(entries[0].tokens)
        is_whole = entries[0].position == 0 and not sequence.uncached
        while is_whole and self.pace.stages == 1 and self._prompts and self._is_alike(self._prompts[0], sequence, rows):
            entries.append(self._prompts.popleft().next_entry(rows))
            rows -= len(entries[-1].tokens)
        return tuple(entries)

    def _is_alike(self, sequence: Sequence, other: Sequence, rows: int) -> bool:
        length, like = len(sequence.tokens), len(other.tokens)
        is_new = not sequence.cached and (not sequence.may_fork or self._prefixes.find(sequence.tokens) is None)
        return is_new and length <= rows and like <= 2 * length and length <= 2 * like

    def _chunk_rows(self, sequence: Sequence) -> int:
        limits = self.limits
        step_s = limits.step_s if self._groups else None
        return self.pace.chunk_rows(
            len(sequence.tokens), most=limits.rows, per_stage=limits.chunks_per_stage, step_s=step_s
        )

    def _chunk(self, sequence: Sequence, rows: int) -> Entry:
        fork = self._prefixes.find(sequence.tokens) if not sequence.cached and sequence.may_fork else None
        if fork:
            sequence.cached = fork.tokens
        entry = sequence.next_entry(rows, fork)
        if sequence.uncached and fork is None:  # the chunks behind a fork wait until it has worked
            self._prompts.append(sequence)
        return entry

    def _begin_again(self, sequence: Sequence, fork: Fork) -> None:
        """A stage could not fork, as one with a sliding window can't go far back: compute all of it."""
        if self._prefixes.drop(fork.sequence):
            self._releases.append(fork.sequence)
        self._releases.append(sequence.id)
        sequence.cached, sequence.may_fork = 0, False
        self._prompts.appendleft(sequence)

    def _drop_prefixes(self) -> None:
        """Keep within the budget, and leave the memory to those that run."""
        while (room := self._prefixes.room) > self.limits.kept_tokens or (room and not self._has_room(room)):
            self._releases.append(self._prefixes.drop_oldest())

    def _make_room(self, group: Group) -> bool:
        """Whether the group can take a step, perhaps a smaller one, because newer sequences gave up their caches."""
        while not self._has_room(0) and len(self._running) > 1:
            at_home = [each for each in self._running.values() if not each.in_flight]
            if not at_home:
                break
            newest = max(at_home, key=lambda each: each.id)
            self._stop(newest)
            newest.cached = 0
            self._waiting.appendleft(newest)
        return bool(group.sequences)

    def _stop(self, sequence: Sequence, *, keep: bool = False) -> None:
        del self._running[sequence.id]
        if sequence in self._prompts:
            self._prompts.remove(sequence)
        if sequence.group is not None:
            sequence.group.remove(sequence)
        if sequence.cached and keep:
            needless = self._prefixes.keep(sequence.id, sequence.tokens[: sequence.cached])
            self._releases += needless
            self._keeps += [sequence.id] if sequence.id not in needless else []
        elif sequence.cached:
            self._prefixes.drop(sequence.id)
            self._releases.append(sequence.id)

    def _has_room(self, more: int) -> bool:
        limit = self.limits.cache_tokens
        return limit is None or self._taken + more <= limit

    @property
    def _taken(self) -> int:
        alone = sum(each.room for each in self._running.values() if each.group is None)
        return alone + self._groups.room

    @property
    def _most_batches(self) -> int:
        return self.pace.in_flight if self.limits.batches is None else self.limits.batches
