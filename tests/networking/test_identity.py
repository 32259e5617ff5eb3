import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from networking.identity import (
    KEY_FILE,
    HomeInUseError,
    Identity,
    IdentityError,
    peer_id_of,
    public_key_of,
    verify,
    write_privately,
)
from networking.transport import PeerId


def test_a_home_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    Identity.load(home)
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_an_ordinary_restart_keeps_the_peer_id(tmp_path: Path) -> None:
    assert Identity.load(tmp_path).peer_id == Identity.load(tmp_path).peer_id


def test_of_two_first_starts_at_a_time_both_have_the_key_of_the_file(tmp_path: Path) -> None:
    both_write = threading.Barrier(2)

    def write_when_both_are_about_to(path: Path, data: bytes) -> None:
        with suppress(threading.BrokenBarrierError):
            both_write.wait(0.3)
        write_privately(path, data)

    with (
        mock.patch("networking.identity.write_privately", write_when_both_are_about_to),
        ThreadPoolExecutor(2) as threads,
    ):
        found = {each.peer_id for each in threads.map(Identity.load, [tmp_path, tmp_path])}
    assert found == {Identity.load(tmp_path).peer_id}


def test_two_homes_are_two_peers(tmp_path: Path) -> None:
    assert Identity.load(tmp_path / "a").peer_id != Identity.load(tmp_path / "b").peer_id


def test_the_peer_id_is_the_one_libp2p_computes(tmp_path: Path) -> None:
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.peer.id import ID

    identity = Identity.load(tmp_path)
    assert identity.peer_id == str(ID.from_pubkey(create_new_key_pair(identity.seed).public_key))


def test_a_signature_is_checked_against_the_peer_id_alone(tmp_path: Path) -> None:
    identity, stranger = Identity.load(tmp_path / "a"), Identity.load(tmp_path / "b")
    signature = identity.sign(b"fact")
    assert verify(identity.peer_id, b"fact", signature)
    assert not verify(identity.peer_id, b"another fact", signature)
    assert not verify(stranger.peer_id, b"fact", signature)


@pytest.mark.parametrize("nonsense", ["", "not base58: 0OIl", "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"])
def test_a_peer_id_that_holds_no_ed25519_key_verifies_nothing(nonsense: str) -> None:
    assert not verify(PeerId(nonsense), b"fact", b"\0" * 64)


def test_the_public_key_comes_back_out_of_the_peer_id() -> None:
    key = Ed25519PrivateKey.generate().public_key()
    assert public_key_of(peer_id_of(key)) == key


def test_rights_of_others_to_the_key_are_taken_away(tmp_path: Path) -> None:
    peer = Identity.load(tmp_path).peer_id
    (tmp_path / KEY_FILE).chmod(0o644)
    assert Identity.load(tmp_path).peer_id == peer
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_home_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(IdentityError, match=r"chmod go-w"):
        Identity.load(tmp_path)
    assert not (tmp_path / KEY_FILE).exists()


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"\xff" * 36, b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_a_garbage_key_is_refused_and_never_overwritten(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / KEY_FILE
    path.write_bytes(garbage)
    with pytest.raises(IdentityError, match=str(path)):
        Identity.load(tmp_path)
    assert path.read_bytes() == garbage


def test_the_key_is_not_shown(tmp_path: Path) -> None:
    identity = Identity.load(tmp_path)
    assert repr(identity) == f"Identity(home={tmp_path!r})"


def test_a_second_start_on_the_same_home_is_refused_and_names_home_and_process(tmp_path: Path) -> None:
    identity = Identity.load(tmp_path)
    program = (
        "import sys; from pathlib import Path; from networking.identity import *\n"
        "try:\n with Identity.load(Path(sys.argv[1])).locked(): print('in')\n"
        "except HomeInUseError as error: print(error)\n"
    )
    start = [sys.executable, "-c", program, str(tmp_path)]
    with identity.locked():
        refusal = subprocess.run(start, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) in refusal
    assert str(os.getpid()) in refusal
    assert subprocess.run(start, capture_output=True, text=True, check=True).stdout == "in\n"


def test_the_lock_is_free_again_when_given_back(tmp_path: Path) -> None:
    identity = Identity.load(tmp_path)
    with identity.locked(), pytest.raises(HomeInUseError), identity.locked():
        pass
    with identity.locked():
        pass


def test_a_file_is_replaced_at_one_stroke_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_privately(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with mock.patch("os.fsync", side_effect=OSError("disk full")), pytest.raises(OSError, match="disk full"):
        write_privately(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_peer_id_does_not_cost_an_import_of_libp2p() -> None:
    program = "import sys, networking.identity; print('libp2p' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )
