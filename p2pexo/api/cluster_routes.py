"""The cluster over HTTP: its picture, once or live, and the commands that place and delete a model, or send a machine away."""

from collections.abc import AsyncGenerator

import orjson
import trio
from quart import Quart, Response, request

from p2pexo.api import sse
from p2pexo.api.backend import Cluster
from p2pexo.api.exchange import json_response, read_json
from p2pexo.api.fields import Fields, Range
from p2pexo.api.lifetime import Lifetime, lifetime_of
from p2pexo.api.streaming import SILENCE_S
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.manual import parse_split
from p2pexo.cluster.snapshot import ClusterSnapshot
from p2pexo.generation.codec import encode
from p2pexo.generation.errors import InvalidRequestError

SNAPSHOT_INTERVAL_S = 0.2
"""Changes closer together than this are shown as one. Raise it and the page lags; lower it and a busy cluster floods it."""

PLACEMENT_FIELDS = ("model", "min_stages", "precision", "split", "replicas", "dry_run")
PRECISIONS = ("auto", "keep", "dequantise")
_STAGES = Range(1, 1024)
_REPLICAS = Range(1, 16)


def add_cluster_routes(app: Quart, cluster: Cluster) -> None:
    @app.get("/v1/cluster")
    async def show() -> Response:
        return json_response(encode(cluster.snapshot()))

    @app.get("/v1/cluster/events")
    async def watch() -> Response:
        snapshots = _newest_snapshots(cluster, lifetime_of(request))
        return Response(_snapshot_writes(snapshots), headers=sse.STREAM_HEADERS, content_type=sse.MEDIA_TYPE)

    @app.post("/v1/placements")
    async def place() -> Response:
        body = await read_json(request)
        command = _place_command(body)
        if body.boolean("dry_run"):
            return json_response(encode(await cluster.preview(command)))
        placement_id = await cluster.place(command)
        return json_response(orjson.dumps({"id": placement_id}), status=201)

    @app.delete("/v1/placements/<placement_id>")
    async def delete(placement_id: str) -> Response:
        await cluster.delete(placement_id)
        return json_response(orjson.dumps({"id": placement_id, "deleted": True}))

    @app.post("/v1/leave")
    async def leave() -> Response:
        peer = await cluster.leave(_node_named(await read_json(request)))
        return json_response(orjson.dumps({"peer": peer, "leaving": True}), status=202)


def _node_named(body: Fields) -> str:
    for name in body.present():
        if name != "node":
            raise InvalidRequestError(f"{name}: not known here; who leaves is named by `node`", param=name)
    return body.text("node", "")


def _place_command(body: Fields) -> PlaceCommand:
    """The name is taken as it was written: a person may ask for a model of the Hub that nobody here knows yet."""
    for name in body.present():
        if name not in PLACEMENT_FIELDS:
            raise InvalidRequestError(
                f"{name}: not known here; a placement takes {', '.join(PLACEMENT_FIELDS)}", param=name
            )
    split = body.text("split", None)
    if split is not None and body.get("min_stages") is not None:
        raise InvalidRequestError("min_stages: a split says itself how many stages there are", param="min_stages")
    replicas = body.integer("replicas", 1, _REPLICAS)
    if split is not None and replicas > 1:
        raise InvalidRequestError("replicas: a split is of one ring; place the others without it", param="replicas")
    return PlaceCommand(
        model=body.text("model", ""),
        min_stages=body.integer("min_stages", 1, _STAGES),
        precision=body.choice("precision", "auto", PRECISIONS),
        split=parse_split(split) if split is not None else (),
        replicas=replicas,
    )


def _newest_snapshots(cluster: Cluster, lifetime: Lifetime) -> trio.MemoryReceiveChannel[ClusterSnapshot]:
    """A channel that holds only the newest snapshot; it ends when the server stops."""
    send, receive = trio.open_memory_channel[ClusterSnapshot](1)

    async def pump() -> None:
        with send:
            async for snapshot in cluster.snapshots():
                _replace(send, receive, snapshot)

    async def pump_until_stopping() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump)
            await lifetime.stopping.wait()
            nursery.cancel_scope.cancel()

    lifetime.nursery.start_soon(pump_until_stopping)
    return receive


def _replace(
    send: trio.MemorySendChannel[ClusterSnapshot],
    receive: trio.MemoryReceiveChannel[ClusterSnapshot],
    snapshot: ClusterSnapshot,
) -> None:
    try:
        send.send_nowait(snapshot)
    except trio.WouldBlock:
        receive.receive_nowait()
        send.send_nowait(snapshot)


async def _snapshot_writes(snapshots: trio.MemoryReceiveChannel[ClusterSnapshot]) -> AsyncGenerator[bytes]:
    while True:
        snapshot = None
        with trio.move_on_after(SILENCE_S):
            try:
                snapshot = await snapshots.receive()
            except trio.EndOfChannel:
                return
        yield sse.data(encode(snapshot)) if snapshot else sse.KEEP_ALIVE
        await trio.sleep(SNAPSHOT_INTERVAL_S)
