"""Short questions to a cluster whose nodes come and go, and what became of each."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import httpx
import trio
from attrs import define, field
from end_to_end.cluster import RealCluster, RealNode
from end_to_end.dialects import PATHS, told
from end_to_end.load.visits import Visit, short_visit

REFUSALS = (500, 503, 529)
"""What a request may get that was right: its ring was lost, or can't be had now. Whether a 500 was foreseen, logs tell."""
STRAY = 0.05
"""The share of requests that ask for any model, and so may have it placed. Raise it and there is less to place by hand."""
NONE_PLACED_S = 10.0
"""How long a client waits for any model to be placed by hand before it asks for one all the same."""
LOOK_EVERY_S = 0.1
AT_ONCE = 16
"""Requests. Raise it and more of them wait for a model that is being placed."""


@define
class Roster:
    """Which nodes can be asked, and which of them have been struck meanwhile."""

    cluster: RealCluster
    down: set[RealNode] = field(factory=set[RealNode])
    strikes: Counter[str] = field(factory=Counter[str])
    """By node, how often it was restarted."""
    wanted: set[str] = field(factory=set[str])
    """Models that are placed, and not about to be deleted."""

    @property
    def up(self) -> list[RealNode]:
        return [node for node in self.cluster.nodes if node not in self.down]

    def strike(self, node: RealNode) -> None:
        self.down.add(node)
        self.strikes[node.name] += 1


@define
class Asking:
    """The clients of a week."""

    roster: Roster
    models: Sequence[str]
    random: Random
    deadline_s: float
    answered: int = 0
    cut: int = 0
    hung: int = 0
    errors: Counter[str] = field(factory=Counter[str])
    surprises: list[str] = field(factory=list[str])

    @property
    def ended(self) -> int:
        return self.answered + self.cut + self.hung + self.errors.total() + len(self.surprises)

    async def run(self, count: int, seconds: float) -> None:
        begun, places = trio.current_time(), trio.CapacityLimiter(AT_ONCE)
        limits = httpx.Limits(max_keepalive_connections=0)
        async with (
            httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client,
            trio.open_nursery() as nursery,
        ):
            for number in range(count):
                await trio.sleep_until(begun + seconds * number / count)
                place = object()
                await places.acquire_on_behalf_of(place)
                visit = short_visit(self.random, await self._draw_model())
                nursery.start_soon(self._ask, client, self.random.choice(self.roster.up), visit, places, place)

    async def _draw_model(self) -> str:
        if self.random.random() < STRAY:
            return self.random.choice(self.models)
        for _ in range(round(NONE_PLACED_S / LOOK_EVERY_S)):
            if self.roster.wanted:
                break
            await trio.sleep(LOOK_EVERY_S)
        return self.random.choice(sorted(self.roster.wanted) or self.models)

    async def _ask(
        self, client: httpx.AsyncClient, node: RealNode, visit: Visit, places: trio.CapacityLimiter, place: object
    ) -> None:
        strikes = self.roster.strikes[node.name]
        try:
            with trio.fail_after(self.deadline_s):
                answer = await client.post(node.url + PATHS[visit.dialect], json=visit.body)
            self._note(visit, answer)
        except trio.TooSlowError:
            self.hung += 1
            _tell("hung", node, visit, f"no end after {self.deadline_s:g} s")
        except httpx.TransportError as error:
            if self.roster.strikes[node.name] > strikes:
                self.cut += 1
            else:
                self._surprise(node, visit, f"{type(error).__name__}: {error}")
        except (AssertionError, ValueError, KeyError) as error:
            self._surprise(node, visit, f"{type(error).__name__}: {error}")
        finally:
            places.release_on_behalf_of(place)

    def _note(self, visit: Visit, answer: httpx.Response) -> None:
        error = judge(visit, answer.status_code, answer.text)
        if error:
            self.errors[error] += 1
        else:
            self.answered += 1

    def _surprise(self, node: RealNode, visit: Visit, what: str) -> None:
        self.surprises.append(what)
        _tell("unexpected", node, visit, what)


def judge(visit: Visit, status: int, raw: str) -> str:
    """The error in a few words; empty for a whole answer. Raises AssertionError, ValueError or KeyError if it is neither."""
    if status != 200:
        assert status in REFUSALS, f"{status} {raw[:300]}"
        return f"{status} {_word(visit.dialect, json.loads(raw))}".strip()
    if not visit.streams:
        json.loads(raw)
        return ""
    stream = told(visit.dialect, raw)
    if stream.error is not None:
        return f"in the stream {_word(visit.dialect, stream.error)}".strip()
    assert stream.is_complete, f"the stream ended so: {raw[-300:]}"
    return ""


def _word(dialect: str, error: Mapping[str, Any]) -> str:
    """Ollama's errors have none."""
    if dialect == "ollama":
        assert error["error"]
        return ""
    return str(error["error"]["type" if dialect == "claude" else "code"])


def _tell(outcome: str, node: RealNode, visit: Visit, what: str) -> None:
    print(f"{outcome}: {node.name}: {what}: {visit.dialect}, {json.dumps(visit.body)[:300]}", flush=True)
