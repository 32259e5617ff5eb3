"""A split that a person wrote down: ``NAME=0-9,OTHER=10-29``, read and checked. Pure."""

from collections.abc import Sequence
from itertools import pairwise

from attrs import frozen

from p2pexo.cluster.demand import demand
from p2pexo.cluster.machines import Candidate, by_format
from p2pexo.cluster.placement import of_whole, size
from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError
from p2pexo.models.card import Card
from p2pexo.ring.plan import StagePlan

_FORM = "write it as NAME=FIRST-LAST,… with the layers that each machine runs, both counted in, such as mac-a=0-9,mac-b=10-29"


@frozen
class Part:
    """Some layers on one machine."""

    node: str
    """Its name or its peer id."""
    first_layer: int
    end_layer: int
    """Exclusive."""

    def __str__(self) -> str:
        return f"{self.node}={self.first_layer}-{self.end_layer - 1}"


def parse_split(text: str) -> tuple[Part, ...]:
    """In the order of the layers. Raises InvalidRequestError."""
    return tuple(sorted(map(_parse_part, text.split(",")), key=lambda part: part.first_layer))


def plan_split(
    card: Card, candidates: Sequence[Candidate], parts: Sequence[Part], precision: str = "auto"
) -> tuple[StagePlan, ...]:
    """The stages as written. Raises InvalidRequestError if they don't make a ring of the model, InsufficientMemoryError if they don't fit."""
    _check_layers(card, parts)
    machines = [_find(candidates, part) for part in parts]
    _check_machines(machines, precision)
    needs = [demand(card, each, precision) for each in machines]
    for part, machine, need in zip(parts, machines, needs, strict=True):
        needed = need.of_stage(part.first_layer, part.end_layer)
        if needed > machine.free:
            raise InsufficientMemoryError(
                f"{part} does not fit: it needs {size(needed)}, with room for {need.tokens} tokens of conversation, "
                f"and {size(machine.free)} of {size(machine.budget)} are free there; give it fewer layers",
                retry_after_s=60,
            )
    spans = list(zip(parts, machines, needs, strict=True))
    tokens = min(need.tokens_in(each.free, part.first_layer, part.end_layer) for part, each, need in spans)
    return tuple(
        StagePlan(
            each.peer,
            part.first_layer,
            part.end_layer,
            need.of_stage(part.first_layer, part.end_layer, tokens),
            tokens,
        )
        for part, each, need in spans
    )


def _parse_part(text: str) -> Part:
    node, _, layers = text.strip().rpartition("=")
    first, dash, last = layers.partition("-")
    numbers = (first.strip(), last.strip() if dash else first.strip())
    if not node.strip() or not all(each.isascii() and each.isdigit() for each in numbers):
        raise _wrong(f"{text.strip()!r} is not a part of a split; {_FORM}")
    start, end = int(numbers[0]), int(numbers[1]) + 1
    if end <= start:
        raise _wrong(f"{text.strip()!r} ends before it begins; {_FORM}")
    return Part(node.strip(), start, end)


def _check_layers(card: Card, parts: Sequence[Part]) -> None:
    if card.whole and len(parts) > 1:
        raise _wrong(f"{card.id} is {of_whole(card)}; give all of it, layer 0, to one: {parts[0].node}=0")
    if parts[0].first_layer > 0:
        raise _wrong(f"{_span(0, parts[0].first_layer)} of {card.id} no machine has; the first part is {parts[0]}")
    for before, part in pairwise(parts):
        if part.first_layer > before.end_layer:
            missing = _span(before.end_layer, part.first_layer)
            raise _wrong(f"{missing} of {card.id} no machine has: between {before} and {part}")
        if part.first_layer < before.end_layer:
            shared = _span(part.first_layer, min(part.end_layer, before.end_layer))
            raise _wrong(f"{shared} more than one machine has: both {before} and {part}")
    end = parts[-1].end_layer
    if end != card.layers:
        told = f"{card.id} has {card.layers} layers, 0-{card.layers - 1}"
        raise _wrong(f"{told}, but the split ends with {parts[-1]}")


def _find(candidates: Sequence[Candidate], part: Part) -> Candidate:
    found = [each for each in candidates if part.node in (each.peer, each.name)]
    if len(found) == 1:
        return found[0]
    if found:
        peers = ", ".join(each.peer for each in found)
        raise _wrong(f"{len(found)} machines are called {part.node!r}; name it by one of their peer ids: {peers}")
    names = ", ".join(each.name for each in candidates) or "none"
    raise _wrong(f"no machine that can run this model is called {part.node!r}; there are: {names}")


def _check_machines(machines: Sequence[Candidate], precision: str) -> None:
    for each in machines:
        if machines.count(each) > 1:
            raise _wrong(f"{each.name} is named more than once; give it all its layers in one part")
    formats = by_format(machines, precision)
    if len(formats) > 1:
        told = ", ".join(f"{', '.join(each.name for each in group)} in {name}" for name, group in formats.items())
        raise _wrong(f"machines that compute in different number formats can't share a ring: {told}")


def _span(start: int, end: int) -> str:
    return f"layer {start}" if end - start == 1 else f"layers {start}-{end - 1}"


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(f"split: {message}", param="split")
