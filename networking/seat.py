"""When a peer sits down among the others (pure): whoever joined earlier is asked first to lead."""

from networking.documents import Documents
from networking.links import Link, Links
from networking.transport import PeerId
from networking.view import Beliefs


class Seat:
    """Seniority is given on joining: once others have told what they know, or none are found."""

    def __init__(self, beliefs: Beliefs, documents: Documents, links: Links, *, alone_after_s: float) -> None:
        self._beliefs = beliefs
        self._documents = documents
        self._links = links
        self._alone_after_s = alone_after_s
        self._looking_since: float | None = None
        self._expected_until = float("-inf")

    def look_around(self, now: float) -> None:
        """The peer begins; it may well be alone."""
        self._looking_since = now

    def expect_others(self, until: float) -> None:
        """The peer was let in among others, whom it has yet to meet: that it is alone so far means nothing."""
        self._expected_until = until

    def is_due(self, now: float) -> bool:
        if now < self._expected_until:
            return any(self._is_seated(link.peer) for link in self._met)
        return bool(self._met) or self._is_alone(now)

    @property
    def _met(self) -> list[Link]:
        """Those who have told all that they know."""
        return [link for link in self._links.joined if link.digest and self._documents.covers(link.digest.documents)]

    def _is_alone(self, now: float) -> bool:
        assert self._looking_since is not None
        is_meeting = any(not link.closing for link in self._links)
        return now - self._looking_since >= self._alone_after_s * (3 if is_meeting else 1)

    def _is_seated(self, peer: PeerId) -> bool:
        fact = self._beliefs.member_fact(peer)
        return fact is not None and fact.seniority is not None
