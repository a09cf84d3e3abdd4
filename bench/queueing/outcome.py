"""The figures of one run of the bench, and those of several seeds beside each other. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from bench.figures import figure
from bench.queueing.cluster import Run, Simulation
from bench.queueing.shipped import Muster
from bench.queueing.workload import DAY, LARGE_NODES, SMALL_NODES, WARM_UP_DAYS, most_work
from bench.report import figure_text

HOUR = 3600.0
_SLOWDOWN_SECONDS = 600.0
"""A job that runs for less counts as one that runs for so long."""
SHOWN = {
    "small_mean_h": "small: mean, h",
    "small_p99_h": "p99",
    "medium_mean_h": "medium: mean",
    "medium_p99_h": "p99",
    "large_mean_h": "large: mean",
    "large_p99_h": "p99",
    "working_percent": "nodes work, %",
    "possible_percent": "at most, %",
    "refused_percent": "free, not given, %",
    "fairness": "fairness",
    "lost_node_hours": "work lost, node h",
}
SHOWN_BY_PRIORITY = {
    "high_mean_h": "high priority: mean",
    "other_mean_h": "others: mean",
    "preemptions": "preempted",
}
"""Only where a queue preempts by priority."""


def size_name(nodes: int) -> str:
    """The class of sizes of a job."""
    if nodes <= SMALL_NODES:
        return "small"
    return "medium" if nodes < LARGE_NODES else "large"


def percentile(values: Iterable[float], share: float) -> float:
    """The least of the values that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def figures_of(simulation: Simulation, policy: object, days: float) -> dict[str, float]:
    """The figures of one run.

    `possible_percent` is the greatest share of the nodes that another queue could have let work (`most_work`), if it
    did as much in the warm-up, and repeats as much work after failures.
    """
    cluster = simulation.cluster
    whole = len(cluster.paths) * days * DAY
    waits: dict[str, list[float]] = defaultdict(list)
    runs = [run for run in simulation.runs if run.job.arrival >= WARM_UP_DAYS * DAY]
    for run in runs:
        waits[size_name(run.job.nodes)].append(run.waited / HOUR)
        waits["high" if run.job.high else "other"].append(run.waited / HOUR)
    found: dict[str, float] = {}
    for name, hours in waits.items():
        found[f"{name}_jobs"] = len(hours)
        found[f"{name}_mean_h"] = statistics.fmean(hours)
        found[f"{name}_p99_h"] = percentile(hours, 0.99)
    for name in ("working", "stalled", "free", "down", "reserved", "refused"):
        found[f"{name}_percent"] = 100.0 * getattr(cluster.seconds, name) / whole
    most = most_work([run.job for run in simulation.runs], len(cluster.paths), (WARM_UP_DAYS + days) * DAY)
    found["possible_percent"] = min(found["working_percent"] + 100.0 * (most - cluster.done) / whole, 100.0)
    found["lost_node_hours"] = cluster.lost / HOUR
    found["failures"] = cluster.failures
    found["fairness"] = fairness(runs)
    if isinstance(policy, Muster) and policy.by_priority:
        found["preemptions"] = sum(map(len, policy.preempted.values()))
    if isinstance(policy, Muster) and policy.plans:
        for name, values in (("plan", policy.plans), ("longest_step", policy.longest_steps)):
            found[f"{name}_p50_ms"] = 1000.0 * percentile(values, 0.5)
            found[f"{name}_p99_ms"] = 1000.0 * percentile(values, 0.99)
            found[f"{name}_max_ms"] = 1000.0 * max(values)
    return found


def fairness(runs: Sequence[Run]) -> float:
    """Jain's index of the namespaces' mean slowdowns: 1 if all are alike, 1 / namespaces if one alone has to wait.

    A slowdown is the time from arrival to end without what failures cost, over the time that the job ran.
    """
    slowdowns: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        running = max(run.job.seconds, _SLOWDOWN_SECONDS)
        slowdowns[run.job.namespace].append((run.waited + running) / running)
    means = [statistics.fmean(values) for values in slowdowns.values()]
    return sum(means) ** 2 / (len(means) * sum(mean * mean for mean in means))


def summary(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Least, median and most of each figure over the seeds."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: figure(run.get(name) for run in runs) for name in names}


def table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """One line for each policy, figures as min / median / max."""
    preempts = any("preemptions" in figures for figures in rows.values())
    shown = SHOWN | SHOWN_BY_PRIORITY if preempts else SHOWN
    made = Table(title=title)
    made.add_column("queue")
    for heading in shown.values():
        made.add_column(heading, justify="right")
    for policy, figures in rows.items():
        made.add_row(policy, *(figure_text(figures.get(name)) for name in shown))
    return made
