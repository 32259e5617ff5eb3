"""What is heard in a chat: the events of a stream, and the whole answer. Pure.

Where several answers were asked for (``n``), ``choice`` is the number of the one that an event belongs to.
"""

from attrs import Factory, field, frozen

from p2pexo.client.messages import Message, ToolCall


@frozen
class Note:
    """What the node says while nothing of the answer is there yet, such as that the model is loading."""

    text: str


@frozen
class Reasoning:
    """What the model thinks before it speaks."""

    text: str
    choice: int = 0


@frozen
class Text:
    text: str
    choice: int = 0


@frozen
class ToolCallPart:
    """A piece of a call; the first one of each ``index`` carries ``id`` and ``name``."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    choice: int = 0


@frozen
class Likelihood:
    token: str
    """The token's text; U+FFFD where it is a part of a character."""
    logprob: float
    bytes: tuple[int, ...] = ()
    """UTF-8 of the token, also where it is a part of a character."""


@frozen
class TokenLogprob(Likelihood):
    """How likely a token of the answer was."""

    top: tuple[Likelihood, ...] = ()
    """The likeliest ones at its place, best first; as many as ``top_logprobs`` said."""


@frozen
class Logprobs:
    """How likely the tokens of the text just told were, if that was asked for."""

    tokens: tuple[TokenLogprob, ...]
    choice: int = 0


@frozen
class Usage:
    """In tokens. With ``n`` answers the prompt counts once."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt, those that the cluster had computed before."""
    reasoning_tokens: int = 0
    """Of the completion, those that were thought and not said."""


def _alone(finished: "Finished") -> tuple[str, ...]:
    return (finished.reason,)


@frozen
class Finished:
    """The last event of a complete answer."""

    reason: str
    """``stop`` (it came to its end, or to a stop string), ``length`` or ``tool_calls``: that of the first choice."""
    usage: Usage
    reasons: tuple[str, ...] = Factory(_alone, takes_self=True)
    """That of each choice."""


ChatEvent = Note | Reasoning | Text | ToolCallPart | Logprobs | Finished


@frozen
class Choice:
    """One whole answer."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    """As ``Finished.reason``; empty if it was not heard to its end."""
    logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def message(self) -> Message:
        """To go on with: append it to the conversation."""
        return Message("assistant", self.text, self.tool_calls, reasoning=self.reasoning)


@frozen
class Answer:
    """What was said to one question: with ``n`` each of the choices; its own properties are those of the first."""

    choices: tuple[Choice, ...]
    usage: Usage = Usage()
    first_token_s: float | None = field(default=None, eq=False)
    """From the question to the first thing said or thought, in seconds; None if there was nothing."""
    speaking_s: float = field(default=0.0, eq=False)
    """From the first thing said or thought to the last, in seconds."""

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def reasoning(self) -> str:
        return self.choices[0].reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.choices[0].tool_calls

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        return self.choices[0].logprobs

    @property
    def message(self) -> Message:
        """To go on with: append it to the conversation."""
        return self.choices[0].message

    @property
    def tokens_per_second(self) -> float | None:
        """Of the tokens behind the first, whose wait is that of the prompt; None if there are too few to tell."""
        tokens = self.usage.completion_tokens - len(self.choices)
        return tokens / self.speaking_s if tokens > 0 and self.speaking_s > 0 else None
