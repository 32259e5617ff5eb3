"""Requests that wait for the same ring, in order of arrival, and only so many of them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from p2pexo.generation.errors import OverloadedError


@define(eq=False)
class Place:
    """One request's place in the line. ``turn`` comes when all who came before have left."""

    turn: trio.Event = field(factory=trio.Event)


class Line:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._places: list[Place] = []

    @property
    def is_empty(self) -> bool:
        return not self._places

    @asynccontextmanager
    async def place(self, *, even_if_full: bool = False) -> AsyncGenerator[Place]:
        """Stand in line while in the block. Raises OverloadedError if it is full."""
        if len(self._places) >= self._capacity and not even_if_full:
            message = f"{self._capacity} requests already wait for this model; try again in a moment"
            raise OverloadedError(message, retry_after_s=10)
        place = Place()
        self._places.append(place)
        self._call_first()
        try:
            yield place
        finally:
            self._places.remove(place)
            self._call_first()

    def _call_first(self) -> None:
        if self._places:
            self._places[0].turn.set()
