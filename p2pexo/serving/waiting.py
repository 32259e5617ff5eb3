"""Finds the ring for a request: at once if one is ready, else by placing the model and waiting, with word of how far it is."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

import trio

from networking.overlay import Overlay, View
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.generation.errors import PlacementDeletedError, UnavailableError
from p2pexo.ring.plan import Placement
from p2pexo.serving.line import Line
from p2pexo.serving.route import Absent, Pending, Ready, Route, Stuck, find_route
from p2pexo.serving.settings import RouterSettings

Place = Callable[[PlaceCommand], Awaitable[str]]
Tell = Callable[[str], Awaitable[None]]
"""A line for the client that waits."""
Choose = Callable[[Cluster, tuple[Placement, ...]], Placement]
"""Of several rings that are ready."""


class RingFinder:
    """For one request. Remembers which placement it has followed, so that it can say what became of it."""

    def __init__(
        self,
        model: str,
        overlay: Overlay,
        place: Place,
        choose: Choose,
        line: Line,
        tell: Tell,
        settings: RouterSettings,
    ) -> None:
        self._model = model
        self._overlay = overlay
        self._place = place
        self._choose = choose
        self._line = line
        self._tell = tell
        self._settings = settings
        self._followed: str | None = None
        self._stuck_since: float | None = None

    async def find(self, gives_up_at: float | None = None) -> Placement:
        """A placement whose ring is ready.

        ``gives_up_at``: on trio's clock, of a request that was taken on before and has lost its ring; such a one is not
        turned away by those who wait. Raises UnavailableError, PlacementDeletedError, or what kept it from being placed.
        """
        if self._line.is_empty and (placement := self._find_ready()):
            return placement
        async with self._line.place(even_if_full=gives_up_at is not None) as place:
            placement = await self._wait(gives_up_at)
            await place.turn.wait()
            # Those who waited are sent by now, and count.
            return self._find_ready() or placement

    def _find_ready(self) -> Placement | None:
        cluster = observe(self._overlay.view)
        route = find_route(cluster, self._model)
        return self._follow(self._choose(cluster, route.placements)) if isinstance(route, Ready) else None

    async def _wait(self, gives_up_at: float | None) -> Placement:
        began = trio.current_time()
        route: Route = Absent()
        with trio.CancelScope() as scope:
            async with aclosing(cast(AsyncGenerator[View], self._overlay.views())) as views:
                async for view in views:
                    cluster = observe(view)
                    route = find_route(cluster, self._model)
                    scope.deadline = self._deadline(route, began) if gives_up_at is None else gives_up_at
                    if isinstance(route, Ready):
                        return self._follow(self._choose(cluster, route.placements))
                    if isinstance(route, Stuck):
                        scope.deadline = min(scope.deadline, self._stuck_until(gives_up_at))
                    await self._go_on(route, cluster)
        if isinstance(route, Stuck):
            raise self._unavailable(f"{self._model} can't run at the moment: {route.reason}")
        waited = trio.current_time() - began
        raise self._unavailable(f"{self._model} was not ready within {waited:.0f} s: {_reason(route)}")

    async def _go_on(self, route: Route, cluster: Cluster) -> None:
        """Whatever brings the ring nearer, or the error if nothing can."""
        if not isinstance(route, Stuck):
            self._stuck_since = None
        match route:
            case Stuck():
                await self._tell(route.reason)
            case Pending():
                self._follow(route.placement)
                await self._tell(route.reason)
            case _ if self._followed is None or self._has_left(cluster):
                await self._autoload()
            case _:
                self._raise_if_ended(cluster)
                await self._tell("waiting for the leader")

    async def _autoload(self) -> None:
        if not self._settings.autoload:
            advice = f"place it first (p2pexo place {self._model}), or start the node with autoload"
            raise self._unavailable(f"{self._model} is known but not running, and is not loaded on request; {advice}")
        await self._tell(f"placing {self._model}")
        self._followed = await self._place(PlaceCommand(self._model, by_user=False))

    def _follow(self, placement: Placement) -> Placement:
        self._followed = placement.id
        return placement

    def _has_left(self, cluster: Cluster) -> bool:
        """Whether it went because nobody used it, in the moment that this request came."""
        deletion = cluster.placements.deletion_of(self._followed or "")
        return deletion is not None and deletion.idle

    def _raise_if_ended(self, cluster: Cluster) -> None:
        """Not being placed may only mean that nobody leads, or that our facts are old; a deletion is certain."""
        deletion = cluster.placements.deletion_of(self._followed or "")
        if deletion is None:
            return
        if deletion.failed is not None:
            raise self._unavailable(f"{self._model} could not be run: {deletion.reason}")
        raise PlacementDeletedError(f"{self._model} was stopped: {deletion.reason}")

    def _deadline(self, route: Route, began: float) -> float:
        formed_anew = isinstance(route, Pending) and route.is_formed_anew
        return began + (self._settings.reform_timeout_s if formed_anew else self._settings.load_timeout_s)

    def _stuck_until(self, gives_up_at: float | None) -> float:
        """A first attempt fails at once; for an answer that has begun, a machine that is missed may be starting again."""
        if self._stuck_since is None:
            self._stuck_since = trio.current_time()
        return self._stuck_since + (0.0 if gives_up_at is None else self._settings.stuck_grace_s)

    def _unavailable(self, message: str) -> UnavailableError:
        return UnavailableError(message, retry_after_s=self._settings.retry_after_s)


def _reason(route: Route) -> str:
    return route.reason if isinstance(route, Pending | Stuck) else "it is not placed"
