"""The bench of ``bench/failover.py``, which says what it measures; here since it stands on the harness of these tests."""

import argparse
import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from attrs import frozen
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster, real_cluster
from end_to_end.dialects import DIALECTS
from end_to_end.faults.faults import BYSTANDER, KINDS, LEAVING, Fault, draw_faults
from end_to_end.faults.figures import Trial, describe, figures
from end_to_end.faults.harness import Question, Stage
from end_to_end.faults.wreck import keep_logs, what_happened
from end_to_end.scripted import MODEL, scripted_nodes

from p2pexo.ring.scripted import Script

FAULTS = 100
TOKENS = 32
NODES, SPREAD = 3, 2
SEEDED = ("chat", "ollama")
"""Dialects in which a client can give a seed."""
CHARACTERS = 3.0
"""Of a token of the embedded model, about."""


@frozen
class Settings:
    faults: int
    seed: int
    scripted: bool
    blas: str
    tokens: int
    kinds: Sequence[str]
    only: int | None


@frozen
class Plan:
    """What is to be tried."""

    index: int
    """Among those that the seed draws, from 1."""
    fault: Fault
    question: Question


def main(settings: Settings) -> None:
    load, begun = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trials = list(perform(settings, Path(folder)))
    shown = figures(trials) | {
        "seed": settings.seed,
        "engine": "scripted" if settings.scripted else "mlx",
        "blas": settings.blas,
        "load": load,
        "s_per_fault": (time.monotonic() - begun) / len(trials),
    }
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in shown.items()}))


def perform(settings: Settings, folder: Path) -> Generator[Trial]:
    """One fault after the other. One that fails is told of, and the next one meets a new cluster."""
    left = deque(drawn(settings))
    while left:
        nodes = folder / f"before-{left[0].index}"
        nodes.mkdir()
        with running(settings, nodes) as stage:
            while left:
                plan = left.popleft()
                trial = attempt(stage, plan)
                print(f"{plan.index}/{settings.faults} {describe(trial)}", flush=True)
                if trial.failure or not trial.is_equal:
                    print(f"  again: --seed {settings.seed} --only {plan.index}; logs: ", end="")
                    print(keep_logs(nodes, f"{settings.seed}-{plan.index}"), flush=True)
                yield trial
                if trial.failure:
                    break


def attempt(stage: Stage, plan: Plan) -> Trial:
    try:
        return Trial(plan.fault, plan.question, stage.perform(plan.fault, plan.question))
    except (
        Exception
    ) as error:  # whatever a cluster in trouble comes up with: it is one fault that failed, and counts as such
        return Trial(plan.fault, plan.question, None, what_happened(error, stage.cluster))


@contextmanager
def running(settings: Settings, folder: Path) -> Generator[Stage]:
    with cluster_of(settings, folder) as cluster:
        model, characters = (MODEL, 1.0) if settings.scripted else (EMBEDDED_MODEL, CHARACTERS)
        yield Stage(cluster, model, SPREAD, characters, settles=True)


@contextmanager
def cluster_of(settings: Settings, folder: Path) -> Generator[RealCluster]:
    if settings.scripted:
        with scripted_nodes(folder, NODES, Script(context_length=1024, batch_s=0.003)) as cluster:
            yield cluster
        return
    cache = Path(tempfile.gettempdir()) / f"p2pexo-bench-{os.getuid()}"
    with real_cluster(folder, NODES, ("--cache", str(cache), "--blas", settings.blas)) as cluster:
        yield cluster


def drawn(settings: Settings) -> list[Plan]:
    random = Random(settings.seed)
    faults = draw_faults(settings.seed, settings.faults, settings.kinds, settings.tokens * 3 // 4)
    plans = [
        Plan(index, fault, draw_question(random, settings.tokens, fault)) for index, fault in enumerate(faults, start=1)
    ]
    return [plan for plan in plans if settings.only in (None, plan.index)]


def draw_question(random: Random, tokens: int, fault: Fault) -> Question:
    """Of what is measured by its gaps alone, always a stream."""
    dialect, stream = random.choice(DIALECTS), random.random() < 0.7
    seed = random.choice((None, 7)) if dialect in SEEDED else None
    return Question(dialect, stream or fault.kind in (BYSTANDER, LEAVING), seed, max_tokens=tokens)


def read_settings() -> Settings:
    parser = argparse.ArgumentParser()
    parser.add_argument("faults", type=int, nargs="?", default=FAULTS)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--scripted", action="store_true", help="letters of a script in place of the embedded model")
    parser.add_argument("--blas", default="reference", help="as of p2pexo node")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="only these")
    parser.add_argument("--only", type=int, help="the one of this index among those drawn")
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    main(read_settings())
