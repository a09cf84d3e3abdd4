"""Rows of the contract's table of commands that the gate does not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.launcher.started_programs import (
    IN_THE_GATE,
    ROWS,
    Row,
    is_given_what_the_row_says,
    name_of,
)


@pytest.mark.parametrize("row", [row for row in ROWS if name_of(row) not in IN_THE_GATE], ids=name_of)
def test_a_row(row: Row, coordinator: Any, launch: Callable[..., Any], programs: str) -> None:
    is_given_what_the_row_says(row, coordinator, launch, programs)
