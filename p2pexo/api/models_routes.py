"""``GET /v1/models``: one form that OpenAI's clients, Anthropic's and editors all accept."""

import time
from datetime import UTC, datetime
from functools import partial

import orjson
from quart import Quart, Response

from p2pexo.api.backend import Cluster
from p2pexo.api.exchange import json_response
from p2pexo.models.card import Card


def add_models_routes(app: Quart, cluster: Cluster) -> None:
    describe = partial(describe_model, created=int(time.time()))

    @app.get("/v1/models")
    async def models() -> Response:
        return json_response(orjson.dumps(list_models([describe(card) for card in cluster.cards()])))

    @app.get("/v1/models/<path:name>")
    async def model(name: str) -> Response:
        return json_response(orjson.dumps(describe(cluster.resolve_model(name))))


def list_models(models: list[dict[str, object]]) -> dict[str, object]:
    """All of them in one page: Anthropic's clients would ask for the next one."""
    return {
        "object": "list",
        "data": models,
        "has_more": False,
        "first_id": models[0]["id"] if models else None,
        "last_id": models[-1]["id"] if models else None,
    }


def describe_model(card: Card, created: int) -> dict[str, object]:
    """``object`` and ``created`` are for OpenAI's clients; ``type``, ``display_name`` and ``created_at`` for Anthropic's."""
    return {
        "id": card.id,
        "object": "model",
        "type": "model",
        "created": created,
        "created_at": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        "owned_by": card.id.partition("/")[0],
        "display_name": card.id.rpartition("/")[2],
        "context_length": card.context_length,
        "max_input_tokens": card.context_length,
        "max_tokens": card.context_length,
        "description": card.description,
    }
