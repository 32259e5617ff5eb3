"""The duty of measuring: how fast this node computes, and how fast it reaches the others. Told as one fact.

Nothing is measured that would disturb an answer, or be disturbed by one: computing only while this node runs no stage, and
what goes through a link only while none of its two ends belongs to a ring that serves.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio
from attrs import evolve, frozen

from networking.addresses import parse
from networking.overlay import Overlay
from networking.transport import PeerId, Stream, TransportError
from networking.view import Member, View
from p2pexo.cluster.facts import SPEEDS_KEY, LinkSpeed, SpeedsFact
from p2pexo.cluster.observed import Cluster, observe, read
from p2pexo.cluster.probing import PROBE_PROTOCOL, answer_probes, measure_round_trip, measure_throughput
from p2pexo.engine.speeds import ComputeSpeed, two_digits
from p2pexo.generation.codec import encode

SETTLED_S = 2.0
"""After the start, before computing is measured. Raise it and a model placed at once finds the machine idle; lower it and
the first placement already knows its speed."""

LOOK_EVERY_S = 2.0
"""How often to look for links that are new or have changed. Lower it and they are measured sooner."""

RETRY_S = 60.0
"""Before a link is measured again, because something was missing or the network has changed. Lower it and a peer that doesn't
answer, or that is reached now here and now there, costs more."""

PROBE_TIMEOUT_S = 10.0
"""A link that needs longer isn't measured: no ring would want it. Raise it for links below a megabit per second."""

MeasureCompute = Callable[[], Awaitable[ComputeSpeed | None]]

log = structlog.get_logger(__name__)


@frozen
class _Gauged:
    """What was measured of a link, over which host, and when the next time may be, if something is missing or has changed."""

    host: str
    speed: LinkSpeed | None
    again_at: float = 0.0


class Gauge:
    def __init__(self, overlay: Overlay, measure_compute: MeasureCompute | None) -> None:
        """``measure_compute`` takes about a second and can be cancelled; None if this node's speed is of no interest.
        Make it before the overlay runs."""
        self._overlay = overlay
        self._measure_compute = measure_compute
        self._compute: ComputeSpeed | None = None
        self._links: dict[str, _Gauged] = {}
        self._told = SpeedsFact()
        overlay.serve_streams(PROBE_PROTOCOL, self._answer)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._measure_compute is not None:
                nursery.start_soon(self._gauge_compute, self._measure_compute)
            while True:
                await self._gauge_links()
                self._tell()
                await trio.sleep(LOOK_EVERY_S)

    async def _gauge_compute(self, measure: MeasureCompute) -> None:
        """Once, begun again if a stage came in between."""
        await trio.sleep(SETTLED_S)
        while True:
            await self._until(busy=False)
            finished = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_when_busy, nursery.cancel_scope)
                self._compute = await measure()
                finished = True
                nursery.cancel_scope.cancel()
            if finished:
                self._tell()
                return

    async def _cancel_when_busy(self, scope: trio.CancelScope) -> None:
        await self._until(busy=True)
        scope.cancel()

    async def _until(self, *, busy: bool) -> None:
        async for view in self._overlay.views():
            if has_stages(observe(view)) == busy:
                return

    async def _gauge_links(self) -> None:
        cluster = observe(self._overlay.view)
        self._links = {peer: each for peer, each in self._links.items() if peer in cluster.members}
        for peer, member in cluster.members.items():
            if self._is_due(cluster, member):
                await self._gauge_link(peer, _host(member))

    def _is_due(self, cluster: Cluster, member: Member) -> bool:
        peer = str(member.peer)
        gauged = self._links.get(peer)
        if peer == cluster.me or not _host(member):
            return False
        if gauged is None or trio.current_time() < gauged.again_at:
            return gauged is None
        return gauged.speed is None or gauged.host != _host(member) or self._lacks_throughput(cluster, gauged.speed)

    def _lacks_throughput(self, cluster: Cluster, speed: LinkSpeed) -> bool:
        return speed.bytes_per_s is None and may_measure_throughput(cluster, speed.peer)

    async def _gauge_link(self, peer: str, host: str) -> None:
        speed = None
        try:
            with trio.fail_after(PROBE_TIMEOUT_S):
                speed = await self._probe(peer)
        except (TransportError, trio.TooSlowError) as error:
            log.debug("a link could not be measured", peer=peer, reason=str(error) or "it took too long")
        self._links[peer] = _Gauged(host, speed, trio.current_time() + RETRY_S)

    async def _probe(self, peer: str) -> LinkSpeed:
        stream = await self._overlay.open(PeerId(peer), PROBE_PROTOCOL)
        try:
            round_trip_s = await measure_round_trip(stream)
            throughput = None
            if may_measure_throughput(observe(self._overlay.view), peer):
                throughput = await measure_throughput(stream, round_trip_s)
            return LinkSpeed(peer, two_digits(round_trip_s), None if throughput is None else two_digits(throughput))
        finally:
            stream.abort()

    async def _answer(self, stream: Stream) -> None:
        peer = str(stream.peer)
        await answer_probes(stream, lambda: not serves(observe(self._overlay.view), peer))

    def _tell(self) -> None:
        links = [each.speed for _, each in sorted(self._links.items()) if each.speed is not None]
        fact = SpeedsFact(links=tuple(with_throughput(self._overlay.view, link) for link in links))
        if self._compute is not None:
            decode, prefill = self._compute.decode_bytes_per_s, self._compute.prefill_flops_per_s
            fact = evolve(fact, decode_bytes_per_s=two_digits(decode), prefill_flops_per_s=two_digits(prefill))
        if fact != self._told:
            self._told = fact
            self._overlay.set_fact(SPEEDS_KEY, encode(fact), volatile=True)


def has_stages(cluster: Cluster) -> bool:
    """Whether this node runs a stage, or is to run one."""
    planned = (stage.peer for placement in cluster.placements.placements for stage in placement.stages)
    return cluster.me in planned or any(peer == cluster.me for peer, _, _ in cluster.stages)


def serves(cluster: Cluster, peer: str) -> bool:
    """Whether this node or the peer belongs to a ring that is ready."""
    ends = {cluster.me, peer}
    return any(
        cluster.is_ready(placement) and any(stage.peer in ends for stage in placement.stages)
        for placement in cluster.placements.placements
    )


def may_measure_throughput(cluster: Cluster, peer: str) -> bool:
    """One of a pair does, and what it found holds for both."""
    return cluster.me < peer and not serves(cluster, peer)


def with_throughput(view: View, link: LinkSpeed) -> LinkSpeed:
    """What the other end has measured, if this one didn't."""
    if link.bytes_per_s is not None:
        return link
    told = view.facts.get(PeerId(link.peer), {}).get(SPEEDS_KEY)
    fact = read(told, SpeedsFact) if told is not None else None
    same = (each.bytes_per_s for each in fact.links if each.peer == str(view.me)) if fact else ()
    return evolve(link, bytes_per_s=next(iter(same), None))


def _host(member: Member) -> str:
    """The host over which the peer is reached; empty if it isn't."""
    return parse(member.address).host if member.address else ""
