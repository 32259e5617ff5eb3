# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# some of MLX's signatures are untyped
"""Draws the tokens of many sequences on the last stage, each in its own way, and remembers what that takes.

First they are only described to MLX, then told, so that what follows from them can be described in between. Sequences fail alone: one whose logits are not numbers, or whose grammar can't go on, yields a failure and no token.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx
import structlog
from attrs import define, field, frozen

from p2pexo.engine.batch import Drawing, Entry, Sampled, SequenceFailure
from p2pexo.engine.masks import GrammarError, GrammarMask, GrammarMasks
from p2pexo.engine.sampling import Draw, draw, is_penalised, likeliest, log_probabilities, unpack_mask

log = structlog.get_logger(__name__)


@define
class _History:
    drawing: Drawing = field(factory=Drawing)
    mask: GrammarMask | None = None
    tokens: list[int] = field(factory=list[int])
    """Prompt and output so far, for the penalties and the grammar."""


@frozen
class Drawn:
    """Tokens on their way to being computed."""

    entries: tuple[Entry, ...]
    failures: dict[int, Sampled | SequenceFailure]
    """By sequence, of those entries of which nothing can be drawn."""
    drawing: tuple[Entry, ...]
    """The others, in the order of the rows below."""
    logits: mx.array
    tokens: mx.array
    """uint32, shape (rows,)."""
    is_broken: mx.array
    """Whether the logits are no numbers: bool, shape (rows,)."""


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

    def draw(self, entries: Sequence[Entry], logits: mx.array) -> Drawn:
        """A token for each entry, all of which have a ``sample_index``, from its row of (rows, vocabulary) logits; lazy."""
        failures, draws = self._prepare(entries)
        rows = [row for row, entry in enumerate(entries) if entry.sequence in draws]
        logits = logits if len(rows) == len(entries) else logits[mx.array(rows, dtype=mx.uint32)]
        drawing = tuple(entries[row] for row in rows)
        tokens = draw(logits, [draws[each.sequence] for each in drawing]) if rows else mx.array([], dtype=mx.uint32)
        return Drawn(tuple(entries), failures, drawing, logits, tokens, mx.isnan(logits).any(axis=-1))

    def tell(self, drawn: Drawn) -> list[Sampled | SequenceFailure]:
        """What has come of each entry, once it is computed."""
        mx.eval(drawn.tokens, drawn.is_broken)
        told = drawn.failures | {each.sequence: each for each in self._told_rows(drawn)}
        return [told[entry.sequence] for entry in drawn.entries]

    def can_look_ahead(self, entry: Entry) -> bool:
        """Whether the token behind the one that is drawn for this entry can be drawn by one who doesn't know that one yet,
        and is wanted if the answer goes on."""
        drawing = self._histories[entry.sequence].drawing
        if entry.sample_index is None or entry.sample_index + 1 == drawing.end_index:
            return False
        return drawing.grammar is None and drawing.top_logprobs is None and not is_penalised(drawing.sampling)

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

    def _told_rows(self, drawn: Drawn) -> list[Sampled | SequenceFailure]:
        ids, is_broken = cast(list[int], drawn.tokens.tolist()), cast(list[bool], drawn.is_broken.tolist())
        return [
            SequenceFailure(entry.sequence, "the model gave no numbers for it (NaN logits)")
            if is_broken[row]
            else self._told(entry.sequence, ids[row], drawn.logits[row])
            for row, entry in enumerate(drawn.drawing)
        ]

    def _told(self, sequence: int, token: int, logits: mx.array) -> Sampled:
        count = self._histories[sequence].drawing.top_logprobs
        if count is None:
            return Sampled(sequence, token)
        tokens = mx.concatenate([mx.array([token], dtype=mx.uint32), likeliest(logits, count).astype(mx.uint32)])
        logprobs = cast(list[float], log_probabilities(logits, tokens).tolist())
        ids = cast(list[int], tokens.tolist())
        return Sampled(sequence, token, logprobs[0], tuple(zip(ids[1:], logprobs[1:], strict=True)))
