from attrs import evolve

from networking.discovery import REPEAT_INTERVAL, Sighting
from networking.ticket import Cluster
from networking.transport import Address, PeerId
from networking.wire import PROTOCOL_VERSION
from p2pexo.node.notices import MAX_STRANGERS, STRANGER_KEPT_S, TURNED_AWAY_KEPT_S, Notices

THEIRS = Sighting(PeerId("12D3KooWStranger"), (), "attic", "f", PROTOCOL_VERSION)

DESK = Cluster.new("desk")
OTHER = PeerId("12D3KooWOther")


def test_other_clusters_are_spoken_of_until_they_have_not_been_seen_for_a_while() -> None:
    now = 0.0
    notices = Notices(lambda: DESK, clock=lambda: now)
    notices.add_stranger(THEIRS)
    now = STRANGER_KEPT_S - 1
    notices.add_stranger(evolve(THEIRS, peer=OTHER, cluster="fair", fingerprint="g"))
    assert [("attic" in line, "fair" in line) for line in notices.lines()] == [(True, False), (False, True)]
    now = STRANGER_KEPT_S
    (line,) = notices.lines()
    assert "fair" in line


def test_a_cluster_that_is_gone_makes_room_for_another() -> None:
    now = 0.0
    notices = Notices(lambda: DESK, clock=lambda: now)
    for number in range(MAX_STRANGERS):
        notices.add_stranger(evolve(THEIRS, peer=PeerId(f"{number}"), fingerprint=f"{number}"))
    now = STRANGER_KEPT_S
    notices.add_stranger(evolve(THEIRS, peer=OTHER, cluster="fair", fingerprint="g"))
    (line,) = notices.lines()
    assert "fair" in line


def test_who_was_turned_away_is_spoken_of_for_a_while_and_only_so_many_are() -> None:
    now = 0.0
    notices = Notices(lambda: DESK, clock=lambda: now)
    for number in range(100):
        notices.add_turned_away(Address(f"/ip4/10.0.0.{number}/tcp/1"), "it has another secret")
    assert len(notices.lines()) == MAX_STRANGERS
    assert notices.lines()[0] == "10.0.0.0 dialled this node and was turned away: it has another secret"
    now = TURNED_AWAY_KEPT_S
    assert notices.lines() == ()


def test_a_cluster_that_is_there_is_seen_again_in_time() -> None:
    assert 2 * REPEAT_INTERVAL < STRANGER_KEPT_S


def test_a_cluster_of_several_nodes_is_one_line_and_ends_when_they_have_joined_ours() -> None:
    notices = Notices(lambda: DESK, clock=lambda: 0.0)
    notices.add_stranger(THEIRS)
    notices.add_stranger(evolve(THEIRS, peer=OTHER))
    assert len(notices.lines()) == 1
    notices.forget_stranger(THEIRS.peer)
    assert len(notices.lines()) == 1
    notices.forget_stranger(OTHER)
    assert notices.lines() == ()


def test_a_node_that_joined_the_others_no_longer_speaks_of_them() -> None:
    joined = Cluster.new("attic")
    notices = Notices(lambda: joined, clock=lambda: 0.0)
    notices.add_stranger(evolve(THEIRS, fingerprint=joined.fingerprint))
    assert notices.lines() == ()


def test_a_fresh_node_is_no_cluster_to_speak_of() -> None:
    notices = Notices(lambda: DESK, clock=lambda: 0.0)
    notices.add_stranger(evolve(THEIRS, fresh=True))
    assert notices.lines() == ()


def test_a_node_that_was_removed_says_so() -> None:
    notices = Notices(lambda: DESK, lambda: "it was sold", lambda: 0.0)
    assert notices.lines() == ("this node is no longer let into 'desk': it was sold",)


def test_peers_of_another_version_are_named_whatever_their_cluster_until_they_are_updated_or_gone() -> None:
    now = 0.0
    notices = Notices(lambda: DESK, clock=lambda: now)
    ours = evolve(THEIRS, fingerprint=DESK.fingerprint)
    notices.add_version(ours)
    assert notices.lines() == ()
    older = PROTOCOL_VERSION - 1
    for peer in (OTHER, THEIRS.peer):
        notices.add_version(evolve(ours, peer=peer, version=older))
        assert f"peer {peer} speaks protocol {older}, this node {PROTOCOL_VERSION}" in notices.lines()[-1]
    notices.add_version(ours)
    (line,) = notices.lines()
    assert OTHER in line
    now = STRANGER_KEPT_S
    assert notices.lines() == ()


def test_somebody_who_makes_up_peers_of_another_version_makes_only_so_many_lines() -> None:
    notices = Notices(lambda: DESK, clock=lambda: 0.0)
    for number in range(100):
        notices.add_version(evolve(THEIRS, peer=PeerId(f"{number}"), version=99))
    assert len(notices.lines()) == MAX_STRANGERS
