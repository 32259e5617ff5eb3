"""``p2pexo models``: what the cluster can run."""

from rich.table import Table

from p2pexo.cli.client import Target, connect
from p2pexo.cli.tables import add_row, new_table, open_console, state_text
from p2pexo.client import ClusterState, Model

_DEFAULT_TARGET = Target()


def models(*, target: Target = _DEFAULT_TARGET) -> None:
    """List the models that the cluster can run, which nodes hold their files, and which are loaded."""
    with connect(target) as client:
        open_console().print(models_table(client.models(), client.cluster()))


def models_table(models: tuple[Model, ...], snapshot: ClusterState) -> Table:
    table = new_table("Model", "State", "Files on")
    # One that failed says nothing about another of the same model that runs.
    placements = sorted(snapshot.placements, key=lambda placement: placement.state != "failed")
    states = {placement.model: placement.state for placement in placements}
    for model in (each.id for each in models):
        holders = [member.name for member in snapshot.members if model in member.models]
        add_row(table, model, state_text(states.get(model, "")), ", ".join(holders))
    return table
