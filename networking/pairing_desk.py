"""Who waits to be let in, and what becomes of each (pure): few at a time, not for long, and nobody too often."""

from enum import StrEnum

from attrs import define, evolve, field, frozen

from networking.addresses import source
from networking.pairing_code import same_code
from networking.transport import PeerId


class TurnedAwayError(Exception):
    """Not now; the message says why, for the newcomer. ``denied``: a person said no."""

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


class NotWaitingError(LookupError):
    """Nobody of that peer id waits (any more)."""


class WrongCodeError(ValueError):
    """The code is not the one that is shown here; the message says how many tries are left."""


@frozen
class DeskSettings:
    waiting: int = 8
    """Raised, a crowd of strangers makes a longer list to read; lowered, it keeps a real newcomer out sooner."""
    waiting_per_address: int = 4
    """An IPv6 /64 counts as one. Raised, one machine can fill the list alone; lowered, fewer fresh nodes of one machine can wait at once."""
    lasts_s: float = 120.0
    """Raised, a request that nobody means any more can be approved for longer; lowered, people have to hurry more."""
    wrong_codes: int = 3
    """Raised, a code can be guessed more often; lowered, people may mistype it less often."""
    denied_for_s: float = 600.0
    """Raised, a mistaken no lasts longer; lowered, whoever was denied can bother people again sooner."""
    denied_kept: int = 64
    """Raised, more memory for those who were denied; lowered, a crowd makes us forget them sooner."""


@frozen
class Applicant:
    """Who waits. The peer id is proven; name and machine are only what it says of itself."""

    number: int
    peer: PeerId
    name: str
    machine: str
    code: str
    address: str
    """The IP address it asks from."""
    until: float
    """When its time is up."""
    wrong_codes: int = 0


class Outcome(StrEnum):
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    REPLACED = "replaced"
    """The same peer has asked anew."""
    MOVED = "moved"
    """This machine went to another cluster itself."""


@frozen
class Decision:
    """What became of the applicant with that number."""

    number: int
    outcome: Outcome


@define
class Desk:
    """Every method that takes ``now`` (monotonic seconds) first ends what is over; decisions are handed out by ``decisions``."""

    settings: DeskSettings = field(factory=DeskSettings)
    _waiting: dict[PeerId, Applicant] = field(factory=dict[PeerId, Applicant])
    _denied: dict[PeerId, float] = field(factory=dict[PeerId, float])
    _decisions: list[Decision] = field(factory=list[Decision])
    _last_number: int = 0

    @property
    def waiting(self) -> tuple[Applicant, ...]:
        """In the order in which they asked."""
        return tuple(self._waiting.values())

    def decisions(self) -> list[Decision]:
        """What was decided since the last call."""
        decided, self._decisions = self._decisions, []
        return decided

    def apply(self, now: float, peer: PeerId, name: str, machine: str, code: str, address: str) -> Applicant:
        """Let a peer wait; an earlier request of the same one ends. Raises TurnedAwayError."""
        self.expire(now)
        if peer in self._denied:
            raise TurnedAwayError("your request was denied here a while ago; try again later", denied=True)
        if peer in self._waiting:
            self._end(peer, Outcome.REPLACED)
        from_there = sum(source(each.address) == source(address) for each in self._waiting.values())
        if len(self._waiting) >= self.settings.waiting or from_there >= self.settings.waiting_per_address:
            raise TurnedAwayError("too many machines wait to be let in here; try again in a while")
        self._last_number += 1
        until = now + self.settings.lasts_s
        applicant = Applicant(self._last_number, peer, name or peer[-8:], machine, code, address, until)
        self._waiting[peer] = applicant
        return applicant

    def withdraw(self, number: int) -> None:
        """The applicant is gone."""
        self._waiting = {peer: each for peer, each in self._waiting.items() if each.number != number}

    def approve(self, now: float, peer: PeerId, code: str | None = None) -> None:
        """Let it in; with a code given only if that is the right one. Raises NotWaitingError and WrongCodeError."""
        applicant = self._find(now, peer)
        if code is not None and not same_code(code, applicant.code):
            self._count_wrong_code(now, applicant)
        self._end(peer, Outcome.APPROVED)

    def deny(self, now: float, peer: PeerId) -> None:
        """Turn it away, for a while. Raises NotWaitingError."""
        self._find(now, peer)
        self._deny(now, peer)

    def move(self) -> None:
        """All who wait asked for a cluster that this machine has left."""
        for peer in list(self._waiting):
            self._end(peer, Outcome.MOVED)

    def expire(self, now: float) -> None:
        for applicant in self.waiting:
            if now >= applicant.until:
                self._end(applicant.peer, Outcome.EXPIRED)
        self._denied = {peer: until for peer, until in self._denied.items() if now < until}

    def _find(self, now: float, peer: PeerId) -> Applicant:
        self.expire(now)
        if peer not in self._waiting:
            raise NotWaitingError(
                f"{peer} does not wait to be let in; its time may be up, then it asks again by itself"
            )
        return self._waiting[peer]

    def _count_wrong_code(self, now: float, applicant: Applicant) -> None:
        left = self.settings.wrong_codes - applicant.wrong_codes - 1
        self._waiting[applicant.peer] = evolve(applicant, wrong_codes=applicant.wrong_codes + 1)
        if left <= 0:
            self._deny(now, applicant.peer)
            raise WrongCodeError(f"{applicant.name} shows another code; after so many wrong ones it was turned away")
        tries = "one more try" if left == 1 else f"{left} more tries"
        raise WrongCodeError(f"{applicant.name} shows another code: compare again, or deny it ({tries})")

    def _deny(self, now: float, peer: PeerId) -> None:
        self._denied[peer] = now + self.settings.denied_for_s
        while len(self._denied) > self.settings.denied_kept:
            del self._denied[next(iter(self._denied))]
        self._end(peer, Outcome.DENIED)

    def _end(self, peer: PeerId, outcome: Outcome) -> None:
        self._decisions.append(Decision(self._waiting.pop(peer).number, outcome))
