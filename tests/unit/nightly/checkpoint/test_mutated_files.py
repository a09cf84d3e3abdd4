"""Any content, links and many mutations of the files of each format: nothing ends a scan."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.checkpoint.hostile import (
    IN_THE_GATE,
    assert_that_no_content_ends_the_scan,
    assert_that_no_message_repeats_what_is_outside,
    lay,
    mutate,
    mutate_one_file_and_scan,
    scan,
)
from tests.unit.checkpoint.saves import SAVES


@pytest.mark.parametrize("name", SAVES)
def test_no_content_of_any_file_ends_the_scan(name: str, tmp_path: Path) -> None:
    assert_that_no_content_ends_the_scan(SAVES[name], tmp_path)


@pytest.mark.parametrize("name", SAVES)
def test_no_mutation_of_any_file_ends_the_scan(name: str, tmp_path: Path) -> None:
    mutate_one_file_and_scan(name, tmp_path, times=30)


@pytest.mark.parametrize("name", [name for name in SAVES if name not in IN_THE_GATE])
def test_no_message_repeats_a_file_to_which_a_link_leads_out_of_the_directory(name: str, tmp_path: Path) -> None:
    assert_that_no_message_repeats_what_is_outside(SAVES[name], tmp_path)


@pytest.mark.parametrize("name", SAVES)
def test_no_mutation_of_several_files_ends_the_scan(name: str, tmp_path: Path) -> None:
    chance = random.Random(f"nightly {name}")
    paths = lay(SAVES[name], tmp_path)
    whole = [path.read_bytes() for path in paths]
    for _ in range(2000):
        places = [chance.randrange(len(paths)) for _ in range(chance.choice((1, 1, 3)))]
        for place in places:
            paths[place].write_bytes(mutate(whole[place], chance))
        scan(tmp_path)
        for place in places:
            paths[place].write_bytes(whole[place])
