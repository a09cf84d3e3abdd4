"""What verdicts read of a Node object: its view, its conditions, and what it has of accelerators in all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from muster.world.views import NodeView


@dataclass(frozen=True, slots=True)
class ConditionView:
    """One condition of a node.

    Attributes:
        type: e.g. Ready.
        status: True, False or Unknown.
        reason: CamelCase, as its writer chose it.
        message: for people.
        since: lastTransitionTime; None where nobody has written one.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node with what only its health is judged by.

    Attributes:
        node: the node.
        conditions: all of them.
        capacity: extended resources that the node has, allocatable or not.
    """

    node: NodeView
    conditions: tuple[ConditionView, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
