"""The bench of ``bench/mixed_load.py``, which says what it measures; here since it stands on the harness of these tests."""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from random import Random

import trio
from attrs import asdict, frozen
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster, real_cluster
from end_to_end.load.census import Held, count
from end_to_end.load.clients import Clients, Outcome, Tally
from end_to_end.load.visits import draw_visit, steady_visit

WARM_UP_SHARE = 0.3
"""Of the whole time. Raise it and less of what only grows once counts as a leak."""
BURST = 24
"""Visits at once, now and then: more than may run and wait together."""
BURST_EVERY = 60
STEADY = 16
"""Visits that are the same each time."""
ARGUMENTS = ("--max-running", "8", "--max-waiting", "12", "--prefix-tokens", "4096")


@frozen
class Settings:
    minutes: float
    nodes: int
    clients: int
    seed: int
    blas: str


def main(settings: Settings) -> None:
    load = os.getloadavg()[0]
    cache = Path(tempfile.gettempdir()) / f"p2pexo-bench-{os.getuid()}"
    arguments = ("--cache", str(cache), "--blas", settings.blas, *ARGUMENTS)
    with tempfile.TemporaryDirectory() as folder, real_cluster(Path(folder), settings.nodes, arguments) as cluster:
        cluster.place(min_stages=settings.nodes)
        random, total_s = Random(settings.seed), settings.minutes * 60
        visit_for(cluster, settings, random, total_s * WARM_UP_SHARE)
        before = count(cluster)
        tally = visit_for(cluster, settings, random, total_s * (1 - WARM_UP_SHARE))
        after = count(cluster)
    tell(settings, tally, before, after, load)


def visit_for(cluster: RealCluster, settings: Settings, random: Random, seconds: float) -> Tally:
    clients = Clients([node.url for node in cluster.nodes])
    trio.run(visit_until, clients, settings, random, time.monotonic() + seconds)
    trio.run(visit_steadily, Clients(clients.urls[:1], clients.tally))
    return clients.tally


async def visit_until(clients: Clients, settings: Settings, random: Random, end: float) -> None:
    """Clients come as fast as they are served; each waits a little between its visits."""

    async def come_again() -> None:
        while time.monotonic() < end:
            await clients.perform(draw_visit(random, EMBEDDED_MODEL))
            await trio.sleep(random.uniform(0.0, 0.2))
            if random.random() < 1 / BURST_EVERY:
                await come_at_once()

    async def come_at_once() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(BURST):
                nursery.start_soon(clients.perform, draw_visit(random, EMBEDDED_MODEL))

    async with trio.open_nursery() as nursery:
        for _ in range(settings.clients):
            nursery.start_soon(come_again)


async def visit_steadily(clients: Clients) -> None:
    for number in range(STEADY):
        await clients.perform(steady_visit(number, EMBEDDED_MODEL))


def tell(settings: Settings, tally: Tally, before: dict[str, Held], after: dict[str, Held], load: float) -> None:
    outcomes = dict(tally.outcomes)
    told = {outcome.value: outcomes.pop(outcome, 0) for outcome in Outcome}
    figures = {
        "requests": tally.requests,
        **told,
        "errors": outcomes,
        "growth": {name: asdict(held - before[name]) for name, held in after.items()},
        "held": {name: asdict(held) for name, held in after.items()},
        **asdict(settings),
        "load": round(load, 1),
    }
    print(json.dumps(figures))


def read_settings() -> Settings:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blas", default="auto", help="as of p2pexo node")
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    main(read_settings())
