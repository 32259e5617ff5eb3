"""Writes docs/cli.md from the commands themselves: ``python -m p2pexo.cli.reference > docs/cli.md``."""

from cyclopts import App

from p2pexo.cli.main import build_app

_INTRODUCTION = """# The command line

This page is made from the program by `python -m p2pexo.cli.reference`; `p2pexo COMMAND --help` says the same.

A setting is named with its variable and its default. The variable counts when the flag is not given. Commands other than
`node` and `demo` talk HTTP to a node that runs, on this machine unless `--url` says otherwise.

| exit code | meaning |
|---|---|
| 0 | Done. For `node`, and for `demo` once it serves: stopped by Ctrl-C or SIGTERM, in good order. |
| 1 | Something went wrong; one line on standard error says what, and what to do. |
| 2 | A flag, a variable or a value makes no sense. |
| 130 | Interrupted by Ctrl-C before the work was done, or ended at once by a second Ctrl-C. |
"""


def reference() -> str:
    app = build_app()
    return "\n".join([_INTRODUCTION, *(_section(app[name]) for name in app if not name.startswith("-"))])


def _section(command: App) -> str:
    text = command.generate_docs(heading_level=2, usage_name=f"p2pexo {command.name[0]}")
    epilogue = command.help_epilogue
    # What the help shows below the options belongs above them on a page.
    return text.replace(f"{command.help}\n", f"{command.help} {epilogue}\n", 1) if epilogue else text


if __name__ == "__main__":
    print(reference(), end="")
