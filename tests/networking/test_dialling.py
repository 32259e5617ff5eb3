from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace

import trio
import trio.testing

from networking.dialling import Dialler, DialSettings, Signal
from networking.transport import Address, DialError, OtherClusterError, PeerId

ME, A = PeerId("me"), PeerId("a")
OLD, NEW, OTHER = (Address(f"/ip4/10.0.0.{number}/tcp/1") for number in (1, 2, 3))


class Network:
    """A transport that notes what is dialled. Nobody answers but at ``alive``, after the time that a dial takes."""

    me = ME
    addresses = ()

    def __init__(self, dial_s=4.0):
        self.dial_s = dial_s
        self.alive = {}
        self.strangers = set()
        self.hosts = {}
        self.answered = []
        self.connected = set()
        self.changed = Signal()
        self.dialled = []
        self.under_way = 0
        self.most_at_once = 0

    async def dial(self, address, peer=None):
        self.dialled.append(address)
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await trio.sleep(self.dial_s)
        finally:
            self.under_way -= 1
        if address in self.strangers:
            raise OtherClusterError(f"{address}: another cluster")
        if address not in self.alive:
            raise DialError(f"{address}: no answer")
        self.answered.append(address)
        self.connected.add(self.alive[address])
        self.changed.notify()
        return SimpleNamespace(peer=self.alive[address])

    def lose(self, peer):
        self.connected.remove(peer)
        self.changed.notify()


@asynccontextmanager
async def dialling(network, **settings):
    """A dialler that runs, and what it reports."""
    reports = []
    dialler = Dialler(
        network,
        network.connected.__contains__,
        network.changed,
        lambda target, problem: reports.append((target, problem)),
        DialSettings(**settings),
        Random(1),
        lambda peer: network.hosts.get(peer, ()),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dialler.run)
        yield dialler, reports
        nursery.cancel_scope.cancel()


def run(test):
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


def test_the_newest_address_is_dialled_first_and_the_others_after_it():
    async def main():
        network = Network()
        async with dialling(network) as (dialler, _):
            dialler.give(OLD, A)
            dialler.sight(A, [OTHER])
            dialler.sight(A, [NEW])
            await trio.sleep(10)
        assert network.dialled[:2] == [NEW, OLD]
        assert OTHER not in network.dialled

    run(main)


def test_forged_sightings_cost_few_dials_and_hold_nobody_up():
    async def main():
        network = Network()
        network.alive[NEW] = A
        async with dialling(network, sighted_at_once=16) as (dialler, _):
            for number in range(1000):
                dialler.sight(PeerId(f"forged-{number}"), [Address(f"/ip4/10.9.9.9/tcp/{number}")])
            await trio.sleep(1)
            assert network.under_way == 16
            dialler.give(NEW, A)
            await trio.sleep(5)
            assert A in network.connected
            assert network.most_at_once == 17
            await trio.sleep(1000)
            assert network.under_way == 0  # all forgotten

    run(main)


def test_a_given_address_that_can_not_be_reached_is_reported_until_it_can():
    async def main():
        network = Network()
        async with dialling(network) as (dialler, reports):
            dialler.give(NEW, None)
            await trio.sleep(30)
            assert set(reports) == {(NEW, f"{NEW}: no answer")}
            network.alive[NEW] = A
            await trio.sleep(30)
            assert reports[-1] == (NEW, None)
            assert reports.count((NEW, None)) == 1

    run(main)


def test_what_was_only_sighted_or_learned_is_not_reported():
    async def main():
        network = Network()
        async with dialling(network) as (dialler, reports):
            dialler.sight(A, [OLD])
            dialler.learn({PeerId("b"): [NEW]})
            await trio.sleep(60)
        assert OLD in network.dialled and NEW in network.dialled
        assert reports == []

    run(main)


