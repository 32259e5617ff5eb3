"""How fast a ring computes, by what its machines have measured. Pure.

Decode is bound by memory: a stage's time is that in which its machine works through its weights, of a mixture of experts those that
are chosen for a token. What was not measured of a link counts as nothing; without the machines' own speeds nothing is said.
"""

from collections.abc import Sequence
from itertools import pairwise

from attrs import frozen

from p2pexo.cluster.machines import Candidate
from p2pexo.models.card import Card
from p2pexo.ring.plan import StagePlan

_FP32_BYTES = 4
_OPERATIONS_PER_WEIGHT = 2
"""In a prompt: a multiplication and an addition."""


@frozen
class RingSpeed:
    decode_tokens_per_s: float
    """Of one answer at a time; several at once fill the pauses of one another."""
    prefill_tokens_per_s: float | None
    """Of a long prompt, whose chunks keep all stages busy; None while a machine has not measured it."""
    stage_s: tuple[float, ...]
    """Of one token in each stage, handing it on included."""


def is_measured(machines: Sequence[Candidate]) -> bool:
    return not unmeasured(machines)


def unmeasured(machines: Sequence[Candidate]) -> list[str]:
    """Names of those that do not know yet how fast they compute."""
    return [each.name for each in machines if not each.speeds.decode_bytes_per_s]


def seconds_per_byte(card: Card, machine: Candidate, precision: str) -> float:
    """Of weights as stored, for one token."""
    factor = card.dense_factor if machine.dequantises(precision) else 1.0
    assert machine.speeds.decode_bytes_per_s, "asked only of machines that were measured"
    return factor / machine.speeds.decode_bytes_per_s


def sending_s(card: Card, machine: Candidate, following: Candidate, precision: str) -> float:
    """For which one token's hidden state occupies the link; the last stage sends back hardly anything."""
    link = machine.link_to(following)
    value_bytes = _FP32_BYTES if machine.format(precision) == "fp32" else 2
    return card.hidden_size * value_bytes / link.bytes_per_s if link and link.bytes_per_s else 0.0


def latency_s(ring: Sequence[Candidate]) -> float:
    """Of one round from the first stage back to it."""
    following = [*ring[1:], ring[0]]
    links = (machine.link_to(other) for machine, other in zip(ring, following, strict=True))
    return sum(link.round_trip_s / 2 for link in links if link)


def ring_speed(card: Card, ring: Sequence[Candidate], stages: Sequence[StagePlan], precision: str) -> RingSpeed | None:
    """None while a machine of the ring does not know how fast it computes."""
    if not is_measured(ring):
        return None
    sending = [sending_s(card, one, other, precision) for one, other in pairwise(ring)] + [0.0]
    stage_s = tuple(
        _computed_bytes(card, stage) * seconds_per_byte(card, machine, precision) + sent
        for machine, stage, sent in zip(ring, stages, sending, strict=True)
    )
    return RingSpeed(
        decode_tokens_per_s=1 / (sum(stage_s) + latency_s(ring)),
        prefill_tokens_per_s=_prefill_tokens_per_s(card, ring, stages, sending),
        stage_s=stage_s,
    )


def _computed_bytes(card: Card, stage: StagePlan) -> int:
    """As stored. To look up one row of the embedding costs nothing."""
    head = card.head_bytes if stage.end_layer == card.layers else 0
    return sum(card.active_sizes[stage.first_layer : stage.end_layer]) + head


def _prefill_tokens_per_s(
    card: Card, ring: Sequence[Candidate], stages: Sequence[StagePlan], sending: Sequence[float]
) -> float | None:
    """The head works on the last token only."""
    slowest = 0.0
    for machine, stage, sent in zip(ring, stages, sending, strict=True):
        if not machine.speeds.prefill_flops_per_s:
            return None
        weights = sum(card.active_sizes[stage.first_layer : stage.end_layer]) * card.dense_factor / _FP32_BYTES
        slowest = max(slowest, _OPERATIONS_PER_WEIGHT * weights / machine.speeds.prefill_flops_per_s, sent)
    return 1 / slowest if slowest else None
