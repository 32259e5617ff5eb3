"""How tokens are to be drawn, how many and up to where, in the field names that OpenAI's dialects share. Pure."""

from p2pexo.api.fields import Fields, Range, as_text, wrong
from p2pexo.generation.request import Sampling

MAX_CHOICES = 16
"""Answers to one question. Raise it and one client may fill the ring; lower it and tools that vote over answers are refused."""

MAX_STOPS = 4
TOKENS = Range(1, 2**31 - 1)
SEEDS = Range(-(2**63), 2**63 - 1)
TOP_LOGPROBS = Range(0, 20)
_PENALTIES = Range(-2, 2)
_BIASES = Range(-100, 100)

SAMPLING_FIELDS = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
    }
)


def read_sampling(body: Fields) -> Sampling:
    """Raises InvalidRequestError naming the field."""
    return Sampling(
        temperature=body.number("temperature", 1.0, Range(0, 2)),
        top_p=body.number("top_p", 1.0, Range(0, 1, low_open=True)),
        top_k=body.integer("top_k", 0, Range(0, 2**31 - 1)),
        min_p=body.number("min_p", 0.0, Range(0, 1)),
        frequency_penalty=body.number("frequency_penalty", 0.0, _PENALTIES),
        presence_penalty=body.number("presence_penalty", 0.0, _PENALTIES),
        repetition_penalty=body.number("repetition_penalty", 1.0, Range(0, 10, low_open=True)),
        logit_bias=_logit_bias(body),
        seed=body.integer("seed", None, SEEDS),
    )


def read_choices(body: Fields) -> int:
    """How many answers are wanted."""
    return body.integer("n", 1, Range(1, MAX_CHOICES))


def read_stop(body: Fields) -> tuple[str, ...]:
    """One string or a list of them."""
    value = body.get("stop")
    stops = (value,) if isinstance(value, str) else body.items("stop", as_text)
    if len(stops) > MAX_STOPS:
        raise body.wrong("stop", f"at most {MAX_STOPS} strings")
    if "" in stops:
        raise body.wrong("stop", "strings that are not empty")
    return stops


def _logit_bias(body: Fields) -> tuple[tuple[int, float], ...]:
    biases = body.child("logit_bias") or Fields({}, "logit_bias")
    for name in biases.values:
        if not (name.isascii() and name.isdigit()):
            raise wrong("logit_bias", "token ids as keys", name)
    return tuple((int(name), biases.number(name, 0.0, _BIASES)) for name in biases.present())
