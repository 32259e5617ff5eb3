"""Who is alive: a failure detector as a pure state machine, after SWIM's suspicion and Lifeguard's local health.

It judges connections first and peers only then: a peer is alive while one of its connections is heard. What the time is and
what was heard come in; verdicts go out. The caller asks other members about a peer and brings their answers as ``vouch``.
"""

from collections.abc import Iterable
from enum import Enum

from attrs import define, field, frozen

from networking.transport import PeerId


class MemberState(Enum):
    ALIVE = "alive"
    SUSPECT = "suspect"


@frozen
class MembershipSettings:
    """All times in seconds, for a machine that is not under strain."""

    tick_s: float = 0.25
    """How often ``tick`` is called. Raised, verdicts come later; lowered, an idle node works more."""
    heartbeat_s: float = 1.0
    """Raised, silence is noticed later; lowered, more packets. The limits below have to follow."""
    ask_after_s: float = 2.2
    """Silence before others are asked. Raised, they may answer too late; lowered, they are asked for nothing."""
    suspect_after_s: float = 3.3
    """Silence that makes a suspect: above a heartbeat, a pause of 2 s and some delay. Lowered, pauses become suspicions."""
    dead_after_s: float = 4.5
    """Silence that means death. Raised, a silent peer blocks longer; lowered, a busy one is given up."""
    closed_grace_s: float = 0.9
    """From a closed connection to death. Raised, crashes are noticed later; lowered, a short cut in the network is a death."""
    vouch_lasts_s: float = 3.0
    """How long another member's word counts. Raised, a crash may be noticed late; lowered, one lost answer is a death."""
    ask_every_s: float = 0.5
    """How often others are asked about a silent peer. Raised, fewer chances for an answer; lowered, more packets."""
    late_s: float = 1.0
    """A tick this much late means that this node stood still. Raised, a stopped node accuses others; lowered, load counts as a stop."""
    excused_s: float = 0.25
    """So much lateness of a tick is left out of every silence, for frames wait as ticks do. Raised, a busy node accuses others; lowered, it finds out later who is dead."""
    max_strain: int = 4
    """Each point that a peer tells of itself adds a quarter to the limits. Raised, a busy machine is given more time and its death is noticed later."""
    strain_decay_s: float = 10.0
    """How long a point of strain lasts. Raised, one hiccup counts longer."""


@frozen
class AskOthers:
    peer: PeerId


@frozen
class CloseStale:
    """This connection is not heard any more."""

    connection: int


@frozen
class Suspected:
    peer: PeerId


@frozen
class Revived:
    peer: PeerId


@frozen
class Died:
    peer: PeerId


Verdict = AskOthers | CloseStale | Suspected | Revived | Died


@define
class _Link:
    peer: PeerId
    heard_at: float
    silent_since: float
    """The same, but for the time in which this node itself stood still."""
    strain: int = 0
    stale: bool = False


@define
class _Member:
    silent_since: float
    links: set[int] = field(factory=set[int])
    suspected: bool = False
    closed_at: float | None = None
    strain: int = 0
    """What it said of itself on the last connection that closed."""
    vouched_at: float = float("-inf")
    asked_at: float = float("-inf")


