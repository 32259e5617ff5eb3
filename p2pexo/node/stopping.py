"""What ends a node: a signal, or that whoever started it is gone."""

import os
import signal

import structlog
import trio

log = structlog.get_logger(__name__)

EXIT_AT_ONCE = 130


async def wait_for_signal(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Returns at the first SIGINT, SIGTERM or SIGHUP. A second one, while the node ends in good order, ends it at once."""
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for each in ends:  # what the receiver gives back when it closes, so that no moment between is without a handler
        signal.signal(each, lambda number, frame: os._exit(EXIT_AT_ONCE))
    with trio.open_signal_receiver(*ends) as signals:
        task_status.started()
        async for number in signals:
            log.info("stopping", signal=signal.Signals(number).name)
            break


async def wait_for_end_of_input(descriptor: int = 0) -> None:
    """Returns when the other end of standard input, a pipe, is closed, as the system does for a process that died."""
    async with trio.lowlevel.FdStream(os.dup(descriptor)) as pipe:
        while await pipe.receive_some(4096):
            pass
    log.info("stopping: whoever started this node is gone")
