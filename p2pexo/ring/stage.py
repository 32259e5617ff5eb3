"""What the worker and a stage process tell each other about the stage as a whole."""

from enum import StrEnum
from pathlib import Path

from attrs import field, frozen

from p2pexo.ring.activity import StageActivity
from p2pexo.ring.plan import Epoch, Placement

MAX_REASON_CHARACTERS = 500
"""A reason is gossiped to every node. Raise it and more of a crash is seen from afar; lower it and the facts are smaller."""


def shorten(reason: str) -> str:
    """At most ``MAX_REASON_CHARACTERS`` of it: how it begins, and how it ends, where a traceback says what happened."""
    reason = reason.encode(errors="replace").decode()  # a path may hold what is no character, and no JSON either
    if len(reason) <= MAX_REASON_CHARACTERS:
        return reason
    end = MAX_REASON_CHARACTERS // 2
    return f"{reason[: MAX_REASON_CHARACTERS - end - 3]} … {reason[-end:]}"


class StagePhase(StrEnum):
    STARTING = "starting"
    """The child process is importing."""
    LOADING = "loading"
    LISTENING = "listening"
    """Weights are in memory and the port is open; waits to be told its neighbours."""
    LINKING = "linking"
    READY = "ready"
    """Both links stand. A ring serves when all its stages are ready."""
    BROKEN = "broken"
    """A link is gone. Weights stay; waits for a new epoch."""
    FAILED = "failed"
    """Can't go on; ``reason`` says why."""


@frozen
class StageSpec:
    """Everything a stage process needs to load its layers."""

    placement: Placement
    rank: int
    directory: Path
    """An mlx-lm model directory that is complete."""
    listen_hosts: tuple[str, ...]
    """The hosts to listen on for the link from the previous stage, such as ``127.0.0.1``."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_last(self) -> bool:
        return self.rank == len(self.placement.stages) - 1


@frozen
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@frozen
class StageStatus:
    phase: StagePhase
    reason: str = field(default="", converter=shorten)
    progress: float = 0.0
    """Share of the weights loaded, 0 to 1."""
    epoch: Epoch | None = None
    """The epoch whose ring this stage has joined, or is joining."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where the previous stage may dial."""
    certificate: str = ""
    """PEM, made by the stage process itself; its key never leaves it."""
    weight_bytes: int = 0
    resident_bytes: int = 0
    """Of the whole process, as the system counts it."""
    link: str = ""
    """How it reaches the next stage, such as ``tls 127.0.0.1:41234``; for people."""
    compute: str = ""
    """Device, dtype and BLAS, such as ``cpu float32 openblas``; for people."""
    activity: StageActivity | None = None
    """Changes all the time, so it is told apart from the rest; None until its process has said something of it."""


@frozen
class Neighbours:
    """The two stages beside this one in the ring of an epoch. A ring of one has none: there only the epoch counts."""

    epoch: Epoch
    previous_certificate: str = ""
    next_certificate: str = ""
    next_endpoints: tuple[Endpoint, ...] = ()
    """To be dialled in this order."""
    cache_tokens: int = 0
    """Tokens of conversation for which every stage of the ring has room, counted in fp32; 0 if nothing is said of it."""
