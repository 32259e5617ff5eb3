import ipaddress

import pytest
from attrs import evolve

from p2pexo.cluster import resources
from p2pexo.cluster.reporter import MEANINGFUL_SHARE, is_worth_telling


def test_a_node_measures_itself() -> None:
    facts = resources.measure("mini", version="1", api_url="http://x", memory_budget=5, link_hosts=("127.0.0.1",))
    assert facts.name == "mini"
    assert facts.memory_budget == 5
    assert 0 < facts.memory_free <= facts.memory_total
    assert facts.machine.endswith("GB")
    assert facts.device in ("cpu", "gpu")


@pytest.mark.parametrize(
    ("system", "machine", "device"),
    [("Darwin", "arm64", "gpu"), ("Darwin", "x86_64", "cpu"), ("Linux", "arm64", "cpu")],
)
def test_metal_is_on_apple_silicon_only(monkeypatch, system: str, machine: str, device: str) -> None:
    monkeypatch.setattr(resources.platform, "system", lambda: system)
    monkeypatch.setattr(resources.platform, "machine", lambda: machine)
    assert resources.device() == device


def test_link_hosts_are_addresses_that_others_may_dial() -> None:
    hosts = [ipaddress.ip_address(host) for host in resources.link_hosts()]
    assert hosts
    assert not any(host.is_link_local for host in hosts)
    assert [host.version for host in hosts] == sorted(host.version for host in hosts)


def test_only_a_meaningful_change_of_free_memory_is_told() -> None:
    told = resources.measure("mini", version="1", api_url="", memory_budget=5, link_hosts=())
    step = int(told.memory_total * MEANINGFUL_SHARE)
    assert not is_worth_telling(told, told)
    assert not is_worth_telling(told, evolve(told, memory_free=told.memory_free - step // 2))
    assert is_worth_telling(told, evolve(told, memory_free=told.memory_free - step - 1))
    assert is_worth_telling(told, evolve(told, api_url="http://elsewhere"))
