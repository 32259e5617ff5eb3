import subprocess
import sys

import pytest

from p2pexo.node import parts
from p2pexo.node.parts import access_rules, is_dense, reachable_url, stage_hosts
from p2pexo.node.settings import NodeSettings


@pytest.mark.parametrize(
    ("url", "hosts", "expected"),
    [
        ("http://127.0.0.1:52415", ("192.168.1.7",), "http://127.0.0.1:52415"),
        ("http://0.0.0.0:52415", ("192.168.1.7", "10.0.0.2"), "http://192.168.1.7:52415"),
        ("http://[::]:52415", ("fd00::7",), "http://[fd00::7]:52415"),
    ],
)
def test_an_api_on_all_addresses_is_told_by_one_that_others_can_reach(
    url: str, hosts: tuple[str, ...], expected: str
) -> None:
    assert reachable_url(url, hosts) == expected


def test_a_node_never_loads_mlx() -> None:
    code = "import sys, p2pexo.node.run; assert not {'mlx', 'mlx_lm', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        (NodeSettings(loopback=True), ("127.0.0.1",)),
        (NodeSettings(listen=("/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0")), ("127.0.0.1", "::1")),
        (NodeSettings(listen=("/ip4/10.0.0.5/tcp/1", "/ip4/10.0.0.5/tcp/2")), ("10.0.0.5",)),
        (NodeSettings(), ("192.168.1.7",)),
        (NodeSettings(listen=("/ip4/10.0.0.5/tcp/1", "/ip6/::/tcp/1")), ("192.168.1.7",)),
    ],
)
def test_stages_listen_where_the_overlay_does(
    monkeypatch: pytest.MonkeyPatch, settings: NodeSettings, hosts: tuple[str, ...]
) -> None:
    monkeypatch.setattr(parts, "link_hosts", lambda: ("192.168.1.7",))
    assert stage_hosts(settings) == hosts


@pytest.mark.parametrize(("precision", "dense"), [("dequantise", True), ("keep", False)])
def test_the_planner_is_told_how_large_weights_get(precision: str, dense: bool) -> None:
    assert is_dense(precision) is dense


def test_the_settings_of_the_api_reach_its_rules() -> None:
    rules = access_rules(
        NodeSettings(allow_hosts=("Chat.Example",), allow_origins=("https://chat.example",), api_key="k")
    )
    assert rules.allowed_hosts == {"chat.example"}
    assert rules.allowed_origins == {"https://chat.example"}
    assert rules.api_key == "k"
