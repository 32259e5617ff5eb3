"""Faults that users of such systems really met (the case's number is in each name): how chats are read, and told to end.

The script's tokens are the bytes of all messages in a row, so what is lost or moved shows in their number.
"""

from collections.abc import Generator
from typing import Any

import httpx
import pytest
from end_to_end import test_chat_cases
from end_to_end.scripted import MODEL, scripted_ring
from end_to_end.test_chat_answers import WEATHER, reason, said
from end_to_end.test_chat_cases import error_of

from p2pexo.ring.scripted import Line, Script

PLAIN = {"role": "user", "content": "Who are you?"}
SCRIPT = Script(context_length=4096, says=(Line("", "I am a script."),))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with scripted_ring(tmp_path_factory.mktemp("chat-messages"), 2, SCRIPT) as ring:
        yield ring[1].url


def post(url: str, **more: Any) -> httpx.Response:
    return test_chat_cases.post(url, test_chat_cases.body(**{"model": MODEL, "messages": [PLAIN]} | more))


def answer(url: str, **more: Any) -> dict[str, Any]:
    return test_chat_cases.answer(url, **{"model": MODEL, "messages": [PLAIN]} | more)


def chunks(url: str, **more: Any) -> list[dict[str, Any]]:
    return test_chat_cases.chunks(url, **{"model": MODEL, "messages": [PLAIN]} | more)


def prompt_tokens(url: str, messages: list[Any], **more: Any) -> int:
    return answer(url, messages=messages, max_tokens=1, **more)["usage"]["prompt_tokens"]


def reasons(stream: list[dict[str, Any]]) -> list[str | None]:
    return [choice["finish_reason"] for chunk in stream for choice in chunk["choices"]]


class TestT5Reasons:
    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            ({"max_tokens": 3}, "length"),
            ({"stop": " "}, "stop"),
            ({}, "stop"),
        ],
        ids=["limit", "stop string", "end of turn"],
    )
    def test_t5_one_reason_on_the_last_chunk_with_a_choice(self, url: str, more: dict[str, Any], expected: str) -> None:
        assert reason(answer(url, **more)) == expected
        *before, last = reasons(chunks(url, **more))
        assert (set(before), last) == ({None}, expected)


class TestP1Limits:
    def test_p1_the_newer_limit_wins(self, url: str) -> None:
        for limits in ({"max_completion_tokens": 4, "max_tokens": None}, {"max_completion_tokens": 4, "max_tokens": 9}):
            whole = answer(url, **limits)
            assert (whole["usage"]["completion_tokens"], reason(whole)) == (4, "length")

    @pytest.mark.parametrize("limit", [0, -1, 1.5, "5"])
    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
    def test_p1_a_bad_limit_is_refused_by_name(self, url: str, name: str, limit: object) -> None:
        response = post(url, **{name: limit})
        assert (response.status_code, error_of(response)["param"]) == (400, name)


def after_a_call(result: Any, content: Any = None) -> list[Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    asked = {"role": "assistant", "content": content, "tool_calls": [call]}
    return [PLAIN, asked, {"role": "tool", "tool_call_id": "c1", "content": result}]


class TestM1ToolResults:
    def test_m1_the_result_of_a_call_without_text_is_part_of_the_prompt(self, url: str) -> None:
        few = prompt_tokens(url, after_a_call("5"), tools=[WEATHER])
        assert prompt_tokens(url, after_a_call("5 or 6 or 7 degrees"), tools=[WEATHER]) > few
        assert chunks(url, messages=after_a_call("5"), tools=[WEATHER], max_tokens=1)


def parts(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text} for text in texts]


class TestM3Parts:
    @pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
    def test_m3_the_texts_of_all_parts_are_read_in_order(self, url: str, role: str) -> None:
        def talk(content: Any) -> list[Any]:
            if role == "tool":
                return after_a_call(content)
            return [{"role": role, "content": content}, PLAIN]

        one, two = (
            answer(url, messages=talk(content), max_tokens=3) for content in ("Be brief.", parts("Be ", "brief."))
        )
        assert (one["usage"]["prompt_tokens"], said(one)) == (two["usage"]["prompt_tokens"], said(two))
        assert prompt_tokens(url, talk([])) == prompt_tokens(url, talk(""))

    @pytest.mark.parametrize("part", [{"type": "telepathy", "text": "x"}, {"type": "text"}, {"text": "x"}])
    def test_m3_a_part_that_says_nothing_known_is_refused_by_its_place(self, url: str, part: Any) -> None:
        response = post(url, messages=[{"role": "user", "content": [part]}])
        assert response.status_code == 400
        assert error_of(response)["param"].startswith("messages[0]")
        assert part.get("type", "type") in error_of(response)["message"]


class TestM4Developers:
    def test_m4_a_developer_is_heard_like_a_system(self, url: str) -> None:
        one, two = (
            answer(url, messages=[{"role": role, "content": "Be kind."}, PLAIN], max_tokens=3)
            for role in ("developer", "system")
        )
        assert (one["usage"]["prompt_tokens"], said(one)) == (two["usage"]["prompt_tokens"], said(two))


class TestM7Choices:
    def test_m7_none_makes_no_call_and_auto_may(self, url: str) -> None:
        for choice, tools in (("none", [WEATHER]), ("none", None), ("auto", [WEATHER]), ("auto", None)):
            whole = answer(url, tools=tools, tool_choice=choice, max_tokens=3)
            assert choice == "auto" or not whole["choices"][0]["message"].get("tool_calls")

    @pytest.mark.parametrize(
        "choice", [{"type": "function", "function": {"name": "telepathy"}}, "sometimes", {"type": "function"}]
    )
    def test_m7_what_can_not_be_chosen_is_refused(self, url: str, choice: Any) -> None:
        response = post(url, tools=[WEATHER], tool_choice=choice)
        assert response.status_code == 400
        assert error_of(response)["param"].startswith("tool_choice")


class TestM9Pictures:
    def test_m9_a_picture_is_refused(self, url: str) -> None:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        response = post(url, messages=[{"role": "user", "content": [picture, *parts("This?")]}])
        assert response.status_code == 400
        error_of(response)
