# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# tokenizers' stubs leave out parts of its Rust classes
"""The text side of a model: messages to prompt tokens, tokens to text, and where an answer ends.

Stands on ``tokenizers`` and Jinja alone; transformers would cost 2 s and 150 MB for what is used here.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from llguidance import LLTokenizer
from tokenizers import Tokenizer

from p2pexo.engine.control_tokens import ControlTokens
from p2pexo.engine.conversation import conversation
from p2pexo.engine.grammar import GrammarSpec
from p2pexo.engine.parsers.chat_format import ChatFormat
from p2pexo.engine.parsers.parser import OutputParser
from p2pexo.engine.template import ChatTemplate, read_template
from p2pexo.engine.tokenizer_files import mark, read_end_tokens, read_settings, read_tokenizer
from p2pexo.generation.errors import ContextLengthError, InvalidRequestError
from p2pexo.generation.request import Request
from p2pexo.models.architectures import text_config
from p2pexo.models.directory import context_length, read_json

_PROMPT_END = 16
"""Tokens that hold the mark of a thought, if the prompt ends with one, and the blanks behind it."""


class TextModel:
    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        end_tokens: frozenset[int],
        context_length: int,
        tokens: int,
    ) -> None:
        """``tokens``: how many the model knows, which may be more than the tokenizer has names for."""
        self._tokenizer = tokenizer
        self._template = template
        self._controls = ControlTokens(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self._format = ChatFormat.of(template.source, {token.content: token.special for token in added.values()})
        self._ids = {token.content: id for id, token in added.items() if token.special}
        self._control_ids = frozenset(self._ids.values())
        self.end_tokens = end_tokens
        """Any of these ends an answer: whatever the tokenizer, the config or the generation config calls an end."""
        self._tokens = tokens
        self.context_length = context_length
        """Tokens, prompt and answer together."""

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Raises ModelFilesError. A template that is missing or broken is an error of each request, not of loading."""
        config = text_config(read_json(directory / "config.json"))
        tokenizer = read_tokenizer(directory)
        settings = read_settings(directory)
        marks = {name: mark(settings.get(name)) for name in ("bos_token", "eos_token")}
        return cls(
            tokenizer,
            ChatTemplate(read_template(directory, settings), **marks),
            end_tokens=read_end_tokens(directory, tokenizer),
            context_length=context_length(config),
            tokens=int(config.get("vocab_size") or tokenizer.get_vocab_size()),
        )

    def prompt_tokens(self, request: Request) -> list[int]:
        """The tokens of the messages and tools in the model's own chat format, up to where the answer begins.

        Control tokens that are typed inside a message or a tool are plain text; in a raw prompt, which has no chat
        format, they are what they are. Raises InvalidRequestError if the template is missing, broken, or refuses, and
        for pictures, which no family here takes; ContextLengthError for texts that are longer by far than the context:
        to count their tokens would take seconds. A bias of a token that the model does not have is an
        InvalidRequestError, too.
        """
        _check_pictures(request)
        self._check_characters(request)
        self._check_biases(request)
        if request.raw_prompt is not None:
            return self._raw_tokens(str(request.raw_prompt))
        talk = conversation(request, self._format.family)
        guarded, guard = self._controls.guard([*talk.messages, *talk.tools])
        messages, tools = guarded[: len(talk.messages)], guarded[len(talk.messages) :]
        return self._controls.encode(self._template.render(messages, tools, talk.options), guard)

    def parser(self, request: Request, prompt_tokens: Sequence[int]) -> OutputParser:
        """What reads the answer to this prompt."""
        end = self._tokenizer.decode(list(prompt_tokens[-_PROMPT_END:]), skip_special_tokens=False)
        return self._format.parser(request, end)

    def grammar(self, request: Request) -> GrammarSpec | None:
        """What binds the answer, if anything does. Raises InvalidRequestError."""
        return self._format.grammar(request, self._ids)

    def decode(self, tokens: Sequence[int], keep: frozenset[str] = frozenset()) -> str:
        """Text without control tokens but those to ``keep``; bytes that are no character come out as U+FFFD."""
        dropped = self._control_ids - {self._ids[token] for token in keep if token in self._ids}
        return self._tokenizer.decode([token for token in tokens if token not in dropped], skip_special_tokens=False)

    def token_bytes(self, token: int) -> bytes:
        """What one token stands for: UTF-8, or a part of a character's. A control token is its own name."""
        return self._vocabulary.decode_bytes([token])

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        """Made only when it is needed: it takes 0.3 s and 35 MB for 50,000 tokens."""
        return LLTokenizer(self._tokenizer.to_str(), eos_token=sorted(self.end_tokens) or 0, slices=[])

    def _raw_tokens(self, text: str) -> list[int]:
        begins_already = bool(self._template.bos_token) and text.startswith(self._template.bos_token)
        return list(self._tokenizer.encode(text, add_special_tokens=not begins_already).ids)

    def _check_characters(self, request: Request) -> None:
        characters = _characters(request)
        if characters <= self.context_length:
            return  # most of all, so that the vocabulary need not be looked through
        least = characters // self._longest_token
        if least > self.context_length:
            raise ContextLengthError(
                f"the messages have {characters} characters, which are at least {least} tokens, but this model's context "
                f"holds {self.context_length}, prompt and answer together; shorten the messages",
                param="messages",
            )

    def _check_biases(self, request: Request) -> None:
        beyond = [token for token, _ in request.sampling.logit_bias if token >= self._tokens]
        if beyond:
            message = f"this model has no token {beyond[0]}; its tokens are numbered from 0 to {self._tokens - 1}"
            raise InvalidRequestError(message, param="logit_bias")

    @cached_property
    def _longest_token(self) -> int:
        """Characters; bytes where the vocabulary is made of them, which are no fewer."""
        return max(map(len, self._tokenizer.get_vocab()))


def _check_pictures(request: Request) -> None:
    """Stands behind the HTTP face, which asks the model's card before it takes a picture."""
    if any(message.pictures for message in request.messages):
        raise InvalidRequestError("there are pictures in the messages, which this model can't see", param="messages")


def _characters(request: Request) -> int:
    said = sum(len(message.content) + len(message.reasoning or "") for message in request.messages)
    called = sum(len(call.arguments) for message in request.messages for call in message.tool_calls)
    tools = sum(len(tool.description) + len(tool.parameters) for tool in request.tools)
    return said + called + tools + len(request.raw_prompt or "")
