"""What docs/errors.md says of each kind of error, for tests that hold the node to it."""

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"


@frozen
class Row:
    """What the page says of one kind."""

    status: int
    claude_status: int
    openai_type: str
    openai_code: str | None
    claude_type: str


def _read_rows() -> Iterator[tuple[str, Row]]:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[2][:3].isdigit():
            _, kind, statuses, openai_type, code, claude_type, _ = cells
            status, _, claude_status = statuses.partition("; Claude: ")
            told = None if code == "–" else code
            yield kind, Row(int(status), int(claude_status or status), openai_type, told, claude_type)


ROWS = dict(_read_rows())
