"""Tools, tool choice and output format of the Responses dialect. Pure."""

import orjson
from attrs import frozen

from p2pexo.api.fields import Fields
from p2pexo.api.tool_names import check_names
from p2pexo.generation.errors import InvalidRequestError, UnsupportedParameterError
from p2pexo.generation.request import FormatKind, OutputFormat, Tool, ToolChoice, ToolMode

FUNCTION = "function"
"""The one type of tool that is honoured. The others run at the provider, or in ways no open model was taught."""

_MODES = {"auto": ToolMode.AUTO, "none": ToolMode.NONE, "required": ToolMode.REQUIRED}


@frozen
class Toolbox:
    """The tools of a request, how they may be used, and how the response repeats both."""

    tools: tuple[Tool, ...]
    choice: ToolChoice
    repeated_tools: tuple[dict[str, object], ...]
    repeated_choice: object


@frozen
class TextSettings:
    """What ``text`` asks for, and how the response repeats it."""

    format: OutputFormat
    repeated: dict[str, object]


def read_toolbox(body: Fields) -> Toolbox:
    """Raises InvalidRequestError: a function without a name, or a choice that no tool can meet."""
    functions = tuple(tool for tool in body.children("tools") if tool.required_text("type") == FUNCTION)
    check_names(functions)
    tools = tuple(_tool(each) for each in functions)
    repeated = tuple(_repeated_tool(each) for each in functions)
    parallel = body.boolean("parallel_tool_calls", True)
    value = body.get("tool_choice")
    if value is None or isinstance(value, str):
        mode = _MODES[body.choice("tool_choice", "auto", _MODES)]
        _need(tools, mode, "tool_choice")
        return Toolbox(tools, ToolChoice(mode, parallel=parallel), repeated, mode.value)
    choice = body.child("tool_choice") or body
    allowed, read = _chosen(choice, tools, parallel)
    return Toolbox(allowed, read, repeated, dict(choice.values))


def _chosen(choice: Fields, tools: tuple[Tool, ...], parallel: bool) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that are left, and how to choose among them."""
    kind = choice.required_text("type")
    if kind == FUNCTION:
        name = _known(choice, tools)
        return tools, ToolChoice(ToolMode.NAMED, name, parallel)
    if kind == "allowed_tools":
        named = [_known(each, tools) for each in choice.children("tools") if each.text("type", "") == FUNCTION]
        allowed = tuple(tool for tool in tools if tool.name in named)
        mode = _MODES[choice.choice("mode", "auto", ("auto", "required"))]
        _need(allowed, mode, choice.name_of("tools"))
        return allowed, ToolChoice(mode, parallel=parallel)
    raise UnsupportedParameterError(
        f"{choice.name_of('type')}: a tool of type {kind!r} can't be run here; functions alone can",
        param=choice.name_of("type"),
    )


def _need(tools: tuple[Tool, ...], mode: ToolMode, param: str) -> None:
    if mode is ToolMode.REQUIRED and not tools:
        raise InvalidRequestError(f"{param}: a call is required, but there is no function to call", param=param)


def _known(choice: Fields, tools: tuple[Tool, ...]) -> str:
    name = choice.required_text("name")
    if name not in {tool.name for tool in tools}:
        raise choice.wrong("name", "the name of a function in tools")
    return name


def _tool(tool: Fields) -> Tool:
    return Tool(tool.required_text("name"), tool.text("description", ""), _json(tool.child("parameters")))


def _repeated_tool(tool: Fields) -> dict[str, object]:
    return {
        "type": FUNCTION,
        "name": tool.required_text("name"),
        "description": tool.text("description", None),
        "parameters": tool.get("parameters"),
        "strict": tool.boolean("strict"),
    }


def read_text_settings(body: Fields) -> TextSettings:
    text = body.child("text") or Fields({}, "text")
    form = text.child("format") or Fields({"type": "text"}, text.name_of("format"))
    kind = FormatKind(form.choice("type", "", tuple(FormatKind)))
    verbosity = text.get("verbosity")
    extra = {} if verbosity is None else {"verbosity": text.choice("verbosity", "", ("low", "medium", "high"))}
    if kind is not FormatKind.JSON_SCHEMA:
        return TextSettings(OutputFormat(kind), {"format": {"type": kind.value}, **extra})
    schema = form.child("schema")
    if schema is None:
        raise form.wrong("schema", "a JSON schema")
    return TextSettings(OutputFormat(kind, _json(schema)), {"format": _repeated_format(form), **extra})


def _repeated_format(form: Fields) -> dict[str, object]:
    return {
        "type": FormatKind.JSON_SCHEMA.value,
        "name": form.required_text("name"),
        "description": form.text("description", None),
        "schema": form.get("schema"),
        "strict": form.boolean("strict"),
    }


def _json(schema: Fields | None) -> str:
    return "{}" if schema is None else orjson.dumps(schema.values).decode()
