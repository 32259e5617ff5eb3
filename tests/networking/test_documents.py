from random import Random

import pytest
from attrs import evolve

from networking.documents import MAX_DELTA_BYTES, MAX_VALUE_BYTES, Documents, DocumentSettings, FactTooLargeError
from networking.simulation import sign_as, verify
from networking.transport import PeerId
from networking.wire import DocumentVersion, Life, SignedFact

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")


def documents(me, incarnation=1, process=1):
    settings = DocumentSettings(tombstone_s=600.0, retention_s=600.0)
    return Documents(me, Life(incarnation, process), sign_as(me), verify, settings)


def catch_up(reader, writer, owners, now=0.0):
    """One digest from the reader, and what the writer sends for it."""
    deltas = writer.missing_in(reader.digest(owners), owners)
    for delta in deltas:
        reader.apply(now, delta)
    return deltas


def test_a_fact_arrives_and_is_known_by_its_owner():
    a, b = documents(A), documents(B)
    for delta in a.write(0.0, {"key": b"1"}):
        assert b.apply(0.0, delta)
    assert b.values(A) == {"key": b"1"}
    assert b.values(C) == {}


def test_the_same_delta_twice_is_no_news():
    a, b = documents(A), documents(B)
    (delta,) = a.write(0.0, {"key": b"1"})
    assert b.apply(0.0, delta)
    assert not b.apply(0.0, delta)


def test_deltas_in_the_wrong_order_end_in_the_newest_values():
    a, b = documents(A), documents(B)
    deltas = [*a.write(0.0, {"key": b"1"}), *a.write(0.0, {"key": b"2"}), *a.write(0.0, {"other": b"3"})]
    for delta in reversed(deltas):
        b.apply(0.0, delta)
    assert b.values(A) == {"key": b"2", "other": b"3"}


def test_a_lost_delta_is_noticed_and_fetched():
    a, b = documents(A), documents(B)
    a.write(0.0, {"lost": b"1"})
    for delta in a.write(0.0, {"got": b"2"}):
        b.apply(0.0, delta)
    assert b.values(A) == {"got": b"2"}
    assert not b.covers(a.digest([A]))
    catch_up(b, a, [A])
    assert b.values(A) == {"lost": b"1", "got": b"2"}
    assert b.covers(a.digest([A]))


def test_only_what_is_missing_is_sent():
    a, b = documents(A), documents(B)
    a.write(0.0, {str(number): b"x" for number in range(10)})
    catch_up(b, a, [A])
    a.write(0.0, {"3": b"y"})
    (delta,) = catch_up(b, a, [A])
    assert len(delta.facts) == 1
    assert catch_up(b, a, [A]) == []


def test_a_third_party_hands_facts_on():
    a, b, c = documents(A), documents(B), documents(C)
    a.write(0.0, {"key": b"1"})
    catch_up(b, a, [A])
    catch_up(c, b, [A, B])
    assert c.values(A) == {"key": b"1"}


def test_nobody_can_write_in_anothers_name():
    a, b = documents(A), documents(B)
    (delta,) = a.write(0.0, {"key": b"1"})
    (fact,) = delta.facts
    forged = SignedFact(fact.body.replace('"MQ=="', '"Mg=="'), fact.signature)
    assert forged != fact
    assert not b.apply(0.0, evolve(delta, facts=(forged,)))
    assert not b.apply(0.0, evolve(delta, owner=C))
    assert not b.apply(0.0, evolve(delta, life=Life(9, 9)))
    assert b.values(A) == b.values(C) == {}


def test_a_delta_about_oneself_is_never_taken_over():
    a = documents(A)
    (delta,) = documents(A, incarnation=5, process=2).write(0.0, {"key": b"other"})
    assert not a.apply(0.0, delta)
    assert a.values(A) == {}


def test_a_deleted_key_is_gone_everywhere():
    a, b = documents(A), documents(B)
    a.write(0.0, {"key": b"1"})
    catch_up(b, a, [A])
    a.write(0.0, {"key": None})
    catch_up(b, a, [A])
    assert b.values(A) == {}


