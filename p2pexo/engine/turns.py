"""Brings messages into the order that strict chat templates insist on: one system message first, then turns that alternate. Pure.

System texts, wherever they stand, are joined in order into one leading block. Neighbours of the same side are one turn, their
texts, and their thoughts, put together as paragraphs with an empty line between them. Results of tools stay apart: each
answers a call of its own.
"""

from collections.abc import Sequence

from p2pexo.generation.content import PARAGRAPH, Content, joined, paragraphs
from p2pexo.generation.request import Message, Role
from p2pexo.generation.text import Prompt

_SIDES = (Role.USER, Role.ASSISTANT)


def in_turns(messages: Sequence[Message]) -> list[Message]:
    """Every text and every call of the messages, in order but for the system's."""
    system = paragraphs(message.content for message in messages if message.role is Role.SYSTEM)
    turns = [Message(Role.SYSTEM, system)] if system else []
    for message in messages:
        if turns and message.role is turns[-1].role and message.role in _SIDES:
            turns[-1] = _both(turns[-1], message)
        elif message.role is not Role.SYSTEM:
            turns.append(message)
    return turns


def _both(first: Message, second: Message) -> Message:
    thoughts = paragraphs((first.reasoning, second.reasoning))
    content = joined((Content.of(first), Content.of(second)), PARAGRAPH)
    return Message(
        first.role,
        content.text,
        first.tool_calls + second.tool_calls,
        reasoning=Prompt(thoughts) if thoughts else None,
        pictures=content.pictures,
    )
