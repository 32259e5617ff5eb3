import json
from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve
from llguidance import LLMatcher, LLTokenizer

from p2pexo.engine.closed_schemas import closed
from p2pexo.engine.grammar import HERMES_CALL, CallForm, GrammarKind, GrammarSpec, grammar_for
from p2pexo.engine.masks import GrammarError, GrammarMasks, allows, check_grammar
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import FormatKind, OutputFormat, Request, Tool, ToolChoice, ToolMode

OK = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}'
WEATHER = Tool(
    "get_weather", parameters='{"properties": {"city": {"$ref": "#/$defs/c"}}, "$defs": {"c": {"enum": ["é", "b"]}}}'
)
CLOCK = Tool("clock")
FORCED = ToolChoice(ToolMode.REQUIRED)


def asking(**changes: Any) -> Request:
    return Request("r1", "a/b", (), **changes)


def grammar_of(form: CallForm = HERMES_CALL, controls: dict[str, int] | None = None, **changes: Any) -> GrammarSpec:
    grammar = grammar_for(asking(**changes), form, controls)
    assert grammar is not None
    check_grammar(grammar, "tools")
    return grammar


class Acceptor:
    """Takes texts as a model without a vocabulary would write them: byte by byte."""

    def __init__(self) -> None:
        self.end_token = 256
        self.tokenizer = LLTokenizer(_byte_tokenizer(), eos_token=self.end_token, slices=[])

    def takes(self, grammar: GrammarSpec, text: str | Iterable[int]) -> bool:
        """Whether the text is a whole answer."""
        form = LLMatcher.grammar_from_lark(grammar.text)
        matcher = LLMatcher(self.tokenizer, form, log_level=0)
        tokens = list(text.encode() if isinstance(text, str) else text)
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def _byte_tokenizer() -> Any:
    class Bytes:
        eos_token_id = 256
        bos_token_id = None
        tokens = [bytes([each]) for each in range(256)] + [b"<end>", b"<call>", b"</call>"]
        special_token_ids = (256, 257, 258)
        is_tokenizer_wrapper = True

        def __call__(self, text: bytes) -> list[int]:
            return list(text)

    return Bytes()


@pytest.fixture(scope="module")
def acceptor() -> Acceptor:
    return Acceptor()


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_most_requests_need_no_grammar() -> None:
    assert grammar_for(asking()) is None
    assert grammar_for(asking(tools=(WEATHER,))) is None
    assert grammar_for(asking(tools=(WEATHER,), tool_choice=ToolChoice(ToolMode.NONE))) is None


def test_a_format_is_its_own_grammar() -> None:
    assert grammar_of(output_format=OutputFormat(FormatKind.JSON_OBJECT)) == GrammarSpec(GrammarKind.JSON_OBJECT)
    wanted = OutputFormat(FormatKind.JSON_SCHEMA, OK)
    assert grammar_of(output_format=wanted) == GrammarSpec(GrammarKind.JSON_SCHEMA, OK)
    unused = ToolChoice(ToolMode.NONE)
    assert grammar_of(output_format=wanted, tools=(CLOCK,), tool_choice=unused).kind is GrammarKind.JSON_SCHEMA


def test_a_forced_call_has_the_name_of_a_tool_and_arguments_of_its_schema(acceptor: Acceptor) -> None:
    grammar = grammar_of(tools=(WEATHER, CLOCK), tool_choice=FORCED)
    right = [
        call("get_weather", '{"city": "é"}'),
        call("get_weather", '{\n  "city":"b"\n}'),
        call("clock", '{"a": [1]}'),
    ]
    wrong = [
        call("get_weather", '{"city": "c"}'),
        call("get_weather", "[]"),
        call("clock", "3"),
        call("cl", "{}"),
        "Hello",
        right[0][:-1],
        right[0] + "!",
    ]
    assert [acceptor.takes(grammar, text) for text in right] == [True] * len(right)
    assert [acceptor.takes(grammar, text) for text in wrong] == [False] * len(wrong)


