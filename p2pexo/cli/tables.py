"""A cluster snapshot as tables for a terminal. Pure: a snapshot in, something rich can print out."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from p2pexo.cli.speeds import activity_lines, compute_speed
from p2pexo.client import ClusterState, Member, Newcomer, Placement, Stage
from p2pexo.node.values import format_size

PIPE_WIDTH = 160

STATE_STYLES = {"ready": "green", "alive": "green", "suspect": "yellow", "broken": "yellow", "failed": "red"}


def cluster_tables(snapshot: ClusterState) -> RenderableType:
    """Everything ``p2pexo status`` shows."""
    parts: list[RenderableType] = [_headline(snapshot), members_table(snapshot.members)]
    for placement in snapshot.placements:
        parts += [Text(), ring_table(placement)]
    if snapshot.away_members:
        parts.insert(2, Text("Away: " + ", ".join(each.name for each in snapshot.away_members), style="dim"))
    if not snapshot.placements:
        parts.append(Text("\nNo model is loaded. Load one with `p2pexo place MODEL`, or just ask it something."))
    parts += newcomer_lines(snapshot)
    parts += [Text(f"! {warning}", style="yellow") for warning in snapshot.warnings]
    return Group(*parts)


def newcomer_lines(snapshot: ClusterState) -> list[Text]:
    """Who waits to be let in here, and where this node itself waits, each with the code to compare."""
    lines = [
        Text.assemble(
            f"? {each.name} ({each.machine}; {each.address}) asks to join at {each.at}; code ",
            (each.code, "bold"),
            f": p2pexo approve {each.name}",
            (f"; careful: {mistakable(each)}" if each.looks_like else "", "yellow"),
        )
        for each in snapshot.newcomers
    ]
    if snapshot.asking:
        code = (snapshot.asking.code, "bold")
        lines.append(
            Text.assemble(f"? waits to be let into {snapshot.asking.cluster}; code ", code, ": approve it there")
        )
    return lines


def mistakable(newcomer: Newcomer) -> str:
    return f"it is another machine than the member {newcomer.looks_like}, whose name looks the same"


def _headline(snapshot: ClusterState) -> Text:
    leader = next((member.name for member in snapshot.members if member.is_leader), None)
    led = f"led by {leader} (term {snapshot.term})" if leader else "without a leader"
    count = len(snapshot.members)
    text = Text.assemble(
        ("Cluster ", "bold"), (snapshot.cluster, "bold cyan"), f": {count} node{'s' if count != 1 else ''}, {led}"
    )
    if snapshot.open:
        text.append("; open, anyone can join", style="yellow")
    return text.append("\n")


def members_table(members: tuple[Member, ...]) -> Table:
    speeds = {member.peer: speed for member in members if (speed := compute_speed(member))}
    differs = ("Speed",) if speeds else ()
    table = new_table("Node", "State", "Machine", "Device", "Memory for models", *differs, "API")
    for member in members:
        add_row(
            table,
            Text.assemble((member.name, "bold" if member.is_me else ""), (" *" if member.is_leader else "", "cyan")),
            _state_and_road(member),
            member.machine,
            member.device,
            f"{format_size(member.memory_reserved)} of {format_size(member.memory_budget)}",
            *((speeds.get(member.peer, ""),) if speeds else ()),
            member.api_url,
        )
    table.caption = "* leads"
    table.caption_justify = "left"
    return table


def _state_and_road(member: Member) -> Text:
    _, _, rest = member.address.partition("/")[2].partition("/")
    host = rest.partition("/")[0]
    return Text.assemble(state_text(member.state), (f"\nover {host}" if host else "", "dim"))


def ring_table(placement: Placement) -> RenderableType:
    """The stages of one model, in the order in which a token passes them."""
    computes = list(dict.fromkeys(stage.compute for stage in placement.stages if stage.compute))
    # A column only where it tells stages apart: 80 characters are soon full.
    differs = ("Computes on",) if len(computes) > 1 else ()
    table = new_table("#", "Node", "Layers", "State", "Weights", "Process", "Listens at", "Link to next", *differs)
    for stage in placement.stages:
        add_row(
            table,
            str(stage.rank),
            stage.node,
            layers(stage),
            _stage_state(stage),
            format_size(stage.weight_bytes),
            format_size(stage.resident_bytes),
            stage.endpoint,
            stage.link,
            *((stage.compute,) if differs else ()),
        )
    return Group(_ring_title(placement, computes), table, *_reason(placement), *activity_lines(placement))


def _ring_title(placement: Placement, computes: list[str]) -> Text:
    title = Text.assemble((placement.model, "bold"), f"  {placement.id}  ", state_text(placement.state))
    return title.append(f"  computes on {computes[0]}", style="dim") if len(computes) == 1 else title


def _reason(placement: Placement) -> tuple[Text, ...]:
    return (Text(placement.reason, style="red"),) if placement.reason else ()


def layers(stage: Stage) -> str:
    return span(stage.first_layer, stage.end_layer)


def span(first_layer: int, end_layer: int) -> str:
    """``0-9``, both ends included, as people count."""
    last = end_layer - 1
    return f"{first_layer}-{last}" if last > first_layer else str(first_layer)


def state_text(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def _stage_state(stage: Stage) -> Text:
    text = state_text(stage.phase)
    if stage.phase == "loading":
        text.append(f" {stage.progress:.0%}")
    if stage.reason:
        text.append(f": {stage.reason}")
    return text


def open_console() -> Console:
    """Standard output; as wide as the terminal, or wide enough for every table where there is none to wrap them."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def new_table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def add_row(table: Table, *cells: str | Text) -> None:
    """Names come from other machines: they are shown as they are, never read as markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
