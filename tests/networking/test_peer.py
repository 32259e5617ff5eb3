from itertools import pairwise
from random import Random
from typing import TypeVar

import orjson
import pytest

from networking.actions import Broadcast, Save, SavedState, Send, Warn
from networking.documents import Documents, DocumentSettings
from networking.peer import Peer, PeerSettings
from networking.simulation import join_payloads, sign_as, verify
from networking.transport import Address, PeerId
from networking.wire import (
    PROTOCOL_VERSION,
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
    Signed,
    decode_head,
    encode,
    encode_value,
)

A, B = PeerId("a"), PeerId("b")


def peer(me=A, *, saved=None, merge=join_payloads, check=verify):
    subject = Peer(
        me,
        process=1,
        saved=saved or SavedState(),
        sign=sign_as(me),
        verify=check,
        merge_payloads=merge,
        settings=PeerSettings(),
    )
    return subject, subject.start(0.0, [Address("/dns/a/tcp/1")])


def documents(me, life):
    return Documents(me, life, sign_as(me), verify, DocumentSettings())


def run(subject, seconds, since=0.0):
    """Ticks; all actions they cause."""
    actions = []
    for number in range(1, round(seconds * 4) + 1):
        actions += subject.tick(since + number / 4)
    return actions


T = TypeVar("T")


def of_kind(kind: type[T], actions) -> list[T]:
    return [each for each in actions if isinstance(each, kind)]


def messages(kind: type[T], actions) -> list[T]:
    return of_kind(kind, [each.message for each in actions if isinstance(each, (Send, Broadcast))])


def test_each_start_is_a_new_life_that_is_saved_before_anything_else():
    _, actions = peer(saved=SavedState(incarnation=4, term=7, seniority=2))
    assert actions[0] == Save(SavedState(5, 7, 2))
    assert decode_head(messages(Delta, actions)[0].head.body).life == Life(5, 1)


def test_alone_it_becomes_a_cluster_of_one_above_its_own_past():
    subject, _ = peer(saved=SavedState(incarnation=4, term=7, seniority=2))
    actions = run(subject, 4)
    view = subject.view()
    assert (view.leader, view.term, view.members[0].seniority) == (A, 8, 3)
    assert of_kind(Save, actions)[-1] == Save(SavedState(5, 8, 3))


def test_a_connection_is_greeted_and_has_a_heartbeat_each_second():
    subject, _ = peer()
    assert messages(Hello, subject.connected(0.0, 1, B, outbound=True))
    subject.received(0.0, 1, encode(Hello(PROTOCOL_VERSION, Life(1, 2))))
    assert len(messages(Heartbeat, run(subject, 3))) == 3


def met():
    """A peer with one other member, on connection 1."""
    subject, _ = peer()
    other = documents(B, Life(1, 2))
    subject.connected(0.0, 1, B, outbound=True)
    subject.received(0.0, 1, encode(Hello(PROTOCOL_VERSION, Life(1, 2))))
    subject.received(0.0, 1, encode(Digest(other.digest([B]))))
    for delta in other.write({"key": b"1"}):
        subject.received(0.0, 1, encode(delta))
    assert B in [each.peer for each in subject.view().members]
    return subject, Heartbeat("of others", other.version)


def test_whoever_says_anything_at_all_is_not_suspected():
    subject, _ = met()
    for second in range(1, 10):
        run(subject, 1, since=second - 1.0)
        subject.received(float(second), 1, encode(Ask(A)))
        assert [each.state.value for each in subject.view().members] == ["alive", "alive"]
    run(subject, 4, since=9.0)
    assert [each.state.value for each in subject.view().members] == ["alive", "suspect"]


def test_a_digest_is_not_repeated_before_there_is_an_answer_or_doubt_about_it():
    subject, heartbeat = met()
    asked = []
    for second in range(1, 20):
        run(subject, 1, since=second - 1.0)
        answer = subject.received(float(second), 1, encode(heartbeat))
        asked += [second for each in messages(Digest, answer) if each.answer]
    assert asked == [2, 3, 5, 9, 17]
    subject.received(19.0, 1, encode(Digest({})))
    asked.clear()
    for second in range(20, 30):
        for each in messages(Digest, subject.received(float(second), 1, encode(heartbeat))):
            asked += [second]
            assert each.answer
            subject.received(second + 0.1, 1, encode(Digest({})))
    assert asked == list(range(20, 30))


def test_others_are_asked_ever_more_seldom_about_somebody_whom_nobody_hears():
    gone = PeerId("c")
    subject, heartbeat = met()
    (left,) = documents(gone, Life(1, 3)).write({"key": b"1"})
    subject.gossip_received(0.0, encode(left))
    asked = []
    for second in range(1, 300):
        actions = run(subject, 1, since=second - 1.0)
        asked += [second for each in messages(Ask, actions) if each.about == gone]
        subject.received(float(second), 1, encode(heartbeat))
    assert len(asked) <= 11
    assert max(after - before for before, after in pairwise(asked)) <= 61
    subject.received(300.0, 1, encode(Digest({gone: DocumentVersion(Life(1, 3), 1)})))
    assert [each.about for each in messages(Ask, run(subject, 1, since=300.0))] == [gone]


def test_a_fact_that_did_not_change_is_not_told_again():
    subject, _ = peer()
    assert len(of_kind(Broadcast, subject.set_fact(0.0, "key", b"1"))) == 1
    assert subject.set_fact(0.1, "key", b"1") == []
    assert of_kind(Broadcast, subject.delete_fact(0.2, "key"))
    assert of_kind(Broadcast, subject.delete_fact(0.3, "key")) == []


