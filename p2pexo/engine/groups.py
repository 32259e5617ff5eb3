"""Sequences, and the groups in which those that have a token to draw travel together. Pure."""

from math import ceil

from attrs import define, field

from p2pexo.engine.batch import Drawing, Entry, Fork

CACHE_STEP = 256
"""Tokens by which mlx-lm's caches grow."""


@define(eq=False)
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
    """How many of ``tokens`` the caches hold, counting those of batches on their way."""
    may_fork: bool = True
    """Whether it may begin with what another sequence has computed."""
    in_flight: int = 0
    """Batches on their way that hold a part of it."""
    group: "Group | None" = field(default=None, repr=False)
    """None while its prompt is being computed."""

    @property
    def uncached(self) -> int:
        return len(self.tokens) - self.cached

    @property
    def room(self) -> int:
        """Tokens that its caches take by themselves."""
        return rounded(len(self.tokens))

    def next_entry(self, rows: int, fork: Fork | None = None) -> Entry:
        """What to compute next: as many uncached tokens as ``rows`` allows; drawing a token once none is left.

        ``fork``: where the cached tokens come from, if this is the first chunk.
        """
        position = self.cached
        chunk = tuple(self.tokens[position : position + rows])
        self.cached += len(chunk)
        self.in_flight += 1
        return Entry(
            sequence=self.id,
            tokens=chunk,
            position=position,
            sample_index=None if self.uncached else self.next_index,
            drawing=self.drawing if position == 0 or fork else None,
            fork=fork,
        )


@define(eq=False)
class Group:
    """Sequences that are computed together, a row each, one step after another."""

    sequences: list[Sequence] = field(factory=list[Sequence])
    is_in_flight: bool = False
    turn: int = 0
    """The number of its last batch."""

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def room(self) -> int:
        """Tokens that its caches take: all rows are as long as the longest one."""
        return len(self) * max((each.room for each in self.sequences), default=0)

    def room_with(self, newcomers: list[Sequence]) -> int:
        return Group([*self.sequences, *newcomers]).room

    def add(self, sequence: Sequence) -> None:
        self.sequences.append(sequence)
        sequence.group = self

    def remove(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)
        sequence.group = None

    def move(self, sequence: Sequence, other: "Group") -> None:
        self.remove(sequence)
        other.add(sequence)


def rounded(tokens: int) -> int:
    return ceil(tokens / CACHE_STEP) * CACHE_STEP
