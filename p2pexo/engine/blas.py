"""Which BLAS MLX computes with on a Linux CPU.

MLX's wheel for Linux brings the reference BLAS, whose matrix product is some 17 times slower than OpenBLAS's. It calls it by
the standard name, ``cblas_sgemm``, so a library preloaded into the stage process takes its place. This module chooses:
``choose_blas`` is pure; ``prepare_blas`` looks round, builds what is needed, and checks that it truly works.
"""

import ctypes
import os
import platform
import shutil
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

import structlog
from attrs import frozen

from p2pexo.engine.blas_shim import BlasError, build_shim, check_preload

log = structlog.get_logger(__name__)

_SYSTEM_PLACES = (
    "usr/lib/*/openblas-pthread/libopenblas.so.0",
    "usr/lib/*/libopenblas.so.0",
    "usr/lib64/libopenblasp.so.0",
    "usr/lib64/libopenblas.so.0",
    "usr/lib/libopenblas.so.0",
)
"""Of Debian, Ubuntu, Fedora, openSUSE and Arch. Files whose names end in 64 take other integers and are not meant."""


class BlasSource(StrEnum):
    ACCELERATE = "accelerate"
    PATH = "path"
    SYSTEM = "system"
    WHEEL = "wheel"
    REFERENCE = "reference"


@frozen
class SystemFacts:
    system: str
    """As ``platform.system()`` says: ``Linux`` or ``Darwin``."""
    cores: int = 1
    system_openblas: Path | None = None
    wheel_openblas: Path | None = None
    """The library of the package scipy-openblas32, whose names all have a prefix."""
    compiler: Path | None = None


@frozen
class Blas:
    name: str
    preload: Path | None
    """To be put into LD_PRELOAD of a stage process."""
    cost: str
    """A sentence for the log and the status: what the choice means for speed."""
    is_slow: bool = False
    """Whether a person should do something about it."""
    threads: int = 1
    """Raise it and prompts are processed faster while the machine has idle cores; several busy stages then fight for them."""


_COST = {
    BlasSource.ACCELERATE: "Apple's own kernels; nothing to do",
    BlasSource.PATH: "the library given by --blas; dense fp32 products run as fast as it does",
    BlasSource.SYSTEM: "the system's OpenBLAS; dense fp32 products run at full speed",
    BlasSource.WHEEL: "OpenBLAS from scipy-openblas32 behind a small shim; dense fp32 products run at full speed",
    BlasSource.REFERENCE: "MLX's reference BLAS: prompts take about 20 times as long, tokens twice as long as with OpenBLAS; "
    "to change that, install libopenblas0-pthread or a C compiler, and leave --blas on auto",
}


def choose_blas(setting: str, facts: SystemFacts) -> tuple[BlasSource, ...]:
    """What to try, best first. ``setting`` is ``auto``, ``reference`` or the path of a library, which is tried alone."""
    if facts.system != "Linux":
        return (BlasSource.ACCELERATE,)
    if setting == "reference":
        return (BlasSource.REFERENCE,)
    if setting != "auto":
        return (BlasSource.PATH,)
    offered = {
        BlasSource.SYSTEM: facts.system_openblas is not None,
        BlasSource.WHEEL: facts.wheel_openblas is not None and facts.compiler is not None,
        BlasSource.REFERENCE: True,
    }
    return tuple(source for source, there in offered.items() if there)


def prepare_blas(setting: str, cache: Path, facts: SystemFacts | None = None) -> Blas:
    """The best BLAS that works here. ``cache``: a private folder of this user, for the shim.

    With ``auto`` whatever does not work is passed over with a line in the log. Raises BlasError if a path was given
    whose library can't be preloaded or has no working ``cblas_sgemm``.
    """
    facts = facts or look_round()
    for source in choose_blas(setting, facts):
        try:
            library = _library(source, setting, cache, facts)
            if library is not None:
                check_preload(library)
        except BlasError as error:
            if source is BlasSource.PATH:
                raise
            log.warning("a BLAS was passed over", source=source.value, reason=str(error))
            continue
        return _described(source, library, facts)
    return _described(BlasSource.REFERENCE, None, facts)


def look_round() -> SystemFacts:
    spec = find_spec("scipy_openblas32")
    wheel = [Path(place) / "lib" / "libscipy_openblas.so" for place in (spec and spec.submodule_search_locations) or ()]
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return SystemFacts(
        system=platform.system(),
        cores=os.cpu_count() or 1,
        system_openblas=next((found for place in _SYSTEM_PLACES for found in sorted(Path("/").glob(place))), None),
        wheel_openblas=next((library for library in wheel if library.exists()), None),
        compiler=Path(compiler) if compiler else None,
    )


def active_blas() -> str:
    """The BLAS that this very process computes with: whoever answers to the standard name first."""
    if platform.system() != "Linux":
        return "accelerate"
    try:
        symbol = ctypes.CDLL(None).cblas_sgemm
    except AttributeError:
        return "reference"
    library = _library_of(symbol)
    return "openblas" if "openblas" in library else library


class _SymbolInfo(ctypes.Structure):
    """``Dl_info`` of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_of(symbol: object) -> str:
    info = _SymbolInfo()
    address = ctypes.cast(symbol, ctypes.c_void_p)  # pyright: ignore[reportArgumentType]
    ctypes.CDLL(None).dladdr(address, ctypes.byref(info))
    return Path((info.file or b"unknown").decode()).name


def _library(source: BlasSource, setting: str, cache: Path, facts: SystemFacts) -> Path | None:
    match source:
        case BlasSource.PATH:
            return Path(setting)
        case BlasSource.SYSTEM:
            return facts.system_openblas
        case BlasSource.WHEEL:
            assert facts.wheel_openblas is not None and facts.compiler is not None
            return build_shim(facts.wheel_openblas, facts.compiler, cache)
        case _:
            return None


def _described(source: BlasSource, library: Path | None, facts: SystemFacts) -> Blas:
    name = source.value if library is None else ("openblas" if source is not BlasSource.PATH else library.name)
    return Blas(name, library, _COST[source], is_slow=source is BlasSource.REFERENCE, threads=max(1, facts.cores // 2))


__all__ = ["Blas", "BlasError", "BlasSource", "SystemFacts", "active_blas", "choose_blas", "look_round", "prepare_blas"]
