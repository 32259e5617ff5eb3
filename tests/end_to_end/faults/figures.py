"""What a bench of faults counts, and the one line that it tells of each."""

from collections.abc import Iterable, Sequence
from statistics import median, quantiles

from attrs import frozen
from end_to_end.faults.faults import BYSTANDER, KILLED, LEAVING, SILENT, Fault
from end_to_end.faults.harness import Outcome, Question


@frozen
class Trial:
    fault: Fault
    question: Question
    outcome: Outcome | None
    """None if it could not be brought to its end."""
    failure: str = ""
    """What kept it from its end."""

    @property
    def is_equal(self) -> bool:
        return self.outcome is not None and self.outcome.is_equal


def figures(trials: Sequence[Trial]) -> dict[str, float | None]:
    """Pauses in seconds; None where nothing was drawn that would show them."""
    outcomes = [trial.outcome for trial in trials if trial.outcome is not None]
    killed, silent, leaving = (pauses(trials, kinds) for kinds in (KILLED, SILENT, (LEAVING,)))
    beside = [outcome for trial in trials if trial.fault.kind == BYSTANDER and (outcome := trial.outcome)]
    return {
        "equal": sum(outcome.is_equal for outcome in outcomes),
        "faults": len(trials),
        "failed": len(trials) - len(outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
        "repeated": sum(outcome.repeated for outcome in outcomes),
        "errors": sum(bool(outcome.error) for outcome in outcomes),
        "pause_s_p50": median(killed) if killed else None,
        "pause_s_p95": percentile95(killed),
        "silent_pause_s_p95": percentile95(silent),
        "leave_gap_s": max(leaving, default=None),
        "leader_gap_ratio": max(gap_ratios(beside), default=None),
        "leader_reloads": sum(outcome.is_formed_anew for outcome in beside) if beside else None,
    }


def pauses(trials: Iterable[Trial], kinds: Sequence[str]) -> list[float]:
    told = (trial.outcome for trial in trials if trial.fault.kind in kinds)
    return [outcome.pause_s for outcome in told if outcome is not None and outcome.pause_s is not None]


def gap_ratios(outcomes: Iterable[Outcome]) -> list[float]:
    """The longest gap from the fault on, by the usual one."""
    return [each.pause_s / each.usual_gap_s for each in outcomes if each.pause_s is not None and each.usual_gap_s]


def percentile95(values: Sequence[float]) -> float | None:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else next(iter(values), None)


def describe(trial: Trial) -> str:
    question = trial.question
    how = f"{question.dialect}, {'stream' if question.stream else 'whole'}, {'greedy' if question.seed is None else 'seeded'}"
    return f"{trial.fault.kind} at token {trial.fault.token} ({how}): {_became(trial)}"


def _became(trial: Trial) -> str:
    outcome = trial.outcome
    if outcome is None:
        return f"FAILED {trial.failure}"
    what = "equal" if outcome.is_equal else f"NOT EQUAL {outcome.error} {outcome.text!r} {outcome.expected!r}"
    pause = "" if outcome.pause_s is None else f", pause {outcome.pause_s:.2f} s (usually {outcome.usual_gap_s:.2f} s)"
    return f"{what}{pause}"
