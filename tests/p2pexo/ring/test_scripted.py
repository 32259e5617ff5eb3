from pathlib import Path

import pytest

from p2pexo.engine.batch import Batch, BatchResult, Entry
from p2pexo.ring.scripted import Script, ScriptedStage, load_stage, tokens_of


def answer(stages: list[ScriptedStage], chunks: list[tuple[int, ...]], count: int) -> list[int]:
    """The tokens that stages in a row draw behind a prompt that comes in these chunks."""
    drawn: list[int] = []
    position = 0
    for number in range(len(chunks) + count - 1):
        tokens = chunks[number] if number < len(chunks) else (drawn[-1],)
        index = len(drawn) if number >= len(chunks) - 1 else None
        output: memoryview | BatchResult | None = None
        for stage in stages:
            assert not isinstance(output, BatchResult)
            output = stage.run(Batch(number, (Entry(1, tokens, position, index),)), output)
        assert isinstance(output, BatchResult)
        drawn += [each.token for each in output.sampled]
        position += len(tokens)
    return drawn


@pytest.mark.parametrize("cuts", [(6,), (3, 6), (1, 4, 6)])
def test_no_cut_and_no_chunk_changes_the_answer(cuts: tuple[int, ...]):
    script, prompt = Script(layers=6), tuple(tokens_of("hello world"))
    stages = [ScriptedStage(script, first, end) for first, end in zip((0, *cuts), cuts, strict=False)]
    expected = answer([ScriptedStage(script, 0, 6)], [prompt], 10)
    assert len(expected) == 10
    assert answer(stages, [prompt], 10) == expected
    assert answer(stages, [prompt[:4], prompt[4:9], prompt[9:]], 10) == expected


def test_a_layer_less_and_another_prompt_change_the_answer():
    def of(layers: int, prompt: str) -> list[int]:
        return answer([ScriptedStage(Script(layers=layers), 0, layers)], [tuple(tokens_of(prompt))], 10)

    assert len({tuple(of(6, "hello")), tuple(of(5, "hello")), tuple(of(6, "hallo"))}) == 3


def test_a_cache_that_is_lost_is_noticed():
    stage = ScriptedStage(Script(), 0, 6)
    stage.run(Batch(1, (Entry(1, (5, 6), 0, 0),)), None)
    stage.clear()
    with pytest.raises(ValueError, match="the cache is not"):
        stage.run(Batch(2, (Entry(1, (7,), 2, 1),)), None)


def test_loading_tells_how_far_it_is(tmp_path: Path):
    Script(layers=4).write(tmp_path)
    told: list[float] = []
    load_stage(tmp_path, first_layer=0, end_layer=4, precision="auto", progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]
