"""What one step of the ring does. Every stage applies the same batch, so that their caches stay mirrors of each other.

The hidden states that travel beside a batch have shape (rows, hidden size): the rows of the entries one after another,
in the order of ``entries``. Entries of one row that follow one another are computed together, and so are
beginnings of prompts.
"""

from attrs import field, frozen

from p2pexo.engine.grammar import GrammarSpec
from p2pexo.generation.request import Sampling


@frozen
class Drawing:
    """How the tokens of a sequence are drawn, and what is told about them."""

    sampling: Sampling = field(factory=Sampling)
    choice: int = 0
    """Part of the sampling key."""
    grammar: GrammarSpec | None = None
    top_logprobs: int | None = None
    """None: no log probabilities. Else those of each token drawn, and of so many of the likeliest."""
    end_index: int | None = None
    """Output index at which the answer has its most tokens, so that none is drawn in vain; None: no limit is known."""


@frozen
class Fork:
    """What a sequence begins with, instead of computing it."""

    sequence: int
    """Another one that every stage holds, running or ended."""
    tokens: int
    """So many of its first ones; they are this sequence's, too."""


@frozen
class Entry:
    """One sequence's part in a batch: a chunk of its prompt, or its newest token."""

    sequence: int
    """Chosen by stage 0, unique within an epoch."""
    tokens: tuple[int, ...]
    """Token ids of the rows. The stages behind the first need only their number, the last one also the ids, for penalties."""
    position: int
    """Tokens of this sequence already in the KV cache; 0 makes a new cache."""
    sample_index: int | None = None
    """Output index of the token to draw after the last row; None while a prompt is only being prefilled."""
    drawing: Drawing | None = None
    """Sent along with the first chunk of a sequence; kept by the last stage until the sequence is released."""
    fork: Fork | None = None
    """With the first chunk alone, whose position is then the number of tokens taken over."""


@frozen
class Batch:
    number: int
    entries: tuple[Entry, ...]
    release: tuple[int, ...] = ()
    """Sequences whose caches are dropped before the entries are computed."""
    keep: tuple[int, ...] = ()
    """Sequences that have ended, whose caches are kept for others to begin with."""

    @property
    def rows(self) -> int:
        return sum(len(entry.tokens) for entry in self.entries)


@frozen
class Sampled:
    """One drawn token, sent by the last stage straight back to stage 0."""

    sequence: int
    token: int
    logprob: float | None = None
    """Natural logarithm of its probability as the model itself saw it: before penalties, biases, grammar, temperature and cuts."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens at its place and their logprobs, best first."""


@frozen
class SequenceFailure:
    """This sequence failed alone, on whichever stage; the others of its batch go on."""

    sequence: int
    message: str
    is_fork: bool = False
    """It could not begin with another's tokens; computed from its own beginning it may well go on."""


@frozen
class BatchResult:
    number: int
    sampled: tuple[Sampled, ...] = ()
    failures: tuple[SequenceFailure, ...] = ()
    stage_s: tuple[float, ...] = ()
    """Seconds that the batch took on each stage, from the first to the last."""
