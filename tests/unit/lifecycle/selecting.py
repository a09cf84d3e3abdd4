"""Templates that select nodes by a great deal, and what that costs a plan."""

from typing import Any

from tests.unit.counting import CountedWork
from tests.unit.lifecycle.builders import a_node

from muster.placement.eligibility import Requirements
from muster.placement.fleet_index import FleetIndex, NodeEvaluator
from muster.world.fleet import Fleet


def expressions(count: int, values: int = 1) -> list[dict[str, Any]]:
    return [{"key": f"k{n}", "operator": "In", "values": ["v"] * values} for n in range(count)]


def selecting(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def costliest_costs_some_times_an_ordinary_one(nodes: int) -> None:
    """So many nodes of which each has labels of its own, and a job that compares as much as it may: ten times as
    much."""
    values = [f"some-long-value-of-a-label-{n}" for n in range(16)]
    each = [{"key": f"k{n}", "operator": "NotIn", "values": values} for n in range(64)]
    tolerations = [{"key": f"t{n}", "operator": "Exists"} for n in range(64)]
    costliest = {**selecting({"matchExpressions": each}), "tolerations": tolerations}
    ordinary = selecting({"matchExpressions": each[:1]})
    fleet = Fleet()
    for number in range(nodes):
        fleet.put_node(a_node(f"n{number}", labels={f"k{n}": f"own-{number}" for n in range(64)}))
    index = FleetIndex.up_to_date(fleet)

    def steps(spec: dict[str, Any]) -> int:
        evaluator = NodeEvaluator(fleet, Requirements(8, spec, {}))
        with CountedWork() as counted:
            assert not any(evaluator.evaluate(spot).why for spot in index.spots.values())
        return counted.steps

    assert steps(costliest) < 15 * steps(ordinary)
