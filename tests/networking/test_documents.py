from random import Random

import pytest
from attrs import evolve

from networking.document import MAX_DELTA_BYTES
from networking.documents import MAX_VALUE_BYTES, Documents, DocumentSettings, FactTooLargeError
from networking.simulation import sign_as, verify
from networking.transport import PeerId
from networking.wire import (
    Delta,
    DocumentVersion,
    Life,
    MalformedMessageError,
    Signed,
    decode_head,
    encode_value,
)

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")


def documents(me, incarnation=1, process=1):
    settings = DocumentSettings(retention_s=600.0)
    return Documents(me, Life(incarnation, process), sign_as(me), verify, settings)


def apply(reader, *deltas, now=0.0):
    """Whether any of them brought news."""
    news = [reader.take(now, reader.read(delta)) for delta in deltas]
    return any(news)


def catch_up(reader, writer, owners, now=0.0):
    """One digest from the reader, and what the writer sends for it."""
    deltas = writer.missing_in(reader.digest(owners), owners)
    for delta in deltas:
        apply(reader, delta, now=now)
    return deltas


def test_a_fact_arrives_and_is_known_by_its_owner():
    a, b = documents(A), documents(B)
    for delta in a.write({"key": b"1"}):
        assert apply(b, delta)
    assert b.values(A) == {"key": b"1"}
    assert b.values(C) == {}


def test_the_same_delta_twice_is_no_news():
    a, b = documents(A), documents(B)
    (delta,) = a.write({"key": b"1"})
    assert apply(b, delta)
    assert not apply(b, delta)


def test_deltas_in_the_wrong_order_end_in_the_newest_values():
    a, b = documents(A), documents(B)
    deltas = [*a.write({"key": b"1"}), *a.write({"key": b"2"}), *a.write({"other": b"3"})]
    for delta in reversed(deltas):
        apply(b, delta)
    assert b.values(A) == {"key": b"2", "other": b"3"}


def test_a_lost_delta_is_noticed_and_fetched():
    a, b = documents(A), documents(B)
    a.write({"lost": b"1"})
    for delta in a.write({"got": b"2"}):
        apply(b, delta)
    assert b.values(A) == {"got": b"2"}
    assert not b.covers(a.digest([A]))
    catch_up(b, a, [A])
    assert b.values(A) == {"lost": b"1", "got": b"2"}
    assert b.covers(a.digest([A]))


def test_only_what_is_missing_is_sent():
    a, b = documents(A), documents(B)
    a.write({str(number): b"x" for number in range(10)})
    catch_up(b, a, [A])
    a.write({"3": b"y"})
    (delta,) = catch_up(b, a, [A])
    assert len(delta.facts) == 1
    assert catch_up(b, a, [A]) == []


def test_a_third_party_hands_facts_on():
    a, b, c = documents(A), documents(B), documents(C)
    a.write({"key": b"1"})
    catch_up(b, a, [A])
    catch_up(c, b, [A, B])
    assert c.values(A) == {"key": b"1"}


def test_nobody_can_write_in_anothers_name():
    a, b = documents(A), documents(B)
    (delta,) = a.write({"key": b"1"})
    (fact,) = delta.facts
    forged = Signed(fact.body.replace('"MQ=="', '"Mg=="'), fact.signature)
    assert forged != fact
    with pytest.raises(MalformedMessageError, match="not signed"):
        apply(b, evolve(delta, facts=(forged,)))
    assert b.values(A) == {}


@pytest.mark.parametrize(
    "claim", [{"version": 2**53, "facts": ()}, {"life": Life(2**53, 9)}, {"owner": C}, {"facts": ()}], ids=str
)
def test_nobody_else_can_delete_facts_or_begin_a_life(claim):
    a, b = documents(A), documents(B)
    (delta,) = a.write({"key": b"1"})
    apply(b, delta)
    forged = encode_value(evolve(decode_head(delta.head.body), **claim)).decode()
    for signature in (delta.head.signature, sign_as(B)(forged.encode())):
        with pytest.raises(MalformedMessageError, match="not signed"):
            apply(b, Delta(Signed(forged, signature)))
    assert b.values(A) == {"key": b"1"} and b.values(C) == {}


