"""What could be placed where, as tables for a terminal. Pure: a preview in, something rich can print out."""

from rich.console import Group, RenderableType
from rich.text import Text

from p2pexo.cli.tables import add_row, new_table, span
from p2pexo.client import PlacementOption, PlacementPreview, StagePreview
from p2pexo.node.values import format_size


def preview_tables(preview: PlacementPreview) -> RenderableType:
    """Everything ``p2pexo place --dry-run`` shows."""
    parts: list[RenderableType] = [Text.assemble((preview.model, "bold"), f"  {_conclusion(preview)}")]
    for option in preview.options:
        parts += [Text(), *_option(option, is_chosen=option.machines == preview.chosen)]
    return Group(*parts)


def _conclusion(preview: PlacementPreview) -> str:
    if preview.running:
        return f"runs already as {preview.running}; delete that first to place it differently"
    if preview.chosen is None:
        return "can't be placed"
    return f"would be placed on {_machines(preview.chosen)}"


def _option(option: PlacementOption, *, is_chosen: bool) -> tuple[RenderableType, ...]:
    title = Text(f"{'→' if is_chosen else ' '} {_machines(option.machines)}", style="bold" if is_chosen else "")
    if not option.stages:
        return (title.append(f": impossible: {option.reason}", style="red"),)
    title.append(f": {_speed(option)}; room for {option.cache_tokens} tokens of conversation")
    table = new_table("#", "Node", "Layers", "Memory", "Free now", "Time per token")
    for rank, stage in enumerate(option.stages):
        memory = (format_size(stage.memory_bytes), format_size(stage.memory_free))
        add_row(table, str(rank), stage.node, span(stage.first_layer, stage.end_layer), *memory, _time(stage))
    return title, table


def _speed(option: PlacementOption) -> str:
    if option.decode_tokens_per_s is None:
        return f"speed unknown ({option.note})"
    prefill = option.prefill_tokens_per_s
    prompts = f"prompts at {prefill:.0f}" if prefill is not None else "prompts not measured yet"
    return f"about {option.decode_tokens_per_s:.1f} tokens/s, {prompts}"


def _time(stage: StagePreview) -> str:
    return "not measured" if stage.token_s is None else f"{1000 * stage.token_s:.1f} ms"


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"
