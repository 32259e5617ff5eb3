# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# some of MLX's signatures are untyped
"""Draws the tokens of many sequences on the last stage, each in its own way, and remembers what that takes.

Sequences fail alone: one whose logits are not numbers, or whose grammar can't go on, yields a failure and no token.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
import structlog
from attrs import define, field

from p2pexo.engine.batch import Drawing, Entry, Sampled, SequenceFailure
from p2pexo.engine.masks import GrammarError, GrammarMask, GrammarMasks
from p2pexo.engine.sampling import Draw, draw, likeliest, log_probabilities, unpack_mask

log = structlog.get_logger(__name__)


@define
class _History:
    drawing: Drawing = field(factory=Drawing)
    mask: GrammarMask | None = None
    tokens: list[int] = field(factory=list[int])
    """Prompt and output so far, for the penalties and the grammar."""


@define
class Drawer:
    _masks: GrammarMasks
    _vocabulary: int
    _histories: dict[int, _History] = field(factory=dict[int, _History], init=False)
    """By sequence."""

    def follow(self, entry: Entry) -> None:
        """Take in the tokens of an entry, and how to draw if it says so."""
        if entry.fork is not None:
            tokens = self._histories[entry.fork.sequence].tokens[: entry.fork.tokens]
            self._histories[entry.sequence] = _History(tokens=tokens)
        elif entry.position == 0:
            self._histories[entry.sequence] = _History()
        history = self._histories[entry.sequence]
        if entry.drawing is not None:
            history.drawing = entry.drawing
        history.tokens += entry.tokens

    def forget(self, sequence: int) -> None:
        self._histories.pop(sequence, None)

    def clear(self) -> None:
        self._histories.clear()

    def draw(self, entries: Sequence[Entry], logits: mx.array) -> list[Sampled | SequenceFailure]:
        """For each entry, all of which have a ``sample_index``, what comes of its row of (rows, vocabulary) lazy logits."""
        failures, draws = self._prepare(entries)
        rows = [row for row, entry in enumerate(entries) if entry.sequence in draws]
        if rows:
            drawn = self._draw_rows([entries[row] for row in rows], _select(logits, rows, len(entries)), draws)
            failures |= {each.sequence: each for each in drawn}
        return [failures[entry.sequence] for entry in entries]

    def _prepare(self, entries: Sequence[Entry]) -> tuple[dict[int, Sampled | SequenceFailure], dict[int, Draw]]:
        failures: dict[int, Sampled | SequenceFailure] = {}
        draws: dict[int, Draw] = {}
        for entry in entries:
            try:
                draws[entry.sequence] = self._draw_of(entry)
            except GrammarError as error:
                failures[entry.sequence] = SequenceFailure(entry.sequence, str(error))
            except Exception as error:
                log.warning("no token can be drawn", sequence=entry.sequence, exc_info=error)
                failures[entry.sequence] = SequenceFailure(entry.sequence, f"{type(error).__name__}: {error}")
        return failures, draws

    def _draw_of(self, entry: Entry) -> Draw:
        history = self._histories[entry.sequence]
        index = entry.sample_index or 0
        prompt_length = len(history.tokens) - index
        output = history.tokens[prompt_length:]
        allowed = self._allowed(history, output)
        drawing = history.drawing
        return Draw(drawing.sampling, index, history.tokens[:prompt_length], output, drawing.choice, allowed)

    def _allowed(self, history: _History, output: list[int]) -> mx.array | None:
        grammar = history.drawing.grammar
        if grammar is None:
            return None
        if history.mask is None:
            history.mask = self._masks.start(grammar)
        return unpack_mask(history.mask.allowed(output), self._vocabulary)

    def _draw_rows(
        self, entries: Sequence[Entry], logits: mx.array, draws: dict[int, Draw]
    ) -> list[Sampled | SequenceFailure]:
        tokens = draw(logits, [draws[entry.sequence] for entry in entries])
        broken = mx.isnan(logits).any(axis=-1)
        mx.eval(tokens, broken)
        ids, is_broken = cast(list[int], tokens.tolist()), cast(list[bool], broken.tolist())
        return [
            SequenceFailure(entry.sequence, "the model gave no numbers for it (NaN logits)")
            if is_broken[row]
            else self._told(entry.sequence, ids[row], logits[row])
            for row, entry in enumerate(entries)
        ]

    def _told(self, sequence: int, token: int, logits: mx.array) -> Sampled:
        count = self._histories[sequence].drawing.top_logprobs
        if count is None:
            return Sampled(sequence, token)
        tokens = mx.concatenate([mx.array([token], dtype=mx.uint32), likeliest(logits, count).astype(mx.uint32)])
        logprobs = cast(list[float], log_probabilities(logits, tokens).tolist())
        ids = cast(list[int], tokens.tolist())
        return Sampled(sequence, token, logprobs[0], tuple(zip(ids[1:], logprobs[1:], strict=True)))


def _select(logits: mx.array, rows: list[int], count: int) -> mx.array:
    return logits if len(rows) == count else logits[mx.array(rows)]
