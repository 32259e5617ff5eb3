"""What one client does: asks something, and stays for the answer or not. Drawn from a random number, so that a seed says it all."""

from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import Any

from attrs import frozen
from end_to_end.dialects import DIALECTS, body

TEXT = "the lighthouse keeper looked at a storm and wrote down what he saw before dawn came over all our boats"
MOST_WORDS = 400
MOST_TOKENS = 48
TOO_LONG = 9000
"""Words: more than the context of the embedded model."""


class Leave(StrEnum):
    """When a client hangs up."""

    NEVER = "never"
    IN_BODY = "in_body"
    """With half of its request sent."""
    EARLY = "early"
    """After some time, perhaps before the first token, perhaps in the queue."""
    IN_ANSWER = "in_answer"
    """After some pieces of the stream."""


@frozen
class Visit:
    dialect: str
    body: dict[str, Any]
    leave: Leave = Leave.NEVER
    leave_s: float = 0.0
    leave_after: int = 0
    """Pieces of the stream."""
    refused_as: str = ""
    """What is wrong with it; empty if it is to be answered."""

    @property
    def streams(self) -> bool:
        return bool(self.body["stream"])


def draw_visit(random: Random, model: str) -> Visit:
    if random.random() < 0.15:
        return _bad(random, model)
    visit = _good(random, model)
    leave = random.choices(list(Leave), (70, 5, 10, 15))[0]
    if leave is Leave.IN_ANSWER and not visit.streams:
        leave = Leave.EARLY
    return Visit(visit.dialect, visit.body, leave, random.uniform(0.0, 3.0), random.randint(1, MOST_TOKENS // 2))


def steady_visit(number: int, model: str) -> Visit:
    """One of those that are the same each time."""
    prompt = f"{number} times {TEXT} " * 8
    return Visit("chat", body("chat", model, prompt, False) | {"max_tokens": 8, "temperature": 0.0})


def short_visit(random: Random, model: str) -> Visit:
    """A question of some words for an answer of some tokens, by a client that waits for it."""
    dialect, stream = random.choice(DIALECTS), random.random() < 0.5
    asked = body(dialect, model, _prompt(random, random.randint(1, 12)), stream)
    return Visit(dialect, asked | _limit(dialect, random.randint(1, 4)))


def _good(random: Random, model: str) -> Visit:
    dialect, stream = random.choice(DIALECTS), random.random() < 0.6
    prompt = _prompt(random, int(MOST_WORDS ** random.random()))
    asked = body(dialect, model, prompt, stream)
    return Visit(dialect, asked | _limit(dialect, random.randint(1, MOST_TOKENS)) | _options(random, dialect))


def _prompt(random: Random, words: int) -> str:
    return " ".join(random.choices(TEXT.split(), k=words))


def _limit(dialect: str, tokens: int) -> dict[str, Any]:
    match dialect:
        case "responses":
            return {"max_output_tokens": tokens}
        case "ollama":
            return {"options": {"num_predict": tokens}}
        case _:
            return {"max_tokens": tokens}


def _options(random: Random, dialect: str) -> dict[str, Any]:
    """Some of what a request may say beyond that."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}
    by_dialect: dict[str, list[dict[str, Any]]] = {
        "chat": [
            {"seed": random.randint(0, 9), "temperature": 1.0, "top_p": 0.9},
            {"logprobs": True, "top_logprobs": 3},
            {"n": 2},
            {"stop": ["storm"], "frequency_penalty": 0.5},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}},
        ],
        "responses": [{"store": False}, {"temperature": 0.0}],
        "claude": [{"stop_sequences": ["storm"]}, {"temperature": 0.0, "top_k": 5}],
        "ollama": [{"format": "json"}, {"format": schema}],
    }
    return random.choice([{}, *by_dialect[dialect]])


def _bad(random: Random, model: str) -> Visit:
    dialect = random.choice(DIALECTS)
    asked = body(dialect, model, "Hello", random.random() < 0.5)
    kind, spoil = random.choice(_SPOILT)
    return Visit(dialect, spoil(dialect, asked), refused_as=kind)


def _say(dialect: str, prompt: str) -> dict[str, Any]:
    return {"input": prompt} if dialect == "responses" else {"messages": [{"role": "user", "content": prompt}]}


def _impossible(dialect: str) -> dict[str, Any]:
    """A format that can't be enforced."""
    schema = {"type": "object", "properties": {"name": {"not": {"type": "string"}}}}
    match dialect:
        case "chat":
            return {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}}
        case "responses":
            return {"text": {"format": {"type": "json_schema", "name": "it", "schema": schema}}}
        case "claude":
            return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
        case _:
            return {"format": schema}


_Spoil = Callable[[str, dict[str, Any]], dict[str, Any]]

_SPOILT: list[tuple[str, _Spoil]] = [
    ("wrong_type", lambda dialect, asked: asked | ({"input": 5} if dialect == "responses" else {"messages": "Hello"})),
    ("unknown_model", lambda dialect, asked: asked | {"model": "nobody/Nothing-1B"}),
    ("too_long", lambda dialect, asked: asked | _say(dialect, "word " * TOO_LONG)),
    ("bad_schema", lambda dialect, asked: asked | _impossible(dialect)),
]
