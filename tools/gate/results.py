"""A pytest plugin that writes one line of JSON for each test: name, result, seconds, and the seed if it drew one.

Loaded by `-p gate.results`; the file is named by MUSTER_RESULTS, and without it nothing is written. A test that draws
its inputs names the seed by `record_property("seed", ...)`. Of a test that is run again, it prints the failure before:
pytest-rerunfailures prints only the name.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "MUSTER_RESULTS"


class Results:
    """Writes a test's line when the test has ended, so that a crash of pytest loses at most one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, dict[str, Any]] = {}
        self._reran: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        line = self._open.setdefault(report.nodeid, {"name": report.nodeid, "result": "passed", "seconds": 0.0})
        line["seconds"] = round(line["seconds"] + report.duration, 2)
        if report.outcome == "rerun":
            line["reruns"] = line.get("reruns", 0) + 1
        elif report.outcome != "passed" and line["result"] != "failed":
            line["result"] = report.outcome
        seed = dict(report.user_properties).get("seed")
        if seed is not None:
            line["seed"] = seed
        if report.when in ("setup", "call"):  # else the teardown, or the crash of an xdist worker ("???")
            return
        if line.get("reruns", 0) > self._reran.get(report.nodeid, 0):  # it begins again
            self._reran[report.nodeid] = line["reruns"]
        else:
            with self._path.open("a") as file:
                file.write(json.dumps(self._open.pop(report.nodeid)) + "\n")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            with self._path.open("a") as file:
                file.write(json.dumps({"name": report.nodeid, "result": "failed", "seconds": 0.0}) + "\n")


def pytest_configure(config: Any) -> None:
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):  # with xdist the controller hears of every test
        config.pluginmanager.register(Results(Path(path)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"{report.nodeid} was run again after this")
        terminalreporter.line(report.longreprtext)
        for title, text in report.sections:
            terminalreporter.line(f"--- {title}\n{text}")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file, in the order in which tests ended; empty when no test ran.

    A line that was cut short, by a full disk or a kill, is skipped.
    """
    lines = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(json.loads(line))
    return lines
