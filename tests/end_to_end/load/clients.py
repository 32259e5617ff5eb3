"""Clients that carry visits out, and say how each of them went."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import cycle

import httpx
import trio
from attrs import define, field
from end_to_end.dialects import PATHS, told
from end_to_end.load.visits import Leave, Visit

HUNG_S = 180.0
"""After which a request is taken to hang. Long, since many wait for one another on two cores."""

REFUSALS = {
    "wrong_type": (400,),
    "unknown_model": (404,),
    "too_long": (400, 413),
    "bad_schema": (400,),
}
"""By what is wrong: the statuses that say so."""


class Outcome(StrEnum):
    ANSWERED = "answered"
    LEFT = "left"
    OVERLOADED = "overloaded"
    HUNG = "hung"
    UNEXPECTED = "unexpected"


@define
class Tally:
    outcomes: Counter[str] = field(factory=Counter[str])
    """Also by the kinds of refusals."""
    surprises: list[str] = field(factory=list[str])

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    def add(self, visit: Visit, outcome: str, what: str) -> None:
        self.outcomes[outcome] += 1
        if outcome in (Outcome.HUNG, Outcome.UNEXPECTED):
            self.surprises.append(what)
            print(f"{outcome}: {what}: {visit.dialect}, {visit.leave}, {json.dumps(visit.body)[:300]}", flush=True)


@define
class Clients:
    """Any number of them, on the nodes in turn."""

    urls: Sequence[str]
    tally: Tally = field(factory=Tally)
    _next_url: Iterator[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next_url = cycle(self.urls)

    async def perform(self, visit: Visit) -> None:
        url = next(self._next_url)
        try:
            with trio.fail_after(HUNG_S):
                outcome, what = await _perform(url, visit)
        except trio.TooSlowError:
            outcome, what = Outcome.HUNG, f"no end after {HUNG_S:g} s"
        except (httpx.HTTPError, AssertionError, ValueError, KeyError) as error:
            outcome, what = Outcome.UNEXPECTED, f"{type(error).__name__}: {error}"
        self.tally.add(visit, outcome, what)


async def _perform(url: str, visit: Visit) -> tuple[str, str]:
    if visit.leave is Leave.IN_BODY:
        return await _hang_up_in_body(url, visit)
    with trio.move_on_after(visit.leave_s if visit.leave is Leave.EARLY else HUNG_S + 1):
        async with (
            httpx.AsyncClient(timeout=None) as client,
            client.stream("POST", url + PATHS[visit.dialect], json=visit.body) as response,
        ):
            return await _read(response, visit)
    return Outcome.LEFT, ""


async def _read(response: httpx.Response, visit: Visit) -> tuple[str, str]:
    raw, pieces = "", 0
    async for text in response.aiter_text():
        raw, pieces = raw + text, pieces + 1
        if visit.leave is Leave.IN_ANSWER and response.status_code == 200 and pieces >= visit.leave_after:
            return Outcome.LEFT, ""
    return _judge(visit, response, raw)


def _judge(visit: Visit, response: httpx.Response, raw: str) -> tuple[str, str]:
    """Raises AssertionError and ValueError for an answer that isn't one of its dialect."""
    status = response.status_code
    if status in (503, 529):  # the latter is Claude's
        assert "retry-after" in response.headers, raw[:300]
        return Outcome.OVERLOADED, ""
    if visit.refused_as:
        is_refused = status in REFUSALS[visit.refused_as] and "error" in json.loads(raw)
        return (visit.refused_as, "") if is_refused else (Outcome.UNEXPECTED, f"{status} {raw[:300]}")
    if status != 200:
        return Outcome.UNEXPECTED, f"{status} {raw[:300]}"
    if not visit.streams:
        json.loads(raw)
        return Outcome.ANSWERED, ""
    stream = told(visit.dialect, raw)
    if stream.error is not None and _is_overload(stream.error):  # it had to wait in the stream
        return Outcome.OVERLOADED, ""
    is_answered = stream.is_complete and stream.error is None
    return (Outcome.ANSWERED, "") if is_answered else (Outcome.UNEXPECTED, f"the stream ended so: {raw[-300:]}")


def _is_overload(error: object) -> bool:
    return "are waiting for this model already" in json.dumps(error)


async def _hang_up_in_body(url: str, visit: Visit) -> tuple[str, str]:
    body = json.dumps(visit.body).encode()
    parts = httpx.URL(url)
    head = f"POST {PATHS[visit.dialect]} HTTP/1.1\r\nhost: {parts.host}\r\ncontent-type: application/json\r\n"
    stream = await trio.open_tcp_stream(parts.host, parts.port or 80)
    async with stream:
        await stream.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
    return Outcome.LEFT, ""
