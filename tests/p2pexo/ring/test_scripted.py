from pathlib import Path

import pytest

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, SequenceFailure
from p2pexo.engine.grammar import GrammarKind, GrammarSpec
from p2pexo.generation.request import Message, PicturePart, Request, Role
from p2pexo.models.store import Store
from p2pexo.ring.scripted import END_TOKEN, Line, Script, ScriptedStage, load_stage, load_text, tokens_of


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


SAYING = Script(
    says=(Line("weather", "é 🌧!"), Line("break", "abc", fails_after=2), Line("never", "abc", fails_after=0))
)


def play(
    prompt: str, replayed: bytes = b"", script: Script = SAYING, grammar: GrammarSpec | None = None
) -> tuple[bytes, tuple[SequenceFailure, ...]]:
    """All tokens up to the end or a failure, and the failure."""
    stages = [ScriptedStage(script, 0, 2), ScriptedStage(script, 2, 6)]
    said, new, position = bytearray(replayed), tuple(tokens_of(prompt)) + tuple(replayed), 0
    while True:
        batch = Batch(0, (Entry(1, new, position, len(said), None if position else Drawing(grammar=grammar)),))
        hidden = stages[0].run(batch, None)
        assert not isinstance(hidden, BatchResult)
        result = stages[1].run(batch, hidden)
        assert isinstance(result, BatchResult)
        if result.failures or result.sampled[0].token == END_TOKEN:
            return bytes(said), result.failures
        position += len(new)
        new = (result.sampled[0].token,)
        said += bytes(new)


def test_a_line_is_said_to_the_prompts_that_end_with_its_cue():
    assert play("How is the weather") == ("é 🌧!".encode(), ())


@pytest.mark.parametrize("done", range(8))
def test_a_line_goes_on_where_it_was(done: int):
    text = "é 🌧!".encode()
    assert play("weather", text[:done]) == (text, ())


def test_a_line_fails_after_so_many_tokens():
    said, (failure,) = play("break")
    assert said == b"ab"
    assert "after 2 tokens" in failure.message
    assert play("never")[0] == b""


def test_what_the_grammar_forbids_is_not_said():
    script = Script(says=(Line("", "Hello."), Line("", '{"a": 1'), Line("", '{"a": "é"}'), Line("", '{"a": 2}')))
    schema = GrammarSpec(GrammarKind.JSON_SCHEMA, '{"type": "object", "properties": {"a": {"type": "string"}}}')
    assert play("Hello", script=script) == (b"Hello.", ())
    assert play("Hello", script=script, grammar=schema) == ('{"a": "é"}'.encode(), ())


def test_a_script_makes_a_folder_that_can_be_placed(tmp_path: Path):
    folder = tmp_path / "talker"
    folder.mkdir()
    SAYING.write(folder)
    store = Store(tmp_path / "cache", (folder,))
    card = next(card for card in store.cards() if card.id == "local/talker")
    assert (card.layers, card.context_length) == (SAYING.layers, SAYING.context_length)
    assert load_text(store.fetch(card)).script == SAYING
    assert not card.sees


def test_a_script_that_sees_says_so_and_tells_pictures_apart(tmp_path: Path):
    folder = tmp_path / "seer"
    folder.mkdir()
    Script(sees=True).write(folder)
    store = Store(tmp_path / "cache", (folder,))
    card = next(card for card in store.cards() if card.id == "local/seer")
    assert card.sees
    picture = PicturePart("image/png", "iVBORw0KGgo=", "ab", position=1)
    request = Request("r", card.id, (Message(Role.USER, "x?", pictures=(picture,)),))
    text = load_text(store.fetch(card))
    assert text.decode(text.prompt_tokens(request)) == "x[image/png, 8 bytes, ab]?"
