"""The one request that all dialects are translated into and that the engine understands."""

from enum import StrEnum

from attrs import field, frozen

from p2pexo.generation.text import Prompt


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@frozen
class ToolCall:
    """A call the model made in an earlier turn. ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: Prompt = field(converter=Prompt)


@frozen
class Message:
    role: Role
    content: Prompt = field(converter=Prompt)
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@frozen
class Sampling:
    """How a token is drawn from the logits. The defaults are those of the OpenAI API."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means all tokens."""
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    """None until the router draws one; the key of a token is a hash of (seed, choice, output index)."""


@frozen
class Request:
    id: str
    model: str
    """The full id of a card, never an alias."""
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """None: up to the end of the context."""
    stop: tuple[str, ...] = ()
    attempt: int = 0
    """Raised by the router when it replays the request; a higher attempt supersedes a lower one."""
    replayed_tokens: tuple[int, ...] = ()
    """Tokens of this answer that an earlier attempt has already produced."""
