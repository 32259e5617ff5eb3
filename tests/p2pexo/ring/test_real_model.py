"""A ring of the real model: the same tokens as one process, and each stage with its own layers only."""

import json
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
from p2pexo.generation.events import Delta, Event, Finished, FinishReason
from p2pexo.generation.request import FormatKind, OutputFormat, Request, Sampling, Tool, ToolChoice, ToolMode
from p2pexo.generation.text import Prompt
from p2pexo.models.catalogue import EMBEDDED
from p2pexo.models.store import Store
from p2pexo.ring.engines import MLX_ENGINE
from p2pexo.ring.plan import Placement


@define
class RealModel:
    directory: Path
    environment: dict[str, str]

    @property
    def ring(self) -> tuple[Path, str, dict[str, str]]:
        return self.directory, MLX_ENGINE, self.environment


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
        async with run_ring(placement, *real_model.ring) as ring:
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


OK = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}'
RAW: dict[str, Any] = {"raw_prompt": Prompt("Is it? ")}
"""Few tokens, as each takes its time here."""
LOOK = Tool("look", parameters='{"properties": {"at": {"enum": ["sky", "sea"]}}, "required": ["at"]}')


def ended(events: list[Event]) -> FinishReason:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1].reason


def test_formats_calls_and_choices_of_a_small_model_are_always_as_asked(
    real_model: RealModel, run_ring: Callable[..., Any], placement_of: Callable[..., Placement], request_for: Any
):
    """P6, with two stages, so that the grammar crosses a link."""

    async def main() -> None:
        async with run_ring(placement_of(EMBEDDED.layers, 2), *real_model.ring) as ring:
            await ring.form(1)

            async def ask(seed: int, choice: int = 0, **changes: Any) -> tuple[str, list[Event]]:
                request = request_for("Is it?", sampling=Sampling(seed=seed), choice=choice, **changes)
                events = await ring.ask(request)
                return "".join(event.text for event in events if isinstance(event, Delta)), events

            wanted = OutputFormat(FormatKind.JSON_SCHEMA, OK)
            said = [(await ask(seed, max_tokens=40, output_format=wanted, **RAW))[0] for seed in range(10)]
            assert all(json.loads(each) in ({"ok": True}, {"ok": False}) for each in said), said

            wanted = OutputFormat(FormatKind.JSON_OBJECT)
            text, events = await ask(0, max_tokens=25, output_format=wanted, **RAW)
            assert text.startswith("{")
            if ended(events) is FinishReason.STOP:  # else the limit has cut it, which no grammar can help
                assert isinstance(json.loads(text), dict)

            _, events = await ask(1, max_tokens=60, tools=(LOOK,), tool_choice=ToolChoice(ToolMode.REQUIRED))
            pieces = [piece for event in events if isinstance(event, Delta) for piece in event.tool_calls]
            assert (pieces[0].name, {piece.index for piece in pieces}) == ("look", {0})
            assert json.loads("".join(piece.arguments for piece in pieces)) in ({"at": "sky"}, {"at": "sea"})
            assert ended(events) is FinishReason.TOOL_CALLS

            answers = [(await ask(7, choice, max_tokens=8, top_logprobs=2, **RAW)) for choice in (0, 1, 0)]
            assert answers[0][0] == answers[2][0] != answers[1][0]
            told = [each for event in answers[0][1] if isinstance(event, Delta) for each in event.logprobs]
            assert b"".join(bytes(each.drawn.bytes) for each in told).decode().startswith(answers[0][0])
            assert all(len(each.top) == 2 and each.drawn.logprob <= each.top[0].logprob <= 0 for each in told)

    trio.run(main)
