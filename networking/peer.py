"""One peer of the overlay as a machine without I/O: membership, documents and election together.

Everything that happens comes in as a method call with the time (monotonic seconds); each returns what is to be done. The real
overlay and the simulated one both drive this very class.
"""

from collections.abc import Callable, Sequence

from attrs import evolve, field, frozen

from networking.actions import Action, Broadcast, Outbox, Save, SavedState
from networking.conversation import Conversation
from networking.documents import Documents, DocumentSettings, check_size
from networking.election import Candidate, CountMembers, DropClaim, Election, ElectionSettings, MakeClaim
from networking.links import Links, LinkSettings
from networking.membership import Membership, MembershipSettings
from networking.notices import Warnings
from networking.seat import Seat
from networking.transport import Address, PeerId, Sign, Verify
from networking.view import CLAIM_KEY, MEMBER_KEY, RESERVED, Beliefs, View
from networking.wire import PROTOCOL_VERSION, Claim, Life, MemberFact, encode_value

MergePayloads = Callable[[Sequence[bytes]], bytes]
"""Payloads of all claims known, highest term first -> the payload of a new claim. Not called without any."""


class NotLeaderError(Exception):
    """Only the leader has a payload to set; the message names who leads."""


@frozen
class PeerSettings:
    membership: MembershipSettings = field(factory=MembershipSettings)
    documents: DocumentSettings = field(factory=DocumentSettings)
    election: ElectionSettings = field(factory=ElectionSettings)
    links: LinkSettings = field(factory=LinkSettings)
    alone_after_s: float = 2.0
    """How long a starting node looks for others before it makes a cluster of its own. Lowered, clusters have to merge more often; raised, a single machine waits longer."""
    awaited_for_s: float = 60.0
    """How long a peer that was let in looks for those who were there before. Lowered, one that is slow to meet them may come to lead them; raised, newcomers whose cluster is gone are longer without a successor of their leader."""
    volatile_every_s: float = 2.0
    """Volatile facts are merged and sent at most this often, and more seldom from 11 members on. Lowered, gossip's budget of 20 messages/s is used up sooner."""
    warning_lasts_s: float = 60.0
    """How long a warning stays after its cause was last seen. Raised, solved problems are shown longer."""


