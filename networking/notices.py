"""Warnings for people, each said once and forgotten when its cause is gone."""

from attrs import frozen


@frozen
class _Warning:
    text: str
    until: float


class Warnings:
    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._warnings: dict[str, _Warning] = {}
        self._shown: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(each.text for each in self._warnings.values())

    def add(self, now: float, cause: str, text: str) -> bool:
        """Note that a cause exists now; whether it is news."""
        is_new = cause not in self._warnings
        self._warnings[cause] = _Warning(text, now + self._lasts_s)
        return is_new

    def end(self, cause: str) -> None:
        """The cause is gone."""
        self._warnings.pop(cause, None)

    def expire(self, now: float) -> bool:
        """Whether the texts differ from those of the last time."""
        self._warnings = {cause: each for cause, each in self._warnings.items() if now < each.until}
        before, self._shown = self._shown, self.texts
        return self._shown != before
