"""T12: while long answers hold all places in a ring, those who wait in streams are kept from giving up."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import anthropic
import httpx
import ollama
import pytest
from attrs import define, field
from end_to_end.cluster import RealCluster, wait_for
from end_to_end.conftest import sdk
from end_to_end.dialects import DIALECTS, PATHS, body, told
from end_to_end.scripted import MODEL, scripted_ring

from p2pexo.api.streaming import SILENCE_S
from p2pexo.engine.limits import Limits
from p2pexo.ring.scripted import Line, Script

ANSWER = "Thank you for waiting."
SIGNS = {"chat": ": ", "responses": ": ", "claude": "event: ping"}
"""What fills the silence. Lines of JSON have no word for it."""

PLACES = Limits().running
SCRIPT = Script(context_length=4096, says=(Line("a long job", "x" * 4000, token_s=0.02), Line("", ANSWER)))


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    with scripted_ring(tmp_path_factory.mktemp("silence"), 2, SCRIPT) as cluster:
        yield cluster


@define
class Waiting:
    """One stream in a thread of its own: all that it is sent, and when."""

    url: str
    dialect: str
    headers_at: float = 0.0
    writes: list[tuple[float, str]] = field(factory=list[tuple[float, str]])

    def listen(self) -> None:
        content = body(self.dialect, MODEL, "Hello", stream=True)
        with httpx.stream("POST", self.url + PATHS[self.dialect], json=content, timeout=90) as response:
            assert response.status_code == 200
            self.headers_at = time.monotonic()
            for text in response.iter_text():
                self.writes.append((time.monotonic(), text))

    @property
    def raw(self) -> str:
        return "".join(text for _, text in self.writes)

    @property
    def signs(self) -> int:
        """Signs of life before the first token."""
        return self.raw.partition(ANSWER[:2])[0].count(SIGNS[self.dialect])


def sdk_answers(url: str) -> dict[str, Callable[[], str]]:
    messages: Any = [{"role": "user", "content": "Hello"}]
    claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)

    def of_chat() -> str:
        stream = sdk(url).chat.completions.create(model=MODEL, messages=messages, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    def of_responses() -> str:
        stream = sdk(url).responses.create(model=MODEL, input="Hello", stream=True)
        return "".join(event.delta for event in stream if event.type == "response.output_text.delta")

    def of_claude() -> str:
        with claude.messages.stream(model=MODEL, messages=messages, max_tokens=100) as stream:
            return "".join(stream.text_stream)

    def of_ollama() -> str:
        parts = ollama.Client(host=url).chat(MODEL, messages, stream=True)
        return "".join(part.message.content or "" for part in parts)

    return {"chat": of_chat, "responses": of_responses, "claude": of_claude, "ollama": of_ollama}


def long_job(url: str) -> AbstractContextManager[httpx.Response]:
    return httpx.stream("POST", url + PATHS["chat"], json=body("chat", MODEL, "a long job", True), timeout=90)


def test_t12_who_waits_gets_headers_at_once_and_signs_of_life(ring: RealCluster) -> None:
    url = ring[1].url
    waiting = [Waiting(url, dialect) for dialect in DIALECTS]
    answers: dict[str, str] = {}
    threads = [threading.Thread(target=each.listen) for each in waiting]
    threads += [
        threading.Thread(target=lambda name=name, ask=ask: answers.update({name: ask()}))
        for name, ask in sdk_answers(url).items()
    ]
    with ExitStack() as jobs:
        told_of_jobs = [jobs.enter_context(long_job(url)).iter_text() for _ in range(PLACES)]
        for told_of_job in told_of_jobs:
            next(told_of_job)
        for thread in threads:
            thread.start()
        for each in waiting:
            if each.dialect in SIGNS:
                wait_for(
                    f"{each.dialect} is told at once, and again after {SILENCE_S:.0f} s",
                    lambda each=each: each.signs >= 2,
                )
        for each in waiting:
            assert each.headers_at, each.dialect
            assert ANSWER[:2] not in each.raw
            assert each.writes or each.dialect not in SIGNS
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert {each.dialect: told(each.dialect, each.raw).text for each in waiting} == dict.fromkeys(DIALECTS, ANSWER)
    assert answers == dict.fromkeys(DIALECTS, ANSWER)
