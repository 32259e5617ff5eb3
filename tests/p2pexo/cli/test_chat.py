import io
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from rich.console import Console

from p2pexo.cli.answer import AnswerScreen, stream_answer, summary
from p2pexo.cli.chat import Conversation, choose_model
from p2pexo.client import Answer, Choice, Collector, Finished, Note, Text, UnavailableError, Usage
from p2pexo.generation.codec import encode

FINISH = 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def says(text: str) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n"


class FakeModel:
    """Answers with what it was asked last, in capitals; remembers what it was sent."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, str]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        messages = json.loads(request.content)["messages"]
        self.asked.append(messages)
        if messages[-1]["content"] == "fail":
            return httpx.Response(503, json={"error": {"message": "no ring"}})
        return httpx.Response(200, text=says(messages[-1]["content"].upper()) + FINISH)


def typed(*lines: str | type[BaseException]) -> Callable[[], str]:
    """What a person types, then the end of the input."""
    script: Iterator[str | type[BaseException]] = iter([*lines, EOFError])

    def read() -> str:
        line = next(script)
        if isinstance(line, str):
            return line
        raise line

    return read


@pytest.fixture
def talk(client_of, capsys: pytest.CaptureFixture[str]):
    """Hold a conversation with a fake model; what was sent to it, what the person was told, and what was written."""

    def run(*lines: str | type[BaseException], handler=None, system: str | None = None, terminal: bool = True):
        model, remarks = FakeModel(), io.StringIO()
        console = Console(file=remarks, force_terminal=terminal, no_color=True, width=200)
        Conversation(client_of(handler or model), "a/b", system, console).run(typed(*lines))
        return model.asked, remarks.getvalue(), capsys.readouterr().out

    return run


def contents(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages]


def test_every_question_is_sent_with_what_was_said_before(talk):
    asked, _, written = talk("one", "two", system="be brief")
    assert [contents(messages) for messages in asked] == [["be brief", "one"], ["be brief", "one", "ONE", "two"]]
    assert [message["role"] for message in asked[1]] == ["system", "user", "assistant", "user"]
    assert written == "ONE\nTWO\n"


def test_clear_forgets_all_but_the_system_prompt(talk):
    asked, _, _ = talk("one", "/clear", "two", system="be brief")
    assert contents(asked[1]) == ["be brief", "two"]


@pytest.mark.parametrize("leave", ["/exit", "/quit", "  /exit  "])
def test_exit_leaves(talk, leave: str):
    asked, _, _ = talk(leave, "never asked")
    assert asked == []


def test_empty_lines_and_unknown_commands_ask_nothing(talk):
    asked, remarks, _ = talk("", "   ", "/what")
    assert asked == []
    assert "/exit" in remarks


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_goes_on(talk):
    asked, remarks, _ = talk(KeyboardInterrupt, "one")
    assert len(asked) == 1
    assert "/exit" in remarks


def test_a_failed_answer_is_told_and_forgotten(talk):
    asked, remarks, _ = talk("one", "fail", "two")
    assert "no ring" in remarks
    assert contents(asked[2]) == ["one", "ONE", "two"]


def test_in_a_pipe_a_failed_answer_ends_it_and_nothing_but_answers_is_written(talk):
    with pytest.raises(UnavailableError, match="no ring"):
        talk("fail", terminal=False)
    _, remarks, written = talk("one", "/what", terminal=False)
    assert (remarks, written) == ("", "ONE\n")


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said(talk):
    class Interrupted(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield says("half an ans").encode()
            raise KeyboardInterrupt

    asked: list[list[dict[str, str]]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["messages"])
        return httpx.Response(200, stream=Interrupted()) if len(asked) == 1 else httpx.Response(200, text=FINISH)

    _, remarks, written = talk("one", "two", handler=handle)
    assert "stopped" in remarks
    assert written.startswith("half an ans\n")
    assert contents(asked[1]) == ["one", "half an ans", "two"]


@pytest.mark.parametrize(("placed", "chosen"), [("ready", "owner/model"), ("loading", "first/known")])
def test_without_a_name_the_model_that_is_ready_is_chosen(client_of, make, placed: str, chosen: str):
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "first/known"}]})
        return httpx.Response(200, content=encode(make.snapshot(3, make.placement(placed))))

    assert choose_model(client_of(handle)) == chosen


def test_an_answer_is_summed_up_with_its_speed():
    answer = Answer((Choice("abc", finish_reason="stop"),), Usage(5, 5), first_token_s=2.0, speaking_s=2.0)
    assert summary(answer) == "5 tokens, 2.0 tokens per second, first token after 2.00 s"


def test_what_is_not_known_of_an_answer_is_left_out():
    assert summary(Answer((Choice(finish_reason="stop"),), Usage(5, 0))) == "0 tokens"
    assert summary(Answer((Choice("half"),), first_token_s=1.0)) == "first token after 1.00 s"


def test_an_answer_that_was_cut_says_so():
    answer = Answer((Choice("a", finish_reason="length"),), Usage(5, 1), first_token_s=1.0)
    assert summary(answer) == "1 tokens, first token after 1.00 s, cut at the length limit"


def test_on_a_terminal_the_remarks_of_the_node_are_shown_until_text_comes(capsys: pytest.CaptureFixture[str]):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    events = [Note("loading [40%]"), Text("[b]hi[/b]"), Note("too late"), Finished("stop", Usage())]
    stream_answer(events, Collector(), AnswerScreen(console))
    assert "loading [40%]" in shown.getvalue()
    assert "too late" not in shown.getvalue()
    assert capsys.readouterr().out == "[b]hi[/b]\n"
