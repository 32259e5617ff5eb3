"""Gives scipy-openblas32's matrix product the standard name, and proves that a library to be preloaded works."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_TIMEOUT_S = 30

_SOURCE = """\
/* OpenBLAS as the scipy project builds it has a prefix on all names; MLX calls the product by its standard one. */
extern void scipy_cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                              const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    scipy_cblas_sgemm(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
"""

_PROBE = """\
import ctypes
row_major, as_is = 101, 111
two_by_two = ctypes.c_float * 4
a, b, c = two_by_two(1, 2, 3, 4), two_by_two(5, 6, 7, 8), two_by_two()
one, zero = ctypes.c_float(1), ctypes.c_float(0)
ctypes.CDLL(None).cblas_sgemm(row_major, as_is, as_is, 2, 2, 2, one, a, 2, b, 2, zero, c, 2)
assert list(c) == [19, 22, 43, 50], list(c)
"""
"""Run in a process of its own: a library with other integer sizes may crash rather than miscalculate."""


class BlasError(Exception):
    """The library can't be built or used; the message says which, and why."""


def build_shim(openblas: Path, compiler: Path, cache: Path) -> Path:
    """A library with ``cblas_sgemm`` on top of ``openblas``; built once, then taken from ``cache``. Raises BlasError."""
    stamp = f"{_SOURCE}{openblas.resolve()}{openblas.stat().st_size}"
    library = cache / f"openblas-shim-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=cache) as work:
        source, built = Path(work) / "shim.c", Path(work) / library.name
        source.write_text(_SOURCE, encoding="ascii")
        folder = openblas.resolve().parent
        command = [compiler, "-O2", "-shared", "-fPIC", source, "-o", built]
        command += [f"-L{folder}", f"-l:{openblas.name}", f"-Wl,-rpath,{folder}"]
        _run(command, {}, f"{compiler} can't build the OpenBLAS shim")
        built.replace(library)
    return library


def check_preload(library: Path) -> None:
    """Raises BlasError unless a process that preloads ``library`` multiplies matrices by ``cblas_sgemm`` correctly."""
    if not library.is_file():
        raise BlasError(f"{library} does not exist")
    environment = {"LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1"}
    _run([sys.executable, "-I", "-c", _PROBE], environment, f"{library} has no working cblas_sgemm")


def _run(command: list[str | Path], environment: dict[str, str], problem: str) -> None:
    try:
        subprocess.run(
            command, env={**os.environ, **environment}, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise BlasError(f"{problem}: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BlasError(f"{problem}: {error}") from error
