"""Whom a name means, and a person's yes: what the commands about members and newcomers share."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from p2pexo.cli.errors import CommandError
from p2pexo.client import Member, Newcomer

T = TypeVar("T", Member, Newcomer)

SHORT_ID = 8
"""The last characters of a peer id are enough to name it, as logs do."""


def find(name: str, among: Iterable[T], *, nobody: str) -> T:
    """The one that is called so, or has that peer id or its last eight characters. Raises CommandError, with ``nobody``."""
    everyone = tuple(among)
    found = [each for each in everyone if name in (each.name, each.peer, each.peer[-SHORT_ID:])]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(each.peer[-SHORT_ID:] for each in found)
        raise CommandError(f"{len(found)} machines are called {name}; say which by its id: {ids}")
    known = ", ".join(f"{each.name} ({each.peer[-SHORT_ID:]})" for each in everyone)
    raise CommandError(f"{nobody}; {f'there is {known}' if known else 'there is nobody'}")


def confirmed(question: str, *, otherwise: str) -> bool:
    """Whether the person at the terminal says yes. Raises CommandError where nobody sits, saying what to do ``otherwise``."""
    if not sys.stdin.isatty():
        raise CommandError(f"nobody is here to ask: {otherwise}")
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
