"""Pictures of a cluster, a client that talks to a function, and a fake node that is a real process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import evolve

from p2pexo.cli.client import Target, connect
from p2pexo.cli.fleet import NodePlan
from p2pexo.client import Client, ClusterState, Member, Placement, Stage

MEMBER = Member(
    peer="peer-1",
    name="node-1",
    state="alive",
    is_leader=False,
    is_me=False,
    machine="Linux x86_64, 2 cores",
    version="0.1.0",
    device="cpu",
    memory_total=8_000_000_000,
    memory_free=4_000_000_000,
    memory_budget=5_600_000_000,
    memory_reserved=100_000_000,
    api_url="http://127.0.0.1:52415",
    addresses=("/ip4/127.0.0.1/tcp/52416",),
    models=(),
)
STAGE = Stage(
    rank=0,
    peer="peer-1",
    node="node-1",
    first_layer=0,
    end_layer=10,
    phase="ready",
    progress=1.0,
    reason="",
    weight_bytes=40_000_000,
    resident_bytes=160_000_000,
    endpoint="127.0.0.1:40001",
    link="tls 127.0.0.1:40002",
    compute="cpu float32 openblas",
)


def make_member(number: int = 1, **changes: Any) -> Member:
    return evolve(MEMBER, **{"peer": f"peer-{number}", "name": f"node-{number}", "is_leader": number == 1} | changes)


def make_stage(rank: int = 0, **changes: Any) -> Stage:
    place = {"rank": rank, "peer": f"peer-{rank + 1}", "node": f"node-{rank + 1}"}
    return evolve(STAGE, **place | {"first_layer": 10 * rank, "end_layer": 10 * rank + 10} | changes)


def make_placement(state: str = "ready", stages: int = 3, **changes: Any) -> Placement:
    phase = {"phase": state, "progress": 1.0 if state == "ready" else 0.4}
    views = tuple(make_stage(rank, **phase) for rank in range(stages))
    placement = Placement("p1", "owner/model", "main", "1.1.abcdef", state, "", True, views)
    return evolve(placement, **changes)


def make_snapshot(count: int = 3, *placements: Placement, **changes: Any) -> ClusterState:
    views = tuple(make_member(number + 1) for number in range(count))
    snapshot = ClusterState("desk", "peer-1", "peer-1" if count else None, 1, False, views, placements)
    return evolve(snapshot, **changes)


class Make:
    """Factories for test data; ``make.snapshot(3, make.placement("loading"))``."""

    member = staticmethod(make_member)
    stage = staticmethod(make_stage)
    placement = staticmethod(make_placement)
    snapshot = staticmethod(make_snapshot)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def client_of() -> Iterator[Callable[[Callable[[httpx.Request], httpx.Response]], Client]]:
    """A client whose requests are answered by a function."""
    with ExitStack() as clients:

        def build(handler: Callable[[httpx.Request], httpx.Response], **target: Any) -> Client:
            return clients.enter_context(connect(Target(**target), httpx.MockTransport(handler)))

        yield build


@pytest.fixture
def fake_nodes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make the fleet start fake nodes that behave as named; see fake_node.py."""
    script = Path(__file__).with_name("fake_node.py")

    def use(behaviour: str) -> None:
        def command(plan: NodePlan) -> list[str]:
            return [sys.executable, "-S", str(script), behaviour, plan.name, str(plan.api_port), str(plan.home)]

        monkeypatch.setattr(NodePlan, "command", command)

    return use
