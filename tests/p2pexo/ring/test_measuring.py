import os
from collections.abc import Callable, Mapping

import pytest
import trio
from structlog.testing import capture_logs

from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.ring.engines import MLX_ENGINE, SCRIPTED_ENGINE
from p2pexo.ring.measuring import measure_compute


def measured(engine: str, environment: Callable[[], Mapping[str, str]] = lambda: os.environ) -> ComputeSpeed | None:
    async def main() -> ComputeSpeed | None:
        return await measure_compute(engine, environment, dense=True)

    return trio.run(main)


@pytest.mark.timeout(120)
def test_a_process_of_its_own_measures_and_ends() -> None:
    speed = measured(MLX_ENGINE)
    assert speed is not None
    assert speed.decode_bytes_per_s > 0
    assert speed.prefill_flops_per_s > 0


def test_an_engine_without_speed_tells_none() -> None:
    assert measured(SCRIPTED_ENGINE) is None


def test_why_there_is_no_figure_is_in_the_log() -> None:
    with capture_logs() as lines:
        assert measured("no_such_module:kit") is None
    assert "no_such_module" in lines[-1]["reason"]


def test_a_disk_that_gives_no_folder_costs_only_the_figure() -> None:
    def environment() -> Mapping[str, str]:
        raise PermissionError("the temporary folder is somebody else's")

    with capture_logs() as lines:
        assert measured(SCRIPTED_ENGINE, environment) is None
    assert "somebody else's" in lines[-1]["reason"]
