"""``p2pexo status``: who is here, what runs where, and how requests fared."""

import sys
import time
from contextlib import nullcontext, suppress
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from p2pexo.cli.client import Target, connect
from p2pexo.cli.requests import requests_table
from p2pexo.cli.tables import cluster_tables, open_console
from p2pexo.client import Client, EndedRequest, NotFoundError
from p2pexo.generation.codec import encode

REFRESH_S = 1.0
_DEFAULT_TARGET = Target()


def status(
    *,
    target: Target = _DEFAULT_TARGET,
    requests: int = 5,
    watch: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show who is here, which models run where, and how requests fared.

    Parameters
    ----------
    requests
        How many of the last requests to show, at most; a node keeps 20. 0 shows none. Not part of the JSON: see GET /v1/requests.
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
            _watch(client, open_console(), requests)
        else:
            open_console().print(_picture(client, requests))


def _print_json(client: Client, watch: bool) -> None:
    while True:
        sys.stdout.write(encode(client.cluster()).decode() + "\n")
        sys.stdout.flush()
        if not watch:
            return
        time.sleep(REFRESH_S)


def _watch(client: Client, console: Console, requests: int) -> None:
    if not console.is_terminal:
        while True:
            console.print(_picture(client, requests))
            time.sleep(REFRESH_S)
    with Live(_picture(client, requests), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_S)
            live.update(_picture(client, requests), refresh=True)


def _picture(client: Client, requests: int) -> RenderableType:
    picture = cluster_tables(client.cluster())
    newest = _newest(client)[:requests] if requests > 0 else ()
    return Group(picture, Text(), requests_table(newest)) if newest else picture


def _newest(client: Client) -> tuple[EndedRequest, ...]:
    """None from a node of an older version."""
    try:
        return client.requests()
    except NotFoundError:
        return ()
