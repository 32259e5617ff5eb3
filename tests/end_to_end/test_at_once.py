"""Many requests at once on one ring (the case's number is in each name)."""

import json
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from end_to_end.dialects import DIALECTS, PATHS, body, text_of
from end_to_end.scripted import MODEL, scripted_ring

from p2pexo.ring.scripted import Line, Script

TIMEOUT_S = 120
CONTEXT = 100_000
SCRIPT = Script(context_length=CONTEXT, row_s=0.0002, says=(Line("Speak.", "Spoken."),))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    with scripted_ring(tmp_path_factory.mktemp("at-once"), 2, SCRIPT) as cluster:
        yield cluster


def chat(url: str, model: str, prompt: str, *, stream: bool = False, **more: Any) -> tuple[str, str]:
    """Id and text of an answer."""
    content = body("chat", model, prompt, stream, **more)
    if not stream:
        answer = httpx.post(f"{url}/v1/chat/completions", json=content, timeout=TIMEOUT_S).json()
        return answer["id"], text_of("chat", answer)
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=content, timeout=TIMEOUT_S) as response:
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    chunks = [json.loads(each) for each in data]
    (id,) = {chunk["id"] for chunk in chunks}
    return id, "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def at_once(calls: Sequence[Callable[[], tuple[str, str]]]) -> list[tuple[str, str]]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def test_t9_a_seed_says_the_same_also_among_others(three_stages: RealCluster) -> None:
    def call(node: int, **more: Any) -> Callable[[], tuple[str, str]]:
        url = three_stages[node].url
        return lambda: chat(url, EMBEDDED_MODEL, "Name a ship.", temperature=1.0, max_tokens=16, **more)

    alone = call(0, seed=7)()[1]
    calls = [call(0, seed=7), call(1, seed=7), *(call(2, seed=seed) for seed in (1, 2)), *(call(0) for _ in range(3))]
    first, second, *others = [text for _, text in at_once(calls)]
    seeded, unseeded = others[:2], others[2:]
    assert first == second == alone
    assert len({alone, *seeded}) > 1
    assert len(set(unseeded)) > 1


@pytest.mark.long
def test_t9_seeds_differ_and_none_is_none_of_them(three_stages: RealCluster) -> None:
    def call(**more: Any) -> tuple[str, str]:
        return chat(three_stages[0].url, EMBEDDED_MODEL, "Name a ship.", temperature=1.0, max_tokens=40, **more)

    seven = {call(seed=7)[1] for _ in range(2)}
    others = [call(seed=seed)[1] for seed in (1, 2, 3)]
    unseeded = [call()[1] for _ in range(5)]
    assert len(seven) == 1
    assert len({*seven, *others}) > 1
    assert len(set(unseeded)) > 1
    assert {text for _, text in at_once([lambda: call(seed=7)] * 2)} == seven


def nonces(count: int, round: int = 0) -> list[str]:
    """Such as K7Q2, none of which is a part of another one."""
    letters = "KQXZVWJBCDFGHLMN"
    return [f"{letters[number]}{round}{letters[-1 - number]}{number % 10}" for number in range(count)]


def cross_talk(cluster: RealCluster, asked: Sequence[str], tokens: int) -> None:
    """All of them at once, streamed and not, long and short."""
    calls: list[Callable[[], tuple[str, str]]] = []
    for number, nonce in enumerate(asked):
        url, prompt = cluster[number % 3].url, f"{nonce} " * (4 + 3 * number)
        settings: dict[str, Any] = {"stream": bool(number % 2), "temperature": 0, "max_tokens": tokens}
        calls.append(lambda url=url, prompt=prompt, settings=settings: chat(url, EMBEDDED_MODEL, prompt, **settings))
    answers = at_once(calls)
    assert len({id for id, _ in answers}) == len(asked)
    assert any(nonce in text for nonce, (_, text) in zip(asked, answers, strict=True))
    for nonce, (_, text) in zip(asked, answers, strict=True):
        assert not [other for other in asked if other != nonce and other in text], (nonce, text)


def test_t10_no_answer_holds_what_another_one_asked(three_stages: RealCluster) -> None:
    cross_talk(three_stages, nonces(8), 24)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_t10_sixteen_at_once_ten_times_over_never_mix(three_stages: RealCluster) -> None:
    for round in range(10):
        cross_talk(three_stages, nonces(16, round), 60)


def test_t10_sixteen_answers_at_once_are_those_that_each_gets_alone(scripted: RealCluster) -> None:
    prompts = [f"{number} " * (1 + 3 * number) for number in range(16)]

    def call(number: int, prompt: str) -> tuple[str, str]:
        url = scripted[number % 2].url
        return chat(url, MODEL, prompt, stream=bool(number % 3), max_tokens=20 + number)

    alone = [call(*each)[1] for each in enumerate(prompts)]
    calls = [lambda each=each: call(*each) for each in enumerate(prompts)]
    assert [text for _, text in at_once(calls)] == alone


def test_p1_an_endless_answer_holds_nobody_up(scripted: RealCluster) -> None:
    url = scripted[0].url
    endless = body("chat", MODEL, "On and on", True)
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=endless, timeout=TIMEOUT_S) as response:
        lines = response.iter_lines()
        next(lines)
        for dialect in DIALECTS:
            answer = httpx.post(url + PATHS[dialect], json=body(dialect, MODEL, "Speak.", False), timeout=TIMEOUT_S)
            assert text_of(dialect, answer.json()) == "Spoken."
        for _ in range(50):
            next(lines)


def test_t12_a_long_prompt_is_filled_with_comments_until_its_first_token(scripted: RealCluster) -> None:
    content = body("chat", MODEL, "long " * 2000, True, max_tokens=3)
    with httpx.stream("POST", f"{scripted[1].url}/v1/chat/completions", json=content, timeout=TIMEOUT_S) as response:
        assert response.status_code == 200
        pieces = response.iter_raw()
        first = next(pieces)
        assert first.startswith(b":")
        assert b"data: " not in first
        assert b"data: [DONE]" in b"".join(pieces)
