"""OpenAI Responses, outwards: events become server-sent events, or one response object. Pure.

The order, and every field, is that of the strict shape: what has no value is null, never left out.
"""

import time
from collections.abc import Callable, Iterable

import orjson
from attrs import define, field, frozen

from p2pexo.api.errors import openai_error
from p2pexo.api.responses import Asked, ResponsesCall
from p2pexo.api.responses_output import Item, Output, WireEvent
from p2pexo.api.sse import KEEP_ALIVE, data, event, meanwhile
from p2pexo.generation.errors import EngineError, ErrorReport, from_report
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Progress, Started, Usage, Waiting

DONE = data(b"[DONE]")

_FAILED_WITHOUT_A_CODE = "server_error"
"""What OpenAI calls a failure of its own inside a response."""


@frozen
class _State:
    """What changes in a response while it comes into being."""

    status: str
    output: list[Item] = field(factory=list[Item])
    completed_at: int | None = None
    usage: Usage | None = None
    incomplete_reason: str | None = None
    error: dict[str, object] | None = None


@define
class ResponsesStream:
    """One answer on its way out. ``encode`` is fed every event once, in order.

    ``clock`` gives Unix seconds. ``response`` is the whole object once the answer has come to its end.
    """

    call: ResponsesCall
    clock: Callable[[], float] = time.time
    response: bytes | None = field(default=None, init=False)
    output: Output = field(init=False)
    _created_at: int = field(init=False)
    _sequence_number: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.output = Output(self.call.request.id)
        self._created_at = int(self.clock())

    def encode(self, event: Event) -> bytes:
        """The bytes that tell this event; empty when there is nothing to tell yet."""
        begin = self._begin() if self._sequence_number == 0 else b""
        return begin + self._tell(event)

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def _tell(self, event: Event) -> bytes:
        match event:
            case Waiting() | Progress() | Started():
                return meanwhile(event)
            case Delta():
                return self._send_all(self.output.add(event))
            case Finished():
                return self._finish(event)
            case Failed(error):
                return self._fail(error)

    def _begin(self) -> bytes:
        response = self._response(_State("in_progress"))
        return self._send_all({"type": f"response.{kind}", "response": response} for kind in ("created", "in_progress"))

    def _finish(self, end: Finished) -> bytes:
        is_cut = end.reason is FinishReason.LENGTH
        closing = self._send_all(self.output.end(end))
        status = "incomplete" if is_cut else "completed"
        response = self._response(
            _State(
                status,
                self.output.items(),
                completed_at=None if is_cut else int(self.clock()),
                usage=end.usage,
                incomplete_reason="max_output_tokens" if is_cut else None,
            )
        )
        self.response = orjson.dumps(response)
        return closing + self._send({"type": f"response.{status}", "response": response}) + DONE

    def _fail(self, report: ErrorReport) -> bytes:
        """Two events, since no client reads both: SDKs raise the first, agents show the second."""
        error = openai_error(report)["error"]
        assert isinstance(error, dict)
        code = error["code"] if isinstance(error["code"], str) else _FAILED_WITHOUT_A_CODE
        told: dict[str, object] = {"code": code, "message": report.message}
        failed = self._response(_State("failed", self.output.items(), error=told))
        return (
            self._send({"type": "error", **told, "param": report.param, "error": error})
            + self._send({"type": "response.failed", "response": failed})
            + DONE
        )

    def _send_all(self, events: Iterable[WireEvent]) -> bytes:
        return b"".join(self._send(each) for each in events)

    def _send(self, wire: WireEvent) -> bytes:
        numbered = {"type": wire["type"], "sequence_number": self._sequence_number, **wire}
        self._sequence_number += 1
        return event(str(wire["type"]), orjson.dumps(numbered))

    def _response(self, state: _State) -> dict[str, object]:
        reason = state.incomplete_reason
        return {
            "id": self.call.request.id,
            "object": "response",
            "created_at": self._created_at,
            "completed_at": state.completed_at,
            "status": state.status,
            "background": False,
            "error": state.error,
            "incomplete_details": None if reason is None else {"reason": reason},
            "model": self.call.request.model,
            "output": state.output,
            "usage": None if state.usage is None else _usage(state.usage),
            "max_tool_calls": None,
            "service_tier": "default",
            "truncation": "disabled",
            **_repeated(self.call.asked),
        }


def whole_response(stream: ResponsesStream, events: Iterable[Event]) -> bytes:
    """The body of an answer that is not streamed. Raises the GenerationError that ended it, if one did."""
    for each in events:
        if isinstance(each, Failed):
            raise from_report(each.error)
        stream.encode(each)
    if stream.response is None:
        raise EngineError("the answer ended without saying why")
    return stream.response


def _repeated(asked: Asked) -> dict[str, object]:
    """The request as it was understood, defaults filled in: clients read their settings back from here."""
    return {
        "previous_response_id": asked.previous_response_id,
        "instructions": asked.instructions,
        "tools": asked.toolbox.repeated_tools,
        "tool_choice": asked.toolbox.repeated_choice,
        "parallel_tool_calls": asked.toolbox.choice.parallel,
        "text": asked.text.repeated,
        "reasoning": {"effort": asked.effort, "summary": asked.summary},
        "temperature": asked.sampling.temperature,
        "top_p": asked.sampling.top_p,
        "presence_penalty": asked.sampling.presence_penalty,
        "frequency_penalty": asked.sampling.frequency_penalty,
        "top_logprobs": asked.top_logprobs,
        "max_output_tokens": asked.max_output_tokens,
        "store": asked.store,
        "metadata": asked.metadata,
        "safety_identifier": asked.safety_identifier,
        "prompt_cache_key": asked.prompt_cache_key,
    }


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
