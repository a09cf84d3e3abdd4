"""What is to be done to put an order about a node into force: its record, Events, the taint; in this order. Pure.

Tests: tests/unit/health/test_node_plan.py, tests/unit/controller/test_nodereconciler.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.api.nodehealth import NodeHealth, NodeHealthStatus, VerdictState
from muster.health.orders import InForce, Order
from muster.health.signs import CHECK_WANTED
from muster.health.sources import Rules
from muster.health.story import observed_effect_text, recorded_status, status_message
from muster.health.verdict_index import is_tainted
from muster.world.views import NodeView

AGENTS_PART = frozenset({"evidence", "agent"})
"""The fields of the status that the agent writes, of any version; all others are the operator's (docs/versions.md)."""
_WELL = (None, VerdictState.HEALTHY)


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the operator's part of a node's NodeHealth.

    Attributes:
        status: what to write, see `operator_part`.
        is_new: whether there is no NodeHealth yet.
        may_wait: whether it only informs people, so that the write may come late.
        excludes: whether jobs avoid the node from this write on.
    """

    status: Mapping[str, Any]
    is_new: bool
    may_wait: bool
    excludes: bool


@dataclass(frozen=True, slots=True)
class ChangeTaint:
    """Put Muster's taint on the Node, or remove it.

    Attributes:
        is_wanted: whether the node is to bear it.
        reason: the value of the taint; "": it is to be removed.
        asked_by: the field of the FleetPolicy that asks for it; "": it is to be removed.
    """

    is_wanted: bool
    reason: str = ""
    asked_by: str = ""


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Emit an Event of a Node.

    Attributes:
        reason: of the Event.
        text: of the Event.
        is_warning: whether its type is Warning.
        is_of_record: whether the NodeHealth gets the same Event.
    """

    reason: str
    text: str
    is_warning: bool = False
    is_of_record: bool = False


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What is to be done, in this order; what fails ends it.

    Attributes:
        record: None: it says what it should.
        events: about the node.
        taint: None: it is as it should be, or is not known.
    """

    record: WriteRecord | None
    events: tuple[EmitEvent, ...]
    taint: ChangeTaint | None


@dataclass(frozen=True, slots=True)
class Present:
    """What an order about a node meets.

    Attributes:
        record: the NodeHealth; one without a uid: there is none.
        node: the Node; None: it is gone, or cannot be read, so that its taints are not known.
        in_force: what this leader last put into force; None: nothing yet.
        taint_refused_by: what refused Muster's taint on the node, when this leader last tried; "": nothing.
    """

    record: NodeHealth
    node: NodeView | None
    in_force: InForce | None
    taint_refused_by: str = ""


def plan_node(order: Order, present: Present, rules: Rules) -> NodePlan:
    """Return what is to be done to put an order into force.

    Args:
        order: what was decided.
        present: what is there.
        rules: for the node.
    """
    return NodePlan(
        _record(order, present, rules),
        tuple(_events(order, present, rules)),
        _taint(order, present.node, rules),
    )


def operator_part(status: NodeHealthStatus) -> dict[str, Any]:
    """Return the operator's part of a NodeHealth's status, in the form in which it is written."""
    return {key: value for key, value in status.to_json().items() if key not in AGENTS_PART}


def _record(order: Order, present: Present, rules: Rules) -> WriteRecord | None:
    status, recorded = recorded_status(order, rules, present.taint_refused_by), present.record.status
    is_new, part = not present.record.metadata.uid, operator_part(status) | (recorded.model_extra or {})
    if part == operator_part(recorded) or (is_new and _says_nothing(status)):
        return None
    return WriteRecord(
        part,
        is_new,
        _may_wait(order, status, recorded, present.in_force),
        recorded.exclusion is None and status.exclusion is not None,
    )


def _taint(order: Order, node: NodeView | None, rules: Rules) -> ChangeTaint | None:
    wanted = order.effect.taint
    if node is None or is_tainted(node) == wanted:
        return None
    return ChangeTaint(True, order.verdict.conclusion.reason, rules.enforcement_path) if wanted else ChangeTaint(False)


def _says_nothing(status: NodeHealthStatus) -> bool:
    """Whether a record has nothing to tell people or jobs, so that none need be made for it."""
    for_jobs = status.exclusion or status.fault or status.suspicion
    return status.state in _WELL and not for_jobs and not any(finding.observed for finding in status.findings)


def _may_wait(order: Order, status: NodeHealthStatus, recorded: NodeHealthStatus, previous: InForce | None) -> bool:
    """Whether the new record only informs people, so that its write may wait.

    It is so where the node is used as before, nothing is counted by time, and no decision, charge or request has
    changed. That other nodes come before it is a preference, which may come late.
    """
    light, follow_up = (*_WELL, VerdictState.SUSPECT), order.verdict.follow_up
    if previous is None or order.effect != previous.effect or order.ruling.charge or follow_up.wake is not None:
        return False
    if status.state not in light or recorded.state not in light or order.outcome.observed != previous.observed:
        return False
    kept = (
        "incidents",
        "offences",
        "earlier_offences",
        "check",
        "maintenance",
        "node_uid",
        "boot_id",
        "effect",
        "exclusion",
        "fault",
    )
    return all(getattr(status, name) == getattr(recorded, name) for name in kept) and follow_up.followed is None


def _events(order: Order, present: Present, rules: Rules) -> Iterator[EmitEvent]:
    """The Events about a verdict that is new, or about what follows from it; a new leader has nothing new to tell of a
    node that is well."""
    conclusion, previous = order.verdict.conclusion, present.in_force
    is_same = previous is not None and conclusion.state is previous.state and previous.effect == order.effect
    if previous is None:
        is_same = conclusion.state in _WELL
    elif is_same and order.outcome.observed not in ("", previous.observed):
        assert conclusion.would is not None
        yield EmitEvent("NodeObserved", observed_effect_text(conclusion.would, rules))
    asks = conclusion.reason == CHECK_WANTED and previous is not None and previous.reason != CHECK_WANTED
    if is_same and not asks:
        return
    grounds = order.verdict.grounds
    planned = "NodeMaintenance" if grounds.removal is None else "NodeRemoval"
    text = status_message(order, rules, present.taint_refused_by) or "no finding counts against the node any more"
    yield EmitEvent(
        planned if grounds.only_planned else f"Node{conclusion.state.value if conclusion.state else 'Healthy'}",
        text,
        is_warning=not (conclusion.state in (*_WELL, VerdictState.SUSPECT) or grounds.only_planned),
        is_of_record=True,
    )
