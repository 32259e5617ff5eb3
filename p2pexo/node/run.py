"""Runs a node: takes its home, joins its parts, and ends in good order."""

from functools import partial

import structlog
import trio

from networking.identity import Identity
from p2pexo.node.belonging import choose_belonging, read_ticket
from p2pexo.node.parts import Node
from p2pexo.node.settings import NodeSettings
from p2pexo.node.stopping import wait_for_end_of_input, wait_for_signal

EXIT_FAILED = 1

log = structlog.get_logger(__name__)


def run_node(settings: NodeSettings) -> int:
    """Run until a signal; the exit code. What keeps the node from coming up is raised; what ends it later is logged in full."""
    identity = Identity.load(settings.home)
    with identity.locked():
        ticket = read_ticket(settings)
        node = Node(settings, identity, choose_belonging(settings, ticket), ticket)
        try:
            trio.run(partial(_run, node))
        except Exception:
            if not node.is_up:
                raise
            log.exception("the node has failed")
            return EXIT_FAILED
    return 0


async def _run(node: Node) -> None:
    """A first signal ends the node in good order, whether it is up already or still starting."""
    async with trio.open_nursery() as nursery:
        stop = trio.Event()
        await nursery.start(_set_after_signal, stop)
        if node.settings.exit_with_parent:
            nursery.start_soon(_set_after_end_of_input, stop)
        await node.run(stop)
        nursery.cancel_scope.cancel()


async def _set_after_signal(stop: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
    await wait_for_signal(task_status=task_status)
    stop.set()


async def _set_after_end_of_input(stop: trio.Event) -> None:
    await wait_for_end_of_input()
    stop.set()
