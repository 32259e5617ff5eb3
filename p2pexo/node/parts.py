"""The parts of a node and how they are joined; from the overlay at the bottom to HTTP at the top."""

import os
import socket
from functools import partial

import psutil
import structlog
import trio
from attrs import evolve

from networking.addresses import parse
from networking.discovery import Discovery, Sighting
from networking.identity import Identity, verify
from networking.libp2p_host import Libp2pTransport
from networking.overlay import Overlay, OverlaySettings
from networking.pairing import Party
from networking.saved import FileState
from networking.ticket import Ticket
from networking.transport import Address, PeerId
from p2pexo import __version__
from p2pexo.api.app import create_app
from p2pexo.api.guard import AccessRules
from p2pexo.api.server import serve
from p2pexo.cluster.chronicle import keep_chronicle
from p2pexo.cluster.control import Control
from p2pexo.cluster.facts import NodeFacts
from p2pexo.cluster.fetching import in_thread
from p2pexo.cluster.gauge import Gauge
from p2pexo.cluster.idle_rings import IdleRings
from p2pexo.cluster.keeper import Surroundings
from p2pexo.cluster.leader import Leader
from p2pexo.cluster.leaving import Departure
from p2pexo.cluster.placements import merge_payloads
from p2pexo.cluster.readiness import keep_spare
from p2pexo.cluster.reporter import Reporter
from p2pexo.cluster.resources import device, link_hosts, machine, measure
from p2pexo.cluster.worker import Worker
from p2pexo.engine.blas import Blas, prepare_blas
from p2pexo.engine.environment import private_directory, stage_environment
from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.models.store import Store
from p2pexo.node.announcing import keep_announced
from p2pexo.node.belonging import Belonging
from p2pexo.node.notices import Notices
from p2pexo.node.pairing import Pairing
from p2pexo.node.settings import NodeSettings
from p2pexo.node.shut_out import ShutOut
from p2pexo.ring.engines import MLX_ENGINE, SCRIPTED_ENGINE
from p2pexo.ring.measuring import measure_compute
from p2pexo.ring.spare import Spare
from p2pexo.ring.stage import StageSpec
from p2pexo.ring.supervisor import StageProcess
from p2pexo.serving.host import Host
from p2pexo.serving.responses import Responses
from p2pexo.serving.responses_store import ResponseDatabase
from p2pexo.serving.router import Router
from p2pexo.serving.settings import RouterSettings

ENGINES = {"mlx": MLX_ENGINE, "scripted": SCRIPTED_ENGINE}

log = structlog.get_logger(__name__)


