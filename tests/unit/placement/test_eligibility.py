"""Which nodes may take a worker: the scheduler's rules, one row each."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import GPU, a_fleet, a_node, tainted

from muster.api.fleetpolicy import FleetPolicySpec
from muster.placement.eligibility import Requirements, refusal
from muster.world.queuedecision import Refusal, RefusalKind
from muster.world.views import NodeView

NODE = a_node("n0", labels={"zone": "a", "gpus": "8", "gone": ""})
GONE = "excluded by the template's node selector or affinity"


def why(node: NodeView, *, avoid: dict[str, Refusal] | None = None, accelerators: int = 8, **spec: Any) -> str:
    return said(refusal(node, Requirements(accelerators, spec, avoid or {}), a_fleet([node]), "me"))


def said(found: Refusal | None) -> str:
    return found.message if found is not None else ""


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def labels(*expressions: dict[str, Any]) -> dict[str, Any]:
    return affinity({"matchExpressions": list(expressions)})


def fields(*expressions: dict[str, Any]) -> dict[str, Any]:
    return affinity({"matchFields": list(expressions)})


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(a_node("n0"), "", id="a good one"),
        pytest.param(a_node("n0", ready=False), "not ready", id="not ready"),
        pytest.param(a_node("n0", unschedulable=True), "cordoned", id="cordoned"),
        pytest.param(a_node("n0", allocatable={GPU: 7}), f"with 7, fewer than 8 {GPU}", id="too few accelerators"),
        pytest.param(a_node("n0", allocatable={}), f"with fewer than 8 {GPU}", id="no accelerators"),
        pytest.param(tainted(a_node("n0"), "sick"), "taint sick", id="tainted"),
        pytest.param(tainted(a_node("n0"), "sick", effect="NoExecute"), "taint sick", id="tainted, evicting"),
        pytest.param(tainted(a_node("n0"), "sick", effect="PreferNoSchedule"), "", id="tainted, softly"),
    ],
)
def test_state_of_the_node(node: NodeView, expected: str) -> None:
    assert why(node) == expected


def test_a_job_without_accelerators_fits_where_there_are_none() -> None:
    assert why(a_node("n0", allocatable={}), accelerators=0) == ""


@pytest.mark.parametrize("offered", [{"allocatable": {GPU: 8}}, {"allocatable": {GPU: 0}, "capacity": {GPU: 8}}])
def test_nodes_with_accelerators_are_for_other_jobs_only_where_the_policy_says_so(offered: dict[str, Any]) -> None:
    node, needs = a_node("n0", **offered), Requirements(0, {}, {})
    fleet = a_fleet([node])
    assert said(refusal(node, needs, fleet, "me")) == "kept for jobs with accelerators"
    placement = {"acceleratorNodesForOtherJobs": "WhenFree"}
    fleet.set_policy(FleetPolicySpec.model_validate({"placement": placement}))
    assert said(refusal(node, needs, fleet, "me")) == ""


def test_a_node_to_avoid_says_why() -> None:
    avoided = Refusal(RefusalKind.AVOIDED_BY_SPEC, "in spec.placement.avoidNodes")
    assert why(NODE, avoid={"n0": avoided}) == "in spec.placement.avoidNodes"


@pytest.mark.parametrize(("holders", "expected"), [({"me"}, ""), ({"other"}, "in use"), ({"me", "other"}, "in use")])
def test_a_node_is_for_one_job_alone(holders: set[str], expected: str) -> None:
    fleet = a_fleet([NODE], holders={"n0": frozenset(holders)})
    assert said(refusal(NODE, Requirements(8, {}, {}), fleet, "me")) == expected


@pytest.mark.parametrize(("age", "expected"), [(19.0, ""), (20.0, "without a heartbeat")])
def test_a_node_without_a_heartbeat_is_dead_before_it_is_called_so(age: float, expected: str) -> None:
    fleet = a_fleet([NODE], lease_age_seconds={"n0": age})
    assert said(refusal(NODE, Requirements(8, {}, {}), fleet, "me")) == expected


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "pool", "operator": "Equal", "value": "train", "effect": "NoSchedule"}, True),
        ({"key": "pool", "value": "train"}, True),
        ({"key": "pool", "value": "serve"}, False),
        ({"key": "pool"}, False),
        ({"key": "pool", "operator": "Exists"}, True),
        ({"key": "pool", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Equal", "value": "train"}, False),
        ({"key": "pool", "operator": "Gt", "value": "train"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], tolerated: bool) -> None:
    node = tainted(NODE, "pool", "train")
    assert why(node, tolerations=[toleration]) == ("" if tolerated else "taint pool")


def test_every_taint_needs_a_toleration() -> None:
    node = tainted(tainted(NODE, "one"), "two")
    assert why(node, tolerations=[{"key": "one", "operator": "Exists"}]) == "taint two"


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        pytest.param({"nodeSelector": {"zone": "a"}}, True, id="selector"),
        pytest.param({"nodeSelector": {"zone": "b"}}, False, id="selector, other value"),
        pytest.param({"nodeSelector": {"zone": "a", "x": "y"}}, False, id="selector, all of it counts"),
        pytest.param({"affinity": {}}, True, id="no affinity"),
        pytest.param({"affinity": labels(expression("zone", "In", "a", "b"))}, True, id="In"),
        pytest.param({"affinity": labels(expression("zone", "In", "b"))}, False, id="not In"),
        pytest.param({"affinity": labels(expression("none", "In", "b"))}, False, id="In without the label"),
        pytest.param({"affinity": labels(expression("zone", "NotIn", "a"))}, False, id="NotIn"),
        pytest.param({"affinity": labels(expression("none", "NotIn", "a"))}, True, id="NotIn without the label"),
        pytest.param({"affinity": labels(expression("gone", "Exists"))}, True, id="Exists, empty value"),
        pytest.param({"affinity": labels(expression("none", "Exists"))}, False, id="Exists, no label"),
        pytest.param({"affinity": labels(expression("none", "DoesNotExist"))}, True, id="DoesNotExist"),
        pytest.param({"affinity": labels(expression("zone", "DoesNotExist"))}, False, id="DoesNotExist, but it does"),
        pytest.param({"affinity": labels(expression("gpus", "Gt", "7"))}, True, id="Gt"),
        pytest.param({"affinity": labels(expression("gpus", "Gt", "8"))}, False, id="Gt is strict"),
        pytest.param({"affinity": labels(expression("gpus", "Lt", "9"))}, True, id="Lt"),
        pytest.param({"affinity": labels(expression("zone", "Gt", "1"))}, False, id="Gt of no number"),
        pytest.param({"affinity": labels(expression("zone", "Near", "a"))}, False, id="an unknown operator"),
        pytest.param({"affinity": fields(expression("metadata.name", "In", "n0"))}, True, id="field"),
        pytest.param({"affinity": fields(expression("metadata.name", "In", "n1"))}, False, id="field, other node"),
        pytest.param(
            {"affinity": labels(expression("zone", "In", "a"), expression("gpus", "In", "4"))},
            False,
            id="all expressions of a term count",
        ),
        pytest.param(
            {"affinity": affinity({"matchExpressions": [expression("zone", "In", "b")]}, {"matchExpressions": []})},
            False,
            id="an empty term matches nothing",
        ),
        pytest.param(
            {
                "affinity": affinity(
                    {"matchExpressions": [expression("zone", "In", "b")]},
                    {"matchFields": [expression("metadata.name", "In", "n0")]},
                )
            },
            True,
            id="one term is enough",
        ),
    ],
)
def test_selectors_and_affinity(spec: dict[str, Any], fits: bool) -> None:
    assert why(NODE, **spec) == ("" if fits else GONE)
