"""Stored responses across whole nodes in virtual time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from networking.transport import PeerId
from p2pexo.generation.errors import UnavailableError
from p2pexo.generation.request import Message, Role
from p2pexo.serving.responses import PREFIX, Responses
from p2pexo.serving.responses_store import ResponseDatabase, StoredResponse


def responses_of(desk: Any, name: str, folder: Path, known: Mapping[PeerId, str] | None = None) -> Responses:
    """Threads take real time, in which virtual time would run past every time-out: here nothing is put into one."""
    database = ResponseDatabase(folder / f"{name}.sqlite3")
    return Responses(desk.nodes[name].overlay, database, known=lambda: known or {}, in_thread=at_once)


async def at_once(work: Any, *arguments: Any) -> Any:
    return work(*arguments)


def stored(id: str) -> StoredResponse:
    return StoredResponse(id, (Message(Role.USER, "A"), Message(Role.ASSISTANT, "B")), "{}")


def test_the_id_names_the_node_that_made_it(rehearse: Any, tmp_path: Path) -> None:
    async def story(desk: Any) -> None:
        await desk.add("a", "b")
        here = responses_of(desk, "a", tmp_path)
        first, second = here.new_id(), here.new_id()
        assert first != second
        assert first.startswith(PREFIX + desk.nodes["a"].peer[-8:])

    rehearse(story)


def test_every_node_finds_it_and_may_delete_it(rehearse: Any, tmp_path: Path) -> None:
    async def story(desk: Any) -> None:
        await desk.add("a", "b")
        here, there = responses_of(desk, "a", tmp_path), responses_of(desk, "b", tmp_path)
        response = stored(here.new_id())
        await here.put(response)
        assert await here.get(response.id) == await there.get(response.id) == response
        assert await there.delete(response.id)
        assert not await there.delete(response.id)
        assert await here.get(response.id) is None

    rehearse(story)


def test_what_nobody_stored_is_not_there(rehearse: Any, tmp_path: Path) -> None:
    async def story(desk: Any) -> None:
        await desk.add("a", "b")
        here, there = responses_of(desk, "a", tmp_path), responses_of(desk, "b", tmp_path)
        for id in (there.new_id(), "resp_of_a_stranger", "nonsense", ""):
            assert await here.get(id) is None
            assert not await here.delete(id)

    rehearse(story)


def test_a_node_that_can_not_answer_is_no_proof_that_nothing_is_there(rehearse: Any, tmp_path: Path) -> None:
    async def story(desk: Any) -> None:
        await desk.add("a", "b")
        here, there = responses_of(desk, "a", tmp_path), responses_of(desk, "b", tmp_path)
        (tmp_path / "b.sqlite3").mkdir()
        with pytest.raises(UnavailableError, match="another node"):
            await here.get(there.new_id())

    rehearse(story)


def test_what_a_member_that_is_away_holds_is_no_less_there(rehearse: Any, tmp_path: Path) -> None:
    async def story(desk: Any) -> None:
        await desk.add("a")
        away = PeerId("12D3KooWaway0000")
        here = responses_of(desk, "a", tmp_path, known={away: "anna"})
        for ask in (here.get, here.delete):
            with pytest.raises(UnavailableError, match="is on anna, which is not here now"):
                await ask(f"{PREFIX}{away[-8:]}_0123")
        assert await here.get(f"{PREFIX}stranger_0123") is None

    rehearse(story)


def test_a_response_that_can_not_be_stored_harms_nobody(rehearse: Any, tmp_path: Path) -> None:
    async def story(desk: Any) -> None:
        await desk.add("a")
        (tmp_path / "a.sqlite3").mkdir()
        here = responses_of(desk, "a", tmp_path)
        await here.put(stored(here.new_id()))

    rehearse(story)
