"""OpenAI Chat Completions, inwards: a request body becomes a ``generation.Request``. Pure.

What we don't offer is refused by name when it would change the answer. What can't change it is ignored: see IGNORED.
"""

from collections.abc import Callable, Mapping

from attrs import frozen

from p2pexo.api.fields import Fields, Range, as_text, shown, wrong
from p2pexo.api.messages import read_messages
from p2pexo.generation.errors import UnsupportedParameterError
from p2pexo.generation.request import Request, Sampling
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
        # Hints that a model without the ability leaves unheard.
        "parallel_tool_calls",
        "reasoning_effort",
        "verbosity",
        "prediction",
    }
)
"""Parameters that are legal and change nothing here."""

HONOURED = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "stop",
    }
)

MAX_STOPS = 4
_TOKENS = Range(1, 2**31 - 1)
_SEEDS = Range(-(2**63), 2**63 - 1)
_PENALTIES = Range(-2, 2)
_BIASES = Range(-100, 100)


@frozen
class ChatCall:
    """A chat completion as asked for: the request, and how the client wants to hear the answer."""

    request: Request
    stream: bool
    include_usage: bool


def read_chat(body: Fields, resolve: Callable[[str], Card], request_id: str) -> ChatCall:
    """Read the body of POST /v1/chat/completions.

    Raises InvalidRequestError (also UnsupportedParameterError) naming the field, ModelNotFoundError.
    """
    _refuse_what_is_not_offered(body)
    options = body.child("stream_options") or Fields({}, "stream_options")
    request = Request(
        id=request_id,
        messages=read_messages(body),
        sampling=_sampling(body),
        max_tokens=_max_tokens(body),
        stop=_stop(body),
        model=resolve(body.text("model", "")).id,
    )
    return ChatCall(request, body.boolean("stream"), options.boolean("include_usage"))


def _sampling(body: Fields) -> Sampling:
    return Sampling(
        temperature=body.number("temperature", 1.0, Range(0, 2)),
        top_p=body.number("top_p", 1.0, Range(0, 1, low_open=True)),
        top_k=body.integer("top_k", 0, Range(0, 2**31 - 1)),
        min_p=body.number("min_p", 0.0, Range(0, 1)),
        frequency_penalty=body.number("frequency_penalty", 0.0, _PENALTIES),
        presence_penalty=body.number("presence_penalty", 0.0, _PENALTIES),
        repetition_penalty=body.number("repetition_penalty", 1.0, Range(0, 10, low_open=True)),
        logit_bias=_logit_bias(body),
        seed=body.integer("seed", None, _SEEDS),
    )


def _max_tokens(body: Fields) -> int | None:
    """``max_completion_tokens`` wins; both are checked."""
    older = body.integer("max_tokens", None, _TOKENS)
    return body.integer("max_completion_tokens", older, _TOKENS)


def _stop(body: Fields) -> tuple[str, ...]:
    value = body.get("stop")
    stops = (value,) if isinstance(value, str) else body.items("stop", as_text)
    if len(stops) > MAX_STOPS:
        raise body.wrong("stop", f"at most {MAX_STOPS} strings")
    if "" in stops:
        raise body.wrong("stop", "strings that are not empty")
    return stops


def _logit_bias(body: Fields) -> tuple[tuple[int, float], ...]:
    biases = body.child("logit_bias") or Fields({}, "logit_bias")
    for name in biases.values:
        if not (name.isascii() and name.isdigit()):
            raise wrong("logit_bias", "token ids as keys", name)
    return tuple((int(name), biases.number(name, 0.0, _BIASES)) for name in biases.present())


def _asks_for_tools(body: Fields) -> bool:
    return body.get("tool_choice") != "none" and body.items("tools", _any) != ()


def _asks_for_a_format(body: Fields) -> bool:
    form = body.child("response_format")
    return form is not None and form.get("type") != "text"


def _any(value: object, path: str) -> object:
    return value


NOT_OFFERED: Mapping[str, Callable[[Fields], bool]] = {
    "tools": _asks_for_tools,
    "tool_choice": lambda body: body.get("tool_choice") not in ("none", "auto"),
    "functions": lambda body: body.items("functions", _any) != (),
    "function_call": lambda body: body.get("function_call") not in ("none", "auto"),
    "response_format": _asks_for_a_format,
    "n": lambda body: body.integer("n", 1, Range(1, 128)) != 1,
    "logprobs": lambda body: body.boolean("logprobs"),
    "top_logprobs": lambda body: body.integer("top_logprobs", 0, Range(0, 20)) != 0,
    "modalities": lambda body: body.items("modalities", as_text) not in ((), ("text",)),
}
"""Legal parameters whose mere default can be served: whether this body asks for more than that."""


def _refuse_what_is_not_offered(body: Fields) -> None:
    for name in body.present():
        if name in HONOURED or name in IGNORED:
            continue
        if name not in NOT_OFFERED or NOT_OFFERED[name](body):
            value = shown(body.get(name))
            raise UnsupportedParameterError(f"{name}: {value} is not supported here; leave it out", param=name)
