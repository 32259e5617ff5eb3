"""``p2pexo node``: run a node with the settings given."""

from collections.abc import Iterator

from p2pexo.cli.errors import CommandError
from p2pexo.node.settings import NodeSettings

_DEFAULTS = NodeSettings()


def node(settings: NodeSettings = _DEFAULTS) -> int:
    """Run a node on this machine, until Ctrl-C."""
    from p2pexo.node.logs import configure_logs
    from p2pexo.node.run import run_node

    configure_logs(settings.log_level, settings.log_format)
    try:
        return run_node(settings)
    except Exception as error:
        if (message := known_problem(error)) is None:
            raise
        raise CommandError(message) from error


def known_problem(error: BaseException) -> str | None:
    """What to tell a person whose node did not come up, if the messages of all that went wrong say what to do; else None."""
    from networking.identity import IdentityError
    from networking.ticket import TicketError
    from networking.transport import TransportError
    from p2pexo.api.server import ListenError
    from p2pexo.engine.blas_shim import BlasError
    from p2pexo.models.directory import ModelFilesError

    known = (IdentityError, TicketError, TransportError, ListenError, BlasError, ModelFilesError, OSError)
    causes = list(_leaves(error))
    if not all(isinstance(cause, known) for cause in causes):
        return None
    return "; ".join(dict.fromkeys(map(_told, causes)))


def _told(cause: BaseException) -> str:
    if not isinstance(cause, OSError) or cause.filename is None:
        return str(cause)
    advice = "name another folder by --home or --cache, or make this one yours to write"
    return f"{cause.filename} can't be used: {cause.strerror}; {advice}"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield from _leaves(each)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield error
