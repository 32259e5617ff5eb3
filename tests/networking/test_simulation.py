"""What must hold for every seed: delays, loss and the order of events differ, the promises do not."""

from random import Random

import pytest
import trio

from networking.simulated_network import SimulatedNetwork
from networking.simulated_run import run_seed
from networking.simulation import NetworkConditions, as_all_see_them, open_cluster, simulate
from networking.transport import Address

LOSSY = NetworkConditions(delay_s=0.001, jitter_s=0.05, broadcast_loss=0.3)

seeds = pytest.mark.parametrize("seed", range(6))


def in_cluster(seed, count, story, conditions=LOSSY):
    """Run a story on a cluster that has settled."""

    async def main():
        async with open_cluster(count, seed=seed, conditions=conditions) as cluster:
            return await story(cluster)

    return simulate(main, seed=seed)


def peers(view):
    return {member.peer for member in view.members}


def leadership(view):
    return view.leader, view.term


def test_a_seed_replays_exactly():
    async def history():
        seen = []
        async with open_cluster(4, seed=5, conditions=LOSSY) as cluster:
            cluster.leader.crash()
            await cluster.settled()
            for node in cluster.nodes:
                seen.append((trio.current_time(), node.view))
            seen.append(
                cluster.running[0].overlay._peer._documents.structural_hash(
                    cluster.running[0].overlay._peer._documents.owners
                )
            )
        return seen

    assert simulate(history, seed=5) == simulate(history, seed=5)


@seeds
def test_a_join_changes_no_leader(seed):
    async def story(cluster):
        before = leadership(cluster.leader.view)
        for number in range(3):
            await cluster.add(f"late-{number}")
        await cluster.settled()
        await trio.sleep(10)
        assert {leadership(node.view) for node in cluster.nodes} == {before}

    in_cluster(seed, 3, story)


@seeds
@pytest.mark.parametrize("with_state", [True, False])
def test_a_followers_restart_changes_no_leader(seed, with_state):
    async def story(cluster):
        before = leadership(cluster.leader.view)
        follower = Random(seed).choice([node for node in cluster.nodes if node is not cluster.leader])
        for _ in range(3):
            follower.crash()
            await trio.sleep(Random(seed).uniform(0, 3))
            await follower.restart(with_state=with_state)
            await cluster.settled()
        assert {leadership(node.view) for node in cluster.nodes} == {before}

    in_cluster(seed, 3, story)


@seeds
def test_a_crashed_leader_is_replaced_and_its_payload_lives_on(seed):
    async def story(cluster):
        leader = cluster.leader
        leader.overlay.set_payload(b"placed")
        await trio.sleep(4)
        term = leader.view.term
        leader.crash()
        others = cluster.running
        noticed_s = await cluster.until(lambda: all(leader.peer not in peers(each.view) for each in others))
        assert noticed_s <= 1.6
        assert await cluster.settled() <= 3.0
        assert cluster.leader.view.term > term
        assert {node.view.payload for node in others} == {b"placed"}

    in_cluster(seed, 4, story, NetworkConditions())


@seeds
def test_a_peer_that_falls_silent_is_dead_within_six_seconds(seed):
    async def story(cluster):
        lost = Random(seed).choice(cluster.nodes)
        lost.crash(silently=True)
        await cluster.until(lambda: all(lost.peer not in peers(each.view) for each in cluster.running), within_s=6.1)

    in_cluster(seed, 4, story)


@seeds
def test_a_pause_of_two_seconds_changes_nothing(seed):
    async def story(cluster):
        seen = []

        async def watch(node):
            async for view in node.overlay.views():
                seen.append((view.leader, view.term, tuple(as_all_see_them(view))))

        await cluster.settled()
        await trio.sleep(5)
        for node in cluster.nodes:
            cluster.nursery.start_soon(watch, node)
        await trio.sleep(Random(seed).random())
        await Random(seed).choice(cluster.nodes).pause(2.0)
        await trio.sleep(10)
        assert len(set(seen)) == 1

    in_cluster(seed, 4, story, NetworkConditions())


@seeds
def test_a_leader_that_stood_still_for_long_comes_back_as_a_follower(seed):
    async def story(cluster):
        leader = cluster.leader
        await leader.pause(10)
        await cluster.settled(within_s=10)
        calm = leadership(leader.view)
        assert calm[0] != leader.peer
        await trio.sleep(60)
        assert {leadership(node.view) for node in cluster.nodes} == {calm}

    in_cluster(seed, 3, story)


