"""Who leads: pure decisions on claims. A claim is ``{term, members, payload}`` in its owner's document.

A candidate claims, with the highest term ever seen + 1, only while no live member does; so there is one claim as a rule, and it
has the highest term. A joiner never starts an election. There is no quorum: both sides of a partition go on, each with a claim.

While two claims coexist, the one with more members behind it counts, then the more senior one's, and only then the term: a
machine that was alone may have claimed more often than a working cluster, and must not lead it, not even for a moment. The claim
that counts is made anew with the highest term + 1, then the other is dropped. So terms only rise, and in the end the highest leads.
Nobody follows a lower term than it has followed before: the other side is without a leader until then. Who has seen a higher term
than that of the claim that counts says so, lest its maker never hears of it.
"""

from collections.abc import Iterable, Sequence

from attrs import field, frozen

from networking.transport import PeerId
from networking.wire import MAX_COUNTER, Claim

UNSEATED = 2**32
"""The seniority of a peer that has not joined yet: below everybody's."""


@frozen
class ElectionSettings:
    settle_s: float = 1.0
    """How long leadership has to be vacant before the most senior candidate claims it. Raised, a dead leader is replaced later; lowered, two may claim at once."""
    growth_settle_s: float = 2.0
    """How long a leader waits before it counts newcomers. Lowered, a partition that heals piece by piece may give the smaller side the lead."""
    memory_s: float = 1800.0
    """How long the payloads of past leaders are kept for a successor. Raised, what was forgotten on purpose may come back; lowered, a whole-cluster restart loses more."""


@frozen
class Candidate:
    """A live or suspect member as the election sees it."""

    peer: PeerId
    seniority: int = UNSEATED
    may_lead: bool = True
    claim: Claim | None = None
    claim_version: int = 0
    """Of the fact that holds it."""
    seen_term: int = 0
    """A higher term than the leader's, which it has seen."""


@frozen
class MakeClaim:
    """Claim with a new term, the payload being merged from all claims known."""

    term: int
    members: int
    merged: dict[PeerId, int] = field(factory=dict[PeerId, int])
    """The claims of live members that it replaces, by their versions."""


@frozen
class CountMembers:
    """Put a new number of members into the own claim."""

    members: int


@frozen
class DropClaim:
    pass


Decision = MakeClaim | CountMembers | DropClaim


@frozen
class _Remembered:
    claim: Claim
    seen_at: float


def find_leader(roster: Iterable[Candidate]) -> Candidate | None:
    """The member whose claim counts (see above, where there are two), or None."""
    return max((each for each in roster if each.claim), key=_standing, default=None)


def _standing(candidate: Candidate) -> tuple[int, int, int, PeerId]:
    claim = candidate.claim
    assert claim is not None
    return claim.members, -candidate.seniority, claim.term, candidate.peer


class Election:
    """Decides for one peer what to do about leadership, each time something changed and on each tick."""

    def __init__(self, me: PeerId, settings: ElectionSettings, highest_term: int = 0) -> None:
        self._me = me
        self._settings = settings
        self._memory: dict[PeerId, _Remembered] = {}
        self._vacant_since: float | None = None
        self._grown_since: float | None = None
        self._followed_term = highest_term
        self.highest_term = highest_term
        """The highest term ever seen; it only rises."""

    def observe(self, now: float, claims: Iterable[tuple[PeerId, Claim]]) -> None:
        """Take note of claims in all documents held, those of the dead included."""
        for peer, claim in claims:
            self._memory[peer] = _Remembered(claim, now)
            self.highest_term = max(self.highest_term, claim.term)
        horizon = now - self._settings.memory_s
        self._memory = {peer: each for peer, each in self._memory.items() if each.seen_at >= horizon}

    @property
    def payloads(self) -> list[bytes]:
        """All payloads of claims remembered: this peer's own first, since its side of a partition is the one that counts; then
        highest term first."""
        claims = sorted(
            self._memory.items(), key=lambda item: (item[0] == self._me, item[1].claim.term, item[0]), reverse=True
        )
        return [each.claim.payload for _, each in claims if each.claim.payload]

    def follow(self, roster: Iterable[Candidate]) -> Candidate | None:
        """The member whose claim counts; None while it is lower than one that was followed before, and not yet made anew."""
        leader = find_leader(roster)
        if leader is None or leader.claim is None or leader.claim.term < self._followed_term:
            return None
        self._followed_term = leader.claim.term
        return leader

    def hand_over(self) -> None:
        """The leader has left on purpose: there is no doubt to settle, the next in line claims at once."""
        self._vacant_since = float("-inf")

    def objection(self, roster: Iterable[Candidate]) -> int | None:
        """The highest term seen, if the claim that counts is another's and below it."""
        leader = find_leader(roster)
        if leader is None or leader.claim is None or leader.peer == self._me or leader.claim.term >= self.highest_term:
            return None
        return self.highest_term

    def decide(self, now: float, roster: Sequence[Candidate], alive: int) -> Decision | None:
        """``roster`` is every live or suspect member, this peer included; ``alive`` how many of them are heard, this peer included."""
        self.highest_term = max([self.highest_term, *(each.seen_term for each in roster)])
        mine = next((each for each in roster if each.peer == self._me and each.claim), None)
        rivals = [each for each in roster if each.claim and each.peer != self._me]
        if mine is None or mine.claim is None:
            return self._fill_vacancy(now, roster, alive, vacant=not rivals)
        self._vacant_since = None
        if alive < mine.claim.members:
            # At once, and before rivals are met: who has lost its members while it stood still must not outdo theirs.
            self._grown_since = None
            return CountMembers(alive)
        if rivals:
            self._grown_since = None
            return self._meet(mine, mine.claim, rivals)
        if mine.claim.term < self.highest_term:
            return MakeClaim(self._next_term, mine.claim.members)
        return self._count_newcomers(now, mine.claim, alive)

    @property
    def _next_term(self) -> int:
        return min(self.highest_term + 1, MAX_COUNTER)

    def _fill_vacancy(self, now: float, roster: Sequence[Candidate], alive: int, *, vacant: bool) -> MakeClaim | None:
        if not vacant or self._most_senior(roster) != self._me:
            self._vacant_since = None
            return None
        if self._vacant_since is None:
            self._vacant_since = now
        if now - self._vacant_since < self._settings.settle_s:
            return None
        self._vacant_since = None
        return MakeClaim(self._next_term, alive)

    def _most_senior(self, roster: Sequence[Candidate]) -> PeerId | None:
        able = [(each.seniority, each.peer) for each in roster if each.may_lead and each.seniority < UNSEATED]
        return min(able)[1] if able else None

    def _meet(self, mine: Candidate, claim: Claim, rivals: Sequence[Candidate]) -> MakeClaim | DropClaim | None:
        best = find_leader([mine, *rivals])
        if best is not None and best.claim is not None and best.peer != self._me:
            # Not before the other's claim carries what this one does, else that would be lost.
            return DropClaim() if best.claim.merged.get(self._me) == mine.claim_version else None
        met = {each.peer: each.claim_version for each in rivals}
        if met.items() <= claim.merged.items() and claim.term == self.highest_term:
            return None
        return MakeClaim(self._next_term, claim.members, met)

    def _count_newcomers(self, now: float, mine: Claim, alive: int) -> CountMembers | None:
        """They count after a while: they may be the other side of a partition, with a claim of their own."""
        if alive == mine.members:
            self._grown_since = None
            return None
        if self._grown_since is None:
            self._grown_since = now
        if now - self._grown_since < self._settings.growth_settle_s:
            return None
        self._grown_since = None
        return CountMembers(alive)
