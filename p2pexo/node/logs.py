"""One log for everything: structlog's lines and those of libraries that use ``logging``, as text or as JSON."""

import logging
import sys

import structlog

from p2pexo.generation.log_stubs import shorten


def configure_logs(level: str, form: str) -> None:
    """Log to standard error. ``level`` is the least that is shown; ``form`` is ``text`` or ``json``."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        shorten,
        structlog.processors.TimeStamper(fmt="iso", utc=False),
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[_without_internals, *_rendering(form)]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("hypercorn", "zeroconf", "httpx", "httpcore", "asyncio", "multiaddr"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _without_internals(
    logger: structlog.typing.WrappedLogger, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return structlog.stdlib.ProcessorFormatter.remove_processors_meta(logger, method, event)


def _rendering(form: str) -> list[structlog.typing.Processor]:
    if form == "json":
        # Not structlog's ``dict_tracebacks``: it shows local variables, and with them keys and what users write.
        traces = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [structlog.processors.ExceptionRenderer(traces), structlog.processors.JSONRenderer()]
    colours = sys.stderr.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]