def test_a_peer_that_is_struck_out_is_dialled_no_more():
    async def main():
        network = Network()
        async with dialling(network) as (dialler, _):
            dialler.learn({A: [OLD]})
            await trio.sleep(2)
            assert network.under_way == 1
            dialler.learn({})
            await trio.sleep(60)
        assert network.dialled == [OLD]

    run(main)


def test_what_is_learned_after_the_end_is_dialled_no_more():
    async def main():
        network = Network()
        async with dialling(network) as (dialler, _):
            await trio.sleep(1)
        dialler.learn({A: [OLD]})
        assert network.dialled == []

    run(main)


def test_an_address_that_does_not_answer_holds_up_no_other_and_comes_last_from_then_on():
    async def main():
        network = Network(dial_s=3.0)
        network.alive[NEW] = A
        async with dialling(network, stagger_s=0.5) as (dialler, _):
            dialler.learn({A: [OLD, OTHER, NEW]})
            await trio.sleep(4.5)
            assert network.connected == {A}
            assert network.dialled == [OLD, OTHER, NEW]
            network.lose(A)
            await trio.sleep(4.5)
            assert network.connected == {A}
            assert network.dialled[3] == NEW

    run(main)


def test_one_address_that_answers_ends_the_dials_of_the_others():
    async def main():
        network = Network(dial_s=3.0)
        network.alive |= {OLD: A, NEW: A}
        async with dialling(network, stagger_s=0.5) as (dialler, _):
            dialler.learn({A: [OLD, NEW]})
            await trio.sleep(20)
        assert network.dialled == [OLD, NEW]
        assert network.answered == [OLD]
        assert network.under_way == 0

    run(main)


def test_another_address_is_dialled_when_a_connection_falls_silent():
    async def main():
        network = Network(dial_s=0.1)
        network.alive |= {OLD: A, NEW: A}
        async with dialling(network) as (dialler, _):
            dialler.learn({A: [OLD, NEW]})
            await trio.sleep(10)
            assert network.answered == [OLD]
            del network.alive[OLD]
            network.connected.clear()  # it isn't heard any more; that a connection ended, nobody says
            await trio.sleep(2)
        assert network.answered == [OLD, NEW]

    run(main)


def test_another_cluster_at_a_given_address_is_reported_at_once():
    async def main():
        network = Network(dial_s=0.1)
        network.strangers.add(OLD)
        async with dialling(network) as (dialler, reports):
            dialler.give(OLD, None)
            await trio.sleep(0.5)
        assert reports == [(OLD, f"{OLD}: another cluster")]

    run(main)


def test_beside_a_silent_connection_only_other_hosts_are_dialled():
    async def main():
        network = Network(dial_s=0.1)
        network.hosts[A] = {"10.0.0.1"}
        async with dialling(network) as (dialler, _):
            dialler.learn({A: [OLD]})
            await trio.sleep(20)
            assert network.dialled == []
            dialler.learn({A: [OLD, NEW]})
            await trio.sleep(2)
            assert set(network.dialled) == {NEW}
            network.hosts.clear()  # the silent connection was closed
            await trio.sleep(20)
            assert OLD in network.dialled

    run(main)


def dialled_in_ten_minutes(given, own):
    network = Network(dial_s=0.1)
    network.alive[given] = ME
    network.addresses = own

    async def test():
        async with dialling(network) as (dialler, _):
            dialler.give(given, None)
            network.connected.discard(ME)
            await trio.sleep(600)

    run(test)
    return len(network.dialled)


def test_an_address_of_our_own_is_dialled_once():
    assert dialled_in_ten_minutes(OLD, (OLD, NEW)) == 1
    assert dialled_in_ten_minutes(Address("/ip4/127.0.0.1/tcp/1"), (OLD,)) == 1


def test_where_a_copy_of_us_answers_or_a_name_leads_is_looked_at_again():
    assert dialled_in_ten_minutes(OLD, (NEW,)) > 5
    assert dialled_in_ten_minutes(Address("/dns/desk/tcp/1"), (OLD,)) > 5
