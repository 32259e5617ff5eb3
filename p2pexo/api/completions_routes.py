"""The route of OpenAI's legacy Completions."""

import time
from uuid import uuid4

from quart import Quart, Response, request

from p2pexo.api.answers import start_answers
from p2pexo.api.backend import Cluster, Generator
from p2pexo.api.chat_wire import Envelope
from p2pexo.api.completions import read_completion
from p2pexo.api.completions_wire import CompletionStream, whole_completion
from p2pexo.api.exchange import json_response, read_json
from p2pexo.api.field_names import COMPLETIONS
from p2pexo.api.lifetime import lifetime_of
from p2pexo.api.streaming import stream


def add_completions_routes(app: Quart, generator: Generator, cluster: Cluster) -> None:
    @app.post("/v1/completions")
    async def completions() -> Response:
        call = read_completion(await read_json(request), cluster.resolve_model, f"cmpl-{uuid4().hex}")
        envelope = Envelope(call.id, int(time.time()), call.model)
        answer = start_answers(generator, call.requests, lifetime_of(request), COMPLETIONS)
        if call.stream:
            return await stream(answer, CompletionStream(envelope, call.echoes, call.choices, call.include_usage))
        events = [event async for event in answer]
        return json_response(whole_completion(envelope, events, call.echoes, call.choices))
