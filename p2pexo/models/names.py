"""Model ids are names, never paths: what is made into a folder's name has passed ``check_id``."""

import re

from p2pexo.generation.errors import InvalidRequestError
from p2pexo.models.card import Card

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?"
_ID = re.compile(f"{_PART}/{_PART}")

LOCAL_OWNER = "local"
"""Owner in the ids of models that were registered by their directory."""


def check_id(id: str) -> None:
    """Raises InvalidRequestError unless ``id`` reads ``owner/name`` in letters, digits, ``.``, ``_`` and ``-``."""
    if not _ID.fullmatch(id) or ".." in id or "--" in id:
        raise InvalidRequestError(f"{id!r} is no model id; ids read owner/name, such as a/b-1.5", param="model")


def folder_name(card: Card) -> str:
    """One folder for each model and revision, directly inside the models folder."""
    check_id(card.id)
    check_id(f"revision/{card.revision}")
    return f"{card.id.replace('/', '--')}--{card.revision}"
