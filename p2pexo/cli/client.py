"""The SDK as the commands use it: which node they talk to, and what goes wrong as one line for a person."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import httpx
from attrs import field, frozen
from cyclopts import Parameter

from p2pexo.cli.errors import CommandError, UsageError
from p2pexo.client import AccessDeniedError, Client, ClientError

DEFAULT_URL = "http://localhost:52415"
UNAUTHORIZED = 401


@Parameter(name="*")
@frozen(kw_only=True)
class Target:
    """The node that a command talks to."""

    url: Annotated[str, Parameter(env_var="P2PEXO_URL")] = DEFAULT_URL
    """Where a node answers; any node of the cluster will do."""

    api_key: Annotated[str | None, Parameter(env_var="P2PEXO_API_KEY", show_default=False)] = field(
        default=None, repr=False
    )
    """The node's key, if it asks for one. Better in the variable than on the command line."""


@contextmanager
def connect(target: Target, transport: httpx.BaseTransport | None = None) -> Generator[Client]:
    """A client of this one node, for one command. A ClientError that leaves the block becomes a CommandError."""
    try:
        client = Client(target.url, api_key=target.api_key, discover=False, transport=transport)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with client, command_errors():
        yield client


@contextmanager
def command_errors() -> Generator[None]:
    try:
        yield
    except ClientError as error:
        raise CommandError(explain(error)) from error


def explain(error: ClientError) -> str:
    """What is wrong, and what to do on the command line."""
    if isinstance(error, AccessDeniedError) and error.status == UNAUTHORIZED:
        return f"{error}; give it by --api-key or P2PEXO_API_KEY"
    return str(error)
