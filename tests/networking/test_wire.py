import pytest

from networking.transport import Address, PeerId
from networking.wire import (
    Answer,
    Ask,
    Claim,
    Delta,
    Digest,
    DocumentVersion,
    Duplicate,
    Fact,
    Goodbye,
    Head,
    Heartbeat,
    Hello,
    Life,
    MalformedMessageError,
    MemberFact,
    Signed,
    UnknownKindError,
    decode,
    decode_claim,
    decode_fact,
    decode_head,
    decode_member,
    encode,
    encode_value,
)

A = PeerId("a")
LIFE = Life(3, 2**53 - 1)

MESSAGES = [
    Hello(1, LIFE),
    Heartbeat("00ff00ff00ff00ff", own=7, strain=2),
    Digest({A: DocumentVersion(LIFE, 9)}, answer=True),
    Delta(Signed('{"any": "head"}', b"\x01"), (Signed('{"any": "text"}', b"\x00\xff"),)),
    Ask(A),
    Answer(A, 5, 0.25),
    Answer(A),
    Duplicate(4),
    Goodbye(),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_survives_the_wire(message):
    assert decode(encode(message)) == message


def test_a_head_survives_the_wire():
    head = Head(A, LIFE, 4, 2, (1, 2, 4))
    assert decode_head(encode_value(head).decode()) == head


@pytest.mark.parametrize("value", [b"\x00binary\xff", b""])
def test_a_fact_survives_the_wire(value):
    fact = Fact(A, LIFE, 4, "key", value)
    assert decode_fact(encode_value(fact).decode()) == fact


def test_the_overlays_own_facts_survive_the_wire():
    assert decode_member(encode_value(MemberFact(3, False, (Address("/ip4/10.0.0.1/tcp/1"),)))).addresses == (
        "/ip4/10.0.0.1/tcp/1",
    )
    assert decode_claim(encode_value(Claim(7, 3, b"payload"))) == Claim(7, 3, b"payload")


def test_a_field_of_a_newer_version_is_ignored():
    assert decode(b'{"kind": "Ask", "about": "a", "politely": true}') == Ask(A)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"kind": 5}',
        b'{"kind": "Ask"}',
        b'{"kind": "Heartbeat", "versions": "x", "own": "many"}',
        b'{"kind": "Delta", "head": {"body": "", "signature": "not base64!"}, "facts": []}',
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(MalformedMessageError):
        decode(data)


def test_an_unknown_kind_is_told_apart():
    with pytest.raises(UnknownKindError, match="Serenade"):
        decode(b'{"kind": "Serenade"}')


def test_a_fact_never_passes_for_a_head_nor_a_head_for_a_fact():
    fact, head = encode_value(Fact(A, LIFE, 4, "key", b"")).decode(), encode_value(Head(A, LIFE, 4, 2, ())).decode()
    with pytest.raises(MalformedMessageError):
        decode_head(fact)
    with pytest.raises(MalformedMessageError):
        decode_fact(head)


@pytest.mark.parametrize("number", ["-1", "9007199254740993", "1e300", "null", '"x"'])
def test_a_count_that_nothing_can_be_added_to_is_refused(number):
    with pytest.raises(MalformedMessageError):
        decode_claim(b'{"term": %s, "members": 1}' % number.encode())
