"""The sections of tool calls that the families write, as their templates and model cards publish them."""

from p2pexo.engine.parsers.json_calls import OBJECT_TAIL, JsonArguments, object_head
from p2pexo.engine.parsers.keyed_calls import KeyedArguments
from p2pexo.engine.parsers.python_calls import PythonOrJsonArguments, call_head
from p2pexo.engine.parsers.scanner import pattern
from p2pexo.engine.parsers.schemas import ToolSchemas
from p2pexo.engine.parsers.sections import Section
from p2pexo.engine.parsers.tagged_calls import TaggedArguments

HERMES = Section(
    openings=("<tool_call>",),
    head=pattern(rf"\s*{object_head()}"),
    arguments=JsonArguments(),
    tail=pattern(OBJECT_TAIL),
    closings=("</tool_call>",),
)
"""``<tool_call>{"name": "f", "arguments": {…}}</tool_call>``: Hermes, Qwen 2.5 and 3, and many others."""

MISTRAL = Section(
    openings=("[TOOL_CALLS]",),
    head=pattern(
        rf"\s*(?:[\[,]?\s*{object_head()}|(?P<name>[\w.-]{{1,256}})\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*(?=\{{))"
    ),
    arguments=JsonArguments(),
    tail=pattern(rf"{OBJECT_TAIL}\s*(?:\]|(?=,))"),
)
"""``[TOOL_CALLS] [{"name": "f", "arguments": {…}}, …]`` and, from tokenizer 11 on, ``[TOOL_CALLS]f[ARGS]{…}``."""

DEEPSEEK = Section(
    openings=("<｜tool▁calls▁begin｜>",),
    head=pattern(
        r"\s*<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>(?P<name>[^<\n]{1,256})\n```json|(?P<name>[^<\n]{1,256})<｜tool▁sep｜>)\s*(?=\{)"
    ),
    arguments=JsonArguments(),
    tail=pattern(r"\s*(?:```)?\s*<｜tool▁call▁end｜>"),
    closings=("<｜tool▁calls▁end｜>",),
)
"""V3 and R1 with ``function`` and a fenced block, V3.1 with the name and the arguments alone."""

DSML = Section(
    openings=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
    head=pattern(r'\s*<｜DSML｜invoke name="(?P<name>[^"]{1,256})"\s*>'),
    arguments=TaggedArguments(
        pattern(r'\s*<｜DSML｜parameter name="(?P<key>[^"]{1,256})"(?:\s+string="(?P<string>true|false)")?\s*>'),
        ends=("</｜DSML｜parameter>",),
    ),
    tail=pattern(r"\s*</｜DSML｜invoke>"),
    closings=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
)
"""DeepSeek V3.2."""

KIMI = Section(
    openings=("<|tool_calls_section_begin|>",),
    head=pattern(
        r"\s*<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[\w.-]{1,256})(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*(?=\{)"
    ),
    arguments=JsonArguments(),
    tail=pattern(r"\s*<\|tool_call_end\|>"),
    closings=("<|tool_calls_section_end|>",),
)
"""Kimi K2, whose ids are ``functions.f:0``."""

GLM = Section(
    openings=("<tool_call>",),
    head=pattern(r"\s*(?P<name>[^\s<>{}]{1,256})\s*(?=<arg_key>|</tool_call>)"),
    arguments=TaggedArguments(
        pattern(r"\s*<arg_key>(?P<key>[^<]{1,256})</arg_key>\s*<arg_value>"),
        ends=("</arg_value>",),
    ),
    closings=("</tool_call>",),
)
"""GLM 4.5 to 4.7."""

MINIMAX = Section(
    openings=("<minimax:tool_call>",),
    head=pattern(r'\s*<invoke name="?(?P<name>[^"<>]{1,256})"?\s*>'),
    arguments=TaggedArguments(
        pattern(r'\s*<parameter name="?(?P<key>[^"<>]{1,256})"?\s*>'),
        ends=("</parameter>",),
    ),
    tail=pattern(r"\s*</invoke>"),
    closings=("</minimax:tool_call>",),
)
"""MiniMax M2."""

QWEN_CODER = Section(
    openings=("<tool_call>",),
    head=pattern(r"\s*<function=(?P<name>[^<>\n]{1,256})>"),
    arguments=TaggedArguments(
        pattern(r"\s*<parameter=(?P<key>[^<>\n]{1,256})>(?:\n|(?=[^\n]))"),
        ends=("\n</parameter>", "</parameter>"),
    ),
    tail=pattern(r"\s*</function>"),
    closings=("</tool_call>",),
)
"""Qwen3-Coder, whose values stand on lines of their own."""


LONGCAT = Section(
    openings=("<longcat_tool_call>",),
    head=pattern(r"\s*(?P<name>[^\s<>{}]{1,256})\s*(?=<longcat_arg_key>|</longcat_tool_call>)"),
    arguments=TaggedArguments(
        pattern(r"\s*<longcat_arg_key>(?P<key>[^<]{1,256})</longcat_arg_key>\s*<longcat_arg_value>"),
        ends=("</longcat_arg_value>",),
    ),
    closings=("</longcat_tool_call>",),
)
"""LongCat Flash."""

MINICPM = Section(
    openings=('<function name="',),
    head=pattern(r'(?P<name>[^"<>]{1,256})"\s*>'),
    arguments=TaggedArguments(
        pattern(r'\s*<param name="(?P<key>[^"<>]{1,256})"\s*>(?:<!\[CDATA\[|(?=[^<])|(?=<[^!]))'),
        ends=("]]></param>", "</param>"),
    ),
    tail=pattern(r"\s*</function>"),
)
"""MiniCPM 5, which puts values with marks in them in CDATA."""

GEMMA = Section(
    openings=("<|tool_call>",),
    head=pattern(r"\s*call:(?P<name>[\w.-]{1,256})\s*(?=\{)"),
    arguments=KeyedArguments('<|"|>'),
    closings=("<tool_call|>",),
)
"""``<|tool_call>call:f{city:<|"|>Paris<|"|>,days:2}<tool_call|>``: Gemma 4."""

FUNCTION_GEMMA = Section(
    openings=("<start_function_call>",),
    head=GEMMA.head,
    arguments=KeyedArguments("<escape>"),
    closings=("<end_function_call>",),
)
"""The small Gemma 3 that does nothing but call."""

LFM = Section(
    openings=("<|tool_call_start|>",),
    head=pattern(rf"\s*[\[,]?\s*(?:{object_head()}|{call_head()})"),
    arguments=PythonOrJsonArguments(),
    tail=pattern(rf"(?:{OBJECT_TAIL})?\s*(?:\]|(?=,))"),
    closings=("<|tool_call_end|>",),
)
"""LFM 2: a list of Python's calls, or of JSON's objects if it is told so."""


def llama(schemas: ToolSchemas) -> Section:
    """Llama 3 and 4: JSON objects or Python, behind ``<|python_tag|>`` or bare, so only names of known tools count."""
    names = schemas.names
    return Section(
        openings=("<|python_tag|>",),
        head=pattern(rf"\s*(?:;?\s*{object_head(names)}|[\[,]?\s*{call_head(names)})"),
        arguments=PythonOrJsonArguments(),
        tail=pattern(r"\s*[}\]]"),
        bare=True,
    )
