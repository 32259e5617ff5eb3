"""A node's API on a real socket, with a scripted generator and a cluster of one sentence behind it."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, evolve, field
from scripted_generator import Script, ScriptedGenerator

from p2pexo.api.app import create_app
from p2pexo.api.guard import AccessRules
from p2pexo.api.picture_fetching import Pictures
from p2pexo.api.server import serve
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.preview import PlacementOption, PlacementPreview, StagePreview
from p2pexo.cluster.snapshot import ClusterSnapshot, MemberView, PlacementView, StageView
from p2pexo.generation.errors import GenerationError, InvalidRequestError, ModelNotFoundError
from p2pexo.generation.events import Delta, Event, Finished, FinishReason, Progress, Started, Usage, Waiting
from p2pexo.generation.request import Request
from p2pexo.models.card import Card

CARD = Card(
    id="tests/Parrot-135M",
    revision="1",
    architecture="llama",
    layers=30,
    hidden_size=576,
    context_length=8192,
    layer_bytes=3_000_000,
    embedding_bytes=28_000_000,
    head_bytes=28_000_000,
    kv_bytes_per_token=768,
)


async def parrot(request: Request) -> AsyncIterator[Event]:
    """Says what the user said last, a word at a time."""
    words = request.messages[-1].content.split(" ")
    yield Waiting("loading the model")
    yield Started(prompt_tokens=7)
    yield Progress(7, 7)
    for index, word in enumerate(words):
        yield Delta(index, (index,), word if index == 0 else f" {word}")
    yield Finished(FinishReason.STOP, Usage(7, len(words) + 1))


def snapshot() -> ClusterSnapshot:
    member = MemberView(
        peer="12D3KooWabc",
        name="studio <b>",
        state="alive",
        is_leader=True,
        is_me=True,
        machine="Apple M3 Max, 64 GB",
        version="0.1.0",
        device="gpu",
        memory_total=64 << 30,
        memory_free=40 << 30,
        memory_budget=48 << 30,
        memory_reserved=2 << 30,
        api_url="http://127.0.0.1:52415",
        addresses=("/ip4/127.0.0.1/tcp/1",),
        models=(CARD.id,),
    )
    stage = StageView(0, member.peer, member.name, 0, 30, "ready", 1.0, "", 80 << 20, 190 << 20, "", "", "gpu")
    placement = PlacementView("p1", CARD.id, "1", "1.1.abc", "ready", "", True, (stage,))
    return ClusterSnapshot("desk", member.peer, member.peer, 3, False, (member,), (placement,), ("a slow BLAS",))


@define
class FakeCluster:
    card: Card = CARD
    shown: ClusterSnapshot = field(factory=snapshot)
    placed: list[PlaceCommand] = field(factory=list)
    failure: GenerationError | None = None
    changes: int = 3

    def resolve_model(self, name: str) -> Card:
        if name.lower() in (CARD.id.lower(), "parrot-135m"):
            return self.card
        raise ModelNotFoundError(f"no model {name!r} here; known: {CARD.id}", param="model")

    def cards(self) -> tuple[Card, ...]:
        return (self.card,)

    async def place(self, command: PlaceCommand) -> str:
        if self.failure is not None:
            raise self.failure
        self.placed.append(command)
        return "p1"

    async def preview(self, command: PlaceCommand) -> PlacementPreview:
        stage = StagePreview("peer-a", "mac-a", 0, 30, 90, 100)
        options = (PlacementOption(1, (stage,), 8192, note="mac-a: speed not measured yet"),)
        return PlacementPreview(command.model, options, chosen=1)

    async def delete(self, placement_id: str) -> None:
        if placement_id != "p1":
            raise ModelNotFoundError(f"no placement {placement_id!r}")
        self.placed.clear()
        self.shown = evolve(self.shown, placements=())

    async def leave(self, node: str) -> str:
        if node not in ("", "mac-a"):
            raise InvalidRequestError(f"0 members are called {node!r}", param="node")
        return "peer-a"

    async def unload(self, model: str) -> None:
        kept = tuple(each for each in self.shown.placements if each.by_user or each.model != model)
        self.shown = evolve(self.shown, placements=kept)

    def snapshot(self) -> ClusterSnapshot:
        return self.shown

    async def snapshots(self) -> AsyncIterator[ClusterSnapshot]:
        for term in range(1, self.changes + 1):
            yield evolve(self.shown, term=term)
        await trio.sleep_forever()


@define
class Node:
    url: str
    generator: ScriptedGenerator
    cluster: FakeCluster
    stop: Callable[[], None]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


StartNode = Callable[..., Node]


@pytest.fixture
def start_node() -> Iterator[StartNode]:
    """Starts nodes in threads of their own; all are stopped, and their threads joined, at the end."""
    stops: list[Callable[[], None]] = []

    def start(
        script: Script = parrot,
        rules: AccessRules | None = None,
        sees: bool = False,
        pictures: Pictures | None = None,
        **options: Any,
    ) -> Node:
        generator, cluster = ScriptedGenerator(script), FakeCluster(evolve(CARD, sees=sees))
        url, stop = run_in_thread(lambda: create_app(generator, cluster, rules, pictures=pictures), **options)
        stops.append(stop)
        return Node(url, generator, cluster, stop)

    yield start
    for stop in stops:
        stop()


def run_in_thread(make_app: Callable[[], object], **options: Any) -> tuple[str, Callable[[], None]]:
    started = threading.Event()
    address: list[str] = []
    cancel: list[Callable[[], None]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            token = trio.lowlevel.current_trio_token()
            cancel.append(lambda: token.run_sync_soon(nursery.cancel_scope.cancel))
            run = partial(serve, make_app(), host="127.0.0.1", port=0, **options)
            address.append(await nursery.start(run))
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


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()
