"""Nodes with the real HTTP face, a scripted generator and a cluster that follows a script, each in a thread of its own."""

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field
from scripted_generator import Script, ScriptedGenerator

from p2pexo.api.app import create_app
from p2pexo.api.guard import AccessRules
from p2pexo.api.server import serve
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.preview import PlacementOption, PlacementPreview, StagePreview
from p2pexo.cluster.snapshot import ClusterSnapshot, MemberView, PlacementView, StageView
from p2pexo.generation.errors import ModelNotFoundError
from p2pexo.generation.events import Delta, Event, Finished, FinishReason, Started, Usage, Waiting
from p2pexo.generation.request import Request
from p2pexo.models.card import Card

CARD = Card("tests/Parrot-135M", "1", "llama", 30, 576, 8192, 1, 1, 1, 1, description="repeats")


async def parrot(request: Request) -> AsyncIterator[Event]:
    """Says what the user said last, a word at a time."""
    words = request.messages[-1].content.split(" ")
    yield Waiting("loading the model")
    yield Started(7)
    for index, word in enumerate(words):
        yield Delta(index, (index,), word if index == 0 else f" {word}")
    yield Finished(FinishReason.STOP, Usage(7, len(words) + 1))


def placement(state: str, progress: float = 1.0, reason: str = "") -> PlacementView:
    stage = StageView(0, "peer-a", "studio", 0, 30, state, progress, "", 0, 0, "", "", "gpu")
    return PlacementView("p1", CARD.id, "1", "1.1.a", state, reason, True, (stage,))


def snapshot(*placements: PlacementView, api_urls: tuple[str, ...] = ("",)) -> ClusterSnapshot:
    members = tuple(
        MemberView(f"peer-{url}", "studio", "alive", True, False, "M3", "0.1", "gpu", 64, 40, 48, 0, url, (), ())
        for url in api_urls
    )
    return ClusterSnapshot("desk", "peer-a", "peer-a", 3, False, members, placements)


@define
class ScriptedCluster:
    story: list[ClusterSnapshot] = field(factory=lambda: [snapshot(placement("ready"))])
    """What is seen, one after another."""
    placed: list[PlaceCommand] = field(factory=list)
    deleted: list[str] = field(factory=list)
    left: list[str] = field(factory=list)

    def resolve_model(self, name: str) -> Card:
        if name.lower() in (CARD.id.lower(), "parrot-135m"):
            return CARD
        raise ModelNotFoundError(f"no model {name!r} here; known: {CARD.id}", param="model")

    def cards(self) -> tuple[Card, ...]:
        return (CARD,)

    async def place(self, command: PlaceCommand) -> str:
        self.placed.append(command)
        return "p1"

    async def preview(self, command: PlaceCommand) -> PlacementPreview:
        stage = StagePreview("peer-a", "mac-a", 0, 30, 90, 100)
        options = (PlacementOption(1, (stage,), 8192, note="mac-a: speed not measured yet"),)
        return PlacementPreview(command.model, options, chosen=1)

    async def delete(self, placement_id: str) -> None:
        if placement_id != "p1":
            raise ModelNotFoundError(f"no placement {placement_id!r}")
        self.deleted.append(placement_id)

    async def leave(self, node: str) -> str:
        self.left.append(node)
        return "peer-a"

    async def unload(self, model: str) -> None: ...

    def snapshot(self) -> ClusterSnapshot:
        return self.story[-1]

    async def snapshots(self) -> AsyncIterator[ClusterSnapshot]:
        for each in self.story:
            yield each
        await trio.sleep_forever()


@define
class Node:
    url: str
    generator: ScriptedGenerator
    cluster: ScriptedCluster
    stop: Callable[[], None]

    def knows(self, *others: "Node") -> None:
        """Tell clients where these nodes answer."""
        urls = tuple(other.url for other in others)
        self.cluster.story = [snapshot(placement("ready"), api_urls=urls)]


StartNode = Callable[..., Node]


@pytest.fixture
def start_node() -> Iterator[StartNode]:
    stops: list[Callable[[], None]] = []

    def start(script: Script = parrot, api_key: str | None = None) -> Node:
        generator, cluster = ScriptedGenerator(script), ScriptedCluster()
        url, stop = _run_in_thread(lambda: create_app(generator, cluster, AccessRules(api_key=api_key)))
        stops.append(stop)
        return Node(url, generator, cluster, stop)

    yield start
    for stop in stops:
        stop()


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


@pytest.fixture
def story() -> Callable[..., list[ClusterSnapshot]]:
    """What is seen of a cluster whose one placement goes through these states."""

    def tell(*states: str) -> list[ClusterSnapshot]:
        return [snapshot(*_placements(state)) for state in states]

    return tell


def _placements(state: str) -> tuple[PlacementView, ...]:
    if state == "absent":
        return ()
    return (placement(state, 0.5 if state == "loading" else 1.0, "a file is cut short" if state == "failed" else ""),)


@pytest.fixture
def dead_url() -> str:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _run_in_thread(make_app: Callable[[], Any]) -> tuple[str, Callable[[], None]]:
    started = threading.Event()
    address: list[str] = []
    cancel: list[Callable[[], None]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            token = trio.lowlevel.current_trio_token()
            cancel.append(lambda: token.run_sync_soon(nursery.cancel_scope.cancel))
            address.append(await nursery.start(partial(serve, make_app(), host="127.0.0.1", port=0)))
            started.set()

    thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
    thread.start()
    assert started.wait(10)

    def stop() -> None:
        if thread.is_alive():
            cancel[0]()
        thread.join(10)
        assert not thread.is_alive(), "the server didn't stop"

    return address[0], stop
