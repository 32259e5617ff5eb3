"""The bench of ``bench/failover.py``, which says what it measures; here since it stands on the harness of these tests."""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median, quantiles

from attrs import frozen
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster, real_cluster
from end_to_end.dialects import DIALECTS
from end_to_end.faults.faults import KINDS, Fault, draw_faults
from end_to_end.faults.harness import Outcome, Question, Stage
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


@frozen
class Trial:
    fault: Fault
    question: Question
    outcome: Outcome


def main(settings: Settings) -> None:
    load, begun = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running(settings, Path(folder)) as stage:
        trials = list(perform(settings, stage))
    silent = [trial for trial in trials if trial.fault.is_silent]
    figures = {
        "equal": sum(trial.outcome.is_equal for trial in trials),
        "faults": len(trials),
        "lost": sum(trial.outcome.lost for trial in trials),
        "repeated": sum(trial.outcome.repeated for trial in trials),
        "errors": sum(bool(trial.outcome.error) for trial in trials),
        "pause_s_p50": median(pauses([trial for trial in trials if not trial.fault.is_silent])),
        "pause_s_p95": percentile95(pauses([trial for trial in trials if not trial.fault.is_silent])),
        "silent_pause_s_p95": percentile95(pauses(silent)),
        "engine": "scripted" if settings.scripted else "mlx",
        "blas": settings.blas,
        "load": load,
        "s_per_fault": (time.monotonic() - begun) / len(trials),
    }
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}))


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


def perform(settings: Settings, stage: Stage) -> Generator[Trial]:
    random = Random(settings.seed)
    drawn = draw_faults(settings.seed, settings.faults, KINDS, settings.tokens * 3 // 4)
    for number, fault in enumerate(drawn, start=1):
        question = draw_question(random, settings.tokens)
        trial = Trial(fault, question, stage.perform(fault, question))
        print(f"{number}/{len(drawn)} {describe(trial)}", flush=True)
        yield trial


def draw_question(random: Random, tokens: int) -> Question:
    dialect, stream = random.choice(DIALECTS), random.random() < 0.7
    seed = random.choice((None, 7)) if dialect in SEEDED else None
    return Question(dialect, stream, seed, max_tokens=tokens)


def describe(trial: Trial) -> str:
    question, outcome = trial.question, trial.outcome
    how = f"{question.dialect}, {'stream' if question.stream else 'whole'}, {'greedy' if question.seed is None else 'seeded'}"
    pause = "" if outcome.pause_s is None else f", pause {outcome.pause_s:.2f} s"
    what = "equal" if outcome.is_equal else f"NOT EQUAL {outcome.error} {outcome.text!r} {outcome.expected!r}"
    return f"{trial.fault.kind} at token {trial.fault.token} ({how}): {what}{pause}"


def pauses(trials: Sequence[Trial]) -> list[float]:
    return [trial.outcome.pause_s for trial in trials if trial.outcome.pause_s is not None] or [0.0]


def percentile95(values: Sequence[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def read_settings() -> Settings:
    parser = argparse.ArgumentParser()
    parser.add_argument("faults", type=int, nargs="?", default=FAULTS)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--scripted", action="store_true", help="letters of a script in place of the embedded model")
    parser.add_argument("--blas", default="reference", help="as of p2pexo node")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    main(read_settings())
