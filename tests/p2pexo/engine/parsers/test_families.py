import json

import pytest
from attrs import evolve
from parser_samples import ASK, CLOCK, Meaning, chat_format, read
from parser_writers import Call

from p2pexo.engine.grammar import GrammarKind
from p2pexo.engine.parsers.chat_format import ChatFormat, forced_call_form
from p2pexo.engine.parsers.families import FAMILIES, GENERIC, THINKS, find_family, find_think
from p2pexo.engine.parsers.sections import Think
from p2pexo.generation.errors import UnsupportedParameterError
from p2pexo.generation.request import FormatKind, OutputFormat, ToolChoice, ToolMode

REQUIRED = evolve(ASK, tool_choice=ToolChoice(ToolMode.REQUIRED, parallel=False))


@pytest.mark.parametrize(
    ("template", "family"),
    [
        (None, "generic"),
        ("{{ messages }}<tool_call>", "generic"),
        ("{% if tools %}<function_call>", "generic"),
        ("{% if tools %}<start_function_call>call:", "function-gemma"),
        ("{% if tools %}<|tool_call>call:<tool_call|>", "gemma"),
        ("{% if tools %}<|tool_list_start|>", "lfm"),
        ("{% if tools %}<|tool_call_start|>[<|tool_call_end|>", "lfm"),
        ("{% if tools %}<longcat_tool_call>f<longcat_arg_key>", "longcat"),
        ('{% if tools %}<function name="f"><param name="p">', "minicpm"),
        ("{% if tools %}<tool_call>{{ '<think>' }}", "hermes"),
        ("{%- if tools %}<tool_call>\n<function=example>", "qwen-coder"),
        ("{% for tool in tools %}<tool_call>{name}<arg_key>", "glm"),
        ("{% if tools %}<minimax:tool_call><invoke name=", "minimax"),
        ("{% if tools %}<|tool_calls_section_begin|>", "kimi"),
        ("{% if tools %}[TOOL_CALLS] [", "mistral"),
        ("{% if tools %}[TOOL_CALLS]name[ARGS]", "mistral-v11"),
        ("{% if tools %}<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("{% if tools %}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json", "deepseek-v3"),
        ("{% if tools %}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>", "deepseek-v3.1"),
        ("{% if tools %}<｜DSML｜function_calls>", "deepseek-dsml"),
        ("<|start_header_id|>user{{ tools }}", "llama"),
        ("<|header_start|>user{{ tools }}", "llama"),
        ("<|start_header_id|>user", "generic"),
    ],
)
def test_a_template_tells_the_family(template: str | None, family: str) -> None:
    assert find_family(template, ()).name == family


def test_without_a_template_the_tokens_tell_deepseek() -> None:
    assert find_family(None, ("｜DSML｜",)).name == "deepseek-dsml"


def test_where_the_template_lists_tools_and_shows_no_call_the_tokens_tell_kimi() -> None:
    first, tokens = "{% if tools -%}<|im_system|>tool_declare<|im_middle|>", ("<|tool_calls_section_begin|>",)
    assert find_family(first, tokens).name == "kimi"
    assert find_family(first, ()).name == "generic"
    assert find_family("<|im_system|>", tokens).name == "generic"
    assert find_family("{% if tools %}List of tools: ", ("<|tool_call_start|>", "<|tool_call_end|>")).name == "lfm"


def test_marks_of_thoughts_are_found_in_the_template_or_among_the_tokens() -> None:
    assert find_think("x</think>", ()) == THINKS[0]
    assert find_think(None, ("[THINK]", "[/THINK]")) == THINKS[1]
    assert find_think("x", ("<|im_end|>",)) is None
    assert find_think(None, ("<|channel>", "<channel|>")) == Think("<|channel>thought", "<channel|>")
    assert find_think("<|start|><|channel|>analysis", ("<|channel|>", "<|message|>")) is None


def test_a_control_token_that_is_part_of_a_mark_reaches_the_parser() -> None:
    talk = ChatFormat.of(
        "{% if tools %}<|tool_call>call:", dict.fromkeys(("<|channel>", "<channel|>", "<turn|>"), True)
    )
    assert talk.parser(evolve(ASK, tools=())).controls == {"<|channel>", "<channel|>"}
    assert read(talk.parser(ASK), ["<|channel>thought\na<channel|>b"]) == Meaning("b", "a")


@pytest.mark.parametrize("family", [each.name for each in (*FAMILIES, GENERIC) if each.call_form])
def test_a_forced_call_is_read_as_that_call(family: str) -> None:
    talk = chat_format(family)
    form = forced_call_form(talk.family)
    arguments = json.dumps({"city": "Pa}ris"})
    written = form.begin + "get_weather" + form.middle + arguments + form.end
    assert read(talk.parser(REQUIRED), list(written)) == Meaning(calls=(Call("get_weather", arguments),))
    if form.between is not None:
        several = evolve(REQUIRED, tool_choice=ToolChoice(ToolMode.REQUIRED))
        assert read(talk.parser(several), [written + form.between + written]).calls == 2 * (
            Call("get_weather", arguments),
        )


@pytest.mark.parametrize("family", ["glm", "minimax", "qwen-coder", "deepseek-dsml", "longcat", "minicpm"])
def test_a_call_without_json_cannot_be_forced(family: str) -> None:
    with pytest.raises(UnsupportedParameterError, match=family) as caught:
        chat_format(family).grammar(REQUIRED, {})
    assert caught.value.param == "tool_choice"


def test_what_cannot_be_bound_to_calls_is_bound_to_the_format_alone() -> None:
    request = evolve(ASK, output_format=OutputFormat(FormatKind.JSON_OBJECT))
    without_calls = chat_format("glm").grammar(request, {})
    assert without_calls is not None
    assert without_calls.kind is GrammarKind.JSON_OBJECT
    with_calls = chat_format("hermes").grammar(request, {})
    assert with_calls is not None
    assert with_calls.kind is GrammarKind.LARK


def test_the_grammar_names_control_tokens_by_their_ids() -> None:
    grammar = chat_format("kimi").grammar(evolve(REQUIRED, tools=(CLOCK,)), {"<|tool_call_begin|>": 77, "<other>": 5})
    assert grammar is not None
    assert "<[77]>" in grammar.text


def test_a_free_answer_is_not_bound() -> None:
    assert chat_format("glm").grammar(ASK, {}) is None


def test_control_tokens_are_those_of_the_marks_that_are_read() -> None:
    talk = ChatFormat.of("{% if tools %}[TOOL_CALLS]", {"[TOOL_CALLS]": True, "[INST]": True, "[/THINK]": False})
    assert talk.parser(ASK).controls == {"[TOOL_CALLS]"}
    assert talk.parser(evolve(ASK, tools=())).controls == set()
