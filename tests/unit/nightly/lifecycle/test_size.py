"""Four times the workers, four times the work, in gangs of 256 and of 1,024 workers."""

import pytest
from tests.unit.lifecycle.growth import SCENES, costs_in_proportion


@pytest.mark.parametrize("scene", SCENES)
def test_a_decision_costs_in_proportion_to_its_workers(scene: str) -> None:
    costs_in_proportion(scene, few=256)
