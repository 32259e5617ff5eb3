"""E8: machines with several networks, and with addresses that lead nowhere, find a way to each other and keep to it."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from end_to_end.namespaces import PORT, Machine, two_machines

from networking.addresses import Endpoint, parse
from networking.identity import peer_id_of
from networking.probe_processes import Orders, Probe, is_settled, placed, wait_for
from networking.ticket import Cluster

WILDCARD = {"ip4": "0.0.0.0", "ip6": "::"}
PATIENCE_S = 90.0


def hosts_reached(probe: Probe) -> list[str]:
    return [parse(address).host for address in probe.sees.reached]


async def both_reach_each_other_over(
    probes: list[Probe], machines: tuple[Machine, Machine], family: str, network: int
) -> None:
    def over_it() -> bool:
        others = [machine.host(family, network) for machine in reversed(machines)]
        return is_settled(probes) and [hosts_reached(probe) for probe in probes] == [[other] for other in others]

    await wait_for(probes[0].changed, over_it, PATIENCE_S)


@pytest.mark.parametrize("family", ["ip4", "ip6"])
def test_e8_a_connection_goes_over_an_address_that_answers_and_moves_when_that_goes_down(
    tmp_path: Path, family: str
) -> None:
    async def main(machines: tuple[Machine, Machine]) -> None:
        listen = Endpoint(family, WILDCARD[family], PORT).address
        async with placed(tmp_path, Cluster.new("desk"), [(machine.file, listen) for machine in machines]) as probes:
            left, right = probes
            advertised = [parse(address).host for address in left.sees.addresses]
            assert set(advertised) >= {machines[0].host(family, network) for network in (1, 2)}
            assert len(advertised) >= 4  # those that mislead among them
            await right.order(Orders(dial=Endpoint(family, machines[0].host(family, 1), PORT).address))
            await both_reach_each_other_over(probes, machines, family, 1)
            machines[0].ip("link", "set", "net1", "down")
            await both_reach_each_other_over(probes, machines, family, 2)
            assert f"at {Endpoint(family, machines[0].host(family, 2), PORT).address}" in left.log + right.log or (
                f"at {Endpoint(family, machines[1].host(family, 2), PORT).address}" in left.log + right.log
            )

    with two_machines(family) as machines:
        trio.run(main, machines)


WATCH = """
import sys, trio
from networking.discovery import Discovery, Sighting
from networking.transport import PeerId

async def main(me, fingerprint):
    async with trio.open_nursery() as nursery:
        def seen(sighting):
            print(sighting.peer, flush=True)
        sighting = Sighting(PeerId(me), (), "desk", fingerprint, 1)
        await Discovery(sighting, seen, service="_p2pexo-test._tcp.local.").run()

trio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("family", ["ip4", "ip6"])
def test_machines_see_one_another_by_mdns_over_either_version_of_ip(family: str) -> None:
    with two_machines(family) as machines:
        peers = [peer_id_of(Ed25519PrivateKey.generate().public_key()) for _ in machines]
        watchers = [
            subprocess.Popen(
                ["ip", "netns", "exec", machine.name, sys.executable, "-c", WATCH, peer, "0123456789ab"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for machine, peer in zip(machines, peers, strict=True)
        ]
        try:
            for watcher, other in zip(watchers, reversed(peers), strict=True):
                assert watcher.stdout is not None
                assert watcher.stdout.readline().strip() == other
        finally:
            for watcher in watchers:
                watcher.kill()
                watcher.wait()
