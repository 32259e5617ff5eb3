"""Stored responses read again: their input items page by page, and their events once more."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from p2pexo.generation.events import Delta, Event, Finished, FinishReason, Started, ToolCallDelta, Usage
from p2pexo.generation.request import Request

MODEL = "tests/Parrot-135M"
TURNS: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
    {"type": "message", "role": "assistant", "content": "two"},
    {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "12"},
    {"role": "user", "content": "three"},
]


async def caller(request: Request) -> AsyncIterator[Event]:
    yield Started(7)
    yield Delta(0, (1,), "", reasoning="which city?")
    yield Delta(1, (2,), "Let me ")
    yield Delta(2, (3,), "look.")
    yield Delta(3, (4,), "", tool_calls=(ToolCallDelta(0, "call_1", "weather"),))
    yield Delta(4, (5,), "", tool_calls=(ToolCallDelta(0, arguments='{"city":"Ulm"}'),))
    yield Finished(FinishReason.LENGTH, Usage(7, 5))


def client_of(node: Any) -> OpenAI:
    return OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0)


def test_the_sdk_lists_what_a_response_was_asked(node: Any) -> None:
    client = client_of(node)
    response = client.responses.create(model=MODEL, input=TURNS)
    items: Any = list(client.responses.input_items.list(response.id, order="asc", limit=2))
    assert [item.type for item in items] == [each.get("type", "message") for each in TURNS]
    assert [item.content[0].text for item in items if item.type == "message"] == ["Be brief.", "one", "two", "three"]
    newest_first: Any = list(client.responses.input_items.list(response.id))
    assert [item.id for item in newest_first] == [item.id for item in reversed(items)]
    assert len({item.id for item in items}) == len(items)


def test_pages_end_where_the_items_do(node: Any) -> None:
    client = client_of(node)
    response = client.responses.create(model=MODEL, input=TURNS)
    first: Any = client.responses.input_items.list(response.id, order="asc", limit=4)
    assert (len(first.data), first.has_more) == (4, True)
    rest: Any = client.responses.input_items.list(response.id, order="asc", after=first.data[-1].id)
    assert (len(rest.data), rest.has_more) == (2, False)


def test_a_response_that_goes_on_lists_what_came_before_it(node: Any) -> None:
    client = client_of(node)
    first = client.responses.create(model=MODEL, input="one")
    second = client.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    items: Any = client.responses.input_items.list(second.id, order="asc").data
    assert [item.content[0].text for item in items] == ["one", "one", "two"]
    assert [item.role for item in items] == ["user", "assistant", "user"]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=nobody", "page=2"])
def test_a_wrong_query_is_refused_by_name(node: Any, query: str) -> None:
    id = client_of(node).responses.create(model=MODEL, input="one").id
    answer = httpx.get(f"{node.url}/v1/responses/{id}/input_items?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


def test_what_is_not_stored_has_no_items(node: Any) -> None:
    with pytest.raises(openai.NotFoundError):
        client_of(node).responses.input_items.list("resp_nobody")


def test_the_events_come_again(start_node: Any) -> None:
    client = client_of(start_node(caller))
    with client.responses.create(model=MODEL, input="weather?", stream=True) as stream:
        first = list(stream)
    end: Any = first[-1]
    again = list(client.responses.retrieve(end.response.id, stream=True))
    assert [event.sequence_number for event in again] == list(range(len(again)))
    # Only the pieces of the text are fewer.
    assert [each.type for each in again] == list(_without_repeats(each.type for each in first))
    for event in again:
        if event.type.endswith((".done", ".incomplete", ".created")):
            expected: Any = next(each for each in first if _same(each, event))
            assert event.model_copy(update={"sequence_number": 0}) == expected.model_copy(update={"sequence_number": 0})


def _without_repeats(types: Any) -> Any:
    before = None
    for each in types:
        if each != before:
            yield each
        before = each


def _same(one: Any, other: Any) -> bool:
    return (one.type, getattr(one, "output_index", None)) == (other.type, getattr(other, "output_index", None))


def test_a_stream_that_broke_goes_on_after_its_last_event(node: Any) -> None:
    client = client_of(node)
    id = client.responses.create(model=MODEL, input="one two").id
    whole = list(client.responses.retrieve(id, stream=True))
    assert list(client.responses.retrieve(id, stream=True, starting_after=3)) == whole[4:]


@pytest.mark.parametrize("query", ["stream=yes", "starting_after=3", "stream=true&starting_after=x", "foo=1"])
def test_a_wrong_wish_to_stream_is_refused_by_name(node: Any, query: str) -> None:
    id = client_of(node).responses.create(model=MODEL, input="one").id
    answer = httpx.get(f"{node.url}/v1/responses/{id}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in query
