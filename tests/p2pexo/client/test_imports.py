"""The SDK stands alone: nothing of the rest of p2pexo, and few libraries."""

import ast
import sys
from pathlib import Path

import pytest

import p2pexo.client

FOLDER = Path(p2pexo.client.__file__).parent
ALLOWED = {"attrs", "httpx", *sys.stdlib_module_names}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_only_httpx_and_attrs_are_needed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.startswith("p2pexo.client") or name.split(".")[0] in ALLOWED, f"{path.name} imports {name}"
