"""What the overlay promises, measured on eight processes on loopback: how soon a death is noticed, a leader replaced, a change seen.

Every figure is about what *all* the others see. With ``--long`` a change per second and node goes on for ten minutes before the
memory is looked at. The figures of simulated clusters, in virtual time, are in the same line.
"""

import math
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from random import Random
from statistics import mean, median
from time import monotonic

import attrs
import psutil
import trio
from attrs import frozen

from networking.probe_processes import Orders, Probe, Told, bring_together, first_time, is_settled, running, wait_for
from networking.ticket import Cluster
from networking.transport import PeerId

NODES = 8
KILLS = 20
"""Raise it for a steadier tail; each takes some six seconds."""
STOPS = 6
"""Raise it likewise; each takes some fifteen seconds."""
KILLS_S, STOPS_S = 150.0, 70.0
"""No further one is begun after so long, so that the whole ends in time on a slow machine, too."""
IDLE_S = 20.0
CHANGES_S = 45.0
LONG_CHANGES_S = 600.0
FACT_CHANGES = 100_000
"""Before somebody joins who has seen none of them."""
CALM_S = 2.0
"""Between two faults. Lower it and one is measured while the last one is still being dealt with."""


@frozen
class Loss:
    noticed_s: float
    """From the fault until the last of the others has taken the victim off its list."""
    led_s: float | None
    """From then until all of them follow the same other leader; None if the victim didn't lead."""


@frozen
class OverlayFigures:
    """The tails are of that many kills and stops, half of which hit the leader."""

    crash_noticed_s_p50: float
    crash_noticed_s_p99: float
    silent_noticed_s_p50: float
    silent_noticed_s_p99: float
    new_leader_s_p50: float
    new_leader_s_p99: float
    change_seen_ms_p50: float
    change_seen_ms_p99: float
    idle_cpu_share: float
    memory_growth_mb: float
    memory_growth_over_s: float
    joiner_in_step_s: float
    nodes: int
    kills: int
    stops: int
    load_before: float
    cores: int


async def measure(long: bool) -> OverlayFigures:
    load = os.getloadavg()[0]
    random = Random(1)
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), *[Cluster.new("bench")] * NODES) as (nodes, nursery):
            await bring_together(nodes)
            print(f"{NODES} nodes are together; the machine's load was {load:.1f} on {psutil.cpu_count()} cores")
            await trio.sleep(CALM_S)
            idle = await idle_share(nodes)
            print(f"an idle node takes {idle:.2%} of a core")
            changes_s = LONG_CHANGES_S if long else CHANGES_S
            delays_ms, growth_mb = await changes(nodes, changes_s)
            tail_ms = percentile(delays_ms, 99)
            print(f"a change is seen by another after {median(delays_ms):.1f} ms, p99 {tail_ms:.1f} ms")
            print(f"memory grew by {growth_mb:.1f} MB a node in {changes_s:.0f} s of a change per second and node")
            crashes = [
                await crash(nodes, nursery, random, leads=bool(turn % 2)) async for turn in turns(KILLS, KILLS_S)
            ]
            stops = [await stop(nodes, random, leads=bool(turn % 2)) async for turn in turns(STOPS, STOPS_S)]
        in_step_s = await join_late(Path(folder))
    crash_s, silent_s = ([loss.noticed_s for loss in losses] for losses in (crashes, stops))
    led_s = [loss.led_s for loss in (*crashes, *stops) if loss.led_s is not None]
    return OverlayFigures(
        crash_noticed_s_p50=median(crash_s),
        crash_noticed_s_p99=percentile(crash_s, 99),
        silent_noticed_s_p50=median(silent_s),
        silent_noticed_s_p99=percentile(silent_s, 99),
        new_leader_s_p50=median(led_s),
        new_leader_s_p99=percentile(led_s, 99),
        change_seen_ms_p50=median(delays_ms),
        change_seen_ms_p99=tail_ms,
        idle_cpu_share=idle,
        memory_growth_mb=growth_mb,
        memory_growth_over_s=changes_s,
        joiner_in_step_s=in_step_s,
        nodes=NODES,
        kills=len(crashes),
        stops=len(stops),
        load_before=load,
        cores=psutil.cpu_count() or 0,
    )


async def idle_share(nodes: Sequence[Probe]) -> float:
    """Of a core, by a node to which nothing happens; the mean of all."""
    began_at, before = monotonic(), [node.cpu_s() for node in nodes]
    await trio.sleep(IDLE_S)
    return mean(node.cpu_s() - cpu_s for node, cpu_s in zip(nodes, before, strict=True)) / (monotonic() - began_at)


