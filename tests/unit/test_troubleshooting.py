"""The page for on-call engineers names every reason that they can meet, with the class that the code gives it."""

import re
from pathlib import Path

from muster import lifecycle
from muster.recovery import blame
from muster.recovery.failure import Kind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md").read_text()


def row(reason: str) -> str:
    """The table row whose first cell has this reason."""
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    found = [line for line in rows if reason in re.split(r"[,|]\s*", line.split("|")[1].replace(" ", ""))]
    assert found, f"docs/troubleshooting.md says nothing of {reason}"
    return found[-1]


def test_every_failure_has_its_row_and_its_class() -> None:
    for kind in Kind:
        told = row(kind.value)
        if kind is not Kind.RANK_FAILED:
            assert blame.CLASSES[kind].value in told.split("|")[3], told


def test_every_reason_of_waiting_has_its_row() -> None:
    source = "".join(path.read_text() for path in Path(lifecycle.__path__[0]).glob("*.py"))
    reasons = set(re.findall(r'Missing\(\s*"([A-Za-z]+)"', source))
    reasons |= set(re.findall(r'^[A-Z_]+ = "([A-Z][a-z]+[A-Z][A-Za-z]+)"$', source, re.MULTILINE))
    reasons |= set(re.findall(r'Telling\(\s*State\.[A-Z]+,\s*"([A-Za-z]+)"', source)) - {"Suspended"}
    assert len(reasons) > 5
    for reason in sorted(reasons):
        row(reason)
