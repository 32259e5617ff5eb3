import pytest

from p2pexo.api.chat_wire import ChatStream, Envelope
from p2pexo.cli.chat_stream import ChatError, End, Note, Text, Usage, read_pieces
from p2pexo.generation.errors import RingBrokenError
from p2pexo.generation.events import Delta, Failed, Finished, FinishReason, Progress, Started, Waiting
from p2pexo.generation.events import Usage as ApiUsage

FINISH = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


def test_an_answer_is_notes_then_text_then_its_end():
    lines = [
        ": keep-alive",
        ": loading 40 %",
        "",
        'data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}',
        'data: {"choices":[{"index":0,"delta":{"content":"Grüße "}}],"usage":null}',
        'data:{"choices":[{"index":0,"delta":{"content":"🙂"}}]}',
        FINISH,
        'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}',
        "data: [DONE]",
    ]
    assert list(read_pieces(lines)) == [Note("loading 40 %"), Text("Grüße "), Text("🙂"), End("stop", Usage(9, 3))]


def test_an_answer_without_usage_still_ends():
    assert list(read_pieces([FINISH, "data: [DONE]"])) == [End("stop", None)]


def test_an_error_in_the_stream_is_raised_with_its_message_after_the_text_before_it():
    pieces = read_pieces(
        [
            'data: {"choices":[{"delta":{"content":"a"}}]}',
            'data: {"error":{"message":"a stage went away","type":"x"}}',
            "data: [DONE]",
        ]
    )
    assert next(pieces) == Text("a")
    with pytest.raises(ChatError, match="a stage went away"):
        next(pieces)


@pytest.mark.parametrize("lines", [[], ["data: [DONE]"], ['data: {"choices":[{"delta":{"content":"a"}}]}']])
def test_an_answer_that_breaks_off_never_looks_complete(lines: list[str]):
    with pytest.raises(ChatError, match="broke off"):
        list(read_pieces(lines))


def test_what_is_no_chunk_is_shown_in_the_error():
    with pytest.raises(ChatError, match="<html>"):
        list(read_pieces(["data: <html>"]))


def test_it_reads_what_the_api_writes():
    stream = ChatStream(Envelope("c1", 0, "a/b"), include_usage=True)
    events = [
        Waiting("loading 40 %"),
        Started(9),
        Progress(4, 9),
        Delta(0, (1, 2), "Grüße"),
        Delta(2, (3,), ""),
        Delta(3, (4,), " 🙂"),
        Finished(FinishReason.LENGTH, ApiUsage(9, 4)),
    ]
    lines = b"".join(stream.encode(event) for event in events).decode().split("\n")
    assert list(read_pieces(lines)) == [
        Note("loading 40 %"),
        Note("prefill 4/9"),
        Text("Grüße"),
        Text(" 🙂"),
        End("length", Usage(9, 4)),
    ]


def test_it_reads_the_failures_that_the_api_writes():
    stream = ChatStream(Envelope("c1", 0, "a/b"))
    lines = stream.encode(Failed(RingBrokenError("a stage went away").report())).decode().split("\n")
    with pytest.raises(ChatError, match="a stage went away"):
        list(read_pieces(lines))
