"""Faults that users of such systems really met (the case's number is in each name): homes, files and ends of nodes."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealNode, real_cluster, wait_for
from end_to_end.scripted import MODEL, scripted_arguments, scripted_ring

from p2pexo.cli.fleet import free_ports, is_free
from p2pexo.cluster.snapshot import PlacementView
from p2pexo.ring.scripted import Script

COPIED = "another running machine uses the peer id"


def lone_node(folder: Path, cache: Path, name: str = "alone", home: Path | None = None) -> RealNode:
    port, api_port = free_ports(2)
    return RealNode(name, home or folder / f"home-{name}", port, api_port, ("--cache", str(cache)))


def place(node: RealNode, model: str = EMBEDDED_MODEL) -> httpx.Response:
    return httpx.post(f"{node.url}/v1/placements", json={"model": model}, timeout=30)


def failed_placement(node: RealNode, model: str) -> PlacementView | None:
    return next((each for each in node.snapshot().placements if (each.model, each.state) == (model, "failed")), None)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class TestE2Homes:
    def test_a_second_start_on_the_same_home_is_refused_and_the_first_goes_on(
        self, cache: Path, tmp_path: Path
    ) -> None:
        first = lone_node(tmp_path, cache)
        second = lone_node(tmp_path, cache, "second", home=first.home)
        try:
            first.start()
            first.wait_until_up()
            second.start()
            assert second.running.wait(60) != 0
            assert str(first.running.pid) in second.log
            assert str(first.home) in second.log
            assert httpx.get(f"{first.url}/health").status_code == 200
        finally:
            second.end()
            first.end()

    def test_a_copied_home_is_noticed_and_the_original_keeps_working(self, cache: Path, tmp_path: Path) -> None:
        with real_cluster(tmp_path, 2, ("--cache", str(cache))) as cluster:
            original = cluster[1]
            copied = tmp_path / "home-copied"
            shutil.copytree(original.home, copied, ignore=shutil.ignore_patterns("lock"))
            clone = lone_node(tmp_path, cache, "clone", home=copied)
            clone.arguments = (*clone.arguments, "--peer", f"127.0.0.1:{cluster[0].port}")
            clone.environment = original.environment
            try:
                clone.start()
                clone.wait_until_up()
                wait_for(
                    "somebody says that a home was copied",
                    lambda: any(COPIED in line for node in cluster.nodes for line in node.snapshot().warnings),
                    timeout_s=15,
                )
                assert len(cluster[0].snapshot().members) == 2
                assert httpx.get(f"{original.url}/health").status_code == 200
            finally:
                clone.end()
            cluster.wait_until_together()

    def test_a_restart_keeps_the_identity(self, cache: Path, tmp_path: Path) -> None:
        node = lone_node(tmp_path, cache)
        try:
            node.start()
            node.wait_until_up()
            me = node.snapshot().me
            node.end()
            node.start()
            node.wait_until_up()
            assert node.snapshot().me == me
        finally:
            node.end()


class TestF2Files:
    def test_a_damaged_weight_file_is_named_and_the_model_never_becomes_ready(
        self, cache: Path, embedded_directory: Path, tmp_path: Path
    ) -> None:
        whole = (embedded_directory / "model.safetensors").stat().st_size
        sizes = {"by-one-byte": whole - 1, "in-half": whole // 2, "empty": 0}
        node = lone_node(tmp_path, cache)
        for name in sizes:
            shutil.copytree(embedded_directory, tmp_path / name)
            node.arguments = (*node.arguments, "--model-dir", str(tmp_path / name))
        try:
            node.start()
            node.wait_until_up()
            for name, size in sizes.items():
                os.truncate(tmp_path / name / "model.safetensors", size)
                model = f"local/{name}"
                assert place(node, model).status_code < 300
                view = wait_for(
                    f"the placement of {name} has failed", lambda model=model: failed_placement(node, model)
                )
                assert "model.safetensors" in view.reason
            assert place(node).status_code < 300
            wait_for("another model is ready", lambda: (found := node.placement()) and found.state == "ready")
        finally:
            node.end()

    def test_a_missing_shard_is_named_at_the_start(self, cache: Path, embedded_directory: Path, tmp_path: Path) -> None:
        damaged = tmp_path / "damaged"
        shutil.copytree(embedded_directory, damaged)
        (damaged / "model.safetensors").unlink()
        node = lone_node(tmp_path, cache)
        node.arguments = (*node.arguments, "--model-dir", str(damaged))
        node.start()
        assert node.running.wait(60) != 0
        assert "model.safetensors" in node.log
        assert "Traceback" not in node.log


class TestZ1Ends:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_signal_ends_the_node_and_its_stages_in_good_order(self, tmp_path: Path, number: signal.Signals) -> None:
        with scripted_ring(tmp_path, 2, Script()) as cluster:
            other, node = sorted(cluster.nodes, key=lambda each: each is not cluster.leader())[::-1]
            children = [child.pid for child in node.children()]
            assert children
            node.send(number)
            assert node.running.wait(10) == 0
            wait_for("its children are gone", lambda: all(map(is_gone, children)), 10)
            assert is_free(node.api_port)
            assert is_free(node.port)
            wait_for("the other sees the leave", lambda: len(other.snapshot().members) == 1, 3)
            node.start()
            node.wait_until_up()
            cluster.wait_until_together()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_signal_ends_it_in_good_order_while_a_stage_loads(self, tmp_path: Path, number: signal.Signals) -> None:
        node = lone_node(tmp_path, tmp_path / "cache")
        node.arguments = (*node.arguments, *scripted_arguments(tmp_path, Script(load_s=30.0)))
        node.start()
        node.wait_until_up()
        try:
            assert place(node, MODEL).status_code < 300
            wait_for("the model is loading", lambda: (found := node.placement(MODEL)) and found.state == "loading")
            wait_for("a stage process", node.stage_processes)
            children = [child.pid for child in node.children()]
            node.send(number)
            assert node.running.wait(10) == 0
            wait_for("its children are gone", lambda: all(map(is_gone, children)), 10)
            assert is_free(node.api_port)
            assert is_free(node.port)
            node.start()
            node.wait_until_up()
        finally:
            node.end()

    @pytest.mark.parametrize("while_loading", [False, True])
    def test_a_second_interrupt_ends_it_at_once(self, tmp_path: Path, while_loading: bool) -> None:
        node = lone_node(tmp_path, tmp_path / "cache")
        script = Script(load_s=30.0 if while_loading else 0.0)
        node.arguments = (*node.arguments, *scripted_arguments(tmp_path, script))
        node.start()
        node.wait_until_up()
        assert place(node, MODEL).status_code < 300
        state = "loading" if while_loading else "ready"
        wait_for(f"the model is {state}", lambda: (found := node.placement(MODEL)) and found.state == state)
        wait_for("a stage process", node.stage_processes)
        children = [child.pid for child in node.children()]
        stage = node.stage_processes()[0]
        stage.send_signal(signal.SIGSTOP)  # one that doesn't end keeps the node busy ending in good order
        node.send(signal.SIGINT)
        wait_for("the node is ending", lambda: "stopping" in node.log, 10)
        node.send(signal.SIGINT)
        assert node.running.wait(10) == 130
        with suppress(psutil.NoSuchProcess):
            stage.resume()
        wait_for("its children are gone", lambda: all(map(is_gone, children)), 5)

    @pytest.mark.parametrize("while_loading", [False, True])
    def test_the_stages_of_a_killed_node_end_by_themselves(self, tmp_path: Path, while_loading: bool) -> None:
        node = lone_node(tmp_path, tmp_path / "cache")
        script = Script(load_s=10.0 if while_loading else 0.0)
        node.arguments = (*node.arguments, *scripted_arguments(tmp_path, script))
        node.start()
        node.wait_until_up()
        try:
            assert place(node, MODEL).status_code < 300
            state = "loading" if while_loading else "ready"
            wait_for(f"the model is {state}", lambda: (found := node.placement(MODEL)) and found.state == state)
            children = wait_for("a stage process", lambda: [child.pid for child in node.children()])
            node.kill()
            wait_for("its children are gone", lambda: all(map(is_gone, children)), 5)
            assert is_free(node.api_port)
            assert is_free(node.port)
            node.start()
            node.wait_until_up()
        finally:
            node.end()


def test_the_demo_answers_and_leaves_nothing_behind(cache: Path) -> None:
    (port,) = free_ports(1)
    environment = os.environ | {"P2PEXO_CACHE": str(cache)}
    command = [sys.executable, "-m", "p2pexo", "demo", "--once", "--api-port", str(port)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tokens per second" in done.stdout
    assert is_free(port)
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(port) in (each.info["cmdline"] or ())]
