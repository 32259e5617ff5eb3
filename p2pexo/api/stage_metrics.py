"""What this node's stages are busy with, as figures for Prometheus; read from the picture of the cluster when they are asked for."""

from collections.abc import Callable, Iterator

from attrs import frozen
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from p2pexo.cluster.snapshot import ClusterSnapshot, PlacementView, StageView
from p2pexo.ring.activity import StageActivity


@frozen
class _Figure:
    name: str
    meaning: str
    read: Callable[[StageActivity], float | None]


_FIGURES = (
    _Figure("p2pexo_stage_busy_share", "Of a stage's time, that went into computing; 0 to 1", lambda a: a.busy_share),
    _Figure("p2pexo_stage_batches_per_second", "Batches that a stage computes", lambda a: a.batches_per_s),
    _Figure("p2pexo_stage_batch_tokens", "Tokens computed in one batch, on average", lambda a: a.rows),
    _Figure("p2pexo_stage_batch_requests", "Requests in one batch, on average", lambda a: a.sequences),
    _Figure("p2pexo_stage_hop_seconds", "From one stage to the next, told by stage 0", lambda a: a.hop_s),
    _Figure(
        "p2pexo_stage_conversations", "Whose caches a stage holds, running and ended ones", lambda a: a.conversations
    ),
    _Figure("p2pexo_stage_cache_bytes", "Memory that caches of conversations take", lambda a: a.cache_bytes),
)


class StageFigures(Collector):
    """By model, placement and rank, of the node that is asked alone, so that nothing counts twice where all are."""

    def __init__(self, snapshot: Callable[[], ClusterSnapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[GaugeMetricFamily]:
        snapshot = self._snapshot()
        stages = [
            (placement, stage, stage.activity)
            for placement in snapshot.placements
            for stage in placement.stages
            if stage.peer == snapshot.me and stage.activity is not None
        ]
        for figure in _FIGURES:
            family = GaugeMetricFamily(figure.name, figure.meaning, labels=("model", "placement", "rank"))
            for placement, stage, activity in stages:
                if (value := figure.read(activity)) is not None:
                    family.add_metric(_labels(placement, stage), value)
            yield family


def _labels(placement: PlacementView, stage: StageView) -> list[str]:
    return [placement.model, placement.id, str(stage.rank)]
