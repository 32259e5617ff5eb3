"""Claude's tools, tool choice and output format, inwards. Pure. Tools that run on Anthropic's servers are refused by name."""

import re

import orjson

from p2pexo.api.fields import Fields, shown
from p2pexo.api.tool_names import check_names
from p2pexo.generation.errors import UnsupportedParameterError
from p2pexo.generation.request import FormatKind, OutputFormat, Tool, ToolChoice, ToolMode

MODES = {"auto": ToolMode.AUTO, "any": ToolMode.REQUIRED, "tool": ToolMode.NAMED, "none": ToolMode.NONE}

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def read_tools(body: Fields) -> tuple[Tool, ...]:
    """Raises InvalidRequestError, of which UnsupportedParameterError is for tools that are not the client's own."""
    tools = tuple(_tool(fields) for fields in body.children("tools"))
    check_names(body.children("tools"))
    return tools


def _tool(fields: Fields) -> Tool:
    kind = fields.text("type", "custom")
    if kind != "custom":
        path = fields.name_of("type")
        raise UnsupportedParameterError(
            f"{path}: {shown(kind)} is not offered here, only tools of your own are: leave it out", param=path
        )
    name = fields.required_text("name")
    if not _NAME.fullmatch(name):
        raise fields.wrong("name", "1 to 128 letters, digits, _ and -")
    schema = fields.child("input_schema")
    if schema is None:
        raise fields.wrong("input_schema", "a JSON schema")
    return Tool(name, fields.text("description", ""), _json(schema))


def read_tool_choice(body: Fields, tools: tuple[Tool, ...]) -> ToolChoice:
    choice = body.child("tool_choice")
    if choice is None:
        return ToolChoice()
    mode = MODES[choice.choice("type", "", MODES)]
    if mode in (ToolMode.REQUIRED, ToolMode.NAMED) and not tools:
        raise body.wrong("tools", f"at least one tool, as tool_choice is {mode.value}")
    parallel = not choice.boolean("disable_parallel_tool_use")
    return ToolChoice(mode, _named(choice, tools) if mode is ToolMode.NAMED else None, parallel)


def _named(choice: Fields, tools: tuple[Tool, ...]) -> str:
    return choice.choice("name", "", [tool.name for tool in tools])


def read_output_format(config: Fields) -> OutputFormat:
    """``config``: the ``output_config`` of a body."""
    form = config.child("format")
    if form is None:
        return OutputFormat()
    form.choice("type", "", ("json_schema",))
    schema = form.child("schema")
    if schema is None:
        raise form.wrong("schema", "a JSON schema")
    return OutputFormat(FormatKind.JSON_SCHEMA, _json(schema))


def _json(fields: Fields) -> str:
    return orjson.dumps(fields.values).decode()
