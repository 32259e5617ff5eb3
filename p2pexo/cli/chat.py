"""``p2pexo chat``: a conversation in the terminal."""

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from attrs import define, field
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from p2pexo.cli.answer import AnswerScreen, stream_answer, summary
from p2pexo.cli.client import Target, connect, explain
from p2pexo.cli.errors import CommandError
from p2pexo.cli.tables import open_console
from p2pexo.client import Client, ClientError, Collector, Message

_DEFAULT_TARGET = Target()
_HELP = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


TEMPERATURE = 0.7
"""What a talk in the terminal is drawn with. At 1, which is what the API means by saying nothing, small models lose the thread."""


def chat(
    model: str | None = None,
    /,
    *,
    system: str | None = None,
    temperature: Annotated[float, Parameter(validator=Number(gte=0, lte=2))] = TEMPERATURE,
    target: Target = _DEFAULT_TARGET,
) -> None:
    """Talk to a model in the terminal.

    Parameters
    ----------
    model
        Its id, as `p2pexo models` lists it. Without it, the one that is loaded, or else the first of the list.
    system
        What the model is told before the conversation, such as who it is or in which language to answer.
    temperature
        How freely words are chosen, from 0 to 2. With 0 the likeliest one is always taken; raise it and answers get more varied, until they make no sense.
    """
    console = open_console()
    with connect(target) as client:
        conversation = Conversation(client, model or choose_model(client), system, console, temperature)
        if console.is_terminal:
            _enable_line_editing()
            console.print(f"[bold]{conversation.model}[/]  [dim]{_HELP}[/]", highlight=False)
        conversation.run(_prompted if console.is_terminal else _piped)


def choose_model(client: Client) -> str:
    """The model that is ready, or else the first that the cluster knows. Raises CommandError."""
    ready = [placement.model for placement in client.cluster().placements if placement.is_ready]
    known = ready or [model.id for model in client.models()]
    if not known:
        raise CommandError("the cluster knows no model; give a node one with `p2pexo node --model-dir PATH`")
    return known[0]


@define
class Conversation:
    """What was said so far, and the loop that goes on with it."""

    client: Client
    model: str
    system: str | None
    console: Console
    temperature: float = TEMPERATURE
    messages: list[Message] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.messages = [Message("system", self.system)] if self.system else []

    def run(self, read: Callable[[], str]) -> None:
        """Until ``read`` raises EOFError, or somebody leaves. A failed answer doesn't end it, unless its reader is a pipe."""
        while True:
            try:
                line = read().strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                self._remark(f"\n{_HELP}")
                continue
            match line:
                case "":
                    continue
                case "/exit" | "/quit":
                    return
                case "/clear":
                    self.clear()
                    self._remark("forgotten")
                case _ if line.startswith("/"):
                    self._remark(_HELP)
                case _:
                    self._answer(line)

    def _answer(self, question: str) -> None:
        self.messages.append(Message("user", question))
        collector = Collector()
        try:
            with self.client.stream_chat(self.model, self.messages, temperature=self.temperature) as events:
                stream_answer(events, collector, AnswerScreen(self.console))
        except KeyboardInterrupt:
            print()
            self._remark("stopped")
        except ClientError as error:
            self.messages.pop()
            if not self.console.is_terminal:
                raise
            self.console.print(f"\n{explain(error)}", style="red", markup=False, highlight=False)
            return
        # What was stopped was still said: the model is shown it as its own words.
        answer = collector.so_far()
        self.messages.append(answer.message)
        self._remark(summary(answer))

    def _remark(self, text: str) -> None:
        """For the person only: silent when the answer goes into a pipe."""
        if self.console.is_terminal and text:
            self.console.print(text, style="dim", markup=False, highlight=False)


def _prompted() -> str:
    return input("\n> ")


def _piped() -> str:
    return input()


def _enable_line_editing() -> None:
    # Importing it is enough to give ``input`` editing keys and a history; a Python without it still works.
    with suppress(ImportError):
        importlib.import_module("readline")
