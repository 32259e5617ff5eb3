"""A machine that was alone is let into a cluster: whoever leads there goes on, and nothing that ran on either side is lost."""

import pytest
import trio

from networking.peer import PeerSettings
from networking.simulation import NetworkConditions, SimulatedCluster, SimulatedNode, open_cluster, simulate
from networking.transport import PeerId
from networking.view import View

LOSSY = NetworkConditions(delay_s=0.001, jitter_s=0.05, broadcast_loss=0.3)
seeds = pytest.mark.parametrize("seed", range(8))


async def restart_alone(node: SimulatedNode, times: int) -> None:
    """Each start makes it more junior, and its term higher."""
    for _ in range(times):
        node.crash()
        await node.restart()
        await trio.sleep(5)


async def two_alone(cluster: SimulatedCluster, restarts_of_asked: int) -> tuple[SimulatedNode, SimulatedNode]:
    asked = await cluster.add("asked")
    newcomer = await cluster.add("newcomer", cut_from=[asked])
    await trio.sleep(5)
    await restart_alone(asked, restarts_of_asked)
    await restart_alone(newcomer, 3 - restarts_of_asked)
    for node in (asked, newcomer):
        assert node.view.leader == node.peer
        node.overlay.set_payload(node.peer.encode())
    return asked, newcomer


@seeds
@pytest.mark.parametrize("restarts_of_asked", [0, 3])
@pytest.mark.parametrize("late_s", [0, 20])
def test_the_newcomer_leads_nobody_whatever_both_were_before(seed: int, restarts_of_asked: int, late_s: float) -> None:
    led_by: set[PeerId | None] = set()

    def watch(node: SimulatedNode, view: View) -> None:
        if node.peer == "asked":
            led_by.add(view.leader)

    async def main() -> None:
        async with open_cluster(0, seed=seed, conditions=LOSSY, on_view=watch) as cluster:
            asked, newcomer = await two_alone(cluster, restarts_of_asked)
            led_by.clear()
            newcomer.overlay.move_in()
            await trio.sleep(late_s)
            assert newcomer.view.leader == newcomer.peer  # until it meets the others, what runs there goes on
            cluster.network.heal()
            await cluster.settled()
            assert led_by == {asked.peer}
            assert asked.view.payload == b"asked\nnewcomer"
            first, second = newcomer.view.members
            assert (first.peer, second.peer, first.seniority < second.seniority) == (asked.peer, newcomer.peer, True)
            asked.crash()
            await cluster.settled()
            assert cluster.leader is newcomer

    simulate(main, seed=seed)


@seeds
def test_three_that_were_alone_are_led_by_the_one_that_was_asked(seed: int) -> None:
    async def main() -> None:
        async with open_cluster(0, seed=seed, conditions=LOSSY) as cluster:
            asked, newcomer = await two_alone(cluster, 3)
            third = await cluster.add("third", cut_from=[asked, newcomer])
            await trio.sleep(5)
            for each in (newcomer, third):
                each.overlay.move_in()
            cluster.network.heal()
            await cluster.settled()
            assert cluster.leader is asked
            assert asked.view.members[0].peer == asked.peer


def test_two_whose_cluster_is_gone_find_a_leader_of_their_own_in_the_end() -> None:
    async def main() -> None:
        async with open_cluster(0, conditions=LOSSY) as cluster:
            one, other = await two_alone(cluster, 3)
            for each in (one, other):
                each.overlay.move_in()
            cluster.network.heal()
            await cluster.settled()
            await trio.sleep(PeerSettings().awaited_for_s)
            cluster.leader.crash()
            await cluster.settled()
            assert cluster.leader in cluster.running

    simulate(main, seed=1)
