"""The account changes no decision, in the lives and stories that the gate leaves out."""

from collections.abc import Callable

import pytest
from tests.unit.decision.unaccounted import (
    no_decision_of_a_story_reads_the_account,
    node_left_for_maintenance,
    the_same_is_decided_without_accounts,
)


@pytest.mark.parametrize("life", [node_left_for_maintenance])
def test_without_accounts_the_same_is_decided(life: Callable[[], object]) -> None:
    the_same_is_decided_without_accounts(life)


@pytest.mark.parametrize(
    "name", ["account-begun-anew", "charged-twice", "late-evidence", "never-refunded", "second-counted-twice"]
)
def test_in_a_story_no_decision_reads_what_the_account_has_written(name: str) -> None:
    no_decision_of_a_story_reads_the_account(name)
