"""``p2pexo place`` and ``p2pexo delete``: models onto the machines of a cluster, and off them."""

import sys
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from p2pexo.cli.client import Target, connect
from p2pexo.cli.display import open_display
from p2pexo.cli.errors import CommandError
from p2pexo.cli.follow import follow_placement
from p2pexo.cli.preview_tables import preview_tables
from p2pexo.cli.tables import open_console, ring_table
from p2pexo.client import ClusterState, PlacementPreview, Precision
from p2pexo.generation.codec import encode

_DEFAULT_TARGET = Target()


def place(
    model: str,
    /,
    *,
    min_stages: int = 1,
    precision: Precision | None = None,
    split: str | None = None,
    replicas: int = 1,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    wait: Annotated[bool, Parameter(negative="--no-wait", name="--wait")] = True,
    target: Target = _DEFAULT_TARGET,
) -> None:
    """Load a model onto the machines of the cluster. It stays until it is deleted.

    Parameters
    ----------
    model
        Its id, as `p2pexo models` lists it.
    min_stages
        Split it over at least so many machines, even if fewer would do. More stages leave each machine more memory, and add a hop to every token.
    precision
        In which form weights are computed; without it, what the nodes were told. See `p2pexo node --help`.
    split
        Which machine runs which layers, both ends counted in, such as `mac-a=0-9,mac-b=10-29`; without it the cluster decides. Machines are named by name or peer id.
    replicas
        Have so many rings of it, each on machines of its own: one goes on at once where another is lost.
    dry_run
        Place nothing; show what would be done, and what else could be: a ring of each number of machines with memory and expected speed, or why there can't be one.
    json
        With --dry-run: one JSON object, for programs.
    wait
        Wait until it can answer, and show how it loads. Ctrl-C ends the waiting, not the loading.
    """
    if json and not dry_run:
        raise CommandError("--json shows a preview; add --dry-run")
    console = open_console()
    with connect(target) as client:
        if dry_run:
            seen = client.preview(model, min_stages=min_stages, precision=precision, split=split, replicas=replicas)
            _show(seen, console, json)
            return
        placement_id = client.place(model, min_stages=min_stages, precision=precision, split=split, replicas=replicas)
        if not wait:
            console.print(placement_id, highlight=False)
            return
        with open_display(console) as display:
            display.doing(f"loading {model}")
            placement = follow_placement(
                client.cluster, placement_id, lambda snapshot: display.show(snapshot, placement_id)
            )
        console.print(ring_table(placement))


def _show(preview: PlacementPreview, console: Console, json: bool) -> None:
    if json:
        sys.stdout.write(encode(preview).decode() + "\n")
    else:
        console.print(preview_tables(preview), highlight=False)


def delete(placement: str, /, *, target: Target = _DEFAULT_TARGET) -> None:
    """Unload a model from the machines of the cluster. Answers that are still running end with an error.

    Parameters
    ----------
    placement
        The placement's id, as `p2pexo status` shows it, or the model's id, or its last part, if it is placed once.
    """
    with connect(target) as client:
        placement_id = find_placement_id(client.cluster(), placement)
        client.delete(placement_id)
    open_console().print(f"deleted {placement_id}", highlight=False)


def _is_named(model: str, name: str) -> bool:
    """As requests name models: by id or the id's last part, in any letter case."""
    return name.casefold() in (model.casefold(), model.casefold().rpartition("/")[2])


def find_placement_id(snapshot: ClusterState, name: str) -> str:
    """The id of the one placement that ``name`` means. Raises CommandError."""
    found = [
        each.id
        for each in snapshot.placements
        if name == each.id or (each.state != "failed" and _is_named(each.model, name))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"{name} is placed {len(found)} times; name one of {', '.join(found)}")
    known = ", ".join(f"{each.id} ({each.model})" for each in snapshot.placements) or "nothing"
    raise CommandError(f"no placement is called {name!r}; placed is {known}")
