"""A checkpoint of as many shards as the largest jobs write."""

from tests.unit.checkpoint.test_find import shards_are_one_checkpoint


def test_a_hundred_thousand_shards_are_one_checkpoint():
    shards_are_one_checkpoint(100_000)
