"""The models that are known here, and what their names may be."""

from collections.abc import Sequence

from attrs import field, frozen

from p2pexo.generation.errors import ModelNotFoundError
from p2pexo.models.card import Card

EMBEDDED = Card(
    id="HuggingFaceTB/SmolLM2-135M-Instruct",
    revision="q4_1",
    architecture="llama",
    layers=30,
    hidden_size=576,
    context_length=8192,
    layer_bytes=2_214_144,
    embedding_bytes=31_850_496,
    head_bytes=31_851_648,
    kv_bytes_per_token=1536,
    dense_factor=6.395,
    tied=True,
    description="Small and quick; comes with p2pexo and needs no download.",
    source="embedded",
)
"""Written down, so that it can be placed before its files have been imported."""


@frozen
class Catalogue:
    cards: tuple[Card, ...] = field(converter=tuple)

    def resolve(self, name: str) -> Card:
        """The card of a name in a request: the full id, or its last part when only one model has it, in any letter case.

        Raises ModelNotFoundError, which lists the known ids.
        """
        wanted = name.casefold()
        full = [card for card in self.cards if card.id.casefold() == wanted]
        short = [card for card in self.cards if card.id.casefold().rpartition("/")[2] == wanted]
        found = full or short
        if len(found) == 1:
            return found[0]
        raise ModelNotFoundError(_not_found(name, self.cards, found), param="model")


def _not_found(name: str, known: Sequence[Card], candidates: Sequence[Card]) -> str:
    ids = ", ".join(sorted(card.id for card in candidates or known)) or "none"
    if candidates:
        return f"the model name {name!r} could mean any of: {ids}; give the full id"
    return f"there is no model {name!r} here; known models are: {ids}"
