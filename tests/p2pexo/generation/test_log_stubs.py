import json

import structlog
from structlog.typing import Processor

from p2pexo.generation.log_stubs import shorten
from p2pexo.generation.request import Message, PicturePart, Request, Role, ToolCall
from p2pexo.generation.text import Picture, PictureHash, Prompt

LONG = "y" * 5_000_000
PART = PicturePart("image/png", LONG, "f" * 64)


def a_request(*messages: Message) -> Request:
    return Request("r", "tests/model", messages)


def test_a_picture_is_a_stub_wherever_it_is_nested_and_whole_in_everything_else() -> None:
    request = a_request(Message(Role.USER, LONG, pictures=(PART,)))
    assert len(repr(request)) < 1000
    assert "data=Picture('yyyyyyyyyy'…), hash=PictureHash('ffffffffff'…)" in repr(request)
    template_message = {"role": "user", "content": [{"type": "image", "image": PART.data}, {"text": Prompt(LONG)}]}
    assert len(repr([template_message])) < 300
    assert str(PART.data) == LONG
    assert json.loads(json.dumps(template_message))["content"][0]["image"] == LONG
    assert PicturePart("image/png", Picture(LONG), PictureHash("f" * 64)) == PART
    assert len({PART, PicturePart("image/png", LONG, "f" * 64)}) == 1


def test_a_call_of_a_tool_and_thoughts_are_stubs_too() -> None:
    message = Message(Role.ASSISTANT, "", (ToolCall("c", "f", LONG),), reasoning=Prompt(LONG))
    assert len(repr(a_request(message))) < 1000


def logged(render: Processor, **values: object) -> str:
    return str(render(None, "debug", dict(shorten(None, "debug", {"event": "a request", **values}))))


def test_a_request_of_5_mb_leaves_less_than_2_kb_in_the_log() -> None:
    many = tuple(Message(Role.USER, "y" * 500, pictures=(PART,)) for _ in range(10_000))
    for request in (a_request(*many), a_request(Message(Role.USER, LONG)), Request("r" * 5_000_000, "m", ())):
        for rendering in (structlog.processors.JSONRenderer(), structlog.dev.ConsoleRenderer(colors=False)):
            assert len(logged(rendering, request=request).encode()) < 2000


def test_texts_in_a_value_of_a_log_line_are_stubs_even_in_json() -> None:
    line = logged(structlog.processors.JSONRenderer(), messages=[{"content": (Prompt(LONG), 3)}], prompt=Prompt(LONG))
    assert json.loads(line)["messages"] == [{"content": [repr(Prompt(LONG)), 3]}]
    assert json.loads(line)["prompt"] == repr(Prompt(LONG))


def test_other_values_stay_as_they_are() -> None:
    line = logged(
        structlog.processors.JSONRenderer(), count=3, ready=True, hosts=["a", "b"], reason="no room", gone=None
    )
    told = {"event": "a request", "count": 3, "ready": True, "hosts": ["a", "b"], "reason": "no room", "gone": None}
    assert json.loads(line) == told


def test_the_trace_of_an_error_stays_whole() -> None:
    assert shorten(None, "error", {"event": "e", "exception": "line\n" * 1000})["exception"] == "line\n" * 1000
