"""Models that come and go, and nodes that are restarted, while clients ask."""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from subprocess import TimeoutExpired
from typing import TypeVar

import httpx
import trio
from attrs import define, field
from end_to_end.cluster import RealNode, wait_for
from end_to_end.load.week_requests import Roster

from p2pexo.cluster.snapshot import ClusterSnapshot, PlacementView

T = TypeVar("T")

LOOK_EVERY_S = 0.3
STOP_S = 60.0
"""After SIGTERM. Long, since the machine is busy; how long it really took is told."""
START_TRIES = 6
PAUSE_S = 5.0
"""Between these; meanwhile a port may have become that of somebody's connection."""


@define
class Placing:
    """Places models, and deletes those that are placed."""

    roster: Roster
    models: Sequence[str]
    random: Random
    patience_s: float
    placed: int = 0
    """By hand or by a request, as far as they were met."""
    by_requests: int = 0
    """Of these."""
    deleted: int = 0
    failed: list[str] = field(factory=list[str])
    """Placements that ended by themselves, and why."""
    surprises: list[str] = field(factory=list[str])

    async def run(self, count: int, seconds: float) -> None:
        """``count`` placements, and as many deletions, as fast as is due."""
        begun, number = trio.current_time(), 0
        while self.placed < count or self.deleted < count:
            await trio.sleep_until(begun + seconds * min(number, 2 * count) / (2 * count))
            number += 1
            try:
                with trio.fail_after(self.patience_s):
                    await self._change(self.random.choice(self.models))
            except trio.TooSlowError:
                self._surprise(f"a change of placements took more than {self.patience_s:g} s")
        self.roster.wanted |= set(self.models)  # from now on requests have them placed

    async def clear(self) -> None:
        """Delete whatever is placed."""
        with trio.fail_after(self.patience_s):
            while placements := _held(await self._see()):
                for placement in placements:
                    await self._delete(placement.id)

    async def place(self, model: str, min_stages: int) -> str:
        """Returns its id once it is ready; empty if it came to nothing, or if a request had it placed otherwise meanwhile."""
        answer = await self._command("POST", "/v1/placements", json={"model": model, "min_stages": min_stages})
        if not answer.is_success:
            return ""
        placement_id: str = answer.json()["id"]
        while True:
            view = _find(await self._see(), placement_id)
            if view is not None and view.state == "ready":
                return placement_id
            if view is not None and view.state == "failed":
                self.failed.append(view.reason)
                print(f"failed: {model}: {view.reason}", flush=True)
                return ""
            await trio.sleep(LOOK_EVERY_S)

    async def _change(self, model: str) -> None:
        placed = next((each for each in _held(await self._see()) if each.model == model), None)
        if placed is not None:
            if model not in self.roster.wanted:
                self.placed += 1
                self.by_requests += 1
            self.roster.wanted.discard(model)
            await self._delete(placed.id)
            self.deleted += 1
        elif await self.place(model, self.random.randint(1, 2)):
            self.roster.wanted.add(model)
            self.placed += 1

    async def _delete(self, placement_id: str) -> None:
        await self._command("DELETE", f"/v1/placements/{placement_id}")
        while True:
            seen = [await _ask(node.snapshot) for node in self.roster.up]
            if not any(_is_held(each, placement_id) for each in seen):
                return
            await trio.sleep(LOOK_EVERY_S)

    async def _command(self, method: str, path: str, **more: object) -> httpx.Response:
        """Again and again, through any node, until it is answered: there may be no leader for a moment."""
        while True:
            url = self.random.choice(self.roster.up).url + path
            try:
                answer = await _ask(lambda: httpx.request(method, url, timeout=self.patience_s, **more))  # noqa: B023  # pyright: ignore[reportArgumentType]
            except httpx.TransportError:
                answer = None
            if answer is not None and not answer.is_server_error:
                return answer
            await trio.sleep(LOOK_EVERY_S)

    async def _see(self) -> ClusterSnapshot:
        while True:
            seen = await _ask(self.random.choice(self.roster.up).snapshot)
            if seen is not None:
                return seen
            await trio.sleep(LOOK_EVERY_S)

    def _surprise(self, what: str) -> None:
        self.surprises.append(what)
        print(f"unexpected: {what}", flush=True)


