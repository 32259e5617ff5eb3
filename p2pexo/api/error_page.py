"""Writes docs/errors.md from the table that the code uses: ``python -m p2pexo.api.error_page > docs/errors.md``."""

from collections.abc import Iterator

from p2pexo.api.dialects import Dialect
from p2pexo.api.errors import FAULTS, NOT_STORED, TOO_LARGE, WRONG_KEY, Fault, fault_of_status

MEANINGS = {
    "invalid_request": "the request is wrong: not JSON, a wrong type, a value out of range",
    "unsupported_parameter": "a parameter that is legal in the dialect, and not offered here",
    "context_length_exceeded": "the prompt doesn't fit the model's context",
    "model_not_found": "nobody here knows a model, or a placement, of that name",
    "unavailable": "not now: no leader yet, the ring is being formed, the node stops",
    "overloaded": "too many requests are running or waiting",
    "insufficient_memory": "the model doesn't fit the machines that are here",
    "engine": "the engine failed while it worked on this request",
    "ring_broken": "a stage of the ring went away in the middle of the answer, and no ring could be formed to go on with it",
    "placement_deleted": "somebody stopped the model while it answered",
    "internal": "nobody foresaw it; the node's log has the trace",
}
"""By kind of GenerationError."""

REFUSALS = {
    "no valid HTTP/1.1 request, or none with a `Host`": fault_of_status(400),
    "the API key is missing or wrong": WRONG_KEY,
    "a foreign `Host` or `Origin`": fault_of_status(403),
    "no such route": fault_of_status(404),
    "a stored response that is not there": NOT_STORED,
    "the wrong method": fault_of_status(405),
    "the body took too long to come": fault_of_status(408),
    "the body is larger than 64 MiB, packed or unpacked": TOO_LARGE,
    "the body is packed with something else than gzip": fault_of_status(415),
    "the header is larger than 16 KiB": fault_of_status(431),
    "a route of Ollama's that is not offered, such as pull and embed": fault_of_status(501),
}
"""What the HTTP floor refuses by itself, before the request means anything."""

_HEAD = """\
# Errors

This page is written by `python -m p2pexo.api.error_page` from the table that the code uses.

Every error is JSON, in the form of the dialect whose route was asked:

| dialect | body |
|---|---|
| OpenAI (Chat, Completions, Responses, and all routes that are no dialect's) | `{"error": {"message", "type", "param", "code"}}` |
| Claude (`/v1/messages…`) | `{"type": "error", "error": {"type", "message"}, "request_id"}` |
| Ollama (`/api/…`, `/ollama/api/…`) | `{"error": "the message"}` |

`param` names the field at fault. An error with a meaning of its own has OpenAI's words for it; one that only has a status carries the
status: its phrase as `type`, its number as `code`. `retry-after` (seconds) is sent where trying again helps, and `x-should-retry: false` with a
5xx where it doesn't.

| what | kind | status | OpenAI `type` | OpenAI `code` | Claude `type` | retry |
|---|---|---|---|---|---|---|
"""

_TAIL = """
## Before and in a stream

A call that doesn't stream gets the status above, whenever the failure comes. So does a stream that fails before its first token, within one
second; headers are held that long. Later the status is 200 already, and the failure is told once, as the last thing:

| dialect | in the stream |
|---|---|
| Chat, Completions | `data: {"error": {…}}`, then `data: [DONE]`; no `finish_reason` |
| Responses | an `error` event, then `response.failed` |
| Claude | `event: error` with the body above |
| Ollama | a line `{"error": "the message"}`; no `"done": true` |

Text that was sent before stays. `type` and `code` are the same as before the stream, but for `response.failed`: where the
code is a number, it says `server_error`. An answer that ends without its `finish_reason`,
`response.completed`, `message_stop` or `"done": true` is not complete.
"""


def render() -> str:
    return _HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in _rows()) + _TAIL


def _rows() -> Iterator[tuple[str, ...]]:
    for kind, fault in FAULTS.items():
        yield MEANINGS[kind], f"`{kind}`", *_cells(fault), _retry(fault)
    for meaning, fault in REFUSALS.items():
        yield meaning, "–", *_cells(fault), "–"


def _cells(fault: Fault) -> tuple[str, str, str, str]:
    code = fault.openai.code
    told = "–" if code is None else f"`{code}`"
    return _status(fault), f"`{fault.openai.type}`", told, f"`{fault.claude}`"


def _status(fault: Fault) -> str:
    claudes = fault.status_in(Dialect.CLAUDE)
    return f"{fault.status}" if claudes == fault.status else f"{fault.status}; Claude: {claudes}"


def _retry(fault: Fault) -> str:
    if fault.retry_after_s is not None:
        return f"after {fault.retry_after_s} s"
    return "no" if fault.status >= 500 else "–"


if __name__ == "__main__":
    print(render(), end="")
