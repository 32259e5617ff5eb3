"""Spreads the requests for one model over its rings: what this node knows of each, and the choice. Pure: the time is handed in."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from attrs import define, field

from p2pexo.cluster.observed import Cluster
from p2pexo.engine.limits import Limits
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.plan import Epoch, Placement
from p2pexo.serving.choosing import Candidate, choose
from p2pexo.serving.prompts import Beginnings
from p2pexo.serving.settings import RouterSettings

Ring = tuple[str, Epoch]
_UNTOLD = Limits().running
"""The capacity of a ring that hasn't told its own yet."""


@define
class _Account:
    """One ring, as this node has used it."""

    sent: int = 0
    """Requests of this node that are there now."""
    lost_at: float | None = None
    beginnings: Beginnings = field(factory=Beginnings)
    _told: StageActivity | None = None
    _sent_when_told: int = 0

    def load(self, told: StageActivity | None) -> int:
        """What the ring told last, and what this node has sent there since: news take seconds, a burst comes at once."""
        if told != self._told:
            self._told, self._sent_when_told = told, self.sent
        requests = 0 if told is None else told.requests or 0
        return max(self.sent, requests + self.sent - self._sent_when_told)


class Balance:
    """For one model."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._accounts: dict[Ring, _Account] = {}

    def choose(
        self, cluster: Cluster, ready: Sequence[Placement], request_id: str, pieces: tuple[bytes, ...], now: float
    ) -> Placement:
        """Of several rings that are ready, the one to which a request goes now. ``pieces``: how its prompt begins."""
        self._forget_all_but(ready)
        candidates = [self._candidate(cluster, each, pieces) for each in self._trusted(cluster, ready, now)]
        return choose(candidates, request_id, self._settings.prefix_weight)

    @contextmanager
    def carrying(self, placement: Placement) -> Generator[None]:
        """A request of this node is at the ring while in the block."""
        account = self._account(placement)
        account.sent += 1
        try:
            yield
        finally:
            account.sent -= 1

    def answered(self, placement: Placement, pieces: tuple[bytes, ...]) -> None:
        """The ring has a prompt in its caches that begins so."""
        self._account(placement).beginnings.add(pieces)

    def lost(self, placement: Placement, now: float) -> None:
        """The ring broke a request, whatever the facts still say of it."""
        self._account(placement).lost_at = now

    def _trusted(self, cluster: Cluster, ready: Sequence[Placement], now: float) -> Sequence[Placement]:
        """Those that have broken no request lately, and no machine of which is silent; all, if there is none like that."""
        unbroken = [each for each in ready if not self._was_lost(each, now)]
        sound = [each for each in unbroken if all(cluster.is_alive(stage.peer) for stage in each.stages)]
        return sound or unbroken or ready

    def _was_lost(self, placement: Placement, now: float) -> bool:
        lost_at = self._account(placement).lost_at
        return lost_at is not None and now < lost_at + self._settings.distrust_s

    def _candidate(self, cluster: Cluster, placement: Placement, pieces: tuple[bytes, ...]) -> Candidate:
        account = self._account(placement)
        told = cluster.activities.get((placement.first_peer, placement.id, 0))
        return Candidate(
            placement,
            load=account.load(told),
            capacity=_UNTOLD if told is None or told.capacity is None else told.capacity,
            held=account.beginnings.held(pieces),
            is_here=placement.first_peer == cluster.me,
        )

    def _account(self, placement: Placement) -> _Account:
        return self._accounts.setdefault((placement.id, placement.epoch), _Account())

    def _forget_all_but(self, ready: Sequence[Placement]) -> None:
        """And those at which there are requests still: what is known of a ring ends with it."""
        rings = {(each.id, each.epoch) for each in ready}
        self._accounts = {ring: each for ring, each in self._accounts.items() if ring in rings or each.sent}
