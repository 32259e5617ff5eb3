"""The one request that all dialects are translated into and that the engine understands."""

from enum import StrEnum

from attrs import field, frozen

from p2pexo.generation.text import Picture, PictureHash, Prompt


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
class PicturePart:
    """A picture that stands in the content of a message."""

    media_type: str
    """Such as ``image/png``; what the bytes are, whatever they were said to be."""
    data: Picture = field(converter=Picture)
    hash: PictureHash = field(converter=PictureHash)
    """SHA-256 of the picture's bytes, in hexadecimal."""
    position: int = 0
    """How many characters of the content stand before it."""


@frozen
class Message:
    role: Role
    content: Prompt = field(converter=Prompt)
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: Prompt | None = None
    """What the model thought in that turn, where its template wants to see it again."""
    pictures: tuple[PicturePart, ...] = ()
    """In the order of their positions. Only for models that can see."""


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
class Tool:
    """A function that the model may call."""

    name: str
    description: str = ""
    parameters: str = "{}"
    """JSON schema of its arguments, as JSON text."""


class ToolMode(StrEnum):
    AUTO = "auto"
    """The model decides."""
    NONE = "none"
    """No call."""
    REQUIRED = "required"
    """At least one call, to any tool."""
    NAMED = "named"
    """A call to the tool that is named."""


@frozen
class ToolChoice:
    mode: ToolMode = ToolMode.AUTO
    name: str | None = None
    """With ``NAMED`` alone."""
    parallel: bool = True
    """Whether one answer may hold several calls."""


class FormatKind(StrEnum):
    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@frozen
class OutputFormat:
    """What the text of an answer must look like; enforced by a grammar where tokens are drawn."""

    kind: FormatKind = FormatKind.TEXT
    schema: str = ""
    """JSON schema as JSON text, with ``JSON_SCHEMA`` alone."""


class Thinking(StrEnum):
    """How much a reasoning model shall think before it answers; models that can't think ignore it."""

    OFF = "off"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@frozen
class Request:
    id: str
    model: str
    """The full id of a card, never an alias."""
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """None: up to the end of the context. 0: the prompt is counted, and nothing is computed."""
    stop: tuple[str, ...] = ()
    attempt: int = 0
    """Raised by the router when it replays the request; a higher attempt supersedes a lower one."""
    replayed_tokens: tuple[int, ...] = ()
    """Tokens of this answer that an earlier attempt has already produced."""
    choice: int = 0
    """Which of several answers to the same question this is; part of the sampling key."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    output_format: OutputFormat = OutputFormat()
    top_logprobs: int | None = None
    """None: no log probabilities. Else those of each token drawn, and of so many of the likeliest beside it."""
    thinking: Thinking | None = None
    """None: as the model's template likes."""
    raw_prompt: Prompt | None = None
    """Text to go on from, without a chat template; then ``messages`` is empty."""
    keep_alive_s: float | None = None
    """How long a model that requests brought about stays after this one; negative: until somebody deletes it. None: as it
    was said before."""
