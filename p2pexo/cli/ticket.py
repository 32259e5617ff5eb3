"""``p2pexo ticket``: one line that lets another machine join this cluster."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from networking.charter import load_charter
from networking.ticket import Cluster, Ticket, TicketError
from networking.transport import Address, PeerId
from p2pexo.cli.client import Target, connect
from p2pexo.cli.errors import CommandError
from p2pexo.client import ClusterState
from p2pexo.node.settings import DEFAULT_HOME

_DEFAULT_TARGET = Target()


def ticket(
    *,
    home: Annotated[Path, Parameter(env_var="P2PEXO_HOME", show_default="~/.p2pexo")] = DEFAULT_HOME,
    target: Target = _DEFAULT_TARGET,
) -> None:
    """Print a ticket with which another machine can join: `p2pexo node --join TICKET`. It holds the secret, so give it to nobody else.

    Parameters
    ----------
    home
        The home of the node that runs here; the secret is read from it.
    """
    try:
        charter = load_charter(home.expanduser())
    except (TicketError, OSError) as error:
        raise CommandError(str(error)) from error
    if charter is None:
        raise CommandError(f"{home} belongs to no cluster yet; start `p2pexo node` once, or name its --home")
    with connect(target) as client:
        print(make_ticket(charter.cluster, client.cluster()))


def make_ticket(cluster: Cluster, snapshot: ClusterState) -> Ticket:
    """A ticket to the node that answered, by the addresses that other machines can dial. Raises CommandError.

    ``cluster`` is that of the home; a node that was started with ``--open`` needs none of its secrets.
    """
    if snapshot.open:
        cluster = Cluster(snapshot.cluster)
    if snapshot.cluster != cluster.name:
        raise CommandError(
            f"the home is of cluster {cluster.name!r}, but the node that answers is in {snapshot.cluster!r}"
        )
    me = next(member for member in snapshot.members if member.is_me)
    reachable = tuple(Address(each) for each in me.addresses if not each.startswith(("/ip4/127.", "/ip6/::1/")))
    if not reachable:
        raise CommandError(
            f"{me.name} listens on loopback only, so no other machine can join it; start it without --loopback. Another "
            "node on this machine joins it with the same --cluster and --secret"
        )
    return Ticket(cluster, PeerId(me.peer), reachable)
