"""One request on one node against ``mlx_lm.stream_generate``, with the same weights, number format and BLAS.

``decode_ratio`` and ``prefill_ratio`` are tokens per second of ours ÷ those of mlx-lm, medians over rounds in turns.
"""

import sys
from statistics import median

import trio
from harness import ask, print_figures, raw_request, running_ring, set_up
from rivalry import running_rival

ROUNDS = 5
"""Raise it for steadier figures; each takes some twenty seconds."""
TOKENS = 33
"""Of an answer, the first of which belongs to the prefill."""
PROMPT = "The lighthouse keeper looked at the storm and wrote down what he saw. " * 30
STORY = "Once upon a time there was a lighthouse keeper who"


async def main(rounds: int) -> None:
    workshop = set_up()
    decode: list[float] = []
    prefill: list[float] = []
    async with running_ring(workshop, 1) as ring, running_rival(workshop) as rival:
        for number in range(rounds + 1):
            story = raw_request(f"story-{number}", STORY, TOKENS)
            prompt = raw_request(f"prompt-{number}", PROMPT, 1)
            # Who goes first alternates, or a machine that warms up would favour one of them.
            if number % 2:
                ours, long = await ask(ring, story), await ask(ring, prompt)
                theirs, their_long = await rival.answer([story]), await rival.answer([prompt])
            else:
                theirs, their_long = await rival.answer([story]), await rival.answer([prompt])
                ours, long = await ask(ring, story), await ask(ring, prompt)
            if ours.tokens != theirs.tokens:
                raise SystemExit("our tokens differ from mlx-lm's")
            print(
                f"decode {ours.decode_s:.2f} s, mlx-lm {theirs.rest_s:.2f} s; "
                f"prefill {long.prefill_s:.2f} s, mlx-lm {their_long.first_s:.2f} s"
            )
            if number:  # the first round warms up
                decode.append(theirs.rest_s / ours.decode_s)
                prefill.append(their_long.first_s / long.prefill_s)
    print_figures(decode_ratio=median(decode), prefill_ratio=median(prefill), rounds=rounds, blas=workshop.blas)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
