# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""A part of a model: some of its layers, and the ends that sit beside them.

mlx-lm's models of text are a stack of layers between an embedding and a norm with a head behind it. What they hold is
taken from them as it is; only the walk through the stack, which they do in one go, is made anew here.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from p2pexo.engine.mlx_models import cache_module

_BEGUN_EVERY = 4
"""Layers after which MLX begins to compute what it was told of, while it is told of the next ones. Raise it and it waits for
longer at first; lower it and it is started more often, which costs, too."""

_BY_LENGTH = "DynamicNTKScalingRoPE"
"""Rotation that depends on the length of the text; mlx-lm has more than one class of this name."""


class Family:
    """The layers ``first`` to ``end`` of a model, and what belongs to its ends. Hidden states: (1, rows, hidden size).

    ``model.embed_tokens``, ``model.layers``, ``model.norm`` and, unless the embedding is tied, ``lm_head``; all of it
    inside ``language_model`` in models that could also see.
    """

    is_whole = False
    """Whether it can't be cut."""
    norm_name = "norm"
    masks_are_arrays = False
    """Whether the attention adds something to its masks, and so can't do with the name of a mask."""

    def __init__(self, model: Any) -> None:
        self.model: Any = model
        self._outer: Any = getattr(model, "language_model", model)
        self._body: Any = self._outer.model
        self._kept = range(len(self._body.layers))
        self._blank_caches = blank_caches(self.model, self._outer)
        rows, columns = self._body.embed_tokens.weight.shape
        self.vocabulary_size = int(rows)
        self.hidden_size = int(columns)
        self.layers_total = len(self._body.layers)

    def keep(self, first: int, end: int) -> None:
        """Forget all parameters but those of these layers and of the ends that sit beside them."""
        layers = self._body.layers
        at_start, at_end = first == 0, end == len(layers)
        self._kept = range(first, end)
        for number in range(len(layers)):
            if number not in self._kept:
                layers[number] = nn.Identity()
        if not at_start and not (at_end and self._is_tied):
            self._body.embed_tokens = nn.Identity()
        if not at_end:
            self._body[self.norm_name] = nn.Identity()
        if not at_end and not self._is_tied:
            self._outer.lm_head = nn.Identity()

    @property
    def parts(self) -> Sequence[nn.Module]:
        """What is kept, in the order of computation; loaded one after another."""
        output = () if self._is_tied else (self._outer.lm_head,)
        layers = (self._body.layers[number] for number in self._kept)
        return [self._body.embed_tokens, *layers, self._body[self.norm_name], *output]

    def new_caches(self) -> list[Any]:
        """One cache for each kept layer, for one sequence: what mlx-lm gives to such layers."""
        return [deepcopy(self._blank_caches[number]) for number in self._kept]

    @property
    def can_batch(self) -> bool:
        """Whether rows of several sequences can be computed together. Those of state space layers, of chunks and of
        several caches a layer can't, nor those whose rotation depends on the length of their text.

        Told of the whole model, so that all its stages say the same.
        """
        module = cache_module()
        joined = all(type(each) in (module.KVCache, module.RotatingKVCache) for each in self._blank_caches)
        return joined and not any(type(each).__name__ == _BY_LENGTH for each in self.model.modules())

    def embed(self, tokens: mx.array) -> mx.array:
        return self._body.embed_tokens(tokens[None])

    def layers(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        """Through the kept layers. Layers with the same kind of cache share a mask, made from the first of them."""
        masks: dict[type[Any], Any] = {}
        for count, (number, cache) in enumerate(zip(self._kept, caches, strict=True), start=1):
            kind = type(cache)
            if kind not in masks:
                masks[kind] = self.mask(hidden, cache)
            hidden = self.layer(self._body.layers[number], hidden, masks[kind], cache)
            if count % _BEGUN_EVERY == 2 and count < len(caches):  # of the last layer not everything may be wanted
                mx.async_eval(hidden)
        return hidden

    def layer(self, layer: Any, hidden: mx.array, mask: Any, cache: Any) -> mx.array:
        return layer(hidden, mask, cache)

    def mask(self, hidden: mx.array, cache: Any) -> Any:
        """Of all layers with such a cache. A window is as long as the cache that it is seen through."""
        rows = hidden.shape[1]
        module = cache_module()
        if isinstance(cache, module.ArraysCache):
            return cache.make_mask(rows)
        attended = cache[0] if isinstance(cache, module.CacheList) else cache
        window = getattr(attended, "max_size", None)
        return attended.make_mask(rows, return_array=self.masks_are_arrays, window_size=window)

    def head(self, hidden: mx.array) -> mx.array:
        """Final norm and output projection: logits of shape (1, rows, vocabulary)."""
        normed = self._body[self.norm_name](hidden)
        return self._body.embed_tokens.as_linear(normed) if self._is_tied else self._outer.lm_head(normed)

    @property
    def _is_tied(self) -> bool:
        """Some models only find out from their weights."""
        return "lm_head" not in self._outer


def blank_caches(*makers: Any) -> list[Any]:
    """One for each layer, as the first of these makes them that has an opinion; else plain ones."""
    for maker in makers:
        if hasattr(maker, "make_cache"):
            return maker.make_cache()
    return [cache_module().KVCache() for _ in makers[0].layers]
