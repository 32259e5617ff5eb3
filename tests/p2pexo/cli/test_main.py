import subprocess
import sys

import pytest

from p2pexo import __version__
from p2pexo.cli import main

HEAVY = (
    "rich.markdown",
    "httpx",
    "trio",
    "mlx",
    "mlx_lm",
    "libp2p",
    "quart",
    "numpy",
    "networking",
    "p2pexo.node.run",
    "p2pexo.cli.demo",
)


def modules_after(*arguments: str) -> set[str]:
    script = (
        "import sys\nfrom p2pexo.cli.main import run\n"
        f"code = run({list(arguments)!r})\n"
        "print('MODULES', *sys.modules)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split("MODULES ")[1].split())


def test_the_top_level_help_imports_nothing_heavy():
    assert modules_after("--help").isdisjoint(HEAVY)


def test_the_help_of_a_node_does_not_import_the_node():
    assert modules_after("node", "--help").isdisjoint(
        {"trio", "mlx", "libp2p", "quart", "networking", "p2pexo.node.run"}
    )


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]):
    assert main.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name} " in shown for name in ("node", "demo", "status", "chat", "models", "place", "delete"))


@pytest.mark.parametrize("command", ["node", "demo", "status", "chat", "models", "place", "delete"])
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]):
    assert main.run([command, "--help"]) == 0
    assert f"p2pexo {command}" in capsys.readouterr().out


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]):
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nod"], 2, 'Unknown command "nod"'),
        (["node", "--memory", "7x"], 2, "'7x' is not a size"),
        (["node", "--api-host", "0.0.0.0"], 2, "give an --api-key"),
        (["place"], 2, "MODEL"),
        (["demo", "--min-stages", "4"], 1, "--min-stages 4 is not possible with 3 node(s)"),
        (
            ["status", "--url", "http://127.0.0.1:1"],
            1,
            "nothing answers at http://127.0.0.1:1; is `p2pexo node` running?",
        ),
        (["status", "--url", "nonsense"], 1, "is not a URL"),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(
    arguments: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
):
    assert main.run(arguments) == code
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.startswith("p2pexo: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_reader_that_has_enough_is_no_error_to_complain_about():
    script = "import sys\nfrom p2pexo.cli import main, status\n"
    script += "from p2pexo.client import Client, ClusterState\n"
    script += "Client.cluster = lambda self: ClusterState('desk')\nstatus.REFRESH_S = 0\n"
    script += "sys.exit(main.run(['status', '--watch', '--json']))"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert "desk" in process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(20) == 1


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "p2pexo", "--version"]
    assert subprocess.check_output(command, text=True, timeout=60).strip() == __version__
