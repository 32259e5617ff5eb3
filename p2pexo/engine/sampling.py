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

from p2pexo.generation.request import Sampling

_COLDEST = 1e-5
"""Below this temperature the best token has all the probability that fp32 can tell apart."""


def sampling_key(seed: int, choice: int, output_index: int) -> int:
    """The 64-bit key of one token: a hash, so that neighbouring seeds and indexes share nothing."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed % 2**64, choice, output_index), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def draw(
    logits: mx.array,
    sampling: Sampling,
    *,
    output_index: int,
    prompt: Sequence[int],
    output: Sequence[int],
    choice: int = 0,
    allowed: mx.array | None = None,
) -> mx.array:
    """The token at ``output_index`` as a lazy scalar.

    ``logits``: shape (vocabulary,), any float dtype. ``prompt`` and ``output`` are the tokens so far; frequency and
    presence penalties look at the output alone, as OpenAI's do, the repetition penalty at both (Keskar et al., CTRL).
    ``allowed``: bool, shape (vocabulary,); no other token is drawn, whatever its bias.
    """
    logits = _penalised(logits.astype(mx.float32), sampling, prompt, output)
    logits = _biased(logits, sampling.logit_bias)
    if allowed is not None:
        logits = mx.where(allowed, logits, -mx.inf)
    if sampling.temperature < _COLDEST:
        return mx.argmax(logits)
    logits = (logits - mx.max(logits)) / sampling.temperature
    key = mx.random.key(sampling_key(sampling.seed or 0, choice, output_index))
    if not _has_cuts(sampling):
        return mx.random.categorical(logits, key=key)
    ranking = mx.argsort(-logits)
    rank = mx.random.categorical(_cut(logits[ranking], sampling), key=key)
    return ranking[rank]


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