class Node:
    """One node. ``run`` is its life."""

    def __init__(self, settings: NodeSettings, identity: Identity, belonging: Belonging, ticket: Ticket | None) -> None:
        self.settings = settings
        self._belonging = belonging
        cluster = belonging.cluster
        shut_out = ShutOut(identity.home, identity.peer_id, belonging)
        self._notices = Notices(lambda: belonging.cluster, lambda: shut_out.reason)
        self.is_up = False
        self._api_url = ""
        self._blas: Blas | None = None

        self._transport = Libp2pTransport(
            identity,
            cluster,
            [Address(each) for each in settings.listen_addresses],
            allow=lambda peer: peer not in belonging.charter.removed,
            turned_away=self._notices.add_turned_away,
        )
        self._overlay = Overlay(
            self._transport,
            sign=identity.sign,
            verify=verify,
            state=FileState(identity.home / "overlay.json"),
            settings=OverlaySettings(),
            merge_payloads=merge_payloads,
            may_lead=settings.may_lead,
        )
        self._store = Store(settings.cache, settings.model_dirs)
        self._reporter = Reporter(self._overlay, self._measure, self._store)
        self._leader = Leader(self._overlay, lambda: {card.id: card for card in self._store.cards()})
        self._spare = Spare(ENGINES[settings.engine], self._stage_environment)
        self._gauge = Gauge(self._overlay, self._measure_compute if settings.engine == "mlx" else None)
        self._worker = Worker(self._surroundings(identity), verify)
        self._control = Control(
            self._overlay,
            self._store,
            cluster_name=cluster.name,
            open_cluster=cluster.open,
            notices=self._notices.lines,
        )
        self._pairing = Pairing(
            settings,
            Party(identity.peer_id, identity.sign, verify),
            belonging,
            self._overlay,
            self._transport,
            machine(),
            shut_out,
        )
        belonging.follow(lambda _before, _after: self._belong())
        self._belong()
        self._idle_rings = IdleRings(self._overlay, settings.keep_alive)
        self._host = Host(self._overlay, self._worker.first_stage, self._idle_rings)
        router_settings = RouterSettings(
            autoload=settings.autoload,
            load_timeout_s=settings.load_timeout,
            reform_timeout_s=settings.reform_timeout,
        )
        router = Router(self._overlay, self._control, router_settings)
        self._departure = Departure(self._overlay, router)
        self._app = create_app(
            router,
            self._control,
            access_rules(settings),
            Responses(
                self._overlay,
                ResponseDatabase(identity.home / "responses.sqlite3", lifetime_s=settings.response_lifetime),
                known=lambda: belonging.charter.names,
            ),
            gate=self._pairing,
            requests=router.records.newest,
        )
        self._add_known_addresses(ticket)

    async def run(self, stop: trio.Event) -> None:
        """From start to a clean end, after ``stop`` or when a member asks for it: what runs here is handed over, HTTP goes,
        then the stages, and then the others are told."""
        async with trio.open_nursery() as overlay_nursery:
            async with trio.open_nursery() as duties:
                async with trio.open_nursery() as serving:
                    serving.start_soon(self._depart_after, stop, serving.cancel_scope)
                    await self._start(overlay_nursery, duties, serving)
                    self.is_up = True
                duties.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await self._overlay.leave()
            overlay_nursery.cancel_scope.cancel()
        log.info("stopped")

    async def _depart_after(self, stop: trio.Event, serving: trio.CancelScope) -> None:
        await self._departure.run(stop)
        serving.cancel()

    async def _start(self, below: trio.Nursery, duties: trio.Nursery, serving: trio.Nursery) -> None:
        cache = private_directory(self.settings.cache / "blas")
        self._blas = await trio.to_thread.run_sync(prepare_blas, self.settings.blas, cache)
        self._notices.add_blas(self._blas)
        if self._blas.is_slow:
            log.warning("matrices are multiplied slowly", blas=self._blas.name, advice=self._blas.cost)
        await below.start(self._overlay.run)
        log.info(
            "node is up",
            node=self.settings.display_name,
            peer=self._overlay.me,
            cluster=self._belonging.cluster.name,
            addresses=list(self._transport.addresses),
            blas=self._blas.name,
            blas_cost=self._blas.cost,
        )
        url: str = await serving.start(
            partial(serve, self._app, host=self.settings.api_host, port=self.settings.api_port)
        )
        self._api_url = url
        log.info("serving", url=reachable_url(url, stage_hosts(self.settings)))
        runs = (self._reporter.run, self._leader.run, self._worker.run, self._idle_rings.run)
        runs += (self._spare.run, partial(keep_spare, self._overlay, self._spare.want), self._gauge.run)
        for duty in (*runs, partial(keep_chronicle, self._overlay)):
            duties.start_soon(duty)
        hosts = tuple(dict.fromkeys(parse(address).host for address in self.settings.listen_addresses))
        await self._pairing.start(duties, hosts if self.settings.mdns else ())
        if self.settings.mdns:
            await self._be_discovered(duties)

    async def _be_discovered(self, duties: trio.Nursery) -> None:
        loopback = is_loopback_only(self.settings)
        discovery = Discovery(
            self._pairing.sighting(),
            self._seen,
            service=self.settings.mdns_service,
            interfaces=["127.0.0.1"] if loopback else (),
        )
        duties.start_soon(discovery.run)
        duties.start_soon(keep_announced, self._overlay, self._pairing.sighting, discovery)

    def _measure(self) -> NodeFacts:
        hosts = stage_hosts(self.settings)
        facts = measure(
            self.settings.display_name,
            version=__version__,
            api_url=reachable_url(self._api_url, hosts),
            memory_budget=self.settings.memory.of(psutil.virtual_memory().total),
            link_hosts=hosts,
        )
        return evolve(facts, dense=is_dense(self.settings.precision))

    async def _measure_compute(self) -> ComputeSpeed | None:
        return await measure_compute(MLX_ENGINE, self._stage_environment, dense=is_dense(self.settings.precision))

    def _surroundings(self, identity: Identity) -> Surroundings:
        return Surroundings(
            overlay=self._overlay,
            fetch=in_thread(self._store),
            start_stage=self._start_stage,
            sign=identity.sign,
            link_hosts=partial(stage_hosts, self.settings),
            models_changed=self._reporter.models_changed,
        )

    def _start_stage(self, spec: StageSpec) -> StageProcess:
        if spec.placement.precision == "auto":
            spec = evolve(spec, placement=evolve(spec.placement, precision=self.settings.precision))
        return StageProcess(
            spec,
            environment=self._stage_environment(),
            engine=ENGINES[self.settings.engine],
            limits=self.settings.limits,
            spare=self._spare,
        )

    def _stage_environment(self) -> dict[str, str]:
        assert self._blas is not None, "stages start after the BLAS was chosen"
        return stage_environment(os.environ, self._blas, self.settings.cache / "temporary")

    def _add_known_addresses(self, ticket: Ticket | None) -> None:
        for known in self.settings.peers:
            address, _, peer = known.partition("/p2p/")
            self._overlay.add_address(Address(address), PeerId(peer) if peer else None)
        for address in ticket.addresses if ticket else ():
            self._overlay.add_address(address, ticket.peer if ticket else None)

    def _belong(self) -> None:
        """Tell those who show it what this node belongs to now."""
        charter = self._belonging.charter
        self._control.belong(
            charter.cluster.name, open_cluster=charter.cluster.open, known=charter.known, named=charter.named
        )

    def _seen(self, sighting: Sighting) -> None:
        if sighting.peer == self._overlay.me:
            return
        self._pairing.seen(sighting)
        self._notices.add_version(sighting)
        if sighting.fingerprint != self._belonging.cluster.fingerprint:
            self._notices.add_stranger(sighting)
            return
        self._notices.forget_stranger(sighting.peer)
        self._overlay.add_sighting(sighting.peer, sighting.addresses)


