"""OpenAI Chat Completions, inwards: a request body becomes a ``generation.Request``. Pure.

What we don't offer is refused by name when it would change the answer. What can't change it is ignored: see IGNORED.
"""

from collections.abc import Callable

from attrs import evolve, frozen

from p2pexo.api.chat_tools import read_format, read_toolbox
from p2pexo.api.fields import Fields, as_text
from p2pexo.api.messages import read_messages
from p2pexo.api.parameters import Parameters
from p2pexo.api.sampling import SAMPLING_FIELDS, TOKENS, TOP_LOGPROBS, read_choices, read_sampling, read_stop
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Request, Thinking
from p2pexo.models.card import Card

IGNORED = frozenset(
    {
        # For the provider's books and caches.
        "user",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "safety_identifier",
        "cache_prompt",
        "keep_alive",
        # Hints that change the speed or the style, never what is right.
        "verbosity",
        "prediction",
    }
)
"""Parameters that are legal and change nothing here."""

HONOURED = SAMPLING_FIELDS | {
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "n",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
}

NOT_OFFERED: dict[str, Callable[[Fields], bool]] = {
    "functions": lambda body: body.items("functions", lambda value, _: value) != (),
    "function_call": lambda body: body.get("function_call") not in ("none", "auto"),
    "modalities": lambda body: body.items("modalities", as_text) not in ((), ("text",)),
}
"""Legal parameters whose mere default can be served: whether this body asks for more than that."""

PARAMETERS = Parameters(HONOURED, IGNORED, NOT_OFFERED)

EFFORTS = {
    "none": Thinking.OFF,
    "minimal": Thinking.LOW,
    "low": Thinking.LOW,
    "medium": Thinking.MEDIUM,
    "high": Thinking.HIGH,
    "xhigh": Thinking.HIGH,
    "max": Thinking.HIGH,
}


@frozen
class ChatCall:
    """A chat completion as asked for: the request, and how the client wants to hear the answer."""

    request: Request
    stream: bool
    include_usage: bool
    choices: int = 1
    """How many answers are wanted."""

    @property
    def requests(self) -> tuple[Request, ...]:
        return choices_of(self.request, self.choices)


def choices_of(request: Request, count: int) -> tuple[Request, ...]:
    """The request once for each of its answers; each but the first has an id of its own, since they run side by side."""
    others = (evolve(request, id=f"{request.id}-{choice}", choice=choice) for choice in range(1, count))
    return (request, *others)


def read_chat(body: Fields, resolve: Callable[[str], Card], request_id: str) -> ChatCall:
    """Read the body of POST /v1/chat/completions.

    Raises InvalidRequestError (also UnsupportedParameterError) naming the field, ModelNotFoundError.
    """
    PARAMETERS.check(body)
    card = resolve(body.text("model", ""))
    options = body.child("stream_options") or Fields({}, "stream_options")
    toolbox = read_toolbox(body)
    request = Request(
        id=request_id,
        messages=read_messages(body, sees=card.sees),
        sampling=read_sampling(body),
        max_tokens=_max_tokens(body),
        stop=read_stop(body),
        tools=toolbox.tools,
        tool_choice=toolbox.choice,
        output_format=read_format(body),
        top_logprobs=_top_logprobs(body),
        thinking=_thinking(body),
        model=card.id,
    )
    return ChatCall(request, body.boolean("stream"), options.boolean("include_usage"), read_choices(body))


def _max_tokens(body: Fields) -> int | None:
    """``max_completion_tokens`` wins; both are checked."""
    older = body.integer("max_tokens", None, TOKENS)
    return body.integer("max_completion_tokens", older, TOKENS)


def _top_logprobs(body: Fields) -> int | None:
    wanted = body.boolean("logprobs")
    top = body.integer("top_logprobs", 0, TOP_LOGPROBS)
    if top and not wanted:
        raise InvalidRequestError("top_logprobs: only with 'logprobs': true", param="top_logprobs")
    return top if wanted else None


def _thinking(body: Fields) -> Thinking | None:
    effort = body.get("reasoning_effort")
    return None if effort is None else EFFORTS[body.choice("reasoning_effort", "", EFFORTS)]
