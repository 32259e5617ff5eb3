"""How stage processes end, and what that means."""

import signal
from collections.abc import Sequence

import trio

from p2pexo.ring.engine_errors import KILLED, explain

STOP_S = 2.0
"""How long a process may take to end by itself before it is killed."""


async def end_process(process: trio.Process) -> None:
    """Close its pipe, which ends it; kill it if it doesn't end in time."""
    assert process.stdin and process.stdout and process.stderr
    await process.stdin.aclose()
    with trio.move_on_after(STOP_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await process.stdout.aclose()
    await process.stderr.aclose()


def cause_of_death(code: int, last_lines: Sequence[str]) -> str:
    """Of a process that nobody here ended: by its exit code, negative for a signal, and what it wrote last."""
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if -code == signal.SIGKILL:
        how = f"{how} ({KILLED})"
    return f"{how}; its last lines: {explain(' | '.join(last_lines))}" if last_lines else how