@seeds
def test_after_a_partition_the_larger_sides_leader_leads_and_nothing_is_lost(seed):
    async def story(cluster):
        nodes = list(cluster.nodes)
        Random(seed).shuffle(nodes)
        small, large = nodes[:2], nodes[2:]
        cluster.partition(small, large)
        await cluster.settled(small)
        await cluster.settled(large)
        for side, payload in ((small, b"small"), (large, b"large")):
            leader = cluster.node(side[0].view.leader)
            leader.overlay.set_payload(payload)
            leader.overlay.set_fact("wrote", payload)
        await trio.sleep(seed)
        winner, highest = large[0].view.leader, max(node.view.term for node in nodes)
        cluster.network.heal()
        await cluster.settled()
        assert cluster.leader.peer == winner
        assert cluster.leader.view.term > highest
        assert cluster.leader.view.payload == b"large\nsmall"
        assert sorted(facts["wrote"] for facts in small[0].view.facts.values() if facts) == [b"large", b"small"]

    in_cluster(seed, 5, story)


@seeds
def test_old_facts_do_not_come_back_after_a_restart_without_state(seed):
    async def story(cluster):
        node = cluster.nodes[0]
        node.overlay.set_fact("old", b"1")
        await cluster.settled()
        cluster.partition(cluster.nodes[:2], cluster.nodes[2:])
        node.crash()
        await trio.sleep(1)
        await node.restart(with_state=False)
        node.overlay.set_fact("new", b"2")
        await trio.sleep(Random(seed).uniform(0, 8))
        cluster.network.heal()
        await cluster.settled()
        assert {dict(each.view.facts[node.peer])["new"] for each in cluster.nodes} == {b"2"}
        assert all("old" not in each.view.facts[node.peer] for each in cluster.nodes)

    in_cluster(seed, 4, story)


@seeds
def test_a_member_that_two_others_cannot_both_reach_stays_one_for_both(seed):
    async def story(cluster):
        one, other, *_ = cluster.nodes
        before = leadership(cluster.leader.view)
        cluster.network.cut(one.address, other.address)
        await trio.sleep(20)
        assert {leadership(node.view) for node in cluster.nodes} == {before}
        assert all(peers(node.view) == {each.peer for each in cluster.nodes} for node in cluster.nodes)

    in_cluster(seed, 3, story)


@seeds
def test_two_that_never_met_agree_on_who_leads_if_a_third_hears_both(seed):
    async def story(cluster):
        hub, other = cluster.nodes
        late = await cluster.add("late", host="late", cut_from=[Random(seed).choice([hub, other])])
        await trio.sleep(20)
        assert {leadership(node.view) for node in cluster.nodes} == {leadership(late.view)}
        assert all(len(node.view.members) == 3 for node in cluster.nodes)

    in_cluster(seed, 2, story)


@seeds
def test_who_leaves_is_gone_at_once(seed):
    async def story(cluster):
        leader = cluster.leader
        leader.overlay.set_payload(b"placed")
        await trio.sleep(4)
        await leader.leave()
        assert all(leader.peer not in peers(node.view) for node in cluster.running)
        await cluster.settled(within_s=2)
        assert cluster.leader.view.payload == b"placed"

    in_cluster(seed, 3, story, NetworkConditions())


@seeds
@pytest.mark.parametrize("others", [0, 2])
def test_a_cloned_disk_is_noticed_on_both_machines_and_the_first_one_keeps_working(seed, others):
    async def story(cluster):
        for number in range(others):
            await cluster.add(f"other-{number}")
        await cluster.settled()
        before, original = leadership(cluster.leader.view), cluster.node("peer-1")
        clone = await cluster.add("peer-1", host="clone")
        genuine = [node for node in cluster.nodes if node is not clone]
        await trio.sleep(15)
        assert all(any("peer-1" in each for each in node.view.warnings) for node in (original, clone))
        assert {leadership(node.view) for node in genuine} == {before}
        assert {len(node.view.members) for node in genuine} == {1 + others}
        assert len(clone.view.members) == 1

    in_cluster(seed, 1, story)


