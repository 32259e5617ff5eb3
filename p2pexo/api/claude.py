"""Claude Messages, inwards: the body of a message, or of a count of its tokens, becomes a ``generation.Request``. Pure."""

from collections.abc import Callable, Mapping

from attrs import frozen

from p2pexo.api.claude_messages import read_messages
from p2pexo.api.claude_tools import read_output_format, read_tool_choice, read_tools
from p2pexo.api.fields import Fields, Range, as_text
from p2pexo.api.parameters import Parameters
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Request, Role, Sampling, Thinking
from p2pexo.models.card import Card

HONOURED = frozenset(
    {
        "model",
        "messages",
        "system",
        "max_tokens",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
    }
)

IGNORED = frozenset(
    {
        # For the provider's books, machines and caches.
        "metadata",
        "cache_control",
        "service_tier",
        "inference_geo",
        "speed",
        "diagnostics",
        # What is to be forgotten of a long conversation: here nothing is; it fits, or is refused.
        "context_management",
    }
)
"""Parameters that are legal and change nothing here."""

NOT_OFFERED: Mapping[str, Callable[[Fields], bool]] = {
    "mcp_servers": lambda body: body.get("mcp_servers") != [],
    "fallbacks": lambda body: body.get("fallbacks") != [],
}
"""Taken when there is nothing in them, as some clients send them."""

PARAMETERS = Parameters(HONOURED, IGNORED, NOT_OFFERED)

_TOKENS = Range(1, 2**31 - 1)
_EFFORTS = {
    "low": Thinking.LOW,
    "medium": Thinking.MEDIUM,
    "high": Thinking.HIGH,
    "xhigh": Thinking.HIGH,
    "max": Thinking.HIGH,
}
_BUDGETS = ((4096, Thinking.LOW), (16384, Thinking.MEDIUM))
"""Up to how many tokens of thought the efforts go; beyond the last it is high."""


@frozen
class ClaudeCall:
    """A message as asked for: the request, and how the client wants to hear the answer."""

    request: Request
    stream: bool
    show_thinking: bool = True


def read_message(body: Fields, resolve: Callable[[str], Card], request_id: str) -> ClaudeCall:
    """Read the body of POST /v1/messages. Raises InvalidRequestError naming the field, ModelNotFoundError."""
    max_tokens = body.integer("max_tokens", None, _TOKENS)
    if max_tokens is None:
        raise body.wrong("max_tokens", f"a whole number {_TOKENS}")
    call = _read(body, resolve, request_id, max_tokens)
    if call.request.messages[-1].role is Role.ASSISTANT:
        message = "messages: an answer can't go on from words of the assistant; end with a message of the user"
        raise InvalidRequestError(message, param="messages")
    return call


def read_count(body: Fields, resolve: Callable[[str], Card], request_id: str) -> Request:
    """Read the body of POST /v1/messages/count_tokens: the same message, of which nothing is answered."""
    return _read(body, resolve, request_id, max_tokens=0).request


def _read(body: Fields, resolve: Callable[[str], Card], request_id: str, max_tokens: int) -> ClaudeCall:
    PARAMETERS.check(body)
    card = resolve(body.text("model", ""))
    tools = read_tools(body)
    thinking = body.child("thinking") or Fields({"type": "disabled"}, "thinking")
    config = body.child("output_config") or Fields({}, "output_config")
    request = Request(
        id=request_id,
        messages=read_messages(body, sees=card.sees),
        sampling=_sampling(body),
        max_tokens=max_tokens,
        stop=_stop(body),
        tools=tools,
        tool_choice=read_tool_choice(body, tools),
        output_format=read_output_format(config),
        thinking=_thinking(thinking, _effort(config)),
        model=card.id,
    )
    show_thinking = thinking.choice("display", "summarized", ("summarized", "omitted")) == "summarized"
    return ClaudeCall(request, body.boolean("stream"), show_thinking)


def _sampling(body: Fields) -> Sampling:
    return Sampling(
        temperature=body.number("temperature", 1.0, Range(0, 1)),
        top_p=body.number("top_p", 1.0, Range(0, 1, low_open=True)),
        top_k=body.integer("top_k", 0, Range(0, 2**31 - 1)),
    )


def _stop(body: Fields) -> tuple[str, ...]:
    stops = body.items("stop_sequences", as_text)
    if "" in stops:
        raise body.wrong("stop_sequences", "strings that are not empty")
    return stops


def _effort(config: Fields) -> Thinking | None:
    name = config.text("effort", None)
    return None if name is None else _EFFORTS[config.choice("effort", "", _EFFORTS)]


def _thinking(thinking: Fields, effort: Thinking | None) -> Thinking | None:
    """Off unless asked for, as with Claude. ``adaptive`` leaves it to the effort, or else to the model."""
    match thinking.choice("type", "", ("enabled", "adaptive", "disabled")):
        case "disabled":
            return Thinking.OFF
        case "adaptive":
            return effort
        case _:
            return _within(_budget(thinking))


def _budget(thinking: Fields) -> int:
    budget = thinking.integer("budget_tokens", None, _TOKENS)
    if budget is None:
        raise thinking.wrong("budget_tokens", f"a whole number {_TOKENS}")
    return budget


def _within(budget: int) -> Thinking:
    return next((thinking for limit, thinking in _BUDGETS if budget <= limit), Thinking.HIGH)
