"""What Muster has written on Nodes, and the commands that remove it where no operator does.

Tests: tests/unit/controller/test_unmark.py, tests/unit/cli/test_doctor_parts.py.
"""

import json

import msgspec

from muster.health.condition import removal
from muster.health.sources import UNHEALTHY_TAINT
from muster.world.views import MUSTER_HEALTHY

REMOVING_COMMANDS = (
    f"kubectl taint nodes --all {UNHEALTHY_TAINT}-",
    "kubectl get nodes -o name | xargs -I NODE kubectl patch NODE --subresource=status --type=strategic -p "
    f"'{json.dumps(removal(), separators=(',', ':'))}'",
)


class _Meta(msgspec.Struct):
    name: str
    uid: str = ""


class _Spec(msgspec.Struct):
    taints: list[dict[str, object]] | None = None


class _Condition(msgspec.Struct):
    type: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class MarkedNode(msgspec.Struct):
    """A Node, as far as its marks are concerned."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def name(self) -> str:
        """Name of the Node."""
        return self.metadata.name

    @property
    def is_tainted(self) -> bool:
        """Whether it has the taint `muster.dev/unhealthy`."""
        return any(taint.get("key") == UNHEALTHY_TAINT for taint in self.spec.taints or ())

    @property
    def has_condition(self) -> bool:
        """Whether it has the condition `MusterHealthy`."""
        return any(condition.type == MUSTER_HEALTHY for condition in self.status.conditions or ())


read_node = msgspec.json.Decoder(MarkedNode).decode
