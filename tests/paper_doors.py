"""Doors of paper for a node to knock at: who answers how, and when it rang where."""

from collections.abc import Awaitable, Callable

import trio
from attrs import define, evolve, field

from networking.charter import Charter
from networking.discovery import Sighting
from networking.pairing import PairingError, Party
from networking.pairing_client import Door, Question, ShowCode
from networking.pairing_messages import Admission, Purpose
from networking.ticket import Cluster
from networking.transport import Address, PeerId
from p2pexo.cluster.facts import Asking
from p2pexo.node.belonging import Belonging
from p2pexo.node.newcomer import Newcomer
from p2pexo.node.shut_out import ShutOut

ME, STUDIO, MINI = PeerId("me"), PeerId("studio"), PeerId("mini")
OWN = Charter(Cluster("own", b"o" * 32), fresh=True)
DESK, ATTIC = Cluster("desk", b"d" * 32), Cluster("attic", b"a" * 32)
Behaviour = Callable[[ShowCode], Awaitable[Admission]]


def member(cluster: Cluster, peer: PeerId = STUDIO, members: int = 2, host: str = "10.0.0.1") -> Sighting:
    address = Address(f"/ip4/{host}/tcp/1")
    return Sighting(peer, (address,), cluster.name, cluster.fingerprint, 2, members, 4000)


async def for_ever(show: ShowCode) -> Admission:
    show("desk", "042 917")
    await trio.sleep_forever()
    raise AssertionError


def lets_in(cluster: Cluster = DESK, **more: object) -> Behaviour:
    async def admit(show: ShowCode) -> Admission:
        show(cluster.name, "042 917")
        await trio.sleep(1)
        return evolve(Admission(cluster.name, cluster.secret, 0), **more)

    return admit


def says_no(error: PairingError) -> Behaviour:
    async def refuse(show: ShowCode) -> Admission:
        await trio.sleep(1)
        raise error

    return refuse


@define
class Street:
    """The doors, by host; each ring at one is noted with its time."""

    belonging: Belonging
    doors: dict[str, Behaviour] = field(factory=dict)
    rings: list[tuple[float, str, Purpose]] = field(factory=list)
    shown: list[Asking | None] = field(factory=list)
    dialled: list[tuple[PeerId, tuple[Address, ...]]] = field(factory=list)
    here: set[PeerId] = field(factory=set)
    node: Newcomer = field(init=False)
    shut_out: ShutOut = field(init=False)

    async def ask(self, party: Party, door: Door, question: Question, show: ShowCode) -> Admission:
        self.rings.append((trio.current_time(), door.host, question.purpose))
        return await self.doors[door.host](show)

    @property
    def hosts(self) -> list[str]:
        return [host for _, host, _ in self.rings]


Play = Callable[..., None]
