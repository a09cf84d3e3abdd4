"""tests/data/reports/marks: what marks on Nodes say of their health and removal, by decoding, verdict and placement.

`input` is the relevant part of a Node; the rest is healthy. `right` is one of:

- `nothing`: the node is used as before;
- `othersFirst`: it is used after others;
- `noNewWork`: a worker whose template tolerates nothing is not placed there, and workers that are there stay;
- `takenAwayBy`: workers leave at their next checkpoint; by the source of the mark, or by `cordon`. `withinSeconds`: of
  now, where a time is known. `final`: nobody takes it back, so that a job without another node stops and waits;
- `unhealthy`: workers leave, for this reason.
"""

import json
from typing import Any

import pytest
from tests.unit.health.builders import NOW, healthy
from tests.unit.lifecycle.builders import a_fleet, a_node
from tests.unit.reports.corpus import Case, cases

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Evacuate
from muster.health.assess import assess
from muster.health.facts import NodeFacts
from muster.health.fitness import fitness_of
from muster.health.node_world import NodeWorld
from muster.health.orders import Circumstances, View, decide
from muster.health.sources import ROWS, Annotation, Row, Rules
from muster.health.story import recorded_status
from muster.health.verdict_index import NodeIndex, VerdictIndex
from muster.kube import decode
from muster.placement.eligibility import Requirements, closed, reluctance
from muster.world.fleet import Exclusion
from muster.world.views import READ_ANNOTATIONS, NodeView

CASES = cases("marks")
REMOVALS = [row for row in ROWS if row.removal is not None]
NEEDS = Requirements(0, {}, {})


def a_node_with(marks: dict[str, Any]) -> NodeView:
    """The Node as the API server has it."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-11-20T08:00:00Z"}
    manifest = {
        "metadata": {"name": "n0", "uid": "uid-n0", "resourceVersion": "1", **marks.get("metadata", {})},
        "spec": marks.get("spec", {}),
        "status": {"conditions": [ready, *marks.get("status", {}).get("conditions", [])]},
    }
    return decode.node(json.dumps(manifest).encode())


def exclusion_for(node: NodeView) -> Exclusion | None:
    """What placement and jobs are told of the node, beside three that are well."""
    policy = FleetPolicySpec()
    rules, verdict_index, node_index = Rules.from_policy(policy), VerdictIndex(), NodeIndex()
    nodes = [node, *(a_node(f"n{number}") for number in (1, 2, 3))]
    node_index.rebuild(a_fleet(nodes))
    for each in nodes:
        verdict_index.set_verdict(each.name, assess(NodeWorld(NodeFacts.from_node(each), healthy(), rules, NOW)))
    names = [each.name for each in nodes]
    orders, _ = decide(View(NOW, rules, verdict_index, node_index, {node.name}, Circumstances(names, {}, {})))
    order = next(order for order in orders if order.name == node.name)
    return fitness_of(recorded_status(order, rules)).exclusion


def read(marks: dict[str, Any]) -> Any:
    """What is made of the marks, in the words of `right`."""
    node = a_node_with(marks)
    exclusion, fleet = exclusion_for(node), a_fleet([node])
    fleet.exclude(node.name, exclusion)
    leaves = exclusion is not None and exclusion.evacuate is not Evacuate.NO
    if exclusion is not None and leaves and exclusion.removal is not None:
        assert exclusion.evacuate is Evacuate.AFTER_CHECKPOINT
        assert closed(node, NEEDS, fleet) != ""
        found: dict[str, Any] = {"takenAwayBy": exclusion.removal.by}
        if exclusion.gone_by is not None:
            found["withinSeconds"] = round((exclusion.gone_by - NOW).total_seconds())
        return found | ({"final": True} if exclusion.removal.final else {})
    if exclusion is not None and leaves:
        return {"unhealthy": exclusion.reason}
    if node.unschedulable:
        return {"takenAwayBy": "cordon"}
    if closed(node, NEEDS, fleet):
        return "noNewWork"
    return "othersFirst" if reluctance(node, NEEDS, fleet) else "nothing"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_mark_says_what_it_says(case: Case) -> None:
    assert read(case.given) == case.right


@pytest.mark.parametrize("row", REMOVALS, ids=lambda row: row.name)
def test_every_row_of_a_removal_has_its_file_with_marks_and_near_misses(row: Row) -> None:
    rights = [case.right for case in CASES if case.report == row.name.replace("/", "-")]
    assert any(isinstance(right, dict) and right["takenAwayBy"] in (row.source, "karpenter") for right in rights)
    assert any(not isinstance(right, dict) for right in rights) or row.name == "kubernetes/deletion"


@pytest.mark.parametrize("row", REMOVALS, ids=lambda row: row.name)
def test_a_file_says_nothing_of_its_source_where_that_is_switched_off(row: Row) -> None:
    off = FleetPolicySpec.model_validate({"health": {"sources": [{"name": row.source, "enabled": False}]}})
    for case in CASES:
        if case.report == row.name.replace("/", "-"):
            facts = NodeFacts.from_node(a_node_with(case.given))
            assert [s for s in Rules.from_policy(off).signs(facts, {}, NOW)[0] if s.source == row.source] == []


def test_the_annotations_of_the_table_are_those_that_are_read() -> None:
    marks = (mark for row in ROWS for mark in (row.mark, row.over))
    assert {mark.key for mark in marks if isinstance(mark, Annotation)} == READ_ANNOTATIONS
