# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""Families that do one thing or another in their own way."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from p2pexo.engine.families.family import Family
from p2pexo.engine.mlx_models import cache_module


class LatentAttentionFamily(Family):
    """Caches a compressed form of keys and values, and adds the scores of positions to the mask."""

    masks_are_arrays = True


class Gemma2Family(Family):
    """Scales its embedding, and bounds the scores of its attention and its logits."""

    masks_are_arrays = True

    def embed(self, tokens: mx.array) -> mx.array:
        return super().embed(tokens) * self.hidden_size**0.5

    def mask(self, hidden: mx.array, cache: Any) -> Any:
        """Its attention has an axis of its own for the heads that share keys; the masks of a batch need one, too."""
        mask = super().mask(hidden, cache)
        arguments = self.model.args
        shares_keys = arguments.num_attention_heads > arguments.num_key_value_heads
        return mx.expand_dims(mask, 2) if shares_keys and mask is not None and mask.ndim > 2 else mask

    def head(self, hidden: mx.array) -> mx.array:
        bound = self.model.final_logit_softcapping
        return mx.tanh(super().head(hidden) / bound) * bound


class Gemma3Family(Family):
    """Scales its embedding, by a number that is rounded to bfloat16 whatever the model computes in."""

    def embed(self, tokens: mx.array) -> mx.array:
        hidden = super().embed(tokens)
        return hidden * mx.array(self.hidden_size**0.5, mx.bfloat16).astype(hidden.dtype)


class Gemma4Family(Family):
    """Scales its embedding and bounds its logits; layers also hand on keys and values, which none of these models use."""

    def embed(self, tokens: mx.array) -> mx.array:
        return super().embed(tokens) * self.hidden_size**0.5

    def layer(self, layer: Any, hidden: mx.array, mask: Any, cache: Any) -> mx.array:
        hidden, _, _ = layer(hidden, mask, cache)
        return hidden

    def head(self, hidden: mx.array) -> mx.array:
        logits, bound = super().head(hidden), self._outer.final_logit_softcapping
        return logits if bound is None else mx.tanh(logits / bound) * bound


class Ministral3Family(Family):
    """Scales its queries by their position; each layer finds the scale itself when it is given none."""

    def layer(self, layer: Any, hidden: mx.array, mask: Any, cache: Any) -> mx.array:
        return layer(hidden, None, mask, cache)


class PhiFamily(Family):
    norm_name = "final_layernorm"


class Llama4Family(Family):
    """Three of four layers see only the chunk of text that they are in, and cache no more than that."""

    def layers(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        for cache in caches:
            if _is_chunked(cache):
                cache.maybe_trim_front()
        return super().layers(hidden, caches)

    def mask(self, hidden: mx.array, cache: Any) -> Any:
        if not _is_chunked(cache):
            return super().mask(hidden, cache)
        end = cache.offset + hidden.shape[1]
        asking = mx.arange(cache.offset, end)[:, None]
        asked = mx.arange(cache.start_position, end)
        same_chunk = asked // cache.chunk_size == asking // cache.chunk_size
        return same_chunk & (asked <= asking)


def _is_chunked(cache: Any) -> bool:
    return isinstance(cache, cache_module().ChunkedKVCache)
