"""What was decided about nodes is decided again: `python -m verdicts replay` shows each difference."""

import pytest

from muster.health import collect
from verdicts.__main__ import FILE, MONTHS, differences, month, read

INPUTS, MONTHS_BEFORE = read(FILE)


def test_nodes_and_fleets_are_decided_as_they_were() -> None:
    assert len(INPUTS) > 10_000
    assert list(differences(INPUTS)) == []


def test_a_change_of_a_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "STEADY_SECONDS", (0, 0))
    assert any(" state: was " in each for each in differences(INPUTS))


@pytest.mark.parametrize("seed", MONTHS)
def test_in_a_month_rulings_charges_and_taints_come_in_the_same_order(seed: int) -> None:
    assert month(seed) == next(each for each in MONTHS_BEFORE if each["seed"] == seed)
