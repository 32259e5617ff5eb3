"""``p2pexo status``: who is here, and what runs where."""

import sys
import time
from contextlib import nullcontext, suppress
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live

from p2pexo.cli.client import Target, connect
from p2pexo.cli.tables import cluster_tables, open_console
from p2pexo.client import Client
from p2pexo.generation.codec import encode

REFRESH_S = 1.0
_DEFAULT_TARGET = Target()


def status(
    *,
    target: Target = _DEFAULT_TARGET,
    watch: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show who is in the cluster, and which models run where.

    Parameters
    ----------
    watch
        Keep showing, once a second, until Ctrl-C.
    json
        One JSON object, for programs; with --watch one per line.
    """
    # Ctrl-C is how a watch is meant to end.
    ended = suppress(KeyboardInterrupt) if watch else nullcontext()
    with connect(target) as client, ended:
        if json:
            _print_json(client, watch)
        elif watch:
            _watch(client, open_console())
        else:
            open_console().print(cluster_tables(client.cluster()))


def _print_json(client: Client, watch: bool) -> None:
    while True:
        sys.stdout.write(encode(client.cluster()).decode() + "\n")
        sys.stdout.flush()
        if not watch:
            return
        time.sleep(REFRESH_S)


def _watch(client: Client, console: Console) -> None:
    if not console.is_terminal:
        while True:
            console.print(cluster_tables(client.cluster()))
            time.sleep(REFRESH_S)
    with Live(cluster_tables(client.cluster()), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_S)
            live.update(cluster_tables(client.cluster()), refresh=True)
