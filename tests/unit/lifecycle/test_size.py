"""Four times the workers, four times the work, in gangs that are large enough to show it."""

import pytest
from tests.unit.lifecycle.growth import SCENES, costs_in_proportion


@pytest.mark.parametrize("scene", SCENES)
def test_a_decision_costs_in_proportion_to_its_workers(scene: str) -> None:
    costs_in_proportion(scene, few=64)
