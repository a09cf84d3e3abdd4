"""Saves of each format, torn, spoiled, and shown late in very many ways: none of these is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.checkpoint.saves import SAVES
from tests.unit.checkpoint.spoiled import assert_that_spoiled_it_is_not_complete
from tests.unit.checkpoint.sweeps import (
    assert_that_a_changed_byte_is_read_or_refused,
    assert_that_late_objects_are_not_complete_too_early,
    assert_that_metadata_that_ends_early_is_refused,
    assert_that_torn_it_is_never_complete,
    judge_any_bytes_and_names,
)


@pytest.mark.parametrize("name", SAVES)
def test_a_save_is_never_complete_where_any_of_it_is_torn(name: str) -> None:
    assert_that_torn_it_is_never_complete(SAVES[name], times=650)


@pytest.mark.parametrize("name", SAVES)
def test_a_save_of_any_bytes_and_names_is_judged_without_an_error(name: str) -> None:
    judge_any_bytes_and_names(SAVES[name], times=200)


@pytest.mark.parametrize("name", SAVES)
def test_a_spoiled_save_has_one_answer_and_lacks_no_file_if_complete(name: str, tmp_path: Path) -> None:
    assert_that_spoiled_it_is_not_complete(SAVES[name], tmp_path, seeds=40)


@pytest.mark.parametrize("name", SAVES)
def test_where_objects_are_shown_late_and_in_any_order_nothing_is_complete_too_early(name: str) -> None:
    assert_that_late_objects_are_not_complete_too_early(SAVES[name], seeds=4)


def test_metadata_that_ends_anywhere(dcp: Path) -> None:
    assert_that_metadata_that_ends_early_is_refused((dcp / ".metadata").read_bytes(), every=1)


def test_metadata_with_a_byte_changed_is_read_or_refused(dcp: Path) -> None:
    assert_that_a_changed_byte_is_read_or_refused((dcp / ".metadata").read_bytes(), every=3)
