"""Whom to ask others about, and how seldom (pure): those whose documents are held, but who can't be reached from here.

Most of them are gone for good, and their documents are kept for a while; so each is asked about ever more seldom.
"""

from collections.abc import Iterable

from attrs import define, field, frozen

from networking.transport import PeerId

MAX_WAIT_S = 60.0
"""Between two questions about somebody whom nobody hears. Raised, one that is back is found later where nothing else tells of it; lowered,
every peer that left costs questions to all for as long as its document is kept."""


FIRST_WAIT_S = 1.0
"""Raised, an answer that is lost is missed for longer; lowered, everybody who leaves costs more questions at first."""


@frozen
class _Asked:
    at: float
    wait_s: float


@define
class Inquiries:
    _asked: dict[PeerId, _Asked] = field(factory=dict[PeerId, _Asked])

    def due(self, now: float, missed: Iterable[PeerId]) -> list[PeerId]:
        """Of all that are missed, those to ask about now. Who is not missed any more begins anew the next time."""
        before, self._asked = self._asked, {}
        due: list[PeerId] = []
        for peer in missed:
            last = before.get(peer)
            if last is not None and now - last.at < last.wait_s:
                self._asked[peer] = last
                continue
            self._asked[peer] = _Asked(now, FIRST_WAIT_S if last is None else min(2 * last.wait_s, MAX_WAIT_S))
            due.append(peer)
        return due

    def begin_anew(self, about: Iterable[PeerId]) -> None:
        """Somebody seems to know them."""
        for peer in about:
            self._asked.pop(peer, None)
