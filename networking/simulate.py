"""Runs of simulated clusters, on all cores: ``python -m networking.simulate 0-999``, or one seed with its story: ``… 137``."""

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from networking.simulated_run import Outcome, run_seed

BATCH = 10
"""Seeds that a process takes at a time. Raised, the last ones are waited for longer; lowered, more is spent on handing them out."""
TELL_EVERY_S = 10.0
USAGE = "usage: python -m networking.simulate FIRST-LAST | SEED (such as 0-999, or 137 to replay that one and be told its story)"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 1 if any run broke a promise."""
    try:
        seeds = seeds_from(arguments[0] if arguments else "0-999")
    except ValueError as error:
        print(f"{error}; {USAGE}", file=sys.stderr)
        return 2
    logging.disable()  # What nodes log of faults is no news here; the story has it.
    return _replay(seeds[0]) if len(seeds) == 1 else _run_all(seeds)


def seeds_from(text: str) -> range:
    """``0-999`` or ``137``. Raises ValueError."""
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise ValueError(f"{text!r} is neither a seed nor a range of seeds")
    return range(int(first), int(last or first) + 1)


def outcomes(seeds: Sequence[int], processes: int | None = None) -> Iterator[Outcome]:
    """In the order in which they are known."""
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
        for done in as_completed([pool.submit(_run_batch, batch) for batch in batches]):
            yield from done.result()


def _run_batch(seeds: Sequence[int]) -> list[Outcome]:
    logging.disable()
    return [run_seed(seed) for seed in seeds]


def _run_all(seeds: range) -> int:
    began_at = told_at = time.monotonic()
    done = failed = 0
    seconds = 0.0
    for outcome in outcomes(seeds):
        done, seconds = done + 1, seconds + outcome.seconds
        if outcome.complaint is not None:
            failed += 1
            print(outcome.headline, flush=True)
        if time.monotonic() - told_at >= TELL_EVERY_S:
            told_at = time.monotonic()
            print(f"{done} of {len(seeds)} seeds, {failed} failed, {told_at - began_at:.0f} s", flush=True)
    took_s = time.monotonic() - began_at
    print(f"{done} seeds, {failed} failed; {seconds / 3600:.1f} virtual hours in {took_s:.0f} s")
    return 1 if failed else 0


def _replay(seed: int) -> int:
    outcome = run_seed(seed)
    print("\n".join(outcome.story))
    print(outcome.headline if outcome.complaint is not None else f"seed {seed}: all as promised")
    return 1 if outcome.complaint is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
