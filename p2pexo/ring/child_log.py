"""The log of a stage process, as lines of JSON on its standard error, so that its owner can log them as its own."""

import logging
import sys
from typing import Any, cast

import orjson
import structlog
from attrs import field, frozen

from p2pexo.generation.log_stubs import shorten


@frozen
class LogRecord:
    level: int
    event: str
    fields: dict[str, Any] = field(factory=dict[str, Any])


def configure_child_log() -> None:
    """In the child, before it logs anything."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            shorten,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def parse_line(line: str) -> LogRecord:
    """What a line of standard error says; one that is not from the log, such as a traceback's, is its own event."""
    try:
        record: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        return LogRecord(logging.INFO, line)
    fields = cast(dict[str, Any], record)
    level = logging.getLevelNamesMapping().get(str(fields.pop("level", "")).upper(), logging.INFO)
    return LogRecord(level, str(fields.pop("event", "")), fields)
