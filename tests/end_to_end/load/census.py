"""What the processes of a cluster hold: of each its memory, files and threads, and of each stage its caches, too."""

from collections.abc import Iterator

import psutil
from attrs import asdict, frozen
from end_to_end.cluster import RealCluster, RealNode, wait_for

from p2pexo.cluster.snapshot import StageView

REST_S = 120.0


@frozen
class Held:
    rss_mb: float
    files: int
    threads: int
    conversations: int = 0
    cache_mb: float = 0.0

    def __sub__(self, other: "Held") -> "Held":
        mine, theirs = asdict(self), asdict(other)
        return Held(**{name: round(mine[name] - theirs[name], 1) for name in mine})


def count(cluster: RealCluster) -> dict[str, Held]:
    """By name of the process, once all stages are at rest."""
    wait_for("all stages are at rest", lambda: all(map(_is_at_rest, cluster.nodes)), REST_S)
    return dict(held for node in cluster.nodes for held in _of_node(node))


def _of_node(node: RealNode) -> Iterator[tuple[str, Held]]:
    yield node.name, _of_process(psutil.Process(node.running.pid))
    processes = node.stage_processes()
    for stage, process in zip(_stages(node), processes[-len(_stages(node)) :], strict=True):
        held = _of_process(process)
        assert stage.activity is not None
        yield (
            f"{node.name} stage {stage.rank}",
            Held(
                held.rss_mb,
                held.files,
                held.threads,
                stage.activity.conversations or 0,
                (stage.activity.cache_bytes or 0) / 1e6,
            ),
        )


def _of_process(process: psutil.Process) -> Held:
    return Held(process.memory_info().rss / 1e6, process.num_fds(), process.num_threads())


def _stages(node: RealNode) -> list[StageView]:
    snapshot = node.snapshot()
    return [stage for each in snapshot.placements for stage in each.stages if stage.peer == snapshot.me]


def _is_at_rest(node: RealNode) -> bool:
    return all(stage.activity is not None and not stage.activity.batches_per_s for stage in _stages(node))
