"""Who travels with whom: sequences that have a token to draw, divided among groups that fit the stages and the memory. Pure."""

from collections.abc import Callable
from math import ceil

from attrs import define, field

from p2pexo.engine.groups import Group, Sequence
from p2pexo.engine.pacing import Pace


@define
class Grouping:
    """No group is larger than ``together``, nor costs more memory than ``has_room`` says there is, in tokens."""

    pace: Pace
    together: int
    has_room: Callable[[int], bool]
    _groups: list[Group] = field(factory=list[Group], init=False)

    def __bool__(self) -> bool:
        """Whether anybody waits for a next token."""
        return any(self._groups)

    @property
    def room(self) -> int:
        """Tokens that all their caches take."""
        return sum(each.room for each in self._groups)

    @property
    def at_home(self) -> list[Group]:
        """Those that can take a step, the one that waits longest first."""
        return sorted((each for each in self._groups if not each.is_in_flight and each.sequences), key=_turn)

    def clear(self) -> None:
        self._groups.clear()

    def join(self, sequence: Sequence) -> None:
        """Into the smallest group that has a place for it and memory, or else into one of its own."""
        by_size = sorted(filter(len, self._groups), key=len)
        group = next((each for each in by_size if self._has_place(each, sequence)), None)
        if group is None:
            self._groups.append(group := Group())
        group.add(sequence)

    def level(self, most: int) -> None:
        """Divide the sequences evenly among as many groups as pay, ``most`` at most unless that makes them too large; only
        those of groups at home can be moved."""
        self._groups = [each for each in self._groups if each.sequences or each.is_in_flight]
        live = [each for each in self._groups if each.sequences]
        sequences = sum(map(len, live))
        least = ceil(sequences / self.together)
        wanted = self.pace.groups(sequences, least=least, most=most, now=len(live)) if live else 0
        for group in sorted(live, key=len):
            if group.is_in_flight:
                continue
            if len(live) > wanted and self._dissolve(group, live):
                live.remove(group)
            elif len(group) > ceil(sequences / wanted):
                self._spill(group, live, ceil(sequences / wanted), wanted)

    def _dissolve(self, group: Group, live: list[Group]) -> bool:
        for other in sorted((each for each in live if each is not group), key=len):
            if len(group) + len(other) <= self.together and self._fits(other, group.sequences, freed=group.room):
                for sequence in list(group.sequences):
                    group.move(sequence, other)
                return True
        return False

    def _spill(self, group: Group, live: list[Group], size: int, wanted: int) -> None:
        """Move what is more than ``size`` to the smallest of the other groups, or to a new one."""
        if len(live) < wanted:
            live.append(Group())
            self._groups.append(live[-1])
        smallest = min(live, key=len)
        while len(group) > max(size, len(smallest) + 1) and self._fits(smallest, group.sequences[-1:], freed=0):
            group.move(group.sequences[-1], smallest)

    def _has_place(self, group: Group, sequence: Sequence) -> bool:
        return len(group) < self.together and self._fits(group, [sequence], freed=sequence.room)

    def _fits(self, group: Group, newcomers: list[Sequence], *, freed: int) -> bool:
        """Whether there is memory for the newcomers here, where all rows are as long as the longest one."""
        return self.has_room(group.room_with(newcomers) - group.room - freed)


def _turn(group: Group) -> int:
    return group.turn