@seeds
def test_volatile_facts_are_merged_and_arrive(seed):
    async def story(cluster):
        node = cluster.nodes[0]
        versions = node.overlay._peer._documents
        before = versions.version
        for number in range(100):
            node.overlay.set_fact("load", str(number).encode(), volatile=True)
            await trio.sleep(0.1)
        assert versions.version - before <= 7
        await cluster.until(lambda: all(each.view.facts[node.peer]["load"] == b"99" for each in cluster.nodes))

    in_cluster(seed, 3, story)


def test_only_machines_of_one_group_reach_each_other():
    network = SimulatedNetwork()
    a, b, c = (Address(name) for name in "abc")
    network.partition([a], [b])
    assert not network.reaches(a, b) and not network.reaches(b, c) and network.reaches(c, c)
    network.heal()
    network.cut(a, b)
    assert not network.reaches(b, a) and network.reaches(a, c)
    network.pause(c)
    assert network.reaches(a, c) and not network.delivers(a, c)


def test_jumps_of_the_wall_clock_change_nothing(monkeypatch):
    undisturbed = run_seed(7)
    jumps = Random(7)
    monkeypatch.setattr("time.time", lambda: jumps.uniform(0, 4e9))
    monkeypatch.setattr("time.time_ns", lambda: jumps.randrange(4 * 10**18))
    assert run_seed(7).story == undisturbed.story


def test_a_machine_that_slept_while_its_clock_stood_still_comes_back_as_a_follower():
    async def story(cluster):
        leader = cluster.leader
        await leader.sleep(300)
        await trio.sleep(5)
        assert cluster.is_settled() and cluster.leader is not leader

    in_cluster(1, 3, story)


def test_two_of_whom_one_does_not_hear_the_other_stay_members_by_the_word_of_a_third():
    async def story(cluster):
        one, other, *_ = cluster.nodes
        before = leadership(cluster.leader.view)
        cluster.network.cut_one_way(one.address, other.address)
        await trio.sleep(30)
        assert {leadership(node.view) for node in cluster.nodes} == {before}
        assert all(len(node.view.members) == 3 for node in cluster.nodes)

    in_cluster(2, 3, story)


@pytest.mark.parametrize(("loss", "copies", "arrivals"), [(0.0, 0.0, 1), (1.0, 0.0, 0), (0.0, 1.0, 2)])
def test_broadcasts_get_lost_or_come_twice(loss, copies, arrivals):
    async def story():
        conditions = NetworkConditions(broadcast_loss=loss, broadcast_copies=copies)
        assert len(SimulatedNetwork(0, conditions).arrivals()) == arrivals

    trio.run(story)


def test_a_lost_frame_holds_up_those_behind_it_on_its_connection():
    async def story(cluster):
        sent = [str(number).encode() for number in range(200)]
        got = []

        async def take(stream):
            got.append(await stream.receive())
            while got[-1] != sent[-1]:
                got.append(await stream.receive())

        one, other = cluster.nodes
        other.overlay.serve_streams("numbers", take)
        stream = await one.overlay.open(other.peer, "numbers")
        for each in sent:
            await stream.send(each)
        await cluster.until(lambda: len(got) == len(sent))
        assert got == sent

    in_cluster(0, 2, story, NetworkConditions(frame_loss=0.3))


def test_a_joiner_of_a_cluster_whose_facts_changed_a_hundred_thousand_times_is_soon_in_step():
    async def story(cluster):
        for number in range(2000):
            value = str(number).encode()
            for (
                node
            ) in cluster.nodes:  # All broadcasts of it get lost, so that the others need digests, as the joiner does.
                node.overlay._peer._documents.write({f"key-{key}": value for key in range(25)} | {"key-0": None})
        for node in cluster.nodes:
            node.overlay.set_fact("last", b"1")
        await cluster.settled()
        facts = cluster.leader.view.facts
        assert all(node.overlay._peer._documents.version > 50_000 for node in cluster.nodes)
        late = await cluster.add("late")
        await cluster.until(lambda: bool(late.overlay._controls._controls))
        assert await cluster.until(lambda: late.view.facts == {**facts, late.peer: {}}) <= 2
        assert {len(each) for each in facts.values()} == {25}

    in_cluster(0, 2, story, NetworkConditions())
