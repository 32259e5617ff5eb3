"""The body of POST /v1/chat/completions, from what a program says. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from p2pexo.client.messages import Message, Picture, Tool, ToolCall


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
    logit_bias: Mapping[int, float]
    """By token id, what is added to its logit: from -100 to 100."""
    stop: str | Sequence[str]
    max_completion_tokens: int
    n: int
    """So many answers, told side by side: each event and each ``Choice`` has its number."""
    logprobs: bool
    """Tell how likely each token was."""
    top_logprobs: int
    """And as many of the likeliest ones at its place; needs ``logprobs``."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"]
    tools: Sequence[Tool]
    tool_choice: str
    """``auto``, ``none``, ``required``, or the name of the tool to call."""
    parallel_tool_calls: bool
    json_schema: Mapping[str, object]
    """The answer is JSON that fits this schema."""


def chat_body(model: str, messages: str | Sequence[Message], options: ChatOptions) -> dict[str, object]:
    """A string is what a user says."""
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
    content = message.content
    said = content if isinstance(content, str) else [_part(each) for each in content]
    body: dict[str, object] = {"role": message.role, "content": said}
    if message.tool_calls:
        body["tool_calls"] = [_call(each) for each in message.tool_calls]
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    return body


def _part(part: str | Picture) -> dict[str, object]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": part.url}}


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
