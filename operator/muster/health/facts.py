"""What verdicts read of a Node object."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.world.views import ConditionView, NodeView

__all__ = ["ConditionView", "NodeFacts"]


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

    @classmethod
    def of(cls, node: NodeView) -> "NodeFacts":
        """A node as it was read."""
        return cls(node, node.conditions, node.capacity)
