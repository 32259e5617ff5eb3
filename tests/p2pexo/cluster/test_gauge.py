"""What nodes measure of themselves and of their links, on whole nodes in virtual time."""

import trio

from networking.simulated_network import NetworkConditions
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.facts import SPEEDS_KEY, SpeedsFact
from p2pexo.cluster.gauge import RETRY_S
from p2pexo.cluster.probing import BULK_BYTES
from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.generation.codec import decode

SPEED = ComputeSpeed(1.234e9, 5.678e12)


def told(desk, name: str, by: str) -> SpeedsFact:
    """What ``by`` tells, as ``name`` has heard it."""
    fact = desk.nodes[name].overlay.view.facts[desk.nodes[by].peer].get(SPEEDS_KEY)
    return decode(fact, SpeedsFact) if fact else SpeedsFact()


def measured(desk, *links: tuple[str, str]) -> bool:
    """Whether the throughput from one to the other of each pair is known to the first."""
    return all(
        any(link.peer == desk.nodes[b].peer and link.bytes_per_s for link in told(desk, a, a).links) for a, b in links
    )


def test_every_node_hears_how_fast_the_others_are(rehearse) -> None:
    async def story(desk) -> None:
        desk.speed = SPEED
        desk.network.conditions = NetworkConditions(delay_s=0.01, jitter_s=0.0)
        await desk.add("a", "b")
        await desk.until(lambda: told(desk, "b", "a").decode_bytes_per_s and measured(desk, ("a", "b"), ("b", "a")))
        await desk.until(lambda: told(desk, "a", "b") == told(desk, "b", "b"))
        fact = told(desk, "b", "a")
        assert (fact.decode_bytes_per_s, fact.prefill_flops_per_s) == (1.2e9, 5.7e12)
        (link,) = fact.links
        assert (link.peer, link.round_trip_s) == (desk.nodes["b"].peer, 0.02)
        (back,) = told(desk, "a", "b").links
        assert back.bytes_per_s == link.bytes_per_s

    rehearse(story)


def test_a_link_is_measured_once(rehearse) -> None:
    async def story(desk) -> None:
        desk.speed = SPEED
        await desk.add("a", "b")
        await desk.until(lambda: measured(desk, ("a", "b"), ("b", "a")))
        before = desk.network.bytes
        await trio.sleep(3 * RETRY_S)
        assert desk.network.bytes - before < BULK_BYTES

    rehearse(story)


def test_computing_is_measured_beside_no_stage_but_begun_again_after_it(rehearse) -> None:
    async def story(desk) -> None:
        desk.speed, desk.measure_s = SPEED, 20.0
        await desk.add("a")
        await desk.until(lambda: desk.gauged[0])
        id = await desk.nodes["a"].control.place(PlaceCommand("owner/model"))
        await desk.until_ready("a")
        await trio.sleep(60)
        assert desk.gauged == [1, 0]
        assert told(desk, "a", "a") == SpeedsFact()
        await desk.nodes["a"].control.delete(id)
        await desk.until(lambda: told(desk, "a", "a").decode_bytes_per_s)
        assert desk.gauged == [2, 1]

    rehearse(story)


def test_a_link_to_a_node_of_a_ring_that_serves_carries_no_more_than_pings(rehearse) -> None:
    async def story(desk) -> None:
        desk.speed = SPEED
        await desk.add("a", a=10**9)
        id = await desk.nodes["a"].control.place(PlaceCommand("owner/model"))
        await desk.until_ready("a")
        await desk.add("b")
        await desk.until(lambda: told(desk, "a", "a").links)
        await trio.sleep(3 * RETRY_S)
        assert not measured(desk, ("a", "b")) and not measured(desk, ("b", "a"))
        await desk.nodes["b"].control.delete(id)
        await desk.until(lambda: measured(desk, ("a", "b"), ("b", "a")), within_s=2 * RETRY_S)

    rehearse(story)


def test_a_node_that_has_left_is_no_link_any_more(rehearse) -> None:
    async def story(desk) -> None:
        desk.speed = SPEED
        await desk.add("a", "b")
        await desk.until(lambda: told(desk, "a", "a").links)
        await desk.remove("b")
        await desk.until(lambda: not told(desk, "a", "a").links)

    rehearse(story)
