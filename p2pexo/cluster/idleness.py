"""How long a ring that requests brought about may stay when nobody uses it. Pure; ``idle_rings`` acts on it."""

from math import inf

from attrs import evolve, frozen

from p2pexo.ring.plan import Epoch

FIRST_USE_WITHIN_S = 60.0
"""How long a ring that was just formed waits at least for its first use. Raise it and one that nobody came back for holds its
memory for longer; lower it and a short keep-alive may end a ring before those that wait for it have come."""


@frozen
class Stay:
    """One ring, as the node of its stage 0 sees it used. Times are that node's monotonic seconds."""

    keep_alive_s: float
    """After the last use; negative means for ever. The latest request that named one decides."""
    epoch: Epoch | None = None
    """Of the ring; None while it is not ready, and then it isn't idle either: requests may wait for it."""
    running: int = 0
    """Requests that are answered by it, or wait in its queue."""
    idle_since: float = 0.0
    was_used: bool = False
    """Whether a request has come since the ring was formed."""
    not_before: float = -inf
    """When to try again after it could not leave."""

    @property
    def ends_at(self) -> float:
        """When it may leave, if no request comes before; infinity if it stays."""
        if self.running or self.epoch is None or self.keep_alive_s < 0:
            return inf
        patience = self.keep_alive_s if self.was_used else max(self.keep_alive_s, FIRST_USE_WITHIN_S)
        return max(self.idle_since + patience, self.not_before)

    def is_idle(self, now: float) -> bool:
        """Whether nobody uses it, nor is about to: those who waited for it to be formed have come, or had their time."""
        if self.running or self.epoch is None:
            return False
        return self.was_used or now >= self.idle_since + FIRST_USE_WITHIN_S

    def formed(self, epoch: Epoch | None, now: float) -> "Stay":
        """The ring is ready in this epoch, or, with None, is not ready."""
        if epoch == self.epoch:
            return self
        return evolve(self, epoch=epoch, idle_since=now, was_used=self.running > 0)

    def begun(self, keep_alive_s: float | None) -> "Stay":
        """One more request, and what it says about how long the ring shall stay."""
        kept = self.keep_alive_s if keep_alive_s is None else keep_alive_s
        return evolve(self, keep_alive_s=kept, running=self.running + 1, was_used=True)

    def ended(self, now: float) -> "Stay":
        return evolve(self, running=self.running - 1, idle_since=now)

    def released(self) -> "Stay":
        """Somebody asked to unload it: it leaves with its last request."""
        return evolve(self, keep_alive_s=0.0, was_used=True, not_before=-inf)

    def refused(self, again_at: float) -> "Stay":
        return evolve(self, not_before=again_at)
