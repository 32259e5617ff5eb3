"""The stream of a chat completion, read line by line into events. Pure."""

from collections.abc import Iterator

from attrs import define, field, frozen

from p2pexo.client.chat import (
    ChatEvent,
    Finished,
    Likelihood,
    Logprobs,
    Note,
    Reasoning,
    Text,
    TokenLogprob,
    ToolCallPart,
    Usage,
)
from p2pexo.client.errors import error_in
from p2pexo.client.reading import read

KEEP_ALIVE = "keep-alive"
"""The comment by which a node only says that it still works."""


@frozen
class _Function:
    name: str = ""
    arguments: str = ""


@frozen
class _Call:
    index: int = 0
    id: str = ""
    function: _Function = _Function()


@frozen
class _Delta:
    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[_Call, ...] = ()


@frozen
class _Token(Likelihood):
    top_logprobs: tuple[Likelihood, ...] = ()


@frozen
class _Logprobs:
    content: tuple[_Token, ...] = ()


@frozen
class _Choice:
    index: int = 0
    delta: _Delta = _Delta()
    logprobs: _Logprobs = _Logprobs()
    finish_reason: str = ""


@frozen
class _PromptDetails:
    cached_tokens: int = 0


@frozen
class _CompletionDetails:
    reasoning_tokens: int = 0


@frozen
class _Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails = _PromptDetails()
    completion_tokens_details: _CompletionDetails = _CompletionDetails()

    def told(self) -> Usage:
        cached, reasoning = self.prompt_tokens_details.cached_tokens, self.completion_tokens_details.reasoning_tokens
        return Usage(self.prompt_tokens, self.completion_tokens, cached, reasoning)


@frozen
class _Chunk:
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: object | None = None


@define
class ChatReader:
    """One stream, with the answers that it tells side by side. ``feed`` takes each line once, in order."""

    choices: int = 1
    """How many answers it has to bring to an end."""
    _reasons: dict[int, str] = field(factory=dict[int, str], init=False)
    _usage: Usage = field(factory=Usage, init=False)
    has_begun: bool = field(default=False, init=False)
    """Whether something of the answer has arrived: from then on nobody else may be asked for it."""
    is_complete: bool = field(default=False, init=False)

    @property
    def may_start_over(self) -> bool:
        return not self.has_begun

    def feed(self, line: str) -> Iterator[ChatEvent]:
        """The events that a line tells. Raises NodeError if it tells a failure, and UnexpectedAnswerError."""
        if line.startswith(":"):
            note = line[1:].strip()
            if note and note != KEEP_ALIVE:
                yield Note(note)
        elif line.startswith("data:"):
            data = line[5:].strip()
            yield from self._end() if data == "[DONE]" else self._chunk(data)

    def _chunk(self, data: str) -> Iterator[ChatEvent]:
        chunk = read(_Chunk, data)
        if chunk.error is not None:
            raise error_in(chunk.error)
        self._usage = chunk.usage.told() if chunk.usage else self._usage
        for choice in chunk.choices:
            if choice.finish_reason:
                self._reasons[choice.index] = choice.finish_reason
            for event in _events(choice):
                self.has_begun = True
                yield event

    def _end(self) -> Iterator[ChatEvent]:
        reasons = tuple(self._reasons[index] for index in sorted(self._reasons))
        if len(reasons) >= self.choices:
            self.is_complete = True
            yield Finished(reasons[0], self._usage, reasons)


def _events(choice: _Choice) -> Iterator[ChatEvent]:
    index, delta = choice.index, choice.delta
    if delta.reasoning_content:
        yield Reasoning(delta.reasoning_content, index)
    if delta.content:
        yield Text(delta.content, index)
    for call in delta.tool_calls:
        yield ToolCallPart(call.index, call.id, call.function.name, call.function.arguments, index)
    if choice.logprobs.content:
        yield Logprobs(tuple(_logprob(token) for token in choice.logprobs.content), index)


def _logprob(token: _Token) -> TokenLogprob:
    return TokenLogprob(token.token, token.logprob, token.bytes, token.top_logprobs)
