"""What nodes ask of their leader and what it answers, on whole nodes in virtual time."""

import pytest
import trio
from attrs import evolve

from networking.overlay import RequestRefusedError
from networking.transport import PeerId
from p2pexo.cluster.commands import (
    COMMAND,
    DeleteCommand,
    NotLeading,
    PlaceCommand,
    Reply,
    send_command,
)
from p2pexo.generation.errors import (
    ErrorReport,
    GenerationError,
    InvalidRequestError,
    ModelNotFoundError,
    UnavailableError,
)
from p2pexo.models.card import Card

MODEL = "owner/model"
CARD_OF_B = Card("local/mine", "local", "llama", 30, 576, 4096, 100, 300, 320, 1, source="directory:/models/mine")


def place(min_stages: int = 1) -> PlaceCommand:
    return PlaceCommand(MODEL, min_stages=min_stages)


def test_two_requests_to_place_a_model_make_one_placement(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c")
        ids: list[str] = []

        async def ask(name: str) -> None:
            ids.append(await desk.nodes[name].control.place(place(2)))

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(ask, name)
        assert len(set(ids)) == 1
        await desk.until(lambda: len(desk.running()) == 2)

    rehearse(story)


@pytest.mark.parametrize(
    ("command", "error", "param"),
    [
        (PlaceCommand(MODEL, min_stages=5), InvalidRequestError, "min_stages"),
        (PlaceCommand("no-such-model"), ModelNotFoundError, "model"),
    ],
)
def test_what_cannot_be_placed_is_refused_at_once(
    rehearse, command: PlaceCommand, error: type[GenerationError], param: str
) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        with pytest.raises(error) as caught:
            await desk.nodes["b"].control.place(command)
        assert caught.value.param == param
        assert desk.nodes["b"].placement() is None

    rehearse(story)


def test_a_model_of_an_unknown_architecture_is_refused_before_anything_is_fetched(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a")
        desk.nodes["a"].store.known = (evolve(CARD_OF_B, id="owner/strange", architecture="nonesuch", source="hub"),)
        with pytest.raises(InvalidRequestError, match=r"'nonesuch'.*supported on several machines are .*llama"):
            await desk.nodes["a"].control.place(PlaceCommand("owner/strange"))
        assert desk.nodes["a"].placement() is None

    rehearse(story)


def test_more_stages_than_the_running_ring_has_are_refused(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.nodes["b"].control.place(place())
        with pytest.raises(InvalidRequestError, match="min_stages 2"):
            await desk.nodes["b"].control.place(place(2))

    rehearse(story)


def test_more_placements_than_can_be_told_are_refused_and_deleting_helps(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", a=10**12)
        node = desk.nodes["a"]
        cards = [evolve(CARD_OF_B, id=f"local/{n}", source="", description="x" * 70_000) for n in range(4)]
        node.store.known = tuple(cards)
        ids = [await node.control.place(PlaceCommand(card.id)) for card in cards[:2]]
        with pytest.raises(UnavailableError, match="2 placements"):
            for card in cards[2:]:
                await node.control.place(PlaceCommand(card.id))
        await node.control.delete(ids[0])
        await node.control.place(PlaceCommand(cards[3].id))

    rehearse(story)


def test_deleting_what_is_not_there_says_so(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a")
        with pytest.raises(ModelNotFoundError, match="nothing-like-it"):
            await desk.nodes["a"].control.delete("nothing-like-it")

    rehearse(story)


def test_a_model_of_the_hub_is_looked_up_only_when_a_person_places_it(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a")
        with pytest.raises(ModelNotFoundError):
            await desk.nodes["a"].control.place(PlaceCommand("hub/model", by_user=False))
        await desk.nodes["a"].control.place(PlaceCommand("hub/model"))
        await desk.until_ready("a")
        assert desk.nodes["a"].placement().model == "hub/model"

    rehearse(story)


def test_commands_fail_in_time_when_nobody_leads(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.remove("a")
        began = trio.current_time()
        with pytest.raises(UnavailableError) as caught:
            await send_command(desk.nodes["b"].overlay, DeleteCommand("p"), patience_s=0.5)
        assert caught.value.retry_after_s
        assert trio.current_time() - began == pytest.approx(0.5, abs=0.1)

    rehearse(story)


def test_a_leader_that_was_replaced_refuses_commands(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        overlay = desk.nodes["b"].overlay

        async def ask(term: int) -> Reply:
            return await COMMAND.ask(overlay, desk.leader().peer, DeleteCommand("p", seen_term=term), timeout_s=5)

        assert isinstance(await ask(overlay.view.term), ErrorReport)
        assert await ask(overlay.view.term + 1) == NotLeading(desk.leader().peer)

    rehearse(story)


def test_an_answer_of_another_version_is_called_that(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")

        async def answer(peer: PeerId, body: bytes) -> bytes:
            return b'{"reply":"Unheard"}'

        desk.nodes["a"].overlay.serve_requests(COMMAND.protocol, answer)
        with pytest.raises(UnavailableError, match="another version of p2pexo"):
            await desk.nodes["b"].control.place(place())

    rehearse(story)


def test_a_leader_that_does_not_know_the_command_is_of_another_version(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")

        async def refuse(peer: PeerId, body: bytes) -> bytes:
            raise RequestRefusedError("not a question of this version")

        desk.nodes["a"].overlay.serve_requests(COMMAND.protocol, refuse)
        with pytest.raises(UnavailableError, match="another version of p2pexo"):
            await desk.nodes["b"].control.place(place())

    rehearse(story)


def test_a_command_outlives_the_leader_it_was_sent_to(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c")
        await desk.remove("a")
        assert await desk.nodes["c"].control.place(place())
        assert desk.leader() is desk.nodes["b"]

    rehearse(story)


def test_models_that_only_another_node_knows_are_offered_too(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", a=1000)
        desk.nodes["b"].store.known = (CARD_OF_B,)
        desk.nodes["b"].store.fetched = [CARD_OF_B.id]
        desk.nodes["b"].reporter.models_changed()
        control = desk.nodes["a"].control
        await desk.until(lambda: CARD_OF_B in control.cards())
        assert control.resolve_model("MINE") == CARD_OF_B
        await control.place(PlaceCommand("mine"))
        await desk.until_ready("b")

    rehearse(story)
