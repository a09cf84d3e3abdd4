"""A checkpoint of as many shards as the largest jobs write, and what many pieces and directories cost."""

from pathlib import Path

import pytest
from bench import dcp_files
from tests.unit.checkpoint.directories import (
    assert_that_directories_cost_a_few_looks,
    assert_that_shards_are_one_checkpoint,
)
from tests.unit.checkpoint.sweeps import (
    Tensors,
    assert_that_a_piece_costs_a_few_turns,
    assert_that_all_sizes_are_read,
    of_frames_that_end_within_pieces,
)


def test_a_hundred_thousand_shards_are_one_checkpoint() -> None:
    assert_that_shards_are_one_checkpoint(100_000)


def test_ten_thousand_directories_cost_a_few_looks(tmp_path: Path) -> None:
    assert_that_directories_cost_a_few_looks(tmp_path, 10_000)


@pytest.mark.parametrize(
    "tensors",
    [of_frames_that_end_within_pieces(300), dcp_files.sharded(1, 3000)],
    ids=["frames end within pieces", "a shard for each piece"],
)
def test_the_sizes_of_a_metadata_of_many_pieces(tensors: Tensors) -> None:
    assert_that_all_sizes_are_read(tensors)


@pytest.mark.parametrize(("tensors", "ranks"), [(50, 20), (1, 1000)], ids=["many tensors", "many shards"])
def test_a_piece_costs_a_few_turns_and_not_one_for_each_opcode(tensors: int, ranks: int) -> None:
    assert_that_a_piece_costs_a_few_turns(tensors, ranks)
