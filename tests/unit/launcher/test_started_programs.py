"""Rows of the contract's table of commands, run by a real launcher. Others are run by nightly tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.launcher.started_programs import (
    IN_THE_GATE,
    ROWS,
    Row,
    is_given_what_the_row_says,
    name_of,
)

CONTRACT = Path(__file__).parents[3] / "docs" / "trainer-contract.md"


def table() -> list[str]:
    """The rows of the page."""
    part = CONTRACT.read_text().partition("### How programs are started\n")[2].partition("\n### ")[0]
    return [line.removeprefix("| ") for line in part.splitlines() if line.startswith("| ")][1:]


def row_of(begins: str) -> str:
    (found,) = [row for row in table() if row.startswith(begins)]
    return found


def test_every_row_of_the_page_is_run_with_a_command_that_stands_in_it() -> None:
    assert len({row.begins for row in ROWS}) == len(table())
    for row in ROWS:
        said = row_of(row.begins)
        if row.begins != "the same with":
            assert row.command in said
        for name, value in row.environment.items():
            assert f"{name}={value}" in said


@pytest.mark.parametrize("row", [row for row in ROWS if name_of(row) in IN_THE_GATE], ids=name_of)
def test_a_row(row: Row, coordinator: Any, launch: Callable[..., Any], programs: str) -> None:
    is_given_what_the_row_says(row, coordinator, launch, programs)


def test_some_rows_are_run_here() -> None:
    assert {name_of(row) for row in ROWS} > IN_THE_GATE
