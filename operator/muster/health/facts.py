"""What verdicts read of a Node object.

Tests: tests/unit/health/test_condition.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.world.views import MUSTER_HEALTHY, ConditionView, NodeView


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node, with the facts from which its health is judged.

    Attributes:
        node: the node.
        conditions: those of the Node object, without Muster's own.
        capacity: by name, the extended resources that the node has, allocatable or not.
    """

    node: NodeView
    conditions: tuple[ConditionView, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_node(cls, node: NodeView) -> "NodeFacts":
        """Return the facts of a node as it was read, without Muster's own condition, which must not be its own
        reason."""
        others = node.conditions
        if any(condition.type == MUSTER_HEALTHY for condition in others):
            others = tuple(condition for condition in others if condition.type != MUSTER_HEALTHY)
        return cls(node, others, node.capacity)
