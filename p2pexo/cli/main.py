"""The command line's entry: names the commands, and turns what goes wrong into one line and an exit code.

Commands are imported only when they run, so that ``p2pexo --help`` answers at once.
"""

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from cyclopts.config import Env

from p2pexo import __version__
from p2pexo.cli.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE, CommandError, SettingsError

_COMMANDS = {
    "node": ("p2pexo.cli.node:node", "Run a node on this machine, until Ctrl-C."),
    "demo": ("p2pexo.cli.demo:demo", "Show a cluster of three nodes on this machine, and let it answer a question."),
    "status": ("p2pexo.cli.status:status", "Show who is in the cluster, and which models run where."),
    "chat": ("p2pexo.cli.chat:chat", "Talk to a model in the terminal."),
    "models": ("p2pexo.cli.models:models", "List the models that the cluster can run."),
    "place": ("p2pexo.cli.place:place", "Load a model onto the machines of the cluster."),
    "delete": ("p2pexo.cli.place:delete", "Unload a model from the machines of the cluster."),
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
    for name, (path, summary) in _COMMANDS.items():
        # Every setting of a node has its variable; elsewhere those that have one say so.
        config = Env("P2PEXO_", command=False) if name == "node" else None
        app.command(path, name=name, help=summary, help_format="markdown", config=config)
    return app


def _complain(error: Exception) -> None:
    print(f"p2pexo: {' '.join(str(error).split())}", file=sys.stderr)
    if isinstance(error, CommandError) and error.details:
        print(error.details, file=sys.stderr)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see docs/cli.md for their meaning."""
    try:
        result = build_app()(arguments)
    except (CycloptsError, SettingsError) as error:
        _complain(error)
        return EXIT_USAGE
    except CommandError as error:
        _complain(error)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
