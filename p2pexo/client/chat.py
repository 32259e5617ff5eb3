"""What is said in a chat, both ways. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from attrs import field, frozen


@frozen
class ToolCall:
    id: str
    name: str
    arguments: str
    """JSON text."""


@frozen
class Message:
    """``tool_calls`` are an assistant's; a ``tool`` message answers the call of ``tool_call_id``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str = ""
    """What an assistant thought in that turn; some models want to see it again."""


@frozen
class Tool:
    """A function that the model may call. ``parameters`` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(factory=dict[str, object])


class ChatOptions(TypedDict, total=False):
    """How to answer. What is left out is as the node likes it, which is documented in docs/http.md."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    stop: str | Sequence[str]
    max_completion_tokens: int
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"]
    tools: Sequence[Tool]
    tool_choice: str
    """``auto``, ``none``, ``required``, or the name of the tool to call."""
    json_schema: Mapping[str, object]
    """The answer is JSON that fits this schema."""


@frozen
class Note:
    """What the node says while nothing of the answer is there yet, such as that the model is loading."""

    text: str


@frozen
class Reasoning:
    """What the model thinks before it speaks."""

    text: str


@frozen
class Text:
    text: str


@frozen
class ToolCallPart:
    """A piece of a call; the first one of each ``index`` carries ``id`` and ``name``."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@frozen
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0


@frozen
class Finished:
    """The last event of a complete answer."""

    reason: str
    """``stop``, ``length`` or ``tool_calls``."""
    usage: Usage


ChatEvent = Note | Reasoning | Text | ToolCallPart | Finished


@frozen
class Answer:
    """A whole answer."""

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage

    @property
    def message(self) -> Message:
        """To go on with: append it to the conversation."""
        return Message("assistant", self.text, self.tool_calls, reasoning=self.reasoning)


def chat_body(model: str, messages: str | Sequence[Message], options: ChatOptions) -> dict[str, object]:
    """The body of POST /v1/chat/completions. A string is what a user says."""
    said = (Message("user", messages),) if isinstance(messages, str) else messages
    body: dict[str, object] = {
        "model": model,
        "messages": [_message(each) for each in said],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    for name, value in options.items():
        body |= _TRANSLATIONS[name](value) if name in _TRANSLATIONS else {name: value}
    return body


def _message(message: Message) -> dict[str, object]:
    body: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        body["tool_calls"] = [_call(each) for each in message.tool_calls]
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    return body


def _call(call: ToolCall) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tools(tools: Sequence[Tool]) -> dict[str, object]:
    functions = ({"name": each.name, "description": each.description, "parameters": each.parameters} for each in tools)
    return {"tools": [{"type": "function", "function": function} for function in functions]}


def _tool_choice(choice: str) -> dict[str, object]:
    if choice in ("auto", "none", "required"):
        return {"tool_choice": choice}
    return {"tool_choice": {"type": "function", "function": {"name": choice}}}


def _json_schema(schema: Mapping[str, object]) -> dict[str, object]:
    form = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


_TRANSLATIONS: Mapping[str, Callable[[Any], dict[str, object]]] = {
    "tools": _tools,
    "tool_choice": _tool_choice,
    "json_schema": _json_schema,
}
"""Options that are written differently in the body."""