@define
class Restarting:
    """Restarts one node after the other."""

    roster: Roster
    random: Random
    witness: RealNode
    """Is spared in the second half."""
    restarts: int = 0
    stop_s: list[float] = field(factory=list[float])
    """After SIGTERM."""
    up_s: list[float] = field(factory=list[float])
    """From its start until a node answers."""
    in_step_s: list[float] = field(factory=list[float])
    """From its start until it shows what another one does."""
    surprises: list[str] = field(factory=list[str])

    async def run(self, count: int, seconds: float, half: Callable[[], None]) -> None:
        """``half`` is told when the second half begins."""
        begun = trio.current_time()
        for number in range(count):
            await trio.sleep_until(begun + seconds * number / count)
            if number == count // 2:
                half()
            spared = {self.witness} if number >= count // 2 else set[RealNode]()
            victims = [node for node in self.roster.cluster.nodes if node not in spared]
            try:
                await self._restart(self.random.choice(victims), is_killed=self.random.random() < 0.5)
            except AssertionError as error:
                self.surprises.append(str(error)[:300])
                print(f"unexpected: {error}", flush=True)

    async def _restart(self, node: RealNode, *, is_killed: bool) -> None:
        self.roster.strike(node)
        await trio.to_thread.run_sync(node.kill if is_killed else lambda: self._stop(node))
        begun = time.monotonic()
        await trio.to_thread.run_sync(start, node)
        self.up_s.append(time.monotonic() - begun)
        other = self.random.choice(self.roster.up)
        self.roster.down.discard(node)
        await trio.to_thread.run_sync(
            lambda: wait_for(f"{node.name} shows what {other.name} does", lambda: in_step(node, other))
        )
        self.in_step_s.append(time.monotonic() - begun)
        self.restarts += 1

    def _stop(self, node: RealNode) -> None:
        begun = time.monotonic()
        node.send(signal.SIGTERM)
        try:
            code = node.running.wait(STOP_S)
        except TimeoutExpired:
            node.kill()
            raise AssertionError(f"{node.name} had not ended {STOP_S:g} s after SIGTERM") from None
        self.stop_s.append(time.monotonic() - begun)
        assert code == 0, f"{node.name} ended with {code} after SIGTERM"


def start(node: RealNode) -> None:
    """Until it answers."""
    for tries_left in reversed(range(START_TRIES)):
        node.start()
        try:
            node.wait_until_up()
        except AssertionError as error:
            if "is taken" not in str(error) or not tries_left:
                raise
            time.sleep(PAUSE_S)
        else:
            return


def in_step(node: RealNode, other: RealNode) -> bool:
    with suppress(httpx.HTTPError):
        return _gist(node.snapshot()) == _gist(other.snapshot())
    return False


def _gist(seen: ClusterSnapshot) -> tuple[object, ...]:
    members = {(each.peer, each.name, each.machine) for each in seen.members}
    return seen.leader, seen.term, members, {(each.id, each.epoch) for each in _held(seen)}


async def _ask(question: Callable[[], T]) -> T | None:
    """None if there is no answer."""
    try:
        return await trio.to_thread.run_sync(question)
    except (httpx.HTTPError, ValueError):
        return None


def _held(seen: ClusterSnapshot) -> list[PlacementView]:
    return [each for each in seen.placements if each.state != "failed"]


def _is_held(seen: ClusterSnapshot | None, placement_id: str) -> bool:
    return seen is not None and any(each.id == placement_id for each in _held(seen))


def _find(seen: ClusterSnapshot, placement_id: str) -> PlacementView | None:
    return next((each for each in seen.placements if each.id == placement_id), None)
