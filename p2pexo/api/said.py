"""What one choice of an answer has said so far, with the log probabilities of its text and of nothing else. Pure."""

from attrs import define, field

from p2pexo.generation.events import Delta, Finished, FinishReason, TokenLogprobs, ToolCallDelta


@define
class HeldLogprobs:
    """Log probabilities go with the text of their tokens: held back while it is, dropped when it turns out to be none.

    Such are the tokens of a stop string, of the end of a turn, of thoughts and of calls.
    """

    _held: tuple[TokenLogprobs, ...] = ()

    def of_text(self, delta: Delta) -> tuple[TokenLogprobs, ...]:
        """Those that belong to the text of ``delta``."""
        said, self._held = self._held + delta.logprobs, ()
        if delta.text:
            return said
        if not (delta.reasoning or delta.tool_calls):
            self._held = said
        return ()

    def at_end(self, end: Finished) -> tuple[TokenLogprobs, ...]:
        """Those whose text never came, because there was no room for the rest of a character."""
        return self._held if end.reason is FinishReason.LENGTH else ()


@define
class SaidCall:
    id: str
    name: str
    arguments: list[str] = field(factory=list[str])


@define
class Said:
    """All that one choice has said. ``end`` is None as long as it goes on."""

    text: list[str] = field(factory=list[str])
    reasoning: list[str] = field(factory=list[str])
    calls: list[SaidCall] = field(factory=list[SaidCall])
    logprobs: list[TokenLogprobs] = field(factory=list[TokenLogprobs])
    end: Finished | None = None
    _held: HeldLogprobs = field(factory=HeldLogprobs)

    def add(self, event: Delta | Finished) -> None:
        if isinstance(event, Finished):
            self.logprobs += self._held.at_end(event)
            self.end = event
            return
        self.text.append(event.text)
        self.reasoning.append(event.reasoning)
        self.logprobs += self._held.of_text(event)
        for piece in event.tool_calls:
            self._add_call(piece)

    def _add_call(self, piece: ToolCallDelta) -> None:
        if piece.index == len(self.calls):
            self.calls.append(SaidCall(piece.id, piece.name))
        self.calls[piece.index].arguments.append(piece.arguments)
