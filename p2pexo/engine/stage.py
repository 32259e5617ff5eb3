# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# some of MLX's signatures are untyped
"""One stage of the ring: its layers, the caches of its sequences, and on the last stage the sampler.

It computes batch after batch and knows nothing of where they come from. Sequences fail alone: one that can't be computed
yields rows that are not a number, which every later stage passes on and the last one reports.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Self

import mlx.core as mx
import structlog
from attrs import evolve

from p2pexo.engine.batch import Batch, BatchResult, Entry, Fork, Sampled, SequenceFailure
from p2pexo.engine.blas import active_blas
from p2pexo.engine.drawer import Drawer, Drawn
from p2pexo.engine.families import Family
from p2pexo.engine.loading import arrays, load_layers
from p2pexo.engine.lookahead import Lookahead
from p2pexo.engine.masks import GrammarMasks
from p2pexo.engine.pools import CachePools
from p2pexo.engine.precision import on_gpu
from p2pexo.engine.wire import dtype_name, from_wire, to_wire

log = structlog.get_logger(__name__)

_LOST = "its cache was lost, or does not match its position"


class SequenceError(Exception):
    """This sequence can't go on; the others can."""


class StageEngine:
    """Not safe for use by several threads at once; call everything from the one that loaded it."""

    def __init__(
        self, family: Family, config: dict[str, Any], first_layer: int, end_layer: int, directory: Path
    ) -> None:
        self._family = family
        self._caches = CachePools()
        self._positions: dict[int, int] = {}
        """By sequence: tokens in its caches."""
        self._lookahead: Lookahead | None = None
        self.layers_total = int(config["num_hidden_layers"])
        self.hidden_size = int(config["hidden_size"])
        self._vocabulary = int(config["vocab_size"])
        self._drawer = Drawer(GrammarMasks(directory, self._vocabulary), self._vocabulary)
        self.is_first = first_layer == 0
        self.is_last = end_layer == self.layers_total
        self.weight_bytes = sum(array.nbytes for array in arrays(family.model))
        self._can_batch = family.can_batch
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

    @property
    def conversations(self) -> int:
        """Sequences of which it holds caches, running and ended ones."""
        return len(self._positions)

    @property
    def cache_bytes(self) -> int:
        """What MLX holds beyond the weights; between two batches that is caches."""
        return max(0, mx.get_active_memory() - self.weight_bytes)

    def run(self, batch: Batch, hidden: bytes | memoryview | None = None) -> memoryview | BatchResult:
        """Apply a batch.

        ``hidden``: raw rows, (batch.rows, hidden size) in ``wire_dtype``, from the stage before; None on the first.
        Returns the rows for the next stage, or on the last stage the tokens that were drawn and who failed. Raises
        ValueError if ``hidden`` does not have the size that the batch calls for.
        """
        ahead = self._settle_lookahead(batch)
        for sequence in batch.release:
            self._forget(sequence)
        for sequence in batch.keep:
            self._caches.set_apart(sequence)
        if ahead is not None:
            return _result(batch, self._tell(batch.entries, lambda: self._catch_up(ahead)))
        incoming = None if hidden is None else from_wire(hidden, self._dtype, (batch.rows, self.hidden_size))
        if incoming is None and not self.is_first:
            raise ValueError(f"batch {batch.number} came without the hidden states of the stage before")
        outputs: list[mx.array] = []
        results: list[Sampled | SequenceFailure] = []
        start = 0
        for part in self._parts(batch.entries):
            end = start + sum(len(entry.tokens) for entry in part)
            rows = None if incoming is None else incoming[start:end]
            start = end
            if self.is_last:
                results += self._finish(part, rows)
            else:
                outputs.append(self._pass_on(part, rows))
        if self.is_last:
            return _result(batch, results)
        return to_wire(mx.concatenate(outputs)) if outputs else memoryview(b"")

    def clear(self) -> None:
        """Forget all sequences, for a new epoch. The weights stay."""
        self._lookahead = None
        self._positions.clear()
        self._caches.clear()
        self._drawer.clear()
        mx.clear_cache()

    def _parts(self, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """What is computed together: entries of one row, and beginnings of prompts, each with their neighbours; any other
        chunk alone."""
        for kind, run in groupby(entries, key=_kind):
            if self._can_batch and (kind == "row" or (kind == "beginning" and not self._family.is_whole)):
                yield list(run)
            else:
                yield from ([entry] for entry in run)

    def _pass_on(self, part: Sequence[Entry], incoming: mx.array | None) -> mx.array:
        """The part's rows behind this stage's layers, evaluated: (rows, hidden size). NaN where a sequence failed."""
        sound = self._sound(part)
        try:
            outputs = self._layers(part, sound, incoming) if sound else None
            mx.eval(outputs)
        except Exception as error:
            self._fail(sound, error)
            sound, outputs = [], None
        if outputs is not None and len(sound) == len(part):
            return outputs
        rows = mx.full((sum(len(entry.tokens) for entry in part), self.hidden_size), mx.nan, dtype=self._dtype)
        if outputs is not None:
            rows[_rows_of(part, sound)] = outputs
        return rows

    def _finish(self, part: Sequence[Entry], incoming: mx.array | None) -> list[Sampled | SequenceFailure]:
        """What the last stage makes of a part: who failed, and a token for each sequence whose prompt is complete."""
        sound = self._sound(part)
        lost = [each for each in part if each not in sound]
        results: list[Sampled | SequenceFailure] = [
            SequenceFailure(each.sequence, _LOST, each.fork is not None) for each in lost
        ]
        if sound:
            results += self._tell(sound, lambda: self._draw(sound, self._layers(part, sound, incoming)))
        return results

    def _tell(self, entries: Sequence[Entry], draw: Callable[[], Drawn | None]) -> list[Sampled | SequenceFailure]:
        """What is drawn for these entries. While it is computed the next step is begun, if that can be."""
        try:
            drawn = draw()
            if drawn is None:
                return []
            begun = self._look_ahead(entries, drawn)
            results = self._drawer.tell(drawn)
        except Exception as error:
            self._fail(entries, error)
            return [SequenceFailure(each.sequence, f"{type(error).__name__}: {error}") for each in entries]
        for each in results:
            if isinstance(each, SequenceFailure):
                self._forget(each.sequence)
            elif begun is not None:
                self._lookahead = Lookahead(evolve(begun.entries[0], tokens=(each.token,)), begun)
        return results

    def _look_ahead(self, entries: Sequence[Entry], drawn: Drawn) -> Drawn | None:
        """Begin with the step that follows this one, of a lone sequence whose tokens nobody else has to see first."""
        entry, *others = entries
        is_ring = not (self.is_first and self.is_last)
        if is_ring or others or not drawn.drawing or self._lookahead or not self._drawer.can_look_ahead(entry):
            return None
        if not (self._can_batch and all(each.is_trimmable() for each in self._caches.take([entry.sequence]))):
            return None
        mx.async_eval(drawn.tokens, drawn.is_broken)
        position, index = self._positions[entry.sequence], (entry.sample_index or 0) + 1
        next = Entry(entry.sequence, (), position, index)
        outputs = self._walk([next], self._embed(drawn.tokens))
        ahead = self._drawer.draw([next], self._family.head(outputs)[0])
        mx.async_eval(ahead.tokens, ahead.is_broken)
        self._positions[entry.sequence] += 1
        return ahead

    def _settle_lookahead(self, batch: Batch) -> Lookahead | None:
        """The step that was begun, if this batch asks for it; one that has become pointless is taken back."""
        ahead = self._lookahead
        if ahead is None or ahead.is_wanted_by(batch):
            self._lookahead = None
            return ahead
        if ahead.is_foiled_by(batch):
            self._lookahead = None
            self._positions[ahead.entry.sequence] -= 1
            for cache in self._caches.take([ahead.entry.sequence]):
                cache.trim(1)
        return None

    def _catch_up(self, ahead: Lookahead) -> Drawn:
        self._drawer.follow(ahead.entry)
        return ahead.drawn

    def _layers(self, part: Sequence[Entry], sound: Sequence[Entry], incoming: mx.array | None) -> mx.array:
        """The rows of the sound entries of a part behind this stage's layers, lazy: (rows, hidden size)."""
        if incoming is None:
            hidden = self._embed(mx.array([token for entry in sound for token in entry.tokens]))
        else:
            hidden = incoming if len(sound) == len(part) else incoming[_rows_of(part, sound)]
        outputs = self._walk(sound, hidden)
        for entry in sound:
            self._positions[entry.sequence] += len(entry.tokens)
        return outputs.reshape(-1, self.hidden_size)

    def _embed(self, tokens: mx.array) -> mx.array:
        hidden = self._family.embed(tokens)[0]
        return hidden if self._family.is_whole else hidden.astype(self._dtype)

    def _walk(self, entries: Sequence[Entry], hidden: mx.array) -> mx.array:
        """Through the layers. Chunks of several sequences are filled up on their right, where nothing looks at it."""
        caches = self._caches.take([entry.sequence for entry in entries])
        lengths = [len(entry.tokens) for entry in entries]
        longest = max(lengths)
        if len(entries) == 1 or longest == 1:
            return self._family.layers(hidden[None] if len(entries) == 1 else hidden[:, None], caches)
        for cache in caches:
            cache.prepare(lengths=lengths, right_padding=[longest - each for each in lengths])
        starts = [end - length for end, length in zip(accumulate(lengths), lengths, strict=True)]
        filled = [
            [start + min(row, length - 1) for row in range(longest)]
            for start, length in zip(starts, lengths, strict=True)
        ]
        outputs = self._family.layers(hidden[mx.array(filled)], caches)
        for cache in caches:
            cache.finalize()
        wanted = [number * longest + row for number, length in enumerate(lengths) for row in range(length)]
        return outputs.reshape(-1, self.hidden_size)[mx.array(wanted)]

    def _draw(self, entries: Sequence[Entry], outputs: mx.array) -> Drawn | None:
        """A token for each of these whose prompt is complete, lazy; None if there is no such one."""
        for entry in entries:
            self._drawer.follow(entry)
        drawing = [entry for entry in entries if entry.sample_index is not None]
        if not drawing:  # in mid prompt only the caches are wanted, and most of the last layer is not computed at all
            mx.eval([cache.state for cache in self._caches.take([entry.sequence for entry in entries])])
            return None
        ends = accumulate(len(entry.tokens) for entry in entries)
        wanted = [end - 1 for entry, end in zip(entries, ends, strict=True) if entry.sample_index is not None]
        return self._drawer.draw(drawing, self._family.head(outputs[mx.array(wanted)][None])[0])

    def _sound(self, part: Sequence[Entry]) -> list[Entry]:
        """The entries that can be computed; of the sequences of the others nothing is kept."""
        sound: list[Entry] = []
        for entry in part:
            try:
                self._begin(entry)
            except SequenceError as error:
                self._fail([entry], error)
            else:
                sound.append(entry)
        return sound

    def _begin(self, entry: Entry) -> None:
        if not all(0 <= token < self._vocabulary for token in entry.tokens):  # MLX reads beyond its arrays, unchecked
            raise SequenceError(f"a token of sequence {entry.sequence} is not among the model's {self._vocabulary}")
        if entry.fork is not None:
            self._fork(entry.sequence, entry.fork)
        elif entry.position == 0:
            self._caches.add(entry.sequence, self._family.new_caches())
            self._positions[entry.sequence] = 0
        position = self._positions.get(entry.sequence)
        if position is None:
            raise SequenceError(f"sequence {entry.sequence} is at {entry.position}, but nothing of it is cached here")
        if position != entry.position:
            raise SequenceError(f"the cache holds {position} tokens, the batch says {entry.position}")

    def _fork(self, sequence: int, fork: Fork) -> None:
        try:
            if not self._can_batch:
                raise ValueError("the caches of this model can't be shared")
            self._caches.fork(fork.sequence, sequence, fork.tokens)
        except ValueError as error:
            raise SequenceError(f"sequence {sequence} can't begin with another one's tokens: {error}") from error
        self._positions[sequence] = fork.tokens

    def _fail(self, entries: Sequence[Entry], error: Exception) -> None:
        log.warning("sequences failed", sequences=[entry.sequence for entry in entries], exc_info=error)
        for entry in entries:
            self._forget(entry.sequence)

    def _forget(self, sequence: int) -> None:
        self._positions.pop(sequence, None)
        self._caches.drop(sequence)
        self._drawer.forget(sequence)


def _kind(entry: Entry) -> str | None:
    if len(entry.tokens) == 1:
        return "row"
    return "beginning" if entry.position == 0 else None


def _rows_of(all: Sequence[Entry], some: Sequence[Entry]) -> mx.array:
    """Which rows of all entries are those of some."""
    wanted = {entry.sequence for entry in some}
    owners = [entry.sequence for entry in all for _ in entry.tokens]
    return mx.array([row for row, owner in enumerate(owners) if owner in wanted])


def _result(batch: Batch, results: Sequence[Sampled | SequenceFailure]) -> BatchResult:
    sampled = tuple(each for each in results if isinstance(each, Sampled))
    return BatchResult(batch.number, sampled, tuple(each for each in results if isinstance(each, SequenceFailure)))


def _compute_dtype(family: Family) -> mx.Dtype:
    """That of the activations: the one of the norms and the embedding, which are never quantised to integers."""
    return next(array.dtype for array in arrays(family.model) if mx.issubdtype(array.dtype, mx.floating))
