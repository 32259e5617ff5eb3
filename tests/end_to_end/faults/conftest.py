from collections.abc import Generator

import pytest
from end_to_end.faults.harness import Stage
from end_to_end.scripted import MODEL, scripted_nodes

from p2pexo.ring.scripted import Line, Script

TOKEN_S = 0.02
CALL = '<tool_call>\n{"name": "sail", "arguments": {"where": "the far harbour, \\u00e9t\\u00e9", "fast": true}}\n</tool_call>'
SCRIPT = Script(
    context_length=1024,
    batch_s=0.003,
    says=(
        Line("think first", "<think>Ships are made of wood, or of steel.</think>They float, né?", TOKEN_S),
        Line("call a tool", f"At once. {CALL}\n{CALL}", TOKEN_S),
        Line("almost stop", "one STOPPED two STOPPING three", TOKEN_S),
        Line("in other letters", "日本語の船は海を行く 🚢🦜 né", TOKEN_S),
    ),
)
"""To all other prompts it answers with letters that depend on every token and layer before them."""


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    with scripted_nodes(tmp_path_factory.mktemp("faults"), 3, SCRIPT) as cluster:
        yield Stage(cluster, MODEL, spread=3)
