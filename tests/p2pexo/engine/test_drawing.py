"""What the last stage does with a ``Drawing``: grammars, log probabilities, choices. On real tokens and random weights."""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest
from attrs import evolve

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Sampled
from p2pexo.engine.grammar import GrammarKind, GrammarSpec
from p2pexo.engine.sampling import likeliest, log_probabilities, unpack_mask
from p2pexo.engine.stage import StageEngine
from p2pexo.engine.text import TextModel
from p2pexo.generation.request import Sampling

VOCABULARY = 49_152
PROMPT = (1, 520, 9531, 198)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "city": {"enum": ["Paris", "Rome", "São Paulo"]},
        "size": {
            "type": "object",
            "properties": {"people": {"type": "integer", "minimum": 0, "maximum": 99}, "note": {"type": "null"}},
            "required": ["people"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
    },
    "required": ["ok", "city", "size"],
    "additionalProperties": False,
}
JSON = GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA))


@pytest.fixture(scope="module")
def directory(make_model, real_model: Path) -> Path:
    """Random weights under the real tokenizer: as far from JSON as can be."""
    made: Path = make_model(vocab_size=VOCABULARY, max_position_embeddings=1000)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(real_model / file, made / file)
    return made


@pytest.fixture(scope="module")
def text(directory: Path) -> TextModel:
    return TextModel.load(directory)


@pytest.fixture(scope="module")
def engine(directory: Path) -> StageEngine:
    return StageEngine.load(directory, first_layer=0, end_layer=4)


def run(engine: StageEngine, *entries: Entry) -> BatchResult:
    result = engine.run(Batch(0, entries))
    assert isinstance(result, BatchResult)
    return result


def draw(engine: StageEngine, drawing: Drawing, count: int, replayed: Sequence[int] = ()) -> list[Sampled]:
    """Up to the end of the answer, behind what an earlier attempt has drawn."""
    drawn: list[Sampled] = []
    new, position = (*PROMPT, *replayed), 0
    while len(drawn) < count and not (drawn and drawn[-1].token in (0, 2)):
        index = len(replayed) + len(drawn)
        result = run(engine, Entry(1, new, position, index, None if drawn else drawing))
        assert not result.failures
        position += len(new)
        drawn += result.sampled
        new = (drawn[-1].token,)
    return drawn


def tokens(drawn: Sequence[Sampled]) -> list[int]:
    return [each.token for each in drawn]


def check(value: dict[str, Any]) -> None:
    """``SCHEMA``, said again."""
    assert {"ok", "city", "size"} <= set(value) <= set(SCHEMA["properties"])
    assert value["ok"] in (True, False)
    assert value["city"] in ("Paris", "Rome", "São Paulo")
    assert {"people"} <= set(value["size"]) <= {"people", "note"}
    assert value["size"]["people"] in range(100)
    assert value["size"].get("note") is None
    tags = value.get("tags", [])
    assert len(tags) <= 2
    assert all(isinstance(tag, str) and len(tag) <= 3 for tag in tags)


@pytest.mark.parametrize("seed", range(10))
def test_any_answer_obeys_its_schema(engine: StageEngine, text: TextModel, seed: int) -> None:
    drawn = tokens(draw(engine, Drawing(Sampling(seed=seed), grammar=JSON), 300))
    assert drawn[-1] in text.end_tokens
    check(json.loads(text.decode(drawn)))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0),
        Sampling(seed=1, top_k=5, top_p=0.5, min_p=0.2, temperature=1.5),
        Sampling(seed=1, logit_bias=tuple((token, -100.0) for token in range(32, 42)), repetition_penalty=3.0),
    ],
    ids=["greedy", "cuts", "penalties"],
)
def test_no_way_of_drawing_gets_round_a_grammar(engine: StageEngine, text: TextModel, sampling: Sampling) -> None:
    drawn = draw(engine, Drawing(sampling, grammar=GrammarSpec(GrammarKind.REGEX, "[0-9]{7}")), 20)
    assert tokens(drawn)[-1] == 2
    assert len(text.decode(tokens(drawn))) == 7


