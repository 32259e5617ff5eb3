"""What the official Ollama SDK makes of our answers, lists and errors."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import ollama
import pytest
import trio
from attrs import evolve
from pydantic import BaseModel

from p2pexo.generation.errors import ContextLengthError, EngineError, OverloadedError, UnavailableError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Started, ToolCallDelta, Usage
from p2pexo.generation.request import FormatKind, Request, Role

MODEL = "tests/Parrot-135M"
MESSAGES: Any = [{"role": "user", "content": "one two three"}]
ADD: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


def client_of(node: Any, path: str = "") -> ollama.Client:
    return ollama.Client(host=f"{node.url}{path}")


async def thinker(request: Request) -> AsyncIterator[Event]:
    """Thinks, says something, and calls a tool."""
    yield Started(11)
    yield Delta(0, (1,), "", reasoning="let me see")
    yield Delta(1, (2,), "Adding.")
    yield Delta(2, (3,), "", tool_calls=(ToolCallDelta(0, "call_1", "add", '{"a"'),))
    yield Delta(3, (4,), "", tool_calls=(ToolCallDelta(0, arguments=": 2}"),))
    yield Finished(FinishReason.TOOL_CALLS, Usage(11, 5), prefill_s=0.5, decode_s=0.25)


@pytest.mark.parametrize("path", ["", "/ollama"])
def test_a_chat(node: Any, path: str) -> None:
    reply = client_of(node, path).chat(MODEL, MESSAGES)
    assert reply.message.content == "one two three"
    assert (reply.model, reply.done, reply.done_reason, reply.prompt_eval_count) == (MODEL, True, "stop", 7)


def test_a_chat_as_a_stream(node: Any) -> None:
    *parts, last = list(client_of(node).chat(MODEL, MESSAGES, stream=True))
    assert "".join(part.message.content or "" for part in parts) == "one two three"
    assert not any(part.done for part in parts)
    assert (last.done, last.done_reason, last.eval_count) == (True, "stop", 4)


def test_a_stream_is_lines_of_json_and_the_default(node: Any) -> None:
    answer = httpx.post(f"{node.url}/api/chat", json={"model": MODEL, "messages": MESSAGES})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert len(answer.text.splitlines()) == 4


def test_a_generation(node: Any) -> None:
    client = client_of(node)
    assert client.generate(MODEL, "one two", system="S").response == "one two"
    assert node.generator.requests[-1].messages[0].role is Role.SYSTEM
    assert "".join(part.response or "" for part in client.generate(MODEL, "one two", stream=True)) == "one two"


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_and_tool_calls(start_node: Any, stream: bool) -> None:
    node = start_node(thinker)
    answer: Any = client_of(node).chat(MODEL, MESSAGES, tools=[ADD], think=True, stream=stream)
    parts: list[Any] = list(answer) if stream else [answer]
    assert "".join(part.message.thinking or "" for part in parts) == "let me see"
    (call,) = [call for part in parts for call in part.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("add", {"a": 2})
    assert (parts[-1].prompt_eval_duration, parts[-1].eval_duration) == (500_000_000, 250_000_000)
    assert node.generator.requests[-1].tools[0].name == "add"


def test_an_answer_goes_back_as_history(start_node: Any) -> None:
    node = start_node(thinker)
    client = client_of(node)
    reply = client.chat(MODEL, MESSAGES, tools=[ADD])
    client.chat(MODEL, [*MESSAGES, reply.message, {"role": "tool", "tool_name": "add", "content": "2"}])
    messages = node.generator.requests[-1].messages
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert messages[2].tool_call_id == messages[1].tool_calls[0].id != ""


class Verdict(BaseModel):
    ok: bool


@pytest.mark.parametrize(
    ("form", "kind"), [("json", FormatKind.JSON_OBJECT), (Verdict.model_json_schema(), FormatKind.JSON_SCHEMA)]
)
def test_structured_output(start_node: Any, form: Any, kind: FormatKind) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        assert request.output_format.kind is kind
        yield Started(3)
        yield Delta(0, (1,), '{"ok":true}')
        yield Finished(FinishReason.STOP, Usage(3, 2))

    reply = client_of(start_node(script)).chat(MODEL, MESSAGES, format=form)
    assert Verdict.model_validate_json(reply.message.content or "") == Verdict(ok=True)


def test_options(node: Any) -> None:
    client_of(node).chat(MODEL, MESSAGES, options={"temperature": 0, "num_predict": 5, "stop": ["x"]})
    request = node.generator.requests[-1]
    assert (request.sampling.temperature, request.max_tokens, request.stop) == (0.0, 5, ("x",))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (ContextLengthError("9000 tokens, context 8192"), 400),
        (OverloadedError("full"), 503),
        (UnavailableError("no leader"), 503),
        (EngineError("NaN"), 500),
    ],
)
def test_failures_have_their_status(start_node: Any, stream: bool, failure: Any, status: int) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Failed(failure.report())

    with pytest.raises(ollama.ResponseError, match=str(failure)) as error:
        list(client_of(start_node(script)).chat(MODEL, MESSAGES, stream=stream))
    assert error.value.status_code == status


def test_a_failure_in_mid_stream_raises(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Started(3)
        yield Delta(0, (1,), "half")
        yield Failed(EngineError("stage 1 is gone").report())

    seen: list[Any] = []
    with pytest.raises(ollama.ResponseError, match="stage 1 is gone"):
        seen.extend(client_of(start_node(script)).chat(MODEL, MESSAGES, stream=True))


def test_headers_come_in_silence(start_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pexo.api.streaming.HOLD_S", 0.02)
    monkeypatch.setattr("p2pexo.api.streaming.SILENCE_S", 0.02)
    release = threading.Event()

    async def script(request: Request) -> AsyncIterator[Event]:
        await trio.to_thread.run_sync(release.wait)
        async for event in thinker(request):
            yield event

    body = {"model": MODEL, "messages": MESSAGES}
    with httpx.stream("POST", f"{start_node(script).url}/api/chat", json=body) as response:
        assert response.status_code == 200
        release.set()
        lines = list(response.iter_lines())
    assert all(lines)
    assert '"done":true' in lines[-1]


def test_unknown_models_are_not_found(node: Any) -> None:
    client = client_of(node)
    for ask in (
        lambda: client.chat("nope", MESSAGES),
        lambda: client.chat("nope", []),
        lambda: client.generate("nope", "hi"),
        lambda: client.show("nope"),
    ):
        with pytest.raises(ollama.ResponseError, match="Parrot") as error:
            ask()
        assert error.value.status_code == 404


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"options": {"temperature": 99}}, "options.temperature"),
        ({"options": {"mirostat": 2}}, "mirostat"),
        ({"keep_alive": "bad"}, "keep_alive"),
        ({"messages": [{"role": "user", "content": "x", "images": [b"\x89PNG"]}]}, "can't see pictures"),
    ],
)
def test_refusals(node: Any, change: dict[str, Any], word: str) -> None:
    ask: dict[str, Any] = {"model": MODEL, "messages": MESSAGES}
    with pytest.raises(ollama.ResponseError, match=word) as error:
        client_of(node).chat(**ask | change)
    assert error.value.status_code == 400


def test_models_are_listed_and_shown(node: Any) -> None:
    client = client_of(node)
    (listed,) = client.list().models
    assert (listed.model, listed.details and listed.details.family) == (MODEL, "llama")
    shown = client.show(MODEL)
    assert shown.modelinfo and shown.modelinfo["llama.context_length"] == 8192
    assert shown.details and shown.details.family == "llama"
    assert "completion" in (shown.capabilities or ())
    by_name = httpx.post(f"{node.url}/api/show", json={"name": MODEL})
    assert by_name.json()["details"]["parameter_size"] == "135M"


def test_a_model_is_loaded_and_unloaded(node: Any) -> None:
    node.cluster.shown = evolve(
        node.cluster.shown, placements=tuple(evolve(each, by_user=False) for each in node.cluster.shown.placements)
    )
    client = client_of(node)
    for keep_alive in (-1, "5m", 300, None):
        reply = client.generate(MODEL, "", keep_alive=keep_alive)
        assert (reply.done, reply.done_reason, reply.response) == (True, "load", "")
    assert node.generator.requests[-1].max_tokens == 0
    assert [each.model for each in client.ps().models] == [MODEL]
    chat = client.chat(MODEL, [], keep_alive="0m")
    assert (chat.done, chat.done_reason, chat.message.content) == (True, "unload", "")
    assert client.ps().models == []


def test_a_placement_by_command_stays_when_it_is_unloaded(node: Any) -> None:
    client = client_of(node)
    assert client.generate(MODEL, "", keep_alive=0).done_reason == "unload"
    assert [each.model for each in client.ps().models] == [MODEL]


def test_what_waits_for_the_model_store_says_so(node: Any) -> None:
    client = client_of(node)
    for ask in (
        lambda: client.pull("x"),
        lambda: list(client.pull("x", stream=True)),
        lambda: client.push("x"),
        lambda: client.create("x", from_="y"),
        lambda: client.copy("x", "y"),
        lambda: client.delete("x"),
        lambda: client.embed("x", "hi"),
        lambda: client.embeddings("x", "hi"),
    ):
        with pytest.raises(ollama.ResponseError, match=r"yet|embeddings") as error:
            ask()
        assert error.value.status_code == 501
    assert "error" in httpx.post(f"{node.url}/api/blobs/sha256:1", content=b"x").json()


def test_probes(node: Any) -> None:
    for path in ("", "/", "/ollama", "/ollama/"):
        answer = httpx.get(f"{node.url}{path}")
        assert (answer.status_code, answer.text) == (200, "Ollama is running")
    head = httpx.head(f"{node.url}/")
    assert (head.status_code, head.content) == (200, b"")
    version = httpx.get(f"{node.url}/api/version").json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)
    page = httpx.get(f"{node.url}/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")


def test_unknown_routes_and_methods_speak_the_dialect(node: Any) -> None:
    assert isinstance(httpx.get(f"{node.url}/api/nowhere").json()["error"], str)
    assert isinstance(httpx.get(f"{node.url}/ollama/api/chat").json()["error"], str)
    assert isinstance(httpx.post(f"{node.url}/api/chat", content=b"{").json()["error"], str)
