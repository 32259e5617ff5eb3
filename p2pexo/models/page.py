"""Writes docs/models.md from the table that the code uses: ``python -m p2pexo.models.page > docs/models.md``."""

from collections.abc import Iterator

from p2pexo.models.architectures import ARCHITECTURES, Caching

CACHES = {
    Caching.PLAIN: "every token",
    Caching.LATENT: "every token, compressed",
    Caching.INDEXED: "every token, compressed, and an index",
    Caching.LAYER_TYPES: "every token; a window in the layers that the config names",
    Caching.TURNS: "a window in every second layer",
    Caching.NTH_GLOBAL: "a window in all layers but every nth",
    Caching.TWO_WIDTHS: "every token; a window in the layers that the config names",
    Caching.CHUNKS: "a chunk in three of four layers",
    Caching.LINEAR: "a state of fixed size in all layers but every nth",
}

_HEAD = """\
# Models

This page is written by `python -m p2pexo.models.page` from the table that the code uses.

A model can be run if the `model_type` in its `config.json` is one of these; any other is refused by name, before its weights are fetched. Its
layers may be cut anywhere, into as many stages as it has layers. Weights are safetensors as mlx-lm reads them: plain, quantised by mlx-lm
(each module in its own way, if the config says so), or the 4-bit floats (`mxfp4`) in which gpt-oss is published.

| family | `model_type` | what its layers keep of a text | several texts at once |
|---|---|---|---|
"""

_TAIL = """
"No" in the last column means that texts are answered side by side, but computed one after another: their states can't be joined.

A model needs a `tokenizer.json`. Kimi's makers publish theirs in a form of their own, so a copy that has one is needed.

The small Gemma 4 models (E2B, E4B) are refused: their later layers look at the tokens, or share keys with others.

Tool calls and thoughts are read in the way that each family writes them, told by its chat template; Gemma 4's way is not known yet, and its
thoughts come out as text.

Where a family could also see, its text part runs and pictures are refused.

## What was run, and what was not

Each architecture was run as a tiny model with random weights, in the form in which its makers publish theirs: cut into one, two and three
stages, with the prompt whole and in chunks, its logits are those of mlx-lm's own model, to the bit (Mistral Small 3 and Ministral 3 inside
`mistral3`: to 1e-4). With trained weights only SmolLM2 (Llama) was run; the others wait for somebody with the memory. Nothing was run on a GPU.
"""


def render() -> str:
    return _HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in _rows()) + _TAIL


def _rows() -> Iterator[tuple[str, ...]]:
    for model_type, each in ARCHITECTURES.items():
        together = "no" if each.caching.computes_alone else "yes"
        yield each.family, f"`{model_type}`", CACHES[each.caching], together


if __name__ == "__main__":
    print(render(), end="")
