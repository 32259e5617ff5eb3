"""What a command can fail with, and the exit codes."""

EXIT_FAILURE = 1
"""Something went wrong that the message explains."""

EXIT_USAGE = 2
"""A flag, variable or value that makes no sense."""

EXIT_INTERRUPTED = 130
"""Ended at once by Ctrl-C, as shells count it."""


class CommandError(Exception):
    """A problem that a person can understand and act on; shown as one line, without a traceback.

    ``details`` are further lines below it, such as the end of a log.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class UsageError(CommandError):
    """A value that makes no sense, found only when the command ran."""
