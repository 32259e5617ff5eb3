"""Every fault in each dialect, streamed or not, on a real ring of two nodes: told as docs/errors.md says, and got over."""

import re
import threading
from collections.abc import Generator
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from attrs import define, field
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.conftest import sdk
from end_to_end.dialects import DIALECTS, PATHS, Told, body, check_error, check_status, text_of, told
from end_to_end.scripted import MODEL, scripted_ring

from p2pexo.ring.scripted import Line, Script

ANSWER = "All is well."
STORY = "Once upon a time there was a ship. " * 20
SCRIPT = Script(
    context_length=2048,
    says=(
        Line("fail at once", "never said", fails_after=0),
        Line("fail later", "so far and no further", fails_after=6),
        Line("a long story", STORY, token_s=0.01),
        Line("", ANSWER),
    ),
)

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    """Where no answer waits for its ring to be formed anew, so that all that can be told of it is told."""
    with scripted_ring(tmp_path_factory.mktemp("matrix"), 2, SCRIPT, ("--reform-timeout", "0")) as cluster:
        yield cluster


def ask(ring: RealCluster, dialect: str, stream: bool, prompt: str = "Hello", **more: Any) -> httpx.Response:
    content = {"model": MODEL} | more
    return httpx.post(
        ring[1].url + PATHS[dialect], json=body(dialect, prompt=prompt, stream=stream, **content), timeout=60
    )


def works(ring: RealCluster, dialect: str, stream: bool) -> None:
    answer = ask(ring, dialect, stream)
    assert answer.status_code == 200, answer.text
    if stream:
        assert told(dialect, answer.text) == Told(ANSWER, is_complete=True)
    else:
        assert text_of(dialect, answer.json()) == ANSWER


@every_dialect
@both_ways
class TestOneRequest:
    def test_an_unknown_model(self, ring: RealCluster, dialect: str, stream: bool) -> None:
        check_status(dialect, "model_not_found", ask(ring, dialect, stream, model="no/such"))
        works(ring, dialect, stream)

    def test_bad_json(self, ring: RealCluster, dialect: str, stream: bool) -> None:
        broken = b'{"stream": %s, "model": ' % str(stream).lower().encode()
        check_status(dialect, "invalid_request", httpx.post(ring[1].url + PATHS[dialect], content=broken))
        works(ring, dialect, stream)

    def test_a_bad_parameter(self, ring: RealCluster, dialect: str, stream: bool) -> None:
        hot = {"temperature": "hot"}
        wrong: dict[str, Any] = {"options": hot} if dialect == "ollama" else hot
        check_status(dialect, "invalid_request", ask(ring, dialect, stream, **wrong))
        works(ring, dialect, stream)

    def test_a_prompt_that_is_too_long(self, ring: RealCluster, dialect: str, stream: bool) -> None:
        long = ask(ring, dialect, stream, "word " * SCRIPT.context_length)
        check_status(dialect, "context_length_exceeded", long)
        works(ring, dialect, stream)

    def test_an_engine_that_fails_before_the_first_token(self, ring: RealCluster, dialect: str, stream: bool) -> None:
        check_status(dialect, "engine", ask(ring, dialect, stream, "fail at once"))
        works(ring, dialect, stream)

    def test_an_engine_that_fails_after_some_tokens(self, ring: RealCluster, dialect: str, stream: bool) -> None:
        answer = ask(ring, dialect, stream, "fail later")
        if stream:
            assert answer.status_code == 200
            check_broken(dialect, "engine", told(dialect, answer.text), "so far")
        else:
            check_status(dialect, "engine", answer)
        works(ring, dialect, stream)


def check_broken(dialect: str, kind: str, outcome: Told, text: str) -> None:
    assert not outcome.is_complete
    assert outcome.text == text
    check_error(dialect, kind, outcome.error)


