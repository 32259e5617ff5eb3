import pytest

from p2pexo.generation.codec import DecodeError, decode, decode_event, encode, encode_event
from p2pexo.generation.errors import EngineError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Progress, Started, Usage, Waiting
from p2pexo.generation.request import Message, Request, Role, Sampling, ToolCall
from p2pexo.generation.text import Prompt

EVENTS: list[Event] = [
    Waiting("loading layers 42 %"),
    Started(12),
    Progress(256, 1000),
    Delta(3, (17, 18), "né 🙂"),
    Delta(5, (19,), ""),
    Finished(FinishReason.LENGTH, Usage(12, 6)),
    Failed(EngineError("out of memory").report()),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_wire(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


def test_a_request_survives_the_wire_and_keeps_its_text_types() -> None:
    request = Request(
        id="chatcmpl-1",
        model="owner/name",
        messages=(
            Message(Role.SYSTEM, "be brief"),
            Message(Role.ASSISTANT, "", (ToolCall("call_1", "add", '{"a":1}'),)),
            Message(Role.TOOL, "3", tool_call_id="call_1"),
        ),
        sampling=Sampling(temperature=0.5, logit_bias=((7, -1.0),), seed=2**63),
        stop=("\n\n",),
        replayed_tokens=(1, 2, 3),
    )
    again = decode(encode(request), Request)
    assert again == request
    assert isinstance(again.messages[0].content, Prompt)


def test_unknown_fields_of_a_newer_peer_are_ignored() -> None:
    assert decode(b'{"prompt_tokens": 3, "invented_later": true}', Started) == Started(3)


@pytest.mark.parametrize(
    ("data", "said"), [(b"{", "not JSON"), (b"{}", "prompt_tokens"), (b'{"prompt_tokens": "many"}', "prompt_tokens")]
)
def test_bytes_that_are_something_else_are_refused_with_the_field(data: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode(data, Started)
