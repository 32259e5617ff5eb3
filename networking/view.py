"""What one node believes about the cluster: documents and membership read together, and snapshots of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from attrs import frozen

from networking.documents import Documents
from networking.election import UNSEATED, Candidate
from networking.links import Links
from networking.membership import Membership, MemberState
from networking.remembered import Remembered
from networking.transport import Address, PeerId
from networking.wire import (
    PROTOCOL_VERSION,
    Claim,
    MalformedMessageError,
    MemberFact,
    decode_claim,
    decode_member,
)

T = TypeVar("T")

RESERVED = "."
"""Keys that begin with it belong to the overlay."""
MEMBER_KEY = RESERVED + "member"
CLAIM_KEY = RESERVED + "claim"


@frozen
class Member:
    peer: PeerId
    state: MemberState
    seniority: int
    """The lower, the longer it has been here; ``election.UNSEATED`` until it has joined."""
    addresses: tuple[Address, ...]
    """Where it says it can be dialled."""
    proven: tuple[Address, ...] = ()
    """Where this node has dialled it and is connected, the newest first; empty if only the peer dialled."""
    address: Address | None = None
    """The far end of the connection to it that was heard last, whoever dialled; None if there is none. Its host is one that
    packets really reach; its port leads somewhere only if this node dialled."""
    protocol: int | None = None
    """The version of the protocol that it speaks; None if it didn't say."""


@frozen
class View:
    me: PeerId
    members: tuple[Member, ...]
    """Live and suspect ones, this node included, by seniority."""
    leader: PeerId | None
    term: int
    """The leader's; 0 if there is none."""
    payload: bytes
    """Of the leader's claim; empty if there is none."""
    facts: Mapping[PeerId, Mapping[str, bytes]]
    """Of all members; values are opaque here (JSON by convention)."""
    warnings: tuple[str, ...]
    """Things a person should know."""

    def member(self, peer: PeerId) -> Member | None:
        return next((each for each in self.members if each.peer == peer), None)


class Beliefs:
    """Reads documents, membership and connections in the overlay's own terms."""

    def __init__(self, me: PeerId, documents: Documents, membership: Membership, links: Links) -> None:
        self._me = me
        self._documents = documents
        self._membership = membership
        self._links = links
        self._roster = Remembered[tuple[Candidate, ...]]()
        self._claims = Remembered[tuple[tuple[PeerId, Claim], ...]]()
        self._seniority = Remembered[int]()

    @property
    def members(self) -> list[PeerId]:
        """This peer included."""
        return sorted({self._me, *self._membership.peers})

    @property
    def alive(self) -> int:
        """How many members are heard, this peer included."""
        return 1 + self._membership.alive

    @property
    def roster(self) -> tuple[Candidate, ...]:
        members = tuple(self.members)
        return self._roster.get((self._documents.changes, members), lambda: tuple(map(self._candidate, members)))

    @property
    def claims(self) -> tuple[tuple[PeerId, Claim], ...]:
        """In all documents held, those of the dead included."""
        return self._claims.get(self._documents.changes, self._read_claims)

    @property
    def highest_seniority(self) -> int:
        return self._seniority.get(self._documents.changes, self._read_seniority)

    @property
    def addresses(self) -> dict[PeerId, tuple[Address, ...]]:
        """Where other peers say they can be dialled."""
        facts = {owner: self.member_fact(owner) for owner in self._documents.owners if owner != self._me}
        return {owner: fact.addresses for owner, fact in facts.items() if fact}

    def member_fact(self, peer: PeerId) -> MemberFact | None:
        return _lenient(decode_member, self._documents.value(peer, MEMBER_KEY))

    def claim_of(self, peer: PeerId) -> Claim | None:
        return _lenient(decode_claim, self._documents.value(peer, CLAIM_KEY))

    def snapshot(self, leader: Candidate | None, pending: Mapping[str, bytes], warnings: tuple[str, ...]) -> View:
        """``leader``: whom this peer follows; ``pending``: own facts that are not out yet."""
        roster = self.roster
        claim = leader.claim if leader else None
        states = self._membership.states
        members = [self._describe(each, states.get(each.peer, MemberState.ALIVE)) for each in roster]
        return View(
            me=self._me,
            members=tuple(sorted(members, key=lambda each: (each.seniority, each.peer))),
            leader=leader.peer if leader else None,
            term=claim.term if claim else 0,
            payload=claim.payload if claim else b"",
            facts={each.peer: self._public_facts(each.peer, pending) for each in roster},
            warnings=tuple(dict.fromkeys((*warnings, *self._other_versions(roster)))),
        )

    def _read_claims(self) -> tuple[tuple[PeerId, Claim], ...]:
        claims = ((owner, self.claim_of(owner)) for owner in self._documents.owners)
        return tuple((owner, claim) for owner, claim in claims if claim)

    def _read_seniority(self) -> int:
        facts = (self.member_fact(owner) for owner in self._documents.owners)
        return max((fact.seniority for fact in facts if fact and fact.seniority is not None), default=0)

    def _candidate(self, peer: PeerId) -> Candidate:
        fact = self.member_fact(peer) or MemberFact()
        seniority = UNSEATED if fact.seniority is None else fact.seniority
        version = self._documents.version_of(peer, CLAIM_KEY)
        return Candidate(peer, seniority, fact.may_lead, self.claim_of(peer), version, fact.seen_term)

    def _other_versions(self, roster: Sequence[Candidate]) -> list[str]:
        told = {each.peer: (self.member_fact(each.peer) or MemberFact()).protocol for each in roster}
        return [other_version(peer, each) for peer, each in told.items() if each not in (None, PROTOCOL_VERSION)]

    def _describe(self, candidate: Candidate, state: MemberState) -> Member:
        fact = self.member_fact(candidate.peer) or MemberFact()
        proven = self._links.proven(candidate.peer)
        return Member(
            candidate.peer,
            state,
            candidate.seniority,
            fact.addresses,
            proven,
            self._links.address_of(candidate.peer),
            fact.protocol,
        )

    def _public_facts(self, peer: PeerId, pending: Mapping[str, bytes]) -> Mapping[str, bytes]:
        facts = self._documents.values(peer) | (dict(pending) if peer == self._me else {})
        return {key: value for key, value in sorted(facts.items()) if not key.startswith(RESERVED)}


def other_version(peer: PeerId, protocol: int | None) -> str:
    return f"peer {peer} speaks protocol {protocol}, this node {PROTOCOL_VERSION}; update the older one"


def _lenient(read: Callable[[bytes], T], value: bytes | None) -> T | None:
    """A value of another version that can't be read counts as absent."""
    try:
        return None if value is None else read(value)
    except MalformedMessageError:
        return None
