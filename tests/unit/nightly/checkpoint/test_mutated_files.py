"""Many mutations of the files of each format: no content ends a scan."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.checkpoint.hostile import lay, mutate, scan
from tests.unit.checkpoint.test_formats import SAVES


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
