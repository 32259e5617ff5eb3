from pathlib import Path

from networking.ticket import Cluster, Ticket
from networking.transport import Address, PeerId
from p2pexo.node.belonging import choose_cluster
from p2pexo.node.settings import NodeSettings


def test_the_first_start_makes_a_cluster_with_a_secret_and_the_next_one_finds_it(tmp_path: Path) -> None:
    settings = NodeSettings(home=tmp_path, name="Anna's Mac")
    first = choose_cluster(settings, None)
    assert first.secret is not None
    assert first.name.startswith("Anna-s-Mac-")
    assert choose_cluster(settings, None) == first


def test_a_ticket_is_kept(tmp_path: Path) -> None:
    peer = PeerId("12D3KooWC9dwWUD23EThBcLDcAkN1CbZdb4Aqgo5Ugk8oR1YZXEY")
    ticket = Ticket(Cluster.new("theirs"), peer, (Address("/ip4/10.0.0.2/tcp/52416"),))
    choose_cluster(NodeSettings(home=tmp_path), None)
    assert choose_cluster(NodeSettings(home=tmp_path, join=str(ticket)), ticket) == ticket.cluster
    assert choose_cluster(NodeSettings(home=tmp_path), None) == ticket.cluster


def test_the_same_name_and_secret_make_the_same_cluster_anywhere(tmp_path: Path) -> None:
    one = NodeSettings(home=tmp_path / "one", cluster="desk", secret="correct horse")
    two = NodeSettings(home=tmp_path / "two", cluster="desk", secret="correct horse")
    for settings in (one, two):
        settings.home.mkdir()
    assert choose_cluster(one, None).network_key == choose_cluster(two, None).network_key


def test_another_name_is_another_cluster_with_a_secret_of_its_own(tmp_path: Path) -> None:
    desk = choose_cluster(NodeSettings(home=tmp_path, cluster="desk"), None)
    attic = choose_cluster(NodeSettings(home=tmp_path, cluster="attic"), None)
    assert attic.secret not in (None, desk.secret)


def test_open_means_no_secret_for_this_run_alone(tmp_path: Path) -> None:
    first = choose_cluster(NodeSettings(home=tmp_path, open=True), None)
    closed = choose_cluster(NodeSettings(home=tmp_path), None)
    assert first.open
    assert not closed.open
    assert closed.name == first.name


def test_open_leaves_the_kept_secret_alone(tmp_path: Path) -> None:
    kept = choose_cluster(NodeSettings(home=tmp_path, cluster="desk"), None)
    assert choose_cluster(NodeSettings(home=tmp_path, open=True), None) == Cluster("desk")
    assert choose_cluster(NodeSettings(home=tmp_path, open=True, cluster="fair"), None) == Cluster("fair")
    assert choose_cluster(NodeSettings(home=tmp_path), None) == kept


def test_an_open_cluster_that_was_joined_by_ticket_is_kept(tmp_path: Path) -> None:
    peer = PeerId("12D3KooWC9dwWUD23EThBcLDcAkN1CbZdb4Aqgo5Ugk8oR1YZXEY")
    ticket = Ticket(Cluster("fair"), peer, ())
    choose_cluster(NodeSettings(home=tmp_path, join=str(ticket)), ticket)
    assert choose_cluster(NodeSettings(home=tmp_path), None) == ticket.cluster
