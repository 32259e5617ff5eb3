"""The stream of a chat completion, read line by line into events. Pure."""

from collections.abc import Iterator

from attrs import define, field, frozen

from p2pexo.client.chat import Answer, ChatEvent, Finished, Note, Reasoning, Text, ToolCall, ToolCallPart, Usage
from p2pexo.client.errors import BrokenStreamError, error_in
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
class _Choice:
    delta: _Delta = _Delta()
    finish_reason: str = ""


@frozen
class _Chunk:
    choices: tuple[_Choice, ...] = ()
    usage: Usage | None = None
    error: object | None = None


@define
class ChatReader:
    """One answer. ``feed`` takes each line once, in order."""

    _reason: str = field(default="", init=False)
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
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._reason = choice.finish_reason or self._reason
            for event in _events(choice.delta):
                self.has_begun = True
                yield event

    def _end(self) -> Iterator[ChatEvent]:
        if self._reason:
            self.is_complete = True
            yield Finished(self._reason, self._usage)


def _events(delta: _Delta) -> Iterator[ChatEvent]:
    if delta.reasoning_content:
        yield Reasoning(delta.reasoning_content)
    if delta.content:
        yield Text(delta.content)
    for call in delta.tool_calls:
        yield ToolCallPart(call.index, call.id, call.function.name, call.function.arguments)


@define
class Collector:
    """Puts the events of an answer together."""

    _text: list[str] = field(factory=list[str], init=False)
    _reasoning: list[str] = field(factory=list[str], init=False)
    _calls: dict[int, ToolCall] = field(factory=dict[int, ToolCall], init=False)
    _end: Finished | None = field(default=None, init=False)

    def add(self, event: ChatEvent) -> None:
        match event:
            case Text(text):
                self._text.append(text)
            case Reasoning(text):
                self._reasoning.append(text)
            case ToolCallPart(index, id, name, arguments):
                known = self._calls.get(index, ToolCall("", "", ""))
                self._calls[index] = ToolCall(known.id + id, known.name + name, known.arguments + arguments)
            case Finished():
                self._end = event
            case Note():
                pass

    def answer(self) -> Answer:
        """Raises BrokenStreamError if the answer has no end."""
        if self._end is None:
            raise BrokenStreamError("the answer broke off before its end")
        calls = tuple(self._calls[index] for index in sorted(self._calls))
        return Answer("".join(self._text), "".join(self._reasoning), calls, self._end.reason, self._end.usage)
