"""However an answer is cut, what comes out is the same (M6)."""

import json

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_samples import ASK, SAMPLES, Meaning, Sample, chat_format, read
from parser_writers import LATE, PARIS, WRITERS

from p2pexo.engine.parsers.parser import OutputParser, PlainParser
from p2pexo.generation.events import ToolCallDelta
from p2pexo.generation.request import Thinking, Tool, ToolChoice, ToolMode

WITH_MARKS = "So <tool_call>\n" + '{"name": "clock", "arguments": {}}' + "\n</tool_call>"


def parser_of(sample: Sample, *, with_controls: bool = True) -> OutputParser:
    return chat_format(sample.family, with_controls=with_controls).parser(ASK)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_an_answer_means_what_it_says(sample: Sample) -> None:
    assert read(parser_of(sample), [sample.written]) == sample.meaning


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_cut_at_any_place_changes_nothing(sample: Sample) -> None:
    assert read(parser_of(sample), list(sample.written)) == sample.meaning
    for at in range(1, len(sample.written)):
        assert read(parser_of(sample), [sample.written[:at], sample.written[at:]]) == sample.meaning


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_text_with_marks_means_the_same_however_it_is_cut(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    pieces = data.draw(st.lists(st.one_of(_pieces_of(sample), st.text(max_size=3)), max_size=12))
    written = "".join(pieces)
    whole = read(parser_of(sample), [written])
    assert read(parser_of(sample), pieces) == whole
    assert read(parser_of(sample), list(written)) == whole


def _pieces_of(sample: Sample) -> st.SearchStrategy[str]:
    length = len(sample.written)
    cuts = st.tuples(st.integers(0, length), st.integers(0, length))
    return cuts.map(lambda cut: sample.written[min(cut) : max(cut)])


@pytest.mark.parametrize(
    "sample", [each for each in SAMPLES if each.meaning.calls and "cut" not in each.label], ids=str
)
def test_arguments_are_json_and_come_in_pieces(sample: Sample) -> None:
    if sample.label == "a brace is missing":
        return
    for call in sample.meaning.calls:
        assert isinstance(json.loads(call.arguments), dict)


BY_THE_FIRST_OF_IT = {"lfm", "minicpm"}
"""What their values begin with tells how they are written, so that is held."""


@pytest.mark.parametrize("family", sorted(WRITERS.keys() - BY_THE_FIRST_OF_IT))
def test_a_string_in_the_arguments_is_streamed(family: str) -> None:
    parser = chat_format(family).parser(ASK)
    before, _, behind = WRITERS[family](PARIS).partition("Par")
    parser.feed(before)
    assert parser.feed("Par").tool_calls == (ToolCallDelta(0, arguments="Par"),)
    assert parser.feed(behind).tool_calls[0].arguments.startswith("is")


def test_text_is_held_only_while_it_may_be_a_mark() -> None:
    parser = chat_format("hermes").parser(ASK)
    assert [parser.feed(piece).text for piece in ("a <", "b", "<tool_", "x", "\n\n ")] == [
        "a ",
        "<b",
        "",
        "<tool_x",
        "\n\n ",
    ]


def test_the_end_of_a_value_is_held_only_while_it_may_be_a_mark() -> None:
    parser = chat_format("qwen-coder").parser(ASK)
    parser.feed("<tool_call><function=get_weather><parameter=city>x")
    pieces = [parser.feed(piece).tool_calls for piece in ("a\n", "b", "<", "c")]
    assert ["".join(delta.arguments for delta in deltas) for deltas in pieces] == ["a", "\\nb", "", "<c"]


def test_the_same_request_and_choice_make_the_same_ids() -> None:
    def ids(**changes: object) -> list[str]:
        parsed = chat_format("hermes").parser(evolve(ASK, **changes)).feed(WRITERS["hermes"](PARIS, LATE))
        return [delta.id for delta in parsed.tool_calls]

    assert ids() == ids(attempt=2)
    assert len({*ids(), *ids(id="r2"), *ids(choice=1)}) == 6


@pytest.mark.parametrize("changes", [{"tools": ()}, {"tool_choice": ToolChoice(ToolMode.NONE)}])
def test_without_tools_the_marks_of_calls_are_text(changes: dict[str, object]) -> None:
    parser = chat_format("hermes").parser(evolve(ASK, **changes))
    assert read(parser, [f"<think>a</think>{WITH_MARKS}"]) == Meaning(WITH_MARKS, "a")


def test_without_tools_llama_may_answer_in_json() -> None:
    written = '{"name": "clock", "parameters": {}}'
    assert read(chat_format("llama").parser(evolve(ASK, tools=())), [written]) == Meaning(written)


def test_without_tools_harmony_still_keeps_its_channels_apart() -> None:
    written = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"
    assert read(chat_format("harmony").parser(evolve(ASK, tools=())), list(written)) == Meaning("b", "a")


def test_a_raw_prompt_is_answered_in_plain_text() -> None:
    parser = chat_format("hermes").parser(evolve(ASK, raw_prompt="x"))
    assert isinstance(parser, PlainParser)
    assert read(parser, [f"<think>a</think>{WITH_MARKS}"]).text == f"<think>a</think>{WITH_MARKS}"


def test_a_prompt_that_begins_a_thought_lets_the_answer_start_in_it() -> None:
    parser = chat_format("hermes").parser(ASK, "<|assistant|>\n<think>\n")
    assert not parser.thinking
    assert parser.feed("a").reasoning == "a"
    assert parser.thinking
    parser.feed("</think>")
    assert not parser.thinking
    assert parser.feed("\n\nb").text == "b"


def test_an_answer_that_a_grammar_binds_has_no_thoughts() -> None:
    forced = evolve(ASK, tool_choice=ToolChoice(ToolMode.REQUIRED), thinking=Thinking.HIGH)
    assert read(chat_format("hermes").parser(forced, "<think>"), [WRITERS["hermes"](LATE)]) == Meaning(calls=(LATE,))


@pytest.mark.parametrize("sample", [each for each in SAMPLES if each.family in WRITERS and each.meaning.calls], ids=str)
def test_marks_need_not_be_control_tokens(sample: Sample) -> None:
    if sample.label != "thought not ended":
        assert read(parser_of(sample, with_controls=False), [sample.written]) == sample.meaning


def test_a_stray_control_token_never_leaks() -> None:
    stray = "a<|tool_call_end|>b<|tool_call_argument_begin|>c"
    assert read(chat_format("kimi").parser(ASK), list(stray)).text == "abc"
    thought = "<think>a<|tool_call_end|>b</think>"
    assert read(chat_format("kimi").parser(ASK), list(thought)).reasoning == "ab"


def test_a_tool_without_a_readable_schema_is_no_obstacle() -> None:
    for parameters in ("", "[]", "{", '{"properties": []}', '{"properties": {"a": true, "b": {"type": 3}}}'):
        parser = chat_format("glm").parser(evolve(ASK, tools=(Tool("f", parameters=parameters),)))
        written = "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"
        assert json.loads(read(parser, [written]).calls[0].arguments) == {"a": 1}


@pytest.mark.parametrize(
    ("family", "written"),
    [
        ("hermes", '<tool_call>{"name": "'),
        ("deepseek-dsml", '<｜DSML｜function_calls><｜DSML｜invoke name="'),
        ("qwen-coder", "<tool_call><function="),
        ("harmony", "<|channel|>final"),
        ("llama", '{"name": "'),
    ],
)
def test_a_head_that_never_ends_does_not_hold_the_answer(family: str, written: str) -> None:
    parser = chat_format(family).parser(ASK)
    assert parser.feed(written + 300 * "x").text.endswith(300 * "x")