@pytest.mark.parametrize(
    ("choice", "between", "several"),
    [
        (FORCED, "\n", True),
        (evolve(FORCED, parallel=False), "\n", False),
        (FORCED, None, False),
        (ToolChoice(ToolMode.NAMED, "clock"), "\n", False),
    ],
)
def test_several_calls_are_possible_only_where_they_are_wanted(
    acceptor: Acceptor, choice: ToolChoice, between: str | None, several: bool
) -> None:
    form = evolve(HERMES_CALL, between=between)
    grammar = grammar_of(form, tools=(WEATHER, CLOCK), tool_choice=choice)
    assert acceptor.takes(grammar, call("clock", "{}"))
    assert acceptor.takes(grammar, "\n".join([call("clock", "{}")] * 3)) is several
    assert not acceptor.takes(grammar, "\n".join([call("clock", "{}")] * 17))


def test_a_named_call_is_to_that_tool_alone(acceptor: Acceptor) -> None:
    grammar = grammar_of(tools=(WEATHER, CLOCK), tool_choice=ToolChoice(ToolMode.NAMED, "clock"))
    assert not acceptor.takes(grammar, call("get_weather", "{}"))


def test_with_a_format_and_tools_an_answer_is_either(acceptor: Acceptor) -> None:
    wanted = OutputFormat(FormatKind.JSON_SCHEMA, OK)
    grammar = grammar_of(tools=(CLOCK,), output_format=wanted)
    assert acceptor.takes(grammar, '{"ok": true}')
    assert acceptor.takes(grammar, call("clock", "{}"))
    assert not acceptor.takes(grammar, '{"ok": 1}')
    assert not acceptor.takes(grammar, "It is ok.")


def test_marks_that_are_control_tokens_are_never_spelt(acceptor: Acceptor) -> None:
    form = CallForm("<call>", " ", "</call>", between="")
    grammar = grammar_of(form, {"<call>": 257, "</call>": 258}, tools=(CLOCK,), tool_choice=FORCED)
    assert acceptor.takes(grammar, [257, *b"clock {}", 258])
    assert not acceptor.takes(grammar, "<call>clock {}</call>")


def test_blanks_in_json_have_an_end(acceptor: Acceptor) -> None:
    grammar = grammar_of(tools=(CLOCK,), tool_choice=FORCED)
    assert acceptor.takes(grammar, call("clock", '{\n                "a": 1}'))
    assert not acceptor.takes(grammar, call("clock", '{\n\n"a": 1}'))
    assert not acceptor.takes(grammar, call("clock", '{"a":  1}'))


def test_a_choice_of_a_tool_that_is_not_there_is_refused() -> None:
    for choice in (FORCED, ToolChoice(ToolMode.NAMED, "look")):
        with pytest.raises(InvalidRequestError) as caught:
            grammar_for(asking(tools=() if choice is FORCED else (CLOCK,), tool_choice=choice))
        assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("parameters", ["", "[]", "{", "[" * 100_000])
