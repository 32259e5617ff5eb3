"""What the text of an answer must look like, and which requests say so. Pure; the masks are in ``masks.py``."""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, cast

from attrs import frozen

from p2pexo.engine.closed_schemas import closed
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import FormatKind, OutputFormat, Request, Tool, ToolChoice, ToolMode

WHITESPACE = r"( |\n[ \t]{0,16})?"
"""Between the tokens of JSON. A small model that may write any number of blanks writes nothing else any more."""

_MOST_CALLS = 16
"""Calls in one forced answer. Raise it for models that work in larger batches; a small one may not find the end."""


class GrammarKind(StrEnum):
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@frozen
class GrammarSpec:
    """A grammar for the whole answer, as it travels from stage 0 to the last stage."""

    kind: GrammarKind
    text: str = ""
    """A JSON schema, a regular expression of Rust's kind, or a grammar in llguidance's dialect of Lark."""


@frozen
class CallForm:
    """How a model family writes a call whose arguments are JSON: begin, name, middle, arguments, end."""

    begin: str
    middle: str
    end: str
    between: str | None = "\n"
    """Stands between two calls of one answer. None: for models that say the same again if they are let."""


HERMES_CALL = CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
"""Of Nous Research's Hermes models, of Qwen, and of whoever has no form of its own."""


def grammar_for(
    request: Request, form: CallForm = HERMES_CALL, controls: Mapping[str, int] | None = None
) -> GrammarSpec | None:
    """The grammar that a request needs: for the format of its output, or for calls that it forces; None if for neither.

    ``controls``: ids of the control tokens that the form's marks may be; all other marks are plain text. Raises
    InvalidRequestError for a choice of a tool that is not there, and for schemas that are not JSON objects.
    """
    calls = _Calls(form, controls or {})
    choice, wanted = request.tool_choice, request.output_format
    if choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED):
        return calls.grammar(
            _chosen(request.tools, choice), several=choice.parallel and choice.mode is not ToolMode.NAMED
        )
    if wanted.kind is FormatKind.TEXT:
        return None
    schema = _schema(wanted)
    if request.tools and choice.mode is ToolMode.AUTO:
        return calls.grammar(request.tools, several=choice.parallel, otherwise=schema)
    if wanted.kind is FormatKind.JSON_OBJECT:
        return GrammarSpec(GrammarKind.JSON_OBJECT)
    return GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(schema, ensure_ascii=False))


@frozen
class _Calls:
    form: CallForm
    controls: Mapping[str, int]

    def grammar(self, tools: Iterable[Tool], *, several: bool, otherwise: dict[str, Any] | None = None) -> GrammarSpec:
        """Lark for calls to these tools, or if there is such a schema, for JSON instead."""
        rules = [self._rule(number, tool) for number, tool in enumerate(tools)]
        between = self.form.between if several else None
        more = f" ({self._marks(between)} call){{0,{_MOST_CALLS - 1}}}" if between is not None else ""
        start = f"start: call{more}"
        if otherwise is not None:
            start += f" | other\nother: {_json_rule(otherwise)}"
        any_call = "call: " + " | ".join(f"call_{number}" for number in range(len(rules)))
        return GrammarSpec(GrammarKind.LARK, "\n".join((start, any_call, *rules)))

    def _rule(self, number: int, tool: Tool) -> str:
        schema = {"type": "object"} | _object(tool.parameters, f"the parameters of tool {tool.name}", "tools")
        head = self._marks(self.form.begin + json.dumps(tool.name, ensure_ascii=False)[1:-1] + self.form.middle)
        return f"call_{number}: {head} {_json_rule(schema)} {self._marks(self.form.end)}"

    def _marks(self, text: str) -> str:
        """A text as Lark: control tokens by their id, the rest as literals."""
        longest_first = sorted(self.controls, key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if longest_first else [text]
        return " ".join(
            f"<[{self.controls[piece]}]>" if piece in self.controls else json.dumps(piece, ensure_ascii=False)
            for piece in pieces
            if piece
        )


def with_our_whitespace(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with llguidance's own options, among which ours win."""
    options = schema.get("x-guidance")
    theirs = cast(dict[str, Any], options) if isinstance(options, dict) else {}
    return schema | {"x-guidance": theirs | {"whitespace_pattern": WHITESPACE}}


def _chosen(tools: tuple[Tool, ...], choice: ToolChoice) -> tuple[Tool, ...]:
    chosen = tuple(tool for tool in tools if choice.mode is not ToolMode.NAMED or tool.name == choice.name)
    if not chosen:
        offered = ", ".join(tool.name for tool in tools) or "none"
        what = f"the tool {choice.name!r}" if choice.mode is ToolMode.NAMED else "a call to some tool"
        raise InvalidRequestError(f"tool_choice asks for {what}, but the tools are: {offered}", param="tool_choice")
    return chosen


def _schema(wanted: OutputFormat) -> dict[str, Any]:
    if wanted.kind is FormatKind.JSON_OBJECT:
        return {"type": "object"}
    return _object(wanted.schema, "the schema", "response_format")


def _object(text: str, what: str, param: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return closed(cast(dict[str, Any], value))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequestError(f"{what} can't be read as a JSON schema: {error}", param=param) from error
    raise InvalidRequestError(f"{what} should be a JSON object, but here is {text[:100]}", param=param)


def _json_rule(schema: dict[str, Any]) -> str:
    return f"%json {json.dumps(with_our_whitespace(schema), ensure_ascii=False)}"
