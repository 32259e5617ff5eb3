"""Which cluster a node belongs to: the one it is told, else the one kept in its home, else a new one of its own."""

import secrets
from collections.abc import Callable
from pathlib import Path

import structlog
from attrs import evolve

from networking.charter import Charter, load_charter, save_charter
from networking.ticket import Cluster, Ticket, TicketError
from p2pexo.node.settings import NodeSettings
from p2pexo.node.values import SettingsError

log = structlog.get_logger(__name__)


class Belonging:
    """The charter that holds at the moment. Every change of it is kept in the home and told to those who follow."""

    def __init__(self, home: Path, charter: Charter, kept: Charter | None = None) -> None:
        """``kept``: whose cluster stays in the home while this run is of another one, as with ``--open``."""
        self._home = home
        self._charter = charter
        self._kept = kept
        self._followers: list[Callable[[Charter, Charter], None]] = []

    @property
    def charter(self) -> Charter:
        return self._charter

    @property
    def cluster(self) -> Cluster:
        return self._charter.cluster

    def follow(self, changed: Callable[[Charter, Charter], None]) -> None:
        """``changed(before, after)`` is called after each change, and must return at once."""
        self._followers.append(changed)

    def change(self, charter: Charter) -> None:
        before, self._charter = self._charter, charter
        if charter == before:
            return
        self.save()
        for changed in self._followers:
            changed(before, charter)

    def save(self) -> None:
        """A home that can't be written to is logged: this run goes on, the next start would not know."""
        try:
            save_charter(self._home, self._charter if self._kept is None else self._merged(self._kept))
        except OSError as error:
            log.error("who belongs to the cluster can't be kept in the home", home=str(self._home), error=str(error))

    def _merged(self, kept: Charter) -> Charter:
        known, removed, named = self._charter.known, self._charter.removed, self._charter.named
        return evolve(kept, fresh=kept.fresh and not known, known=known, removed=removed, named=named)


def choose_belonging(settings: NodeSettings, ticket: Ticket | None) -> Belonging:
    """The cluster that the settings mean. It is kept in the home, so that the next start needs no flags.

    All but ``--open``: that holds for one run, and what is kept stays as it is, secret and all. Raises TicketError when the
    name can't be one, or the kept file is damaged.
    """
    kept = load_charter(settings.home)
    charter = _of_ticket(ticket, kept) if ticket else _told(settings, kept)
    if not settings.open:
        belonging = Belonging(settings.home, charter)
    else:
        running = evolve(charter, cluster=Cluster(settings.cluster or charter.cluster.name), fresh=False)
        belonging = Belonging(settings.home, running, kept or charter)
    if charter != kept and not (settings.open and kept):
        belonging.save()
    return belonging


def _of_ticket(ticket: Ticket, kept: Charter | None) -> Charter:
    charter = _known_anew(ticket.cluster, kept)
    return charter.met([ticket.peer])


def _told(settings: NodeSettings, kept: Charter | None) -> Charter:
    name = settings.cluster or (kept.cluster.name if kept else _new_name(settings))
    if settings.secret:
        return _known_anew(Cluster.from_passphrase(name, settings.secret), kept)
    if kept is not None and kept.cluster.name == name:
        return kept
    return Charter(Cluster.new(name), fresh=True)


def _known_anew(cluster: Cluster, kept: Charter | None) -> Charter:
    """The charter of a cluster that was named with its secret; the one kept, if it is the same or what became of it."""
    if kept is None or kept.cluster.name != cluster.name:
        return Charter(cluster)
    if cluster.fingerprint in kept.former:
        log.warning("the secret that was given has been changed since; the newer one in the home counts")
        return kept
    return evolve(kept, fresh=False) if kept.cluster == cluster else Charter(cluster)


def _new_name(settings: NodeSettings) -> str:
    host = "".join(each if each.isalnum() else "-" for each in settings.display_name).strip("-")[:40] or "node"
    return f"{host}-{secrets.token_hex(2)}"


def read_ticket(settings: NodeSettings) -> Ticket | None:
    """Raises SettingsError if what follows ``--join`` is none."""
    try:
        return Ticket.parse(settings.join) if settings.join else None
    except TicketError as error:
        raise SettingsError(f"--join: {error}") from error