def test_parameters_that_are_no_json_object_are_refused_by_the_tool(parameters: str) -> None:
    with pytest.raises(InvalidRequestError, match="tool bad") as caught:
        grammar_for(asking(tools=(Tool("bad", parameters=parameters),), tool_choice=FORCED))
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": "objekt"}', "Invalid type: objekt"),
        ('{"not": {"type": "string"}}', "Unimplemented keys"),
        ('{"type": "string", "pattern": "(?=a)b"}', "look-around"),
        ('{"$ref": "http://127.0.0.1/schema"}', "does not fetch"),
        ("{", "EOF"),
        ('{"items":' * 100_000 + "{}" + "}" * 100_000, "recursion limit"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_in_llguidance_s_words(schema: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        check_grammar(GrammarSpec(GrammarKind.JSON_SCHEMA, schema), "response_format")
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(("text", "is_one"), [('{"ok": true}', True), ('{"ok": true', False), ('{"ok": true} ', False)])
def test_a_whole_answer_is_told_from_others_without_a_tokenizer(text: str, is_one: bool) -> None:
    assert allows(GrammarSpec(GrammarKind.JSON_SCHEMA, OK), text) is is_one


def test_no_answer_is_one_of_a_grammar_that_cannot_be_used() -> None:
    with pytest.raises(GrammarError, match="can't be used"):
        allows(GrammarSpec(GrammarKind.JSON_SCHEMA, '{"type": "objekt"}'), "{}")


SIZE: dict[str, Any] = {
    "properties": {"big": {"type": "boolean"}, "not": {"items": {"properties": {}}}},
    "required": ["big"],
}


def test_objects_that_name_their_properties_have_no_others() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"anyOf": [SIZE, {"type": "null"}]}},
        "$defs": {"b": SIZE},
        "examples": [{"properties": {}}],
    }
    assert closed({"properties": {"a": {"items": {"$ref": "#/$defs/b"}}}, "$defs": {"b": {"properties": {}}}}) == {
        "properties": {"a": {"items": {"$ref": "#/$defs/b"}}},
        "$defs": {"b": {"properties": {}, "additionalProperties": False}},
        "additionalProperties": False,
    }
    assert closed(schema) is schema  # a property called "not" looks like the keyword; open is always right
    del schema["properties"]["a"]["anyOf"][0]["properties"]["not"]
    big = {"properties": {"big": {"type": "boolean"}}, "required": ["big"], "additionalProperties": False}
    assert closed(schema) == {
        "properties": {"a": {"anyOf": [big, {"type": "null"}]}},
        "$defs": {"b": big},
        "examples": [{"properties": {}}],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {}}, "additionalProperties": True},
        {"properties": {"a": {}}, "patternProperties": {"^x": {}}},
        {"properties": {"a": {}}, "required": ["b"]},
        {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]},
        {"allOf": [{"$ref": "#/$defs/x"}, {"properties": {"a": {}}}], "$defs": {"x": {"properties": {}}}},
        {"type": "object"},
    ],
)
def test_objects_that_are_open_on_purpose_or_described_in_parts_stay_open(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


@pytest.mark.parametrize("schema", ["", "true", "[]", "{", "[" * 100_000])
def test_a_schema_that_is_no_json_object_is_refused(schema: str) -> None:
    for tools in ((), (CLOCK,)):
        with pytest.raises(InvalidRequestError, match="the schema") as caught:
            grammar_for(asking(tools=tools, output_format=OutputFormat(FormatKind.JSON_SCHEMA, schema)))
        assert caught.value.param == "response_format"


def test_a_regular_expression_and_a_lark_grammar_are_checked_too() -> None:
    check_grammar(GrammarSpec(GrammarKind.REGEX, "[0-9]{3}"), "grammar")
    for kind, text in ((GrammarKind.REGEX, "a(b"), (GrammarKind.LARK, 'start: "a')):
        with pytest.raises(InvalidRequestError):
            check_grammar(GrammarSpec(kind, text), "grammar")


class TestMasks:
    """With the real tokenizer."""

    @pytest.fixture(scope="class")
    def masks(self, real_model) -> GrammarMasks:
        return GrammarMasks(real_model, 49_152)

    @staticmethod
    def tokens(bits: bytes) -> set[int]:
        return {token for token in range(49_152) if bits[token // 8] >> token % 8 & 1}

    def test_tokens_are_taken_in_as_the_answer_grows(self, masks: GrammarMasks) -> None:
        mask = masks.start(GrammarSpec(GrammarKind.REGEX, "[0-9]{3}"))
        digits = set(range(32, 42))
        assert self.tokens(mask.allowed([])) == digits
        assert self.tokens(mask.allowed([33])) == digits
        assert self.tokens(mask.allowed([33])) == digits
        assert self.tokens(mask.allowed([33, 34, 35])) == {2}

    def test_what_ends_an_answer_is_all_that_is_left_behind_a_complete_one(self, masks: GrammarMasks) -> None:
        mask = masks.start(GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps({"const": 7})))
        assert self.tokens(mask.allowed([39])) == {2}

    def test_an_answer_outside_the_grammar_cannot_go_on(self, masks: GrammarMasks) -> None:
        mask = masks.start(GrammarSpec(GrammarKind.REGEX, "[0-9]{3}"))
        with pytest.raises(GrammarError, match="can't go on"):
            mask.allowed([500])

    def test_a_control_token_that_the_model_lacks_is_named(self, masks: GrammarMasks) -> None:
        with pytest.raises(GrammarError, match=r"unknown special token.*<\|nope\|>"):
            masks.start(GrammarSpec(GrammarKind.LARK, "start: <|nope|>"))
