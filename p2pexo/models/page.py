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

The layers of a model whose `model_type` in its `config.json` is one of these may be cut anywhere, into as many stages as it has layers. Any other
model that mlx-lm itself can run runs whole, on one machine that has the memory for all of it; what mlx-lm doesn't know either is refused by name,
before its weights are fetched. Weights are safetensors as mlx-lm reads them: plain, quantised by mlx-lm (each module in its own way, if the config
says so), or the 4-bit floats (`mxfp4`) in which gpt-oss is published.

| family | `model_type` | what its layers keep of a text | several texts at once |
|---|---|---|---|
"""

_TAIL = """
"No" in the last column means that texts are answered side by side, but computed one after another: their states can't be joined.

A model needs a `tokenizer.json`. Kimi's makers publish theirs in a form of their own, so a copy that has one is needed.

A model that runs whole is a single layer for the planner, and what a text takes is counted as if each of its layers kept something of every token.
Where its caches can be joined, it is tried once, when it is loaded, whether two texts of different lengths come out the same together as alone; only
then are several computed together, and prompts take over what earlier ones have computed. The small Gemma 4 models (E2B, E4B) run whole, since their
later layers look at the tokens, or share keys with others.

Tool calls and thoughts are read in the way that each family writes them, told by its chat template and its tokens. They are known for gpt-oss, DeepSeek,
Kimi K2, GLM, MiniMax, Qwen, Hermes and those who write as it does, Mistral, Llama, Gemma 4, FunctionGemma, LFM 2, LongCat and MiniCPM 5; for most of them
a test has mlx-lm's own parser read the same call. Muse Spark's and Kimi K3's are not known yet. Any other model is told of tools in words.

Where a family could also see, its text part runs and pictures are refused.

## What was run, and what was not

Each architecture was run as a tiny model with random weights, in the form in which its makers publish theirs: cut into one, two and three
stages, with the prompt whole and in chunks, its logits are those of mlx-lm's own model, to the bit (Mistral Small 3 and Ministral 3 inside
`mistral3`: to 1e-4). Of those that run whole, some ten of different builds give the tokens of mlx-lm's own generation, alone and together (GPT-2 and
NeoX, Cohere 2, EXAONE 4, OLMoE, Qwen 3 VL's text part, StarCoder, LFM 2, Mamba, Recurrent Gemma); others were never tried. With trained weights only SmolLM2 (Llama) was run; the others wait for somebody with the memory. Nothing was run on a GPU.
"""


def render() -> str:
    return _HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in _rows()) + _TAIL


def _rows() -> Iterator[tuple[str, ...]]:
    for model_type, each in ARCHITECTURES.items():
        together = "no" if each.caching.computes_alone else "yes"
        yield each.family, f"`{model_type}`", CACHES[each.caching], together


if __name__ == "__main__":
    print(render(), end="")