class Membership:
    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._links: dict[int, _Link] = {}
        self._members: dict[PeerId, _Member] = {}
        self._ticked_at: float | None = None
        self._strain = 0
        self._strained_at = 0.0

    @property
    def strain(self) -> int:
        """How badly this node itself keeps time; told to others, so that they are patient (Lifeguard's local health)."""
        return self._strain

    @property
    def patience(self) -> float:
        """How many times as long as usual is to be waited for what isn't a matter of life and death."""
        return 1 + self._strain / 4

    @property
    def states(self) -> dict[PeerId, MemberState]:
        return {
            peer: MemberState.SUSPECT if member.suspected else MemberState.ALIVE
            for peer, member in self._members.items()
        }

    @property
    def peers(self) -> Iterable[PeerId]:
        return self._members.keys()

    @property
    def alive(self) -> int:
        """How many members are not suspect."""
        return sum(not member.suspected for member in self._members.values())

    def is_member(self, peer: PeerId) -> bool:
        return peer in self._members

    def heard_at(self, peer: PeerId) -> float | None:
        """When one of a peer's connections was really heard last; None if it has none."""
        return max((link.heard_at for link in self._links.values() if link.peer == peer), default=None)

    def joined(self, now: float, connection: int, peer: PeerId) -> list[Verdict]:
        """A peer said hello on a connection and told all about itself."""
        self._links[connection] = _Link(peer, now, now)
        member = self._members.setdefault(peer, _Member(now))
        member.links.add(connection)
        return self._refute(now, member, peer)

    def heard(self, now: float, connection: int, strain: int | None = None) -> list[Verdict]:
        """Anything at all; a heartbeat tells its sender's strain, too."""
        link = self._links.get(connection)
        if link is None:
            return []
        link.heard_at = link.silent_since = now
        if strain is not None:
            link.strain = min(max(strain, 0), self._settings.max_strain)
        return self._refute(now, self._members[link.peer], link.peer)

    def closed(self, now: float, connection: int) -> list[Verdict]:
        link = self._links.pop(connection, None)
        if link is None:
            return []
        member = self._members[link.peer]
        member.links.discard(connection)
        member.strain = link.strain
        if member.links:
            return []
        if not link.stale:  # else it was closed here, for its silence, which says nothing new
            member.closed_at = now
        return self._suspect(now, member, link.peer)

    def left(self, peer: PeerId) -> list[Verdict]:
        """A peer said goodbye."""
        return [self._bury(peer)] if peer in self._members else []

    def vouch(self, now: float, peer: PeerId, age_s: float) -> list[Verdict]:
        """Another member heard the peer ``age_s`` seconds ago: reason enough to count it as a suspect, even if it was never met."""
        age_s = max(age_s, 0.0)
        if peer in self._members:
            self._members[peer].vouched_at = max(self._members[peer].vouched_at, now - age_s)
        elif age_s < self._settings.vouch_lasts_s:
            never = float("-inf")
            self._members[peer] = _Member(never, suspected=True, closed_at=never, vouched_at=now - age_s)
            return [Suspected(peer)]
        return []

    def tick(self, now: float) -> list[Verdict]:
        self._mind_own_clock(now)
        verdicts: list[Verdict] = []
        for connection, link in list(self._links.items()):
            if not link.stale and now - link.silent_since >= self._limit(self._settings.dead_after_s, link.strain):
                link.stale = True
                verdicts.append(CloseStale(connection))
        for peer, member in list(self._members.items()):
            verdicts += self._judge(now, peer, member)
        return verdicts

    def _judge(self, now: float, peer: PeerId, member: _Member) -> list[Verdict]:
        settings = self._settings
        strain = max((self._links[each].strain for each in member.links), default=member.strain)
        silence = now - member.silent_since
        if member.closed_at is None and silence < self._limit(settings.ask_after_s, strain):
            return []
        if now >= self._deadline(member, strain):
            return [self._bury(peer)]
        verdicts: list[Verdict] = []
        if silence >= self._limit(settings.suspect_after_s, strain):
            verdicts += self._suspect(now, member, peer)
        if now - member.asked_at >= settings.ask_every_s:
            member.asked_at = now
            verdicts.append(AskOthers(peer))
        return verdicts

    def _deadline(self, member: _Member, strain: int) -> float:
        """When a peer that stays silent is dead. Another's word counts only if it is younger than what made us doubt."""
        settings = self._settings
        if member.closed_at is None:
            doubted_at, deadline = member.silent_since, member.silent_since + self._limit(settings.dead_after_s, strain)
        else:
            doubted_at, deadline = member.closed_at, member.closed_at + self._limit(settings.closed_grace_s, strain)
        return max(deadline, member.vouched_at + settings.vouch_lasts_s) if member.vouched_at > doubted_at else deadline

    def _limit(self, seconds: float, strain: int) -> float:
        # Its own strain counts once: the time in which this node stood still is left out of every silence anyway.
        return seconds * (1 + 0.25 * max(min(self._strain, 1), strain))

    def _suspect(self, now: float, member: _Member, peer: PeerId) -> list[Verdict]:
        if member.suspected:
            return []
        member.suspected, member.asked_at = True, now
        return [Suspected(peer), AskOthers(peer)]

    def _refute(self, now: float, member: _Member, peer: PeerId) -> list[Verdict]:
        was_wrong = member.suspected and member.closed_at is None
        revived: list[Verdict] = [Revived(peer)] if member.suspected else []
        member.silent_since, member.suspected, member.closed_at = now, False, None
        if was_wrong:
            self._add_strain(now)
        return revived

    def _bury(self, peer: PeerId) -> Died:
        for connection in self._members.pop(peer).links:
            del self._links[connection]
        return Died(peer)

    def _mind_own_clock(self, now: float) -> None:
        """After standing still, everybody else only seems silent."""
        late = 0.0 if self._ticked_at is None else now - self._ticked_at - self._settings.tick_s
        self._ticked_at = now
        if late >= self._settings.late_s:
            self._add_strain(now)
            self._excuse(now, late)
            return
        if late >= self._settings.excused_s:
            self._put_off(now, late)
        if self._strain and now - self._strained_at >= self._settings.strain_decay_s:
            self._strain, self._strained_at = self._strain - 1, now

    def _excuse(self, now: float, late: float) -> None:
        """Count the time in which nothing could be heard for nobody, and let all be heard once more before they are judged."""
        settings = self._settings
        self._put_off(now, late)
        earliest = now - self._limit(settings.dead_after_s, 0) + settings.heartbeat_s + settings.tick_s
        for each in (*self._links.values(), *self._members.values()):
            each.silent_since = max(each.silent_since, earliest)
        for member in self._members.values():
            member.closed_at = None if member.closed_at is None else now

    def _put_off(self, now: float, late: float) -> None:
        for each in (*self._links.values(), *self._members.values()):
            each.silent_since = min(each.silent_since + late, now)
        for member in self._members.values():
            member.closed_at = None if member.closed_at is None else min(member.closed_at + late, now)

    def _add_strain(self, now: float) -> None:
        self._strain, self._strained_at = min(self._strain + 1, self._settings.max_strain), now
