"""Ollama's ``options``, ``format``, ``think`` and ``keep_alive``, inwards. Pure."""

from collections.abc import Callable, Mapping

import orjson
from attrs import frozen

from p2pexo.api.durations import read_duration
from p2pexo.api.fields import Fields, Range, as_text
from p2pexo.api.parameters import Parameters
from p2pexo.generation.request import FormatKind, OutputFormat, Sampling, Thinking

HONOURED = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "num_predict",
        "stop",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "num_ctx",
    }
)

IGNORED = frozenset(
    {
        # How Ollama's own engine is to use its machine.
        "numa",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "low_vram",
        "f16_kv",
        "logits_all",
        "vocab_only",
        "use_mmap",
        "use_mlock",
        "embedding_only",
        "num_thread",
        # What stays of a prompt that is cut: here none is.
        "num_keep",
        # How far back penalties look: here over the whole answer, the repeat penalty over the prompt too.
        "repeat_last_n",
        "penalize_newline",
        # Of mirostat, which is refused where it is switched on.
        "mirostat_tau",
        "mirostat_eta",
    }
)
"""Options that are legal and change nothing here."""

NOT_OFFERED: Mapping[str, Callable[[Fields], bool]] = {
    "mirostat": lambda options: options.get("mirostat") != 0,
    "tfs_z": lambda options: options.get("tfs_z") != 1,
    "typical_p": lambda options: options.get("typical_p") != 1,
}
"""Other ways of drawing: taken when they are switched off."""

OPTIONS = Parameters(HONOURED, IGNORED, NOT_OFFERED)

TEMPERATURE, TOP_P, TOP_K = 0.8, 0.9, 40
"""Ollama's own defaults."""

_PENALTIES = Range(-2, 2)
_SEEDS = Range(-(2**63), 2**63 - 1)
_LARGE = 2**31 - 1


@frozen
class Options:
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]


def read_options(body: Fields, context_length: int) -> Options:
    """Raises InvalidRequestError, of which UnsupportedParameterError is for options that are not offered."""
    options = body.child("options") or Fields({}, "options")
    OPTIONS.check(options)
    _check_context(options, context_length)
    return Options(_sampling(options), _max_tokens(options), _stop(options))


def _sampling(options: Fields) -> Sampling:
    return Sampling(
        temperature=options.number("temperature", TEMPERATURE, Range(0, 2)),
        top_p=options.number("top_p", TOP_P, Range(0, 1, low_open=True)),
        top_k=options.integer("top_k", TOP_K, Range(0, _LARGE)),
        min_p=options.number("min_p", 0.0, Range(0, 1)),
        frequency_penalty=options.number("frequency_penalty", 0.0, _PENALTIES),
        presence_penalty=options.number("presence_penalty", 0.0, _PENALTIES),
        repetition_penalty=options.number("repeat_penalty", 1.0, Range(0, 10, low_open=True)),
        seed=options.integer("seed", None, _SEEDS),
    )


def _max_tokens(options: Fields) -> int | None:
    """-1, as long as it takes, and -2, until the context is full, come to the same: both end at the context's end."""
    limit = options.integer("num_predict", -1, Range(-2, _LARGE))
    if limit == 0:
        raise options.wrong("num_predict", "-1, -2 or a whole number from 1")
    return limit if limit > 0 else None


def _stop(options: Fields) -> tuple[str, ...]:
    value = options.get("stop")
    stops = (value,) if isinstance(value, str) else options.items("stop", as_text)
    if "" in stops:
        raise options.wrong("stop", "strings that are not empty")
    return stops


def _check_context(options: Fields, context_length: int) -> None:
    """The context is always the model's own; wishing for less of it is harmless."""
    wanted = options.integer("num_ctx", 1, Range(1, _LARGE))
    if wanted > context_length:
        raise options.wrong("num_ctx", f"at most {context_length}, the context of this model")


def read_format(body: Fields) -> OutputFormat:
    """``json``, a JSON schema, or nothing."""
    value = body.get("format")
    if value is None or value == "":
        return OutputFormat()
    if value == "json":
        return OutputFormat(FormatKind.JSON_OBJECT)
    if not isinstance(value, dict):
        raise body.wrong("format", '"json" or a JSON schema')
    return OutputFormat(FormatKind.JSON_SCHEMA, orjson.dumps(value).decode())


def read_thinking(body: Fields) -> Thinking | None:
    value = body.get("think")
    if value is None:
        return None
    if isinstance(value, bool):
        return Thinking.MEDIUM if value else Thinking.OFF
    efforts = {each.value: each for each in Thinking if each is not Thinking.OFF}
    if not isinstance(value, str) or value not in efforts:
        raise body.wrong("think", "true, false or one of " + ", ".join(efforts))
    return efforts[value]


def read_keep_alive(body: Fields) -> float | None:
    """Seconds that a model shall stay loaded after its last use; negative for ever, None when nothing is said."""
    value = body.get("keep_alive")
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None:
        raise body.wrong("keep_alive", "seconds, or a duration such as 5m")
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return read_duration(value) if isinstance(value, str) else None
