import logging

import pytest
import structlog

from p2pexo.ring.child_log import LogRecord, configure_child_log, parse_line


def test_what_a_child_logs_comes_out_as_it_was_meant(capfd: pytest.CaptureFixture[str]):
    before = structlog.get_config()
    try:
        configure_child_log()
        structlog.get_logger("child").warning("the ring is broken", reason="gone", epoch="1.2")
        line = capfd.readouterr().err
    finally:
        structlog.configure(**before)
    assert parse_line(line) == LogRecord(logging.WARNING, "the ring is broken", {"reason": "gone", "epoch": "1.2"})


@pytest.mark.parametrize("line", ["Traceback (most recent call last):", "[1, 2]", "", '{"event": '])
def test_any_other_line_is_its_own_event(line: str):
    assert parse_line(line) == LogRecord(logging.INFO, line)
