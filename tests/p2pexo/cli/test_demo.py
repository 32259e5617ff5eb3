import io
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from p2pexo.cli import demo as demo_module
from p2pexo.cli.demo import choose_api_port, demo, gather
from p2pexo.cli.display import PlainDisplay
from p2pexo.cli.errors import CommandError
from p2pexo.cli.fleet import Fleet, free_ports, is_free
from p2pexo.cli.main import run
from p2pexo.cli.stop_signals import Stopped, StopSignals
from p2pexo.client import ClusterState, UnreachableError


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo makes its own folder, so that a test can see whether it is gone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def fleets(monkeypatch: pytest.MonkeyPatch) -> list[list[subprocess.Popen[bytes]]]:
    """The processes of every fleet that was stopped."""
    stopped: list[list[subprocess.Popen[bytes]]] = []
    stop = Fleet.stop

    def remember(fleet: Fleet) -> None:
        stopped.append(fleet.processes)
        stop(fleet, timeout_s=5)

    monkeypatch.setattr(Fleet, "stop", remember)
    return stopped


def test_the_demo_gathers_loads_answers_and_leaves_nothing_behind(
    fake_nodes, fleets, temporary_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    fake_nodes("ok")
    monkeypatch.setenv("COLUMNS", "200")
    port = free_ports(1)[0]
    assert run(["demo", "--once", "--api-port", str(port), "--question", "Where is it?"]) == 0
    shown = capsys.readouterr().out
    told = [
        "starting 3 nodes",
        "node-3 is here",
        "node-1 leads (term 1)",
        "in 3 stages",
        "stage 2 on node-3, layers 20-29: ready",
    ]
    told += [
        "> Where is it?",
        "Paris it is.\n",
        "4 tokens",
        "tokens per second",
        "127.0.0.1:40002",
    ]
    positions = [shown.index(each) for each in told]
    assert positions == sorted(positions)
    assert "\x1b" not in shown
    assert [len(processes) for processes in fleets] == [3]
    assert all(process.returncode is not None for process in fleets[0])
    assert is_free(port)
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("dies", "node-1 ended (exit code 1)"),
        ("load-fails", "could not be loaded: stage 0 on node-1: no memory left"),
        ("answer-fails", "a stage went away"),
        ("answer-breaks-off", "the answer broke off"),
    ],
)
def test_whatever_fails_is_told_with_the_nodes_log_and_an_exit_code(
    fake_nodes,
    fleets,
    temporary_folder: Path,
    capsys: pytest.CaptureFixture[str],
    behaviour: str,
    reason: str,
):
    fake_nodes(behaviour)
    assert run(["demo", "--once", "--api-port", str(free_ports(1)[0])]) == 1
    error = capsys.readouterr().err
    assert reason in error.splitlines()[0]
    assert "--- the end of node-1's log\nhello from node-1" in error
    assert all(process.returncode is not None for process in fleets[0])
    assert list(temporary_folder.iterdir()) == []


def test_a_taken_port_is_replaced_and_said():
    shown = io.StringIO()
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        port = choose_api_port(taken, Console(file=shown, width=200))
    assert port != taken
    assert f"Port {taken} is taken" in shown.getvalue()
    assert str(port) in shown.getvalue()


def gathered(looks: Iterator[ClusterState | Exception], alive: Callable[[], None] = lambda: None) -> float:
    """Run ``gather`` over scripted pictures (or exceptions) and return the seconds it took."""
    now = 0.0

    def look() -> ClusterState:
        picture = next(looks)
        if isinstance(picture, Exception):
            raise picture
        return picture

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    gather(look, PlainDisplay(Console(file=io.StringIO())), alive, 3, clock=lambda: now, pause=pause)
    return now


def test_gathering_is_patient_with_a_node_that_does_not_answer_yet(make):
    unborn = UnreachableError("not yet")
    everybody = make.snapshot(3)
    assert gathered(iter([unborn, make.snapshot(1), make.snapshot(3, leader=None), everybody])) == pytest.approx(0.8)


def test_gathering_counts_only_the_living(make):
    suspect = make.snapshot(3, members=(make.member(1), make.member(2), make.member(3, state="suspect")))
    with pytest.raises(StopIteration):
        gathered(iter([suspect, suspect]))


