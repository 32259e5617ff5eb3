"""What cutting a prompt into chunks brings over two stages of the real model, and what a long prompt does to others.

``chunked_ratio``: time to the first token of a 1,000-token prompt, whole ÷ in chunks. ``intertoken_p99_ratio``: in a run of
its own, the 99th percentile of the time between the tokens of a running answer while such a prompt is computed, ÷ the
median while nothing else runs.
"""

import sys
from itertools import pairwise
from statistics import median, quantiles

import trio
from harness import ask, print_figures, raw_request, running_ring, set_up

from p2pexo.engine.limits import Limits
from p2pexo.generation.events import Delta
from p2pexo.ring.supervisor import StageProcess

ROUNDS = 3
"""Raise it for steadier figures; each takes some thirty seconds."""
PROMPT = "The lighthouse keeper looked at the storm and wrote down what he saw. " * 66
"""Of some 1,000 tokens."""
IDLE_TOKENS = 20
"""Of the running answer, before the prompt comes."""


async def disturbed(ring: StageProcess, number: int) -> tuple[list[float], list[float]]:
    """Times between tokens of an answer while nothing else runs, and while a long prompt is computed."""
    story = raw_request(f"story-{number}", "Once upon a time there was a lighthouse keeper who", 400)
    times: list[float] = []
    prompt_at: list[float] = []

    async def interrupt(*, task_status: trio.TaskStatus[None]) -> None:
        prompt_at.append(trio.current_time())
        task_status.started()
        await ask(ring, raw_request(f"long-{number}", f"{number}: {PROMPT}", 1))
        prompt_at.append(trio.current_time())

    async with trio.open_nursery() as nursery, ring.generate(story) as events:
        async for event in events:
            if isinstance(event, Delta):
                times.append(trio.current_time())
            if len(times) == IDLE_TOKENS and not prompt_at:
                await nursery.start(interrupt)
            if len(prompt_at) == 2:
                break
    begun, ended = prompt_at
    idle = [after - before for before, after in pairwise(times) if after <= begun]
    return idle, [after - before for before, after in pairwise(times) if begun < after <= ended]


async def main(rounds: int) -> None:
    workshop = set_up()
    ratios: list[float] = []
    idle: list[float] = []
    busy: list[float] = []
    whole = Limits(rows=4096, chunks_per_stage=0.5, kept_tokens=0)
    async with running_ring(workshop, 2, limits=whole) as unchunked, running_ring(workshop, 2) as chunked:
        for number in range(rounds + 1):
            prompt = f"{number}: {PROMPT}"
            first = [
                (await ask(ring, raw_request(f"first-{number}", prompt, 1))).prefill_s for ring in (unchunked, chunked)
            ]
            print(f"first token after {first[0]:.2f} s whole, {first[1]:.2f} s in chunks")
            if number:  # the first round warms up
                ratios.append(first[0] / first[1])
        for number in range(rounds):
            quiet, loud = await disturbed(chunked, number)
            idle, busy = idle + quiet[1:], busy + loud
            print(f"{median(quiet) * 1e3:.0f} ms between tokens, at most {max(loud) * 1e3:.0f} ms beside a long prompt")
    p99 = quantiles(busy, n=100)[98]
    print_figures(
        chunked_ratio=median(ratios), intertoken_p99_ratio=p99 / median(idle), idle_ms=median(idle) * 1e3, rounds=rounds
    )


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
