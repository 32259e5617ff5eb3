"""Why the others let this very node in no longer: told at the next start, too, so what a member said is kept in the home."""

from pathlib import Path

import structlog
from attrs import frozen

from networking.identity import read_privately, write_privately
from networking.transport import PeerId
from p2pexo.generation.codec import decode, encode
from p2pexo.node.belonging import Belonging

NOTE_FILE = "shut-out.json"

REMOVED = (
    "this machine was removed from the cluster; to come back it needs another key: move its home away and start anew"
)

log = structlog.get_logger(__name__)


@frozen
class Note:
    fingerprint: str
    """That of our cluster when it was said: in another one, or with a newer secret, it means nothing."""
    reason: str


class ShutOut:
    def __init__(self, home: Path, me: PeerId, belonging: Belonging) -> None:
        self._path = home / NOTE_FILE
        self._me = me
        self._belonging = belonging
        self._note = self._load()

    @property
    def is_for_good(self) -> bool:
        """Whether asking is of no use any more."""
        return self._me in self._belonging.charter.removed

    @property
    def reason(self) -> str:
        """Empty while the others let it in, as far as is known."""
        if self.is_for_good:
            return REMOVED
        fingerprint = self._belonging.cluster.fingerprint
        return self._note.reason if self._note is not None and self._note.fingerprint == fingerprint else ""

    def note(self, reason: str) -> None:
        """A member said so, and proved who it is. A home that can't be written to is logged: the next start asks again anyway."""
        cluster = self._belonging.cluster
        log.error("this node is no longer let into its cluster, and asks no more", cluster=cluster.name, reason=reason)
        self._note = Note(cluster.fingerprint, reason)
        try:
            write_privately(self._path, encode(self._note))
        except OSError as error:
            log.error("that can't be kept in the home", path=str(self._path), error=str(error))

    def _load(self) -> Note | None:
        try:
            return decode(read_privately(self._path), Note)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("a note in the home is of no use; a member will say it again", error=str(error))
            return None
