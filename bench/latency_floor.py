"""How near one request comes to what a ring can't go below: time per token ÷ (the stages' times + the hops).

Four emulated stages that sleep for a fixed time per batch, and links that take 10 ms each; the token goes straight from the
last stage back to the first.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median

import trio
from attrs import evolve
from harness import ask, print_figures, raw_request, running_ring, set_up

from p2pexo.ring.engines import SCRIPTED_ENGINE
from p2pexo.ring.scripted import Script

STAGES = 4
STAGE_S = 0.04
"""What a stage sleeps per batch. Lower it and what the machine adds to each sleep and each relayed hop, some 2 ms in all,
weighs more."""
HOP_S = 0.01
ROUNDS = 5
"""Raise it for steadier figures; each takes some ten seconds."""
TOKENS = 40


async def main(rounds: int) -> None:
    floor = STAGES * (STAGE_S + HOP_S)
    workshop = set_up()
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        Script(layers=STAGES, batch_s=STAGE_S).write(Path(directory))
        emulated = evolve(workshop, model_directory=Path(directory))
        async with running_ring(emulated, STAGES, engine=SCRIPTED_ENGINE, layers=STAGES, hop_s=HOP_S) as ring:
            for number in range(rounds + 1):
                answer = await ask(ring, raw_request(f"floor-{number}", "Once upon a time", TOKENS))
                seconds += [answer.seconds_per_token] if number else []  # the first round warms up
                print(f"{answer.seconds_per_token * 1e3:.1f} ms a token, the floor is {floor * 1e3:.0f} ms")
    print_figures(
        over_floor=median(seconds) / floor, token_ms=median(seconds) * 1e3, floor_ms=floor * 1e3, rounds=rounds
    )


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
