"""The state of one answer on stage 0: tokens in, events out. Pure."""

from collections.abc import Sequence
from typing import Protocol

from p2pexo.engine.detokenizer import Detokenizer
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
    def decode(self, tokens: Sequence[int]) -> str: ...


class Answer:
    """An answer in progress. Tokens that an earlier attempt produced are taken in silently when it is made.

    If they already end the answer, ``finished`` says so from the start and nothing has to be computed.
    """

    def __init__(self, request: Request, text_model: AnswerText, prompt_tokens: Sequence[int]) -> None:
        """Raises ContextLengthError if the prompt leaves no room for a token."""
        check_context(len(prompt_tokens), text_model.context_length)
        room = text_model.context_length - len(prompt_tokens)
        self.request = request
        self.prompt_tokens = tuple(prompt_tokens)
        self.tokens: list[int] = []
        self.finished: Finished | None = None
        self._limit = room if request.max_tokens is None else min(room, request.max_tokens)
        self._end_tokens = text_model.end_tokens
        self._detokenizer = Detokenizer(text_model.decode)
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
        text = self._advance(token)
        delta = Delta(index, (token,), text, logprobs=(logprobs,) if logprobs else ())
        return [delta] if self.finished is None else [delta, self.finished]

    def _advance(self, token: int) -> str:
        if token in self._end_tokens:
            return self._end(FinishReason.STOP)
        check = self._stops.push(self._detokenizer.push(token))
        if check.matched is not None:
            self._finish(FinishReason.STOP, check.matched)
            return check.text
        if len(self.tokens) >= self._limit:
            return check.text + self._end(FinishReason.LENGTH)
        return check.text

    def _end(self, reason: FinishReason) -> str:
        """Finish with what was held back, in which a stop string may still turn up."""
        check = self._stops.push(self._detokenizer.finish())
        if check.matched is not None:
            self._finish(FinishReason.STOP, check.matched)
            return check.text
        self._finish(reason)
        return check.text + self._stops.finish()

    def _finish(self, reason: FinishReason, stop_text: str | None = None) -> None:
        self.finished = Finished(reason, Usage(len(self.prompt_tokens), len(self.tokens)), stop_text)


def check_context(prompt_tokens: int, context_length: int) -> None:
    """Raises ContextLengthError, with both sizes, unless there is room for at least one token of an answer."""
    if prompt_tokens >= context_length:
        raise ContextLengthError(
            f"the prompt has {prompt_tokens} tokens, but this model's context holds {context_length}, "
            "prompt and answer together; shorten the messages",
            param="messages",
        )
