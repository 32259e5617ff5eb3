"""Events as the wire events and objects of the Responses dialect. Pure."""

import json
from typing import Any

import pytest

from p2pexo.api.fields import Fields
from p2pexo.api.responses import read_responses
from p2pexo.api.responses_output import response_id_of
from p2pexo.api.responses_wire import ResponsesStream, whole_response
from p2pexo.generation.errors import ContextLengthError, EngineError, GenerationError, OverloadedError
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Likelihood,
    Progress,
    Started,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
    Waiting,
)
from p2pexo.models.card import Card

CARD = Card("owner/Model", "1", "llama", 1, 1, 1, 1, 1, 1, 1)
USAGE = Usage(7, 3, cached_tokens=2, reasoning_tokens=1)
STOP = Finished(FinishReason.STOP, USAGE)
CUT = Finished(FinishReason.LENGTH, USAGE)
FIELDS = frozenset(
    {
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "incomplete_details",
        "model",
        "previous_response_id",
        "instructions",
        "output",
        "error",
        "tools",
        "tool_choice",
        "truncation",
        "parallel_tool_calls",
        "text",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "temperature",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "store",
        "background",
        "service_tier",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
    }
)


def wire(**fields: Any) -> ResponsesStream:
    body = Fields({"model": "m", "input": "hi", **fields})
    return ResponsesStream(read_responses(body, lambda _: CARD, "resp_node_abc"), clock=lambda: 1000.9)


def text(piece: str, **more: Any) -> Delta:
    return Delta(0, (1,), piece, **more)


def tell(*events: Event) -> list[dict[str, Any]]:
    """The wire events; their names, numbers and the end of the stream are looked at here."""
    stream = wire()
    blocks = b"".join(stream.encode(event) for event in events).decode().split("\n\n")
    blocks = [block for block in blocks if block and not block.startswith(":")]
    assert blocks.pop() == "data: [DONE]"
    told: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        name, data = block.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
        assert told[-1]["sequence_number"] == number
    return told


