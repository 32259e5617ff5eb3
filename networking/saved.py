"""Keeps in a file what a peer must not forget over restarts."""

import json
import logging
from pathlib import Path

import attrs

from networking.actions import SavedState
from networking.identity import write_privately

logger = logging.getLogger(__name__)


class FileState:
    """The ``overlay.PeerState`` of a home folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> SavedState:
        """An unreadable file counts as none: the peers remember our incarnation, and correct it."""
        try:
            return SavedState(**{key: int(value) for key, value in json.loads(self._path.read_text()).items()})
        except FileNotFoundError:
            return SavedState()
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("%s can't be read (%s); starting anew, with what the peers remember", self._path, error)
            return SavedState()

    def save(self, state: SavedState) -> None:
        write_privately(self._path, json.dumps(attrs.asdict(state)).encode())
