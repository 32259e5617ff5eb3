"""How long a step of a stage may take: a multiple of what such steps took before. Pure.

Steps are told apart by their rows, a power of two at a time: a long chunk of a prompt takes longer than one token.
"""

from math import inf

from attrs import define, field, frozen


@frozen
class Patience:
    factor: float = 10.0
    """Of the usual time of such a step. Raise it for machines that do much else; lower it and a step that hangs is noticed sooner."""
    floor_s: float = 20.0
    """Never less than this, since a machine may sleep, or a step wait for memory. Lower it and pauses of the machine cost a stage."""
    first_s: float = 300.0
    """For a step the like of which has not been timed: kernels may have to be compiled for it. Raise it for slow disks; lower
    it and a stage that hangs from the start is noticed sooner."""


@define
class StepClock:
    """Steps begin and end on one thread; any other may ask whether one is overdue."""

    patience: Patience = field(factory=Patience)
    _usual_s: dict[int, float] = field(factory=dict[int, float], init=False)
    """By the binary logarithm of the rows: a running mean."""
    _rows: int = field(default=0, init=False)
    _begun_at: float = field(default=inf, init=False)

    def begin(self, rows: int, now: float) -> None:
        self._rows, self._begun_at = rows, now

    def end(self, now: float) -> float:
        """The step is over; seconds that it took."""
        took_s, size = now - self._begun_at, self._rows.bit_length()
        self._begun_at = inf
        self._usual_s[size] = took_s if size not in self._usual_s else 0.8 * self._usual_s[size] + 0.2 * took_s
        return took_s

    def overdue(self, now: float) -> str:
        """Why the step that is being computed must hang; empty if it need not, or if there is none."""
        took_s, usual_s = now - self._begun_at, self._expected_s()
        limit_s = (
            self.patience.first_s if usual_s is None else max(self.patience.floor_s, self.patience.factor * usual_s)
        )
        if took_s <= limit_s:
            return ""
        usual = "none like it was computed before" if usual_s is None else f"such steps took {usual_s:.2g} s before"
        return f"a step of {self._rows} rows was computed for {took_s:.3g} s, and {usual}"

    def _expected_s(self) -> float | None:
        """From the largest timed step that is no larger, in proportion: more rows take less time each, so that is enough."""
        sizes = [size for size in tuple(self._usual_s) if size <= self._rows.bit_length()]
        if not sizes:
            return None
        return self._usual_s[max(sizes)] * 2 ** (self._rows.bit_length() - max(sizes))
