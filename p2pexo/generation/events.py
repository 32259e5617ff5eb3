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


@frozen
class Usage:
    prompt_tokens: int
    completion_tokens: int
    """Counts the end-of-turn token too when the model produced one, as OpenAI does."""


@frozen
class Waiting:
    """The request can't run yet; ``reason`` is a line a person can read."""

    reason: str


@frozen
class Started:
    prompt_tokens: int


@frozen
class Progress:
    """How far the prefill is, in tokens."""

    processed: int
    total: int


@frozen
class Delta:
    """New tokens. ``text`` may be empty while half a character or a possible stop string is held back."""

    index: int
    """Output index of the first of ``tokens``: 0 for the first token of the answer."""
    tokens: tuple[int, ...]
    text: str


@frozen
class Finished:
    reason: FinishReason
    usage: Usage
    stop_text: str | None = None
    """The stop string that matched."""
    prefill_s: float = 0.0
    decode_s: float = 0.0


@frozen
class Failed:
    error: ErrorReport


Event = Waiting | Started | Progress | Delta | Finished | Failed
