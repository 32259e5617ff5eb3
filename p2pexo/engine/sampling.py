# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# some of MLX's signatures are untyped
"""Draws a token from logits. Pure: the same logits, history and key give the same token, whatever the batch or the ring.

The order is that of the field: penalties and biases on the logits, then the grammar, then temperature, then the cuts by
rank, by probability mass and by the share of the best token's probability.
"""

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from attrs import frozen

from p2pexo.generation.request import Sampling

_COLDEST = 1e-5
"""Below this temperature the best token has all the probability that fp32 can tell apart."""


def sampling_key(seed: int, choice: int, output_index: int) -> int:
    """The 64-bit key of one token: a hash, so that neighbouring seeds and indexes share nothing."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed % 2**64, choice, output_index), digest_size=8).digest()
    return int.from_bytes(digest, "little")


@frozen
class Draw:
    """All that decides about one token, besides its logits."""

    sampling: Sampling
    output_index: int = 0
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    """The tokens so far. Frequency and presence penalties look at the output alone, as OpenAI's do; the repetition
    penalty at the prompt too (Keskar et al., CTRL)."""
    choice: int = 0
    allowed: mx.array | None = None
    """bool, shape (vocabulary,); no other token is drawn, whatever its bias."""

    @property
    def is_greedy(self) -> bool:
        return self.sampling.temperature < _COLDEST

    @property
    def key(self) -> int:
        return sampling_key(self.sampling.seed or 0, self.choice, self.output_index)

    @property
    def is_plain(self) -> bool:
        """Whether the temperature is all there is to it."""
        sampling = self.sampling
        is_bent = is_penalised(sampling) or sampling.logit_bias or _has_cuts(sampling)
        return not is_bent and self.allowed is None


def draw(logits: mx.array, draws: Sequence[Draw]) -> mx.array:
    """One token for each row of ``logits``, shape (rows, vocabulary), any float dtype; lazy, shape (rows,).

    What is drawn for a row doesn't depend on the other rows.
    """
    logits = logits.astype(mx.float32)
    if all(each.is_plain for each in draws):
        return _draw_plain(logits, draws)
    return mx.stack(
        [
            _draw_plain(logits[row][None], [each])[0] if each.is_plain else _draw_bent(logits[row], each)
            for row, each in enumerate(draws)
        ]
    )


def unpack_mask(bits: bytes, vocabulary: int) -> mx.array:
    """Whether each token is allowed: bool, shape (vocabulary,). ``bits``: one for each token, in little-endian words."""
    words: Any = memoryview(bits).cast("I")
    each = mx.right_shift(mx.array(words)[:, None], mx.arange(32, dtype=mx.uint32))
    return mx.bitwise_and(each, 1).astype(mx.bool_).reshape(-1)[:vocabulary]


def log_probabilities(logits: mx.array, tokens: mx.array) -> mx.array:
    """Natural logarithms of the probabilities of these tokens under plain softmax, in fp32, lazy."""
    logits = logits.astype(mx.float32)
    return logits[tokens] - mx.logsumexp(logits)


def likeliest(logits: mx.array, count: int) -> mx.array:
    """The ids of so many tokens, best first, lazy."""
    count = min(count, logits.size)
    best = mx.argpartition(-logits, max(count - 1, 0))[:count]
    return best[mx.argsort(-logits[best])]


def _draw_plain(logits: mx.array, draws: Sequence[Draw]) -> mx.array:
    """All rows at once: the best tokens, under Gumbel noise where the draw is random (Gumbel-max trick)."""
    if all(each.is_greedy for each in draws):
        return mx.argmax(logits, axis=-1)
    temperatures = mx.array([1.0 if each.is_greedy else each.sampling.temperature for each in draws])
    is_random = mx.array([not each.is_greedy for each in draws])
    noise = mx.where(is_random[:, None], _noise([each.key for each in draws], logits.shape[-1]), 0.0)
    scaled = (logits - mx.max(logits, axis=-1, keepdims=True)) / temperatures[:, None]
    return mx.argmax(scaled + noise, axis=-1)


def _noise(keys: Sequence[int], size: int) -> mx.array:
    """A row of standard Gumbel noise for each key, as ``mx.random.categorical`` adds it."""
    words = mx.array([[key >> 32, key & 0xFFFFFFFF] for key in keys], dtype=mx.uint32)
    if len(keys) == 1:
        return mx.random.gumbel((size,), key=words[0])[None]

    def row(key: mx.array) -> mx.array:
        return mx.random.gumbel((size,), key=key)

    return mx.vmap(row)(words)


def _draw_bent(logits: mx.array, each: Draw) -> mx.array:
    """A lazy scalar from one row of logits."""
    sampling = each.sampling
    logits = _biased(_penalised(logits, sampling, each.prompt, each.output), sampling.logit_bias)
    if each.allowed is not None:
        logits = mx.where(each.allowed, logits, -mx.inf)
    if each.is_greedy:
        return mx.argmax(logits)
    logits = (logits - mx.max(logits)) / sampling.temperature
    key = mx.random.key(each.key)
    if not _has_cuts(sampling):
        return mx.random.categorical(logits, key=key)
    ranking = mx.argsort(-logits)
    rank = mx.random.categorical(_cut(logits[ranking], sampling), key=key)
    return ranking[rank]


def is_penalised(sampling: Sampling) -> bool:
    """Whether the tokens so far weigh on the next one."""
    return sampling.repetition_penalty != 1.0 or bool(sampling.frequency_penalty or sampling.presence_penalty)


def _has_cuts(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0


def _penalised(logits: mx.array, sampling: Sampling, prompt: Sequence[int], output: Sequence[int]) -> mx.array:
    if sampling.repetition_penalty != 1.0 and (seen := sorted({*prompt, *output})):
        tokens = mx.array(seen)
        values = logits[tokens]
        factor = sampling.repetition_penalty
        lowered = mx.where(values > 0, values / factor, values * factor)
        logits = logits.at[tokens].add(lowered - values)
    if (sampling.frequency_penalty or sampling.presence_penalty) and (counts := Counter(output)):
        tokens = mx.array(list(counts))
        amounts = mx.array(list(counts.values()), dtype=mx.float32) * sampling.frequency_penalty
        logits = logits.at[tokens].subtract(amounts + sampling.presence_penalty)
    return logits


def _biased(logits: mx.array, bias: Sequence[tuple[int, float]]) -> mx.array:
    known = [(token, amount) for token, amount in bias if 0 <= token < logits.size]
    if not known:
        return logits
    return logits.at[mx.array([token for token, _ in known])].add(mx.array([amount for _, amount in known]))


def _cut(ranked: mx.array, sampling: Sampling) -> mx.array:
    """Logits, best first, with all outside top-k, top-p and min-p at minus infinity. The best one always stays."""
    ranks = mx.arange(ranked.size)
    keep = ranks < (sampling.top_k or ranked.size)
    if sampling.top_p < 1.0:
        mass = mx.softmax(mx.where(keep, ranked, -mx.inf))
        keep &= mx.cumsum(mass) - mass < sampling.top_p
    if sampling.min_p > 0.0:
        keep &= ranked >= ranked[0] + math.log(sampling.min_p)
    return mx.where(keep | (ranks == 0), ranked, -mx.inf)
