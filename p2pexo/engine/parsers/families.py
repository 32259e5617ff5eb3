"""The families of models, and which of them speaks, read off a chat template and the added tokens of a tokenizer."""

import hashlib
import re
from collections.abc import Callable, Collection

from attrs import evolve, frozen

from p2pexo.engine.grammar import HERMES_CALL, CallForm
from p2pexo.engine.parsers import formats
from p2pexo.engine.parsers.harmony import HARMONY_MARKS
from p2pexo.engine.parsers.schemas import ToolSchemas
from p2pexo.engine.parsers.sections import Section, Think


def _same_id(id: str, name: str, before: int) -> str:
    return id


def _nine_letters(id: str, name: str, before: int) -> str:
    """Mistral's templates refuse any other id."""
    return hashlib.sha256(id.encode()).hexdigest()[:9]


def _kimi_id(id: str, name: str, before: int) -> str:
    """Kimi's template shows the id alone, so the name must be in it."""
    return f"functions.{name}:{before}"


@frozen
class Family:
    name: str
    signs: tuple[str, ...]
    """All of these in a chat template tell the family; of several families, the first in the table."""
    section: Callable[[ToolSchemas], Section] | None
    """How tool calls are written; None for harmony, which is made of messages."""
    marks: tuple[str, ...]
    """What calls are written with. A mark that is a control token must reach the parser."""
    call_form: CallForm | None = None
    """How to force a call; None where arguments are not JSON."""
    call_id: Callable[[str, str, int], str] = _same_id
    """(id, name, calls before it in the talk) -> the id as the templates want to see it."""
    knows_tools: bool = True
    """Whether the templates describe tools and show calls and results."""

    @property
    def is_harmony(self) -> bool:
        return self.section is None


def find_family(template: str | None, tokens: Collection[str]) -> Family:
    """``GENERIC`` if the template shows none of the formats that are known here, or has no place for tools.

    Kimi K2's first template and LFM 2.5's list tools and leave it to the model how to call them: their tokens tell.
    """
    if template is None and "｜DSML｜" in tokens:
        return DSML
    shown = template if template is not None and re.search(r"\btools\b", template) else ""
    told = next((family for family in FAMILIES if all(sign in shown for sign in family.signs)), GENERIC)
    by_tokens = (each for each in (KIMI, LFM) if shown and each.marks[0] in tokens)
    return next(by_tokens, GENERIC) if told is GENERIC else told


THINKS = (
    Think("<think>", "</think>"),
    Think("[THINK]", "[/THINK]"),
    Think("<longcat_think>", "</longcat_think>"),
    Think("<|think:start|>", "<|think:end|>"),
    Think("<|channel>thought", "<channel|>"),
)


def find_think(template: str | None, tokens: Collection[str]) -> Think | None:
    """The marks of thoughts, if the model knows any."""
    shown = template or ""
    return next((each for each in THINKS if each.end in tokens or each.end in shown or each.begin in shown), None)


def _always(section: Section) -> Callable[[ToolSchemas], Section]:
    return lambda schemas: section


_TOOL_CALL = ("<tool_call>", "</tool_call>")
_DSML_MARKS = (*formats.DSML.openings, *formats.DSML.closings, "｜DSML｜")
_DEEPSEEK_MARKS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
_DEEPSEEK_CALL = CallForm("".join(_DEEPSEEK_MARKS[:2]), _DEEPSEEK_MARKS[2], "".join(_DEEPSEEK_MARKS[3:]), between="")
_OLD_DEEPSEEK_CALL = CallForm(
    _DEEPSEEK_CALL.begin + "function<｜tool▁sep｜>", "\n```json\n", "\n```" + _DEEPSEEK_CALL.end, between=""
)
_KIMI_MARKS = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
)
_KIMI_CALL = CallForm(
    "".join(_KIMI_MARKS[:2]) + "functions.", ":0" + _KIMI_MARKS[2], "".join(_KIMI_MARKS[3:]), between=""
)
_HARMONY_CALL = CallForm(
    "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", between="<|end|><|start|>assistant"
)
_MISTRAL_CALL = CallForm("[TOOL_CALLS]", "[ARGS]", "", between="")
_OLD_MISTRAL_CALL = CallForm('[TOOL_CALLS] [{"name": "', '", "arguments": ', "}]", between="")
_MISTRAL_MARKS = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
_GEMMA_MARKS = ("<|tool_call>", "<tool_call|>", '<|"|>')
_GEMMA_CALL = CallForm("<|tool_call>call:", "", "<tool_call|>", between="")
_FUNCTION_GEMMA_MARKS = ("<start_function_call>", "<end_function_call>", "<escape>")
_FUNCTION_GEMMA_CALL = CallForm("<start_function_call>call:", "", "<end_function_call>", between="")
_LFM_MARKS = ("<|tool_call_start|>", "<|tool_call_end|>")
_LFM_CALL = CallForm('<|tool_call_start|>[{"name": "', '", "arguments": ', "}]<|tool_call_end|>", between="")
_LLAMA_CALL = CallForm('{"name": "', '", "parameters": ', "}", between="; ")

