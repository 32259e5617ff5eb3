"""Tells the cluster what this node is, has and holds; what changes all the time is told only when it changed enough."""

from collections.abc import Callable

import trio
from attrs import evolve

from networking.overlay import Overlay
from p2pexo.cluster.facts import MODELS_KEY, NODE_KEY, ModelsFact, NodeFacts
from p2pexo.cluster.seams import Store
from p2pexo.generation.codec import encode

MEASURE_EVERY_S = 5.0
"""Raise it and free memory is shown later; lower it and the node measures more often."""

MEANINGFUL_SHARE = 0.05
"""Of the machine's memory: a smaller change of what is free isn't worth a message to everybody."""


class Reporter:
    def __init__(self, overlay: Overlay, measure: Callable[[], NodeFacts], store: Store) -> None:
        self._overlay = overlay
        self._measure = measure
        self._store = store
        self._node: NodeFacts | None = None
        self._models: ModelsFact | None = None

    async def run(self) -> None:
        """Until cancelled. What it tells first is told before the first checkpoint."""
        self.models_changed()
        while True:
            self.node_changed()
            await trio.sleep(MEASURE_EVERY_S)

    def node_changed(self) -> None:
        now = self._measure()
        if self._node is not None and not is_worth_telling(self._node, now):
            return
        volatile = self._node is not None and _without_free(now) == _without_free(self._node)
        self._node = now
        self._overlay.set_fact(NODE_KEY, encode(now), volatile=volatile)

    def models_changed(self) -> None:
        held = tuple(sorted(self._store.held()))
        fact = ModelsFact(held, tuple(card for card in self._store.cards() if card.id in held))
        if fact != self._models:
            self._models = fact
            self._overlay.set_fact(MODELS_KEY, encode(fact))


def is_worth_telling(told: NodeFacts, now: NodeFacts) -> bool:
    change = abs(told.memory_free - now.memory_free)
    return _without_free(told) != _without_free(now) or change >= MEANINGFUL_SHARE * now.memory_total


def _without_free(facts: NodeFacts) -> NodeFacts:
    return evolve(facts, memory_free=0)
