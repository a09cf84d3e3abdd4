"""Which nodes may take a worker: the scheduler's rules, one row each."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import GPU, a_fleet, a_node, tainted

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Evacuate
from muster.placement.eligibility import Requirements, is_out_of_service, refusal
from muster.world.fleet import Exclusion
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


@pytest.mark.parametrize(
    ("evacuate", "is_there", "last_choice", "takes_last", "taken"),
    [
        pytest.param(Evacuate.NO, False, False, False, False, id="a new worker"),
        pytest.param(Evacuate.NO, True, False, False, True, id="one that is there"),
        pytest.param(Evacuate.AFTER_CHECKPOINT, True, False, False, True, id="one that may leave later"),
        pytest.param(Evacuate.NOW, True, False, False, False, id="one that has to leave at once"),
        pytest.param(Evacuate.NO, False, True, False, False, id="the last choice, and there are others"),
        pytest.param(Evacuate.NO, False, True, True, True, id="the last choice, and there is no other"),
        pytest.param(Evacuate.NO, False, False, True, False, id="no choice, though there is no other"),
    ],
)
def test_a_running_job_keeps_an_excluded_node_unless_it_has_to_leave_at_once(
    evacuate: Evacuate, is_there: bool, last_choice: bool, takes_last: bool, taken: bool
) -> None:
    fleet = a_fleet([NODE])
    fleet.exclude("n0", Exclusion("Xid79", evacuate=evacuate, last_choice=last_choice))
    needs = Requirements(8, {}, {}, is_there=is_there, takes_last=takes_last)
    assert said(refusal(NODE, needs, fleet, "me")) == ("" if taken else "unhealthy (Xid79)")


def test_no_node_is_chosen_by_a_template_that_cannot_be_read() -> None:
    found = refusal(NODE, Requirements(8, {"nodeSelector": "zone"}, {}), a_fleet([NODE]), "me")
    assert found is not None
    assert found.kind is RefusalKind.UNREADABLE
    assert found.message.startswith("not considered: spec.template.spec.nodeSelector")


@pytest.mark.parametrize(
    ("node", "age", "exclusion", "is_out"),
    [
        pytest.param(NODE, 19.0, None, False, id="a good one"),
        pytest.param(NODE, 20.0, None, True, id="without a heartbeat"),
        pytest.param(None, 0.0, None, True, id="gone"),
        pytest.param(a_node("n0", ready=False), 0.0, None, True, id="not ready"),
        pytest.param(a_node("n0", unschedulable=True), 0.0, None, True, id="cordoned"),
        pytest.param(NODE, 0.0, Exclusion("Xid79"), True, id="excluded"),
        pytest.param(NODE, 0.0, Exclusion("Xid79", last_choice=True), False, id="the last choice"),
    ],
)
def test_which_nodes_take_no_worker_of_any_job(
    node: NodeView | None, age: float, exclusion: Exclusion | None, is_out: bool
) -> None:
    fleet = a_fleet([node] if node else [], lease_age_seconds={"n0": age})
    fleet.exclude("n0", exclusion)
    assert is_out_of_service("n0", fleet) is is_out
