# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# tokenizers' stubs leave out parts of its Rust classes
"""Keeps control tokens that somebody typed inside a message plain text, so that no text can forge a turn.

A chat template mixes the marks of the turns with the messages, and the tokenizer can't tell who wrote ``<|im_end|>``. So
before the template is rendered, every such literal inside the messages gets a **guard** behind its first character: a
character that none of the messages contains. A guarded literal no longer reads as a control token. Afterwards the prompt
is cut at the real control tokens; the pieces with a guard lose it and are encoded by a twin of the tokenizer that knows
no control tokens. A prompt without guards is encoded in one go, exactly as Hugging Face does it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar, cast

from tokenizers import Tokenizer

Tree = TypeVar("Tree")

_GUARDS = range(0xF0000, 0xFFFFE)
"""A private use plane: nobody's writing is in there."""


class ControlTokens:
    """The added tokens of a tokenizer: the marks of turns, of tools, of thoughts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        contents = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        longest_first = sorted(filter(_is_mark, contents), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def guard(self, messages: Sequence[Tree]) -> tuple[list[Tree], str]:
        """The messages (trees of dicts, lists and texts) with every literal guarded, and the guard."""
        whole = "".join(_texts(messages))
        guard = next(chr(code) for code in _GUARDS if chr(code) not in whole)
        return [self._guarded(message, guard) for message in messages], guard

    def encode(self, prompt: str, guard: str) -> list[int]:
        if guard not in prompt:
            return _encode(self._tokenizer, prompt)
        tokens: list[int] = []
        for piece in self._pieces(prompt, guard):
            tokens += _encode(self._plain if guard in piece else self._tokenizer, piece.replace(guard, ""))
        return tokens

    def _pieces(self, prompt: str, guard: str) -> Iterable[str]:
        """The prompt in pieces: those with a guard hold no real control token; all others are as long as can be."""
        pending = ""
        for piece in re.split(f"({self._pattern.pattern})", prompt):
            if guard in piece:
                yield from filter(None, (pending, piece))
                pending = ""
            else:
                pending += piece
        if pending:
            yield pending

    def _guarded(self, value: Tree, guard: str) -> Tree:
        guarded: object = value
        if isinstance(value, str):
            guarded = self._guarded_text(value, guard)
        elif isinstance(value, dict):
            items = cast(dict[str, object], value).items()
            guarded = type(value)({self._guarded(key, guard): self._guarded(each, guard) for key, each in items})
        elif isinstance(value, list):
            guarded = [self._guarded(each, guard) for each in value]
        return cast(Tree, guarded)

    def _guarded_text(self, text: str, guard: str) -> str:
        while self._pattern.search(text):  # breaking one literal can leave another that overlapped it
            text = self._pattern.sub(lambda match: match[0][0] + guard + match[0][1:], text)
        return text

    @cached_property
    def _plain(self) -> Tokenizer:
        """Made only when it is needed, as it doubles the tokenizer's memory."""
        description = json.loads(self._tokenizer.to_str())
        return Tokenizer.from_str(json.dumps({**description, "added_tokens": []}))


def _is_mark(text: str) -> bool:
    """Some tokenizers also add runs of spaces, or words; those can't forge anything."""
    return len(text) > 1 and not all(character.isalnum() or character.isspace() for character in text)


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts(each)
