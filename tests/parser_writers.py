"""Calls, written in the way of each family."""

import json
from typing import Any, cast

from attrs import frozen


@frozen
class Call:
    name: str
    arguments: str


def as_json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)


def weather(**values: Any) -> Call:
    return Call("get_weather", as_json(**values))


PARIS, OSLO, LATE = weather(city="Paris"), weather(city="Oslo", days=2), Call("clock", "{}")


def as_object(call: Call, arguments: str = "arguments") -> str:
    return f'{{"name": "{call.name}", "{arguments}": {call.arguments}}}'


def hermes(*calls: Call) -> str:
    return "\n".join(f"<tool_call>\n{as_object(call)}\n</tool_call>" for call in calls)


def mistral(*calls: Call) -> str:
    return "".join(f"[TOOL_CALLS]{call.name}[ARGS]{call.arguments}" for call in calls)


def old_mistral(*calls: Call) -> str:
    return f"[TOOL_CALLS] [{', '.join(as_object(call) for call in calls)}]"


def old_deepseek(*calls: Call) -> str:
    written = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{call.arguments}\n```<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{written}<｜tool▁calls▁end｜>"


def deepseek(*calls: Call) -> str:
    written = "".join(
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{call.arguments}<｜tool▁call▁end｜>" for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{written}<｜tool▁calls▁end｜>"


def kimi(*calls: Call) -> str:
    written = "".join(
        f"<|tool_call_begin|>functions.{call.name}:{index}<|tool_call_argument_begin|>{call.arguments}<|tool_call_end|>"
        for index, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{written}<|tool_calls_section_end|>"


def tagged_values(call: Call) -> list[tuple[str, str]]:
    """Each argument as it stands between tags: texts bare, the rest as JSON."""
    values = json.loads(call.arguments).items()
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in values]


def dsml(*calls: Call) -> str:
    def parameter(key: str, value: str, call: Call) -> str:
        string = str(isinstance(json.loads(call.arguments)[key], str)).lower()
        return f'<｜DSML｜parameter name="{key}" string="{string}">{value}</｜DSML｜parameter>\n'

    written = "".join(
        f'<｜DSML｜invoke name="{call.name}">\n'
        + "".join(parameter(key, value, call) for key, value in tagged_values(call))
        + "</｜DSML｜invoke>\n"
        for call in calls
    )
    return f"<｜DSML｜function_calls>\n{written}</｜DSML｜function_calls>"


def glm(*calls: Call, tag: str = "") -> str:
    def pair(key: str, value: str) -> str:
        return f"<{tag}arg_key>{key}</{tag}arg_key>\n<{tag}arg_value>{value}</{tag}arg_value>\n"

    def arguments(call: Call) -> str:
        return "".join(pair(*each) for each in tagged_values(call))

    return "\n".join(f"<{tag}tool_call>{call.name}\n{arguments(call)}</{tag}tool_call>" for call in calls)


def minimax(*calls: Call) -> str:
    written = "".join(
        f'<invoke name="{call.name}">\n'
        + "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in tagged_values(call))
        + "</invoke>\n"
        for call in calls
    )
    return f"<minimax:tool_call>\n{written}</minimax:tool_call>"


def qwen_coder(*calls: Call) -> str:
    return "\n".join(
        f"<tool_call>\n<function={call.name}>\n"
        + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in tagged_values(call))
        + "</function>\n</tool_call>"
        for call in calls
    )


def llama(*calls: Call) -> str:
    return "; ".join(as_object(call, "parameters") for call in calls)


def longcat(*calls: Call) -> str:
    return glm(*calls, tag="longcat_")


def minicpm(*calls: Call) -> str:
    def parameter(key: str, value: str) -> str:
        shown = f"<![CDATA[{value}]]>" if {"<", "&", "\n"} & set(value) else value
        return f'<param name="{key}">{shown}</param>'

    return "".join(
        f'<function name="{call.name}">{"".join(parameter(*each) for each in tagged_values(call))}</function>'
        for call in calls
    )


def keyed(value: Any, quote: str) -> str:
    if isinstance(value, dict):
        named = cast(dict[str, Any], value).items()
        return f"{{{','.join(f'{key}:{keyed(each, quote)}' for key, each in named)}}}"
    if isinstance(value, list):
        return f"[{','.join(keyed(each, quote) for each in cast(list[Any], value))}]"
    return f"{quote}{value}{quote}" if isinstance(value, str) else json.dumps(value)


def gemma(*calls: Call) -> str:
    written = ((call.name, keyed(json.loads(call.arguments), '<|"|>')) for call in calls)
    return "".join(f"<|tool_call>call:{name}{arguments}<tool_call|>" for name, arguments in written)


def function_gemma(*calls: Call) -> str:
    written = ((call.name, keyed(json.loads(call.arguments), "<escape>")) for call in calls)
    return "".join(f"<start_function_call>call:{name}{arguments}<end_function_call>" for name, arguments in written)


def lfm(*calls: Call) -> str:
    def written(call: Call) -> str:
        return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in json.loads(call.arguments).items())})"

    return f"<|tool_call_start|>[{', '.join(map(written, calls))}]<|tool_call_end|>"


WRITERS = {
    "generic": hermes,
    "hermes": hermes,
    "mistral": old_mistral,
    "mistral-v11": mistral,
    "deepseek-v3": old_deepseek,
    "deepseek-v3.1": deepseek,
    "deepseek-dsml": dsml,
    "kimi": kimi,
    "glm": glm,
    "minimax": minimax,
    "qwen-coder": qwen_coder,
    "longcat": longcat,
    "minicpm": minicpm,
    "gemma": gemma,
    "function-gemma": function_gemma,
    "lfm": lfm,
}
