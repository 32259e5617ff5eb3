"""One list of models for OpenAI's clients, Anthropic's, and editors."""

from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic
from openai import OpenAI

MODEL = "tests/Parrot-135M"


def test_anthropics_client_reads_the_list(node: Any) -> None:
    client = Anthropic(base_url=node.url, api_key="none", max_retries=0)
    page = client.models.list()
    (model,) = page
    assert (model.id, model.type, model.display_name) == (MODEL, "model", "Parrot-135M")
    assert model.created_at.year >= 2024
    assert (page.has_more, page.first_id, page.last_id) == (False, MODEL, MODEL)
    assert client.models.retrieve("parrot-135m").id == MODEL
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nobody/nothing")


def test_openais_client_reads_the_list(node: Any) -> None:
    client = OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0)
    (model,) = client.models.list()
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "tests")
    assert isinstance(model.created, int)


def test_editors_find_the_context_length(node: Any) -> None:
    reply = httpx.get(f"{node.url}/v1/models").json()
    assert (reply["object"], reply["data"][0]["context_length"]) == ("list", 8192)
