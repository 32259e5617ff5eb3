"""What answering several requests at once brings on one node, against what mlx-lm's BatchGenerator brings.

A gain is tokens per second of 8 requests at once ÷ those of one, prompts included; ``gain_ratio`` is ours ÷ mlx-lm's.
"""

import sys
import time
from statistics import median

import trio
from harness import ask_all, print_figures, raw_request, running_ring, set_up
from rivalry import running_rival

ROUNDS = 4
"""Raise it for steadier figures; each takes some thirty seconds."""
TOGETHER = 8
TOKENS = 48


async def main(rounds: int) -> None:
    workshop = set_up()
    ours: list[float] = []
    theirs: list[float] = []
    async with running_ring(workshop, 1) as ring, running_rival(workshop) as rival:
        for number in range(rounds + 1):
            stories = [
                raw_request(f"{number}-{each}", f"Once upon a time there were {each} lighthouses", TOKENS)
                for each in range(1, TOGETHER + 1)
            ]
            our_s: list[float] = []
            their_s: list[float] = []
            for requests in (stories[:1], stories):
                begun = time.perf_counter()
                answers = await ask_all(ring, requests)
                our_s.append((time.perf_counter() - begun) / sum(len(each.tokens) for each in answers))
                told = await rival.answer(requests, in_batch=True)
                their_s.append((told.first_s + told.rest_s) / (TOKENS * len(requests)))
            print(f"ms a token: ours {our_s[0] * 1e3:.1f} alone, {our_s[1] * 1e3:.1f} together; ", end="")
            print(f"mlx-lm {their_s[0] * 1e3:.1f} alone, {their_s[1] * 1e3:.1f} together")
            if number:  # the first round warms up
                ours.append(our_s[0] / our_s[1])
                theirs.append(their_s[0] / their_s[1])
    ratio = median(our / their for our, their in zip(ours, theirs, strict=True))
    print_figures(gain_ratio=ratio, gain=median(ours), rival_gain=median(theirs), together=TOGETHER, rounds=rounds)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
