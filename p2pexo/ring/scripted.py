"""An engine without a model, for tests and for benches that emulate stages: what it computes is cheap, but as unforgiving.

Its layers are small recurrences over integers. A token depends on every token before it and on every layer, so a lost
cache, a swapped row or a layer too many changes the answer, while any cut into stages leaves it as it is. A token is a
byte of UTF-8. The folder holds a ``script.json`` with a ``Script`` in place of a model.

Where a test needs an answer that means something, such as a call of a tool, a ``Line`` of the script says it.
"""

import json
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Sampled, SequenceFailure
from p2pexo.engine.grammar import GrammarSpec
from p2pexo.engine.masks import allows
from p2pexo.engine.parsers.chat_format import ChatFormat
from p2pexo.engine.parsers.families import GENERIC, THINKS
from p2pexo.engine.parsers.parser import OutputParser
from p2pexo.generation.codec import decode, encode
from p2pexo.generation.content import parts
from p2pexo.generation.request import PicturePart, Request
from p2pexo.models.architectures import SEES_KEY
from p2pexo.ring.engines import EngineKit

_ALPHABET = "abcdefghijklmnopqrstuvwxyz "
_MULTIPLIER = 6_364_136_223_846_793_005
_FORMAT = ChatFormat(GENERIC, THINKS[0], frozenset())
"""Lines may hold thoughts, and calls in the Hermes form."""
END_TOKEN = 0
"""Ends a line, and is in no text."""


@frozen
class Line:
    """What is said to prompts that end with the ``cue``."""

    cue: str
    """The empty one fits every prompt."""
    text: str
    token_s: float = 0.0
    """What each token takes, slept through."""
    fails_after: int | None = None
    """So many tokens come, and then the engine fails at this request alone."""


@frozen
class Script:
    layers: int = 6
    hidden_size: int = 4
    """Of uint64: a row has eight times as many bytes."""
    context_length: int = 512
    sees: bool = False
    """Whether it takes pictures; it sees of them what ``sight_of`` says."""
    load_s: float = 0.0
    batch_s: float = 0.0
    """What one layer takes for a batch, slept through."""
    row_s: float = 0.0
    """What one layer takes for each row on top."""
    broken_layer: int | None = None
    """Loading this layer fails."""
    poisons: tuple[tuple[str, int], ...] = ()
    """(text, layer): a prompt that ends with the text fails on the stage that holds the layer."""
    hangs: tuple[tuple[str, int], ...] = ()
    """(text, layer): at a prompt that ends with the text, the stage that holds the layer computes for ever."""
    says: tuple[Line, ...] = ()
    """The first line whose cue fits, and that the request's grammar lets be said; else, letters without a meaning."""

    def write(self, directory: Path) -> None:
        """Make a folder that can be placed like a model, on nodes that run the scripted engine."""
        config = {
            "model_type": "llama",  # any that can be placed
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden_size,
            "num_attention_heads": 1,
            "max_position_embeddings": self.context_length,
            SEES_KEY: self.sees,
        }
        (directory / "script.json").write_bytes(encode(self))
        (directory / "config.json").write_text(json.dumps(config))
        (directory / "model.safetensors").write_bytes(_NO_TENSORS)


_NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
"""A whole safetensors file."""


def read_script(directory: Path) -> Script:
    return decode((directory / "script.json").read_bytes(), Script)


