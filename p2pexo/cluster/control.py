"""What HTTP and the command line ask of the cluster: which models there are, place, delete, and how everything stands."""

from collections.abc import AsyncIterator, Callable, Mapping

import trio
from attrs import evolve

from networking.charter import Named
from networking.overlay import Overlay
from networking.transport import PeerId
from p2pexo.cluster.commands import DeleteCommand, PlaceCommand, send_command
from p2pexo.cluster.describe import describe
from p2pexo.cluster.leaving import send_away
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.cluster.placing import free_of, rings_of
from p2pexo.cluster.preview import PlacementPreview, preview
from p2pexo.cluster.reforming import candidates
from p2pexo.cluster.seams import Store
from p2pexo.cluster.snapshot import AwayView, ClusterSnapshot
from p2pexo.cluster.unloading import unload
from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError
from p2pexo.models.card import Card
from p2pexo.models.catalogue import Catalogue
from p2pexo.models.support import check_architecture


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
        self._known: tuple[PeerId, ...] = ()
        self._named: Mapping[PeerId, Named] = {}

    def belong(
        self,
        cluster_name: str,
        *,
        open_cluster: bool,
        known: tuple[PeerId, ...] = (),
        named: tuple[Named, ...] = (),
    ) -> None:
        """The node is of this cluster now; ``known``: peers that have been in it, ``named``: what they are called."""
        self._cluster_name, self._open_cluster, self._known = cluster_name, open_cluster, known
        self._named = {each.peer: each for each in named}

    def observe(self) -> Cluster:
        return observe(self._overlay.view)

    def cards(self) -> tuple[Card, ...]:
        """Every model that this node or another one knows, by id."""
        elsewhere = {card.id: card for fact in self.observe().models.values() for card in fact.cards}
        known = elsewhere | {card.id: card for card in self._store.cards()}
        return tuple(known[id] for id in sorted(known))

    def resolve_model(self, name: str) -> Card:
        """By id, or by the id's last part where only one model has it, in any letter case. Raises ModelNotFoundError."""
        return Catalogue(self.cards()).resolve(name)

    async def place(self, command: PlaceCommand) -> str:
        """The id of the placement that runs the model, new or not. Raises GenerationError with the leader's reason."""
        card = await self._card(command)
        return await send_command(self._overlay, evolve(command, model=card.id, card=card))

    async def preview(self, command: PlaceCommand) -> PlacementPreview:
        """What placing would do, and what else could be done; nothing is changed. Raises GenerationError."""
        card = await self._card(command)
        check_architecture(card.id, card.architecture)
        return await trio.to_thread.run_sync(_preview, self.observe(), card, command)

    async def _card(self, command: PlaceCommand) -> Card:
        """Only what a person asks for is looked up outside the cluster; a request that names any model is no such wish."""
        try:
            return self.resolve_model(command.model)
        except ModelNotFoundError:
            if not command.by_user or "/" not in command.model:
                raise
        return await trio.to_thread.run_sync(self._store.look_up, command.model, abandon_on_cancel=True)

    async def delete(self, placement_id: str) -> None:
        """Raises ModelNotFoundError if there is no such placement."""
        await send_command(self._overlay, DeleteCommand(placement_id))

    async def unload(self, model: str) -> None:
        """End what requests placed of a model, once nobody uses it; nobody's answer ends. Raises UnavailableError."""
        await unload(self._overlay, model)

    async def leave(self, node: str) -> str:
        """Have a member hand its stages over and go; the peer id of it. ``node``: its name or peer id, empty for this one.

        Raises InvalidRequestError if nobody, or more than one, is called that; UnavailableError if it does not answer.
        """
        cluster = self.observe()
        named = [peer for peer in cluster.members if node in (peer, cluster.name_of(peer))] if node else [cluster.me]
        if len(named) != 1:
            names = ", ".join(f"{cluster.name_of(peer)} ({peer})" for peer in cluster.members)
            raise InvalidRequestError(f"{len(named)} members are called {node!r}; name one of {names}", param="node")
        await send_away(self._overlay, PeerId(named[0]))
        return named[0]

    def snapshot(self) -> ClusterSnapshot:
        snapshot = describe(self._overlay.view, cluster_name=self._cluster_name, open_cluster=self._open_cluster)
        here = {member.peer for member in snapshot.members}
        away = tuple(peer for peer in self._known if peer not in here)
        return evolve(
            snapshot,
            warnings=tuple(dict.fromkeys((*snapshot.warnings, *self._notices()))),
            away=away,
            away_members=tuple(self._away(peer) for peer in away),
        )

    def _away(self, peer: PeerId) -> AwayView:
        named = self._named.get(peer)
        return AwayView(peer, named.name, named.machine) if named else AwayView(peer, name=peer[-8:])

    async def snapshots(self) -> AsyncIterator[ClusterSnapshot]:
        """The present one, then one after each change that shows in it."""
        shown = None
        async for _ in self._overlay.views():
            snapshot = self.snapshot()
            if snapshot != shown:
                shown = snapshot
                yield snapshot


def _preview(cluster: Cluster, card: Card, command: PlaceCommand) -> PlacementPreview:
    """As if the model were not placed yet; where it lacks replicas, of the next one."""
    rings = rings_of(cluster, card)
    running = rings[0] if len(rings) >= command.replicas else None
    machines = candidates(cluster, card, besides=running)
    return preview(
        card,
        machines if running else free_of(machines, rings),
        min_stages=command.min_stages,
        precision=command.precision,
        split=command.split,
        running=running.id if running else "",
    )
