import trio

from networking.discovery import Sighting
from networking.transport import Address
from p2pexo.node.announcing import keep_announced


class Announcer:
    def __init__(self) -> None:
        self.announced: list[tuple[Address, ...]] = []

    def announce(self, announced: Sighting) -> None:
        self.announced.append(announced.addresses)


def test_a_node_is_announced_with_the_addresses_that_it_has_now(rehearse) -> None:
    addresses = [Address("/ip4/10.0.0.1/tcp/1")]
    announcer = Announcer()

    async def story(desk) -> None:
        await desk.add("a")
        overlay = desk.nodes["a"].overlay

        def sighting() -> Sighting:
            return Sighting(overlay.me, tuple(addresses), "desk", "fingerprint", 1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_announced, overlay, sighting, announcer)
            await desk.until(lambda: announcer.announced == [("/ip4/10.0.0.1/tcp/1",)])
            addresses[0] = Address("/ip4/192.168.1.7/tcp/1")
            await desk.add("b")
            assert announcer.announced[-1] == ("/ip4/192.168.1.7/tcp/1",)
            nursery.cancel_scope.cancel()

    rehearse(story)