def types(told: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


def whole(*events: Event, **fields: Any) -> dict[str, Any]:
    return json.loads(whole_response(wire(**fields), events))


def test_the_events_of_a_text_come_in_order() -> None:
    told = tell(Waiting("loading"), Started(7), Progress(7, 7), text("Hel"), text(""), text("lo"), STOP)
    assert types(told) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    added, part, first, _, done, part_done, item_done, completed = told[2:]
    assert added["item"] == {
        "id": "msg_node_abc_0",
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    assert part["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert (first["delta"], first["logprobs"], first["content_index"]) == ("Hel", [], 0)
    assert (done["text"], part_done["part"]["text"]) == ("Hello", "Hello")
    assert item_done["item"]["status"] == "completed"
    assert completed["response"]["output"] == [item_done["item"]]


def test_reasoning_text_and_calls_are_items_of_their_own() -> None:
    told = tell(
        text("", reasoning="hm"),
        text("", reasoning="m"),
        text("Looking."),
        text("", tool_calls=(ToolCallDelta(0, "call_1", "weather"),)),
        text("", tool_calls=(ToolCallDelta(0, arguments='{"a"'), ToolCallDelta(0, arguments=":1}"))),
        text("", tool_calls=(ToolCallDelta(1, "call_2", "clock", "{}"),)),
        Finished(FinishReason.TOOL_CALLS, USAGE),
    )
    assert types(told)[2:-1] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    reasoning, message, first, second = told[-1]["response"]["output"]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "hmm"}]
    assert message["content"][0]["text"] == "Looking."
    assert (first["call_id"], first["name"], first["arguments"]) == ("call_1", "weather", '{"a":1}')
    assert (second["call_id"], second["name"], second["arguments"]) == ("call_2", "clock", "{}")
    assert told[-1]["response"]["status"] == "completed"


def test_ids_and_places_are_the_same_throughout() -> None:
    told = tell(text("", reasoning="hm"), text("a"), text("", tool_calls=(ToolCallDelta(0, "c", "f", "{}"),)), STOP)
    final = told[-1]["response"]["output"]
    ids = [item["id"] for item in final]
    assert ids == ["rs_node_abc_0", "msg_node_abc_1", "fc_node_abc_2"]
    for event in told:
        if "item_id" in event:
            assert event["item_id"] == ids[event["output_index"]]
        elif "item" in event:
            assert event["item"]["id"] == ids[event["output_index"]]
    responses = [event["response"] for event in told if "response" in event]
    assert {(each["id"], each["created_at"], each["model"]) for each in responses} == {
        ("resp_node_abc", 1000, "owner/Model")
    }


def test_an_item_leads_back_to_its_response() -> None:
    assert response_id_of("msg_node_abc_12") == "resp_node_abc"
    assert response_id_of("nonsense") == "resp_"


@pytest.mark.parametrize("events", [(STOP,), (CUT,), (Failed(EngineError("x").report()),)])
def test_every_response_has_every_field(events: tuple[Event, ...]) -> None:
    for event in tell(text("a"), *events):
        if "response" in event:
            assert set(event["response"]) == FIELDS


def test_a_cut_answer_is_incomplete_and_says_why() -> None:
    told = tell(text("Hal"), CUT)
    response = told[-1]["response"]
    assert types(told)[-1] == "incomplete"
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["status"] == "incomplete"
    assert response["completed_at"] is None


def test_a_call_cut_by_the_limit_keeps_what_there_is() -> None:
    told = tell(text("", tool_calls=(ToolCallDelta(0, "c", "f", '{"a'),)), CUT)
    (item,) = told[-1]["response"]["output"]
    assert (item["status"], item["arguments"]) == ("incomplete", '{"a')


def test_an_answer_without_a_word_is_an_empty_message() -> None:
    (item,) = tell(text(""), STOP)[-1]["response"]["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


def test_usage_is_counted_in_detail() -> None:
    assert whole(text("a"), STOP)["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 10,
    }


def test_a_failure_is_an_error_event_and_then_a_failed_response() -> None:
    told = tell(text("half"), Failed(EngineError("stage 1 is gone").report()))
    error, failed = told[-2:]
    assert error == {
        "type": "error",
        "sequence_number": len(told) - 2,
        "code": "server_error",
        "message": "stage 1 is gone",
        "param": None,
        "error": {"message": "stage 1 is gone", "type": "InternalServerError", "param": None, "code": 500},
    }
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "stage 1 is gone"}
    assert failed["response"]["output"][0]["content"][0]["text"] == "half"
    assert failed["response"]["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("failure", "code"),
    [(ContextLengthError("too long"), "context_length_exceeded"), (OverloadedError("full"), "overloaded")],
)
def test_a_failure_with_a_meaning_keeps_its_code(failure: GenerationError, code: str) -> None:
    error, failed = tell(Waiting("in line"), Failed(failure.report()))[-2:]
    assert error["code"] == error["error"]["code"] == failed["response"]["error"]["code"] == code


def test_a_failure_before_the_stream_is_raised() -> None:
    with pytest.raises(OverloadedError):
        whole(Failed(OverloadedError("full").report()))


def test_an_answer_without_an_end_is_an_error() -> None:
    with pytest.raises(EngineError):
        whole(text("a"))


def test_the_whole_response_is_the_last_of_the_stream() -> None:
    events = (text("", reasoning="hm"), text("Hello"), STOP)
    assert whole(*events) == tell(*events)[-1]["response"]


def test_waiting_and_prefill_are_told_as_comments() -> None:
    stream = wire()
    stream.encode(Started(7))
    assert stream.encode(Waiting("loading\nlayers")) == b": loading layers\n\n"
    assert stream.encode(Progress(3, 7)) == b": prefill 3/7\n\n"


def test_the_request_is_repeated_with_its_defaults() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    response = whole(
        text("{}"),
        STOP,
        instructions="be kind",
        tools=[{"type": "function", "name": "f"}, {"type": "mcp"}],
        tool_choice={"type": "function", "name": "f"},
        text={"format": form},
        reasoning={"effort": "low"},
        metadata={"a": "b"},
        max_output_tokens=5,
        store=False,
        truncation="auto",
    )
    assert response["instructions"] == "be kind"
    assert response["tools"] == [
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": False}
    ]
    assert response["tool_choice"] == {"type": "function", "name": "f"}
    assert response["text"]["format"] == {**form, "description": None}
    assert response["reasoning"] == {"effort": "low", "summary": None}
    assert (response["metadata"], response["max_output_tokens"], response["store"]) == ({"a": "b"}, 5, False)
    assert (response["temperature"], response["top_p"], response["truncation"]) == (1.0, 1.0, "disabled")


class TestLogprobs:
    HE = Likelihood(1, "He", (72, 101), -0.1)
    LLO = Likelihood(2, "llo", (108, 108, 111), -0.2)
    WIRE_HE = {"token": "He", "bytes": [72, 101], "logprob": -0.1}  # noqa: RUF012
    WIRE_LLO = {"token": "llo", "bytes": [108, 108, 111], "logprob": -0.2}  # noqa: RUF012

    def test_they_stand_at_the_text_they_belong_to(self) -> None:
        told = tell(text("He", logprobs=(TokenLogprobs(self.HE, (self.HE, self.LLO)),)), STOP)
        expected = [{**self.WIRE_HE, "top_logprobs": [self.WIRE_HE, self.WIRE_LLO]}]
        assert told[4]["logprobs"] == told[5]["logprobs"] == expected
        assert told[-1]["response"]["output"][0]["content"][0]["logprobs"] == expected

    def test_those_of_text_that_is_held_back_come_with_it(self) -> None:
        told = tell(
            text("", logprobs=(TokenLogprobs(self.HE),)), text("Hello", logprobs=(TokenLogprobs(self.LLO),)), STOP
        )
        assert [each["token"] for each in told[4]["logprobs"]] == ["He", "llo"]

    def test_those_of_thoughts_are_not_told(self) -> None:
        told = tell(text("", reasoning="hm", logprobs=(TokenLogprobs(self.HE),)), text("x"), STOP)
        assert told[-1]["response"]["output"][1]["content"][0]["logprobs"] == []
