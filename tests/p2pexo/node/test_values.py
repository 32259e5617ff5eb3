from collections.abc import Callable

import pytest

from p2pexo.node.values import (
    MemoryBudget,
    format_size,
    parse_address,
    parse_duration,
    parse_keep_alive,
    parse_listen_address,
    parse_peer_address,
    parse_size,
)

PEER = "12D3KooWC9dwWUD23EThBcLDcAkN1CbZdb4Aqgo5Ugk8oR1YZXEY"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8GB", 8 * 10**9),
        ("8 gb", 8 * 10**9),
        ("7.5GiB", int(7.5 * 2**30)),
        ("512M", 512 * 10**6),
        ("1000", 1000),
        ("3kib", 3072),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, count: int):
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "8XB", "-1GB", "8 GB RAM", "eight", "1e9", "8I"])
def test_a_size_that_is_none_is_named_in_the_error(text: str):
    with pytest.raises(ValueError, match="is not a size; write one like 8GB") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "2 kB"),
        (41_234_567, "41.2 MB"),
        (160_000_000, "160 MB"),
        (5_600_000_000, "5.6 GB"),
        (2_000_000_000_000_000, "2000 TB"),
    ],
)
def test_sizes_are_shown_with_few_digits(count: int, text: str):
    assert format_size(count) == text


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_durations_have_units(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5d", "1h30m"])
def test_a_duration_that_is_none_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("300", 300), ("5m", 300), ("1h30m", 5400), ("-1", -1)])
def test_a_keep_alive_is_read_as_ollama_reads_it(text: str, seconds: float):
    assert parse_keep_alive(text) == seconds


@pytest.mark.parametrize("text", ["", "for ever", "5 m", "5d"])
def test_a_keep_alive_that_is_none_is_refused(text: str):
    with pytest.raises(ValueError, match="5m or 300"):
        parse_keep_alive(text)


def test_a_memory_budget_is_a_size_or_a_share():
    assert MemoryBudget.parse("8GB").of(16_000_000_000) == 8_000_000_000
    assert MemoryBudget.parse("25%").of(16_000_000_000) == 4_000_000_000


def test_a_memory_budget_never_exceeds_the_machine():
    assert MemoryBudget.parse("64GB").of(16_000_000_000) == 16_000_000_000


@pytest.mark.parametrize("text", ["0%", "101%", "%", "-5%", "half", "0", "0GB", "nan%", "inf%"])
def test_a_memory_budget_that_makes_no_sense_is_refused(text: str):
    with pytest.raises(ValueError, match=text):
        MemoryBudget.parse(text)


@pytest.mark.parametrize("text", ["8GB", "70%", "12.5%", "7.5GiB"])
def test_a_memory_budget_reads_what_it_shows(text: str):
    budget = MemoryBudget.parse(text)
    assert MemoryBudget.parse(str(budget)) == budget


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.168.1.7:52416", "/ip4/192.168.1.7/tcp/52416"),
        ("[fe80::1]:52416", "/ip6/fe80::1/tcp/52416"),
        ("mac-studio.local:52416", "/dns/mac-studio.local/tcp/52416"),
        ("/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/1"),
    ],
)
def test_addresses_are_host_and_port_or_multiaddrs(text: str, address: str):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":1",
        "host:x",
        "host:70000",
        "a b:1",
        "/ip4/1.2.3.4/udp/1",
        "/ip4/1.2.3.4",
        "/ip4/999.1.1.1/tcp/1",
        "/ip4/::1/tcp/1",
        "/foo/bar/tcp/1",
        f"/ip4/10.0.0.1/tcp/1/p2p/{PEER}",
    ],
)
@pytest.mark.parametrize("parse", [parse_address, parse_listen_address])
def test_an_address_that_is_none_is_named_in_the_error(text: str, parse: Callable[[str], str]):
    with pytest.raises(ValueError, match="is not an address; write one like") as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_nobody_listens_on_a_name():
    assert parse_listen_address("127.0.0.1:0") == "/ip4/127.0.0.1/tcp/0"
    with pytest.raises(ValueError, match="'localhost:1' names a host"):
        parse_listen_address("localhost:1")


@pytest.mark.parametrize("text", ["studio.local:1", "/ip4/10.0.0.1/tcp/1", f"/ip4/10.0.0.1/tcp/1/p2p/{PEER}"])
def test_an_address_of_a_peer_may_name_it(text: str):
    assert parse_peer_address(text).endswith(f"/tcp/1{text.partition('/tcp/1')[2]}")


@pytest.mark.parametrize("id", ["", "12D3Koo", "0OIl"])
def test_what_is_no_peer_id_is_refused(id: str):
    with pytest.raises(ValueError, match="is not the id of a node"):
        parse_peer_address(f"/ip4/10.0.0.1/tcp/1/p2p/{id}")
