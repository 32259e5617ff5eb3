"""Durations as Ollama's clients write them: seconds, or as Go prints them. Pure."""

import re

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT = r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)"
_DURATION = re.compile(rf"-?(?:{_AMOUNT})+")
_SECONDS = re.compile(r"-?\d+(?:\.\d+)?")


def read_duration(text: str) -> float | None:
    """Seconds of ``300``, ``5m``, ``1h30m`` or ``-1``; None if it is no duration."""
    if _SECONDS.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        return None
    seconds = sum(float(amount) * _UNITS_S[unit] for amount, unit in re.findall(_AMOUNT, text))
    return -seconds if text.startswith("-") else seconds
