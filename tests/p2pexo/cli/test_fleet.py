import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from p2pexo.cli.errors import CommandError
from p2pexo.cli.fleet import Fleet, NodePlan, free_ports, is_free, log_tail, node_environment, plan_nodes
from p2pexo.cli.main import build_app

PATIENCE_S = 20.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def answers(plan: NodePlan) -> bool:
    try:
        return httpx.get(plan.url + "/v1/cluster", trust_env=False).is_success
    except httpx.TransportError:
        return False


def start(folder: Path, count: int = 2) -> tuple[Fleet, tuple[NodePlan, ...]]:
    fleet, plans = Fleet(), plan_nodes(count, free_ports(1)[0], folder)
    fleet.start(plans)
    return fleet, plans


def test_all_nodes_know_the_first_and_no_two_share_a_port_or_a_home(tmp_path: Path):
    plans = plan_nodes(3, 52415, tmp_path)
    assert plans[0].api_port == 52415
    assert [plan.peers for plan in plans] == [(), (f"127.0.0.1:{plans[0].port}",), (f"127.0.0.1:{plans[0].port}",)]
    assert len({port for plan in plans for port in (plan.port, plan.api_port)}) == 6
    assert len({plan.home for plan in plans}) == 3


def test_a_node_is_told_to_stay_on_loopback_and_its_command_holds_no_secret(tmp_path: Path):
    command = plan_nodes(2, 52415, tmp_path)[1].command()
    assert command[:6] == [sys.executable, "-m", "p2pexo", "node", "--loopback", "--no-mdns"]
    assert "--secret" not in command
    assert "--api-host" not in command


def test_the_command_is_one_that_a_node_understands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = plan_nodes(2, 52415, tmp_path)[1]
    monkeypatch.setattr(os, "environ", node_environment({}, "demo", "s3cret"))
    _, bound, _ = build_app().parse_args(plan.command()[3:], exit_on_error=False, print_error=False)
    settings = bound.arguments["settings"]
    assert (settings.home, settings.name, settings.api_port) == (plan.home, "node-2", plan.api_port)
    assert settings.listen_addresses == (f"/ip4/127.0.0.1/tcp/{plan.port}",)
    assert (settings.cluster, settings.secret, settings.exit_with_parent) == ("demo", "s3cret", True)


def test_settings_of_the_person_do_not_leak_into_the_demo_but_those_of_the_machine_do():
    mine = {
        "PATH": "/bin",
        "P2PEXO_HOME": "/home/me",
        "P2PEXO_SECRET": "mine",
        "P2PEXO_OPEN": "1",
        "P2PEXO_BLAS": "reference",
    }
    theirs = node_environment(mine, "demo", "random")
    assert (theirs["PATH"], theirs["P2PEXO_BLAS"], theirs["P2PEXO_SECRET"]) == ("/bin", "reference", "random")
    assert not {"P2PEXO_HOME", "P2PEXO_OPEN"} & theirs.keys()


def test_every_cluster_gets_a_secret_of_its_own(tmp_path: Path, fake_nodes):
    fake_nodes("ok")
    secrets: list[str] = []
    for name in ("a", "b"):
        fleet, plans = start(tmp_path / name)
        try:
            wait_until(lambda plans=plans: all(answers(plan) for plan in plans))
            environments = [json.loads((plan.home / "environment.json").read_text()) for plan in plans]
        finally:
            fleet.stop()
        assert len({environment["P2PEXO_SECRET"] for environment in environments}) == 1
        secrets.append(environments[0]["P2PEXO_SECRET"])
    assert len(set(secrets)) == 2


def test_stopping_leaves_no_process_and_no_port(tmp_path: Path, fake_nodes):
    fake_nodes("ok")
    fleet, plans = start(tmp_path)
    wait_until(lambda: all(answers(plan) for plan in plans))
    processes = fleet.processes
    fleet.stop()
    assert all(process.returncode is not None for process in processes)
    assert all(is_free(plan.api_port) for plan in plans)


def test_nodes_that_do_not_stop_are_killed(tmp_path: Path, fake_nodes):
    fake_nodes("stubborn")
    fleet, plans = start(tmp_path)
    wait_until(lambda: all(answers(plan) for plan in plans))
    processes = fleet.processes
    fleet.stop(timeout_s=0.1)
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_a_node_that_ends_is_reported_with_the_end_of_its_log(tmp_path: Path, fake_nodes):
    fake_nodes("dies")
    fleet, _ = start(tmp_path, count=1)
    try:
        wait_until(lambda: bool(fleet.ended()))
        with pytest.raises(CommandError, match=r"node-1 ended \(exit code 1\)") as caught:
            fleet.check()
    finally:
        fleet.stop()
    assert caught.value.details.splitlines() == [
        "--- the end of node-1's log",
        "hello from node-1",
        "node-1 has no key",
    ]


def test_a_node_that_was_killed_is_reported_by_its_signal(tmp_path: Path, fake_nodes):
    fake_nodes("ok")
    fleet, plans = start(tmp_path, count=1)
    try:
        fleet.processes[0].kill()
        wait_until(lambda: bool(fleet.ended()))
        assert fleet.ended() == [(plans[0], "by SIGKILL")]
    finally:
        fleet.stop()


def test_nodes_end_when_whoever_started_them_is_killed(tmp_path: Path, fake_nodes):
    fake_nodes("ok")
    plan = plan_nodes(1, free_ports(1)[0], tmp_path)[0]
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom p2pexo.cli.fleet import Fleet, NodePlan\n"
        f"NodePlan.command = lambda plan: {plan.command()!r}\n"
        f"fleet = Fleet()\nfleet.start((NodePlan('node-1', Path({str(plan.home)!r}), {plan.port}, {plan.api_port}, ()),))\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        wait_until(lambda: answers(plan))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not answers(plan))


def test_a_long_log_is_shown_from_its_end(tmp_path: Path):
    plan = plan_nodes(1, 1, tmp_path)[0]
    assert "can't be read" in log_tail(plan)
    plan.home.mkdir()
    plan.log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(100)))
    assert log_tail(plan).splitlines()[1].startswith("line 80")


def test_a_port_that_somebody_listens_on_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
