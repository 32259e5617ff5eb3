import trio

from networking.discovery import Sighting
from networking.transport import Address
from p2pexo.node.announcing import LOOK_AGAIN_S, keep_announced


def test_a_node_is_announced_anew_when_its_addresses_change_and_only_then(rehearse) -> None:
    addresses = [Address("/ip4/10.0.0.1/tcp/1")]
    announced: list[tuple[Address, ...]] = []
    withdrawn: list[tuple[Address, ...]] = []

    async def announce(sighting: Sighting) -> None:
        announced.append(sighting.addresses)
        try:
            await trio.sleep_forever()
        finally:
            withdrawn.append(sighting.addresses)

    async def story(desk) -> None:
        await desk.add("a")
        overlay = desk.nodes["a"].overlay

        def sighting() -> Sighting:
            return Sighting(overlay.me, tuple(addresses), "desk", "fingerprint", 1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_announced, overlay, sighting, announce)
            await desk.add("b")
            assert announced == [("/ip4/10.0.0.1/tcp/1",)]
            addresses[0] = Address("/ip4/192.168.1.7/tcp/1")
            await desk.add("c")
            assert announced[1:] == [("/ip4/192.168.1.7/tcp/1",)]
            assert withdrawn == announced[:1]
            await trio.sleep(LOOK_AGAIN_S)
            assert announced[2:] == announced[1:2]
            nursery.cancel_scope.cancel()

    rehearse(story)
