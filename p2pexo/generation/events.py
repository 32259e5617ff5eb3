"""What a generation says while it runs, in this order::

    Waiting*  Started  Progress*  Delta*  (Finished | Failed)

``Failed`` may come at any point; after ``Finished`` or ``Failed`` nothing follows.
"""

from enum import StrEnum

from attrs import frozen

from p2pexo.generation.errors import ErrorReport


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@frozen
class Usage:
    prompt_tokens: int
    completion_tokens: int
    """Counts the end-of-turn token too when the model produced one, as OpenAI does."""
    cached_tokens: int = 0
    """Prompt tokens whose caches were there already."""
    reasoning_tokens: int = 0
    """Of ``completion_tokens``, those that were thought and not said."""


@frozen
class Waiting:
    """The request can't run yet; ``reason`` is a line a person can read."""

    reason: str


@frozen
class Started:
    prompt_tokens: int
    cached_tokens: int = 0
    """Of these, the ones whose caches are there already."""


@frozen
class Progress:
    """How far the prefill is, in tokens."""

    processed: int
    total: int


@frozen
class ToolCallDelta:
    """A piece of a tool call. The first piece of each call carries ``id`` and ``name``, and no later one does."""

    index: int
    """0 for the first call of an answer."""
    id: str = ""
    name: str = ""
    arguments: str = ""
    """The next piece of the JSON text."""


@frozen
class Likelihood:
    token: int
    text: str
    """The token alone; U+FFFD where it is a part of a character."""
    bytes: tuple[int, ...]
    """UTF-8 of the token, also where it is a part of a character."""
    logprob: float


@frozen
class TokenLogprobs:
    """How likely a token was, and the likeliest ones at its place, best first."""

    drawn: Likelihood
    top: tuple[Likelihood, ...] = ()


@frozen
class Delta:
    """New tokens. ``text`` may be empty while half a character or a possible stop string is held back."""

    index: int
    """Output index of the first of ``tokens``: 0 for the first token of the answer."""
    tokens: tuple[int, ...]
    text: str
    reasoning: str = ""
    """What the model thinks before it speaks; never part of ``text``."""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each of ``tokens``, if the request asked for them."""
    choice: int = 0


@frozen
class Finished:
    reason: FinishReason
    usage: Usage
    stop_text: str | None = None
    """The stop string that matched."""
    prefill_s: float = 0.0
    """From the beginning of its prompt to the first token."""
    decode_s: float = 0.0
    """From the first token to the last."""
    choice: int = 0
    queue_s: float = 0.0
    """From its arrival at stage 0 to the beginning of its prompt."""
    replayed_tokens: int = 0
    """Of the answer, those that an earlier attempt drew: this one has only read them."""

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """None if that can't be told: the times are from before there were any, or nothing had to be computed."""
        computed = self.usage.prompt_tokens - self.usage.cached_tokens + self.replayed_tokens
        return computed / self.prefill_s if computed > 0 and self.prefill_s > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Of the tokens behind the first one; None if there is none."""
        drawn = self.usage.completion_tokens - self.replayed_tokens - 1
        return drawn / self.decode_s if drawn > 0 and self.decode_s > 0 else None


@frozen
class Failed:
    error: ErrorReport


Event = Waiting | Started | Progress | Delta | Finished | Failed