def access_rules(settings: NodeSettings) -> AccessRules:
    host = socket.gethostname()
    short = host.partition(".")[0]
    return AccessRules(
        own_names=(host, short, f"{short}.local"),
        allowed_hosts=settings.allow_hosts,
        allowed_origins=settings.allow_origins,
        api_key=settings.api_key,
    )


def reachable_url(url: str, hosts: tuple[str, ...]) -> str:
    """Where others find an API that listens on all addresses: at the first of this machine's own."""
    host = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
    return url.replace("//0.0.0.0:", f"//{host}:").replace("//[::]:", f"//{host}:")


def stage_hosts(settings: NodeSettings) -> tuple[str, ...]:
    """Stages listen where the overlay does: on the addresses it was told, or on all that this machine has at the moment."""
    endpoints = [parse(address) for address in settings.listen_addresses]
    if any(endpoint.is_wildcard for endpoint in endpoints):
        return link_hosts()
    return tuple(dict.fromkeys(endpoint.host for endpoint in endpoints))


def is_loopback_only(settings: NodeSettings) -> bool:
    return all(address.startswith(("/ip4/127.", "/ip6/::1/")) for address in settings.listen_addresses)


def is_dense(precision: str) -> bool:
    """Whether stages on this machine hold their weights as plain floats, so that the planner counts them right."""
    return precision == "dequantise" or (precision == "auto" and device() == "cpu")
