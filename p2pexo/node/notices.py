"""What a person should know about this node, beyond what the overlay itself warns of."""

from networking.discovery import Sighting
from networking.ticket import Cluster
from p2pexo.engine.blas import Blas, BlasSource

MAX_STRANGERS = 8
"""Other clusters to speak of. Raise it on a network with many of them; each one is a line in every status."""


class Notices:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._strangers: dict[str, Sighting] = {}
        self._blas: Blas | None = None

    def add_stranger(self, sighting: Sighting) -> None:
        """A peer on the local network whose cluster isn't ours."""
        if sighting.fingerprint in self._strangers or len(self._strangers) < MAX_STRANGERS:
            self._strangers[sighting.fingerprint] = sighting

    def add_blas(self, blas: Blas) -> None:
        self._blas = blas

    def lines(self) -> tuple[str, ...]:
        strangers = (_stranger_line(each, self._cluster.name) for each in self._strangers.values())
        slow = self._blas is not None and self._blas.name == BlasSource.REFERENCE.value
        open_line = ("this cluster has no secret: everyone who reaches it can join and read along",)
        return (
            *(open_line if self._cluster.open else ()),
            *((self._blas.cost,) if self._blas and slow else ()),
            *strangers,
        )


def _stranger_line(sighting: Sighting, own: str) -> str:
    if sighting.cluster == own:
        return f"{sighting.peer[-8:]} on this network is in a cluster of our name, {own!r}, but has another secret"
    how = "run `p2pexo ticket` there and `p2pexo node --join TICKET` here"
    return f"another cluster is on this network: {sighting.cluster!r}; to join it, {how}"
