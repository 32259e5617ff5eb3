# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""Models that only mlx-lm knows how to walk through: one stage computes all of them, as a single layer from tokens to logits."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import structlog
from mlx.utils import tree_flatten

from p2pexo.engine.families.family import Family, blank_caches

_TRIED = (range(1, 17), range(2, 5))
"""Two prompts of different lengths, so that a model that mistakes the place of a token in a batch betrays itself."""
_SAME = 0.02
"""How far logits of a batch may be from those of each text alone, as a share of the span of all. Raise it and coarse numbers
never stand in the way; lower it and they are taken for mistakes, and texts computed alone, which is slower."""

log = structlog.get_logger(__name__)


class WholeFamily(Family):
    """What stands for hidden states are token ids before its one layer, and logits behind it."""

    is_whole = True
    layers_total = 1

    def __init__(self, model: Any) -> None:
        self.model = model

    def keep(self, first: int, end: int) -> None:
        """Raises ValueError unless it is all of it."""
        if (first, end) != (0, 1):
            raise ValueError(f"a {type(self.model).__module__} runs whole, and not as the layers {first} to {end}")

    @property
    def parts(self) -> Sequence[nn.Module]:
        """Its modules one by one, so that little is in memory twice; then those parameters that lie between them."""
        leaves: Any = tree_flatten(self.model.leaf_modules(), is_leaf=nn.Module.is_module)
        return [*(module for _, module in leaves), self.model]

    def new_caches(self) -> list[Any]:
        return blank_caches(self.model)

    @cached_property
    def vocabulary_size(self) -> int:
        """Told by the shape of what it makes of a token; nothing is computed."""
        return int(self.model(mx.array([[0]]), cache=self.new_caches()).shape[-1])

    @property
    def hidden_size(self) -> int:
        return self.vocabulary_size

    @property
    def can_batch(self) -> bool:
        """Whether its caches can be joined, and whether it then computes what it does for each text alone: tried, as its code
        may take all rows for equally long. Needs the weights."""
        self._blank_caches = self.new_caches()
        return super().can_batch and self._is_same_in_a_batch()

    def embed(self, tokens: mx.array) -> mx.array:
        return tokens[None]

    def layers(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        """Logits of the last row, in place of those of the rows before it, too: nobody draws from them."""
        texts, rows = hidden.shape
        if rows > 1:
            self.model(hidden[:, :-1], cache=caches)  # for the caches alone; its logits are never computed
        logits = self.model(hidden[:, -1:], cache=caches)
        return mx.broadcast_to(logits, (texts, rows, logits.shape[-1]))

    def head(self, hidden: mx.array) -> mx.array:
        return hidden

    def _is_same_in_a_batch(self) -> bool:
        try:
            alone, together = self._try()
            mx.eval(alone, together)
        except Exception as error:  # somebody else's code, made for texts of the same length
            log.info("texts are computed one by one", model=type(self.model).__module__, reason=str(error))
            return False
        far, span = (cast(float, each.item()) for each in (mx.abs(alone - together).max(), alone.max() - alone.min()))
        same = far <= _SAME * span
        if not same:
            log.info("texts are computed one by one", model=type(self.model).__module__, logits_differ_by=far)
        return same

    def _try(self) -> tuple[mx.array, mx.array]:
        """Logits behind two texts, each computed alone, and both together: (2, vocabulary)."""
        texts = [self.new_caches() for _ in _TRIED]
        last = mx.array([[prompt[0]] for prompt in _TRIED])
        for prompt, caches in zip(_TRIED, texts, strict=True):
            self.layers(mx.array([list(prompt)]), caches)
            mx.eval([cache.state for cache in caches])
        joined = [type(layer[0]).merge(list(layer)) for layer in zip(*texts, strict=True)]
        mx.eval([cache.state for cache in joined])
        together = self.layers(last, joined)[:, -1]
        alone = [self.layers(last[row : row + 1], caches)[:, -1] for row, caches in enumerate(texts)]
        return mx.concatenate(alone).astype(mx.float32), together.astype(mx.float32)