def test_a_deleted_key_does_not_come_back_when_its_tombstone_is_forgotten():
    a, b = documents(A), documents(B)
    a.write(0.0, {"key": b"1", "kept": b"2"})
    catch_up(b, a, [A])
    a.write(0.0, {"key": None})
    a.collect(700.0, [A, B])
    catch_up(b, a, [A], now=700.0)
    assert b.values(A) == {"kept": b"2"}
    assert b.covers(a.digest([A]))


def test_a_new_life_replaces_all_facts_of_the_old_one_and_they_never_come_back():
    old, new, b, c = documents(A), documents(A, 2, 2), documents(B), documents(C)
    old.write(0.0, {"old": b"1", "both": b"1"})
    catch_up(b, old, [A])
    catch_up(c, old, [A])
    new.write(0.0, {"both": b"2"})
    catch_up(b, new, [A])
    assert b.values(A) == {"both": b"2"}
    assert catch_up(b, c, [A]) == []
    catch_up(c, b, [A])
    assert c.values(A) == {"both": b"2"}


def test_outbidding_a_life_that_others_believe_in_brings_the_facts_along():
    b = documents(B)
    catch_up(b, _written(documents(A, incarnation=7, process=1), {"old": b"1"}), [A])
    restarted = _written(documents(A, incarnation=1, process=2), {"new": b"2"})
    assert catch_up(b, restarted, [A]) == []
    restarted.outbid(0.0, Life(7, 1))
    catch_up(b, restarted, [A])
    assert b.values(A) == {"new": b"2"}
    assert b.reached(A) == DocumentVersion(Life(8, 2), 1)


def _written(subject, changes):
    subject.write(0.0, changes)
    return subject


def test_the_hash_is_equal_where_the_same_structural_facts_are_held():
    a, b = documents(A), documents(B)
    a.write(0.0, {"key": b"1"})
    assert a.structural_hash([A]) != b.structural_hash([A])
    catch_up(b, a, [A])
    assert a.structural_hash([A]) == b.structural_hash([A])
    a.write(0.0, {"load": b"0.5"}, volatile=True)
    assert a.structural_hash([A]) == b.structural_hash([A])


def test_a_value_that_is_too_large_is_refused():
    a = documents(A)
    with pytest.raises(FactTooLargeError, match="over a stream"):
        a.write(0.0, {"key": bytes(MAX_VALUE_BYTES + 1)})
    assert a.version == 0


def test_a_large_document_is_sent_in_pieces():
    a, b = documents(A), documents(B)
    for number in range(8):
        a.write(0.0, {str(number): bytes(MAX_VALUE_BYTES // 3)})
    deltas = catch_up(b, a, [A])
    assert len(deltas) > 2
    assert all(sum(len(fact.body) for fact in delta.facts) <= 2 * MAX_DELTA_BYTES for delta in deltas)
    assert b.values(A) == a.values(A)


def test_the_document_of_a_peer_that_is_gone_is_kept_for_a_while():
    a, b = documents(A), documents(B)
    catch_up(b, _written(a, {"key": b"1"}), [A])
    b.collect(500.0, [B])
    assert b.values(A) == {"key": b"1"}
    b.collect(700.0, [B])
    assert b.reached(A) is None


@pytest.mark.parametrize("seed", range(20))
def test_copies_become_equal_whatever_is_lost_doubled_or_late(seed):
    random = Random(seed)
    a, others = documents(A), [documents(B), documents(C)]
    sent = []
    for step in range(60):
        key = f"key{random.randrange(5)}"
        value = None if random.random() < 0.3 else str(step).encode()
        sent += a.write(float(step), {key: value}, volatile=random.random() < 0.5)
        for other in others:
            for delta in random.sample(sent, min(len(sent), 3)):
                other.apply(float(step), delta)
        if random.random() < 0.1:
            reader, writer = random.sample(others, 2)
            catch_up(reader, writer, [A], now=float(step))
        if random.random() < 0.1:
            a.collect(step + 600.0, [A])
    for other in others:
        catch_up(other, a, [A])
        assert other.values(A) == a.values(A)
        assert other.structural_hash([A]) == a.structural_hash([A])