def test_facts_that_are_withheld_are_not_deleted_and_are_still_asked_for():
    a, b = documents(A), documents(B)
    apply(b, *a.write({"key": b"1", "other": b"1"}))
    (delta,) = a.write({"key": b"2"})
    apply(b, evolve(delta, facts=()))
    assert b.values(A) == {"key": b"1", "other": b"1"}
    assert not b.covers(a.digest([A]))
    catch_up(b, a, [A])
    assert b.values(A) == {"key": b"2", "other": b"1"}


def test_an_old_delta_brings_nothing_back():
    a, b = documents(A), documents(B)
    old = a.write({"key": b"1"})
    apply(b, *a.write({"key": None}))
    assert not apply(b, *old)
    assert b.values(A) == {}


def test_facts_of_another_owner_or_life_do_not_pass_under_a_head():
    a, b = documents(A), documents(B)
    (delta,) = a.write({"key": b"1"})
    for other in (documents(C), documents(A, incarnation=2)):
        (foreign,) = other.write({"key": b"2"})
        with pytest.raises(MalformedMessageError):
            apply(b, evolve(delta, facts=foreign.facts))


def test_a_head_that_makes_no_sense_is_refused():
    (delta,) = documents(A).write({"key": b"1"})
    for nonsense in ("[0]", "[2]", "[-1]", '["x"]', "7"):
        body = delta.head.body.replace('"facts":[1]', f'"facts":{nonsense}')
        assert body != delta.head.body
        with pytest.raises(MalformedMessageError):
            apply(documents(B), Delta(Signed(body, sign_as(A)(body.encode()))))


def test_a_delta_about_oneself_is_never_taken_over():
    a = documents(A)
    (delta,) = documents(A, incarnation=5, process=2).write({"key": b"other"})
    assert not apply(a, delta)
    assert a.values(A) == {}


def test_a_deleted_key_is_gone_everywhere():
    a, b = documents(A), documents(B)
    a.write({"key": b"1"})
    catch_up(b, a, [A])
    a.write({"key": None})
    catch_up(b, a, [A])
    assert b.values(A) == {}


def test_a_deletion_that_was_lost_comes_with_the_next_change():
    a, b = documents(A), documents(B)
    apply(b, *a.write({"key": b"1", "kept": b"2"}))
    a.write({"key": None})
    apply(b, *a.write({"load": b"3"}, volatile=True))
    assert b.values(A) == {"kept": b"2", "load": b"3"}
    assert b.covers(a.digest([A]))


def test_a_new_life_replaces_all_facts_of_the_old_one_and_they_never_come_back():
    old, new, b, c = documents(A), documents(A, 2, 2), documents(B), documents(C)
    old.write({"old": b"1", "both": b"1"})
    catch_up(b, old, [A])
    catch_up(c, old, [A])
    new.write({"both": b"2"})
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
    restarted.outbid(Life(7, 1))
    catch_up(b, restarted, [A])
    assert b.values(A) == {"new": b"2"}
    assert b.reached(A) == DocumentVersion(Life(8, 2), 1)


def _written(subject, changes):
    subject.write(changes)
    return subject


def test_the_hash_is_equal_where_the_same_structural_facts_are_held():
    a, b = documents(A), documents(B)
    a.write({"key": b"1"})
    assert a.structural_hash([A]) != b.structural_hash([A])
    catch_up(b, a, [A])
    assert a.structural_hash([A]) == b.structural_hash([A])
    a.write({"load": b"0.5"}, volatile=True)
    assert a.structural_hash([A]) == b.structural_hash([A])
    a.write({"key": None})
    assert a.structural_hash([A]) != b.structural_hash([A])


def test_a_value_that_is_too_large_is_refused():
    a = documents(A)
    with pytest.raises(FactTooLargeError, match="over a stream"):
        a.write({"key": bytes(MAX_VALUE_BYTES + 1)})
    assert a.version == 0


def test_a_large_document_is_sent_in_pieces():
    a, b = documents(A), documents(B)
    for number in range(8):
        a.write({str(number): bytes(MAX_VALUE_BYTES // 3)})
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
        sent += a.write({key: value}, volatile=random.random() < 0.5)
        for other in others:
            for delta in random.sample(sent, min(len(sent), 3)):
                apply(other, delta, now=float(step))
        if random.random() < 0.1:
            reader, writer = random.sample(others, 2)
            catch_up(reader, writer, [A], now=float(step))
    for other in others:
        catch_up(other, a, [A])
        assert other.values(A) == a.values(A)
        assert other.structural_hash([A]) == a.structural_hash([A])
