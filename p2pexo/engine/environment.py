"""What a stage process finds in its environment, and a folder of its own."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from p2pexo.engine.blas import Blas


def private_directory(path: Path) -> Path:
    """Make sure that ``path`` is a directory of ours which nobody else can write to: code is loaded from it.

    Raises PermissionError if it is somebody else's, or a symbolic link.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{path} is not a directory of this user; remove it, or choose another cache folder")
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path


def stage_environment(base: Mapping[str, str], blas: Blas, temporary: Path) -> dict[str, str]:
    """The environment of a stage process: ``base`` with the BLAS preloaded and temporary files in a private folder.

    The node's own variables are left out: the secrets among them are no business of a process that reads models. MLX compiles CPU kernels into TMPDIR and loads them from there; in the system's own one others could plant some.
    """
    environment = {name: value for name, value in base.items() if not name.startswith("P2PEXO_")}
    environment["TMPDIR"] = str(private_directory(temporary))
    if blas.preload is not None:
        environment["LD_PRELOAD"] = ":".join(filter(None, (str(blas.preload), base.get("LD_PRELOAD"))))
        environment.setdefault("OPENBLAS_NUM_THREADS", str(blas.threads))
    return environment
