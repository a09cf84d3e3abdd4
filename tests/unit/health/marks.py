"""Nodes with marks of other systems, for tests; tests/data/health/marks.yaml has those for the rows of the table."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[2] / "data/health/marks.yaml"
LONG_AGO = "2026-11-20T08:00:00Z"


def condition(type_: str, status: str, reason: str = "", message: str = "", at: str = LONG_AGO) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


HEALTHY = [
    condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    condition("PIDPressure", "False", "KubeletHasSufficientPID"),
    condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
]


def node_with(
    *conditions: dict[str, Any],
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    allocatable: dict[str, str] | None = None,
    unschedulable: bool = False,
) -> dict[str, Any]:
    """A Node object that is healthy but for these marks."""
    own = {one["type"] for one in conditions}
    healthy = [one for one in HEALTHY if one["type"] not in own]
    return {
        "metadata": {
            "name": "ip-10-0-3-17.ec2.internal",
            "labels": {
                "kubernetes.io/hostname": "ip-10-0-3-17.ec2.internal",
                "node.kubernetes.io/instance-type": "p5en.48xlarge",
                "nvidia.com/gpu.present": "true",
                "topology.muster.dev/rack": "r7",
                **(labels or {}),
            },
        },
        "spec": {
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, *(taints or [])],
            "unschedulable": unschedulable,
        },
        "status": {
            "capacity": {"cpu": "192", "nvidia.com/gpu": "8"},
            "allocatable": {"cpu": "191450m", **(allocatable or {"nvidia.com/gpu": "8"})},
            "conditions": [*healthy, *({"lastTransitionTime": LONG_AGO, **one} for one in conditions)],
        },
    }


@dataclass(frozen=True)
class Example:
    """A Node for a row of the table.

    Attributes:
        row: name of the row.
        number: of the example among those of its row, from 1.
        bad: whether the row's mark is on the node.
        node: the Node object.
        right: what the row makes of a bad node; of a good one, the reasons of its source's other rows.
    """

    row: str
    number: int
    bad: bool
    node: dict[str, Any]
    right: Any

    def __str__(self) -> str:
        return f"{self.row}-{'bad' if self.bad else 'good'}-{self.number}"


def examples() -> Iterator[Example]:
    """Yield the Nodes of the file, in its order."""
    for row, entry in yaml.safe_load(FILE.read_text()).items():
        for number, marks in enumerate(entry["bad"], 1):
            yield Example(row, number, True, node_with(*marks.pop("conditions", ()), **marks), entry["right"])
        for number, marks in enumerate(entry["good"], 1):
            instead = marks.pop("instead", [])
            yield Example(row, number, False, node_with(*marks.pop("conditions", ()), **marks), instead)
