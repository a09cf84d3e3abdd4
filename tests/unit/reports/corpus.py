"""Loads tests/data/reports: what programs of other people print and write, each with its source and right value.

A folder is a sort of report, a file one report: `source`, what it means, and `cases`, each with an `input` and its
`right` value. Each sort has one table test beside this module, so that adding a report is adding a file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "data/reports"
# The one of libyaml takes an eighth of the time, and each process of the tests reads all files.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Case:
    """One input of a report.

    Attributes:
        report: name of the file without its suffix.
        number: its place in the file, from 1.
        given: the input.
        right: what has to come of it.
        besides: what else a sort says of an input.
    """

    report: str
    number: int
    given: Any
    right: Any
    besides: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.report}-{self.number}"


def cases(sort: str) -> list[Case]:
    """All cases of a sort.

    Raises:
        ValueError: a file lacks its source, its meaning or its cases, or a case its input or right value.
    """
    found = []
    for path in sorted((FOLDER / sort).glob("*.yaml")):
        name, report = path.stem, yaml.load(path.read_text(), Loader)
        if not (report.get("source") and report.get("meaning") and report.get("cases")):
            raise ValueError(f"tests/data/reports/{sort}/{name}.yaml needs source, meaning and cases")
        for number, case in enumerate(report["cases"], 1):
            if not {"input", "right"} <= case.keys() or case["right"] in ("", None):
                raise ValueError(f"tests/data/reports/{sort}/{name}.yaml: case {number} needs input and right")
            found.append(Case(name, number, case.pop("input"), case.pop("right"), case))
    return found


def by_report(found: Iterable[Case]) -> dict[str, list[Case]]:
    """The cases of each report: one test for each of hundreds would cost more than what it tests."""
    reports: dict[str, list[Case]] = {}
    for case in found:
        reports.setdefault(case.report, []).append(case)
    return reports
