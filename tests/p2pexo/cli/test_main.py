import subprocess
import sys
from pathlib import Path

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
        (["demo", "--min-stages", "4"], 2, "--min-stages 4 is not possible with 3 node(s)"),
        (
            ["status", "--url", "http://127.0.0.1:1"],
            1,
            "nothing answers at http://127.0.0.1:1; is `p2pexo node` running?",
        ),
        (["status", "--url", "nonsense"], 2, "is not a URL"),
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


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["status", "--url", "foo"], "'foo' is not a URL"),
        (["demo", "--nodes", "0"], "--nodes 0"),
        (["demo", "--min-stages", "9"], "--min-stages 9"),
        (["node", "--join", "nonsense"], "--join"),
        (["chat", "--temperature", "9"], "--temperature"),
    ],
)
def test_a_value_that_makes_no_sense_is_exit_code_2(
    arguments: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("P2PEXO_HOME", str(tmp_path))
    assert main.run(arguments) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["--home", "--cache"])
def test_a_folder_that_cannot_be_used_is_named_with_what_to_do(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    blocked = tmp_path / "file"
    blocked.write_text("")
    homes = {"--home": str(tmp_path / "home"), "--cache": str(tmp_path / "cache"), folder: str(blocked / "here")}
    flags = [part for pair in homes.items() for part in pair]
    assert main.run(["node", *flags, "--loopback", "--no-mdns", "--listen", "127.0.0.1:0", "--api-port", "0"]) == 1
    told = capsys.readouterr().err
    assert str(blocked) in told
    assert "name another folder" in told
    assert "[Errno" not in told
