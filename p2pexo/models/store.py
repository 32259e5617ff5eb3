"""The models on this machine's disk, and those it knows how to get.

Every model lies in a folder of its own below the cache folder. Its card is written into the folder last, so a folder
with a card is complete, and one without is what an interrupted fetch has left behind.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from p2pexo.generation.codec import DecodeError, decode, encode
from p2pexo.models.card import Card
from p2pexo.models.catalogue import EMBEDDED, Catalogue
from p2pexo.models.describe import describe
from p2pexo.models.directory import ModelDirectory, ModelFilesError
from p2pexo.models.gguf import GgufError, embedded_gguf
from p2pexo.models.hub import Hub
from p2pexo.models.names import LOCAL_OWNER, check_id, folder_name

log = structlog.get_logger(__name__)

Progress = Callable[[float], None]
"""Told the share that is done, 0 to 1."""

_CARD = "p2pexo-card.json"


class Store:
    """Safe for use by several threads; of several fetches of a model, one works and the others wait for it."""

    def __init__(self, cache_dir: Path, directories: Sequence[Path] = (), hub: Hub | None = None) -> None:
        """``directories``: model directories of the user, offered as ``local/<folder name>``; nothing is copied.

        Raises ModelFilesError if one of them is no complete model directory.
        """
        self._models = cache_dir / "models"
        self._hub = hub or Hub()
        self._fetching: dict[Path, threading.Lock] = {}
        self._local = {card.id: card for card in map(_local_card, directories)}
        if len(self._local) < len(directories):
            raise ModelFilesError(f"two model directories have the same name: {', '.join(map(str, directories))}")
        self._known = {card.id: card for card in self._complete()} | {EMBEDDED.id: EMBEDDED} | self._local

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue(tuple(self._known.values()))

    def cards(self) -> tuple[Card, ...]:
        return self.catalogue.cards

    def held(self) -> tuple[str, ...]:
        """Ids of the models whose files are all here."""
        return tuple(card.id for card in self.cards() if self.is_held(card))

    def is_held(self, card: Card) -> bool:
        return card.id in self._local or (self.directory(card) / _CARD).is_file()

    def directory(self, card: Card) -> Path:
        """Where the model's files are, or will be."""
        if card.id in self._local:
            return Path(self._local[card.id].source.removeprefix("directory:"))
        return self._models / folder_name(card)

    def look_up(self, id: str) -> Card:
        """Make a Hub model known that a person asked for by its full id. Blocks.

        Raises InvalidRequestError, ModelNotFoundError and UnavailableError.
        """
        if id not in self._known:
            self._known[id] = self._hub.look_up(id)
        return self._known[id]

    def fetch(self, card: Card, progress: Progress = lambda share: None) -> Path:
        """The model's directory, imported or downloaded first if need be. Blocks.

        ``progress`` may be called by other threads, too; what it raises ends the fetch. Raises ModelFilesError when what
        came is not complete, and what ``look_up`` raises.
        """
        directory = self.directory(card)
        with self._fetching.setdefault(directory, threading.Lock()):
            if not self.is_held(card):
                progress(0.0)
                self._get(card, directory, progress)
                self._known[card.id] = card
        progress(1.0)
        return directory

    def _get(self, card: Card, directory: Path, progress: Progress) -> None:
        self._models.mkdir(parents=True, exist_ok=True)
        log.info("fetching a model", model=card.id, source=card.source, directory=str(directory))
        if card.source == "embedded":
            _import_embedded(directory)
        elif card.source == "hub":
            self._hub.download(card, directory, progress)
        else:
            raise ModelFilesError(
                f"{card.id} is a directory of another machine ({card.source}); start this node with --model-dir PATH, too"
            )
        ModelDirectory(directory).check()
        _write_card(card, directory)

    def _complete(self) -> list[Card]:
        cards = (_read_card(file) for file in sorted(self._models.glob(f"*/{_CARD}")))
        return [card for card in cards if card is not None]


def _local_card(path: Path) -> Card:
    path = path.expanduser().resolve()
    id = f"{LOCAL_OWNER}/{re.sub(r'[^A-Za-z0-9._-]+|-{2,}', '-', path.name)}"
    check_id(id)
    files = ModelDirectory(path)
    return describe(files.config, files.tensors, id=id, revision="local", source=f"directory:{path}")


def _import_embedded(directory: Path) -> None:
    """In a process of its own, so that this one never loads MLX."""
    command = [sys.executable, "-m", "p2pexo.models.gguf", str(embedded_gguf()), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GgufError(f"the embedded model can't be imported: {done.stderr.strip()[-500:]}")


def _write_card(card: Card, directory: Path) -> None:
    draft = directory / f"{_CARD}.{os.getpid()}"
    draft.write_bytes(encode(card))
    draft.replace(directory / _CARD)


def _read_card(file: Path) -> Card | None:
    try:
        return decode(file.read_bytes(), Card)
    except (DecodeError, OSError) as error:
        log.warning("a model's card can't be read; the model is fetched again", file=str(file), reason=str(error))
        file.unlink(missing_ok=True)
        return None
