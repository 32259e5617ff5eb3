"""The routes of OpenAI Responses: create, read again, delete."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson
from attrs import evolve
from quart import Quart, Response, request

from p2pexo.api import sse
from p2pexo.api.answers import Answer, start_answer
from p2pexo.api.backend import Cluster, Generator, ResponseStore
from p2pexo.api.errors import NOT_STORED, RefusedError
from p2pexo.api.exchange import json_response, read_json
from p2pexo.api.field_names import RESPONSES
from p2pexo.api.fields import Fields, read_body
from p2pexo.api.lifetime import lifetime_of
from p2pexo.api.picture_fetching import Pictures
from p2pexo.api.responses import Recalled, ResponsesCall, read_responses
from p2pexo.api.responses_input import page, read_page_query, read_show_query
from p2pexo.api.responses_items import read_items, references
from p2pexo.api.responses_output import response_id_of
from p2pexo.api.responses_replay import replay
from p2pexo.api.responses_wire import ResponsesStream, whole_response
from p2pexo.api.streaming import held_back, writes
from p2pexo.serving.responses_store import StoredResponse


def add_responses_routes(
    app: Quart, generator: Generator, cluster: Cluster, store: ResponseStore, pictures: Pictures
) -> None:
    @app.post("/v1/responses")
    async def create_response() -> Response:
        body = await read_json(request)
        recalled = await recall(body, store)
        call = read_responses(body, cluster.resolve_model, store.new_id(), recalled)
        call = evolve(call, request=await pictures.fetched(call.request))
        wire = ResponsesStream(call)
        answer = start_answer(generator, call.request, lifetime_of(request), RESPONSES)
        return await (stream(answer, wire) if call.stream else whole(answer, wire))

    async def stream(answer: Answer, wire: ResponsesStream) -> Response:
        await held_back(answer)
        return Response(kept_writes(answer, wire), headers=sse.STREAM_HEADERS, content_type=sse.MEDIA_TYPE)

    async def kept_writes(answer: Answer, wire: ResponsesStream) -> AsyncGenerator[bytes]:
        """Stored before its last event is sent, so that the client can refer to it at once."""
        async with aclosing(writes(answer, wire)) as all_writes:
            async for write in all_writes:
                await keep(wire)
                yield write

    async def whole(answer: Answer, wire: ResponsesStream) -> Response:
        body = whole_response(wire, [event async for event in answer])
        await keep(wire)
        return json_response(body)

    async def keep(wire: ResponsesStream) -> None:
        if wire.call.asked.store and wire.response is not None:
            await store.put(to_store(wire.call, wire.response))

    @app.get("/v1/responses/<response_id>")
    async def show_response(response_id: str) -> Response:
        query = read_show_query(request.args)
        body = (await find(response_id)).body.encode()
        if not query.stream:
            return json_response(body)
        events = b"".join(replay(body, query.starting_after))
        return Response(events, headers=sse.STREAM_HEADERS, content_type=sse.MEDIA_TYPE)

    @app.get("/v1/responses/<response_id>/input_items")
    async def list_input_items(response_id: str) -> Response:
        query = read_page_query(request.args)
        return json_response(page(orjson.loads((await find(response_id)).input_items), query))

    async def find(response_id: str) -> StoredResponse:
        stored = await store.get(response_id)
        if stored is None:
            raise not_stored(response_id, "response_id")
        return stored

    @app.delete("/v1/responses/<response_id>")
    async def delete_response(response_id: str) -> Response:
        if not await store.delete(response_id):
            raise not_stored(response_id, "response_id")
        return json_response(orjson.dumps({"id": response_id, "object": "response", "deleted": True}))


async def recall(body: Fields, store: ResponseStore) -> Recalled:
    """What a body refers to. Raises RefusedError if the previous response is not stored."""
    previous_id = body.text("previous_response_id", None)
    previous = None if previous_id is None else await store.get(previous_id)
    if previous_id is not None and previous is None:
        raise not_stored(previous_id, "previous_response_id")
    items: dict[str, Fields] = {}
    for response_id in {response_id_of(item_id) for item_id in references(body)}:
        stored = await store.get(response_id)
        items |= {} if stored is None else output_items(stored.body.encode())
    if previous is None:
        return Recalled(items=items)
    output = orjson.loads(previous.body)["output"]
    return Recalled(previous.conversation, items, (*orjson.loads(previous.input_items), *output))


def to_store(call: ResponsesCall, response: bytes) -> StoredResponse:
    said = read_items(output_items(response).values(), {})
    items = orjson.dumps(call.input_items).decode()
    return StoredResponse(call.request.id, (*call.conversation, *said), response.decode(), items)


def output_items(response: bytes) -> dict[str, Fields]:
    """By id, in order."""
    return {item.required_text("id"): item for item in read_body(response).children("output")}


def not_stored(response_id: str, param: str) -> RefusedError:
    message = f"{param}: no response {response_id!r} is stored here; it was never stored, was deleted, or is too old"
    return RefusedError(NOT_STORED, message, param=param)
