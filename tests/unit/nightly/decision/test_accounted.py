"""The account changes no decision, in the lives and stories that the gate leaves out."""

import pytest
from tests.unit.decision.unaccounted import no_decision_reads_the_account, node_left_for_maintenance, story


def test_no_decision_of_a_life_reads_the_account() -> None:
    no_decision_reads_the_account(node_left_for_maintenance)


@pytest.mark.parametrize(
    "name", ["account-begun-anew", "charged-twice", "late-evidence", "never-refunded", "second-counted-twice"]
)
def test_in_a_story_no_decision_reads_what_the_account_has_written(name: str) -> None:
    no_decision_reads_the_account(lambda: story(name))
