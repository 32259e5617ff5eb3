"""Clusters of real nodes whose stages run a script in place of a model."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from end_to_end.cluster import RealCluster, real_cluster

from p2pexo.ring.scripted import Script

MODEL = "local/scripted"


def scripted_arguments(folder: Path, script: Script, models: Sequence[str] = (MODEL,)) -> list[str]:
    """What a node is started with that knows the script as ``models``, which are kept in the folder."""
    arguments = ["--engine", "scripted"]
    for model in models:
        directory = folder / model.removeprefix("local/")
        directory.mkdir()
        script.write(directory)
        arguments += ["--model-dir", str(directory)]
    return arguments


@contextmanager
def scripted_nodes(
    folder: Path, count: int, script: Script, arguments: Sequence[str] = (), *, models: Sequence[str] = (MODEL,)
) -> Generator[RealCluster]:
    """Nodes that know the script as ``models``, none of which is placed yet."""
    scripted = scripted_arguments(folder, script, models)
    with real_cluster(folder, count, ("--cache", str(folder / "cache"), *scripted, *arguments)) as cluster:
        yield cluster


@contextmanager
def scripted_ring(folder: Path, count: int, script: Script, arguments: Sequence[str] = ()) -> Generator[RealCluster]:
    """Nodes with one ring over all of them."""
    with scripted_nodes(folder, count, script, arguments) as cluster:
        cluster.place(MODEL, min_stages=count)
        yield cluster
