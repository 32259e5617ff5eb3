"""An engine without a model, for tests and for benches that emulate stages: what it computes is cheap, but as unforgiving.

Its layers are small recurrences over integers. A token depends on every token before it and on every layer, so a lost
cache, a swapped row or a layer too many changes the answer, while any cut into stages leaves it as it is. The folder
holds a ``script.json`` with a ``Script`` in place of a model.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from attrs import define, field, frozen

from p2pexo.engine.batch import Batch, BatchResult, Entry, Sampled
from p2pexo.generation.codec import decode, encode
from p2pexo.generation.request import Message
from p2pexo.ring.engines import EngineKit

_ALPHABET = "abcdefghijklmnopqrstuvwxyz "
_MULTIPLIER = 6_364_136_223_846_793_005


@frozen
class Script:
    layers: int = 6
    hidden_size: int = 4
    """Of uint64: a row has eight times as many bytes."""
    context_length: int = 512
    end_token: int | None = None
    load_s: float = 0.0
    batch_s: float = 0.0
    """What one layer takes for a batch, slept through."""
    row_s: float = 0.0
    """What one layer takes for each row on top."""
    broken_layer: int | None = None
    """Loading this layer fails."""
    poisons: tuple[tuple[str, int], ...] = ()
    """(text, layer): a prompt that ends with the text fails on the stage that holds the layer."""

    def write(self, directory: Path) -> None:
        (directory / "script.json").write_bytes(encode(self))


def read_script(directory: Path) -> Script:
    return decode((directory / "script.json").read_bytes(), Script)


@define
class ScriptedStage:
    """Implements ``engines.StageEngine``."""

    script: Script
    first_layer: int
    end_layer: int
    wire_dtype: str = "uint64"
    _states: dict[int, list[int]] = field(factory=dict[int, list[int]], init=False)
    """By sequence: one number per layer, standing for its cache."""
    _positions: dict[int, int] = field(factory=dict[int, int], init=False)

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
    def _depth(self) -> int:
        return self.end_layer - self.first_layer

    def run(self, batch: Batch, hidden: bytes | memoryview | None) -> memoryview | BatchResult:
        for sequence in batch.release:
            self._states.pop(sequence, None)
            self._positions.pop(sequence, None)
        rows = self._embed(batch) if hidden is None else self._unpack(batch, hidden)
        time.sleep(self._depth * (self.script.batch_s * bool(batch.entries) + self.script.row_s * batch.rows))
        sampled: list[Sampled] = []
        start = 0
        for entry in batch.entries:
            end = start + len(entry.tokens)
            rows[start:end] = self._advance(entry, rows[start:end])
            if self.is_last and entry.sample_index is not None:
                sampled.append(Sampled(entry.sequence, _draw(rows[end - 1])))
            start = end
        if self.is_last:
            return BatchResult(batch.number, tuple(sampled))
        return memoryview(np.repeat(np.array(rows, np.uint64), self.script.hidden_size).tobytes())

    def clear(self) -> None:
        self._states.clear()
        self._positions.clear()

    def _embed(self, batch: Batch) -> list[int]:
        return [token + 1 for entry in batch.entries for token in entry.tokens]

    def _unpack(self, batch: Batch, hidden: bytes | memoryview) -> list[int]:
        rows = np.frombuffer(hidden, np.uint64).reshape(batch.rows, self.script.hidden_size)
        return [int(row) for row in rows[:, 0]]

    def _advance(self, entry: Entry, rows: list[int]) -> list[int]:
        if entry.position == 0:
            self._states[entry.sequence], self._positions[entry.sequence] = [0] * self._depth, 0
        if self._positions.get(entry.sequence) != entry.position:
            raise ValueError(f"sequence {entry.sequence} is at {entry.position}, the cache is not")
        self._check_poison(entry)
        self._positions[entry.sequence] += len(entry.tokens)
        states = self._states[entry.sequence]
        for index in range(self._depth):
            for row, value in enumerate(rows):
                states[index] = (states[index] * _MULTIPLIER + value + self.first_layer + index) % 2**64
                rows[row] = states[index] ^ (value >> 7)
        return rows

    def _check_poison(self, entry: Entry) -> None:
        for text, layer in self.script.poisons:
            poison = tuple(tokens_of(text))
            if self.first_layer <= layer < self.end_layer and entry.tokens[-len(poison) :] == poison:
                raise RuntimeError(f"poisoned by {text}")


@frozen
class ScriptedText:
    """Implements ``engines.TextModel``: a token is a letter of the alphabet."""

    script: Script

    @property
    def context_length(self) -> int:
        return self.script.context_length

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset() if self.script.end_token is None else frozenset({self.script.end_token})

    def prompt_tokens(self, messages: Sequence[Message]) -> list[int]:
        return [token for message in messages for token in tokens_of(message.content)]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(_ALPHABET[token] for token in tokens)


def tokens_of(text: str) -> list[int]:
    """Raises ValueError for a character that is not in the alphabet."""
    return [_ALPHABET.index(character) for character in text]


def _draw(row: int) -> int:
    return (row >> 32) % len(_ALPHABET)


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
