"""Which nodes fall sick, what is said of them, what the verdicts have to be, and which of them are not. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.api import Object
from muster.health.budgets import Share

TAINT = "muster.dev/unhealthy"
OWN_TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""What every KWOK node has."""

XID = 79
XID_TEXT = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SUBJECT = "0000:1b:00"
# Fatal at once in health/sources.py (aks/gpu-missing), and KWOK has no stage that writes it.
CONDITION = "GPUMissing"
REASONS = {"agent": f"Xid{XID}", "condition": CONDITION}
STATE = "Unhealthy"
_WELL = (None, "Healthy")
_HELD = "given work only where no other node is left; running jobs stay"


@dataclass(frozen=True)
class Sick:
    """A node that falls sick, and who says so: `agent` or `condition`."""

    node: str
    by: str


def let_through(share: Share) -> int:
    """How many nodes a budget lets through, where more than that are sick for each of two causes."""
    return min(share.uncertain, 2 * share.cause)


def beyond(share: Share, sick: Collection[Sick], tainted: Collection[str]) -> list[str]:
    """The causes of which more nodes are tainted than one may have, in words."""
    counts = Counter(each.by for each in sick if each.node in tainted)
    return [
        f"{count} nodes are tainted for {by}: more than {share.cause}"
        for by, count in counts.items()
        if count > share.cause
    ]


def choose(nodes: Sequence[str], count: int) -> list[Sick]:
    """So many nodes, spread evenly over the fleet and so over the racks, half of them with an agent, in turn.

    Raises:
        ValueError: there are not so many.
    """
    if count > len(nodes):
        raise ValueError(f"{count} of {len(nodes)} nodes cannot fall sick: choose fewer")
    agents, others = nodes[::2], nodes[1::2]
    half = (count + 1) // 2
    said = [Sick(_at(agents, i, half), "agent") for i in range(half)]
    marked = [Sick(_at(others, i, count - half), "condition") for i in range(count - half)]
    return [sick for pair in zip(said, [*marked, None], strict=False) for sick in pair if sick is not None]


def _at(nodes: Sequence[str], index: int, count: int) -> str:
    return nodes[index * len(nodes) // count]


def condition(bad: bool, now: str) -> Object:
    """The status patch that says it, as AKS's node problem detector does."""
    one = {
        "type": CONDITION,
        "status": "True" if bad else "False",
        "reason": CONDITION if bad else "NoGPUMissing",
        "message": "GPU count is 7, expected 8" if bad else "all GPUs are there",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {"status": {"conditions": [one]}}


def is_tainted(node: Object) -> bool:
    """Whether it bears Muster's taint."""
    return any(taint["key"] == TAINT for taint in node["spec"].get("taints") or ())


def wrong_verdicts(
    sick: Collection[Sick], healths: Iterable[Object], nodes: Iterable[Object], all_out: bool
) -> list[str]:
    """Each node about which something is wrong, in words.

    Args:
        sick: those that fell sick.
        healths: all NodeHealth objects.
        nodes: all nodes.
        all_out: every sick node has to be tainted; else some may be held back, if the record says so.
    """
    by = {each.node: each.by for each in sick}
    statuses: Mapping[str, Any] = {each["metadata"]["name"]: each.get("status") or {} for each in healths}
    wrong = []
    for node in nodes:
        name, tainted = node["metadata"]["name"], is_tainted(node)
        status = statuses.get(name, {})
        state, reason, effect = status.get("state"), status.get("reason", ""), status.get("effect", "")
        if name not in by:
            if state not in _WELL or tainted:
                wrong.append(f"{name} is well, but {state} ({reason}), tainted: {tainted}")
        elif (state, reason) != (STATE, REASONS[by[name]]):
            wrong.append(f"{name} is sick ({by[name]}), but {state} ({reason})")
        elif all_out and not tainted:
            wrong.append(f"{name} is sick, but not tainted: {effect}")
        elif tainted != effect.startswith("tainted") or (not tainted and not effect.startswith(_HELD)):
            wrong.append(f"{name} is tainted: {tainted}, but its record says: {effect}")
    return wrong


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def delays(sent: Mapping[str, float], tainted: Mapping[str, float]) -> dict[str, float]:
    """p50, p99 and the longest time from the sending to the taint in seconds, and how many taints a second that were.

    Raises:
        KeyError: a node was never tainted.
    """
    each = [tainted[node] - moment for node, moment in sent.items()]
    span = max(tainted[node] for node in sent) - min(sent.values())
    return {
        "p50": round(percentile(each, 50), 3),
        "p99": round(percentile(each, 99), 3),
        "max": round(max(each), 3),
        "taints_per_second": round(len(each) / span, 1),
        "sending_seconds": round(max(sent.values()) - min(sent.values()), 3),
    }


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each figure that the runs have."""
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
