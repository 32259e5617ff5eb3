"""Shows a cluster come together and a ring load: live bars on a terminal, plain lines elsewhere."""

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from p2pexo.cli.news import member_news, stage_label, stage_news, stage_state
from p2pexo.client import ClusterState, Placement, Stage


class Display(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def doing(self, what: str) -> None:
        """Say what is being waited for."""
        ...

    def show(self, snapshot: ClusterState, placement_id: str | None = None) -> None:
        """Show what is new since the last call; of the placements only the one named."""
        ...


def open_display(console: Console) -> Display:
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class PlainDisplay:
    """One line per change, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: ClusterState | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def doing(self, what: str) -> None:
        self._print(what)

    def show(self, snapshot: ClusterState, placement_id: str | None = None) -> None:
        for line in member_news(self._last, snapshot):
            self._print(line)
        if placement := _find(snapshot, placement_id):
            for line in stage_news(_find(self._last, placement_id), placement):
                self._print(line)
        self._last = snapshot

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay:
    """Lines for the members, and below them one bar per stage that fills as its weights are loaded."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", markup=False),
            console=console,
        )
        self._doing: TaskID | None = None
        self._stages: dict[tuple[int, str], TaskID] = {}
        self._last: ClusterState | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and self._doing is not None:
            self._progress.remove_task(self._doing)
        self._progress.stop()

    def doing(self, what: str) -> None:
        if self._doing is not None:
            self._progress.remove_task(self._doing)
        self._doing = self._progress.add_task(what, total=None, state="")

    def show(self, snapshot: ClusterState, placement_id: str | None = None) -> None:
        for line in member_news(self._last, snapshot):
            self._progress.console.print(line, markup=False, highlight=False)
        if placement := _find(snapshot, placement_id):
            for stage in placement.stages:
                self._show_stage(stage)
            self._forget_all_but(placement)
        self._last = snapshot

    def _show_stage(self, stage: Stage) -> None:
        key = (stage.rank, stage.peer)
        if key not in self._stages:
            self._stages[key] = self._progress.add_task("", total=1.0, state="")
        # A bar that is full counts as finished, so it stays just short of it until the stage is ready.
        completed = 1.0 if stage.phase == "ready" else min(stage.progress, 0.99)
        self._progress.update(
            self._stages[key], description=stage_label(stage), completed=completed, state=stage_state(stage)
        )

    def _forget_all_but(self, placement: Placement) -> None:
        present = {(stage.rank, stage.peer) for stage in placement.stages}
        for key in self._stages.keys() - present:
            self._progress.remove_task(self._stages.pop(key))


def _find(snapshot: ClusterState | None, placement_id: str | None) -> Placement | None:
    return snapshot.placement(placement_id) if snapshot and placement_id else None
