import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from p2pexo.engine.blas import BlasError, BlasSource, SystemFacts, choose_blas, look_round, prepare_blas
from p2pexo.engine.environment import private_directory, stage_environment

LINUX = SystemFacts("Linux", 8, Path("/usr/lib/libopenblas.so.0"), Path("/wheel/libscipy_openblas.so"), Path("/bin/cc"))
SYSTEM, WHEEL, REFERENCE = BlasSource.SYSTEM, BlasSource.WHEEL, BlasSource.REFERENCE

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="preloading is for Linux")


@pytest.mark.parametrize(
    ("setting", "facts", "expected"),
    [
        ("auto", LINUX, (SYSTEM, WHEEL, REFERENCE)),
        ("auto", evolve(LINUX, system_openblas=None), (WHEEL, REFERENCE)),
        ("auto", evolve(LINUX, compiler=None), (SYSTEM, REFERENCE)),
        ("auto", evolve(LINUX, system_openblas=None, wheel_openblas=None), (REFERENCE,)),
        ("reference", LINUX, (REFERENCE,)),
        ("/opt/libmine.so", LINUX, (BlasSource.PATH,)),
        ("auto", SystemFacts("Darwin"), (BlasSource.ACCELERATE,)),
        ("reference", SystemFacts("Darwin"), (BlasSource.ACCELERATE,)),
    ],
)
def test_what_is_tried_in_which_order(setting: str, facts: SystemFacts, expected: tuple[BlasSource, ...]) -> None:
    assert choose_blas(setting, facts) == expected


@on_linux
def test_auto_passes_over_what_does_not_work_and_says_what_the_rest_costs(tmp_path: Path) -> None:
    broken = tmp_path / "libopenblas.so.0"
    broken.write_bytes(b"no library")
    blas = prepare_blas("auto", tmp_path, SystemFacts("Linux", 4, system_openblas=broken))
    assert (blas.name, blas.preload, blas.threads) == ("reference", None, 2)
    assert "20 times" in blas.cost


@on_linux
@pytest.mark.parametrize("content", [None, b"no library"])
def test_a_given_path_that_does_not_work_is_an_error_that_names_it(tmp_path: Path, content: bytes | None) -> None:
    library = tmp_path / "libmine.so"
    if content is not None:
        library.write_bytes(content)
    with pytest.raises(BlasError, match=r"libmine\.so"):
        prepare_blas(str(library), tmp_path)


@on_linux
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_shim_truly_takes_over_the_matrix_product(tmp_path: Path) -> None:
    facts = evolve(look_round(), system_openblas=None)
    blas = prepare_blas("auto", tmp_path, facts)
    assert blas.preload is not None
    built = blas.preload.stat().st_mtime_ns
    assert prepare_blas("auto", tmp_path, facts).preload == blas.preload
    assert blas.preload.stat().st_mtime_ns == built
    code = "from p2pexo.engine.blas import active_blas; print(active_blas())"
    environment = stage_environment(os.environ, blas, tmp_path / "tmp")
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "openblas"
    assert told.stderr == ""


def test_the_users_own_settings_stay(tmp_path: Path) -> None:
    blas = prepare_blas("reference", tmp_path, LINUX)
    assert stage_environment({"A": "1"}, blas, tmp_path / "t") == {"A": "1", "TMPDIR": str(tmp_path / "t")}
    preloading = evolve(blas, preload=Path("/x.so"), threads=3)
    base = {"LD_PRELOAD": "/mine.so", "OPENBLAS_NUM_THREADS": "7"}
    environment = stage_environment(base, preloading, tmp_path / "t")
    assert environment["LD_PRELOAD"] == "/x.so:/mine.so"
    assert environment["OPENBLAS_NUM_THREADS"] == "7"
    assert stage_environment({}, preloading, tmp_path / "t")["OPENBLAS_NUM_THREADS"] == "3"


def test_the_nodes_secrets_are_left_out(tmp_path: Path) -> None:
    base = {"P2PEXO_SECRET": "s", "P2PEXO_JOIN": "t", "P2PEXO_API_KEY": "k", "A": "1"}
    blas = prepare_blas("reference", tmp_path, LINUX)
    assert stage_environment(base, blas, tmp_path / "t") == {"A": "1", "TMPDIR": str(tmp_path / "t")}


def test_a_private_directory_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert stat.S_IMODE(private_directory(folder).stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(PermissionError, match="link"):
        private_directory(tmp_path / "link")
