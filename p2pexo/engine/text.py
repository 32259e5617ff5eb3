# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# tokenizers' stubs leave out parts of its Rust classes
"""The text side of a model: messages to prompt tokens, tokens to text, and where an answer ends.

Stands on ``tokenizers`` and Jinja alone; transformers would cost 2 s and 150 MB for what is used here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from tokenizers import Tokenizer

from p2pexo.engine.control_tokens import ControlTokens
from p2pexo.engine.template import ChatTemplate, read_template
from p2pexo.generation.request import Message, Role, ToolCall
from p2pexo.models.directory import ModelFilesError, context_length, read_json


class TextModel:
    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate, *, end_tokens: frozenset[int], context_length: int
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._controls = ControlTokens(tokenizer)
        self.end_tokens = end_tokens
        """Any of these ends an answer: whatever the tokenizer, the config or the generation config calls an end."""
        self.context_length = context_length
        """Tokens, prompt and answer together."""

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Raises ModelFilesError. A template that is missing or broken is an error of each request, not of loading."""
        config = read_json(directory / "config.json")
        tokenizer = _read_tokenizer(directory / "tokenizer.json")
        settings = _optional_json(directory / "tokenizer_config.json")
        marks = {name: _mark(settings.get(name)) for name in ("bos_token", "eos_token")}
        configs = (config, _optional_json(directory / "generation_config.json"))
        return cls(
            tokenizer,
            ChatTemplate(read_template(directory, settings), **marks),
            end_tokens=_end_tokens(tokenizer, marks["eos_token"], configs),
            context_length=context_length(config),
        )

    def prompt_tokens(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of the messages in the model's own chat format, up to where the answer begins.

        System messages, wherever they stand, are joined in order into one leading block. Control tokens that are typed
        inside a message are plain text. Raises InvalidRequestError if the template is missing, broken, or refuses.
        """
        guarded, guard = self._controls.guard([_as_template_sees_it(message) for message in _merged(messages)])
        return self._controls.encode(self._template.render(guarded), guard)

    def encode_plain(self, text: str) -> list[int]:
        """The tokens of a text in which control tokens are plain text."""
        (guarded,), guard = self._controls.guard([text])
        return self._controls.encode(guarded, guard)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without control tokens; bytes that are no character come out as U+FFFD."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)


def _merged(messages: Sequence[Message]) -> list[Message]:
    system = [message.content for message in messages if message.role is Role.SYSTEM]
    others = [message for message in messages if message.role is not Role.SYSTEM]
    leading = [Message(Role.SYSTEM, "\n\n".join(filter(None, system)))] if any(system) else []
    return leading + others


def _as_template_sees_it(message: Message) -> dict[str, Any]:
    seen: dict[str, Any] = {"role": str(message.role), "content": str(message.content)}
    if message.tool_calls:
        seen["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        seen["tool_call_id"] = message.tool_call_id
    return seen


def _call(call: ToolCall) -> dict[str, Any]:
    """Templates expect the arguments as an object; text that is no JSON is passed on as it is."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = str(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _read_tokenizer(file: Path) -> Tokenizer:
    if not file.exists():
        raise ModelFilesError(f"{file} is missing; models without a fast tokenizer are not supported")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ModelFilesError(f"{file} can't be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _optional_json(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}


def _mark(token: object) -> str:
    """A special token as the tokenizer's config writes it: a text, or an object with its content."""
    if isinstance(token, Mapping):
        return str(cast(Mapping[str, object], token).get("content", ""))
    return token if isinstance(token, str) else ""


def _end_tokens(tokenizer: Tokenizer, eos_token: str, configs: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Files disagree about the end of a turn, and each has been seen to be the only one that is right."""
    found = {tokenizer.token_to_id(eos_token)}
    for config in configs:
        ids = config.get("eos_token_id")
        found |= set(cast(list[int], ids) if isinstance(ids, list) else [ids])
    return frozenset(token for token in found if isinstance(token, int))
