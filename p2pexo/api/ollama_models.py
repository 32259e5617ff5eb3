"""Models and placements as Ollama's clients list them. Pure."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from p2pexo.api.ollama_wire import timestamp
from p2pexo.cluster.snapshot import ClusterSnapshot, PlacementView
from p2pexo.models.card import Card

FOR_EVER = "9999-12-31T23:59:59Z"
"""When a placement expires that stays until somebody deletes it."""

CAPABILITIES = ("completion", "tools")

_SIZE = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?[MB])(?=$|[-_])", re.IGNORECASE)


def tags(cards: Iterable[Card], modified_at: str) -> dict[str, object]:
    return {"models": [_identity(card) | {"modified_at": modified_at} for card in cards]}


def show(card: Card, modified_at: str) -> dict[str, object]:
    architecture = card.architecture
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "license": "",
        "details": _details(card),
        "model_info": {
            "general.architecture": architecture,
            "general.basename": card.id,
            f"{architecture}.context_length": card.context_length,
            f"{architecture}.embedding_length": card.hidden_size,
            f"{architecture}.block_count": card.layers,
        },
        "capabilities": (*CAPABILITIES, "vision") if card.sees else CAPABILITIES,
        "modified_at": modified_at,
    }


def running(snapshot: ClusterSnapshot, cards: Iterable[Card], now: datetime) -> dict[str, object]:
    """The models that can answer at once."""
    known = {card.id: card for card in cards}
    ready = [each for each in snapshot.placements if each.state == "ready" and each.model in known]
    return {"models": [_running(each, known[each.model], now) for each in ready]}


def _running(placement: PlacementView, card: Card, now: datetime) -> dict[str, object]:
    size = sum(stage.resident_bytes or stage.weight_bytes for stage in placement.stages)
    sizes = {"size": size, "size_vram": size}
    return _identity(card) | sizes | {"expires_at": _expires_at(placement, now), "context_length": card.context_length}


def _expires_at(placement: PlacementView, now: datetime) -> str:
    """As if an answer that is being given ended now."""
    if placement.keep_alive_s is None:
        return FOR_EVER
    last_used = now if placement.idle_since is None else datetime.fromtimestamp(placement.idle_since, UTC)
    try:
        return timestamp(last_used + timedelta(seconds=placement.keep_alive_s))
    except OverflowError:
        return FOR_EVER


def _identity(card: Card) -> dict[str, object]:
    return {
        "name": card.id,
        "model": card.id,
        "size": card.layers * card.layer_bytes + card.embedding_bytes,
        "digest": sha256(f"{card.id}@{card.revision}".encode()).hexdigest(),
        "details": _details(card),
    }


def _details(card: Card) -> dict[str, object]:
    size = _SIZE.search(card.id.rpartition("/")[2])
    return {
        "parent_model": "",
        "format": "mlx",
        "family": card.architecture,
        "families": [card.architecture],
        "parameter_size": size[1].upper() if size else "",
        "quantization_level": "",
    }
