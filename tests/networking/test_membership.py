from networking.membership import (
    AskOthers,
    CloseStale,
    Died,
    Membership,
    MembershipSettings,
    MemberState,
    Revived,
    Suspected,
)
from networking.transport import PeerId

A, B = PeerId("a"), PeerId("b")
TICK = 0.25


class Watch:
    """Drives a membership tick by tick and notes what it says and when."""

    def __init__(self, **settings):
        self.membership = Membership(MembershipSettings(**settings))
        self.now = 0.0
        self.said = []

    def note(self, verdicts):
        self.said += [(self.now, each) for each in verdicts]

    def run(self, seconds, heartbeats=()):
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            if self.now % 1 == 0:
                for connection in heartbeats:
                    self.note(self.membership.heard(self.now, connection))
            self.note(self.membership.tick(self.now))

    def when(self, verdict):
        return next(at for at, each in self.said if each == verdict)

    def has_said(self, kind):
        return any(isinstance(each, kind) for _, each in self.said)


def joined(*connections, peer=A, **settings):
    watch = Watch(**settings)
    for connection in connections:
        watch.note(watch.membership.joined(0.0, connection, peer))
    watch.note(watch.membership.tick(0.0))
    return watch


def test_a_peer_that_is_heard_stays_alive():
    watch = joined(1)
    watch.run(60, heartbeats=[1])
    assert watch.said == []
    assert watch.membership.states == {A: MemberState.ALIVE}


def test_a_closed_connection_makes_a_suspect_at_once_and_a_dead_peer_within_a_second_and_a_half():
    watch = joined(1)
    watch.run(10, heartbeats=[1])
    watch.note(watch.membership.closed(watch.now, 1))
    assert watch.membership.states == {A: MemberState.SUSPECT}
    watch.run(3)
    assert 1.0 <= watch.when(Died(A)) - watch.when(Suspected(A)) <= 1.5
    assert watch.membership.states == {}


def test_a_silent_peer_is_asked_about_then_suspect_then_dead_within_six_seconds():
    watch = joined(1)
    watch.run(10, heartbeats=[1])
    watch.run(6)
    assert 10 < watch.when(AskOthers(A)) < watch.when(Suspected(A)) < watch.when(Died(A)) <= 16


def test_a_pause_of_two_seconds_changes_nothing():
    watch = joined(1)
    watch.run(10, heartbeats=[1])
    watch.run(2.75)  # the next heartbeat was due when the pause began, and is late on its way
    watch.run(10, heartbeats=[1])
    assert not watch.has_said(Suspected) and not watch.has_said(Died)


def test_another_connection_keeps_a_peer_alive_and_the_stale_one_is_closed():
    watch = joined(1, 2)
    watch.run(8, heartbeats=[2])
    assert [each for _, each in watch.said] == [CloseStale(1)]
    assert watch.membership.closed(watch.now, 1) == []
    assert watch.membership.states == {A: MemberState.ALIVE}


def test_a_new_connection_revives_a_suspect():
    watch = joined(1)
    watch.note(watch.membership.closed(0.0, 1))
    watch.run(0.5)
    assert watch.membership.joined(watch.now, 2, A) == [Revived(A)]
    watch.run(5, heartbeats=[2])
    assert not watch.has_said(Died)


def test_whom_another_member_hears_stays_suspect_as_long_as_it_is_heard():
    watch = joined(1)
    watch.note(watch.membership.closed(0.0, 1))
    for _ in range(10):
        watch.run(0.75)
        watch.membership.vouch(watch.now, A, age_s=0.5)
    assert watch.membership.states == {A: MemberState.SUSPECT}
    watch.run(3)
    assert watch.membership.states == {}


def test_that_somebody_heard_a_peer_before_its_connection_closed_proves_nothing():
    watch = joined(1)
    watch.run(5, heartbeats=[1])
    watch.note(watch.membership.closed(watch.now, 1))
    watch.run(0.5)
    watch.membership.vouch(watch.now, A, age_s=0.7)
    watch.run(1)
    assert watch.membership.states == {}


def test_who_says_goodbye_is_gone_at_once():
    watch = joined(1)
    assert watch.membership.left(A) == [Died(A)]
    assert watch.membership.left(A) == []
    assert watch.membership.states == {}


