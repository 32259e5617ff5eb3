from pathlib import Path

from networking.charter import Charter, load_charter
from networking.ticket import Cluster, Ticket
from networking.transport import Address, PeerId
from p2pexo.node.belonging import choose_belonging
from p2pexo.node.settings import NodeSettings


def choose_charter(settings: NodeSettings, ticket: Ticket | None = None) -> Charter:
    return choose_belonging(settings, ticket).charter


def choose_cluster(settings: NodeSettings, ticket: Ticket | None = None) -> Cluster:
    return choose_charter(settings, ticket).cluster


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


def test_only_a_cluster_that_a_first_start_made_is_fresh(tmp_path: Path) -> None:
    peer = PeerId("12D3KooWC9dwWUD23EThBcLDcAkN1CbZdb4Aqgo5Ugk8oR1YZXEY")
    ticket = Ticket(Cluster.new("theirs"), peer, ())
    homes = [tmp_path / name for name in ("plain", "secret", "ticket", "open")]
    for home in homes:
        home.mkdir()
    plain, secret, joined, opened = homes
    assert choose_charter(NodeSettings(home=plain)).fresh
    assert choose_charter(NodeSettings(home=plain)).fresh
    assert not choose_charter(NodeSettings(home=secret, cluster="desk", secret="correct horse battery")).fresh
    assert choose_charter(NodeSettings(home=joined, join=str(ticket)), ticket).known == (peer,)
    assert not choose_charter(NodeSettings(home=joined)).fresh
    assert not choose_charter(NodeSettings(home=opened, open=True)).fresh
    assert choose_charter(NodeSettings(home=opened)).fresh


def test_a_secret_that_was_changed_is_not_brought_back_by_a_flag(tmp_path: Path) -> None:
    told = NodeSettings(home=tmp_path, cluster="desk", secret="correct horse battery")
    belonging = choose_belonging(told, None)
    belonging.change(belonging.charter.with_secret(b"n" * 32))
    assert choose_cluster(told).secret == b"n" * 32
    other = NodeSettings(home=tmp_path, cluster="desk", secret="another passphrase")
    assert choose_cluster(other) == Cluster.from_passphrase("desk", "another passphrase")


def test_a_change_is_kept_and_told(tmp_path: Path) -> None:
    peer = PeerId("12D3KooWC9dwWUD23EThBcLDcAkN1CbZdb4Aqgo5Ugk8oR1YZXEY")
    belonging = choose_belonging(NodeSettings(home=tmp_path), None)
    told: list[tuple[Charter, Charter]] = []
    belonging.follow(lambda before, after: told.append((before, after)))
    before, after = belonging.charter, belonging.charter.met([peer])
    belonging.change(after)
    belonging.change(after)
    assert told == [(before, after)]
    assert load_charter(tmp_path) == after


def test_what_an_open_run_learns_of_its_members_is_kept_without_its_cluster(tmp_path: Path) -> None:
    peer = PeerId("12D3KooWC9dwWUD23EThBcLDcAkN1CbZdb4Aqgo5Ugk8oR1YZXEY")
    kept = choose_charter(NodeSettings(home=tmp_path))
    belonging = choose_belonging(NodeSettings(home=tmp_path, open=True), None)
    belonging.change(belonging.charter.met([peer]))
    found = choose_charter(NodeSettings(home=tmp_path))
    assert (found.cluster, found.known, found.fresh) == (kept.cluster, (peer,), False)
