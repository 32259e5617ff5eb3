"""Which cluster a node belongs to: the one it is told, else the one kept in its home, else a new one of its own."""

import secrets

from networking.ticket import Cluster, Ticket, load_cluster, save_cluster
from p2pexo.node.settings import NodeSettings


def choose_cluster(settings: NodeSettings, ticket: Ticket | None) -> Cluster:
    """The cluster that the settings mean. It is kept in the home, so that the next start needs no flags.

    All but ``--open``: that holds for one run, and what is kept stays as it is, secret and all. Raises TicketError when the
    name can't be one, or the kept file is damaged.
    """
    kept = load_cluster(settings.home)
    cluster = ticket.cluster if ticket else _told(settings, kept)
    if cluster != kept and not (settings.open and kept):
        save_cluster(settings.home, cluster)
    return Cluster(settings.cluster or cluster.name) if settings.open else cluster


def _told(settings: NodeSettings, kept: Cluster | None) -> Cluster:
    name = settings.cluster or (kept.name if kept else _new_name(settings))
    if settings.secret:
        return Cluster.from_passphrase(name, settings.secret)
    if kept is not None and kept.name == name:
        return kept
    return Cluster.new(name)


def _new_name(settings: NodeSettings) -> str:
    host = "".join(each if each.isalnum() else "-" for each in settings.display_name).strip("-")[:40] or "node"
    return f"{host}-{secrets.token_hex(2)}"


def read_ticket(settings: NodeSettings) -> Ticket | None:
    """Raises TicketError if what follows ``--join`` is none."""
    return Ticket.parse(settings.join) if settings.join else None
