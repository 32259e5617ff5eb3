"""What one peer says and hears on its control connections (pure): hello, heartbeats, digests and deltas, questions about others."""

from networking.actions import Close, Outbox, Warn
from networking.document import News
from networking.documents import Documents
from networking.inquiries import Inquiries
from networking.links import Link, Links
from networking.membership import AskOthers, CloseStale, Died, Membership, Verdict
from networking.notices import Warnings
from networking.transport import Address, PeerId
from networking.view import Beliefs, other_version
from networking.wire import (
    MAX_COUNTER,
    PROTOCOL_VERSION,
    Answer,
    Ask,
    Delta,
    Digest,
    Duplicate,
    Goodbye,
    Heartbeat,
    Hello,
    Life,
    MalformedMessageError,
    Message,
    decode,
)

GOSSIP = PeerId("somebody on the gossip topic")
CLONE_WARNING = (
    "another running machine uses the peer id {peer} of {whose}; on the copy (a cloned disk, or a home folder copied from "
    "another machine) delete the identity file from the home folder and start it again"
)


class Conversation:
    def __init__(
        self,
        me: PeerId,
        documents: Documents,
        membership: Membership,
        links: Links,
        outbox: Outbox,
        warnings: Warnings,
    ) -> None:
        self._me = me
        self._documents = documents
        self._membership = membership
        self._beliefs = Beliefs(me, documents, membership, links)
        self._links = links
        self._outbox = outbox
        self._warnings = warnings
        self._inquiries = Inquiries()
        self._dropped: dict[PeerId, int] = {}
        self.departed: PeerId | None = None
        """Who said goodbye in the message that was heard last."""

    def begin(self, now: float, connection: int, peer: PeerId, *, outbound: bool, address: Address | None) -> None:
        self._links.open(now, connection, peer, outbound=outbound, address=address)
        self._outbox.send(connection, Hello(PROTOCOL_VERSION, self._documents.life))

    def end(self, now: float, connection: int) -> None:
        link = self._links.close(connection)
        self._outbox.changed |= link is not None and link.joined
        self.carry_out(self._membership.closed(now, connection))
        self._settle_contests(now)

    def hear(self, now: float, connection: int, data: bytes) -> None:
        self.departed = None
        link = self._links.get(connection)
        if link is None:
            return
        link.heard_at = now
        self.carry_out(self._membership.heard(now, connection))
        message = self._read(now, link.peer, data)
        if message is not None:
            self._dispatch(now, link, message)
            self._admit(now)

    def overhear(self, now: float, data: bytes) -> None:
        """A gossip message: only deltas, which their owners have signed, mean anything there."""
        message = self._read(now, GOSSIP, data)
        if isinstance(message, Delta):
            self._on_delta(now, GOSSIP, message)
            self._admit(now)

    def tick(self, now: float) -> None:
        self.carry_out(self._membership.tick(now))
        for link in self._links.without_hello(now, self._membership.patience):
            self.close(link)
        self._settle_contests(now)

    def ask_about_the_missed(self, now: float) -> None:
        """Whose documents are held, but who can't be reached from here: perhaps others hear them."""
        owners = self._documents.owners
        missed = [each for each in owners if each != self._me and not self._membership.is_member(each)]
        for owner in self._inquiries.due(now, missed):
            self._ask_others(owner)

    def beat(self) -> None:
        heartbeat = Heartbeat(self._versions(), self._documents.version, self._membership.strain)
        for link in self._links:
            if not link.closing:
                self._outbox.send(link.connection, heartbeat)

    def say_goodbye(self) -> None:
        for link in self._links:
            self._outbox.send(link.connection, Goodbye())
            self.close(link, after_sending=True)

    def tell_document(self) -> None:
        """Send the own document, whole, to everybody directly."""
        for link in self._links:
            if link.accepted:
                self._tell(link, [self._me])
                self._outbox.send(link.connection, self._digest_for(link))

    def warn(self, now: float, cause: str, text: str) -> None:
        if self._warnings.add(now, cause, text):
            self._outbox.add(Warn(text))
            self._outbox.changed = True

    def close(self, link: Link, *, after_sending: bool = False) -> None:
        if not link.closing:
            link.closing = True
            self._outbox.add(Close(link.connection, after_sending))

    def carry_out(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            if isinstance(verdict, AskOthers):
                self._ask_others(verdict.peer)
                continue
            for link in self._links:
                is_stale = isinstance(verdict, CloseStale) and link.connection == verdict.connection
                is_dead = isinstance(verdict, Died) and link.peer == verdict.peer
                if is_stale or is_dead:
                    self.close(link)
            self._outbox.changed = True

    # Reading.

    def _read(self, now: float, peer: PeerId, data: bytes) -> Message | None:
        try:
            return decode(data)
        except MalformedMessageError as error:
            self._drop(now, peer, str(error))
            return None

    def _drop(self, now: float, peer: PeerId, why: str) -> None:
        count = self._dropped[peer] = self._dropped.get(peer, 0) + 1
        text = (
            f"messages of {peer} were dropped, {count} so far, the last one because {why}; does it run another version?"
        )
        self.warn(now, f"dropped {peer}", text)

    def _dispatch(self, now: float, link: Link, message: Message) -> None:
        if isinstance(message, Hello):
            self._on_hello(now, link, message)
        elif isinstance(message, Duplicate):
            self._warn_of_clone(now, self._me)
        elif link.contested_since is not None:
            return  # That it is heard is all that counts until it is clear whose peer id this is.
        elif not link.accepted:
            self._drop(now, link.peer, f"{type(message).__name__} before Hello")
        elif isinstance(message, Heartbeat):
            self._on_heartbeat(now, link, message)
        elif isinstance(message, Digest):
            self._on_digest(now, link, message)
        elif isinstance(message, Delta):
            self._on_delta(now, link.peer, message)
        elif isinstance(message, Ask):
            self._on_ask(now, link, message.about)
        elif isinstance(message, Answer):
            self._on_answer(now, link, message)
        else:
            self._on_goodbye(link)

    # Who is at the other end.

    def _on_hello(self, now: float, link: Link, hello: Hello) -> None:
        if hello.protocol != PROTOCOL_VERSION:
            self.warn(now, f"version {link.peer}", other_version(link.peer, hello.protocol))
        if link.peer == self._me:
            self._meet_myself(now, link, hello)
            return
        self._links.greet(now, link, hello)
        if link.accepted:
            self._accept(now, link)

    def _on_goodbye(self, link: Link) -> None:
        self.departed = link.peer
        self.carry_out(self._membership.left(link.peer))
        self.close(link)

    def _meet_myself(self, now: float, link: Link, hello: Hello) -> None:
        link.hello = hello
        if hello.life.process != self._documents.life.process:
            self._warn_of_clone(now, self._me)
            self._outbox.send(link.connection, Duplicate(self._documents.life.process))
        self.close(link, after_sending=True)

    def _accept(self, now: float, link: Link) -> None:
        # What it sent while it was contested was not listened to, its digest among it.
        self._outbox.send(link.connection, self._digest_for(link, answer=link.contested_since is not None))
        link.contested_since = None
        if any(each.joined for each in self._links.accepted_of(link.peer)):
            self._join(now, link)  # a second connection of a member
        for surplus in self._links.surplus(now, link.peer):
            self.close(surplus)

    def _settle_contests(self, now: float) -> None:
        for link in self._links:
            if link.contested_since is None or link.closing:
                continue
            contest = self._links.resolve(now, link)
            for obsolete in contest.obsolete:
                self.close(obsolete)
            if contest.accept:
                self._accept(now, link)
            elif contest.clones:
                self._turn_away(now, link, contest.clones)

    def _turn_away(self, now: float, clone: Link, holders: tuple[Link, ...]) -> None:
        self._warn_of_clone(now, clone.peer)
        for holder in holders:
            self._outbox.send(holder.connection, Duplicate(clone.process or 0))
        self._outbox.send(clone.connection, Duplicate(holders[0].process or 0))
        self.close(clone, after_sending=True)

    def _warn_of_clone(self, now: float, peer: PeerId) -> None:
        whose = "this node" if peer == self._me else "another node"
        self.warn(now, f"clone {peer}", CLONE_WARNING.format(peer=peer, whose=whose))

    def _admit(self, now: float) -> None:
        """Whoever has told all about itself is a member: before that, an old copy of its facts could be taken for news."""
        for link in self._links:
            if not link.joined and link.accepted and self._is_told_by(link):
                self._join(now, link)

    def _is_told_by(self, link: Link) -> bool:
        announced = link.announced
        return announced is not None and self._documents.has(link.peer, announced)

    def _join(self, now: float, link: Link) -> None:
        link.joined = True
        self.carry_out(self._membership.joined(now, link.connection, link.peer))
        self._outbox.changed = True

    # Who is alive.

    def _on_heartbeat(self, now: float, link: Link, heartbeat: Heartbeat) -> None:
        self.carry_out(self._membership.heard(now, link.connection, heartbeat.strain))
        reached = self._documents.reached(link.peer)
        is_behind = reached is None or reached.version < heartbeat.own
        if heartbeat.versions == self._versions() and not is_behind:
            link.exchange.agrees()
        elif link.exchange.differs(now):
            self._compare(now, link)

    def _compare(self, now: float, link: Link) -> None:
        if link.exchange.begin(now):
            self._outbox.send(link.connection, self._digest_for(link, answer=True))

    def _ask_others(self, about: PeerId) -> None:
        for link in self._links:
            if link.joined and not link.closing and link.peer != about:
                self._outbox.send(link.connection, Ask(about))

    def _on_ask(self, now: float, link: Link, about: PeerId) -> None:
        heard_at, reached = self._membership.heard_at(about), self._documents.reached(about)
        if heard_at is None or reached is None:
            self._outbox.send(link.connection, Answer(about))
        else:
            answer = Answer(about, reached.life.process, now - heard_at, reached.version)
            self._outbox.send(link.connection, answer)

    def _on_answer(self, now: float, link: Link, answer: Answer) -> None:
        reached = self._documents.reached(answer.about)
        if answer.age_s is None or reached is None or reached.life.process != answer.process:
            return
        self.carry_out(self._membership.vouch(now, answer.about, answer.age_s))
        if reached.version < answer.version:
            # Heartbeats tell of the volatile facts of their sender alone, and gossip may not get here.
            self._compare(now, link)

    # What everyone knows.

    def _versions(self) -> str:
        return self._documents.structural_hash(self._beliefs.members)

    def _digest_for(self, link: Link, *, answer: bool = False) -> Digest:
        """What is held of the members, and of the receiver, which is to tell the rest of itself."""
        return Digest(self._documents.digest([*self._beliefs.members, link.peer]), answer)

    def _tell(self, link: Link, owners: list[PeerId]) -> None:
        theirs = link.digest.documents if link.digest else {}
        for delta in self._documents.missing_in(theirs, owners):
            self._outbox.send(link.connection, delta)

    def _on_digest(self, now: float, link: Link, digest: Digest) -> None:
        link.digest = digest
        self._inquiries.begin_anew(digest.documents)
        # Of itself, too: what is left of a life that it has forgotten, so that it can outbid it.
        self._tell(link, sorted({*self._beliefs.members, link.peer}))
        if digest.answer:
            self._outbox.send(link.connection, self._digest_for(link))
        else:
            link.exchange.end(now)

    def _on_delta(self, now: float, sender: PeerId, delta: Delta) -> None:
        try:
            news = self._documents.read(delta)
        except MalformedMessageError as error:
            self._drop(now, sender, str(error))
            return
        owner, life = news.head.owner, news.head.life
        process = self._links.process_of(owner)
        if owner == self._me:
            self._defend_life(life)
        elif process is None or process == life.process:
            self._outbox.changed |= self._documents.take(now, news)
        else:
            self._report_life(news)

    def _report_life(self, news: News) -> None:
        """Facts of another process than the connected one must not win; its owner has to know, so that it can outbid them."""
        held = self._documents.reached(news.head.owner)
        if held is None or held.life < news.head.life:
            for link in self._links.accepted_of(news.head.owner):
                self._outbox.send(link.connection, Delta(news.signed))

    def _defend_life(self, life: Life) -> None:
        mine = self._documents.life
        if life.process != mine.process and life > mine and life.incarnation < MAX_COUNTER:
            self._documents.outbid(life)
            self._outbox.changed = True
            self.tell_document()