async def changes(nodes: Sequence[Probe], seconds: float) -> tuple[list[float], float]:
    """Delays in ms of all changes at all others, and MB by which the median node grew after the first sixth of the time."""
    await order_all(nodes, Orders(change_every_s=1.0))
    await trio.sleep(seconds / 6)
    before_mb = [node.resident_mb() for node in nodes]
    for node in nodes:
        await node.report()
    await trio.sleep(seconds * 5 / 6)
    delays_ms = [delay for node in nodes for delay in await node.report()]
    growth_mb = median(node.resident_mb() - mb for node, mb in zip(nodes, before_mb, strict=True))
    await order_all(nodes, Orders(change_every_s=math.inf))
    return delays_ms, growth_mb


async def crash(nodes: Sequence[Probe], nursery: trio.Nursery, random: Random, *, leads: bool) -> Loss:
    """Kill one, see what the others see, and start it again."""
    await wait_for(nodes[0].changed, lambda: is_settled(nodes))
    victim = choose(nodes, random, leads=leads)
    lost_at = monotonic()
    victim_peer = victim.sees.peer
    await victim.kill()
    loss = await measure_loss([node for node in nodes if node is not victim], victim_peer, lost_at, leads=leads)
    print(f"killed {'the leader' if leads else 'a follower'}: {loss}")
    await victim.start(nursery)
    await victim.order(Orders(dial=next(node.address for node in nodes if node is not victim)))
    await together_again(nodes)
    return loss


async def stop(nodes: Sequence[Probe], random: Random, *, leads: bool) -> Loss:
    """Let one stand still until the others have given it up, and go on."""
    await wait_for(nodes[0].changed, lambda: is_settled(nodes))
    victim = choose(nodes, random, leads=leads)
    lost_at = monotonic()
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        others = [node for node in nodes if node is not victim]
        loss = await measure_loss(others, victim.sees.peer, lost_at, leads=leads)
    finally:
        os.kill(victim.pid, signal.SIGCONT)
    print(f"stopped {'the leader' if leads else 'a follower'}: {loss}")
    await together_again(nodes)
    return loss


async def measure_loss(others: Sequence[Probe], lost: PeerId, since: float, *, leads: bool) -> Loss:
    def is_over() -> bool:
        leaders = {node.sees.leader for node in others}
        return (
            len(leaders) == 1 and not leaders & {lost, None} and all(lost not in node.sees.members for node in others)
        )

    def has_noticed(told: Told) -> bool:
        return lost not in told.members

    def follows_another(told: Told) -> bool:
        return has_noticed(told) and told.leader == leader

    await wait_for(others[0].changed, is_over)
    leader = others[0].sees.leader
    noticed_at = max(first_time(node, since, has_noticed) for node in others)
    led_at = max(first_time(node, since, follows_another) for node in others)
    return Loss(noticed_at - since, max(led_at - noticed_at, 0.0) if leads else None)


async def join_late(folder: Path) -> float:
    """Seconds from a newcomer's dial until it is in step with a node whose facts have changed very often.

    A peer is no member before all of its document is there.
    """
    async with running(folder / "late", *[Cluster.new("late")] * 2) as ((old, new), _):
        await wait_for(old.changed, lambda: is_settled([old]))
        await old.order(Orders(change_times=FACT_CHANGES))
        await old.report()
        dialled_at = monotonic()
        await new.order(Orders(dial=old.address))
        await wait_for(old.changed, lambda: is_settled([old, new]))
        in_step_s = first_time(new, dialled_at, lambda told: old.sees.peer in told.members) - dialled_at
    print(
        f"a newcomer is in step {in_step_s:.2f} s after it dialled a node whose fact has changed {FACT_CHANGES} times"
    )
    return in_step_s


async def turns(count: int, within_s: float) -> AsyncGenerator[int]:
    """Numbers from 0, at least two, for as long as there is time."""
    began_at = monotonic()
    for turn in range(count):
        if turn < 2 or monotonic() - began_at < within_s:
            await trio.lowlevel.checkpoint()
            yield turn


async def together_again(nodes: Sequence[Probe]) -> None:
    await wait_for(nodes[0].changed, lambda: is_settled(nodes))
    await trio.sleep(CALM_S)


async def order_all(nodes: Sequence[Probe], orders: Orders) -> None:
    for node in nodes:
        await node.order(orders)


def choose(nodes: Sequence[Probe], random: Random, *, leads: bool) -> Probe:
    return random.choice([node for node in nodes if (node.sees.leader == node.sees.peer) == leads])


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent are not above."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def main(long: bool) -> None:
    # Not above: each process that is forked would import all that these need.
    import overlay_simulated
    from harness import print_figures

    real = trio.run(measure, long)
    simulated = overlay_simulated.measure()
    print_figures(**attrs.asdict(real), **attrs.asdict(simulated))


if __name__ == "__main__":
    main("--long" in sys.argv[1:])
