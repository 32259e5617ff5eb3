"""What the hops between stages cost: a ring of three processes against one process that holds all layers.

Only one stage computes at a time, so all that the ring adds to a token is three hops. Both sides run the same engine with
the same number of BLAS threads, in turns, so that whatever else the machine does disturbs both alike.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median

import trio
from attrs import evolve
from harness import MODEL, Workshop, ask, print_figures, running_ring, set_up

from p2pexo.generation.request import Message, Request, Role, Sampling
from p2pexo.ring.engines import MLX_ENGINE, SCRIPTED_ENGINE
from p2pexo.ring.scripted import Script

STAGES = 3
ROUNDS = 9
"""Raise it for steadier figures; each takes some eight seconds."""
TOKENS = 49
"""Of an answer, the first of which belongs to the prefill."""
BARE_TOKENS = 300
"""Of an answer of the engine that costs nothing."""
PROMPT = "tell a short story about a lighthouse keeper and a storm"


def make_request(number: int, tokens: int) -> Request:
    message = Message(Role.USER, PROMPT)
    return Request(f"hops-{number}", MODEL.id, (message,), Sampling(temperature=0.0), max_tokens=tokens)


async def main(rounds: int) -> None:
    workshop = set_up()
    print(f"{MODEL.id}, {STAGES} stages against one process, BLAS {workshop.blas}, {rounds} rounds of {TOKENS} tokens")
    ring_s, alone_s = await compare(workshop, rounds, TOKENS, MLX_ENGINE)
    ratio = median(each / other for each, other in zip(ring_s, alone_s, strict=True))
    with tempfile.TemporaryDirectory() as directory:
        # Rows of as many bytes as the model's, behind layers that cost next to nothing: what is left is the hops.
        Script(layers=MODEL.layers, hidden_size=MODEL.hidden_size // 2).write(Path(directory))
        bare = evolve(workshop, model_directory=Path(directory))
        bare_ring_s, bare_alone_s = await compare(bare, rounds, BARE_TOKENS, SCRIPTED_ENGINE)
    hop_us = (median(bare_ring_s) - median(bare_alone_s)) / STAGES * 1e6
    model_hop_us = median(each - other for each, other in zip(ring_s, alone_s, strict=True)) / STAGES * 1e6
    print(f"a token takes {ratio:.3f} times as long in the ring; a hop costs {hop_us:.0f} µs")
    print_figures(
        hop_ratio=ratio,
        hop_us=hop_us,
        model_hop_us=model_hop_us,
        ring_ms=median(ring_s) * 1e3,
        single_ms=median(alone_s) * 1e3,
        stages=STAGES,
        rounds=rounds,
        blas=workshop.blas,
    )


async def compare(workshop: Workshop, rounds: int, tokens: int, engine: str) -> tuple[list[float], list[float]]:
    """Seconds per token of the ring and of the single process, round by round, in turns."""
    ring_s: list[float] = []
    alone_s: list[float] = []
    async with (
        running_ring(workshop, STAGES, engine=engine) as ring,
        running_ring(workshop, 1, engine=engine) as alone,
    ):
        for stage in (ring, alone):
            await ask(stage, make_request(0, 4))
        for number in range(1, rounds + 1):
            # Who goes first alternates, or a machine that warms up would favour one of them.
            order = [(ring, ring_s), (alone, alone_s)][:: 1 if number % 2 else -1]
            answers = [(await ask(stage, make_request(number, tokens)), seconds) for stage, seconds in order]
            if len({answer.tokens for answer, _ in answers}) != 1:
                raise SystemExit("the ring's tokens differ from the single process's")
            for answer, seconds in answers:
                seconds.append(answer.seconds_per_token)
            print(f"round {number}: ring {ring_s[-1] * 1e3:.2f} ms a token, one process {alone_s[-1] * 1e3:.2f} ms")
    return ring_s, alone_s


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
