"""A ring of the real model: the same tokens as one process, and each stage with its own layers only."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from attrs import define

from p2pexo.engine.blas import prepare_blas
from p2pexo.engine.environment import private_directory, stage_environment
from p2pexo.generation.events import Finished
from p2pexo.generation.request import Request
from p2pexo.models.catalogue import EMBEDDED
from p2pexo.models.store import Store
from p2pexo.ring.engines import MLX_ENGINE
from p2pexo.ring.plan import Placement


@define
class RealModel:
    directory: Path
    environment: dict[str, str]


@pytest.fixture(scope="module")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> RealModel:
    cache = private_directory(tmp_path_factory.mktemp("models"))
    environment = stage_environment(os.environ, prepare_blas("auto", cache), private_directory(cache / "tmp"))
    return RealModel(Store(cache).fetch(EMBEDDED), environment)


def test_three_stages_give_the_tokens_of_one_and_hold_a_part_each(
    real_model: RealModel,
    run_ring: Callable[..., Any],
    placement_of: Callable[..., Placement],
    request_for: Callable[..., Request],
    tokens_in: Callable[..., list[int]],
):
    async def answers(stages: int) -> tuple[list[list[int]], list[int]]:
        placement = placement_of(EMBEDDED.layers, stages)
        async with run_ring(placement, real_model.directory, MLX_ENGINE, real_model.environment) as ring:
            await ring.form(1)
            events = [await ring.ask(request_for(content, max_tokens=10)) for content in ("What is France?", "Hi")]
            assert all(isinstance(each[-1], Finished) for each in events)
            return [tokens_in(each) for each in events], [each.status.weight_bytes for each in ring.processes]

    with structlog.testing.capture_logs() as logs:
        alone, (all_bytes,) = trio.run(answers, 1)
        ring, bytes_of_stages = trio.run(answers, 3)
    assert all(len(tokens) > 1 for tokens in alone)
    assert ring == alone
    assert bytes_of_stages[1] < min(bytes_of_stages[0], bytes_of_stages[2]) < 0.6 * all_bytes
    assert not [entry for entry in logs if entry["event"] == "a batch failed"]


def test_a_ring_of_the_real_model_is_mended_without_loading_again(
    real_model: RealModel,
    run_ring: Callable[..., Any],
    placement_of: Callable[..., Placement],
    request_for: Callable[..., Request],
    tokens_in: Callable[..., list[int]],
):
    async def main():
        async with run_ring(
            placement_of(EMBEDDED.layers, 2), real_model.directory, MLX_ENGINE, real_model.environment
        ) as ring:
            await ring.form(1)
            expected = tokens_in(await ring.ask(request_for("Hi", max_tokens=5)))
            async with ring.first.generate(request_for("Hi", max_tokens=None)) as events:
                await events.receive()
                await ring.form(2)
                *_, last = [event async for event in events]
            assert last.error.kind == "ring_broken"
            assert tokens_in(await ring.ask(request_for("Hi", max_tokens=5))) == expected

    trio.run(main)