class Peer:
    def __init__(
        self,
        me: PeerId,
        *,
        process: int,
        saved: SavedState,
        sign: Sign,
        verify: Verify,
        merge_payloads: MergePayloads,
        settings: PeerSettings,
        may_lead: bool = True,
    ) -> None:
        self.me = me
        self._settings = settings
        self._merge_payloads = merge_payloads
        self._saved = evolve(saved, incarnation=saved.incarnation + 1)
        life = Life(self._saved.incarnation, process)
        self._documents = Documents(me, life, sign, verify, settings.documents)
        self._membership = Membership(settings.membership)
        self._election = Election(me, settings.election, saved.term)
        self._links = Links(me, settings.links)
        self._beliefs = Beliefs(me, self._documents, self._membership, self._links)
        self._outbox = Outbox()
        self._warnings = Warnings(settings.warning_lasts_s)
        self._conversation = Conversation(
            me,
            self._documents,
            self._membership,
            self._links,
            self._outbox,
            self._warnings,
        )
        self._leader: Candidate | None = None
        self._member = MemberFact(may_lead=may_lead, protocol=PROTOCOL_VERSION)
        self._seat = Seat(self._beliefs, self._documents, self._links, alone_after_s=settings.alone_after_s)
        self._is_started = False
        self._left = False
        self._pending: dict[str, bytes] = {}
        self._flushed_at = float("-inf")
        self._beat_at = float("-inf")

    @property
    def addresses(self) -> dict[PeerId, tuple[Address, ...]]:
        """Where other peers say they can be dialled."""
        return self._beliefs.addresses

    @property
    def patience(self) -> float:
        """How many times as long as usual others are given, since this node itself keeps bad time; 1 if it doesn't."""
        return self._membership.patience

    def view(self) -> View:
        return self._beliefs.snapshot(self._leader, self._pending, self._warnings.texts)

    # What happens from outside.

    def start(self, now: float, addresses: Sequence[Address]) -> list[Action]:
        """Begin; ``addresses`` are where this peer can be dialled."""
        self._is_started = True
        self._seat.look_around(now)
        self._outbox.add(Save(self._saved))
        self._tell_of_me(evolve(self._member, addresses=tuple(addresses)))
        return self._done(now)

    def connected(
        self, now: float, connection: int, peer: PeerId, *, outbound: bool, address: Address | None = None
    ) -> list[Action]:
        """A connection and its control stream are open; ``connection`` is the driver's number for it, ``address`` its far end."""
        self._conversation.begin(now, connection, peer, outbound=outbound, address=address)
        return self._done(now)

    def disconnected(self, now: float, connection: int) -> list[Action]:
        self._conversation.end(now, connection)
        return self._done(now)

    def received(self, now: float, connection: int, data: bytes) -> list[Action]:
        """A frame arrived on a connection's control stream."""
        self._conversation.hear(now, connection, data)
        if self._leader is not None and self._leader.peer == self._conversation.departed:
            self._election.hand_over()
        return self._done(now)

    def gossip_received(self, now: float, data: bytes) -> list[Action]:
        self._conversation.overhear(now, data)
        return self._done(now)

    def tick(self, now: float) -> list[Action]:
        """To be called every ``settings.membership.tick_s``."""
        if self._left:
            return []
        self._conversation.tick(now)
        self._documents.collect(now, self._beliefs.members)
        self._outbox.changed |= self._warnings.expire(now)
        self._flush(now)
        self._lead(now)
        self._object()
        self._beat(now)
        return self._done(now)

    def dialled(self, now: float, target: str, problem: str | None) -> list[Action]:
        """Why a target that a person gave can't be reached; None once it is. Each new reason is warned of."""
        cause, text = f"dialling {target}", f"can't reach {target}: {problem}"
        if problem is None or text not in self._warnings.texts:
            self._warnings.end(cause)
        if problem is not None:
            self._conversation.warn(now, cause, text)
        return self._done(now)

    # What this node's own user does.

    def set_fact(self, now: float, key: str, value: bytes, *, volatile: bool = False) -> list[Action]:
        """Raises FactTooLargeError, and ValueError for a key that belongs to the overlay."""
        _check_key(key)
        check_size(key, value)
        if self._pending.get(key, self._documents.value(self.me, key)) == value:
            return []
        self._pending.pop(key, None)
        if volatile:
            self._pending[key] = value
            self._outbox.changed = True
        else:
            self._write({key: value})
        return self._done(now)

    def delete_fact(self, now: float, key: str) -> list[Action]:
        _check_key(key)
        self._outbox.changed |= self._pending.pop(key, None) is not None
        if self._documents.value(self.me, key) is not None:
            self._write({key: None})
        return self._done(now)

    def set_payload(self, now: float, payload: bytes) -> list[Action]:
        """Raises NotLeaderError and FactTooLargeError."""
        leader = self._leader
        if leader is None or leader.claim is None or leader.peer != self.me:
            raise NotLeaderError(f"{leader.peer if leader else 'nobody'} leads, not this node ({self.me})")
        if payload != leader.claim.payload:
            self._claim(now, evolve(leader.claim, payload=payload))
        return self._done(now)

    def set_addresses(self, now: float, addresses: Sequence[Address]) -> list[Action]:
        if tuple(addresses) != self._member.addresses:
            self._tell_of_me(evolve(self._member, addresses=tuple(addresses)))
        return self._done(now)

    def move_in(self, now: float) -> list[Action]:
        """A peer that was alone was let into a cluster. It sits down anew there, below everybody, once it has met them.

        Without a seat its claim counts less than any of theirs. It stands until theirs carries what it does, so that nothing
        which runs here is forgotten.
        """
        self._seat.expect_others(now + self._settings.awaited_for_s)
        self._tell_of_me(evolve(self._member, seniority=None))
        return self._done(now)

    def leave(self, now: float) -> list[Action]:
        """Say goodbye to all; nothing happens afterwards."""
        self._conversation.say_goodbye()
        actions = self._done(now)
        self._left = True
        return actions

    # What follows from it.

    def _done(self, now: float) -> list[Action]:
        if self._outbox.changed and self._is_started and not self._left:
            self._lead(now)
        if self._saved.incarnation != self._documents.life.incarnation:
            self._save(evolve(self._saved, incarnation=self._documents.life.incarnation))
        return self._outbox.drain()

    def _lead(self, now: float) -> None:
        self._take_seat(now)
        self._election.observe(now, self._beliefs.claims)
        decision = self._election.decide(now, self._beliefs.roster, self._beliefs.alive)
        mine = self._beliefs.claim_of(self.me)
        if isinstance(decision, MakeClaim):
            payload = self._merged_payload(now)
            self._claim(now, Claim(decision.term, decision.members, payload, decision.merged))
        elif isinstance(decision, CountMembers) and mine is not None:
            self._claim(now, evolve(mine, members=decision.members))
        elif isinstance(decision, DropClaim):
            self._write({CLAIM_KEY: None})
        self._save(
            evolve(
                self._saved,
                term=self._election.highest_term,
                seniority=max(self._saved.seniority, self._beliefs.highest_seniority),
            )
        )
        self._leader = self._election.follow(self._beliefs.roster)

    def _object(self) -> None:
        seen_term = self._election.objection(self._beliefs.roster)
        if seen_term is not None and seen_term > self._member.seen_term:
            self._tell_of_me(evolve(self._member, seen_term=seen_term))

    def _claim(self, now: float, claim: Claim) -> None:
        self._write({CLAIM_KEY: encode_value(claim)})
        self._election.observe(now, [(self.me, claim)])

    def _merged_payload(self, now: float) -> bytes:
        payloads = self._election.payloads
        if not payloads:
            return b""
        try:
            merged = self._merge_payloads(payloads)
            check_size(CLAIM_KEY, encode_value(Claim(0, 0, merged)))
        except Exception as error:
            text = f"payloads of {len(payloads)} leaders can't be merged ({error}); that of the last one is taken"
            self._conversation.warn(now, "merge", text)
            return payloads[0]
        return merged

    def _take_seat(self, now: float) -> None:
        """Seniority is given on joining, below everybody's that was ever seen."""
        if self._member.seniority is None and self._seat.is_due(now):
            highest = max(self._saved.seniority, self._beliefs.highest_seniority)
            self._tell_of_me(evolve(self._member, seniority=highest + 1))

    def _flush(self, now: float) -> None:
        every = max(self._settings.volatile_every_s, len(self._beliefs.members) / 5)
        if self._pending and now - self._flushed_at >= every:
            self._flushed_at = now
            pending, self._pending = self._pending, {}
            self._write(pending, volatile=True)

    def _beat(self, now: float) -> None:
        times = self._settings.membership
        if now - self._beat_at >= times.heartbeat_s - times.tick_s / 2:
            self._beat_at = now
            self._conversation.beat()
            self._conversation.ask_about_the_missed(now)

    def _tell_of_me(self, fact: MemberFact) -> None:
        self._member = fact
        self._write({MEMBER_KEY: encode_value(fact)})

    def _write(self, changes: "dict[str, bytes] | dict[str, None]", *, volatile: bool = False) -> None:
        for delta in self._documents.write(changes, volatile=volatile):
            self._outbox.add(Broadcast(delta))
        self._outbox.changed = True

    def _save(self, state: SavedState) -> None:
        if state != self._saved:
            self._saved = state
            self._outbox.add(Save(state))


def _check_key(key: str) -> None:
    if not key or key.startswith(RESERVED):
        raise ValueError(
            f"{key!r} can't be a fact's key: it is empty, or begins with {RESERVED!r} like the overlay's own"
        )
