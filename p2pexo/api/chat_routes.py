"""The route of OpenAI Chat Completions."""

import time
from uuid import uuid4

from attrs import evolve
from quart import Quart, Response, request

from p2pexo.api.answers import start_answers
from p2pexo.api.backend import Cluster, Generator
from p2pexo.api.chat import read_chat
from p2pexo.api.chat_whole import completion
from p2pexo.api.chat_wire import ChatStream, Envelope
from p2pexo.api.exchange import json_response, read_json
from p2pexo.api.field_names import CHAT
from p2pexo.api.lifetime import lifetime_of
from p2pexo.api.picture_fetching import Pictures
from p2pexo.api.streaming import stream


def add_chat_routes(app: Quart, generator: Generator, cluster: Cluster, pictures: Pictures) -> None:
    @app.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        call = read_chat(await read_json(request), cluster.resolve_model, f"chatcmpl-{uuid4().hex}")
        call = evolve(call, request=await pictures.fetched(call.request))
        envelope = Envelope(call.request.id, int(time.time()), call.request.model)
        answer = start_answers(generator, call.requests, lifetime_of(request), CHAT)
        if call.stream:
            return await stream(answer, ChatStream(envelope, call.include_usage, call.choices))
        events = [event async for event in answer]
        return json_response(completion(envelope, events, call.request, call.choices))
