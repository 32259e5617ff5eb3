"""OpenAI's legacy Completions, inwards: each prompt of the body becomes requests without a chat template. Pure."""

from collections.abc import Callable

from attrs import frozen

from p2pexo.api.fields import Fields, Range, as_text
from p2pexo.api.parameters import Parameters
from p2pexo.api.sampling import SAMPLING_FIELDS, TOKENS, read_choices, read_sampling, read_stop
from p2pexo.generation.errors import UnsupportedParameterError
from p2pexo.generation.request import Request
from p2pexo.generation.text import Prompt
from p2pexo.models.card import Card

MAX_ANSWERS = 64
"""Prompts times answers to each. Raise it and one client may fill the ring; lower it and batches must be cut smaller."""

_LOGPROBS = Range(0, 20)

IGNORED = frozenset({"user", "metadata", "store", "service_tier", "cache_prompt", "keep_alive"})

HONOURED = SAMPLING_FIELDS | {
    "model",
    "prompt",
    "stream",
    "stream_options",
    "max_tokens",
    "stop",
    "n",
    "echo",
    "logprobs",
}

NOT_OFFERED: dict[str, Callable[[Fields], bool]] = {
    "suffix": lambda body: body.text("suffix", "") != "",
    "best_of": lambda body: body.integer("best_of", 1, TOKENS) != 1,
}

PARAMETERS = Parameters(HONOURED, IGNORED, NOT_OFFERED)


@frozen
class CompletionCall:
    """A legacy completion as asked for."""

    id: str
    model: str
    prompts: tuple[Prompt, ...]
    choices: int
    """Answers to each prompt."""
    requests: tuple[Request, ...]
    """One for each answer: those to the first prompt, those to the second one, …"""
    stream: bool
    include_usage: bool
    echo: bool

    @property
    def echoes(self) -> tuple[str, ...]:
        """What stands before each answer."""
        return tuple(prompt if self.echo else "" for prompt in self.prompts for _ in range(self.choices))


def read_completion(body: Fields, resolve: Callable[[str], Card], request_id: str) -> CompletionCall:
    """Read the body of POST /v1/completions.

    Raises InvalidRequestError (also UnsupportedParameterError) naming the field, ModelNotFoundError.
    """
    PARAMETERS.check(body)
    prompts, choices = _prompts(body), read_choices(body)
    if len(prompts) * choices > MAX_ANSWERS:
        raise body.wrong("n", f"at most {MAX_ANSWERS} answers to all prompts together")
    options = body.child("stream_options") or Fields({}, "stream_options")
    model = resolve(body.text("model", "")).id
    requests = tuple(
        _request(body, model, prompt, f"{request_id}-{index * choices + choice}", index * choices + choice)
        for index, prompt in enumerate(prompts)
        for choice in range(choices)
    )
    stream, usage, echo = body.boolean("stream"), options.boolean("include_usage"), _echo(body)
    return CompletionCall(request_id, model, prompts, choices, requests, stream, usage, echo)


def _request(body: Fields, model: str, prompt: Prompt, request_id: str, choice: int) -> Request:
    return Request(
        id=request_id,
        model=model,
        messages=(),
        sampling=read_sampling(body),
        max_tokens=body.integer("max_tokens", None, TOKENS),
        stop=read_stop(body),
        choice=choice,
        top_logprobs=body.integer("logprobs", None, _LOGPROBS),
        raw_prompt=prompt,
    )


def _prompts(body: Fields) -> tuple[Prompt, ...]:
    """One string or a list of them; token ids are not taken."""
    value = body.get("prompt")
    prompts = (value,) if isinstance(value, str) else body.items("prompt", as_text)
    if not prompts or "" in prompts:
        raise body.wrong("prompt", "a string that is not empty, or a list of such strings")
    return tuple(Prompt(prompt) for prompt in prompts)


def _echo(body: Fields) -> bool:
    echo = body.boolean("echo")
    if echo and body.get("logprobs") is not None:
        raise UnsupportedParameterError("echo: the prompt has no log probabilities here", param="echo")
    return echo