GENERIC = Family(
    "generic", (), _always(formats.HERMES), _TOOL_CALL, evolve(HERMES_CALL, between=None), knows_tools=False
)
"""Any model whose template knows no tools, or writes calls in a way that is not known here: it is told the Hermes form.
Of forced calls it makes one alone: behind one that it never learnt to make, it would make the same again."""

DSML = Family("deepseek-dsml", ("｜DSML｜",), _always(formats.DSML), _DSML_MARKS)

KIMI = Family("kimi", ("<|tool_calls_section_begin|>",), _always(formats.KIMI), _KIMI_MARKS, _KIMI_CALL, _kimi_id)

LFM = Family("lfm", ("<|tool_list_start|>",), _always(formats.LFM), _LFM_MARKS, _LFM_CALL)

FAMILIES = (
    Family("harmony", ("<|channel|>", "<|message|>"), None, tuple(HARMONY_MARKS), _HARMONY_CALL),
    DSML,
    Family(
        "deepseek-v3",
        ("<｜tool▁calls▁begin｜>", "```json"),
        _always(formats.DEEPSEEK),
        _DEEPSEEK_MARKS,
        _OLD_DEEPSEEK_CALL,
    ),
    Family("deepseek-v3.1", ("<｜tool▁calls▁begin｜>",), _always(formats.DEEPSEEK), _DEEPSEEK_MARKS, _DEEPSEEK_CALL),
    KIMI,
    LFM,
    Family("lfm", ("<|tool_call_start|>",), _always(formats.LFM), _LFM_MARKS, _LFM_CALL),
    Family("gemma", ("<|tool_call>",), _always(formats.GEMMA), _GEMMA_MARKS, _GEMMA_CALL),
    Family(
        "function-gemma",
        ("<start_function_call>",),
        _always(formats.FUNCTION_GEMMA),
        _FUNCTION_GEMMA_MARKS,
        _FUNCTION_GEMMA_CALL,
    ),
    Family("longcat", ("<longcat_tool_call>",), _always(formats.LONGCAT), formats.LONGCAT.openings),
    Family("minimax", ("<minimax:tool_call>",), _always(formats.MINIMAX), formats.MINIMAX.openings),
    Family("glm", ("<arg_key>",), _always(formats.GLM), (*_TOOL_CALL, "<arg_key>", "<arg_value>")),
    Family("qwen-coder", ("<tool_call>", "<function="), _always(formats.QWEN_CODER), _TOOL_CALL),
    Family("minicpm", ('<function name="', '<param name="'), _always(formats.MINICPM), formats.MINICPM.openings),
    Family("hermes", ("<tool_call>",), _always(formats.HERMES), _TOOL_CALL, HERMES_CALL),
    Family(
        "mistral-v11",
        ("[TOOL_CALLS]", "[ARGS]"),
        _always(formats.MISTRAL),
        _MISTRAL_MARKS,
        _MISTRAL_CALL,
        _nine_letters,
    ),
    Family("mistral", ("[TOOL_CALLS]",), _always(formats.MISTRAL), _MISTRAL_MARKS, _OLD_MISTRAL_CALL, _nine_letters),
    Family("llama", ("<|start_header_id|>",), formats.llama, ("<|python_tag|>",), _LLAMA_CALL),
    Family("llama", ("<|header_start|>",), formats.llama, ("<|python_tag|>",), _LLAMA_CALL),
)