@define
class ScriptedStage:
    """Implements ``engines.StageEngine``."""

    script: Script
    first_layer: int
    end_layer: int
    wire_dtype: str = "uint64"
    _states: dict[int, list[list[int]]] = field(factory=dict[int, list[list[int]]], init=False)
    """By sequence: one number per layer before each token and behind the last one, standing for its cache."""
    _texts: dict[int, bytearray] = field(factory=dict[int, bytearray], init=False)
    """By sequence: every token so far."""
    _drawings: dict[int, Drawing] = field(factory=dict[int, Drawing], init=False)
    _lines: dict[int, Line | None] = field(factory=dict[int, Line | None], init=False)
    """By sequence: what is said, from the first token on."""

    @property
    def is_last(self) -> bool:
        return self.end_layer == self.script.layers

    @property
    def weight_bytes(self) -> int:
        return 1024 * self._depth

    @property
    def compute(self) -> str:
        return "scripted"

    @property
    def conversations(self) -> int:
        return len(self._states)

    @property
    def cache_bytes(self) -> int:
        return 8 * self._depth * sum(map(len, self._states.values()))

    @property
    def _depth(self) -> int:
        return self.end_layer - self.first_layer

    def run(self, batch: Batch, hidden: bytes | memoryview | None) -> memoryview | BatchResult:
        for sequence in batch.release:
            for kept in self._kept:
                kept.pop(sequence, None)
        rows = self._embed(batch) if hidden is None else self._unpack(batch, hidden)
        time.sleep(self._depth * (self.script.batch_s * bool(batch.entries) + self.script.row_s * batch.rows))
        results: list[Sampled | SequenceFailure] = []
        start = 0
        for entry in batch.entries:
            end = start + len(entry.tokens)
            rows[start:end] = self._advance(entry, rows[start:end])
            if self.is_last and entry.sample_index is not None:
                results.append(self._sample(entry.sequence, entry.sample_index, rows[end - 1]))
            start = end
        if self.is_last:
            return BatchResult(
                batch.number,
                tuple(each for each in results if isinstance(each, Sampled)),
                tuple(each for each in results if isinstance(each, SequenceFailure)),
            )
        return memoryview(np.repeat(np.array(rows, np.uint64), self.script.hidden_size).tobytes())

    def clear(self) -> None:
        for kept in self._kept:
            kept.clear()

    @property
    def _kept(self) -> tuple[dict[int, Any], ...]:
        return self._states, self._texts, self._drawings, self._lines

    def _embed(self, batch: Batch) -> list[int]:
        return [token + 1 for entry in batch.entries for token in entry.tokens]

    def _unpack(self, batch: Batch, hidden: bytes | memoryview) -> list[int]:
        rows = np.frombuffer(hidden, np.uint64).reshape(batch.rows, self.script.hidden_size)
        return [int(row) for row in rows[:, 0]]

    def _advance(self, entry: Entry, rows: list[int]) -> list[int]:
        if entry.fork is not None:
            self._states[entry.sequence] = self._states[entry.fork.sequence][: entry.fork.tokens + 1]
            self._texts[entry.sequence] = self._texts[entry.fork.sequence][: entry.fork.tokens]
        elif entry.position == 0:
            self._states[entry.sequence], self._texts[entry.sequence] = [[0] * self._depth], bytearray()
        if entry.position == 0 or entry.fork is not None:
            self._drawings[entry.sequence] = entry.drawing or Drawing()
        text = self._texts.get(entry.sequence)
        if text is None or len(text) != entry.position:
            raise ValueError(f"sequence {entry.sequence} is at {entry.position}, the cache is not")
        self._check_poison(entry)
        self._check_hang(entry)
        text += bytes(entry.tokens)
        states = self._states[entry.sequence]
        for row in range(len(rows)):
            after = list(states[-1])
            for index, state in enumerate(after):
                value = rows[row]
                after[index] = (state * _MULTIPLIER + value + self.first_layer + index) % 2**64
                rows[row] = after[index] ^ (value >> 7)
            states.append(after)
        return rows

    def _sample(self, sequence: int, index: int, row: int) -> Sampled | SequenceFailure:
        """The next token of the line that is said, or a letter that depends on all that was computed."""
        if sequence not in self._lines:
            text = self._texts[sequence]
            self._lines[sequence] = self._line(bytes(text[: len(text) - index]), self._drawings[sequence].grammar)
        line = self._lines[sequence]
        if line is None:
            return _certain(sequence, _draw(row), self._drawings[sequence])
        time.sleep(line.token_s)
        if index == line.fails_after:
            return SequenceFailure(sequence, f"the script says so, after {index} tokens")
        said = line.text.encode()
        return _certain(sequence, said[index] if index < len(said) else END_TOKEN, self._drawings[sequence])

    def _line(self, prompt: bytes, grammar: GrammarSpec | None) -> Line | None:
        fitting = (line for line in self.script.says if prompt.endswith(line.cue.encode()))
        return next((line for line in fitting if grammar is None or allows(grammar, line.text)), None)

    def _check_poison(self, entry: Entry) -> None:
        for text in self._met(self.script.poisons, entry):
            raise RuntimeError(f"poisoned by {text}")

    def _check_hang(self, entry: Entry) -> None:
        while self._met(self.script.hangs, entry):
            time.sleep(1)

    def _met(self, orders: Sequence[tuple[str, int]], entry: Entry) -> list[str]:
        """Those of (text, layer) that are for this stage and end the entry."""
        ends = ((text, tuple(tokens_of(text))) for text, layer in orders if self.first_layer <= layer < self.end_layer)
        return [text for text, tokens in ends if entry.tokens[-len(tokens) :] == tokens]


@frozen
class ScriptedText:
    """Implements ``engines.TextModel``: a token is a byte."""

    script: Script

    @property
    def context_length(self) -> int:
        return self.script.context_length

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset({END_TOKEN})

    def prompt_tokens(self, request: Request) -> list[int]:
        if request.raw_prompt is not None:
            return tokens_of(request.raw_prompt)
        pieces = (part for message in request.messages for part in parts(message))
        texts = (sight_of(part) if isinstance(part, PicturePart) else part for part in pieces)
        return [token for text in texts for token in tokens_of(text)]

    def parser(self, request: Request, prompt_tokens: Sequence[int]) -> OutputParser:
        return _FORMAT.parser(request)

    def grammar(self, request: Request) -> GrammarSpec | None:
        return _FORMAT.grammar(request, {})

    def decode(self, tokens: Sequence[int], keep: frozenset[str] = frozenset()) -> str:
        return bytes(token for token in tokens if token != END_TOKEN).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return b"<end>" if token == END_TOKEN else bytes([token])


def sight_of(picture: PicturePart) -> str:
    """What stands in a prompt for a picture: enough to tell it from any other."""
    return f"[{picture.media_type}, {len(b64decode(picture.data))} bytes, {picture.hash!s}]"


def tokens_of(text: str) -> list[int]:
    """Raises ValueError for a text that holds the end token."""
    if "\0" in text:
        raise ValueError("the script knows no NUL character")
    return list(text.encode())


def _draw(row: int) -> int:
    return ord(_ALPHABET[(row >> 32) % len(_ALPHABET)])


def _certain(sequence: int, token: int, drawing: Drawing) -> Sampled:
    """Nothing is drawn here, so all the probability is with this token."""
    if drawing.top_logprobs is None:
        return Sampled(sequence, token)
    return Sampled(sequence, token, 0.0, ((token, 0.0),) if drawing.top_logprobs else ())


def load_stage(
    directory: Path, *, first_layer: int, end_layer: int, precision: str, progress: Callable[[float], None]
) -> ScriptedStage:
    script = read_script(directory)
    for layer in range(first_layer, end_layer):
        if layer == script.broken_layer:
            raise OSError(f"layer {layer} can't be read from {directory}")
        time.sleep(script.load_s)
        progress((layer + 1 - first_layer) / (end_layer - first_layer))
    return ScriptedStage(script, first_layer, end_layer)


def load_text(directory: Path) -> ScriptedText:
    return ScriptedText(read_script(directory))


kit = EngineKit(load_stage, load_text)
