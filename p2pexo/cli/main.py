"""The command line's entry: names the commands, and turns what goes wrong into one line and an exit code.

Commands are imported only when they run, so that ``p2pexo --help`` answers at once.
"""

import os
import sys
from collections.abc import Sequence

from attrs import frozen
from cyclopts import App, CycloptsError
from cyclopts.config import Env

from p2pexo import __version__
from p2pexo.cli.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE, CommandError, UsageError
from p2pexo.node.values import SettingsError


@frozen
class _Command:
    path: str
    summary: str
    more: str | None = None
    """Further lines of the command's own help. They stand here since the list of commands must not import a command."""


_COMMANDS = {
    "node": _Command(
        "p2pexo.cli.node:node",
        "Run a node on this machine, until Ctrl-C.",
        "The first start makes a cluster of this machine alone. If there are others on the network, it asks to be let in, "
        "and serves alone until somebody there approves it; on other networks it joins with a ticket, or with the same "
        "name and secret. Everything can be said by flag or by variable; the flag wins. In a variable, several "
        "values are separated by spaces, several paths by colons.",
    ),
    "demo": _Command(
        "p2pexo.cli.demo:demo",
        "Show a cluster of three nodes on this machine, and let it answer a question.",
        "The nodes are a cluster of their own with a random secret, reachable from this machine only. They live in a "
        "temporary folder, and are gone when the demo ends.",
    ),
    "status": _Command("p2pexo.cli.status:status", "Show who is here, which models run where, and how requests fared."),
    "chat": _Command(
        "p2pexo.cli.chat:chat",
        "Talk to a model in the terminal.",
        "Ctrl-C stops an answer, /clear forgets the conversation, /exit or Ctrl-D leaves. In a pipe, every line is a question.",
    ),
    "models": _Command("p2pexo.cli.models:models", "List the models that the cluster can run."),
    "place": _Command(
        "p2pexo.cli.place:place", "Load a model onto the machines of the cluster. It stays until deleted."
    ),
    "delete": _Command(
        "p2pexo.cli.place:delete",
        "Unload a model from the machines of the cluster.",
        "Answers that are still running end with an error.",
    ),
    "members": _Command(
        "p2pexo.cli.members:members", "List who is in the cluster, who has been, and who waits outside."
    ),
    "approve": _Command(
        "p2pexo.cli.approve:approve",
        "Let a machine into the cluster that waits for it.",
        "Both machines show a code. If they are the same, nobody stands between them.",
    ),
    "deny": _Command("p2pexo.cli.approve:deny", "Turn a machine away that waits to be let into the cluster."),
    "leave": _Command(
        "p2pexo.cli.leave:leave",
        "Let a node go, and its answers go on without it.",
        "What it runs is loaded elsewhere first. A node that gets Ctrl-C or SIGTERM does the same, as far as that takes 4 "
        "seconds; a second Ctrl-C ends it at once.",
    ),
    "remove": _Command(
        "p2pexo.cli.members:remove",
        "Keep a machine out of the cluster for ever.",
        "The other machines get a new secret; those that are away get it when they are back.",
    ),
    "ticket": _Command(
        "p2pexo.cli.ticket:ticket",
        "Print a ticket with which another machine can join.",
        "It is used as `p2pexo node --join TICKET`, and holds the cluster's secret: whoever has it is in. "
        "A node on `--loopback` can be reached from no other machine, so it has none: other nodes on its machine join it with "
        "the same `--cluster` and `--secret`.",
    ),
}

_ABOUT = """Turns the machines on a desk into one place to run a language model.

Start with: p2pexo demo"""


def build_app() -> App:
    app = App(
        name="p2pexo",
        help=_ABOUT,
        version=__version__,
        # Markdown would cost the top-level help a tenth of a second.
        help_format="plaintext",
        print_error=False,
        exit_on_error=False,
        result_action="return_value",
    )
    for position, (name, command) in enumerate(_COMMANDS.items()):
        # Every setting of a node has its variable; elsewhere those that have one say so.
        config = Env("P2PEXO_", command=False) if name == "node" else None
        app.command(
            command.path,
            name=name,
            help=command.summary,
            help_epilogue=command.more,
            help_format="markdown",
            sort_key=position,
            config=config,
        )
    return app


def _complain(error: Exception) -> None:
    print(f"p2pexo: {' '.join(str(error).split())}", file=sys.stderr)
    if isinstance(error, CommandError) and error.details:
        print(error.details, file=sys.stderr)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see docs/cli.md for their meaning."""
    try:
        result = build_app()(arguments)
    except (CycloptsError, SettingsError, UsageError) as error:
        _complain(error)
        return EXIT_USAGE
    except CommandError as error:
        _complain(error)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Who read our output has enough. Python would complain once more when it flushes on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    return result if isinstance(result, int) else 0


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
