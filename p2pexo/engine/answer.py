"""The state of one answer on stage 0: tokens in, events out. Pure."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from attrs import evolve

from p2pexo.engine.detokenizer import Detokenizer
from p2pexo.engine.parsers.emitter import Parsed
from p2pexo.engine.parsers.parser import OutputParser
from p2pexo.engine.stops import StopMatcher
from p2pexo.generation.errors import ContextLengthError
from p2pexo.generation.events import Delta, Finished, FinishReason, TokenLogprobs, Usage
from p2pexo.generation.request import Request


class AnswerText(Protocol):
    """What an answer needs of a ``TextModel``."""

    @property
    def context_length(self) -> int: ...
    @property
    def end_tokens(self) -> frozenset[int]: ...

    def decode(self, tokens: Sequence[int], keep: frozenset[str]) -> str:
        """Text without control tokens, but for those to keep."""
        ...

    def parser(self, request: Request, prompt_tokens: Sequence[int]) -> OutputParser: ...


class Answer:
    """An answer in progress. Tokens that an earlier attempt produced are taken in silently when it is made.

    If they already end the answer, ``finished`` says so from the start and nothing has to be computed.
    """

    def __init__(
        self,
        request: Request,
        text_model: AnswerText,
        prompt_tokens: Sequence[int],
        *,
        most_tokens: int | None = None,
    ) -> None:
        """``most_tokens``: prompt and answer together, if there is room for fewer than the context holds.

        Raises ContextLengthError if the prompt, with what is replayed, leaves no room for a token.
        """
        check_context(len(prompt_tokens), text_model.context_length)
        room = min(text_model.context_length, most_tokens or text_model.context_length) - len(prompt_tokens)
        _check_replay(request, len(prompt_tokens), room, text_model.context_length)
        self.request = request
        self.prompt_tokens = tuple(prompt_tokens)
        self.tokens: list[int] = []
        self.finished: Finished | None = None
        self.limit = room if request.max_tokens is None else min(room, request.max_tokens)
        """Tokens that it has at most."""
        self._end_tokens = text_model.end_tokens
        self._parser = text_model.parser(request, prompt_tokens)
        self._detokenizer = Detokenizer(partial(text_model.decode, keep=self._parser.controls))
        self._reasoning_tokens = 0
        self._stops = StopMatcher(request.stop)
        for token in request.replayed_tokens:
            if self.finished is None:
                self.push(token)

    def push(self, token: int, logprobs: TokenLogprobs | None = None) -> list[Delta | Finished]:
        """Take in the next token. The events are a Delta, whose text may be empty, and Finished behind the last one.

        Raises ValueError when the answer is already finished.
        """
        if self.finished is not None:
            raise ValueError(f"request {self.request.id} is finished; it takes no further token")
        index = len(self.tokens)
        self.tokens.append(token)
        parsed = self._advance(token)
        delta = Delta(
            index, (token,), parsed.text, parsed.reasoning, parsed.tool_calls, (logprobs,) if logprobs else ()
        )
        return [delta] if self.finished is None else [delta, self.finished]

    def _advance(self, token: int) -> Parsed:
        if token in self._end_tokens:
            self._reasoning_tokens += self._parser.thinking
            return self._end(FinishReason.STOP)
        thinking = self._parser.thinking
        parsed = self._parser.feed(self._detokenizer.push(token))
        self._reasoning_tokens += thinking or self._parser.thinking
        checked = self._checked(parsed)
        if self.finished is None and len(self.tokens) >= self.limit:
            return checked + self._end(FinishReason.LENGTH)
        return checked

    def _checked(self, parsed: Parsed) -> Parsed:
        """What may be sent: nothing behind a stop string, which is looked for in text alone, or behind the only call."""
        check = self._stops.push(parsed.text)
        text = check.text
        if check.matched is not None:
            self._finish(FinishReason.STOP, check.matched)
        elif parsed.tool_calls or parsed.reasoning:  # no stop string reaches over them
            text += self._stops.finish()
        if self.finished is None and self._parser.calls > 1 and not self.request.tool_choice.parallel:
            self._finish(FinishReason.TOOL_CALLS)
            return Parsed(text, parsed.reasoning, tuple(delta for delta in parsed.tool_calls if delta.index == 0))
        return evolve(parsed, text=text)

    def _end(self, reason: FinishReason) -> Parsed:
        """Finish with what was held back, in which a stop string may still turn up."""
        parsed = Parsed()
        for held in (lambda: self._parser.feed(self._detokenizer.finish()), self._parser.finish):
            parsed += self._checked(held())
            if self.finished is not None:
                return parsed
        self._finish(FinishReason.TOOL_CALLS if reason is FinishReason.STOP and self._parser.calls else reason)
        return parsed + Parsed(self._stops.finish())

    def _finish(self, reason: FinishReason, stop_text: str | None = None) -> None:
        usage = Usage(len(self.prompt_tokens), len(self.tokens), reasoning_tokens=self._reasoning_tokens)
        self.finished = Finished(reason, usage, stop_text)


def check_context(prompt_tokens: int, context_length: int) -> None:
    """Raises ContextLengthError, with both sizes, unless there is room for at least one token of an answer."""
    if prompt_tokens >= context_length:
        raise ContextLengthError(
            f"the prompt has {prompt_tokens} tokens, but this model's context holds {context_length}, "
            "prompt and answer together; shorten the messages",
            param="messages",
        )


def _check_replay(request: Request, prompt_tokens: int, room: int, context_length: int) -> None:
    """A ring with less memory than the one before can't go on with a longer answer, and ending it would look complete."""
    replayed = len(request.replayed_tokens)
    wanted = min(context_length - prompt_tokens, request.max_tokens or context_length)
    if room < wanted and room <= replayed:
        raise ContextLengthError(
            f"the answer can't go on after {replayed} tokens: the machines that are left keep memory for "
            f"{prompt_tokens + room} tokens, prompt and answer together; add a machine, or ask for a shorter answer",
            param="messages",
        )
