from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from networking.charter import MAX_PEERS, Charter, Named, TooManyPeersError, joined, load_charter, save_charter
from networking.pairing_messages import decode, encode
from networking.ticket import Cluster, TicketError
from networking.transport import PeerId

ANNA, BEN, CLEO = PeerId("anna"), PeerId("ben"), PeerId("cleo")
DESK = Charter(Cluster("desk", b"d" * 32))


@pytest.mark.parametrize("cluster", [Cluster("desk", bytes(32)), Cluster("desk")])
def test_the_charter_of_a_home_survives_a_restart(tmp_path: Path, cluster: Cluster) -> None:
    charter = Charter(cluster, 3, False, (ANNA, BEN), frozenset({CLEO}), ("0123456789ab",))
    assert load_charter(tmp_path) is None
    save_charter(tmp_path, charter)
    assert load_charter(tmp_path) == charter
    assert (tmp_path / "cluster.json").stat().st_mode & 0o777 == 0o600


def test_a_home_of_the_first_version_is_not_fresh(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"name": "desk", "secret": null}')
    assert load_charter(tmp_path) == Charter(Cluster("desk"))


def test_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"name": "desk", "secret": null, "colour": "blue", "number": 2}')
    assert load_charter(tmp_path) == Charter(Cluster("desk"), 2)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"name": "desk", "secret": "AAAA"}'])
def test_damaged_settings_are_refused_and_left_alone(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "cluster.json").write_bytes(damage)
    with pytest.raises(TicketError, match=r"cluster\.json is damaged"):
        load_charter(tmp_path)
    assert (tmp_path / "cluster.json").read_bytes() == damage


def test_whoever_met_others_is_fresh_no_more() -> None:
    fresh = evolve(DESK, fresh=True)
    assert fresh.met([]) is fresh
    assert not fresh.met([ANNA]).fresh
    assert fresh.met([ANNA]).admits(ANNA)


def test_who_was_removed_is_known_no_more_and_never_met_again() -> None:
    charter = DESK.met([ANNA, BEN]).without([ANNA])
    assert (charter.admits(ANNA), charter.admits(BEN), charter.met([ANNA])) == (False, True, charter)


def test_members_are_remembered_by_name_until_they_are_removed(tmp_path: Path) -> None:
    names = [Named(ANNA, "attic", "Apple M1"), Named(CLEO, "a stranger")]
    charter = DESK.met([ANNA, BEN]).introduced(names)
    save_charter(tmp_path, charter)
    assert load_charter(tmp_path) == charter == charter.introduced(names)
    assert charter.names == {ANNA: "attic", BEN: "ben"}
    assert charter.introduced([Named(ANNA, "cellar")]).names[ANNA] == "cellar"
    assert charter.without([ANNA]).named == ()


def test_a_changed_secret_remembers_the_old_one_by_its_fingerprint() -> None:
    changed = DESK.with_secret(b"n" * 32)
    assert evolve(DESK, number=2**53).with_secret(b"n" * 32).to_admission().number == 2**53
    assert changed.rank > DESK.rank
    assert changed.former == (DESK.cluster.fingerprint,)


def test_the_secret_that_was_changed_more_often_counts() -> None:
    newer = DESK.met([BEN]).without([ANNA]).with_secret(b"n" * 32)
    renewed = DESK.met([ANNA, CLEO]).renewed(newer.to_admission(), ANNA)
    assert renewed.cluster == newer.cluster
    assert (renewed.removed, set(renewed.known)) == ({ANNA}, {BEN, CLEO})
    assert newer.renewed(DESK.to_admission(), ANNA).cluster == newer.cluster


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["remove", "hear"]), st.integers(0, 2)), max_size=12))
def test_whoever_hears_of_all_changes_has_the_same_charter_in_the_end(steps: list[tuple[int, str, int]]) -> None:
    charters = [DESK, DESK, DESK]
    for number, (who, what, whom) in enumerate(steps):
        if what == "remove":
            charters[who] = charters[who].without([PeerId(f"peer-{number}")]).with_secret(bytes([number + 1]) * 32)
        else:
            charters[who] = charters[who].renewed(charters[whom].to_admission(), ANNA)
    for _ in range(2):
        for who in range(3):
            for whom in range(3):
                charters[who] = charters[who].renewed(charters[whom].to_admission(), ANNA)
    assert len({(each.rank, each.cluster, each.removed) for each in charters}) == 1


def test_a_newcomer_knows_whom_it_may_trust_later() -> None:
    admission = DESK.met([BEN, CLEO]).without([PeerId("mallory")]).to_admission()
    charter = joined(admission, ANNA, CLEO)
    assert (charter.cluster, charter.known, charter.removed) == (DESK.cluster, (ANNA, BEN), {"mallory"})
    assert not charter.fresh


def test_an_admission_comes_over_the_wire() -> None:
    admission = DESK.met([BEN]).to_admission()
    assert decode(encode(admission)) == admission


def test_what_is_remembered_is_bounded() -> None:
    many = [PeerId(f"peer-{number}") for number in range(MAX_PEERS + 1)]
    assert len(DESK.met(many).known) == MAX_PEERS
    with pytest.raises(TooManyPeersError, match="make a new cluster"):
        DESK.without(many)
