"""Calls written as Python calls functions: ``[f(a=1, b="x"), g()]``."""

import ast
import json
import re
from collections.abc import Iterable
from typing import Any

from p2pexo.engine.parsers.emitter import Emitter
from p2pexo.engine.parsers.json_calls import JsonArguments
from p2pexo.engine.parsers.scanner import Match, Scanner, Steps
from p2pexo.engine.parsers.schemas import ToolSchemas

_JSON_NAMES = {"true": True, "false": False, "null": None}
_STRING = r""""[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+\'"""


def call_head(names: Iterable[str] = ()) -> str:
    """Source of a pattern: a whole call to one of the tools, or to any if none is given, by keywords. Llama's built-in tools
    add ``.call``."""
    name = "|".join(map(re.escape, names)) or r"[\w.-]{1,256}"
    arguments = rf"(?P<python>(?:[^()\"']++|{_STRING}|\((?:[^()\"']++|{_STRING})*+\))*+)"
    return rf"(?P<name>{name})(?:\.call)?\(\s*(?=\)|\w+\s*=){arguments}\)"


class PythonOrJsonArguments:
    """Those of ``call_head``, which holds them already, or else JSON."""

    def read(self, scanner: Scanner, emitter: Emitter, head: Match, schemas: ToolSchemas) -> Steps[None]:
        if (python := head.groupdict().get("python")) is not None:
            emitter.arguments(_as_json(python))
        else:
            yield from JsonArguments().read(scanner, emitter, head, schemas)


def _as_json(python: str) -> str:
    """The arguments as a JSON object; as they are written if they can't be read."""
    try:
        call = ast.parse(f"f({python})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args:
            raise ValueError("arguments without a name")
        values = {str(each.arg): _value(each.value) for each in call.keywords}
        return json.dumps(values, ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return python


def _value(node: ast.expr) -> Any:
    return ast.literal_eval(_JsonNames().visit(node))


class _JsonNames(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_NAMES[node.id]) if node.id in _JSON_NAMES else node
