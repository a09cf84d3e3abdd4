"""Three of the recipes on real nodes, each with the demo's faults, and asked to leave; `make recipes` runs all."""

from collections.abc import Iterator

import pytest

from recipes.play import NAMESPACE, play, prepare
from recipes.table import RECIPES, TORCH
from testbed.bed import Bed
from testbed.harm import FAULTS


@pytest.fixture(scope="module")
def stage(bed: Bed) -> Iterator[Bed]:
    prepare(bed)
    yield bed
    bed.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


@pytest.mark.parametrize("name", [name for name, image in RECIPES.items() if image == TORCH])
def test_a_recipe_with_three_faults_ends_with_the_undisturbed_weights(stage: Bed, name: str) -> None:
    outcome = play(stage, name, stage.images, FAULTS, print)
    assert outcome.problem == ""
    assert [fault.kind for fault in outcome.faults] == list(FAULTS)
    assert outcome.format == ("Pattern" if name == "torch-save" else "TorchDCP")
