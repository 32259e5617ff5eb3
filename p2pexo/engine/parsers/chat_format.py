"""How one model talks: which family's format, which marks around thoughts, and which of the marks are control tokens."""

from collections.abc import Mapping
from typing import Self

from attrs import evolve, frozen

from p2pexo.engine.grammar import CallForm, GrammarSpec, grammar_for
from p2pexo.engine.parsers.families import Family, find_family, find_think
from p2pexo.engine.parsers.harmony import HARMONY_MARKS, Harmony
from p2pexo.engine.parsers.parser import Grammar, GrammarParser, OutputParser, PlainParser
from p2pexo.engine.parsers.schemas import ToolSchemas
from p2pexo.engine.parsers.sections import MarkedText, Think
from p2pexo.generation.errors import UnsupportedParameterError
from p2pexo.generation.request import FormatKind, Request, ToolMode

FORCED_MODES = (ToolMode.REQUIRED, ToolMode.NAMED)


@frozen
class ChatFormat:
    family: Family
    think: Think | None
    specials: frozenset[str]
    """Control tokens of the tokenizer: they are no text of the answer unless a parser asks for them."""

    @classmethod
    def of(cls, template: str | None, added_tokens: Mapping[str, bool]) -> Self:
        """``added_tokens`` of the tokenizer, and whether each is a control token."""
        specials = frozenset(token for token, is_control in added_tokens.items() if is_control)
        return cls(find_family(template, added_tokens), find_think(template, added_tokens), specials)

    def parser(self, request: Request, prompt_end: str = "") -> OutputParser:
        """For one answer. ``prompt_end``: the last of the prompt, control tokens included, which may begin a thought."""
        grammar = self._grammar(request, prompt_end)
        return GrammarParser(grammar, f"{request.id}:{request.choice}") if grammar else PlainParser()

    def grammar(self, request: Request, token_ids: Mapping[str, int]) -> GrammarSpec | None:
        """The grammar that binds the answer, if any does. ``token_ids`` of the control tokens.

        Where a format is asked for and calls can't be bound, the answer has the format and no calls. Raises
        UnsupportedParameterError if a call can't be forced, and InvalidRequestError.
        """
        controls = {token: id for token, id in token_ids.items() if token in self.family.marks}
        form = self.family.call_form
        if request.tool_choice.mode in FORCED_MODES:
            form = forced_call_form(self.family)
        if form is None:
            return grammar_for(evolve(request, tools=()))
        return grammar_for(request, form, controls)

    def _grammar(self, request: Request, prompt_end: str) -> Grammar | None:
        if request.raw_prompt is not None:
            return None
        if self.family.section is None:
            return Grammar(Harmony(reads_calls(request)).read, HARMONY_MARKS & self.specials)
        think = None if is_bound(request) else self.think
        section, schemas = None, ToolSchemas.of(request.tools)
        marks: list[str] = [think.begin, think.end] if think else []
        if reads_calls(request):
            section = self.family.section(schemas)
            marks += self.family.marks
        starts_thinking = think is not None and prompt_end.rstrip().endswith(think.begin)
        controls = frozenset(token for token in self.specials if any(token in mark for mark in marks))
        return Grammar(MarkedText(section, schemas, think, starts_thinking, controls).read, controls) if marks else None


def forced_call_form(family: Family) -> CallForm:
    """How a grammar writes a call of the family. Raises UnsupportedParameterError if its arguments are not JSON."""
    if family.call_form is None:
        raise UnsupportedParameterError(
            f"this model ({family.name}) doesn't write the arguments of calls as JSON, so a call can't be "
            'forced; use tool_choice "auto"',
            param="tool_choice",
        )
    return family.call_form


def reads_calls(request: Request) -> bool:
    return bool(request.tools) and request.tool_choice.mode is not ToolMode.NONE


def is_bound(request: Request) -> bool:
    """Whether a grammar binds the answer from its first token, so that there is no room for thoughts."""
    return request.tool_choice.mode in FORCED_MODES or request.output_format.kind is not FormatKind.TEXT
