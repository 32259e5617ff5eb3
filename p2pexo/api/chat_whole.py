"""OpenAI Chat Completions, outwards, for an answer that is not streamed. Pure."""

from collections.abc import Iterable

import orjson

from p2pexo.api.chat_wire import Envelope, openai_logprobs
from p2pexo.api.said import Said
from p2pexo.api.usage import openai_usage, total_usage
from p2pexo.generation.errors import EngineError, from_report
from p2pexo.generation.events import Delta, Event, Failed, Finished
from p2pexo.generation.request import Request


def gather(events: Iterable[Event], choices: int = 1) -> list[tuple[Said, Finished]]:
    """What each choice has said in the end. Raises the GenerationError that ended the answer, if one did."""
    said = [Said() for _ in range(choices)]
    for event in events:
        match event:
            case Delta() | Finished():
                said[event.choice].add(event)
            case Failed(error):
                raise from_report(error)
            case _:
                pass
    ended = [(each, each.end) for each in said if each.end is not None]
    if len(ended) < choices:
        raise EngineError("the answer ended without saying why")
    return ended


def completion(envelope: Envelope, events: Iterable[Event], request: Request, choices: int = 1) -> bytes:
    """The body of a whole answer. Raises the GenerationError that ended it, if one did."""
    said = gather(events, choices)
    usage = total_usage({index: end.usage for index, (_, end) in enumerate(said)}, choices)
    told = [_choice(index, each, end, request) for index, (each, end) in enumerate(said)]
    return orjson.dumps(envelope.around("chat.completion", choices=told, usage=openai_usage(usage)))


def _choice(index: int, said: Said, end: Finished, request: Request) -> dict[str, object]:
    return {
        "index": index,
        "message": _message(said),
        "logprobs": openai_logprobs(said.logprobs) if request.top_logprobs is not None else None,
        "finish_reason": end.reason.value,
    }


def _message(said: Said) -> dict[str, object]:
    text, reasoning = "".join(said.text), "".join(said.reasoning)
    message: dict[str, object] = {"role": "assistant", "content": text or (None if said.calls else ""), "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.arguments)}}
            for call in said.calls
        ]
    return message
