# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# some of MLX's signatures are untyped
"""One stage of the ring: its layers, the caches of its sequences, and on the last stage the sampler.

It computes batch after batch and knows nothing of where they come from. Sequences fail alone: one that can't be computed
yields rows that are not a number, which every later stage passes on and the last one reports.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

import mlx.core as mx
import structlog
from attrs import define, field

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Sampled, SequenceFailure
from p2pexo.engine.blas import active_blas
from p2pexo.engine.families import Family
from p2pexo.engine.loading import arrays, load_layers
from p2pexo.engine.masks import GrammarError, GrammarMask, GrammarMasks
from p2pexo.engine.precision import on_gpu
from p2pexo.engine.sampling import draw, likeliest, log_probabilities, unpack_mask
from p2pexo.engine.wire import dtype_name, from_wire, to_wire

log = structlog.get_logger(__name__)


class SequenceError(Exception):
    """This sequence can't go on; the others can."""


@define
class Sequence:
    """What a stage keeps of one sequence between batches."""

    caches: list[Any]
    drawing: Drawing = field(factory=Drawing)
    mask: GrammarMask | None = None
    tokens: list[int] = field(factory=list)
    """Prompt and output so far, for the penalties and the grammar."""
    position: int = 0


class StageEngine:
    """Not safe for use by several threads at once; call everything from the one that loaded it."""

    def __init__(
        self, family: Family, config: dict[str, Any], first_layer: int, end_layer: int, directory: Path
    ) -> None:
        self._family = family
        self._sequences: dict[int, Sequence] = {}
        self.layers_total = int(config["num_hidden_layers"])
        self.hidden_size = int(config["hidden_size"])
        self._vocabulary = int(config["vocab_size"])
        self._masks = GrammarMasks(directory, self._vocabulary)
        self.is_first = first_layer == 0
        self.is_last = end_layer == self.layers_total
        self.weight_bytes = sum(array.nbytes for array in arrays(family.model))
        self._dtype = _compute_dtype(family)
        self.wire_dtype = dtype_name(self._dtype)

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        first_layer: int,
        end_layer: int,
        precision: str = "auto",
        progress: Callable[[float], None] = lambda share: None,
    ) -> Self:
        """Read the layers from ``first_layer`` up to, not including, ``end_layer``.

        ``precision``: ``keep``, ``dequantise`` or ``auto``. Raises ModelFilesError and UnsupportedModelError.
        """
        family, config = load_layers(
            directory, first_layer=first_layer, end_layer=end_layer, precision=precision, progress=progress
        )
        return cls(family, config, first_layer, end_layer, directory)

    @property
    def compute(self) -> str:
        """Device, dtype and BLAS, for people."""
        return f"gpu {self.wire_dtype}" if on_gpu() else f"cpu {self.wire_dtype} {active_blas()}"

    def run(self, batch: Batch, hidden: bytes | memoryview | None = None) -> memoryview | BatchResult:
        """Apply a batch.

        ``hidden``: raw rows, (batch.rows, hidden size) in ``wire_dtype``, from the stage before; None on the first.
        Returns the rows for the next stage, or on the last stage the tokens that were drawn and who failed. Raises
        ValueError if ``hidden`` does not have the size that the batch calls for.
        """
        for sequence in batch.release:
            self._sequences.pop(sequence, None)
        incoming = None if hidden is None else from_wire(hidden, self._dtype, (batch.rows, self.hidden_size))
        if incoming is None and not self.is_first:
            raise ValueError(f"batch {batch.number} came without the hidden states of the stage before")
        outputs: list[mx.array] = []
        results: list[Sampled | SequenceFailure] = []
        start = 0
        for entry in batch.entries:
            end = start + len(entry.tokens)
            rows = self._compute(entry, None if incoming is None else incoming[start:end])
            start = end
            if not self.is_last:
                outputs.append(rows)
            elif (result := self._sample(entry, rows)) is not None:
                results.append(result)
        if self.is_last:
            return _result(batch, results)
        return to_wire(mx.concatenate(outputs)) if outputs else memoryview(b"")

    def clear(self) -> None:
        """Forget all sequences, for a new epoch. The weights stay."""
        self._sequences.clear()
        mx.clear_cache()

    def _compute(self, entry: Entry, incoming: mx.array | None) -> mx.array:
        """The entry's rows behind this stage's layers, evaluated: (rows, hidden size). NaN if the sequence failed."""
        try:
            sequence = self._sequence(entry)
            hidden = self._family.embed(mx.array(entry.tokens)) if incoming is None else incoming[None]
            rows = self._family.layers(hidden.astype(self._dtype), sequence.caches)[0]
            mx.eval(rows, [cache.state for cache in sequence.caches])
        except Exception as error:
            log.warning("a sequence failed", sequence=entry.sequence, exc_info=error)
            self._sequences.pop(entry.sequence, None)
            return mx.full((len(entry.tokens), self.hidden_size), mx.nan, dtype=self._dtype)
        sequence.position += len(entry.tokens)
        sequence.tokens += entry.tokens if self.is_last else ()
        return rows

    def _sequence(self, entry: Entry) -> Sequence:
        if not all(0 <= token < self._vocabulary for token in entry.tokens):  # MLX reads beyond its arrays, unchecked
            raise SequenceError(f"a token of sequence {entry.sequence} is not among the model's {self._vocabulary}")
        if entry.position == 0:
            self._sequences[entry.sequence] = Sequence(self._family.new_caches())
        sequence = self._sequences.get(entry.sequence)
        if sequence is None:
            raise SequenceError(f"sequence {entry.sequence} is at {entry.position}, but nothing of it is cached here")
        if sequence.position != entry.position:
            raise SequenceError(f"the cache holds {sequence.position} tokens, the batch says {entry.position}")
        if entry.drawing is not None:
            sequence.drawing = entry.drawing
        return sequence

    def _sample(self, entry: Entry, rows: mx.array) -> Sampled | SequenceFailure | None:
        sequence = self._sequences.get(entry.sequence)
        if sequence is None:
            return SequenceFailure(entry.sequence, "its cache was lost, or does not match its position")
        if entry.sample_index is None:
            return None
        try:
            return self._draw(entry.sequence, sequence, entry.sample_index, rows)
        except (SequenceError, GrammarError) as error:
            reason = str(error)
        except Exception as error:
            log.warning("no token could be drawn", sequence=entry.sequence, exc_info=error)
            reason = f"{type(error).__name__}: {error}"
        del self._sequences[entry.sequence]
        return SequenceFailure(entry.sequence, reason)

    def _draw(self, number: int, sequence: Sequence, index: int, rows: mx.array) -> Sampled:
        drawing = sequence.drawing
        prompt_length = len(sequence.tokens) - index
        prompt, output = sequence.tokens[:prompt_length], sequence.tokens[prompt_length:]
        logits = self._family.head(rows[None, -1:])[0, -1]
        token = draw(
            logits,
            drawing.sampling,
            output_index=index,
            prompt=prompt,
            output=output,
            choice=drawing.choice,
            allowed=self._allowed(sequence, output),
        )
        broken = mx.isnan(logits).any()
        mx.eval(token, broken)
        if broken.item():
            raise SequenceError("the model gave no numbers for it (NaN logits)")
        if drawing.top_logprobs is None:
            return Sampled(number, int(cast(int, token.item())))
        return _with_logprobs(number, token, logits, drawing.top_logprobs)

    def _allowed(self, sequence: Sequence, output: list[int]) -> mx.array | None:
        grammar = sequence.drawing.grammar
        if grammar is None:
            return None
        if sequence.mask is None:
            sequence.mask = self._masks.start(grammar)
        return unpack_mask(sequence.mask.allowed(output), self._vocabulary)


def _with_logprobs(number: int, token: mx.array, logits: mx.array, count: int) -> Sampled:
    tokens = mx.concatenate([token.reshape(1), likeliest(logits, count)])
    logprobs = cast(list[float], log_probabilities(logits, tokens).tolist())
    ids = cast(list[int], tokens.tolist())
    return Sampled(number, ids[0], logprobs[0], tuple(zip(ids[1:], logprobs[1:], strict=True)))


def _result(batch: Batch, results: list[Sampled | SequenceFailure]) -> BatchResult:
    sampled = tuple(each for each in results if isinstance(each, Sampled))
    return BatchResult(batch.number, sampled, tuple(each for each in results if isinstance(each, SequenceFailure)))


def _compute_dtype(family: Family) -> mx.Dtype:
    """That of the activations: the one of the norms and the embedding, which are never quantised to integers."""
    return next(array.dtype for array in arrays(family.model) if mx.issubdtype(array.dtype, mx.floating))
