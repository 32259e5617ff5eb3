"""Remembers the last result of a pure function, for as long as what it was made from stays the same."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    def __init__(self) -> None:
        self._last: tuple[Hashable, T] | None = None

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """``key`` stands for all that ``make`` reads. Who gets the result must not change it."""
        if self._last is None or self._last[0] != key:
            self._last = (key, make())
        return self._last[1]
