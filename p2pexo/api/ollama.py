"""Ollama's chat and generate, inwards: a body becomes a ``generation.Request``, or the wish to load or unload. Pure."""

from collections.abc import Callable, Mapping
from enum import Enum, auto

from attrs import frozen

from p2pexo.api.fields import Fields, Range
from p2pexo.api.ollama_messages import read_messages, read_pictures, read_tools
from p2pexo.api.ollama_options import read_format, read_keep_alive, read_options, read_thinking
from p2pexo.api.parameters import Parameters
from p2pexo.api.pictures import Sight
from p2pexo.generation.request import Message, Request, Role, Tool
from p2pexo.generation.text import Prompt
from p2pexo.models.card import Card

_HONOURED = frozenset(
    {"model", "format", "options", "stream", "keep_alive", "think", "logprobs", "top_logprobs", "images"}
)
HONOURED_IN_CHAT = _HONOURED | {"messages", "tools"}
HONOURED_IN_GENERATE = _HONOURED | {"prompt", "system", "raw"}

IGNORED = frozenset({"truncate", "shift"})
"""Whether a prompt that is too long is to be cut: here it never is, but refused."""

NOT_OFFERED: Mapping[str, Callable[[Fields], bool]] = {
    "suffix": lambda body: body.get("suffix") != "",
    "template": lambda body: body.get("template") != "",
    "context": lambda body: body.get("context") != [],
}
"""Taken when there is nothing in them."""

CHAT = Parameters(HONOURED_IN_CHAT, IGNORED, NOT_OFFERED)
GENERATE = Parameters(HONOURED_IN_GENERATE, IGNORED, NOT_OFFERED)

_TOP_LOGPROBS = Range(0, 20)


class Purpose(Enum):
    ANSWER = auto()
    LOAD = auto()
    UNLOAD = auto()


@frozen
class OllamaCall:
    """What is asked of a model. To load it, ``request`` is one that computes nothing."""

    request: Request
    purpose: Purpose
    stream: bool


Resolve = Callable[[str], Card]


def read_chat(body: Fields, resolve: Resolve, request_id: str) -> OllamaCall:
    """Read the body of POST /api/chat. Raises InvalidRequestError naming the field, ModelNotFoundError."""
    CHAT.check(body)
    card = resolve(body.text("model", ""))
    read_pictures(body, Sight.of(card.sees, may_stand_here=False))
    return _call(body, card, request_id, read_messages(body, sees=card.sees), tools=read_tools(body))


def read_generate(body: Fields, resolve: Resolve, request_id: str) -> OllamaCall:
    """Read the body of POST /api/generate. Raises InvalidRequestError naming the field, ModelNotFoundError."""
    GENERATE.check(body)
    card = resolve(body.text("model", ""))
    prompt, system, is_raw = body.text("prompt", ""), body.text("system", ""), body.boolean("raw")
    pictures = read_pictures(body, Sight.of(card.sees, may_stand_here=not is_raw))
    if is_raw and prompt:
        if system:
            raise body.wrong("system", "nothing, as a raw prompt is used as it is")
        return _call(body, card, request_id, (), raw_prompt=Prompt(prompt))
    turns = (Message(Role.SYSTEM, system),) if system else ()
    asked = (*turns, Message(Role.USER, prompt, pictures=pictures)) if prompt or pictures else ()
    return _call(body, card, request_id, asked)


def _call(
    body: Fields,
    card: Card,
    request_id: str,
    messages: tuple[Message, ...],
    *,
    tools: tuple[Tool, ...] = (),
    raw_prompt: Prompt | None = None,
) -> OllamaCall:
    keep_alive, top_logprobs = read_keep_alive(body), _top_logprobs(body)
    output_format, thinking = read_format(body), read_thinking(body)
    options = read_options(body, card.context_length)
    stream = body.boolean("stream", default=True)
    if not messages and raw_prompt is None:
        purpose = Purpose.UNLOAD if keep_alive == 0 else Purpose.LOAD
        return OllamaCall(_loading(request_id, card, keep_alive), purpose, stream)
    request = Request(
        id=request_id,
        model=card.id,
        messages=messages,
        sampling=options.sampling,
        max_tokens=options.max_tokens,
        stop=options.stop,
        tools=tools,
        output_format=output_format,
        top_logprobs=top_logprobs,
        thinking=thinking,
        raw_prompt=raw_prompt,
        keep_alive_s=keep_alive,
    )
    return OllamaCall(request, Purpose.ANSWER, stream)


def _loading(request_id: str, card: Card, keep_alive: float | None) -> Request:
    """Whatever is asked brings the model up; this asks for nothing else."""
    return Request(request_id, card.id, (Message(Role.USER, "load"),), max_tokens=0, keep_alive_s=keep_alive)


def _top_logprobs(body: Fields) -> int | None:
    top = body.integer("top_logprobs", None, _TOP_LOGPROBS)
    if body.boolean("logprobs"):
        return top or 0
    if top:
        raise body.wrong("top_logprobs", "nothing without logprobs: true")
    return None
