"""Faults of membership and election that users of such systems really met, on real processes (the case's number is in each name)."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

import trio
from attrs import evolve

from networking.probe_processes import Orders, Probe, bring_together, first_time, is_settled, running, wait_for
from networking.ticket import Cluster

GONE_S = 60.0
"""Patience with machines under load; how long it takes is for ``bench/overlay.py`` to say."""

Story = Callable[[list[Probe], trio.Nursery], Awaitable[None]]


def on_probes(folder: Path, story: Story, count: int = 3, **first: object) -> None:
    """A story on probes of one cluster that have found together; ``first``: settings of the first one."""

    async def main() -> None:
        async with running(folder, *[Cluster.new("desk")] * count) as (probes, nursery):
            if first:
                await probes[0].kill()
                probes[0].settings = evolve(probes[0].settings, **first)
                await probes[0].start(nursery)
            await bring_together(probes)
            await story(probes, nursery)
            for probe in probes:
                assert "Traceback" not in probe.log, probe.log

    trio.run(main)


def leader_first(probes: list[Probe]) -> list[Probe]:
    return sorted(probes, key=lambda probe: probe.sees.peer != probe.sees.leader)


async def together(probes: list[Probe], within_s: float = GONE_S) -> None:
    await wait_for(probes[0].changed, lambda: is_settled(probes), within_s)


async def hears_of_a_change(probe: Probe) -> None:
    with trio.fail_after(GONE_S):
        while not await probe.report():  # noqa: ASYNC110 - it is another process that knows
            await trio.sleep(0.1)


def test_e1_who_is_killed_or_leaves_is_gone_from_every_view(tmp_path: Path) -> None:
    async def story(probes: list[Probe], nursery: trio.Nursery) -> None:
        await probes[2].kill()
        await together(probes[:2])
        left_at = monotonic()
        await probes[1].order(Orders(leave=True))
        await wait_for(probes[0].changed, lambda: probes[0].sees.members == (probes[0].sees.peer,), GONE_S)
        # Who says goodbye is believed at once, and never a suspect first.
        assert first_time(probes[0], left_at, lambda told: told.suspects > 0) > monotonic()

    on_probes(tmp_path, story)


def test_e1_a_follower_that_restarts_again_and_again_is_counted_once_and_changes_no_leader(tmp_path: Path) -> None:
    async def story(probes: list[Probe], nursery: trio.Nursery) -> None:
        leader, other, restless = leader_first(probes)
        before = leader.sees.leader, leader.sees.term
        for _ in range(5):
            await restless.kill()
            await restless.start(nursery)
        await restless.order(Orders(dial=leader.address))
        await together(probes)
        for probe in (leader, other):
            assert {(told.leader, told.term) for told in probe.told if len(told.members) >= 2} <= {before, (None, 0)}
            assert max(len(told.members) for told in probe.told) == 3
        assert (leader.sees.leader, leader.sees.term) == before

    on_probes(tmp_path, story)


def test_e3_a_leader_that_restarts_fast_is_heard_again_and_there_is_one_leader(tmp_path: Path) -> None:
    async def story(probes: list[Probe], nursery: trio.Nursery) -> None:
        leader, *others = leader_first(probes)
        term = leader.sees.term
        await leader.kill()
        await leader.start(nursery)
        await leader.order(Orders(dial=others[0].address))
        await together(probes)
        assert all(probe.sees.term >= term for probe in probes)

    on_probes(tmp_path, story)


def test_e3_a_leader_that_stood_still_comes_back_as_a_follower(tmp_path: Path) -> None:
    async def story(probes: list[Probe], nursery: trio.Nursery) -> None:
        leader, *others = leader_first(probes)
        old, term = leader.sees.leader, leader.sees.term
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            await together(others)
        finally:
            os.kill(leader.pid, signal.SIGCONT)
        chosen = others[0].sees
        assert chosen.leader != old and chosen.term > term
        await together(probes)
        assert leader.sees.leader == chosen.leader and leader.sees.term >= chosen.term

    on_probes(tmp_path, story)


def test_e5_a_peer_of_another_version_is_named_on_both_sides_and_taken_along(tmp_path: Path) -> None:
    async def story(probes: list[Probe], nursery: trio.Nursery) -> None:
        newer, older = probes
        for here, there in ((newer, older), (older, newer)):
            said = f"peer {there.sees.peer} speaks protocol"
            await wait_for(here.changed, lambda: any(said in each for each in here.sees.warnings))  # noqa: B023
            assert sum(said in each for each in here.sees.warnings) == 1
        await newer.order(Orders(change_times=1))
        await older.order(Orders(change_times=1))
        for probe in probes:
            await hears_of_a_change(probe)

    on_probes(tmp_path, story, count=2, protocol_ahead=1)


def test_e9_clusters_that_meet_stay_apart_and_say_so_on_both_sides(tmp_path: Path) -> None:
    async def main() -> None:
        a, b = Cluster.new("a"), Cluster.new("b")
        async with running(tmp_path, a, a, b, b, Cluster.new("b")) as (probes, _):
            await bring_together(probes[:2])
            await bring_together(probes[2:4])
            stranger, asked, namesake = probes[0], probes[2], probes[4]
            await stranger.order(Orders(dial=asked.address))
            await namesake.order(Orders(dial=asked.address))
            for probe, why in ((stranger, "it is in another cluster, 'b'"), (namesake, "but with another secret")):
                await wait_for(probe.changed, lambda: any(why in each for each in probe.sees.warnings))  # noqa: B023
            for name in ("another cluster, 'a'", "another secret"):
                assert sum(name in line for line in asked.log.splitlines()) == 1
            assert [len(probe.sees.members) for probe in probes] == [2, 2, 2, 2, 1]
            assert all(len(told.members) <= 2 for probe in probes for told in probe.told)

    trio.run(main)


def test_e10_wrong_and_turning_wall_clocks_change_nothing(tmp_path: Path) -> None:
    async def story(probes: list[Probe], nursery: trio.Nursery) -> None:
        since = monotonic()
        for turn_s in (-1200.0, 3600.0, -3600.0):
            await probes[0].order(Orders(turn_clock_s=turn_s, change_times=1))
            await probes[1].order(Orders(change_times=1))
            for probe in probes:
                await hears_of_a_change(probe)
        told = {(each.members, each.leader, each.term) for probe in probes for each in probe.told if each.at >= since}
        assert len(told) == 1

    on_probes(tmp_path, story, count=2, wall_clock_ahead_s=600.0)
