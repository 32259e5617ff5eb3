"""OpenAI Responses, inwards: a request body becomes a ``generation.Request``. Pure.

What we don't offer is refused by name when it would change the answer. What can't change it is ignored: see IGNORED.
"""

from collections.abc import Callable, Mapping

from attrs import field, frozen
from attrs.converters import optional

from p2pexo.api.chat import EFFORTS
from p2pexo.api.fields import Fields, as_text
from p2pexo.api.parameters import Parameters
from p2pexo.api.pictures import Sight
from p2pexo.api.responses_input import input_items
from p2pexo.api.responses_items import read_input
from p2pexo.api.responses_output import Item
from p2pexo.api.responses_tools import TextSettings, Toolbox, read_text_settings, read_toolbox
from p2pexo.api.sampling import SAMPLING_FIELDS, TOKENS, TOP_LOGPROBS, read_sampling
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, Request, Role, Sampling
from p2pexo.generation.text import Prompt
from p2pexo.models.card import Card

HONOURED = SAMPLING_FIELDS | {
    "model",
    "input",
    "instructions",
    "previous_response_id",
    "store",
    "stream",
    "include",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "max_output_tokens",
    "top_logprobs",
    "metadata",
    "truncation",
}

IGNORED = frozenset(
    {
        # For the provider's books and caches.
        "user",
        "client_metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        # About obfuscation, which a stream from one's own machine has no use for.
        "stream_options",
        # Counts the calls of tools that the provider runs; functions are run by the client.
        "max_tool_calls",
    }
)
"""Parameters that are legal and change nothing here."""

NOT_OFFERED: Mapping[str, Callable[[Fields], bool]] = {
    "background": lambda body: body.boolean("background"),
}
"""Legal parameters whose mere default can be served: whether this body asks for more than that."""

PARAMETERS = Parameters(HONOURED, IGNORED, NOT_OFFERED)

LOGPROBS = "message.output_text.logprobs"

INCLUDABLE = frozenset(
    {
        LOGPROBS,
        "reasoning.encrypted_content",
        "message.input_image.image_url",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
    }
)
"""What ``include`` may name. All but the log probabilities belong to things that never occur here."""

MAX_METADATA = 16


@frozen
class Recalled:
    """What the store holds of that which a body refers to."""

    conversation: tuple[Message, ...] = ()
    """Inputs and outputs up to the previous response; its instructions are not among them."""
    items: Mapping[str, Fields] = field(factory=dict[str, Fields])
    """Output items of earlier responses, by id."""
    before: tuple[Item, ...] = field(default=(), repr=False)
    """All items up to the previous response, its output among them."""


@frozen
class Asked:
    """What a response repeats of the request. JSON values as the client wrote them, defaults filled in."""

    previous_response_id: str | None
    instructions: Prompt | None = field(converter=optional(Prompt))
    toolbox: Toolbox
    text: TextSettings
    sampling: Sampling
    max_output_tokens: int | None
    top_logprobs: int
    effort: str | None
    summary: str | None
    store: bool
    metadata: Mapping[str, object]
    safety_identifier: str | None
    prompt_cache_key: str | None


@frozen
class ResponsesCall:
    """A response as asked for: the request, and what its wire form and the store need beside it."""

    request: Request
    asked: Asked
    stream: bool
    input_items: tuple[Item, ...] = field(default=(), repr=False)
    """All that it answers, as clients read it back."""

    @property
    def conversation(self) -> tuple[Message, ...]:
        """All that was said so far, without the instructions."""
        return self.request.messages[len(_instructions(self.asked)) :]


def read_responses(
    body: Fields, resolve: Callable[[str], Card], response_id: str, recalled: Recalled | None = None
) -> ResponsesCall:
    """Read the body of POST /v1/responses.

    Raises InvalidRequestError (also UnsupportedParameterError) naming the field, ModelNotFoundError.
    """
    recalled = recalled or Recalled()
    PARAMETERS.check(body)
    asked = _asked(body)
    card = resolve(body.text("model", ""))
    said_before = _recalled_for(card, recalled)
    request = Request(
        id=response_id,
        messages=(*_instructions(asked), *said_before, *read_input(body, recalled.items, sees=card.sees)),
        sampling=asked.sampling,
        max_tokens=asked.max_output_tokens,
        tools=asked.toolbox.tools,
        tool_choice=asked.toolbox.choice,
        output_format=asked.text.format,
        top_logprobs=asked.top_logprobs if _wants_logprobs(body) else None,
        thinking=None if asked.effort is None else EFFORTS[asked.effort],
        model=card.id,
    )
    items = (*recalled.before, *input_items(body, recalled.items, response_id))
    return ResponsesCall(request, asked, body.boolean("stream"), items)


def _instructions(asked: Asked) -> tuple[Message, ...]:
    return () if asked.instructions is None else (Message(Role.SYSTEM, asked.instructions),)


def _recalled_for(card: Card, recalled: Recalled) -> tuple[Message, ...]:
    """Raises InvalidRequestError if the model can't see what an earlier one was shown."""
    if not card.sees and any(message.pictures for message in recalled.conversation):
        raise InvalidRequestError(
            f"previous_response_id: there are pictures in that conversation, and {Sight.BLIND.value}",
            param="previous_response_id",
        )
    return recalled.conversation


def _asked(body: Fields) -> Asked:
    # Never cut: a prompt that doesn't fit is refused with ``auto`` as well.
    body.choice("truncation", "disabled", ("disabled", "auto"))
    reasoning = body.child("reasoning") or Fields({}, "reasoning")
    return Asked(
        previous_response_id=body.text("previous_response_id", None),
        instructions=body.text("instructions", None),
        toolbox=read_toolbox(body),
        text=read_text_settings(body),
        sampling=read_sampling(body),
        max_output_tokens=body.integer("max_output_tokens", None, TOKENS),
        top_logprobs=body.integer("top_logprobs", 0, TOP_LOGPROBS),
        effort=None if reasoning.get("effort") is None else reasoning.choice("effort", "", EFFORTS),
        summary=reasoning.text("summary", None),
        store=body.boolean("store", True),
        metadata=_metadata(body),
        safety_identifier=body.text("safety_identifier", None),
        prompt_cache_key=body.text("prompt_cache_key", None),
    )


def _wants_logprobs(body: Fields) -> bool:
    include = body.items("include", as_text)
    unknown = next((each for each in include if each not in INCLUDABLE), None)
    if unknown is not None:
        raise InvalidRequestError(
            f"include: {unknown!r} is not known; known are {', '.join(sorted(INCLUDABLE))}", param="include"
        )
    return LOGPROBS in include or body.integer("top_logprobs", 0, TOP_LOGPROBS) > 0


def _metadata(body: Fields) -> Mapping[str, object]:
    metadata = body.child("metadata") or Fields({}, "metadata")
    if len(metadata.values) > MAX_METADATA:
        raise body.wrong("metadata", f"at most {MAX_METADATA} entries")
    for name in metadata.values:
        metadata.required_text(name)
    return metadata.values
