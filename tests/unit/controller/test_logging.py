"""Log lines are JSON that a person can read from the left."""

import json
import logging

import pytest
import structlog

from muster.controller.main import configure_logging


def test_a_line_begins_with_when_how_bad_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        configure_logging("INFO")
        structlog.get_logger("muster.test").info("decided", job="a/b", attempt=2)
        logging.getLogger("other.library").warning("careful")
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        structlog.reset_defaults()
    ours, theirs = capsys.readouterr().out.splitlines()
    assert list(json.loads(ours)) == ["timestamp", "level", "event", "job", "attempt"]
    assert list(json.loads(theirs))[:3] == ["timestamp", "level", "event"]
