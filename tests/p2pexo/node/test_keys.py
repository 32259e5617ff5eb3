"""Keys at a real terminal, and whom they decide about."""

import os
import pty
import termios
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
import trio.testing
from attrs import define, evolve, field

from networking.pairing_desk import Applicant, NotWaitingError
from networking.transport import PeerId
from p2pexo.node import keys
from p2pexo.node.keys import Prompter, prompt, single_keys

ANNA = Applicant(1, PeerId("peer-anna"), "anna", "Apple M3", "042 917", "10.0.0.7", 120.0)
BEN = Applicant(2, PeerId("peer-ben"), "ben", "Apple M4", "555 555", "10.0.0.8", 120.0)


@define
class Reception:
    waiting: tuple[Applicant, ...] = ()


@define
class Doors:
    cluster: str = "desk"
    reception: Reception = field(factory=Reception)
    decided: list[tuple[str, str, str]] = field(factory=list)
    changed: trio.Event = field(factory=trio.Event)
    alike: dict[str, str] = field(factory=dict)

    def now(self, *waiting: Applicant) -> None:
        self.reception.waiting = waiting
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    def member_like(self, applicant: Applicant) -> str:
        return self.alike.get(applicant.name, "")

    async def approve(self, peer: str, code: str) -> None:
        self._decide("approve", peer, code)

    async def deny(self, peer: str) -> None:
        self._decide("deny", peer, "")

    async def until_waiting_changes(self) -> None:
        await self.changed.wait()

    def _decide(self, what: str, peer: str, code: str) -> None:
        if peer not in [each.peer for each in self.reception.waiting]:
            raise NotWaitingError
        self.decided.append((what, peer, code))
        self.now(*(each for each in self.reception.waiting if each.peer != peer))


def on_terminal(story: Callable[[Doors, Prompter, list[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        doors, said = Doors(), list[str]()
        prompter = Prompter(cast(Any, doors), said.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(prompter.run)
            await story(doors, prompter, said)
            nursery.cancel_scope.cancel()

    trio.run(main)


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


def test_one_newcomer_is_spoken_of_at_a_time_and_a_key_decides_about_that_one() -> None:
    async def story(doors: Doors, prompter: Prompter, said: list[str]) -> None:
        doors.now(ANNA, BEN)
        await settle()
        assert said == [prompt(ANNA, "desk")]
        await prompter.pressed("x")
        await prompter.pressed("a")
        await settle()
        assert doors.decided == [("approve", "peer-anna", "042 917")]
        assert said[1:] == ["anna is let in.", prompt(BEN, "desk")]
        await prompter.pressed("D")
        assert doors.decided[1:] == [("deny", "peer-ben", "")]

    on_terminal(story)


def test_wrong_codes_typed_elsewhere_change_nothing_here() -> None:
    async def story(doors: Doors, prompter: Prompter, said: list[str]) -> None:
        doors.now(ANNA)
        await settle()
        doors.reception.waiting = (evolve(ANNA, wrong_codes=1),)
        await prompter.pressed("a")
        assert doors.decided == [("approve", "peer-anna", "042 917")]

    on_terminal(story)


def test_a_key_never_decides_about_somebody_who_was_not_shown() -> None:
    async def story(doors: Doors, prompter: Prompter, said: list[str]) -> None:
        doors.now(ANNA)
        await settle()
        doors.reception.waiting = (evolve(ANNA, number=3, code="111 111"),)  # asked anew, and not shown yet
        await prompter.pressed("a")
        assert doors.decided == []
        doors.now(*doors.reception.waiting)
        await settle()
        assert "111 111" in said[-1]
        doors.now()
        await settle()
        await prompter.pressed("a")
        assert doors.decided == []

    on_terminal(story)


def test_what_is_asked_shows_name_machine_address_and_code() -> None:
    for word in ("anna", "Apple M3", "10.0.0.7", "042 917", "desk"):
        assert word in prompt(ANNA, "desk")


def test_a_name_that_looks_like_a_members_is_pointed_out() -> None:
    async def story(doors: Doors, prompter: Prompter, said: list[str]) -> None:
        doors.alike = {"anna": "Anna"}
        doors.now(ANNA)
        await settle()
        assert "Careful: it is another machine than the member Anna" in said[0]
        await prompter.pressed("d")
        doors.now(BEN)
        await settle()
        assert "Careful" not in said[-1]

    on_terminal(story)


def test_keys_come_at_once_and_unseen_and_the_terminal_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_is_ours", lambda descriptor: True)
    keyboard, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)

    async def main() -> None:
        with trio.fail_after(10), single_keys(terminal):
            assert not termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON)
            assert termios.tcgetattr(terminal)[3] & termios.ISIG  # Ctrl-C still ends the node
            os.write(keyboard, b"a")
            assert await keys._next_key(terminal) == "a"

    try:
        trio.run(main)
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_a_node_in_the_background_does_not_touch_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = pty.openpty()
    ours = iter((False, False, True))
    monkeypatch.setattr(keys, "_is_ours", lambda descriptor: next(ours))
    monkeypatch.setattr(keys, "BACKGROUND_PAUSE_S", 0.01)

    async def main() -> None:
        with trio.fail_after(10), single_keys(terminal):
            os.write(keyboard, b"d")
            assert await keys._next_key(terminal) == "d"

    try:
        trio.run(main)
        assert next(ours, None) is None
    finally:
        os.close(keyboard)
        os.close(terminal)
