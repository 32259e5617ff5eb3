"""One key at the node's own terminal lets a newcomer in or turns it away."""

import os
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import structlog
import trio

from networking.pairing_desk import Applicant, NotWaitingError, WrongCodeError
from p2pexo.generation.errors import UnavailableError
from p2pexo.node.doors import Doors

BACKGROUND_PAUSE_S = 0.5
"""Between two looks whether the terminal is ours again. Lower it and a node in the background wakes up more often."""

APPROVE, DENY = "a", "d"

log = structlog.get_logger(__name__)


def has_terminal() -> bool:
    """Whether somebody may sit at this process and see what it says."""
    return sys.stdin.isatty() and sys.stderr.isatty() and _is_ours(sys.stdin.fileno())


async def decide_by_keys(doors: Doors) -> None:
    """Show on standard error who waits, and take keys from standard input; until cancelled, or the terminal is gone."""
    prompter = Prompter(doors, _say)
    with suppress(termios.error), single_keys(sys.stdin.fileno()):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(prompter.run)
            while key := await _next_key(sys.stdin.fileno()):
                await prompter.pressed(key)
            nursery.cancel_scope.cancel()


class Prompter:
    """Speaks of one newcomer at a time, and applies a key only to the one it spoke of."""

    def __init__(self, doors: Doors, say: Callable[[str], None]) -> None:
        self._doors = doors
        self._say = say
        self._shown: Applicant | None = None

    async def run(self) -> None:
        while True:
            self._shown = self._still_waiting()
            if self._shown is None and self._doors.reception.waiting:
                self._shown = self._doors.reception.waiting[0]
                self._say(prompt(self._shown, self._doors.cluster, self._doors.member_like(self._shown)))
            await self._doors.until_waiting_changes()

    async def pressed(self, key: str) -> None:
        applicant = self._still_waiting()
        if applicant is None:
            return
        with suppress(NotWaitingError, WrongCodeError, UnavailableError):
            if key.lower() == APPROVE:
                await self._doors.approve(applicant.peer, applicant.code)
                self._say(f"{applicant.name} is let in.")
            elif key.lower() == DENY:
                await self._doors.deny(applicant.peer)
                self._say(f"{applicant.name} is turned away.")

    def _still_waiting(self) -> Applicant | None:
        """The newcomer that was spoken of, unless it is gone or has asked anew, with another code."""
        number = self._shown.number if self._shown else None
        return next((each for each in self._doors.reception.waiting if each.number == number), None)


def prompt(applicant: Applicant, cluster: str, looks_like: str = "") -> str:
    careful = f"Careful: it is another machine than the member {looks_like}, whose name looks the same.\n"
    return (
        f"\n{applicant.name} ({applicant.machine}, {applicant.address}) asks to join {cluster}.\n"
        f"{careful if looks_like else ''}"
        f"Does it show the code {applicant.code} as well?  {APPROVE}: let it in   {DENY}: turn it away\n"
    )


@contextmanager
def single_keys(descriptor: int) -> Generator[None]:
    """Keys come at once and unseen; Ctrl-C stays what it is. Raises termios.error where there is no terminal."""
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _next_key(descriptor: int) -> str:
    """Empty when the terminal is gone. A process in the background would be stopped if it read, so it waits."""
    while True:
        try:
            await trio.lowlevel.wait_readable(descriptor)
            if _is_ours(descriptor):
                return os.read(descriptor, 1).decode(errors="replace")
        except OSError as error:
            log.debug("no more keys from the terminal", error=str(error))
            return ""
        await trio.sleep(BACKGROUND_PAUSE_S)


def _is_ours(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
