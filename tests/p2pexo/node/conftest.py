"""A node at other doors, in virtual time."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from paper_doors import ME, OWN, Play, Street

from networking.charter import Charter
from networking.pairing import Party
from networking.simulation import simulate
from p2pexo.node import newcomer
from p2pexo.node.belonging import Belonging
from p2pexo.node.newcomer import Introduction, Newcomer
from p2pexo.node.shut_out import ShutOut


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A story about a node with that charter, which asks while it is fresh and renews when it is behind."""

    def run(story: Callable[[Street], Awaitable[None]], charter: Charter = OWN, named: str | None = None) -> None:
        async def main() -> None:
            street = Street(Belonging(tmp_path, charter))
            street.shut_out = ShutOut(tmp_path, ME, street.belonging)
            monkeypatch.setattr(newcomer, "ask", street.ask)
            street.node = Newcomer(
                Party(ME, lambda data: data, lambda *_: True),
                street.belonging,
                Introduction("me", "a Mac", named),
                street.shown.append,
                lambda peer, addresses: street.dialled.append((peer, addresses)),
                street.here.__contains__,
                street.shut_out,
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(street.node.ask_while_fresh)
                nursery.start_soon(street.node.renew_when_behind)
                await story(street)
                nursery.cancel_scope.cancel()

        simulate(main, seed=1)

    return run
