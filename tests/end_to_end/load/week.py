"""The bench of ``bench/week_of_use.py``, which says what it measures; here since it stands on the harness of these tests."""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import trio
from attrs import asdict, define, frozen
from end_to_end.cluster import RealCluster, end_all, real_cluster, wait_for
from end_to_end.load.plateau import plateau
from end_to_end.load.week_census import ALLOWED, Census, idle_cpu
from end_to_end.load.week_changes import Placing, Restarting, start
from end_to_end.load.week_requests import Asking, Roster
from end_to_end.scripted import scripted_nodes

from p2pexo.models.catalogue import EMBEDDED
from p2pexo.models.store import Store
from p2pexo.ring.scripted import Script

MODELS = ("local/monday", "local/tuesday", "local/wednesday")
LOOK_EVERY_S = 5.0
REST_S = 15.0
"""Before and while it is measured what an idle node takes."""
LEFT_WITHIN_S = 60.0
"""For the processes of models that were deleted."""
ARGUMENTS = ("--response-lifetime", "60")
"""Stored responses leave within the week, so that it shows whether their file stays as large."""


@frozen
class Settings:
    placements: int
    requests: int
    restarts: int
    minutes: float
    seed: int
    nodes: int
    scripted: bool
    blas: str
    deadline: float


@define
class Week:
    """All that goes on."""

    settings: Settings
    census: Census
    asking: Asking
    placing: Placing
    restarting: Restarting

    @property
    def unexpected(self) -> int:
        return sum(len(each.surprises) for each in (self.asking, self.placing, self.restarting))

    async def pass_by(self) -> None:
        settings, seconds = self.settings, self.settings.minutes * 60
        async with trio.open_nursery() as watching:
            watching.start_soon(self._look)
            watching.start_soon(self._tell)
            async with trio.open_nursery() as doing:
                doing.start_soon(self.asking.run, settings.requests, seconds)
                doing.start_soon(self.placing.run, settings.placements, seconds)
                doing.start_soon(self.restarting.run, settings.restarts, seconds, self.census.begin_half)
            watching.cancel_scope.cancel()

    async def _look(self) -> None:
        while True:
            await trio.to_thread.run_sync(self.census.look)
            await trio.sleep(LOOK_EVERY_S)

    async def _tell(self) -> None:
        begun = trio.current_time()
        while True:
            await trio.sleep(60)
            print(f"{(trio.current_time() - begun) / 60:.0f} min: {json.dumps(self.figures())}", flush=True)

    def figures(self) -> dict[str, Any]:
        """As far as it is."""
        return {
            "placements": self.placing.placed,
            "placed_by_requests": self.placing.by_requests,
            "deletions": self.placing.deleted,
            "restarts": self.restarting.restarts,
            "requests": self.asking.ended,
            "answered": self.asking.answered,
            "errors": dict(self.asking.errors),
            "cut": self.asking.cut,
            "hung": self.asking.hung,
            "unexpected": self.unexpected,
            "failed": len(self.placing.failed),
            "held": {each.node: _rounded(asdict(each)) for each in self.census.readings[-self.settings.nodes :]},
            "disk_mb": round(self.census.disk_mb[-1], 2) if self.census.disk_mb else 0.0,
            "told_kb": round(self.census.told_kb[-1], 1) if self.census.told_kb else 0.0,
        }


def main(settings: Settings) -> None:
    load, begun = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running(settings, Path(folder)) as cluster:
        week = prepare(settings, cluster)
        trio.run(week.pass_by)
        minutes = (time.monotonic() - begun) / 60
        figures = week.figures() | judge(week) | rest(week)
        figures["traces"] = sum(node.log.count("Traceback") for node in cluster.nodes)
        figures["log_mb"] = round(sum(len(node.log) for node in cluster.nodes) / 1e6, 1)
    print(json.dumps(figures | asdict(settings) | {"minutes_taken": round(minutes, 1), "load": round(load, 1)}))