@define
class Listener:
    """One client in a thread of its own, so that a fault meets it in the middle of its answer."""

    node: RealNode
    dialect: str
    stream: bool
    status: int = 0
    headers: httpx.Headers = field(factory=httpx.Headers)
    raw: str = ""
    thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        content = body(self.dialect, MODEL, "Tell me a long story", self.stream)
        with httpx.stream("POST", self.node.url + PATHS[self.dialect], json=content, timeout=60) as response:
            self.status, self.headers = response.status_code, response.headers
            for text in response.iter_text():
                self.raw += text

    @property
    def has_text(self) -> bool:
        first = f'"{STORY[0]}'  # how a piece of text begins in JSON, whatever the dialect
        return first in self.raw or not self.stream

    def check(self, kind: str) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive(), f"{self.dialect} hangs after {self.raw[-300:]!r}"
        if not self.stream:
            answer = httpx.Response(self.status, headers=self.headers, text=self.raw)
            return check_status(self.dialect, kind, answer)
        outcome = told(self.dialect, self.raw)
        assert outcome.text
        return check_broken(self.dialect, kind, outcome, STORY[: len(outcome.text)])


def first_tokens(node: RealNode) -> int:
    """How many answers have begun on a node so far."""
    counts = re.findall(
        r"^p2pexo_time_to_first_token_seconds_count\S* (\S+)$", httpx.get(f"{node.url}/metrics").text, re.M
    )
    return sum(int(float(count)) for count in counts)


def listener_amid_its_answer(ring: RealCluster, dialect: str, stream: bool) -> Listener:
    before = first_tokens(ring[1])
    listener = Listener(ring[1], dialect, stream)
    wait_for("the answer has begun", lambda: first_tokens(ring[1]) > before and listener.has_text)
    return listener


@every_dialect
@both_ways
def test_a_stage_process_that_is_killed(ring: RealCluster, dialect: str, stream: bool) -> None:
    stage = ring.wait_until_ready(MODEL).stages[-1]
    process = ring.node_of(stage.peer).stage_processes()[-1]
    listener = listener_amid_its_answer(ring, dialect, stream)
    process.kill()
    listener.check("ring_broken")
    wait_for("the ring is formed anew", lambda: ask(ring, dialect, stream).status_code == 200)
    works(ring, dialect, stream)


@every_dialect
@both_ways
def test_a_placement_that_is_deleted(ring: RealCluster, dialect: str, stream: bool) -> None:
    """The next request places the model again."""
    listener = listener_amid_its_answer(ring, dialect, stream)
    ring.delete(MODEL)
    listener.check("placement_deleted")
    works(ring, dialect, stream)


class TestSdksInMidStream:
    """The text so far is the user's, and then comes an exception that says what failed."""

    ASKED: tuple[Any, ...] = ({"role": "user", "content": "fail later"},)

    def test_openai_chat(self, ring: RealCluster) -> None:
        text = ""
        with pytest.raises(openai.APIError, match="the script says so"):
            for chunk in sdk(ring[1].url).chat.completions.create(model=MODEL, messages=self.ASKED, stream=True):
                text += chunk.choices[0].delta.content or ""
        assert text == "so far"

    def test_openai_responses(self, ring: RealCluster) -> None:
        text = ""
        with pytest.raises(openai.APIError, match="the script says so"):
            for event in sdk(ring[1].url).responses.create(model=MODEL, input="fail later", stream=True):
                text += event.delta if event.type == "response.output_text.delta" else ""
        assert text == "so far"

    def test_anthropic(self, ring: RealCluster) -> None:
        text = ""
        client = anthropic.Anthropic(base_url=ring[1].url, api_key="none", max_retries=0)
        with (
            pytest.raises(anthropic.APIError, match="the script says so"),
            client.messages.stream(model=MODEL, messages=self.ASKED, max_tokens=100) as stream,
        ):
            for piece in stream.text_stream:
                text += piece
        assert text == "so far"

    def test_ollama(self, ring: RealCluster) -> None:
        text = ""
        with pytest.raises(ollama.ResponseError, match="the script says so"):
            for part in ollama.Client(host=ring[1].url).chat(MODEL, self.ASKED, stream=True):
                text += part.message.content or ""
        assert text == "so far"
