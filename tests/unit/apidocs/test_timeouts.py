"""The page of waits names few, with values and fields that exist."""

import re
from pathlib import Path

import pytest

from apidocs import timeouts
from apidocs.timeouts import rows

ROOT = Path(__file__).resolve().parents[3]
MOST = 20


def test_a_reader_can_take_in_all_waits() -> None:
    assert len(list(rows())) <= MOST


def test_every_field_that_changes_a_wait_is_one_of_the_api() -> None:
    reference = (ROOT / "docs/reference/api.md").read_text()
    fields = {field for row in rows() for field in re.findall(r"`(spec\.[\w.]+)`", row.field)}
    assert fields
    assert [field for field in sorted(fields) if f"| `{field}` |" not in reference] == []


def test_the_values_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| 7m |" not in timeouts.timeouts("")
    monkeypatch.setattr(timeouts, "UNSAVED_SECONDS", 420.0)
    assert "| 7m |" in timeouts.timeouts("")