def test_gathering_counts_only_those_who_have_told_what_they_are(make):
    stranger = make.snapshot(3, members=(make.member(1), make.member(2), make.member(3, machine="")))
    with pytest.raises(StopIteration):
        gathered(iter([stranger, stranger]))


@pytest.mark.parametrize(("leader", "reason"), [("peer-1", "2 of 3 nodes"), (None, "and none leads")])
def test_gathering_does_not_wait_for_ever(make, leader: str | None, reason: str):
    with pytest.raises(CommandError, match=f"after 90 s .*{reason}"):
        gathered(itertools.repeat(make.snapshot(2, leader=leader)))


def test_gathering_ends_when_a_node_has_ended(make):
    def ended() -> None:
        raise CommandError("node-2 ended")

    with pytest.raises(CommandError, match="node-2 ended"):
        gathered(iter([make.snapshot(1)]), alive=ended)


def test_stages_over_more_nodes_than_there_are_is_refused():
    with pytest.raises(CommandError, match="must be from 1 to 2"):
        demo(nodes=2, min_stages=3)


DRIVER = """
import sys
from p2pexo.cli.fleet import NodePlan
from p2pexo.cli.main import run
script, behaviour = sys.argv[1:3]
NodePlan.command = lambda plan: [sys.executable, "-S", script, behaviour, plan.name, str(plan.api_port), str(plan.home)]
sys.exit(run(["demo", *sys.argv[3:]]))
"""


@pytest.fixture
def running_demo(tmp_path: Path) -> Iterator[Callable[[str, int], subprocess.Popen[str]]]:
    """A demo with fake nodes, in a process of its own that can be signalled."""
    started: list[subprocess.Popen[str]] = []

    def start(behaviour: str, port: int) -> subprocess.Popen[str]:
        script = Path(__file__).with_name("fake_node.py")
        command = [sys.executable, "-c", DRIVER, str(script), behaviour, "--api-port", str(port)]
        environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"the demo ended without saying {text!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_demo_that_serves_in_good_order(running_demo, tmp_path: Path, number: signal.Signals):
    port = free_ports(1)[0]
    process = running_demo("ok", port)
    read_until(process, f"Serving at http://localhost:{port}")
    process.send_signal(number)
    assert process.wait(20) == 0
    assert is_free(port)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_the_middle_of_the_answer_ends_it_too(running_demo, tmp_path: Path):
    port = free_ports(1)[0]
    process = running_demo("hangs", port)
    read_until(process, "> What is")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert is_free(port)
    assert list(tmp_path.iterdir()) == []


def test_a_second_ctrl_c_does_not_wait_for_stubborn_nodes(running_demo, tmp_path: Path):
    port = free_ports(1)[0]
    process = running_demo("stubborn", port)
    read_until(process, "Serving at")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 130
    assert is_free(port)
    assert list(tmp_path.iterdir()) == []


def test_the_first_signal_raises_and_the_second_leaves_at_once():
    ended: list[object] = []
    with StopSignals(lambda: ended.append("killed"), ended.append):
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        assert ended == []
        signal.raise_signal(signal.SIGINT)
    assert ended == ["killed", 130]


def test_once_held_the_first_signal_leaves_at_once_already():
    ended: list[object] = []
    with StopSignals(lambda: ended.append("killed"), ended.append) as signals:
        signals.hold()
        signal.raise_signal(signal.SIGINT)
    assert ended == ["killed", 130]


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals(lambda: None):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_death_of_the_first_node_ends_the_serving(make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    plans = demo_module.plan_nodes(2, 1, tmp_path)
    shown = io.StringIO()
    pictures = iter([[(plans[1], "by SIGKILL")], [(plans[1], "by SIGKILL"), (plans[0], "exit code 1")]])
    fleet = Fleet()
    monkeypatch.setattr(fleet, "ended", lambda: next(pictures))
    monkeypatch.setattr(demo_module.time, "sleep", lambda seconds: None)
    with pytest.raises(CommandError, match="node-1 ended"):
        demo_module.serve(fleet, plans[0], Console(file=shown, width=200))
    assert shown.getvalue().count("node-2 ended (by SIGKILL)") == 1
