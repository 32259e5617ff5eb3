"""How often a crashed stage is started again, and after what pause (pure)."""

from attrs import define

RESTART_PAUSES_S = (0.0, 0.5, 2.0)
"""Before each restart of a crashed stage; when they are used up the stage is FAILED and the leader decides. More or longer
pauses give a flaky machine more chances; fewer make the ring move elsewhere sooner."""

REGAINED_AFTER_S = 5.0
"""A process gets a restart back for each time that it worked so long; loading its layers, which may take minutes, is no work. Raise it and
crashes that are far apart are still taken for one trouble, and wait longer; lower it and a stage that crashes again and again is kept up here."""


@define
class Restarts:
    _used: int = 0

    def pause_after(self, worked_s: float) -> float | None:
        """How long to wait before the next start of a process that worked so many seconds; None: it is to be given up."""
        self._used = max(0, self._used - int(worked_s // REGAINED_AFTER_S))
        if self._used == len(RESTART_PAUSES_S):
            return None
        self._used += 1
        return RESTART_PAUSES_S[self._used - 1]
