"""How many tokens of conversation a ring has memory for. Pure."""

from p2pexo.engine.groups import CACHE_STEP
from p2pexo.ring.stage import StageSpec

_CARD_VALUE_BYTES = 4
"""A card counts keys and values in fp32."""


def cache_tokens(spec: StageSpec, weight_bytes: int, dtype: str) -> int | None:
    """Tokens whose caches fit into what this stage's placement has set aside beside the weights; None if it doesn't say.

    All stages are planned for equally many tokens, so one stands for all. ``dtype``: of the numbers in the
    caches, such as ``float32``.
    """
    plan, card = spec.placement.stages[spec.rank], spec.placement.card
    if card is None or plan.reserved_bytes <= weight_bytes:
        return None
    layers = plan.end_layer - plan.first_layer
    value_bytes = int("".join(filter(str.isdigit, dtype))) / 8
    token_bytes = layers * card.kv_bytes_per_token * value_bytes / _CARD_VALUE_BYTES
    # Weights are planned in round figures, so the nearest step is what was meant.
    return round((plan.reserved_bytes - weight_bytes) / token_bytes / CACHE_STEP) * CACHE_STEP or None
