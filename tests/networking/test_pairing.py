"""The two machines against each other, and against whoever stands between them or says something odd."""

import hashlib
from itertools import count
from pathlib import Path

import orjson
import pytest
from attrs import evolve, fields, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from networking.identity import Identity, verify
from networking.pairing import Asked, Asker, PairingError, Party
from networking.pairing_code import code_of, same_code
from networking.pairing_messages import (
    MAX_MESSAGE_BYTES,
    Admission,
    Ask,
    Challenge,
    MalformedPairingError,
    PairingMessage,
    Proof,
    Purpose,
    Refusal,
    Reveal,
    Waiting,
    decode,
    encode,
)
from networking.transport import PeerId

ADMISSION = Admission("desk", b"s" * 32, 0)
CHANNEL = b"c" * 32
_nonces = count(1)


def fresh_nonce() -> bytes:
    return hashlib.sha256(str(next(_nonces)).encode()).digest()


def party(number: int) -> Party:
    identity = Identity(Path(), Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
    return Party(identity.peer_id, identity.sign, verify)


ANNA, STUDIO, MALLORY = party(1), party(2), party(3)


def asker(who: Party = ANNA, whom: Party = STUDIO, channel: bytes = CHANNEL, nonce: bytes | None = None) -> Asker:
    return Asker(
        who,
        whom.me,
        purpose=Purpose.JOIN,
        name="anna",
        machine="Apple M3",
        channel=channel,
        nonce=nonce or fresh_nonce(),
    )


def asked(who: Party = STUDIO, channel: bytes = CHANNEL, nonce: bytes | None = None, cluster: str = "desk") -> Asked:
    return Asked(who, cluster, channel=channel, nonce=nonce or fresh_nonce())


@frozen
class Recorded:
    ask: Ask
    challenge: Challenge
    reveal: Reveal
    proof: Proof


def over_the_wire(message: PairingMessage | None) -> PairingMessage:
    assert message is not None
    return decode(encode(message))


def converse(one: Asker, other: Asked) -> Recorded:
    """Until both know the code."""
    ask = over_the_wire(one.begin())
    challenge = over_the_wire(other.received(ask))
    reveal = over_the_wire(one.received(challenge))
    proof = over_the_wire(other.received(reveal))
    assert one.received(proof) is None
    assert isinstance(ask, Ask)
    assert isinstance(challenge, Challenge)
    assert isinstance(reveal, Reveal)
    assert isinstance(proof, Proof)
    return Recorded(ask, challenge, reveal, proof)


def test_both_sides_show_the_same_code_and_the_newcomer_is_let_in() -> None:
    one, other = asker(), asked()
    converse(one, other)
    assert one.code is not None
    assert one.code == other.code
    assert (other.proven.peer, other.proven.name, other.proven.machine) == (ANNA.me, "anna", "Apple M3")
    one.received(Waiting())
    one.received(over_the_wire(other.admit(ADMISSION)))
    assert one.admission == ADMISSION


def test_each_pairing_has_another_code() -> None:
    codes: set[str | None] = set()
    for _ in range(5):
        one, other = asker(), asked()
        converse(one, other)
        codes.add(one.code)
    assert len(codes) == 5


def test_before_the_newcomer_is_proven_nothing_is_admitted() -> None:
    other = asked()
    with pytest.raises(PairingError, match="nobody has proven"):
        other.admit(ADMISSION)
    other.received(asker().begin())
    with pytest.raises(PairingError, match="nobody has proven"):
        other.admit(ADMISSION)


def test_what_a_stranger_learns_is_the_name_of_the_cluster() -> None:
    one, other = asker(), asked()
    told = converse(one, other)
    assert told.challenge.cluster == "desk"
    assert {each.name for each in fields(Challenge)} == {"version", "peer", "cluster", "nonce"}
    assert {each.name for each in fields(Proof)} == {"signature"}


def test_one_in_the_middle_makes_the_codes_differ() -> None:
    """He ends both conversations himself, with keys of his own, so all signatures are right."""
    anna, his_studio = asker(whom=MALLORY, channel=b"m" * 32), asked(MALLORY, channel=b"m" * 32)
    his_anna, studio = asker(MALLORY), asked()
    converse(anna, his_studio)
    converse(his_anna, studio)
    assert anna.code != studio.code


def test_one_in_the_middle_has_to_choose_before_he_can_know_the_code() -> None:
    """What he would need: to see the newcomer's nonce before his own words to it are fixed. He only has a hash."""
    anna = asker()
    ask = anna.begin()
    other = asked()
    reveal = anna.received(other.received(ask))
    assert reveal is not None
    assert reveal.nonce not in encode(ask)
    late = asked(nonce=fresh_nonce())
    late.received(ask)
    with pytest.raises(PairingError, match="could not prove who it is"):
        late.received(reveal)


def test_words_relayed_from_another_tls_connection_prove_nothing() -> None:
    anna, studio = asker(channel=b"m" * 32), asked(channel=CHANNEL)
    challenge = studio.received(anna.begin())
    reveal = anna.received(challenge)
    assert reveal is not None
    with pytest.raises(PairingError, match="may stand between"):
        studio.received(reveal)


def test_another_nonce_than_was_committed_to_is_refused() -> None:
    anna, studio = asker(), asked()
    reveal = anna.received(studio.received(anna.begin()))
    assert reveal is not None
    with pytest.raises(PairingError, match="another nonce"):
        studio.received(evolve(reveal, nonce=fresh_nonce()))


def test_another_peer_than_the_announced_one_is_refused() -> None:
    anna, mallory = asker(whom=STUDIO), asked(MALLORY)
    with pytest.raises(PairingError, match="answers where"):
        anna.received(mallory.received(anna.begin()))


def test_a_member_that_only_claims_its_peer_id_is_refused() -> None:
    anna = asker(whom=STUDIO)
    pretender = asked(evolve(MALLORY, me=STUDIO.me))
    reveal = anna.received(pretender.received(anna.begin()))
    with pytest.raises(PairingError, match="could not prove"):
        anna.received(pretender.received(over_the_wire(reveal)))
    assert anna.code is None


def test_old_messages_are_no_use() -> None:
    old = converse(asker(), asked())
    studio = asked()
    studio.received(old.ask)
    with pytest.raises(PairingError, match="could not prove"):
        studio.received(old.reveal)
    anna = asker()
    anna.begin()
    anna.received(old.challenge)
    with pytest.raises(PairingError, match="could not prove"):
        anna.received(old.proof)


def test_signatures_of_one_side_are_none_of_the_other() -> None:
    anna = asker(whom=ANNA)
    mirror = asked(ANNA)
    mirror_ask = evolve(anna.begin(), peer=STUDIO.me)
    challenge = mirror.received(mirror_ask)
    reveal = anna.received(challenge)
    assert reveal is not None
    with pytest.raises(PairingError):
        anna.received(Proof(reveal.signature))


@pytest.mark.parametrize(
    "message", [Proof(b"p" * 64), Waiting(), ADMISSION, Reveal(b"n" * 32, b"s" * 64), asker().begin()], ids=repr
)
def test_an_asker_takes_nothing_at_the_wrong_moment(message: PairingMessage) -> None:
    anna = asker()
    anna.begin()
    with pytest.raises(PairingError, match="at the wrong moment"):
        anna.received(message)
    assert anna.admission is None


@pytest.mark.parametrize("message", [Proof(b"p" * 64), Waiting(), ADMISSION, Reveal(b"n" * 32, b"s" * 64)], ids=repr)
def test_one_who_is_asked_takes_nothing_at_the_wrong_moment(message: PairingMessage) -> None:
    with pytest.raises(PairingError, match="at the wrong moment"):
        asked().received(message)


def test_a_no_is_told_in_its_own_words() -> None:
    anna = asker()
    converse(anna, asked())
    with pytest.raises(PairingError, match="ask again tomorrow") as told:
        anna.received(over_the_wire(Refusal("ask again tomorrow", denied=True)))
    assert told.value.denied


def test_a_no_of_somebody_who_has_not_proven_himself_keeps_nobody_away() -> None:
    anna = asker()
    anna.begin()
    with pytest.raises(PairingError) as told:
        anna.received(Refusal("never come again", denied=True))
    assert not told.value.denied


def test_an_admission_to_another_cluster_is_refused() -> None:
    one, other = asker(), asked()
    converse(one, other)
    with pytest.raises(PairingError, match="was let into 'attic'"):
        one.received(evolve(ADMISSION, cluster="attic"))


def test_another_version_is_named() -> None:
    with pytest.raises(PairingError, match="pairs by version 9, this one by 1"):
        asked().received(evolve(asker().begin(), version=9))


def test_our_own_peer_id_is_not_let_in() -> None:
    with pytest.raises(PairingError, match="our own peer id"):
        asked(STUDIO).received(asker(STUDIO).begin())


def test_what_strangers_call_themselves_is_made_fit_to_show() -> None:
    ask = evolve(asker().begin(), name="anna\x1b[2J\n" + "x" * 500)
    assert ask.name.startswith("anna[2Jxxx")
    assert len(ask.name) == 64


NO_NAMES = ["", "desk\x1b[2J", "desk\nroot logged in", " desk", "x" * 60_000, "d\u0435sk"]


@pytest.mark.parametrize("name", NO_NAMES, ids=lambda name: ascii(name[:12]))
@pytest.mark.parametrize(
    "message", [Challenge(1, STUDIO.me, "desk", b"n" * 32), ADMISSION], ids=lambda each: type(each).__name__
)
def test_a_door_can_only_name_what_can_be_a_cluster(message: Challenge | Admission, name: str) -> None:
    """It is shown and logged at the newcomer, before anybody has decided whether to trust that door."""
    hostile = orjson.dumps(orjson.loads(encode(message)) | {"cluster": name})
    with pytest.raises(MalformedPairingError) as refused:
        decode(hostile)
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("number", [-1, 2**53 + 1, 2**63, 1e300])
def test_a_number_of_secrets_that_no_cluster_lives_to_see_is_refused(number: float) -> None:
    """Once believed, no later change of the secret could outbid it."""
    hostile = orjson.dumps(orjson.loads(encode(ADMISSION)) | {"number": number})
    with pytest.raises(MalformedPairingError, match="invalid value") as refused:
        decode(hostile)
    assert len(str(refused.value)) < 300
    assert decode(encode(evolve(ADMISSION, number=2**53))) == evolve(ADMISSION, number=2**53)


def test_a_peer_id_is_written_in_one_way_only() -> None:
    hostile = orjson.dumps(orjson.loads(encode(asker().begin())) | {"peer": f"{ANNA.me} \n"})
    with pytest.raises(MalformedPairingError):
        decode(hostile)


@given(st.binary(max_size=200))
def test_garbage_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(MalformedPairingError):
        decode(data)


@pytest.mark.parametrize(
    "change",
    [
        b'{"kind":"Ask"}',
        b'{"kind":"Reveal","nonce":"AA==","signature":"AA=="}',
        b'{"kind":"Proof","signature":7}',
        b'{"kind":"Shutdown"}',
        b"[]",
    ],
)
def test_what_is_no_message_is_refused(change: bytes) -> None:
    with pytest.raises(MalformedPairingError):
        decode(change)


def test_the_longest_admission_fits() -> None:
    peers = (PeerId(ANNA.me),) * 256
    assert len(encode(evolve(ADMISSION, known=peers, removed=peers))) < MAX_MESSAGE_BYTES


def test_a_secret_is_not_in_the_repr() -> None:
    assert "sss" not in repr(ADMISSION)


@given(st.binary(min_size=32, max_size=32))
def test_a_code_is_six_digits_in_two_groups(transcript: bytes) -> None:
    code = code_of(transcript)
    assert (len(code), code[3]) == (7, " ")
    assert same_code(code, code.replace(" ", "-"))
    assert same_code(code, code.replace(" ", ""))
