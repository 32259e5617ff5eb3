from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from p2pexo.node import run
from p2pexo.node.settings import NodeSettings


class BrokenNode:
    """Fails with what looks like a mistake of whoever started it."""

    def __init__(self, settings: NodeSettings, is_up: bool) -> None:
        self.settings = settings
        self.is_up = is_up

    async def run(self, stop: trio.Event) -> None:
        raise OSError(24, "Too many open files")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def fail(is_up: bool) -> int:
        monkeypatch.setattr(run, "Node", lambda settings, *_: BrokenNode(settings, is_up))
        return run.run_node(NodeSettings(home=tmp_path))

    return fail


def test_what_keeps_a_node_from_coming_up_is_raised(failing) -> None:
    with pytest.raises(ExceptionGroup):
        failing(is_up=False)


def test_what_ends_a_node_that_was_up_is_logged_with_its_traceback(failing) -> None:
    with capture_logs() as logs:
        assert failing(is_up=True) == 1
    assert [(each["event"], each["exc_info"]) for each in logs] == [("the node has failed", True)]