def test_volatile_facts_go_out_merged_and_seldom():
    subject, _ = peer()
    run(subject, 1)
    sent = []
    for second in range(1, 11):
        for key in ("load", "memory"):
            assert not of_kind(Broadcast, subject.set_fact(second, key, str(second).encode(), volatile=True))
        assert subject.view().facts[A]["load"] == str(second).encode()
        sent += [each for each in messages(Delta, run(subject, 1, since=second)) if len(each.facts) == 2]
    assert 4 <= len(sent) <= 6


def test_a_payload_that_cannot_be_merged_costs_nobody_the_leader():
    def fail(payloads):
        raise ValueError("another version")

    subject, _ = peer(merge=fail)
    (delta,) = documents(B, Life(1, 2)).write({".claim": encode_value(Claim(5, 1, b"placed"))})
    subject.gossip_received(0.0, encode(delta))
    actions = run(subject, 4)
    assert (subject.view().term, subject.view().payload) == (6, b"placed")
    assert "another version" in of_kind(Warn, actions)[0].text


def test_after_goodbye_it_says_nothing_more():
    subject, _ = peer()
    subject.connected(0.0, 1, B, outbound=True)
    assert messages(Goodbye, subject.leave(1.0))
    assert run(subject, 5, since=1.0) == []
    assert subject.received(7.0, 1, encode(Hello(PROTOCOL_VERSION, Life(1, 2)))) == []


@pytest.mark.parametrize("seed", range(5))
def test_no_message_whatever_is_in_it_stops_a_peer(seed):
    random = Random(seed)
    subject, _ = peer(check=lambda *_: True)
    now = 0.0
    for number in range(1500):
        now += random.choice([0.0, 0.01, 0.3])
        if number % 50 == 0:
            subject.disconnected(now, number - 50)
            subject.connected(now, number, random.choice([A, B]), outbound=True)
            subject.received(now, number, encode(Hello(PROTOCOL_VERSION, Life(1, 2))))
        data = orjson.dumps(garbled(random, orjson.loads(encode(any_message(random)))))
        if random.random() < 0.3:
            subject.gossip_received(now, data)
        else:
            subject.received(now, number // 50 * 50, data)
        subject.tick(now)
        subject.view()
    assert any("were dropped" in each for each in subject.view().warnings)


def any_message(random):
    life = Life(random.choice([1, 1, 5, 2**53]), 2)
    value = random.choice([b"", b"{}", encode_value(Claim(3, 1)), b'{"term": 1e99, "members": -1}'])
    owner, version = random.choice([A, B, B, B]), random.choice([1, 2, 2**50])
    fact = signed(random, Fact(owner, life, version, random.choice([".claim", ".member", "key"]), value))
    head = signed(random, Head(owner, life, version, 1, random.choice([(), (1,), (version,)])))
    return random.choice(
        [
            Hello(1, life),
            Heartbeat("00", 3),
            Digest({A: DocumentVersion(life, 3), B: DocumentVersion(life, 1)}, answer=True),
            Delta(head, (fact,) * 2),
            Ask(B),
            Answer(B, 2, 1.0),
            Duplicate(3),
            Goodbye(),
        ]
    )


def signed(random, value):
    """Whoever signs may write nonsense, too."""
    fields = orjson.loads(encode_value(value))
    return Signed(orjson.dumps(garbled(random, fields) if random.random() < 0.2 else fields).decode(), b"signature")


def garbled(random, value):
    if random.random() < 0.1:
        return random.choice([None, -1, 2**63, 1.5, "", "text", [], {}, True, {"life": 1}])
    if isinstance(value, dict):
        return {key: garbled(random, each) if key != "kind" else each for key, each in value.items()}
    if isinstance(value, list):
        return [garbled(random, each) for each in value]
    return value


def test_a_restart_that_was_taken_for_a_clone_at_first_is_asked_for_all_it_said():
    subject, _ = peer()
    for connection, process in ((1, 2), (2, 3)):
        subject.connected(0.0, connection, B, outbound=True)
        subject.received(0.0, connection, encode(Hello(PROTOCOL_VERSION, Life(1, process))))
    assert subject.received(0.1, 2, encode(Digest({B: DocumentVersion(Life(1, 3), 1)}))) == []
    asked = [each for each in run(subject, 4) if isinstance(each, Send) and each.connection == 2]
    assert [each.answer for each in messages(Digest, asked)] == [True]


def test_only_ones_own_signature_makes_a_peer_outbid_a_life():
    subject, _ = peer()
    subject.connected(0.0, 1, B, outbound=True)
    subject.received(0.0, 1, encode(Hello(PROTOCOL_VERSION, Life(1, 2))))
    subject.received(0.1, 1, encode(Digest({A: DocumentVersion(Life(2**53, 9), 7)})))
    (genuine,) = documents(A, Life(6, 9)).write({"old": b"1"})
    forged = Signed(genuine.head.body, sign_as(B)(genuine.head.body.encode()))
    subject.gossip_received(0.2, encode(Delta(forged)))
    assert not of_kind(Save, run(subject, 1))
    assert Save(SavedState(7)) in subject.gossip_received(2.0, encode(genuine))


def test_a_restarted_peer_is_told_of_the_life_that_it_has_forgotten():
    subject, _ = peer()
    (old,) = documents(B, Life(6, 9)).write({"old": b"1"})
    subject.gossip_received(0.0, encode(old))
    subject.connected(0.0, 1, B, outbound=True)
    subject.received(0.0, 1, encode(Hello(PROTOCOL_VERSION, Life(1, 2))))
    told = messages(Delta, subject.received(0.1, 1, encode(Digest({B: DocumentVersion(Life(1, 2), 1)}))))
    assert old in told
