"""Saves on a real file system, with what no file system in memory has: links, pipes, names of any bytes, lengths
without content."""

from pathlib import Path

import pytest
from tests.unit.checkpoint.saves import SAVES
from tests.unit.checkpoint.spoiled import assert_that_spoiled_it_is_not_complete


@pytest.mark.parametrize("name", SAVES)
def test_a_spoiled_save_has_one_answer_and_lacks_no_file_if_complete(name: str, tmp_path: Path) -> None:
    assert_that_spoiled_it_is_not_complete(SAVES[name], tmp_path, seeds=3)
