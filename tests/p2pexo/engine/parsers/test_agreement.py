"""The families are those that mlx-lm knows: its own parsers read what ours do, and pick the same from a template."""

import importlib
import json
from typing import Any, cast

import pytest
from parser_samples import ASK, chat_format, read
from parser_writers import OSLO, PARIS, WRITERS, Call

from p2pexo.engine.mlx_models import mlx_lm_module

THEIRS = {
    "hermes": "json_tools",
    "mistral": "mistral",
    "mistral-v11": "mistral",
    "kimi": "kimi_k2",
    "glm": "glm47",
    "minimax": "minimax_m2",
    "qwen-coder": "qwen3_coder",
    "longcat": "longcat",
    "minicpm": "minicpm5",
    "gemma": "gemma4",
    "function-gemma": "function_gemma",
    "lfm": "pythonic",
}
TOOLS = [
    {"type": "function", "function": {"name": tool.name, "parameters": json.loads(tool.parameters or "{}")}}
    for tool in ASK.tools
]


def by_mlx_lm(family: str, written: str) -> Call:
    mlx_lm_module("cache")  # puts the package in place
    parser: Any = importlib.import_module(f"mlx_lm.tool_parsers.{THEIRS[family]}")
    inside = written.partition(parser.tool_call_start)[2]
    inside = inside.partition(parser.tool_call_end)[0] if parser.tool_call_end else inside
    parsed = parser.parse_tool_call(inside, TOOLS)
    call = cast(dict[str, Any], parsed[0] if isinstance(parsed, list) else parsed)
    return Call(call["name"], json.dumps(call["arguments"], ensure_ascii=False))


@pytest.mark.parametrize("call", [PARIS, OSLO], ids=["a text", "a number"])
@pytest.mark.parametrize("family", THEIRS)
def test_a_call_is_read_as_mlx_lm_reads_it(family: str, call: Call) -> None:
    written = WRITERS[family](call)
    assert read(chat_format(family).parser(ASK), [written]).calls == (by_mlx_lm(family, written),) == (call,)
