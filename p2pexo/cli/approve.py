"""``p2pexo approve`` and ``p2pexo deny``: machines that wait to be let into the cluster."""

from typing import Annotated

from cyclopts import Parameter

from p2pexo.cli.client import Target, connect
from p2pexo.cli.errors import CommandError
from p2pexo.cli.people import confirmed, find
from p2pexo.cli.tables import mistakable, open_console
from p2pexo.client import ClusterState, Newcomer

_DEFAULT_TARGET = Target()


def approve(
    name: str,
    /,
    *,
    code: str | None = None,
    yes: Annotated[bool, Parameter(negative="")] = False,
    target: Target = _DEFAULT_TARGET,
) -> None:
    """Let a machine into the cluster that waits for it. Compare the codes first.

    Parameters
    ----------
    name
        What it calls itself, or its peer id or the last eight characters of that.
    code
        The code that it shows; with another one than is shown here it is not let in. Without it you are asked.
    yes
        Let it in without comparing codes. Whoever stands between the two machines is let in then.
    """
    console = open_console()
    with connect(target) as client:
        newcomer = find_newcomer(client.cluster(), name)
        if code is None and not yes:
            question = f"{describe(newcomer)}. Does it show the code {newcomer.code}?"
            if not confirmed(question, otherwise=f"p2pexo approve {name} --code CODE, with the code that it shows"):
                raise CommandError(f"{newcomer.name} was not let in; p2pexo deny {name} turns it away")
        # The code that was compared goes along: if it has asked anew meanwhile, the comparison is worth nothing.
        client.approve(newcomer.peer, code if code is not None else newcomer.code)
    console.print(f"{newcomer.name} is let in", highlight=False, markup=False)


def deny(name: str, /, *, target: Target = _DEFAULT_TARGET) -> None:
    """Turn a machine away that waits to be let into the cluster. It may ask again after ten minutes.

    Parameters
    ----------
    name
        What it calls itself, or its peer id or the last eight characters of that.
    """
    with connect(target) as client:
        newcomer = find_newcomer(client.cluster(), name)
        client.deny(newcomer.peer)
    open_console().print(f"{newcomer.name} is turned away", highlight=False, markup=False)


def find_newcomer(snapshot: ClusterState, name: str) -> Newcomer:
    """Raises CommandError."""
    return find(name, snapshot.newcomers, nobody=f"nobody called {name} waits to be let in")


def describe(newcomer: Newcomer) -> str:
    """Such as ``anna (Apple M3, 16 GB; 192.168.1.7) asks to join at studio``."""
    careful = f". Careful: {mistakable(newcomer)}" if newcomer.looks_like else ""
    return f"{newcomer.name} ({newcomer.machine}; {newcomer.address}) asks to join at {newcomer.at}{careful}"
