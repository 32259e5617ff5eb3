"""What HTTP and the command line ask of the cluster: which models there are, place, delete, and how everything stands."""

from collections.abc import AsyncIterator, Callable

from attrs import evolve

from networking.overlay import Overlay
from p2pexo.cluster.commands import DeleteCommand, PlaceCommand, send_command
from p2pexo.cluster.describe import describe
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.cluster.seams import Store
from p2pexo.cluster.snapshot import ClusterSnapshot
from p2pexo.generation.errors import ModelNotFoundError
from p2pexo.models.card import Card


class Control:
    def __init__(
        self,
        overlay: Overlay,
        store: Store,
        *,
        cluster_name: str,
        open_cluster: bool,
        notices: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        """``notices``: lines about this node that its snapshots carry among their warnings."""
        self._overlay = overlay
        self._store = store
        self._cluster_name = cluster_name
        self._open_cluster = open_cluster
        self._notices = notices

    def observe(self) -> Cluster:
        return observe(self._overlay.view)

    def cards(self) -> tuple[Card, ...]:
        """Every model that this node or another one knows, by id."""
        elsewhere = {card.id: card for fact in self.observe().models.values() for card in fact.cards}
        known = elsewhere | {card.id: card for card in self._store.cards()}
        return tuple(known[id] for id in sorted(known))

    def resolve_model(self, name: str) -> Card:
        """By id, or by the id's last part where only one model has it, in any letter case. Raises ModelNotFoundError."""
        return resolve_model(name, self.cards())

    async def place(self, command: PlaceCommand) -> str:
        """The id of the placement that runs the model, new or not. Raises GenerationError with the leader's reason."""
        card = self.resolve_model(command.model)
        return await send_command(self._overlay, evolve(command, model=card.id, card=card))

    async def delete(self, placement_id: str) -> None:
        """Raises ModelNotFoundError if there is no such placement."""
        await send_command(self._overlay, DeleteCommand(placement_id))

    def snapshot(self) -> ClusterSnapshot:
        snapshot = describe(self._overlay.view, cluster_name=self._cluster_name, open_cluster=self._open_cluster)
        return evolve(snapshot, warnings=(*snapshot.warnings, *self._notices()))

    async def snapshots(self) -> AsyncIterator[ClusterSnapshot]:
        """The present one, then one after each change that shows in it."""
        shown = None
        async for _ in self._overlay.views():
            snapshot = self.snapshot()
            if snapshot != shown:
                shown = snapshot
                yield snapshot


def resolve_model(name: str, cards: tuple[Card, ...]) -> Card:
    wanted = name.lower()
    by_id = [card for card in cards if card.id.lower() == wanted]
    by_last_part = [card for card in cards if card.id.lower().rpartition("/")[2] == wanted]
    found = [card for card in by_id if card.id == name] or by_id or by_last_part
    if len(found) == 1:
        return found[0]
    listed = ", ".join(card.id for card in found or cards) or "none"
    trouble = (
        f"{name!r} may be any of several models; write the full id" if found else f"there is no model {name!r} here"
    )
    raise ModelNotFoundError(f"{trouble}: {listed}", param="model")