def test_after_standing_still_nobody_is_judged_by_the_time_slept():
    watch = joined(1)
    watch.run(5, heartbeats=[1])
    watch.now += 3600
    watch.note(watch.membership.tick(watch.now))
    watch.run(3)
    assert not watch.has_said(Suspected) and not watch.has_said(Died)


def test_a_node_that_keeps_bad_time_is_slow_to_accuse():
    calm, strained = joined(1), joined(1)
    strained.now += 2
    strained.note(strained.membership.tick(strained.now))
    assert strained.membership.strain == 1
    for watch in (calm, strained):
        watch.run(8)
    silence_from_wake_up = strained.when(Died(A)) - 2
    assert silence_from_wake_up > calm.when(Died(A))


def test_a_peer_that_says_it_is_strained_is_given_more_time():
    watch = joined(1)
    watch.membership.heard(0.0, 1, strain=4)
    watch.run(11)
    assert 6 < watch.when(Died(A)) <= 10.25


def test_a_frame_that_is_no_heartbeat_is_heard_and_tells_nothing_of_strain():
    watch = joined(1)
    watch.membership.heard(0.0, 1, strain=4)
    watch.membership.heard(3.0, 1)
    assert watch.membership.heard_at(A) == 3.0
    watch.run(12)
    assert watch.when(Died(A)) > 3 + 8
    watch = joined(1)
    watch.membership.heard(0.0, 1, strain=4)
    watch.membership.heard(3.0, 1, strain=0)
    watch.run(12)
    assert watch.when(Died(A)) < 3 + 6


def test_a_strained_peer_whose_connection_closes_has_longer_to_come_back():
    calm, strained = joined(1), joined(1)
    strained.membership.heard(0.0, 1, strain=4)
    for watch in (calm, strained):
        watch.note(watch.membership.closed(0.0, 1))
        watch.run(3)
    assert calm.when(Died(A)) == 1.0
    assert strained.when(Died(A)) == 2.0


def test_a_node_whose_ticks_are_late_blames_nobody_for_it():
    busy = joined(1)
    for _ in range(8):  # each tick 0.6 s late, and the frames as well
        busy.now += 0.6
        busy.run(TICK)
    assert (busy.said, busy.membership.strain) == ([], 0)
    busy.run(5)
    assert busy.has_said(Died)


def test_a_node_whose_ticks_are_always_late_still_finds_out_who_is_dead():
    busy = joined(1, 2)
    busy.note(busy.membership.joined(0.0, 3, B))
    busy.note(busy.membership.closed(0.0, 3))
    while busy.now < 30:
        busy.now += 0.6
        busy.run(TICK)
    assert busy.when(Died(B)) < 4
    assert busy.when(Died(A)) < 20


def test_strain_wears_off():
    watch = joined(1)
    watch.now += 5
    watch.note(watch.membership.tick(watch.now))
    assert watch.membership.strain == 1
    watch.run(11, heartbeats=[1])
    assert watch.membership.strain == 0


def test_peers_are_judged_one_by_one():
    watch = joined(1)
    watch.note(watch.membership.joined(0.0, 2, B))
    watch.run(8, heartbeats=[2])
    assert watch.membership.states == {B: MemberState.ALIVE}


def test_whom_others_hear_is_a_suspect_even_if_it_was_never_met():
    watch = joined(1)
    assert watch.membership.vouch(0.0, B, age_s=60.0) == []
    assert watch.membership.vouch(0.0, B, age_s=0.5) == [Suspected(B)]
    assert watch.membership.states[B] is MemberState.SUSPECT
    watch.run(3, heartbeats=[1])
    assert watch.membership.states == {A: MemberState.ALIVE}


def test_a_node_that_stands_still_again_and_again_still_finds_out_who_is_dead():
    watch = joined(1)
    while watch.now < 40:
        watch.now += 2.0
        watch.run(2.0)
    assert watch.when(Died(A)) <= 24


def test_a_node_that_stood_still_does_not_vouch_for_what_it_has_not_heard():
    watch = joined(1)
    watch.now += 10.0
    watch.run(0.25)
    assert not watch.has_said(Died)
    assert watch.membership.heard_at(A) == 0.0
