"""How many bytes the layers of a model take on a machine: weights, ends and caches, each counted where it sits. Pure."""

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate

from attrs import frozen

from p2pexo.cluster.machines import Candidate
from p2pexo.models.card import Card

KV_RESERVE_TOKENS = 8192
"""Tokens of conversation a stage must have room for, or the model's whole context if that is shorter. Raise it and long or
many conversations fit everywhere, but a model needs more machines; lower it and they are refused sooner."""
KV_SHARE = 0.25
"""Of the memory that a model leaves free, the share that is set aside for conversations on top. Raise it and more of them,
and longer ones, are computed at a time; lower it and more models fit beside one another."""
KV_CONTEXTS = 4
"""Nothing is set aside for more conversations than so many of full length."""
WINDOWED_TEXTS = 4
"""A layer that keeps a window, or a state of fixed size, keeps one for each conversation; room is made for so many of them. Raise
it and many short conversations at once are safer; lower it and models with such layers need less."""


@frozen
class Demand:
    """Bytes that stages of a model take on one machine."""

    card: Card
    factor: float
    """How much larger weights are there than as stored."""

    @cached_property
    def tokens(self) -> int:
        """Of conversation, for which there must be room."""
        return min(self.card.context_length, KV_RESERVE_TOKENS)

    @cached_property
    def most_tokens(self) -> int:
        """For which more may be set aside."""
        return KV_CONTEXTS * self.card.context_length

    @cached_property
    def layers(self) -> tuple[float, ...]:
        """Of the layers before each layer, and of all, caches for ``tokens`` included."""
        caches = (self._caches(layer, layer + 1, self.tokens) for layer in range(self.card.layers))
        weights = (size * self.factor for size in self.card.layer_sizes)
        return tuple(accumulate(map(sum, zip(weights, caches, strict=True)), initial=0.0))

    def of_ends(self, *, first: bool, last: bool) -> int:
        """Embedding and head; where both are the same weights, a stage that has both holds them once."""
        card = self.card
        shared = card.embedding_bytes if card.tied and first and last else 0
        return int(self.factor * (first * card.embedding_bytes + last * card.head_bytes - shared))

    def of_stage(self, start: int, end: int, tokens: int | None = None) -> int:
        """With room for ``tokens`` of conversation if there is to be room for more than must be."""
        weights = int(self.factor * self.card.weight_bytes(start, end))
        return weights + self._caches(start, end, max(tokens or 0, self.tokens))

    def tokens_in(self, free: int, start: int, end: int) -> int:
        """Tokens of conversation to set room aside for on a machine on which these layers fit."""
        least = self.of_stage(start, end)
        most = least + KV_SHARE * (free - least)
        choices = range(self.tokens, self.most_tokens + 1)
        found = bisect_right(choices, most, key=lambda tokens: self.of_stage(start, end, tokens))
        return choices[max(0, found - 1)] if choices else self.tokens

    def _caches(self, start: int, end: int, tokens: int) -> int:
        limits = self.card.cache_limits or (0,) * self.card.layers
        kept = (min(tokens, WINDOWED_TEXTS * limit or tokens) for limit in limits[start:end])
        return self.card.kv_bytes_per_token * sum(kept)


def demand(card: Card, candidate: Candidate, precision: str = "auto") -> Demand:
    return Demand(card, card.dense_factor if candidate.dequantises(precision) else 1.0)