def test_a_replayed_answer_goes_on_within_its_grammar(engine: StageEngine) -> None:
    drawing = Drawing(Sampling(seed=5), grammar=JSON)
    whole = tokens(draw(engine, drawing, 300))
    for done in (1, len(whole) // 2, len(whole) - 1):
        assert tokens(draw(engine, drawing, 300, whole[:done])) == whole[done:]


def test_a_grammar_that_cannot_be_used_fails_its_own_sequence_alone(engine: StageEngine) -> None:
    lark = GrammarSpec(GrammarKind.LARK, "start: <|nope|>")
    alone = tokens(draw(engine, Drawing(Sampling(seed=3)), 1))
    good = Drawing(Sampling(seed=3))
    result = run(engine, Entry(1, PROMPT, 0, 0, good), Entry(2, PROMPT, 0, 0, Drawing(grammar=lark)))
    assert [(each.sequence, each.token) for each in result.sampled] == [(1, alone[0])]
    ((failure),) = result.failures
    assert failure.sequence == 2
    assert "unknown special token" in failure.message


def test_an_answer_that_left_its_grammar_fails_alone(engine: StageEngine) -> None:
    drawing = Drawing(grammar=GrammarSpec(GrammarKind.REGEX, "[0-9]{3}"))
    (failure,) = run(engine, Entry(1, (*PROMPT, 500), 0, 1, drawing)).failures
    assert "can't go on within its grammar" in failure.message


def test_choices_of_one_seed_differ_and_repeat(engine: StageEngine) -> None:
    answers = [[tokens(draw(engine, Drawing(Sampling(seed=7), choice), 8)) for choice in range(3)] for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(set(map(tuple, answers[0]))) == 3


def test_log_probabilities_come_only_where_they_are_wanted(engine: StageEngine) -> None:
    (plain,) = draw(engine, Drawing(Sampling(seed=1)), 1)
    (bare,) = draw(engine, Drawing(Sampling(seed=1), top_logprobs=0), 1)
    assert (plain.logprob, plain.top) == (None, ())
    assert bare.token == plain.token
    assert bare.logprob is not None and bare.logprob < 0
    assert bare.top == ()


def test_the_likeliest_tokens_come_best_first_and_sum_to_less_than_all(engine: StageEngine) -> None:
    (sampled,) = draw(engine, Drawing(Sampling(temperature=0), top_logprobs=20), 1)
    logprobs = [logprob for _, logprob in sampled.top]
    assert len({token for token, _ in sampled.top}) == 20
    assert logprobs == sorted(logprobs, reverse=True)
    assert sampled.top[0] == (sampled.token, sampled.logprob)
    assert 0 < sum(map(math.exp, logprobs)) < 1


def test_log_probabilities_are_those_of_the_model_however_the_token_was_drawn(engine: StageEngine) -> None:
    sampling = Sampling(seed=2, temperature=0.1, top_k=3, presence_penalty=2.0, logit_bias=((77, 100.0),))
    grammar = GrammarSpec(GrammarKind.REGEX, "[0-9]{3}")
    plain, bent, bound = (
        draw(engine, drawing, 1)[0]
        for drawing in (
            Drawing(Sampling(temperature=0), top_logprobs=5),
            Drawing(sampling, top_logprobs=5),
            Drawing(grammar=grammar, top_logprobs=5),
        )
    )
    assert plain.top == bent.top == bound.top
    assert bent.token == 77
    assert bent.logprob is not None and bent.logprob < 0


def test_all_probabilities_together_are_one() -> None:
    logits = mx.array([1.0, 3.0, 2.0, -1.0], dtype=mx.float16)
    everything = mx.exp(log_probabilities(logits, mx.arange(4)))
    assert cast(float, mx.sum(everything).item()) == pytest.approx(1.0)
    assert cast(list[int], likeliest(logits, 3).tolist()) == [1, 2, 0]
    assert cast(list[int], likeliest(logits, 9).tolist()) == [1, 2, 0, 3]
    assert cast(list[int], likeliest(logits, 0).tolist()) == []


def test_a_mask_has_a_bit_for_each_token() -> None:
    bits = (1 << 0 | 1 << 31 | 1 << 33).to_bytes(8, "little")
    allowed = cast(list[bool], unpack_mask(bits, 35).tolist())
    assert [token for token, is_allowed in enumerate(allowed) if is_allowed] == [0, 31, 33]
    assert len(allowed) == 35


def test_what_is_kept_of_a_sequence_is_not_sent_again(engine: StageEngine) -> None:
    drawing = Drawing(Sampling(seed=4), grammar=JSON, top_logprobs=1)
    whole = draw(engine, drawing, 300)
    assert all(each.logprob is not None for each in whole)
    assert tokens(whole) == tokens(draw(engine, evolve(drawing, top_logprobs=None), 300))
