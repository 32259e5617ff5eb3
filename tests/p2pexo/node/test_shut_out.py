from pathlib import Path

import pytest

from networking.charter import Charter
from networking.ticket import Cluster
from networking.transport import PeerId
from p2pexo.node.belonging import Belonging
from p2pexo.node.shut_out import NOTE_FILE, REMOVED, ShutOut

ME, STUDIO = PeerId("me"), PeerId("studio")
DESK = Charter(Cluster("desk", b"d" * 32), known=(STUDIO,))


def shut_out(home: Path, charter: Charter = DESK) -> ShutOut:
    return ShutOut(home, ME, Belonging(home, charter))


def test_what_a_member_said_is_known_at_the_next_start(tmp_path: Path) -> None:
    before = shut_out(tmp_path)
    assert (before.reason, before.is_for_good) == ("", False)
    before.note("it was sold")
    assert before.reason == "it was sold"
    after = shut_out(tmp_path)
    assert (after.reason, after.is_for_good) == ("it was sold", False)


def test_it_means_nothing_in_another_cluster_or_with_a_newer_secret(tmp_path: Path) -> None:
    shut_out(tmp_path).note("it was sold")
    assert shut_out(tmp_path, Charter(Cluster("attic", b"a" * 32))).reason == ""
    assert shut_out(tmp_path, DESK.with_secret(b"n" * 32)).reason == ""


def test_who_is_told_to_be_removed_by_the_charter_stays_so(tmp_path: Path) -> None:
    shut_out(tmp_path).note("it was sold")
    removed = shut_out(tmp_path, DESK.without([ME]))
    assert (removed.reason, removed.is_for_good) == (REMOVED, True)


@pytest.mark.parametrize("content", ["", "{}", '{"fingerprint": 1', "\0"])
def test_a_damaged_note_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / NOTE_FILE).write_text(content)
    assert shut_out(tmp_path).reason == ""


def test_a_home_that_can_not_be_written_to_forgets_only_at_the_end(tmp_path: Path) -> None:
    home = tmp_path / "gone"
    this_run = shut_out(home)
    this_run.note("it was sold")
    assert this_run.reason == "it was sold"
    assert shut_out(home).reason == ""
