"""What later versions have recorded of a node is written back, and what they alone understand makes no node healthy."""

import json
from typing import Any

import pytest
from tests.unit.health.builders import Stored, after, evidence, rules
from tests.unit.skew.next_version import UNKNOWN, VALUE, of_next_version

from muster.api.nodehealth import NodeHealth, NodeHealthStatus
from muster.health.fitness import UNREADABLE
from muster.health.node_plan import NodePlan, Present, plan_node
from muster.health.orders import Order
from muster.kube import decode

NODE = "node-0001"


def planned(stored: Stored, minutes: int) -> NodePlan:
    """What is done about the node, by this version."""
    verdicts, rulings, effects, _ = stored.step(after(60.0 * minutes))
    order = Order(NODE, verdicts[NODE], rulings[NODE], effects[NODE])
    return plan_node(order, Present(stored.healths[NODE], stored.facts[NODE].node, None), stored.rules)


def record(stored: Stored, status: Any) -> None:
    metadata = {"name": NODE, "uid": "health"}
    document = {"metadata": metadata, "spec": stored.healths[NODE].spec.to_json(), "status": status}
    stored.healths[NODE] = NodeHealth.model_validate_json(json.dumps(document))


@pytest.fixture
def stored() -> Stored:
    """A node that is out of use, and its record of the next version."""
    stored = Stored.of(10, rules(enforcement="Nodes"))
    stored.report(NODE, evidence("Xid", 79))
    write = planned(stored, 1).record
    assert write is not None
    status = NodeHealthStatus.model_validate({**stored.healths[NODE].status.to_json(), **write.status})
    stored.report(NODE, evidence("Xid", 79))
    record(stored, of_next_version(status))
    return stored


def test_unknown_fields_of_a_record_are_written_back(stored: Stored) -> None:
    assert planned(stored, 2).record is None, "nothing is new"
    stored.report(NODE, evidence("Xid", 79), evidence("GpuLost"))
    write = planned(stored, 3).record
    assert write is not None
    parts = (write.status, write.status["offences"], *write.status["incidents"])
    assert [part[UNKNOWN] for part in parts] == [VALUE] * 3
    assert UNKNOWN not in write.status["exclusion"], "what follows from the verdict is written anew"
    assert not {"evidence", "agent"} & write.status.keys(), "these are the agent's"


STATUS: dict[str, Any] = {
    "status.state": {"state": "Sleepy"},
    "status.exclusion.cause": {"exclusion": {"reason": "x", "cause": "Weather"}},
    "status.exclusion.evacuate": {"exclusion": {"reason": "x", "evacuate": "Slowly"}},
    "status.findings.0.severity": {"findings": [{"source": "agent", "reason": "x", "severity": "Odd", "since": "now"}]},
    "status.incidents": {"incidents": {"newest": []}},
}


@pytest.mark.parametrize(("field", "status"), STATUS.items(), ids=STATUS.keys())
def test_a_record_of_another_form_is_unreadable_and_takes_no_worker_first(field: str, status: Any) -> None:
    document = {"metadata": {"name": NODE, "uid": "u", "resourceVersion": "5"}, "status": status}
    found = decode.custom(NodeHealth)(json.dumps(document).encode())
    assert isinstance(found, decode.Undecodable)
    assert found.error.startswith(f"{field}: ")
    assert UNREADABLE.exclusion is not None, "see tests/unit/controller/test_nodefitness.py"


def test_a_decision_of_another_form_is_unreadable() -> None:
    for decision, field in ({"decision": "Doubt"}, "decision"), ({}, "decision"):
        override = {"reason": "x", "time": "2026-01-01T00:00:00Z", **decision}
        document = {"metadata": {"name": NODE}, "spec": {"override": override}}
        found = decode.custom(NodeHealth)(json.dumps(document).encode())
        assert isinstance(found, decode.Undecodable)
        assert found.error.startswith(f"spec.override.{field}: ")
