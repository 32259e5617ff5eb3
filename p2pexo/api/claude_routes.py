"""The routes of Claude Messages."""

from uuid import uuid4

import orjson
from attrs import evolve
from quart import Quart, Response, request

from p2pexo.api.answers import start_answer
from p2pexo.api.backend import Cluster, Generator
from p2pexo.api.claude import ClaudeCall, read_count, read_message
from p2pexo.api.claude_wire import ClaudeStream, Voice, message
from p2pexo.api.exchange import json_response, read_json
from p2pexo.api.field_names import CLAUDE
from p2pexo.api.lifetime import lifetime_of
from p2pexo.api.picture_fetching import Pictures
from p2pexo.api.request_ids import request_id
from p2pexo.api.streaming import stream
from p2pexo.generation.errors import EngineError, from_report
from p2pexo.generation.events import Failed, Finished
from p2pexo.generation.request import Request


def add_claude_routes(app: Quart, generator: Generator, cluster: Cluster, pictures: Pictures) -> None:
    @app.post("/v1/messages")
    async def messages() -> Response:
        body = await read_json(request)
        call = read_message(body, cluster.resolve_model, _new_id())
        return await answer(evolve(call, request=await with_pictures(call.request)))

    @app.post("/v1/messages/count_tokens")
    async def count_tokens() -> Response:
        body = await read_json(request)
        tokens = await count(await with_pictures(read_count(body, cluster.resolve_model, _new_id())))
        return json_response(orjson.dumps({"input_tokens": tokens}))

    async def with_pictures(asked: Request) -> Request:
        """A picture that is gone must not end a long conversation: Claude's clients send each one again every time."""
        return await pictures.fetched(asked, leave_out_lost=True)

    async def answer(call: ClaudeCall) -> Response:
        voice = Voice(call.request.id, call.request.model, call.show_thinking, request_id())
        answer = start_answer(generator, call.request, lifetime_of(request), CLAUDE)
        if call.stream:
            return await stream(answer, ClaudeStream(voice))
        return json_response(message(voice, [event async for event in answer]))

    async def count(asked: Request) -> int:
        async for event in start_answer(generator, asked, lifetime_of(request), CLAUDE):
            if isinstance(event, Finished):
                return event.usage.prompt_tokens
            if isinstance(event, Failed):
                raise from_report(event.error)
        raise EngineError("the prompt was not counted")


def _new_id() -> str:
    return f"msg_{uuid4().hex}"
