"""How a node's last requests fared, as a table for a terminal. Pure."""

import time
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from p2pexo.cli.tables import add_row, new_table
from p2pexo.client import EndedRequest

NOTHING = "–"


def requests_table(requests: Sequence[EndedRequest]) -> Table:
    """Newest first, as they are told."""
    table = new_table(
        "Ended", "How", "Model", "First stage on", "Prompt", "Cached", "Answer", "Waited", "Read", "Wrote", "Took"
    )
    table.title, table.title_justify, table.title_style = "Last requests of this node", "left", "bold"
    for each in requests:
        add_row(
            table,
            time.strftime("%H:%M:%S", time.localtime(each.ended_at)),
            Text(each.outcome, style="" if each.completion_tokens is not None else "yellow"),
            each.model,
            _ring(each),
            _figure(each.prompt_tokens),
            _figure(each.cached_tokens),
            _figure(each.completion_tokens),
            _figure(each.queue_s, "s"),
            _figure(each.prefill_tokens_per_s, "tokens/s"),
            _figure(each.decode_tokens_per_s, "tokens/s"),
            _figure(each.total_s, "s"),
        )
    return table


def _ring(request: EndedRequest) -> str:
    """Such as ``mac-a (1.2.abcdef)``, the epoch telling the rings of one model apart."""
    if not request.placement:
        return NOTHING
    moved = f", ring {request.rings}" if request.rings > 1 else ""
    return f"{request.node} ({request.epoch}{moved})"


def _figure(figure: float | None, unit: str = "") -> str:
    if figure is None:
        return NOTHING
    shown = f"{figure:.0f}" if isinstance(figure, int) or figure >= 100 else f"{figure:.3g}"
    return f"{shown} {unit}".strip()
