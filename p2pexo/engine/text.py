# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# tokenizers' stubs leave out parts of its Rust classes
"""The text side of a model: messages to prompt tokens, tokens to text, and where an answer ends.

Stands on ``tokenizers`` and Jinja alone; transformers would cost 2 s and 150 MB for what is used here.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from llguidance import LLTokenizer
from tokenizers import Tokenizer

from p2pexo.engine.control_tokens import ControlTokens
from p2pexo.engine.template import ChatTemplate, read_template
from p2pexo.engine.tokenizer_files import mark, read_end_tokens, read_settings, read_tokenizer
from p2pexo.generation.errors import ContextLengthError
from p2pexo.generation.request import Message, Role, ToolCall
from p2pexo.models.directory import context_length, read_json


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
        tokenizer = read_tokenizer(directory)
        settings = read_settings(directory)
        marks = {name: mark(settings.get(name)) for name in ("bos_token", "eos_token")}
        return cls(
            tokenizer,
            ChatTemplate(read_template(directory, settings), **marks),
            end_tokens=read_end_tokens(directory, tokenizer),
            context_length=context_length(config),
        )

    def prompt_tokens(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of the messages in the model's own chat format, up to where the answer begins.

        System messages, wherever they stand, are joined in order into one leading block. Control tokens that are typed
        inside a message are plain text. Raises InvalidRequestError if the template is missing, broken, or refuses, and
        ContextLengthError for messages that are longer by far than the context: to count their tokens would take seconds.
        """
        self._check_characters(messages)
        guarded, guard = self._controls.guard([_as_template_sees_it(message) for message in _merged(messages)])
        return self._controls.encode(self._template.render(guarded), guard)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without control tokens; bytes that are no character come out as U+FFFD."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    def token_bytes(self, token: int) -> bytes:
        """What one token stands for: UTF-8, or a part of a character's. A control token is its own name."""
        return self._vocabulary.decode_bytes([token])

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        """Made only when it is needed: it takes 0.3 s and 35 MB for 50,000 tokens."""
        return LLTokenizer(self._tokenizer.to_str(), eos_token=sorted(self.end_tokens) or 0, slices=[])

    def _check_characters(self, messages: Sequence[Message]) -> None:
        characters = sum(map(_characters, messages))
        if characters <= self.context_length:
            return  # most of all, so that the vocabulary need not be looked through
        least = characters // self._longest_token
        if least > self.context_length:
            raise ContextLengthError(
                f"the messages have {characters} characters, which are at least {least} tokens, but this model's context "
                f"holds {self.context_length}, prompt and answer together; shorten the messages",
                param="messages",
            )

    @cached_property
    def _longest_token(self) -> int:
        """Characters; bytes where the vocabulary is made of them, which are no fewer."""
        return max(map(len, self._tokenizer.get_vocab()))


def _characters(message: Message) -> int:
    return len(message.content) + sum(len(call.arguments) for call in message.tool_calls)


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
