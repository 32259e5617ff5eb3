"""The id of each request, as the official SDKs read it."""

from typing import Any

import anthropic
import httpx
import openai
import pytest

MODEL = "tests/Parrot-135M"
HELLO: Any = [{"role": "user", "content": "hello"}]


def test_claudes_sdk_finds_it_on_answers_counts_and_streams(node: Any) -> None:
    client = anthropic.Anthropic(base_url=node.url, api_key="none", max_retries=0)
    message = client.messages.create(model=MODEL, max_tokens=9, messages=HELLO)
    count = client.messages.count_tokens(model=MODEL, messages=HELLO)
    with client.messages.stream(model=MODEL, max_tokens=9, messages=HELLO) as stream:
        streamed = stream.request_id
    ids = {message._request_id, count._request_id, streamed}
    assert len(ids) == 3
    assert all(each and each.startswith("req_") for each in ids)


def test_openais_sdk_finds_it_on_answers_streams_and_errors(node: Any) -> None:
    client = openai.OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0)
    chat = client.chat.completions.create(model=MODEL, messages=HELLO)
    response = client.responses.create(model=MODEL, input="hello")
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    streamed = stream.response.headers["x-request-id"]
    stream.close()
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="nobody", messages=HELLO)
    ids = {chat._request_id, response._request_id, streamed, error.value.request_id}
    assert len(ids) == 4
    assert all(each and each.startswith("req_") for each in ids)


def test_a_failure_of_claude_says_the_same_id_in_header_and_body(node: Any) -> None:
    answer = httpx.post(f"{node.url}/v1/messages", json={})
    assert answer.json()["request_id"] == answer.headers["request-id"]
