# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""How to run a part of a model: one small class for each way in which mlx-lm's models are built.

A family says where the embedding, the layers, the norm and the head are, and which mask each layer takes. To offer
another family, write its class and name its module in ``FAMILIES``, and its model types in ``models.architectures``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from p2pexo.engine.mlx_models import cache_module, model_module, module_name
from p2pexo.models.architectures import ARCHITECTURES


class UnsupportedModelError(Exception):
    """No family can run this model type."""


class Family(Protocol):
    """The layers ``first`` to ``end`` of a model, and what belongs to its ends. Hidden states: (1, rows, hidden size)."""

    model: Any

    def keep(self, first: int, end: int) -> None:
        """Forget all parameters but those of these layers and of the ends that sit beside them."""
        ...

    @property
    def parts(self) -> Sequence[nn.Module]:
        """What is kept, in the order of computation; loaded one after another."""
        ...

    def new_caches(self) -> list[Any]:
        """One cache for each kept layer, for one sequence."""
        ...

    def embed(self, tokens: mx.array) -> mx.array: ...

    def layers(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array: ...

    def head(self, hidden: mx.array) -> mx.array:
        """Final norm and output projection: logits of shape (1, rows, vocabulary)."""
        ...


class LlamaFamily:
    """``model.embed_tokens``, ``model.layers``, ``model.norm`` and, unless the embedding is tied, ``lm_head``."""

    def __init__(self, model: Any) -> None:
        self.model: Any = model
        self._body: Any = model.model
        self._tied = "lm_head" not in model
        self._kept = range(len(self._body.layers))

    def keep(self, first: int, end: int) -> None:
        layers = self._body.layers
        at_start, at_end = first == 0, end == len(layers)
        self._kept = range(first, end)
        for number in range(len(layers)):
            if number not in self._kept:
                layers[number] = nn.Identity()
        if not at_start and not (at_end and self._tied):
            self._body.embed_tokens = nn.Identity()
        if not at_end:
            self._body.norm = nn.Identity()
        if not at_end and not self._tied:
            self.model.lm_head = nn.Identity()

    @property
    def parts(self) -> Sequence[nn.Module]:
        output = () if self._tied else (self.model.lm_head,)
        layers = (self._body.layers[number] for number in self._kept)
        return [self._body.embed_tokens, *layers, self._body.norm, *output]

    def new_caches(self) -> list[Any]:
        cache = cache_module()
        return [
            cache.RotatingKVCache(max_size=self._window) if self._slides(number) else cache.KVCache()
            for number in self._kept
        ]

    def embed(self, tokens: mx.array) -> mx.array:
        return self._body.embed_tokens(tokens[None])

    def layers(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        masks: dict[bool, Any] = {}
        for number, cache in zip(self._kept, caches, strict=True):
            slides = self._slides(number)
            if slides not in masks:
                masks[slides] = self._mask(hidden, cache, slides)
            hidden = self._body.layers[number](hidden, masks[slides], cache)
        return hidden

    def head(self, hidden: mx.array) -> mx.array:
        normed = self._body.norm(hidden)
        return self._body.embed_tokens.as_linear(normed) if self._tied else self.model.lm_head(normed)

    @property
    def _window(self) -> int | None:
        return getattr(self._body, "sliding_window", None)

    def _slides(self, number: int) -> bool:
        return bool(getattr(self._body.layers[number], "use_sliding", False))

    def _mask(self, hidden: mx.array, cache: Any, slides: bool) -> Any:
        return cache.make_mask(hidden.shape[1], return_array=False, window_size=self._window if slides else None)


FAMILIES: dict[str, type[LlamaFamily]] = {"llama": LlamaFamily, "qwen2": LlamaFamily, "qwen3": LlamaFamily}
"""By the name of the mlx-lm module."""


def build(config: dict[str, Any]) -> Family:
    """An mlx-lm model without weights. Raises UnsupportedModelError."""
    model_type = str(config.get("model_type"))
    family = FAMILIES.get(module_name(model_type))
    if family is None:
        offered = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(f"models of type {model_type!r} can't be run here; supported are {offered}")
    module = model_module(model_type)
    return family(module.Model(module.ModelArgs.from_dict(config)))
