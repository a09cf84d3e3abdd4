"""Grafana's dashboards, from the tables in this file: four pages of JSON that nobody keeps by hand.

python -m monitoring.dashboards           writes them, and their list in docs/metrics.md
python -m monitoring.dashboards --check   writes nothing; exit status 1 if they are not what this file says

A query is PromQL with Grafana's `$__rate_interval` and `$__range` and the variables of its page. What only the leader
knows is taken from the process that leads (`led`): one that has led keeps its last figures. Rows of jobs are there in
the leader only, and `max` makes two into one while one leader follows another.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path("manifests/components/monitoring/dashboards")
PAGE = Path("docs/metrics.md")
_ROOT = Path(__file__).resolve().parents[2]
_LIST = re.compile(r"(?<=\n\| dashboard \| who asks \| what it shows \|\n\|---\|---\|---\|\n)(\|.*\n)+")
SCHEMA_VERSION = 39
"""Of Grafana 10.4 and 11: newer ones bring a page up to theirs when they load it."""
COLUMNS = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One expression.

    Attributes:
        legend: Grafana's template, of the labels; in a table the name of the column.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        kind: Grafana's type of panel.
        text: what a reader has to know; shown behind the title.
        unit: Grafana's name of it.
        wide: of 24 columns.
        steps: at which value which colour begins, lowest first; the first value is -inf.
        says: the words for a value.
        none: shown where there is no series.
        named: the series' name is shown instead of its value.
        stacked: series lie upon each other.
        buckets: the query gives a histogram's buckets, which are shown as a distribution.
        units: units of columns of a table that differ.
    """

    title: str
    kind: str
    queries: Sequence[Query]
    text: str
    unit: str = "short"
    wide: int = 12
    tall: int = 8
    steps: Sequence[tuple[float | None, str]] = ((None, "blue"),)
    says: dict[str, str] = field(default_factory=dict)
    none: str = ""
    named: bool = False
    stacked: bool = False
    buckets: bool = False
    most: float | None = None
    units: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a page, of the values that a label has."""

    name: str
    metric: str
    label: str
    every: bool = False
    """All of them may be chosen, and are at first."""


@dataclass(frozen=True)
class Dashboard:
    """One page.

    Attributes:
        rows: headings with their panels.
    """

    uid: str
    title: str
    who: str
    what: str
    variables: Sequence[Variable]
    rows: Sequence[tuple[str, Sequence[Panel]]]
    since: str = "now-6h"

    @property
    def panels(self) -> Iterator[Panel]:
        """All of them."""
        return (panel for _, panels in self.rows for panel in panels)


def led(selector: str) -> str:
    """The series of the process that leads."""
    return f"({selector} and on (instance) muster_is_leader == 1)"


def quantile(q: float, buckets: str, by: str = "", window: str = "$__rate_interval") -> str:
    """Of a histogram, over all processes."""
    return f"histogram_quantile({q}, sum by ({by}{', ' if by else ''}le) (rate({buckets}[{window}])))"


def stat(title: str, expr: str, text: str, **more: Any) -> Panel:
    """A single value."""
    legend = more.pop("legend", "")
    return Panel(title, "stat", (Query(expr, legend),), text, **{"wide": 4, "tall": 4, **more})


def lines(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Values over time."""
    return Panel(title, "timeseries", queries, text, **more)


