"""Questions to `kubectl muster what-if`."""

import json
from collections.abc import Callable
from typing import Any

from typer.testing import Result

Command = Callable[..., Result]
QUICK = ("--lives", "20", "--days", "5")


def asked(command: Command, *arguments: str) -> dict[str, Any]:
    result = command("what-if", *QUICK, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def assert_that_what_muster_would_not_allow_is_noted(command: Command, *more: str) -> None:
    found = asked(command, "--nodes", "8192", "--mttf-days", "60", *more)
    notes = " ".join(found["notes"])
    assert "a TrainingJob has at most 4,096 nodes" in notes
    assert "the default spec.recovery.hardwareRestartsPerDay, 50, would have ended the job" in notes
    assert asked(command, "--nodes", "64", *more)["notes"] == []
