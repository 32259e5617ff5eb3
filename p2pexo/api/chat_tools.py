"""The tools of a chat, how the model may choose among them, and the form its answer must have. Pure."""

import orjson
from attrs import frozen

from p2pexo.api.fields import Fields
from p2pexo.api.tool_names import check_names
from p2pexo.generation.errors import InvalidRequestError, UnsupportedParameterError
from p2pexo.generation.request import FormatKind, OutputFormat, Tool, ToolChoice, ToolMode

_MODES = {"none": ToolMode.NONE, "auto": ToolMode.AUTO, "required": ToolMode.REQUIRED}


@frozen
class Toolbox:
    tools: tuple[Tool, ...]
    choice: ToolChoice


def read_toolbox(body: Fields) -> Toolbox:
    """``tools``, ``tool_choice`` and ``parallel_tool_calls``.

    Raises InvalidRequestError: a tool without a name, or a choice that no tool can meet.
    """
    functions = tuple(_function(fields) for fields in body.children("tools"))
    check_names(functions)
    tools = tuple(map(_tool, functions))
    return Toolbox(tools, _choice(body, tools))


def _tool(function: Fields) -> Tool:
    parameters = function.child("parameters") or Fields({})
    name = function.required_text("name")
    if not name:
        raise function.wrong("name", "a name")
    return Tool(name, function.text("description", ""), orjson.dumps(parameters.values).decode())


def _function(fields: Fields) -> Fields:
    kind = fields.text("type", "function")
    if kind != "function":
        path = fields.name_of("type")
        raise UnsupportedParameterError(f"{path}: only functions can be used here, not {kind!r}", param=path)
    function = fields.child("function")
    if function is None:
        raise fields.wrong("function", "an object with the name of a function")
    return function


def _choice(body: Fields, tools: tuple[Tool, ...]) -> ToolChoice:
    parallel = body.boolean("parallel_tool_calls", True)
    value = body.get("tool_choice")
    if isinstance(value, dict):
        return ToolChoice(ToolMode.NAMED, _chosen_name(body, tools), parallel)
    mode = _MODES[body.choice("tool_choice", "auto", _MODES)]
    if mode is ToolMode.REQUIRED and not tools:
        raise InvalidRequestError("tool_choice: 'required' needs tools, and there are none", param="tool_choice")
    return ToolChoice(mode, parallel=parallel)


def _chosen_name(body: Fields, tools: tuple[Tool, ...]) -> str:
    function = _function(body.child("tool_choice") or body)
    name = function.required_text("name")
    if name not in {tool.name for tool in tools}:
        known = ", ".join(tool.name for tool in tools) or "none"
        path = function.name_of("name")
        raise InvalidRequestError(f"{path}: no tool is named {name!r}; there are: {known}", param=path)
    return name


def read_format(body: Fields) -> OutputFormat:
    """``response_format``. Raises InvalidRequestError naming the field."""
    form = body.child("response_format")
    if form is None:
        return OutputFormat()
    kind = FormatKind(form.choice("type", "", [kind.value for kind in FormatKind]))
    if kind is not FormatKind.JSON_SCHEMA:
        return OutputFormat(kind)
    wrapper = form.child("json_schema")
    if wrapper is None:
        raise form.wrong("json_schema", "an object with a schema")
    schema = wrapper.child("schema")
    if schema is None:
        raise wrapper.wrong("schema", "a JSON schema")
    return OutputFormat(kind, orjson.dumps(schema.values).decode())