def bars(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Values now, beside each other."""
    return Panel(title, "bargauge", queries, text, **more)


def table(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Values now, a column for each query."""
    return Panel(title, "table", queries, text, **{"wide": 24, **more})


GOOD_IS_HIGH = ((None, "red"), (0.8, "orange"), (0.9, "green"))
GOOD_IS_ZERO = ((None, "green"), (1, "orange"))
BAD_IS_ONE = ((None, "green"), (1, "red"))
PRODUCTIVE = "compute|inputWait|communication"

_J = 'namespace="$namespace", job_name="$job_name"'
_OF = "namespace, job_name"
_N = 'namespace=~"$namespace"'
_JOB = (
    Variable("namespace", "muster_job_state", "namespace"),
    Variable("job_name", 'muster_job_state{namespace="$namespace"}', "job_name"),
)


def _alerts(selector: str, text: str) -> Panel:
    return table(
        "Alerts that fire",
        text,
        Query(
            'max by (alertname, severity, namespace, job_name, node, reason) (ALERTS{alertname=~"Muster.*", '
            f'alertstate="firing"{selector}}})',
            "firing",
        ),
        tall=6,
        none="none",
    )


JOB = Dashboard(
    "muster-job",
    "Muster / Job",
    "the job's people; on call, from an alert about a job",
    "one job: its state, where its time went, steps, failures, tokens and cost, power, checkpoints",
    _JOB,
    (
        (
            "Now",
            (
                stat(
                    "State",
                    f"max by (state, reason) (muster_job_state{{{_J}}})",
                    "What the job does and why, as in docs/troubleshooting.md. A job that has ended has no figures "
                    "here: `kubectl muster report` has them. Runbook of a state Stalled: "
                    "docs/runbooks/MusterJobStalled.md.",
                    legend="{{state}}: {{reason}}",
                    named=True,
                    wide=6,
                    none="ended, or not told of",
                ),
                stat(
                    "ETTR",
                    f"max(muster_job_ettr_ratio{{{_J}}})",
                    "Time in steps that count, of all time but that in suspension, over the job's whole life. "
                    "Runbook: docs/runbooks/MusterJobEttrLow.md.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    wide=3,
                ),
                stat(
                    "ETTR without the first wait",
                    f"max(muster_job_ettr_after_queue_ratio{{{_J}}})",
                    "The same from the job's first nodes on.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    wide=3,
                ),
                stat(
                    "Failures",
                    f"max(muster_job_failures_total{{{_J}}})",
                    "Attempts that ended by a failure.",
                    steps=GOOD_IS_ZERO,
                    wide=3,
                ),
                stat(
                    "Lost steps",
                    f"max(muster_job_lost_steps_total{{{_J}}})",
                    "Steps that were made and had to be made again.",
                    steps=GOOD_IS_ZERO,
                    wide=3,
                ),
                stat(
                    "Newest checkpoint's age",
                    f"time() - max(muster_checkpoint_timestamp_seconds{{{_J}}})",
                    "What the next failure takes, and a little more. Runbook: docs/runbooks/MusterNoNewCheckpoint.md.",
                    unit="s",
                    wide=3,
                    none="none seen",
                ),
                stat(
                    "Waits for",
                    f"max(namespace_job_name:muster_job_waiting_seconds:max{{{_J}}})",
                    "How long the job ought to run and has not. Runbook: docs/runbooks/MusterJobNotTraining.md.",
                    unit="s",
                    steps=((None, "orange"), (1800, "red")),
                    wide=3,
                    none="runs",
                ),
                _alerts(
                    ', namespace="$namespace", job_name="$job_name"',
                    "Of this job. Each has a page of its name in docs/runbooks.",
                ),
                Panel(
                    "States",
                    "state-timeline",
                    (Query(f"max by (state, reason) (muster_job_state{{{_J}}})", "{{state}}: {{reason}}"),),
                    "The job's life: each state with its reason, for as long as it held.",
                    wide=24,
                    says={"1": "holds"},
                ),
            ),
        ),
        (
            "Where the time went",
            (
                bars(
                    "Time by bucket",
                    "Of the job's life; the sum is its wall clock. What each bucket holds: docs/goodput.md.",
                    Query(f"max by (bucket) (muster_job_time_seconds{{{_J}}})", "{{bucket}}"),
                    unit="s",
                ),
                bars(
                    "GPU-hours by bucket",
                    "The same times the accelerators that the job held: what the time cost.",
                    Query(f"max by (bucket) (muster_job_gpu_seconds{{{_J}}}) / 3600", "{{bucket}}"),
                    unit="suffix: GPU-h",
                ),
                lines(
                    "Share of each bucket so far",
                    "Of the job's life up to then. Work that is lost moves from compute to lostWork.",
                    Query(
                        f"max by (bucket) (muster_job_time_seconds{{{_J}}})"
                        f" / on () group_left () sum(max by (bucket) (muster_job_time_seconds{{{_J}}}))",
                        "{{bucket}}",
                    ),
                    unit="percentunit",
                    stacked=True,
                    most=1,
                ),
                lines(
                    "ETTR over time",
                    "Of the whole life, without the first wait, and of the last six hours as the alert takes it; "
                    "with the objective.",
                    Query(f"max(muster_job_ettr_ratio{{{_J}}})", "whole life"),
                    Query(f"max(muster_job_ettr_after_queue_ratio{{{_J}}})", "without the first wait"),
                    Query(f"max(namespace_job_name:muster_job_ettr:ratio_delta6h{{{_J}}})", "last 6 hours"),
                    Query("max(muster:ettr_objective:ratio)", "objective"),
                    unit="percentunit",
                    most=1,
                ),
            ),
        ),
        (
            "Steps and failures",
            (
                lines(
                    "Steps",
                    "The newest finished step and that of the newest complete checkpoint: what lies between is lost "
                    "with the next failure.",
                    Query(f"max(muster_job_step{{{_J}}})", "step"),
                    Query(f"max(muster_checkpoint_step{{{_J}}})", "checkpoint"),
                    unit="none",
                ),
                lines(
                    "Steps a second",
                    "As the step number grows; below 0 where a failure took it back.",
                    Query(f"max(deriv(muster_job_step{{{_J}}}[$__rate_interval]))", "steps a second"),
                    unit="none",
                ),
                lines(
                    "Time of a step",
                    "Of the newest 64 of the current attempt: median, and what one in ten takes longer than. Runbook "
                    "of steps that take longer than they did: docs/runbooks/MusterStraggler.md.",
                    Query(f"max(muster_job_step_seconds{{{_J}}})", "median"),
                    Query(f"max(muster_job_step_p90_seconds{{{_J}}})", "one in ten takes longer"),
                    unit="s",
                ),
                lines(
                    "Failures and lost steps",
                    "Since the job was made. Runbook of a job that fails again and again: "
                    "docs/runbooks/MusterJobCrashLoop.md.",
                    Query(f"max(muster_job_failures_total{{{_J}}})", "failures"),
                    Query(f"max(muster_job_lost_steps_total{{{_J}}})", "lost steps"),
                    unit="none",
                ),
            ),
        ),
        (
            "Tokens, cost and energy",
            (
                lines(
                    "Tokens a second",
                    "In the time in steps that count, over the job's whole life. Only of jobs that say what a step "
                    "is worth (spec.throughput).",
                    Query(f"max(muster_job_tokens_per_second{{{_J}}})", "tokens a second"),
                    unit="none",
                ),
                lines(
                    "MFU",
                    "Of the accelerators' peak by the data sheet, in steps that count, and in all the time that they "
                    "were held. docs/goodput.md.",
                    Query(f"max(muster_job_mfu_ratio{{{_J}}})", "in steps that count"),
                    Query(f"max(muster_job_mfu_overall_ratio{{{_J}}})", "of all GPU-hours"),
                    unit="percentunit",
                    most=1,
                ),
                lines(
                    "Cost of a million tokens",
                    "All that was held, failures and waiting included, by the prices of the FleetPolicy and in their "
                    "currency.",
                    Query(
                        f"1e6 * max(muster_job_cost{{{_J}}}) / (max(muster_job_tokens{{{_J}}}) > 0)", "a million tokens"
                    ),
                    unit="none",
                ),
                lines(
                    "Power of its nodes' GPUs",
                    "Of all GPUs of the nodes that the job holds, by the DCGM exporter or Muster's agent. kubectl "
                    "muster report JOB --prometheus has the joules of a token.",
                    Query(f"max(namespace_job_name:muster_job_power_watts:sum{{{_J}}})", "power"),
                    unit="watt",
                ),
            ),
        ),
        (
            "Checkpoints",
            (
                lines(
                    "Age of the newest checkpoint",
                    "Complete ones only. It falls with each that is seen whole.",
                    Query(f"time() - max(muster_checkpoint_timestamp_seconds{{{_J}}})", "age"),
                    unit="s",
                ),
                lines(
                    "What a save takes",
                    "Of the newest: writing its files, until it was seen whole, and by how much the steps around it "
                    "took longer.",
                    Query(f"max(muster_checkpoint_save_seconds{{{_J}}})", "writing"),
                    Query(f"max(muster_checkpoint_durable_seconds{{{_J}}})", "until seen whole"),
                    Query(f"max(muster_checkpoint_stall_seconds{{{_J}}})", "steps took longer"),
                    unit="s",
                ),
                lines(
                    "Size and room",
                    "Runbook of a file system that fills: docs/runbooks/MusterCheckpointSpaceLow.md.",
                    Query(f"max(muster_checkpoint_bytes{{{_J}}})", "newest checkpoint"),
                    Query(f"max(muster_checkpoint_free_bytes{{{_J}}})", "free"),
                    unit="bytes",
                ),
                stat(
                    "Concerns",
                    f"max by (reason) (muster_checkpoint_concern{{{_J}}})",
                    "What is in danger; `kubectl get tj JOB -o jsonpath='{.status.checkpoint.concerns}'` has the "
                    "words.",
                    legend="{{reason}}",
                    named=True,
                    steps=((None, "orange"),),
                    wide=12,
                    tall=8,
                    none="none",
                ),
            ),
        ),
    ),
)

_GPU_SHARE = (
    f'sum(max by ({_OF}, bucket) (muster_job_gpu_seconds{{{_N}, bucket=~"{PRODUCTIVE}"}}))'
    f" / sum(max by ({_OF}, bucket) (muster_job_gpu_seconds{{{_N}}}))"
)
_WALL_SHARE = (
    f'sum(max by ({_OF}, bucket) (muster_job_time_seconds{{{_N}, bucket=~"{PRODUCTIVE}"}}))'
    f' / sum(max by ({_OF}, bucket) (muster_job_time_seconds{{{_N}, bucket!="suspended"}}))'
)


def _jobs_in(state: str, text: str, **more: Any) -> Panel:
    return stat(state, f'sum({led(f"""muster_jobs{{state="{state}"}}""")}) or vector(0)', text, wide=3, **more)


FLEET = Dashboard(
    "muster-fleet",
    "Muster / Fleet",
    "platform leads; jobs that wait for nodes",
    "all jobs: goodput, the queue and its reasons, who fails, who does not save",
    (Variable("namespace", "muster_job_state", "namespace", every=True),),
    (
        (
            "Now",
            (
                stat(
                    "Goodput",
                    _GPU_SHARE,
                    "GPU-time in steps that count, of all GPU-time that jobs held. Of jobs that have not ended, over "
                    "their whole lives.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    wide=6,
                ),
                _jobs_in("Running", "Jobs that train, of all namespaces."),
                _jobs_in("Pending", "Jobs that wait for nodes, or for a quota."),
                _jobs_in("Recovering", "Jobs between two attempts.", steps=GOOD_IS_ZERO),
                _jobs_in(
                    "Stalled",
                    "Jobs that cannot go on until somebody changes something. Runbook: "
                    "docs/runbooks/MusterJobStalled.md.",
                    steps=BAD_IS_ONE,
                ),
                _jobs_in(
                    "Failed",
                    "Jobs that ended so and are not deleted. Runbook: docs/runbooks/MusterJobFailed.md.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Jobs without figures",
                    f"sum({led('muster_jobs_without_metrics')})",
                    "Jobs that have not ended and have no rows here, because there are more than 500.",
                    wide=3,
                    steps=GOOD_IS_ZERO,
                ),
                _alerts("", "All of Muster's. Each has a page of its name in docs/runbooks."),
            ),
        ),
        (
            "Goodput",
            (
                bars(
                    "GPU-hours by bucket",
                    "Of jobs that have not ended: where the money went. What each bucket holds: docs/goodput.md.",
                    Query(
                        f"sort_desc(sum by (bucket) (max by ({_OF}, bucket) (muster_job_gpu_seconds{{{_N}}}))) / 3600",
                        "{{bucket}}",
                    ),
                    unit="suffix: GPU-h",
                ),
                lines(
                    "Goodput and ETTR",
                    "Of jobs that have not ended, as report --fleet tells them: GPU-hours in steps that count, and "
                    "the same of the wall clock without suspension; with the objective.",
                    Query(_GPU_SHARE, "goodput"),
                    Query(_WALL_SHARE, "ETTR"),
                    Query("max(muster:ettr_objective:ratio)", "objective"),
                    unit="percentunit",
                    most=1,
                ),
                table(
                    "Jobs",
                    "What is told of each job that has not ended, 500 at most. A job's name leads to its page.",
                    Query(f"max by ({_OF}, state, reason) (muster_job_state{{{_N}}})", "told"),
                    Query(f"max by ({_OF}) (muster_job_ettr_ratio{{{_N}}})", "ETTR"),
                    Query(
                        f"sum by ({_OF}) (max by ({_OF}, bucket) (muster_job_gpu_seconds{{{_N}, "
                        f'bucket!~"{PRODUCTIVE}|suspended"}})) / 3600',
                        "GPU-hours not in steps that count",
                    ),
                    Query(f"max by ({_OF}) (muster_job_failures_total{{{_N}}})", "failures"),
                    Query(f"max by ({_OF}) (muster_job_lost_steps_total{{{_N}}})", "lost steps"),
                    Query(f"max by ({_OF}) (muster_job_step{{{_N}}})", "step"),
                    Query(f"time() - max by ({_OF}) (muster_checkpoint_timestamp_seconds{{{_N}}})", "checkpoint's age"),
                    Query(f"namespace_job_name:muster_job_waiting_seconds:max{{{_N}}}", "waits for"),
                    tall=12,
                    units={"ETTR": "percentunit", "checkpoint's age": "s", "waits for": "s"},
                ),
            ),
        ),
        (
            "Queue and placement",
            (
                lines(
                    "Jobs by state",
                    "Of all namespaces; those that have ended and are not deleted with them.",
                    Query(f"max by (state) ({led('muster_jobs')})", "{{state}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Accelerators of the fleet",
                    "What they are there for: held by jobs, by other pods, taken out for health or maintenance, "
                    "closed by others, reserved for a gang that waits, free. docs/goodput.md.",
                    Query(f"max by (state) ({led('muster_gpus')})", "{{state}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Jobs that wait for nodes, by reason",
                    "What each reason means: docs/queueing.md.",
                    Query(f"max by (reason) ({led('muster_jobs_pending')})", "{{reason}}"),
                    unit="none",
                    stacked=True,
                ),
                bars(
                    "Longest waits now",
                    "Since when jobs ought to run and do not.",
                    Query(
                        f"topk(10, namespace_job_name:muster_job_waiting_seconds:max{{{_N}}})",
                        "{{namespace}}/{{job_name}}",
                    ),
                    unit="s",
                    none="nobody waits",
                    steps=((None, "green"), (1800, "orange"), (14400, "red")),
                ),
                lines(
                    "Wait for nodes",
                    "From a job's creation (or its return to the queue) to its nodes, of those that were given nodes "
                    "in the hour before.",
                    *(
                        Query(quantile(q, "muster_queue_wait_seconds_bucket", window="1h"), name)
                        for q, name in ((0.5, "half"), (0.9, "nine in ten"))
                    ),
                    unit="s",
                ),
                lines(
                    "Free nodes that are scattered",
                    "Share of the free nodes in domains of which a part is in use: near 1, a large gang finds no "
                    "whole domain.",
                    Query(f"max by (level) ({led('muster_free_nodes_fragmentation')})", "{{level}}"),
                    unit="percentunit",
                    most=1,
                ),
                lines(
                    "Domains of a gang",
                    "Nine in ten gangs of the last day were placed in as many domains of a level or in fewer: fewer "
                    "are better connected.",
                    Query(quantile(0.9, "muster_gang_domains_bucket", "level", "1d"), "{{level}}"),
                    unit="none",
                ),
            ),
        ),
        (
            "Failures and checkpoints",
            (
                lines(
                    "Failures an hour",
                    "Attempts that ended by a failure, of jobs that have not ended.",
                    Query(f"sum(max by ({_OF}) (increase(muster_job_failures_total{{{_N}}}[1h])))", "failures"),
                    unit="none",
                ),
                bars(
                    "Jobs that failed most",
                    "Attempts that ended by a failure, in all their lives.",
                    Query(
                        f"topk(10, max by ({_OF}) (muster_job_failures_total{{{_N}}}))", "{{namespace}}/{{job_name}}"
                    ),
                    unit="none",
                    steps=((None, "green"), (3, "orange"), (10, "red")),
                ),
                bars(
                    "Oldest checkpoints",
                    "Age of the newest complete checkpoint of jobs that have one.",
                    Query(
                        f"topk(10, time() - max by ({_OF}) (muster_checkpoint_timestamp_seconds{{{_N}}}))",
                        "{{namespace}}/{{job_name}}",
                    ),
                    unit="s",
                    steps=((None, "green"), (7200, "orange"), (28800, "red")),
                ),
                bars(
                    "Jobs whose saves concern people",
                    "By reason. Runbooks: docs/runbooks/MusterNoNewCheckpoint.md, "
                    "docs/runbooks/MusterCheckpointSpaceLow.md.",
                    Query(
                        f"count by (reason) (max by ({_OF}, reason) (muster_checkpoint_concern{{{_N}}}))", "{{reason}}"
                    ),
                    unit="none",
                    none="none",
                    steps=((None, "orange"),),
                ),
            ),
        ),
    ),
    "now-24h",
)

_P = 'probe="$probe", model=~"$model"'

NODES = Dashboard(
    "muster-nodes",
    "Muster / Nodes",
    "who keeps the machines; on call, from an alert about nodes",
    "verdicts, findings, the breaker, machines that come back sick, agents, burn-in, GPUs",
    (
        Variable("probe", "muster_check_probe_seconds_count", "probe"),
        Variable("model", 'muster_check_probe_seconds_count{probe="$probe"}', "model", every=True),
    ),
    (
        (
            "Now",
            (
                stat(
                    "Healthy",
                    f"""sum({led('muster_nodes{state="Healthy"}')}) / (sum({led('muster_nodes{state!="Unknown"}')}) > 0)""",  # noqa: E501
                    "Share of the nodes of which anybody says something.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    none="nobody says",
                ),
                stat(
                    "Sick",
                    f"""sum({led('muster_nodes{state=~"Degraded|Unhealthy|Quarantined"}')})""",
                    "Degraded, Unhealthy or Quarantined. `kubectl muster nodes` names them.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Breaker",
                    f"max({led('muster_breaker_open')})",
                    "Whether the budget of nodes to take out holds any back. Runbook: "
                    "docs/runbooks/MusterBreakerHolds.md.",
                    steps=BAD_IS_ONE,
                    says={"0": "closed", "1": "holds"},
                ),
                stat(
                    "Held back",
                    f"sum({led('muster_breaker_held_nodes')}) + sum({led('muster_breaker_held_repairs')})",
                    "Sick nodes that the budget holds back, and those that other systems claim and do not get.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Agents silent",
                    "max(muster:node_agents_silent:ratio)",
                    "Of the agents that have ever spoken. Runbooks: docs/runbooks/MusterAgentsSilent.md, and "
                    "docs/runbooks/MusterAgentsRefused.md and docs/runbooks/MusterAgentsCutOff.md of agents that "
                    "cannot write.",
                    unit="percentunit",
                    steps=((None, "green"), (0.01, "orange"), (0.05, "red")),
                ),
                stat(
                    "From a fault to its end of use",
                    quantile(0.9, "muster_detection_seconds_bucket", window="1d"),
                    "Nine in ten of the last day: from the first sign of what took a node out to the moment when "
                    "jobs avoid it.",
                    unit="s",
                    none="none in a day",
                ),
                _alerts(
                    ', alertname=~"MusterBreaker.*|MusterAgents.*|MusterNode.*"',
                    "Of nodes. Each has a page of its name in docs/runbooks.",
                ),
            ),
        ),
        (
            "Verdicts and findings",
            (
                lines(
                    "Nodes by verdict",
                    "Unknown are those of which nobody says anything.",
                    Query(f"max by (state) ({led('muster_nodes')})", "{{state}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Findings by reason",
                    "Nodes with a finding that weighs against them. What each means: docs/node-health.md.",
                    Query(f"max by (reason) ({led('muster_node_findings')}) > 0", "{{reason}}"),
                    unit="none",
                ),
                lines(
                    "Held back by pool",
                    "A pool in which many nodes are called sick at once has one cause: look for what they share.",
                    Query(f"max by (pool) ({led('muster_breaker_pool_held_nodes')})", "{{pool}}"),
                    unit="none",
                ),
                bars(
                    "Machines that fall sick again and again",
                    "1 for each incident, halved by time; the worst of 1.5 and more. Runbook: "
                    "docs/runbooks/MusterNodeFlapping.md.",
                    Query(f"topk(20, max by (node) ({led('muster_node_offence_score')}))", "{{node}}"),
                    unit="none",
                    none="none",
                    steps=((None, "orange"), (1.8, "red")),
                ),
            ),
        ),
        (
            "Agents",
            (
                lines(
                    "Agents",
                    "By whether the agent's Pod is Ready now.",
                    Query(f"max by (state) ({led('muster_node_agents')})", "{{state}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Silent agents that are too many",
                    "Of a pool: so many at once are not their nodes' fault.",
                    Query(f"max by (pool) ({led('muster_agents_silent')})", "{{pool}}"),
                    unit="none",
                ),
                lines(
                    "Agents' trouble",
                    "Requests to the API server that failed, and times that NVML did not answer, an hour.",
                    Query("sum by (reason) (increase(muster_agent_write_errors_total[1h]))", "requests: {{reason}}"),
                    Query("sum(increase(muster_agent_nvml_hangs_total[1h]))", "NVML did not answer"),
                    unit="none",
                ),
                lines(
                    "Evidence by kind",
                    "What agents hold against their nodes, before Muster weighs it.",
                    Query("sum by (kind) (muster_agent_evidence) > 0", "{{kind}}"),
                    unit="none",
                ),
            ),
        ),
        (
            "Burn-in",
            (
                lines(
                    "Tests of nodes a day",
                    "Of nodes that no gang has, by what came of them. Outcomes: docs/burn-in.md.",
                    Query("sum by (outcome) (increase(muster_node_tests_total[1d]))", "{{outcome}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Time of a test",
                    "Nine in ten of the last day, of one node's probes together.",
                    Query(quantile(0.9, "muster_node_test_seconds_bucket", "profile", "1d"), "{{profile}}"),
                    unit="s",
                ),
                lines(
                    "Checkers and open orders",
                    "Nodes whose checker is heard, by its state, and orders that are not answered yet.",
                    Query(f"max by (state) ({led('muster_checkers')})", "{{state}}"),
                    Query(f"max({led('muster_check_orders_open')})", "open orders"),
                    unit="none",
                ),
                lines(
                    "Time of a probe",
                    "Nine in ten of the last day.",
                    Query(quantile(0.9, "muster_check_probe_seconds_bucket", "probe", "1d"), "{{probe}}"),
                    unit="s",
                ),
                bars(
                    "What the chosen probe reached",
                    "Answers in the time shown, by the figure's upper bound, in the probe's own unit "
                    "(docs/burn-in.md). One far below the others is worth a look.",
                    Query(f"sum by (le) (increase(muster_check_figure_bucket{{{_P}}}[$__range]))", "{{le}}"),
                    unit="none",
                    buckets=True,
                ),
                lines(
                    "The chosen probe over time",
                    "The slowest tenth and the half of a day's answers, by model and unit.",
                    Query(
                        quantile(0.1, f"muster_check_figure_bucket{{{_P}}}", "model, unit", "1d"),
                        "slowest tenth, {{model}}, {{unit}}",
                    ),
                    Query(
                        quantile(0.5, f"muster_check_figure_bucket{{{_P}}}", "model, unit", "1d"),
                        "half, {{model}}, {{unit}}",
                    ),
                    unit="none",
                ),
            ),
        ),
        (
            "GPUs",
            (
                lines(
                    "GPUs",
                    "Those that answer, and those that should.",
                    Query("sum(muster_agent_gpus)", "answer"),
                    Query("sum(muster_agent_gpus_expected)", "should answer"),
                    unit="none",
                ),
                # Of now only: a line of a day over every GPU of a large fleet is more than Prometheus loads for one
                # query.
                stat("Power", "sum(muster_gpu_power_watts)", "All GPUs together.", unit="watt", wide=12, tall=8),
                bars(
                    "Hottest GPUs",
                    "Degrees to the limit; at 0 the GPU slows down.",
                    Query(
                        "bottomk(10, max by (node, gpu) (muster_gpu_temperature_margin_celsius))", "{{node}} {{gpu}}"
                    ),
                    unit="celsius",
                    steps=((None, "red"), (5, "orange"), (10, "green")),
                ),
                bars(
                    "GPUs with memory and link errors",
                    "In the last day: uncorrected errors of memory and PCIe replays. What weighs against a node: "
                    "docs/node-health.md.",
                    Query(
                        "topk(10, max by (node, gpu) (increase(muster_gpu_ecc_uncorrected_total[1d])) > 0)",
                        "{{node}} {{gpu}} uncorrected",
                    ),
                    Query(
                        "topk(10, max by (node, gpu) (increase(muster_gpu_pcie_replays_total[1d])) > 0)",
                        "{{node}} {{gpu}} replays",
                    ),
                    unit="none",
                    none="none",
                    steps=((None, "orange"),),
                ),
            ),
        ),
    ),
    "now-24h",
)

OPERATOR = Dashboard(
    "muster-operator",
    "Muster / Operator",
    "on call, from an alert about Muster itself; who runs the API server",
    "who leads, how long passes take, requests to the API server, informers, reports",
    (),
    (
        (
            "Now",
            (
                stat(
                    "Leaders",
                    "sum(muster_is_leader) or vector(0)",
                    "1, but for some seconds while one takes over. Runbook: docs/runbooks/MusterNoLeader.md.",
                    steps=((None, "red"), (1, "green"), (2, "red")),
                ),
                stat(
                    "Replicas",
                    "count(muster_is_leader)",
                    "That Prometheus reaches. Runbook of one that is missing: docs/runbooks/MusterReplicaMissing.md.",
                    steps=((None, "orange"), (2, "green")),
                ),
                stat(
                    "FleetPolicy",
                    f"max({led('muster_fleet_policy_unreadable')})",
                    "Runbook: docs/runbooks/MusterFleetPolicyUnreadable.md.",
                    steps=BAD_IS_ONE,
                    says={"0": "read", "1": "unreadable"},
                ),
                stat(
                    "Contradictions in it",
                    f"max({led('muster_health_policy_problems')})",
                    "Contradictions in the FleetPolicy's health; the log names them.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Launchers heard", f"sum({led('muster_launchers')})", "That the leader has heard and not forgotten."
                ),
                stat(
                    "Certificate ends in",
                    "min(muster_certificate_expiry_timestamp_seconds > 0) - time()",
                    "Of a replica, for launchers and Prometheus. Runbook: docs/runbooks/MusterCertificateEndsSoon.md.",
                    unit="s",
                    steps=((None, "red"), (3 * 86400, "green")),
                ),
                stat(
                    "Accounts lost in a day",
                    'sum(increase(muster_history_writes_total{outcome="lost"}[1d])) or vector(0)',
                    "Of jobs that ended. Runbook: docs/runbooks/MusterHistoryLost.md.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Answers held back",
                    f"sum({led('muster_reports_held')})",
                    "Of reports: launchers are answered when there is something to do, or in time.",
                ),
                _alerts(
                    ', alertname=~"Muster(NoLeader|Replica|Launchers|History|Certificate|Memory|Reconcile|FleetPolicy|Clock).*"',  # noqa: E501
                    "Of the operator. Each has a page of its name in docs/runbooks.",
                ),
                Panel(
                    "Who leads",
                    "state-timeline",
                    (Query("max by (instance) (muster_is_leader)", "{{instance}}"),),
                    "Each replica over time.",
                    wide=24,
                    tall=6,
                    says={"0": "stands by", "1": "leads"},
                ),
            ),
        ),
        (
            "Passes",
            (
                lines(
                    "Clocks",
                    "By how much each replica's clock is ahead of the API server's, to a second or two. Beyond 5 s: "
                    "docs/runbooks/MusterClockOff.md.",
                    Query("max by (instance) (muster_clock_ahead_seconds)", "{{instance}}"),
                    unit="s",
                ),
                lines(
                    "Time of a pass",
                    "One pass over one job, writes to the API server included.",
                    *(
                        Query(quantile(q, "muster_reconcile_seconds_bucket"), name)
                        for q, name in ((0.5, "half"), (0.99, "99 in 100"))
                    ),
                    unit="s",
                ),
                lines(
                    "Passes a second",
                    "And those that ended by an error. ValueError, KeyError and the like are a defect. Runbook: "
                    "docs/runbooks/MusterReconcileFailing.md.",
                    Query("sum(rate(muster_reconcile_seconds_count[$__rate_interval]))", "passes"),
                    Query(
                        "sum by (reason) (rate(muster_reconcile_failures_total[$__rate_interval]))",
                        "failed: {{reason}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Time to find nodes for one job",
                    "Or to know that there are none.",
                    *(
                        Query(quantile(q, "muster_placement_seconds_bucket"), name)
                        for q, name in ((0.5, "half"), (0.99, "99 in 100"))
                    ),
                    unit="s",
                ),
                lines(
                    "Processor and memory",
                    "Of each replica. Runbook of memory near its limit: docs/runbooks/MusterMemoryNearLimit.md.",
                    Query(
                        "max by (instance) (rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) "
                        "muster_is_leader)",
                        "{{instance}}, cores",
                    ),
                    Query(
                        "max by (instance) (process_resident_memory_bytes and on (instance) muster_is_leader) / 1024 "
                        "^ 3",
                        "{{instance}}, GiB",
                    ),
                    unit="none",
                ),
            ),
        ),
        (
            "API server",
            (
                lines(
                    "Requests by code",
                    "0 means that there was no answer. 403: a right is missing, or a quota refuses; 429: the API "
                    "server asks for less.",
                    Query("sum by (code) (rate(muster_api_requests_total[$__rate_interval]))", "{{code}}"),
                    unit="reqps",
                ),
                lines(
                    "Requests by kind",
                    "Watches left out.",
                    Query(
                        "topk(15, sum by (verb, resource) "
                        '(rate(muster_api_requests_total{verb!="WATCH"}[$__rate_interval])) > 0)',
                        "{{verb}} {{resource}}",
                    ),
                    unit="reqps",
                ),
                lines(
                    "Time of a request",
                    "99 in 100, until the answer was complete.",
                    Query(quantile(0.99, "muster_api_request_seconds_bucket", "verb"), "{{verb}}"),
                    unit="s",
                ),
                table(
                    "Requests that were refused or failed, in the last hour",
                    "403 of one verb and resource, again and again, is a right that is missing.",
                    Query(
                        'sum by (verb, resource, code) (increase(muster_api_requests_total{code=~"0|4..|5.."}[1h])) '
                        "> 0",
                        "requests",
                    ),
                    wide=12,
                    none="none",
                ),
            ),
        ),
        (
            "Informers and reports",
            (
                lines(
                    "Full lists of informers, in a quarter of an hour",
                    "Near 0 when all is well: each is a watch that had to start over.",
                    Query("sum by (informer) (increase(muster_informer_lists_total[15m]))", "{{informer}}"),
                    unit="none",
                ),
                lines(
                    "Objects that informers hold",
                    "In the leader.",
                    Query(f"max by (informer) ({led('muster_informer_objects')})", "{{informer}}"),
                    unit="none",
                ),
                lines(
                    "Reports by code",
                    "Of launchers and checkers. 421: asked a replica that does not lead; 503: nobody leads; 401, "
                    "403: a token that does not count, anybody's or a worker's (muster_workers_refused by scope). "
                    "Runbooks: docs/runbooks/MusterLaunchersRefused.md and, of one namespace's workers, "
                    "docs/runbooks/MusterWorkersRefused.md.",
                    Query("sum by (code) (rate(muster_reports_total[$__rate_interval]))", "{{code}}"),
                    unit="reqps",
                ),
                lines(
                    "What could not be read or told, in an hour",
                    "Objects that could not be taken in (the log names them), and Events that could not be posted.",
                    Query("sum by (informer) (increase(muster_unreadable_objects_total[1h])) > 0", "{{informer}}"),
                    Query("sum(increase(muster_events_dropped_total[1h]))", "Events"),
                    unit="none",
                ),
            ),
        ),
    ),
)

DASHBOARDS = (FLEET, JOB, NODES, OPERATOR)


def rendered(dashboard: Dashboard) -> str:
    """The page as Grafana reads it, a line for each panel and each variable: a difference shows where it is."""
    page = _page(dashboard)
    marks: list[Json] = []

    def marked(items: list[Json]) -> list[str]:
        marks.extend(items)
        return [f"@{number}@" for number in range(len(marks) - len(items), len(marks))]

    page["templating"]["list"] = marked(page["templating"]["list"])
    page["panels"] = marked(page["panels"])
    whole = json.dumps(page, indent=1)
    return re.sub(r'"@(\d+)@"', lambda found: json.dumps(marks[int(found[1])]), whole) + "\n"


def _page(dashboard: Dashboard) -> Json:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": f"{dashboard.what[0].upper()}{dashboard.what[1:]}. Made by tools/monitoring/dashboards.py.",
        "tags": ["muster"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # a pointer in one panel shows in all
        "timezone": "browser",
        "refresh": "1m",
        "time": {"from": dashboard.since, "to": "now"},
        "links": [
            {
                "title": "Muster",
                "type": "dashboards",
                "tags": ["muster"],
                "asDropdown": True,
                "includeVars": False,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "annotations": {"list": []},
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": list(_with_positions(dashboard)),
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.metric}, {variable.label})"
    found: Json = {
        "name": variable.name,
        "label": variable.name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "A"},
        "refresh": 2,  # whenever the time shown changes: jobs come and go
        "sort": 1,
        "multi": variable.every,
        "includeAll": variable.every,
        "hide": 0,
    }
    if variable.every:
        found |= {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"], "selected": True}}
    return found


def _with_positions(dashboard: Dashboard) -> Iterator[Json]:
    """Each heading, and its panels from left to right, in lines of 24 columns."""
    number, y = 0, 0
    for title, panels in dashboard.rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        x, y, tall = 0, y + 1, 0
        for panel in panels:
            if x + panel.wide > COLUMNS:
                x, y, tall = 0, y + tall, 0
            number += 1
            yield _drawn(panel, number, {"x": x, "y": y, "w": panel.wide, "h": panel.tall})
            x, tall = x + panel.wide, max(tall, panel.tall)
        y += tall


def _drawn(panel: Panel, number: int, place: Json) -> Json:
    thresholds = [{"value": value, "color": colour} for value, colour in panel.steps]
    defaults: Json = {
        "unit": panel.unit,
        "color": {"mode": "palette-classic" if panel.kind in ("timeseries", "state-timeline") else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": thresholds},
        "mappings": [
            {
                "type": "value",
                "options": {value: {"text": text, "index": n} for n, (value, text) in enumerate(panel.says.items())},
            }
        ]
        if panel.says
        else [],
    }
    if panel.none:
        defaults["noValue"] = panel.none
    if panel.unit == "percentunit":
        defaults["min"] = 0
    if panel.most is not None:
        defaults["max"] = panel.most
    custom, options = _KINDS[panel.kind](panel)
    if custom:
        defaults["custom"] = custom
    found: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "gridPos": place,
        "datasource": _SOURCE,
        "targets": [_target(panel, query, letter) for query, letter in zip(panel.queries, "ABCDEFGHIJ", strict=False)],
        "fieldConfig": {"defaults": defaults, "overrides": _overrides(panel)},
        "options": options,
    }
    if panel.kind == "table":
        found["transformations"] = _columns(panel)
    return found


def _target(panel: Panel, query: Query, letter: str) -> Json:
    now = panel.kind in ("stat", "bargauge", "table")
    return {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": now,
        "range": not now,
        "format": "table" if panel.kind == "table" else "heatmap" if panel.buckets else "time_series",
    }


_NEWEST = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def _of_lines(panel: Panel) -> tuple[Json, Json]:
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
    }
    return custom, {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _of_a_stat(panel: Panel) -> tuple[Json, Json]:
    return {}, {
        "reduceOptions": _NEWEST,
        "orientation": "auto",
        "textMode": "name" if panel.named else "value",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }


def _of_bars(panel: Panel) -> tuple[Json, Json]:
    return {}, {
        "reduceOptions": _NEWEST,
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 300,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    }


def _of_a_table(panel: Panel) -> tuple[Json, Json]:
    return {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": len(panel.queries) > 1}, {
        "frameIndex": 0,
        "showHeader": True,
        "cellHeight": "sm",
    }


def _of_a_timeline(_: Panel) -> tuple[Json, Json]:
    return {"fillOpacity": 70, "lineWidth": 0}, {
        "showValue": "never",
        "rowHeight": 0.8,
        "mergeValues": True,
        "alignValue": "left",
        "perPage": 20,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }


_KINDS = {
    "timeseries": _of_lines,
    "stat": _of_a_stat,
    "bargauge": _of_bars,
    "table": _of_a_table,
    "state-timeline": _of_a_timeline,
}


def _columns(panel: Panel) -> list[Json]:
    """One row for each set of labels, a column for each label and each query; not when, which is now for all."""
    names = [f"Value #{letter}" for letter, _ in zip("ABCDEFGHIJ", panel.queries, strict=False)]
    if len(names) == 1:
        names = ["Value"]
    told = dict(zip(names, (query.legend for query in panel.queries), strict=True))
    hidden = {"Time": True, **{name: True for name, legend in told.items() if legend in ("told", "firing")}}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden, "indexByName": {}, "renameByName": told}},
    ]


def _overrides(panel: Panel) -> list[Json]:
    found: list[Json] = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit in panel.units.items()
    ]
    if panel.kind == "table" and any("job_name" in query.expr for query in panel.queries):
        # The names are users': what is no name's character is escaped.
        url = "/d/muster-job?var-namespace=${__data.fields.namespace:percentencode}&var-job_name=${__data.fields.job_name:percentencode}"  # noqa: E501
        link = {"title": "the job's page", "url": url, "targetBlank": False}
        found.append(
            {"matcher": {"id": "byName", "options": "job_name"}, "properties": [{"id": "links", "value": [link]}]}
        )
    return found


def listed(page: str) -> str:
    """docs/metrics.md with the list as it has to be.

    Raises:
        ValueError: there is no list in it.
    """
    rows = [
        f"| `{each.uid}` | {each.who} | {each.what}: {sum(1 for _ in each.panels)} panels |\n" for each in DASHBOARDS
    ]
    page, places = _LIST.subn(lambda _: "".join(rows), page)
    if places != 1:
        raise ValueError(f"{PAGE} has {places} lists of dashboards")
    return page


def main() -> int:
    """Write the pages, or with --check compare them."""
    page = (_ROOT / PAGE).read_text(encoding="utf-8")
    wanted = {FOLDER / f"{each.uid}.json": rendered(each) for each in DASHBOARDS} | {PAGE: listed(page)}
    status = 0
    for path, text in wanted.items():
        whole = _ROOT / path
        if whole.is_file() and whole.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path} is not what tools/monitoring/dashboards.py says: run `make generate`", file=sys.stderr)
            status = 1
        else:
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
