"""Commands to the leader: a request on a stream that is answered with an id, or with an error that says why."""

from typing import Any, cast

import structlog
import trio
from attrs import evolve, frozen
from cattrs.strategies import configure_tagged_union

from networking.overlay import Overlay, RequestRefusedError
from networking.transport import PeerId, TransportError
from networking.typed_requests import OtherVersionError, RequestKind
from p2pexo.cluster.manual import Part
from p2pexo.generation.codec import converter, decode, encode
from p2pexo.generation.errors import ErrorReport, UnavailableError, from_report
from p2pexo.models.card import Card
from p2pexo.ring.plan import Epoch

PATIENCE_S = 10.0
"""How long a command waits for somebody to lead. Raise it and commands survive slower elections; lower it and they fail sooner."""

PAUSE_S = 0.25
"""Between two tries, so that an election in progress isn't flooded with commands."""

log = structlog.get_logger(__name__)


@frozen
class PlaceCommand:
    """Run a model as a ring of at least ``min_stages`` machines, or as several. A model that runs already keeps its placement."""

    model: str
    min_stages: int = 1
    precision: str = "auto"
    by_user: bool = True
    split: tuple[Part, ...] = ()
    """Which machine runs which layers; empty to have that decided."""
    replicas: int = 1
    """Rings that there are to be at least, each on machines of its own."""
    card: Card | None = None
    """What the sender knows of the model, for a leader that has not heard of it."""
    seen_term: int = 0
    """The term that the sender has seen; who leads under a lower one has been replaced, and only has yet to hear of it."""


@frozen
class DeleteCommand:
    placement_id: str
    seen_term: int = 0


@frozen
class ReleaseCommand:
    """End a placement that requests brought about and nobody uses, as the node of its stage 0 knows."""

    placement_id: str
    epoch: Epoch
    """That of the ring whose use is known: one that was formed anew since may be used."""
    reason: str
    makes_room_for: str = ""
    """The model that needs its memory, if that is why."""
    seen_term: int = 0


Command = PlaceCommand | DeleteCommand | ReleaseCommand


@frozen
class Accepted:
    id: str
    """The placement's."""


@frozen
class NotLeading:
    """The answer of a node that doesn't lead; ``leader`` is who does, as far as it knows."""

    leader: str | None


Reply = Accepted | NotLeading | ErrorReport

configure_tagged_union(Command, converter, tag_name="command")
configure_tagged_union(Reply, converter, tag_name="reply")


COMMAND = RequestKind[Command, Reply]("/p2pexo/command/1", cast(Any, Command), cast(Any, Reply), encode, decode)


async def send_command(overlay: Overlay, command: Command, *, patience_s: float = PATIENCE_S) -> str:
    """The placement id that the leader answers with, whoever leads by then.

    Commands may be sent twice without harm, so a lost leader is asked again, and then its successor.
    Raises the leader's own error, or UnavailableError if nobody led for ``patience_s``.
    """
    trouble = "nobody leads the cluster at the moment"
    with trio.move_on_after(patience_s) as scope:
        while True:
            leader = overlay.view.leader
            if leader is not None:
                reply = await _ask(overlay, leader, command, patience_s)
                if isinstance(reply, Accepted):
                    return reply.id
                if isinstance(reply, ErrorReport):
                    raise from_report(reply)
                trouble = reply if isinstance(reply, str) else f"{leader} no longer leads the cluster"
            await trio.sleep(PAUSE_S)
    assert scope.cancelled_caught
    raise UnavailableError(f"the command got no answer in {patience_s:g} s: {trouble}; try again", retry_after_s=5)


async def _ask(overlay: Overlay, leader: PeerId, command: Command, patience_s: float) -> Reply | str:
    """The leader's reply, or why there is none. Raises UnavailableError for one that can't be read."""
    command = evolve(command, seen_term=overlay.view.term)
    try:
        return await COMMAND.ask(overlay, leader, command, timeout_s=patience_s)
    except (OtherVersionError, RequestRefusedError) as error:
        message = (
            f"the leader {leader} answers as another version of p2pexo does; install the same one everywhere ({error})"
        )
        raise UnavailableError(message) from error
    except TransportError as error:
        log.info("the leader does not answer", leader=leader, error=str(error))
        return f"the leader {leader} does not answer: {error}"
