"""The two sides of a pairing as state machines (pure): messages in, messages out; no I/O, no clock.

::

    asker                                    asked
    Ask (commitment to its nonce)      ─▶
                                       ◀─    Challenge (its nonce)
    Reveal (the nonce, a signature)    ─▶
                                       ◀─    Proof (a signature)          now both show the code
                                       ◀─    Waiting …, then Admission or Refusal
"""

import hmac

from attrs import frozen

from networking.pairing_code import (
    code_of,
    commitment_to,
    signed_by_asked,
    signed_by_asker,
    transcript_of,
)
from networking.pairing_messages import (
    PAIRING_VERSION,
    Admission,
    Ask,
    Challenge,
    PairingMessage,
    Proof,
    Purpose,
    Refusal,
    Reveal,
    Waiting,
)
from networking.transport import PeerId, Sign, Verify

BETWEEN = "somebody may stand between the two machines; try again on a network that you trust"


class PairingError(Exception):
    """The other side said something that can't be, or no; the message says what, for people."""

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied
        """Whether a person or a rule said no, rather than that something went wrong."""


@frozen
class Party:
    """One side: who it is and how it proves it."""

    me: PeerId
    sign: Sign
    verify: Verify


class Asker:
    """The newcomer's side. ``begin``, then hand over all that is received; what comes back is to be sent."""

    def __init__(
        self,
        party: Party,
        expected: PeerId,
        *,
        purpose: Purpose,
        name: str,
        machine: str,
        channel: bytes,
        nonce: bytes,
    ) -> None:
        """``nonce``: 32 random bytes, never used before. ``channel``: see ``pairing_code.transcript_of``."""
        self._party = party
        self._expected = expected
        self._channel = channel
        self._nonce = nonce
        commitment = commitment_to(nonce, party.me)
        self._ask = Ask(PAIRING_VERSION, purpose, party.me, name, machine, commitment)
        self._challenge: Challenge | None = None
        self._transcript = b""
        self.code: str | None = None
        """To be shown; known once the other side has proven its peer id."""
        self.admission: Admission | None = None

    @property
    def cluster(self) -> str:
        """Its name, as the other side told it."""
        return self._challenge.cluster if self._challenge else ""

    def begin(self) -> Ask:
        return self._ask

    def received(self, message: PairingMessage) -> Reveal | None:
        """Raises PairingError, also when the other side says no."""
        match message:
            case Refusal():
                # Before its proof it could be anybody who says no, and nobody's word to stay away is worth anything.
                raise PairingError(message.reason, denied=message.denied and self.code is not None)
            case Challenge() if self._challenge is None:
                return self._reveal(message)
            case Proof() if self._challenge is not None and self.code is None:
                self._check(message)
            case Waiting() if self.code is not None:
                pass
            case Admission() if self.code is not None and self.admission is None:
                self._take(message)
            case _:
                raise PairingError(f"the other machine said {type(message).__name__} at the wrong moment")
        return None

    def _reveal(self, challenge: Challenge) -> Reveal:
        _check_version(challenge.version)
        if challenge.peer != self._expected:
            raise PairingError(f"{challenge.peer} answers where {self._expected} was announced; {BETWEEN}")
        self._challenge = challenge
        self._transcript = transcript_of(self._ask, challenge, self._nonce, self._channel)
        return Reveal(self._nonce, self._party.sign(signed_by_asker(self._transcript)))

    def _check(self, proof: Proof) -> None:
        if not self._party.verify(self._expected, signed_by_asked(self._transcript), proof.signature):
            raise PairingError(f"{self._expected} could not prove who it is; {BETWEEN}")
        self.code = code_of(self._transcript)

    def _take(self, admission: Admission) -> None:
        if admission.cluster != self.cluster:
            raise PairingError(f"asked to join {self.cluster!r}, but was let into {admission.cluster!r}")
        self.admission = admission


class Asked:
    """The member's side. It never says ``Admission`` to anybody who has not proven its peer id on this channel."""

    def __init__(self, party: Party, cluster: str, *, channel: bytes, nonce: bytes) -> None:
        """``nonce``: 32 random bytes, never used before. ``channel``: see ``pairing_code.transcript_of``."""
        self._party = party
        self._channel = channel
        self._challenge = Challenge(PAIRING_VERSION, party.me, cluster, nonce)
        self._ask: Ask | None = None
        self.code: str | None = None
        """To be shown; known once the newcomer has proven its peer id."""

    @property
    def proven(self) -> Ask:
        """Who asks, and for what. Raises PairingError before it is proven."""
        if self._ask is None or self.code is None:
            raise PairingError("nobody has proven yet who asks")
        return self._ask

    def received(self, message: PairingMessage) -> Challenge | Proof:
        """Raises PairingError."""
        match message:
            case Ask() if self._ask is None:
                return self._challenged(message)
            case Reveal() if self._ask is not None and self.code is None:
                return self._prove(self._ask, message)
            case _:
                raise PairingError(f"the other machine said {type(message).__name__} at the wrong moment")

    def admit(self, admission: Admission) -> Admission:
        """The admission, if this is the moment for it. Raises PairingError."""
        _ = self.proven
        return admission

    def _challenged(self, ask: Ask) -> Challenge:
        _check_version(ask.version)
        if ask.peer == self._party.me:
            raise PairingError("a machine with our own peer id asks; was its home copied from here?")
        self._ask = ask
        return self._challenge

    def _prove(self, ask: Ask, reveal: Reveal) -> Proof:
        if not hmac.compare_digest(ask.commitment, commitment_to(reveal.nonce, ask.peer)):
            raise PairingError(f"{ask.peer} revealed another nonce than it had committed to; {BETWEEN}")
        transcript = transcript_of(ask, self._challenge, reveal.nonce, self._channel)
        if not self._party.verify(ask.peer, signed_by_asker(transcript), reveal.signature):
            raise PairingError(f"{ask.peer} could not prove who it is; {BETWEEN}")
        self.code = code_of(transcript)
        return Proof(self._party.sign(signed_by_asked(transcript)))


def _check_version(version: int) -> None:
    if version != PAIRING_VERSION:
        raise PairingError(
            f"the other machine pairs by version {version}, this one by {PAIRING_VERSION}; install the same on both"
        )
