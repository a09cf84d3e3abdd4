"""The agent while the kernel log is flooded with tens of thousands of lines."""

from typing import Any

from tests.unit.agent.floods import assert_that_a_flood_of_one_xid_is_one, assert_that_noise_has_no_verdict


def test_a_flood_of_one_xid_is_one_piece_of_evidence_and_few_writes(node: Any, run: Any) -> None:
    assert_that_a_flood_of_one_xid_is_one(node, run, 25)


def test_a_flood_of_noise_has_no_verdict(node: Any, run: Any) -> None:
    assert_that_noise_has_no_verdict(node, run, 5000)
