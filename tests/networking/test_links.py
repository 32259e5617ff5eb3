import pytest

from networking.links import Links, LinkSettings
from networking.transport import Address, PeerId
from networking.wire import Hello, Life

A, B = PeerId("a"), PeerId("b")


def links(me=A):
    return Links(me, LinkSettings(clone_heard_s=1.5, clone_wait_s=3.0, fresh_s=1.5))


def greeted(subject, connection, now=0.0, *, process=1, outbound=True, peer=B):
    link = subject.open(now, connection, peer, outbound=outbound)
    subject.greet(now, link, Hello(1, Life(1, process)))
    return link


@pytest.mark.parametrize(("me", "other", "kept"), [(A, B, "outbound"), (B, A, "inbound")])
def test_of_two_connections_both_sides_keep_the_one_that_the_lower_peer_id_opened(me, other, kept):
    subject = links(me)
    found = {
        "inbound": greeted(subject, 1, outbound=False, peer=other),
        "outbound": greeted(subject, 2, outbound=True, peer=other),
    }
    (surplus,) = subject.surplus(0.1, other)
    assert surplus is not found[kept]


def test_a_connection_that_is_not_heard_any_more_does_not_displace_a_new_one():
    subject = links()
    stale = greeted(subject, 1, now=0.0, outbound=True)
    greeted(subject, 2, now=10.0, outbound=False)
    assert subject.surplus(10.0, B) == [stale]


def test_of_two_dialled_by_one_side_that_side_closes_the_newer():
    dialler, dialled = links(A), links(B)
    greeted(dialler, 1)
    greeted(dialled, 1, outbound=False, peer=A)
    newer = greeted(dialler, 2)
    greeted(dialled, 2, outbound=False, peer=A)
    assert dialler.surplus(0.1, B) == [newer]
    assert dialled.surplus(0.1, A) == []


def test_a_restart_takes_the_place_of_a_process_that_falls_silent():
    subject = links()
    old = greeted(subject, 1)
    new = greeted(subject, 2, now=10.0, process=2)
    assert new.contested_since == 10.0
    assert not subject.resolve(11.0, new).accept
    contest = subject.resolve(13.0, new)
    assert contest.accept and contest.obsolete == (old,)


def test_a_restart_is_accepted_at_once_when_the_old_connection_has_closed():
    subject = links()
    greeted(subject, 1)
    new = greeted(subject, 2, now=10.0, process=2)
    subject.close(1)
    assert subject.resolve(10.1, new).accept


def test_two_processes_that_are_both_heard_are_clones():
    subject = links()
    old = greeted(subject, 1)
    new = greeted(subject, 2, now=10.0, process=2)
    old.heard_at = 11.0  # may have been under way for long
    assert subject.resolve(11.0, new).clones == ()
    old.heard_at = 12.0
    assert subject.resolve(12.0, new).clones == (old,)


def test_a_connection_without_hello_is_given_up():
    subject = links()
    link = subject.open(0.0, 1, B, outbound=False)
    assert subject.without_hello(3.9) == []
    assert subject.without_hello(4.0) == [link]
    assert subject.without_hello(7.9, patience=2.0) == []
    assert subject.without_hello(8.0, patience=2.0) == [link]


def test_where_we_dialled_with_success_is_proven_while_the_connection_lives():
    subject = links()
    for number, outbound in ((1, True), (2, False), (3, True)):
        address = Address(f"/ip4/10.0.0.{number}/tcp/1")
        link = subject.open(0.0, number, B, outbound=outbound, address=address)
        assert address not in subject.proven(B)
        subject.greet(0.0, link, Hello(1, Life(1, 1)))
        link.joined = True
    assert subject.proven(B) == ("/ip4/10.0.0.3/tcp/1", "/ip4/10.0.0.1/tcp/1")
    assert subject.proven(A) == ()
    subject.close(3)
    assert subject.proven(B) == ("/ip4/10.0.0.1/tcp/1",)


def test_the_address_in_use_is_that_of_the_connection_heard_last_and_does_not_flicker():
    subject = links()
    assert subject.address_of(B) is None
    for number in (1, 2):
        link = subject.open(0.0, number, B, outbound=number == 1, address=Address(f"/ip4/10.0.0.{number}/tcp/1"))
        subject.greet(0.0, link, Hello(1, Life(1, 1)))
        link.joined = True
        link.heard_at = number * 0.5
    first, second = subject
    assert subject.address_of(B) == first.address
    second.heard_at = 5.0
    assert subject.address_of(B) == second.address
    subject.close(2)
    assert subject.address_of(B) == first.address
