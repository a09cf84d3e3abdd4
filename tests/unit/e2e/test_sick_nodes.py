"""When the records of nodes are forgotten, whatever the number of nodes is."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.e2e.sick_nodes import are_new_and_well

WELL = {"state": "Healthy", "incidents": [], "agent": {"gpus": 8}}


def bed(names: list[str], healths: dict[str, dict[str, Any]]) -> Any:
    items = [{"metadata": {"name": name}, "status": status} for name, status in healths.items()]
    return SimpleNamespace(
        cluster=SimpleNamespace(node_names=tuple(names), api=SimpleNamespace(get=lambda _: {"items": items}))
    )


@pytest.mark.parametrize("count", [4, 8])
def test_every_node_has_a_new_record_in_which_it_is_well(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    assert are_new_and_well(bed(names, dict.fromkeys(names, WELL)))
    assert not are_new_and_well(bed(names, dict.fromkeys(names[1:], WELL)))
    assert not are_new_and_well(bed(names, dict.fromkeys(names, WELL) | {"n0": WELL | {"state": "Suspect"}}))