def prepare(settings: Settings, cluster: RealCluster) -> Week:
    roster = Roster(cluster)
    draws = [Random(f"{settings.seed} {name}") for name in ("requests", "placements", "restarts")]
    return Week(
        settings,
        Census(roster),
        Asking(roster, MODELS, draws[0], settings.deadline),
        Placing(roster, MODELS, draws[1], settings.deadline),
        Restarting(roster, draws[2], draws[2].choice(cluster.nodes)),
    )


@contextmanager
def running(settings: Settings, folder: Path) -> Generator[RealCluster]:
    """Nodes that know all the models, of which none is placed."""
    if settings.scripted:
        with scripted_nodes(folder, settings.nodes, Script(context_length=1024), ARGUMENTS, models=MODELS) as cluster:
            yield cluster
        return
    cache = Path(tempfile.gettempdir()) / f"p2pexo-bench-{os.getuid()}"
    arguments = ["--cache", str(cache), "--blas", settings.blas, *ARGUMENTS]
    for model in MODELS:
        directory = folder / model.removeprefix("local/")
        shutil.copytree(Store(cache).fetch(EMBEDDED), directory, copy_function=os.link)
        arguments += ["--model-dir", str(directory)]
    with real_cluster(folder, settings.nodes, arguments) as cluster:
        yield cluster


def judge(week: Week) -> dict[str, Any]:
    """What has grown and what has not."""
    restarting, witness = week.restarting, week.census.witnessed(week.restarting.witness)
    return {
        "witness": {figure: each.pair() for figure, each in witness.items()},
        "young": {figure: each.pair() for figure, each in week.census.young().items()},
        "flat": {figure: each.is_flat(*ALLOWED[figure]) for figure, each in witness.items()},
        "disk_mb": plateau(week.census.disk_mb).pair(),
        "told_kb": plateau(week.census.told_kb).pair(),
        "stop_s": spread(restarting.stop_s),
        "up_s": spread(restarting.up_s),
        "in_step_s": spread(restarting.in_step_s),
        "failed": week.placing.failed,
    }


def rest(week: Week) -> dict[str, Any]:
    """What a cluster does that has nothing to do, what is left when its models are deleted, and how it comes back."""
    cluster = week.census.roster.cluster
    trio.run(week.placing.place, MODELS[0], 2)
    time.sleep(REST_S)
    idle = max(idle_cpu(node, REST_S) for node in cluster.nodes)
    trio.run(week.placing.clear)
    left = children_left(cluster)
    orphans = week.census.orphans()
    end_all(cluster.nodes)
    begun = time.monotonic()
    for node in cluster.nodes:
        start(node)
    cluster.wait_until_together()
    return {
        "idle_cpu": round(idle, 3),
        "children": left,
        "orphans": orphans,
        "all_again_s": round(time.monotonic() - begun, 1),
        "last_in_step_s": round(week.restarting.in_step_s[-1], 1),
    }


def children_left(cluster: RealCluster) -> int:
    """Once they had time to end."""
    with suppress(AssertionError):
        wait_for("no children", lambda: not any(node.children() for node in cluster.nodes), LEFT_WITHIN_S)
    return sum(len(node.children()) for node in cluster.nodes)


def spread(seconds: list[float]) -> dict[str, float]:
    return {"p50": round(median(seconds), 1), "max": round(max(seconds), 1)} if seconds else {}


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in values.items()}


def read_settings() -> Settings:
    parser = argparse.ArgumentParser()
    parser.add_argument("--placements", type=int, default=200, help="and as many deletions")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60, help="over which they are spread")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--scripted", action="store_true", help="letters of a script in place of the embedded model")
    parser.add_argument("--blas", default="auto", help="as of p2pexo node")
    parser.add_argument("--deadline", type=float, default=180, help="seconds after which a request is taken to hang")
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    main(read_settings())
