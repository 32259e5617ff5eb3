"""When digests are exchanged on one link (pure): once its ends differ for longer than gossip takes, and one exchange at a time.

Digests that wait behind one another on a busy machine only keep it busy; so the patience follows how long an exchange took.
"""

from attrs import define

MAX_EXCHANGE_S = 8.0
"""A digest that isn't answered for so long is sent again at the latest. Raised, lost ones hold up more; lowered, a machine that is behind gets more to do."""


@define
class Exchange:
    least_s: float
    """How long a difference may last, and an answer take, on any machine."""
    takes_s: float = 0.0
    """How long the last answer took, or how long the next one has to be given."""
    differs_since: float | None = None
    asked_at: float | None = None
    """Set while a digest is owed."""

    @property
    def patience_s(self) -> float:
        return max(self.least_s, self.takes_s)

    def agrees(self) -> None:
        self.differs_since = None

    def differs(self, now: float) -> bool:
        """Whether that was so for long enough to do something about it."""
        if self.differs_since is not None and now - self.differs_since < self.patience_s:
            return False
        is_new, self.differs_since = self.differs_since is None, now
        return not is_new

    def begin(self, now: float) -> bool:
        """Whether to send a digest now: not while the answer to the last one may still come."""
        if self.asked_at is not None:
            waited = now - self.asked_at
            if waited < self.patience_s:
                return False
            self.takes_s = min(2 * waited, MAX_EXCHANGE_S)
        self.asked_at = now
        return True

    def end(self, now: float) -> None:
        """A digest that asks for none has come."""
        if self.asked_at is not None:
            self.takes_s, self.asked_at = min(now - self.asked_at, MAX_EXCHANGE_S), None
