from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from networking.identity import Identity
from networking.ticket import Cluster, Ticket, TicketError
from networking.transport import Address, PeerId

PEER = PeerId("12D3KooWBhSTC2GAk7u9AV1jzk9gCBBsm2EsxNpNbnRVhxfSMvsQ")
ADDRESSES = (Address("/ip4/192.168.1.7/tcp/52416"), Address("/ip6/fd00::1/tcp/52416"))


def ticket() -> Ticket:
    return Ticket(Cluster("desk", bytes(range(32))), PEER, ADDRESSES)


def test_the_key_depends_on_name_and_secret() -> None:
    keys = {
        Cluster("desk", b"a" * 32).network_key,
        Cluster("desk", b"b" * 32).network_key,
        Cluster("lab", b"a" * 32).network_key,
        Cluster("desk").network_key,
        Cluster("lab").network_key,
    }
    assert len(keys) == 5


def test_the_key_has_the_form_that_libp2p_wants() -> None:
    assert len(bytes.fromhex(Cluster.new("desk").network_key)) == 32


def test_peers_that_know_the_name_share_the_key_of_an_open_cluster() -> None:
    assert Cluster("desk").network_key == Cluster("desk").network_key
    assert Cluster("desk").open


def test_two_new_clusters_of_one_name_differ() -> None:
    assert Cluster.new("desk").network_key != Cluster.new("desk").network_key


def test_a_passphrase_makes_the_same_cluster_everywhere() -> None:
    assert Cluster.from_passphrase("desk", "correct horse") == Cluster.from_passphrase("desk", "correct horse")
    assert Cluster.from_passphrase("desk", "correct horse") != Cluster.from_passphrase("lab", "correct horse")


@pytest.mark.parametrize(("passphrase", "is_short"), [("hunter2", True), ("correct horse battery", False)])
def test_a_passphrase_that_is_easily_guessed_is_warned_of(
    passphrase: str, is_short: bool, caplog: pytest.LogCaptureFixture
) -> None:
    Cluster.from_passphrase("desk", passphrase)
    assert ("can try to guess" in caplog.text) == is_short
    assert passphrase not in caplog.text


def test_an_empty_passphrase_is_refused() -> None:
    with pytest.raises(TicketError, match="open cluster"):
        Cluster.from_passphrase("desk", "")


def test_the_fingerprint_tells_nothing_of_the_key() -> None:
    cluster = Cluster.new("desk")
    assert cluster.fingerprint not in cluster.network_key
    assert len(cluster.fingerprint) == 12


@pytest.mark.parametrize("name", ["", "-desk", "a" * 64, "line\nbreak", "dé"])
def test_a_name_that_would_cause_trouble_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(TicketError, match="cluster's name"):
        Cluster(name)


def test_a_secret_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(TicketError, match="32 bytes, not 5"):
        Cluster("desk", b"short")


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(Cluster.new("desk"))


@given(st.binary(min_size=32, max_size=32) | st.none(), st.lists(st.text(), max_size=4))
def test_a_ticket_survives_being_written_down(secret: bytes | None, addresses: list[str]) -> None:
    written = Ticket(Cluster("desk", secret), PEER, tuple(Address(address) for address in addresses))
    assert Ticket.parse(str(written)) == written


def test_a_ticket_needs_no_quoting_anywhere() -> None:
    assert str(ticket()).replace("-", "").replace("_", "").isalnum()


def test_line_breaks_from_a_chat_window_do_not_matter() -> None:
    text = str(ticket())
    assert Ticket.parse(f" {text[:40]}\n  {text[40:]}\n") == ticket()


@pytest.mark.parametrize("position", [10, 50, -1])
def test_a_mistyped_ticket_is_noticed(position: int) -> None:
    text = list(str(ticket()))
    text[position] = "A" if text[position] != "A" else "B"
    with pytest.raises(TicketError, match="cut off or mistyped"):
        Ticket.parse("".join(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with cluster1"),
        ("hello", "begins with cluster1"),
        ("cluster2abcdef", "another version"),
        ("cluster1", "cut off"),
        ("cluster1a*b", "mistyped"),
        (str(ticket())[:-5], "cut off or mistyped"),
    ],
)
def test_what_is_no_ticket_is_refused_in_plain_words(text: str, reason: str) -> None:
    with pytest.raises(TicketError, match=reason):
        Ticket.parse(text)


def test_a_whole_ticket_with_a_peer_that_is_none_is_refused() -> None:
    with pytest.raises(TicketError, match="something unknown"):
        Ticket.parse(str(Ticket(Cluster("desk"), PeerId("nobody"), ())))


def test_a_ticket_made_from_a_real_identity_can_be_read(tmp_path: Path) -> None:
    written = Ticket(Cluster.new("desk"), Identity.load(tmp_path).peer_id, ADDRESSES)
    assert Ticket.parse(str(written)) == written
