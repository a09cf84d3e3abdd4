"""Each line of the log is one JSON object."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from muster.node.log import log


def test_a_line_is_an_object_with_the_time_the_event_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log("disk\nfull", path=Path("/data"), free=0)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    line = json.loads(printed.err)
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {"event": "disk\nfull", "path": "/data", "free": 0}
