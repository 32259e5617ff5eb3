# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm is untyped
"""mlx-lm's own generation in a process of its own, with the same weights, format and BLAS as a stage; for comparison.

``python rival.py DIRECTORY`` reads jobs as JSON lines, ``[[prompt tokens, …], tokens to draw, in a batch]``, and answers
each with a line. A batch goes to ``BatchGenerator``: 0, seconds in all, and the tokens of the first prompt. Otherwise the
first prompt goes to ``stream_generate``: seconds up to the first token, seconds from there to the last, and the tokens.
"""

import json
import sys
import time
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, stream_generate
from mlx_lm.utils import dequantize_model, load


def main() -> None:
    model, tokenizer, *_ = load(sys.argv[1])
    model.set_dtype(mx.float32)
    model = dequantize_model(model)
    mx.eval(model.parameters())
    print("ready", flush=True)
    for line in sys.stdin:
        prompts, count, is_batch = json.loads(line)
        told = together(model, prompts, count) if is_batch else stream(model, tokenizer, prompts[0], count)
        print(json.dumps(told), flush=True)


def stream(model: Any, tokenizer: Any, prompt: list[int], count: int) -> tuple[float, float, list[int]]:
    begun = time.perf_counter()
    first = begun
    tokens: list[int] = []
    for response in stream_generate(model, tokenizer, mx.array(prompt), max_tokens=count):
        if not tokens:
            first = time.perf_counter()
        tokens.append(int(response.token))
    return first - begun, time.perf_counter() - first, tokens[:count]


def together(model: Any, prompts: list[list[int]], count: int) -> tuple[float, float, list[int]]:
    begun = time.perf_counter()
    generator = BatchGenerator(model, max_tokens=count, completion_batch_size=len(prompts))
    first, *_ = generator.insert(prompts)
    tokens: list[int] = []
    left = len(prompts)
    while left:
        for response in generator.next_generated():
            tokens += [int(response.token)] if response.uid == first else []
            left -= response.finish_reason is not None
    generator.close()
    return 0.0, time.perf_counter() - begun, tokens


if __name__ == "__main__":
    main()
