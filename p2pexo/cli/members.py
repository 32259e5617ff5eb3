"""``p2pexo members`` and ``p2pexo remove``: who is in the cluster, and who shall be no more."""

from typing import Annotated

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.text import Text

from p2pexo.cli.client import Target, connect
from p2pexo.cli.errors import CommandError
from p2pexo.cli.people import confirmed, find
from p2pexo.cli.tables import add_row, new_table, newcomer_lines, open_console, state_text
from p2pexo.client import Away, ClusterState, Member

_DEFAULT_TARGET = Target()


def members(*, target: Target = _DEFAULT_TARGET) -> None:
    """List who is in the cluster, who has been, and who waits to be let in."""
    with connect(target) as client:
        open_console().print(members_by_id(client.cluster()))


def remove(
    name: str,
    /,
    *,
    yes: Annotated[bool, Parameter(negative="")] = False,
    target: Target = _DEFAULT_TARGET,
) -> None:
    """Keep a machine out of the cluster for ever, and change the secret for all others. Tickets printed before are void.

    Parameters
    ----------
    name
        The node's name, or its peer id or the last eight characters of that. It need not be here now.
    yes
        Don't ask again.
    """
    with connect(target) as client:
        snapshot = client.cluster()
        member = find(name, everyone(snapshot), nobody=f"no member is called {name}")
        question = f"Keep {member.name} out of {snapshot.cluster} for ever?"
        if not yes and not confirmed(question, otherwise=f"p2pexo remove {name} --yes"):
            raise CommandError(f"{member.name} was not removed")
        behind = client.remove(member.peer)
    console = open_console()
    console.print(f"{member.name} is removed", highlight=False, markup=False)
    for peer in behind:
        late = next((each.name for each in snapshot.members if each.peer == peer), peer)
        console.print(f"{late} has not heard of it yet; it will when it answers again", highlight=False, markup=False)


def everyone(snapshot: ClusterState) -> tuple[Member, ...]:
    """All members, those that are not here included; of them only what they called themselves is known."""
    named = {each.peer: each for each in snapshot.away_members}
    known = (named.get(peer) or Away(peer) for peer in snapshot.away)
    away = (Member(each.peer, name=each.name or each.peer[-8:], machine=each.machine, state="away") for each in known)
    return *snapshot.members, *away


def members_by_id(snapshot: ClusterState) -> RenderableType:
    table = new_table("Node", "State", "Role", "Machine", "Version", "Address", "Peer id")
    for member in everyone(snapshot):
        add_row(
            table,
            Text(member.name, "bold" if member.is_me else ""),
            state_text(member.state),
            "leader" if member.is_leader else "member",
            member.machine,
            member.version,
            listens_at(member),
            member.peer,
        )
    return Group(table, *newcomer_lines(snapshot))


def listens_at(member: Member) -> str:
    """Of the addresses that it announces the one whose host the connection leads to, else the first.

    The connection's own port leads nowhere where the member has dialled.
    """
    host, _, _ = member.address.partition("/tcp/")
    used = (each for each in member.addresses if host and each.startswith(f"{host}/tcp/"))
    return next(used, next(iter(member.addresses), host))
