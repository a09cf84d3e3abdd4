"""Grafana dashboards, generated from the tables in this file as four files of JSON.

python -m monitoring.dashboards           writes the files, and their list in docs/metrics.md
python -m monitoring.dashboards --check   writes nothing; exit status 1 if the files differ from this module

A query is PromQL with Grafana's `$__rate_interval` and `$__range` and the variables of its dashboard. Figures that only
the leader knows are taken from the leading process (`led`), because a former leader keeps its last figures. Only the
leader has rows of jobs, and `max` merges two rows while one leader follows another.
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
_LIST = re.compile(r"(?<=\n\| dashboard \| audience \| content \|\n\|---\|---\|---\|\n)(\|.*\n)+")
SCHEMA_VERSION = 39
"""The schema of Grafana 10.4 and 11; newer releases upgrade a dashboard when they load it."""
COLUMNS = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HIDDEN = "hidden"
"""The legend of a table's query whose value is no column."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One expression.

    Attributes:
        legend: Grafana's template over the labels; in a table the name of the column.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        kind: Grafana's type of panel.
        text: the description, which Grafana shows beside the title.
        unit: Grafana's name of the unit.
        wide: the width, of 24 columns.
        tall: the height, in Grafana's rows.
        steps: pairs of a value and the colour that begins there, lowest first; None stands for -inf.
        value_texts: the text shown in place of a value.
        none: the text shown where there is no series.
        named: whether the series' name is shown instead of its value.
        stacked: whether series are stacked.
        buckets: whether the query returns a histogram's buckets, which are shown as a distribution.
        most: the highest value of the axis; None: Grafana chooses.
        units: the units of a table's columns that differ from `unit`.
    """

    title: str
    kind: str
    queries: Sequence[Query]
    text: str
    unit: str = "short"
    wide: int = 12
    tall: int = 8
    steps: Sequence[tuple[float | None, str]] = ((None, "blue"),)
    value_texts: dict[str, str] = field(default_factory=dict)
    none: str = ""
    named: bool = False
    stacked: bool = False
    buckets: bool = False
    most: float | None = None
    units: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard, from the values of a label.

    Attributes:
        every: whether all values may be chosen together, and are at first.
    """

    name: str
    metric: str
    label: str
    every: bool = False


@dataclass(frozen=True)
class Dashboard:
    """One dashboard.

    Attributes:
        audience: the readers, for docs/metrics.md.
        summary: the content, for docs/metrics.md and the dashboard's description.
        rows: headings with their panels.
        since: the start of the time range at first.
    """

    uid: str
    title: str
    audience: str
    summary: str
    variables: Sequence[Variable]
    rows: Sequence[tuple[str, Sequence[Panel]]]
    since: str = "now-6h"

    @property
    def panels(self) -> Iterator[Panel]:
        return (panel for _, panels in self.rows for panel in panels)


def led(selector: str) -> str:
    """Return the expression for the series of the leading process."""
    return f"({selector} and on (instance) muster_is_leader == 1)"


def quantile(q: float, buckets: str, by: str = "", window: str = "$__rate_interval") -> str:
    """Return the expression for a quantile of a histogram over all processes."""
    return f"histogram_quantile({q}, sum by ({by}{', ' if by else ''}le) (rate({buckets}[{window}])))"


def stat(title: str, expr: str, text: str, **more: Any) -> Panel:
    """Return a panel of a single value."""
    legend = more.pop("legend", "")
    return Panel(title, "stat", (Query(expr, legend),), text, **{"wide": 4, "tall": 4, **more})


def lines(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Return a panel of values over time."""
    return Panel(title, "timeseries", queries, text, **more)


def bars(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Return a panel of present values as bars."""
    return Panel(title, "bargauge", queries, text, **more)


def table(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Return a table of present values, with a column for each query."""
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


def _alerts(selector: str, which: str) -> Panel:
    return table(
        "Firing alerts",
        f"The table lists {which}. Each alert has a runbook of its name in docs/runbooks.",
        Query(
            'max by (alertname, severity, namespace, job_name, node, reason) (ALERTS{alertname=~"Muster.*", '
            f'alertstate="firing"{selector}}})',
            _HIDDEN,
        ),
        tall=6,
        none="none",
    )


JOB = Dashboard(
    "muster-job",
    "Muster / Job",
    "owners of the job; on-call engineers, from an alert about a job",
    "one job: state, use of its time, steps, failures, tokens, cost, power, checkpoints",
    _JOB,
    (
        (
            "Now",
            (
                stat(
                    "State",
                    f"max by (state, reason) (muster_job_state{{{_J}}})",
                    "The panel shows the job's state and its reason, which docs/troubleshooting.md explains. A job "
                    "that has ended has no rows in Prometheus: `kubectl muster report` shows its figures. Runbook "
                    "for the state Stalled: docs/runbooks/MusterJobStalled.md.",
                    legend="{{state}}: {{reason}}",
                    named=True,
                    wide=6,
                    none="ended, or not exported",
                ),
                stat(
                    "ETTR",
                    f"max(muster_job_ettr_ratio{{{_J}}})",
                    "ETTR is the share of the job's whole life that went into steps that count; suspended time is "
                    "left out. Runbook: docs/runbooks/MusterJobEttrLow.md.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    wide=3,
                ),
                stat(
                    "ETTR after the first wait",
                    f"max(muster_job_ettr_after_queue_ratio{{{_J}}})",
                    "This ETTR leaves out the time until the job had all its nodes for the first time.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    wide=3,
                ),
                stat(
                    "Failures",
                    f"max(muster_job_failures_total{{{_J}}})",
                    "The panel counts the job's attempts that ended with a failure.",
                    steps=GOOD_IS_ZERO,
                    wide=3,
                ),
                stat(
                    "Lost steps",
                    f"max(muster_job_lost_steps_total{{{_J}}})",
                    "The panel counts steps that the job had finished, lost in a failure and had to repeat.",
                    steps=GOOD_IS_ZERO,
                    wide=3,
                ),
                stat(
                    "Newest checkpoint's age",
                    f"time() - max(muster_checkpoint_timestamp_seconds{{{_J}}})",
                    "A failure now loses the work since this checkpoint, and the restart takes time. Runbook: "
                    "docs/runbooks/MusterNoNewCheckpoint.md.",
                    unit="s",
                    wide=3,
                    none="none seen",
                ),
                stat(
                    "Not running for",
                    f"max(namespace_job_name:muster_job_waiting_seconds:max{{{_J}}})",
                    "The job should have been running for this long, and has not. Runbook: "
                    "docs/runbooks/MusterJobNotTraining.md.",
                    unit="s",
                    steps=((None, "orange"), (1800, "red")),
                    wide=3,
                    none="not waiting",
                ),
                _alerts(
                    ', namespace="$namespace", job_name="$job_name"',
                    "the firing alerts of this job",
                ),
                Panel(
                    "State over time",
                    "state-timeline",
                    (Query(f"max by (state, reason) (muster_job_state{{{_J}}})", "{{state}}: {{reason}}"),),
                    "The bar shows each state of the job with its reason, for as long as it lasted.",
                    wide=24,
                    value_texts={"1": "in this state"},
                ),
            ),
        ),
        (
            "Where the time went",
            (
                bars(
                    "Time by bucket",
                    "The bars add up to the job's wall-clock time. docs/goodput.md explains the buckets.",
                    Query(f"max by (bucket) (muster_job_time_seconds{{{_J}}})", "{{bucket}}"),
                    unit="s",
                ),
                bars(
                    "GPU-hours by bucket",
                    "Each bar is the time of its bucket, multiplied by the accelerators that the job held.",
                    Query(f"max by (bucket) (muster_job_gpu_seconds{{{_J}}}) / 3600", "{{bucket}}"),
                    unit="suffix: GPU-h",
                ),
                lines(
                    "Share of each bucket over time",
                    "The graph shows each bucket's share of the job's life up to that moment. Lost work moves from "
                    "compute to lostWork.",
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
                    "Three lines show the ETTR of the whole life, without the first wait, and of the last six hours, "
                    "as the alert uses it. The fourth line is the objective.",
                    Query(f"max(muster_job_ettr_ratio{{{_J}}})", "whole life"),
                    Query(f"max(muster_job_ettr_after_queue_ratio{{{_J}}})", "after the first wait"),
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
                    "The lines are the newest finished step and the step of the newest complete checkpoint. A "
                    "failure loses the steps between them. Runbook for steps that come no more: "
                    "docs/runbooks/MusterStepsStopped.md.",
                    Query(f"max(muster_job_step{{{_J}}})", "step"),
                    Query(f"max(muster_checkpoint_step{{{_J}}})", "checkpoint"),
                    unit="none",
                ),
                lines(
                    "Steps per second",
                    "The line shows how fast the step number grows. It is below 0 where a failure took the step "
                    "number back.",
                    Query(f"max(deriv(muster_job_step{{{_J}}}[$__rate_interval]))", "steps per second"),
                    unit="none",
                ),
                lines(
                    "Duration of a step",
                    "The lines are the median and the 90th percentile of the newest 64 steps of the current attempt. "
                    "Runbook for steps that have become slower: docs/runbooks/MusterStraggler.md.",
                    Query(f"max(muster_job_step_seconds{{{_J}}})", "median"),
                    Query(f"max(muster_job_step_p90_seconds{{{_J}}})", "90th percentile"),
                    unit="s",
                ),
                lines(
                    "Failures and lost steps",
                    "Both lines count from the creation of the job. Runbook for a job that fails repeatedly: "
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
                    "Tokens per second",
                    "The rate covers the time in steps that count, over the job's whole life. Only jobs that declare "
                    "the tokens of a step (spec.throughput) have it.",
                    Query(f"max(muster_job_tokens_per_second{{{_J}}})", "tokens per second"),
                    unit="none",
                ),
                lines(
                    "MFU",
                    "MFU is the share of the accelerators' peak that the model used. One line covers the steps that "
                    "count, the other all GPU-hours that the job held. docs/goodput.md explains the peak.",
                    Query(f"max(muster_job_mfu_ratio{{{_J}}})", "in steps that count"),
                    Query(f"max(muster_job_mfu_overall_ratio{{{_J}}})", "of all GPU-hours"),
                    unit="percentunit",
                    most=1,
                ),
                lines(
                    "Cost per million tokens",
                    "The cost covers all GPU-hours that the job held, failures and waits included. The FleetPolicy "
                    "sets prices and currency.",
                    Query(
                        f"1e6 * max(muster_job_cost{{{_J}}}) / (max(muster_job_tokens{{{_J}}}) > 0)",
                        "cost per million tokens",
                    ),
                    unit="none",
                ),
                lines(
                    "Power of the job's nodes",
                    "The line adds up all GPUs of the nodes that the job holds, by the DCGM exporter or Muster's "
                    "agent. `kubectl muster report JOB --prometheus URL` shows the energy per token.",
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
                    "The age is that of the newest complete checkpoint. It drops when Muster sees a newer one.",
                    Query(f"time() - max(muster_checkpoint_timestamp_seconds{{{_J}}})", "age"),
                    unit="s",
                ),
                lines(
                    "Duration of a save",
                    "The lines describe the newest save: writing its files, the time until it was seen complete, and "
                    "the delay of the steps around it.",
                    Query(f"max(muster_checkpoint_save_seconds{{{_J}}})", "writing"),
                    Query(f"max(muster_checkpoint_durable_seconds{{{_J}}})", "until seen complete"),
                    Query(f"max(muster_checkpoint_stall_seconds{{{_J}}})", "delay of steps"),
                    unit="s",
                ),
                lines(
                    "Size and free space",
                    "The lines are the newest checkpoint's size and the free space of its file system when Muster "
                    "saw it complete. Runbook for a file system that fills: "
                    "docs/runbooks/MusterCheckpointSpaceLow.md.",
                    Query(f"max(muster_checkpoint_bytes{{{_J}}})", "newest checkpoint"),
                    Query(f"max(muster_checkpoint_free_bytes{{{_J}}})", "free space"),
                    unit="bytes",
                ),
                stat(
                    "Concerns",
                    f"max by (reason) (muster_checkpoint_concern{{{_J}}})",
                    "The panel names the reasons for which the job's checkpoints need attention. `kubectl get tj JOB "
                    "-o jsonpath='{.status.checkpoint.concerns}'` shows the messages.",
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
    "platform leads; users whose jobs wait for nodes",
    "all jobs: goodput, the queue and its reasons, failures, checkpoints",
    (Variable("namespace", "muster_job_state", "namespace", every=True),),
    (
        (
            "Now",
            (
                stat(
                    "Goodput",
                    _GPU_SHARE,
                    "Goodput is the share of the jobs' GPU-time that went into steps that count. It covers the whole "
                    "lives of jobs that have not ended.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    wide=6,
                ),
                _jobs_in("Running", "Running jobs train. The panel counts all namespaces."),
                _jobs_in("Pending", "Pending jobs wait for nodes, or for a quota."),
                _jobs_in("Recovering", "Recovering jobs are between two attempts.", steps=GOOD_IS_ZERO),
                _jobs_in(
                    "Stalled",
                    "Stalled jobs cannot continue until a user changes something. Runbook: "
                    "docs/runbooks/MusterJobStalled.md.",
                    steps=BAD_IS_ONE,
                ),
                _jobs_in(
                    "Failed",
                    "Failed jobs have ended, and count until they are deleted. Runbook: "
                    "docs/runbooks/MusterJobFailed.md.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Jobs without rows",
                    f"sum({led('muster_jobs_without_metrics')})",
                    "These jobs are missing in other panels, because Muster exports the rows of 500 jobs that have "
                    "not ended, and of 100 that failed within a day, at most.",
                    wide=3,
                    steps=GOOD_IS_ZERO,
                ),
                _alerts(
                    "",
                    "all firing alerts of Muster",
                ),
            ),
        ),
        (
            "Goodput",
            (
                bars(
                    "GPU-hours by bucket",
                    "The bars add up the GPU-hours of all jobs that have not ended. docs/goodput.md explains the "
                    "buckets.",
                    Query(
                        f"sort_desc(sum by (bucket) (max by ({_OF}, bucket) (muster_job_gpu_seconds{{{_N}}}))) / 3600",
                        "{{bucket}}",
                    ),
                    unit="suffix: GPU-h",
                ),
                lines(
                    "Goodput and ETTR",
                    "Both figures cover jobs that have not ended. Goodput is the share of GPU-hours in steps that "
                    "count; ETTR is that share of the wall-clock time without suspension. `kubectl muster report "
                    "--fleet` includes ended jobs. The third line is the objective of ETTR.",
                    Query(_GPU_SHARE, "goodput"),
                    Query(_WALL_SHARE, "ETTR"),
                    Query("max(muster:ettr_objective:ratio)", "objective"),
                    unit="percentunit",
                    most=1,
                ),
                table(
                    "Jobs",
                    "The table has a row for each job that has not ended, 500 at most. A job's name links to its "
                    "dashboard.",
                    Query(f"max by ({_OF}, state, reason) (muster_job_state{{{_N}}})", _HIDDEN),
                    Query(f"max by ({_OF}) (muster_job_ettr_ratio{{{_N}}})", "ETTR"),
                    Query(
                        f"sum by ({_OF}) (max by ({_OF}, bucket) (muster_job_gpu_seconds{{{_N}, "
                        f'bucket!~"{PRODUCTIVE}|suspended"}})) / 3600',
                        "GPU-hours without progress",
                    ),
                    Query(f"max by ({_OF}) (muster_job_failures_total{{{_N}}})", "failures"),
                    Query(f"max by ({_OF}) (muster_job_lost_steps_total{{{_N}}})", "lost steps"),
                    Query(f"max by ({_OF}) (muster_job_step{{{_N}}})", "step"),
                    Query(
                        f"time() - max by ({_OF}) (muster_checkpoint_timestamp_seconds{{{_N}}})", "age of checkpoint"
                    ),
                    Query(f"namespace_job_name:muster_job_waiting_seconds:max{{{_N}}}", "not running for"),
                    tall=12,
                    units={"ETTR": "percentunit", "age of checkpoint": "s", "not running for": "s"},
                ),
            ),
        ),
        (
            "Queue and placement",
            (
                lines(
                    "Jobs by state",
                    "The graph counts the jobs of all namespaces. Ended jobs count until they are deleted. Runbook for "
                    "more jobs than have rows of metrics: docs/runbooks/MusterJobsWithoutMetrics.md.",
                    Query(f"max by (state) ({led('muster_jobs')})", "{{state}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Accelerators of the fleet",
                    "The graph shows what accelerators are used for: held by jobs or other pods, taken out, closed "
                    "by others, reserved, or free. docs/goodput.md explains the states.",
                    Query(f"max by (state) ({led('muster_gpus')})", "{{state}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Pending jobs by reason",
                    "The graph counts jobs that wait for nodes. docs/queueing.md explains the reasons.",
                    Query(f"max by (reason) ({led('muster_jobs_pending')})", "{{reason}}"),
                    unit="none",
                    stacked=True,
                ),
                bars(
                    "Longest waits",
                    "The bars show for how long jobs should have been running, and have not.",
                    Query(
                        f"topk(10, namespace_job_name:muster_job_waiting_seconds:max{{{_N}}})",
                        "{{namespace}}/{{job_name}}",
                    ),
                    unit="s",
                    none="no job waits",
                    steps=((None, "green"), (1800, "orange"), (14400, "red")),
                ),
                lines(
                    "Time in the queue",
                    "The time runs from a job's creation, or its return to the queue, until it gets nodes. Each "
                    "point covers the jobs that got nodes in the hour before.",
                    *(
                        Query(quantile(q, "muster_queue_wait_seconds_bucket", window="1h"), name)
                        for q, name in ((0.5, "median"), (0.9, "90th percentile"))
                    ),
                    unit="s",
                ),
                lines(
                    "Fragmentation of free nodes",
                    "The line is the share of free nodes that are in domains with nodes in use. Near 1, a large gang "
                    "finds no domain that is free as a whole.",
                    Query(f"max by (level) ({led('muster_free_nodes_fragmentation')})", "{{level}}"),
                    unit="percentunit",
                    most=1,
                ),
                lines(
                    "Domains per gang",
                    "Of the gangs placed in the last day, 90 % are in this many domains of a level or in fewer. "
                    "Fewer domains are better connected.",
                    Query(quantile(0.9, "muster_gang_domains_bucket", "level", "1d"), "{{level}}"),
                    unit="none",
                ),
            ),
        ),
        (
            "Failures and checkpoints",
            (
                lines(
                    "Failures per hour",
                    "The graph counts attempts that ended with a failure, of jobs that have not ended.",
                    Query(f"sum(max by ({_OF}) (increase(muster_job_failures_total{{{_N}}}[1h])))", "failures"),
                    unit="none",
                ),
                bars(
                    "Jobs with the most failures",
                    "The bars count the attempts of a job's whole life that ended with a failure.",
                    Query(
                        f"topk(10, max by ({_OF}) (muster_job_failures_total{{{_N}}}))", "{{namespace}}/{{job_name}}"
                    ),
                    unit="none",
                    steps=((None, "green"), (3, "orange"), (10, "red")),
                ),
                bars(
                    "Oldest checkpoints",
                    "The bars show the age of a job's newest complete checkpoint, for jobs that have one.",
                    Query(
                        f"topk(10, time() - max by ({_OF}) (muster_checkpoint_timestamp_seconds{{{_N}}}))",
                        "{{namespace}}/{{job_name}}",
                    ),
                    unit="s",
                    steps=((None, "green"), (7200, "orange"), (28800, "red")),
                ),
                bars(
                    "Jobs with concerns about checkpoints",
                    "The bars count jobs whose checkpoints need attention, by reason. Runbooks: "
                    "docs/runbooks/MusterNoNewCheckpoint.md, docs/runbooks/MusterCheckpointSpaceLow.md.",
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
    "hardware teams; on-call engineers, from an alert about nodes",
    "verdicts, findings, the breaker, machines that fail repeatedly, agents, burn-in, GPUs",
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
                    "Healthy nodes are shown as a share of the nodes with any report.",
                    unit="percentunit",
                    steps=GOOD_IS_HIGH,
                    none="no reports",
                ),
                stat(
                    "Unhealthy",
                    f"""sum({led('muster_nodes{state=~"Degraded|Unhealthy|Quarantined"}')})""",
                    "The panel counts nodes that are Degraded, Unhealthy or Quarantined. `kubectl muster nodes` "
                    "names them.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Breaker",
                    f"max({led('muster_breaker_open')})",
                    "The breaker is open while the budget keeps Muster from taking out at least one unhealthy node. "
                    "Runbook: docs/runbooks/MusterBreakerHolds.md.",
                    steps=BAD_IS_ONE,
                    value_texts={"0": "closed", "1": "open"},
                ),
                stat(
                    "Held nodes",
                    f"sum({led('muster_breaker_held_nodes')}) + sum({led('muster_breaker_held_repairs')})",
                    "The panel counts unhealthy nodes that stay in use because the budget is exhausted. Nodes whose "
                    "repair by other systems the budget ignores count, too.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Silent agents",
                    "max(muster:node_agents_silent:ratio)",
                    "The panel shows the share of agents that have reported before and are not Ready. Runbook: "
                    "docs/runbooks/MusterAgentsSilent.md. Runbooks for agents that cannot write: "
                    "docs/runbooks/MusterAgentsRefused.md, docs/runbooks/MusterAgentsCutOff.md.",
                    unit="percentunit",
                    steps=((None, "green"), (0.01, "orange"), (0.05, "red")),
                ),
                stat(
                    "Time to exclusion",
                    quantile(0.9, "muster_detection_seconds_bucket", window="1d"),
                    "The time runs from the first sign of a node's fault until jobs avoid the node. The panel shows "
                    "the 90th percentile of the last day.",
                    unit="s",
                    none="none in the last day",
                ),
                _alerts(
                    ', alertname=~"MusterBreaker.*|MusterAgents.*|MusterNode.*"',
                    "the firing alerts about nodes",
                ),
            ),
        ),
        (
            "Verdicts and findings",
            (
                lines(
                    "Nodes by verdict",
                    "Unknown nodes have no report from any source.",
                    Query(f"max by (state) ({led('muster_nodes')})", "{{state}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Findings by reason",
                    "The graph counts nodes with a finding that counts against them. docs/node-health.md explains "
                    "the reasons.",
                    Query(f"max by (reason) ({led('muster_node_findings')}) > 0", "{{reason}}"),
                    unit="none",
                ),
                lines(
                    "Held nodes by pool",
                    "The graph counts unhealthy nodes that the budget keeps in use. Many of them in one pool most "
                    "likely have one cause: find what they share.",
                    Query(f"max by (pool) ({led('muster_breaker_pool_held_nodes')})", "{{pool}}"),
                    unit="none",
                ),
                bars(
                    "Machines that fail repeatedly",
                    "Each incident adds 1 to a machine's score, which fades with time. The bars show the 20 highest "
                    "scores from 1.5 on. Runbook: docs/runbooks/MusterNodeFlapping.md.",
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
                    "The graph counts agents by whether their Pod is Ready, and nodes with accelerators whose agent "
                    "has never reported. Runbook: docs/runbooks/MusterAgentsMissing.md.",
                    Query(f"max by (state) ({led('muster_node_agents')})", "{{state}}"),
                    Query(f"max({led('muster_nodes_without_agent')})", "never reported"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Pools with too many silent agents",
                    "The graph counts the silent agents of a pool where so many are silent at once that Muster does "
                    "not blame their nodes.",
                    Query(f"max by (pool) ({led('muster_agents_silent')})", "{{pool}}"),
                    unit="none",
                ),
                lines(
                    "Errors of agents",
                    "The graph counts failed requests of agents to the API server, and times that NVML did not "
                    "answer, per hour.",
                    Query(
                        "sum by (reason) (increase(muster_agent_write_errors_total[1h]))", "failed requests: {{reason}}"
                    ),
                    Query("sum(increase(muster_agent_nvml_hangs_total[1h]))", "NVML did not answer"),
                    unit="none",
                ),
                lines(
                    "Evidence by kind",
                    "The graph counts the evidence of all agents against their nodes, before the operator weighs it.",
                    Query("sum by (kind) (muster_agent_evidence) > 0", "{{kind}}"),
                    unit="none",
                ),
            ),
        ),
        (
            "Burn-in",
            (
                lines(
                    "Node tests per day",
                    "The graph counts tests of nodes that no gang held, by outcome. docs/burn-in.md explains the "
                    "tests.",
                    Query("sum by (outcome) (increase(muster_node_tests_total[1d]))", "{{outcome}}"),
                    unit="none",
                    stacked=True,
                ),
                lines(
                    "Duration of a test",
                    "The time covers all probes of one node. The line is the 90th percentile of the last day.",
                    Query(quantile(0.9, "muster_node_test_seconds_bucket", "profile", "1d"), "{{profile}}"),
                    unit="s",
                ),
                lines(
                    "Checkers and open orders",
                    "The graph counts nodes by the state of their checker, and orders that checkers have not "
                    "answered yet.",
                    Query(f"max by (state) ({led('muster_checkers')})", "{{state}}"),
                    Query(f"max({led('muster_check_orders_open')})", "open orders"),
                    unit="none",
                ),
                lines(
                    "Duration of a probe",
                    "The line is the 90th percentile of the last day.",
                    Query(quantile(0.9, "muster_check_probe_seconds_bucket", "probe", "1d"), "{{probe}}"),
                    unit="s",
                ),
                bars(
                    "Results of the chosen probe",
                    "The bars count the results in the time shown, by their upper bound, in the probe's own unit "
                    "(docs/burn-in.md). Inspect a node whose result is far below the others.",
                    Query(f"sum by (le) (increase(muster_check_figure_bucket{{{_P}}}[$__range]))", "{{le}}"),
                    unit="none",
                    buckets=True,
                ),
                lines(
                    "Chosen probe over time",
                    "The lines are the 10th percentile and the median of a day's results, by model and unit.",
                    Query(
                        quantile(0.1, f"muster_check_figure_bucket{{{_P}}}", "model, unit", "1d"),
                        "10th percentile, {{model}}, {{unit}}",
                    ),
                    Query(
                        quantile(0.5, f"muster_check_figure_bucket{{{_P}}}", "model, unit", "1d"),
                        "median, {{model}}, {{unit}}",
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
                    "The lines count the GPUs that answer, and the GPUs that should answer.",
                    Query("sum(muster_agent_gpus)", "answering"),
                    Query("sum(muster_agent_gpus_expected)", "expected"),
                    unit="none",
                ),
                # Only the present value: a day's line over all GPUs of a large fleet is too much for Prometheus.
                stat(
                    "Power",
                    "sum(muster_gpu_power_watts)",
                    "The panel adds up the power of all GPUs that agents report.",
                    unit="watt",
                    wide=12,
                    tall=8,
                ),
                bars(
                    "Hottest GPUs",
                    "The bars show by how many degrees a GPU is below its limit. At 0 the GPU slows down.",
                    Query(
                        "bottomk(10, max by (node, gpu) (muster_gpu_temperature_margin_celsius))", "{{node}} {{gpu}}"
                    ),
                    unit="celsius",
                    steps=((None, "red"), (5, "orange"), (10, "green")),
                ),
                bars(
                    "GPUs with memory or PCIe errors",
                    "The bars count uncorrected memory errors and PCIe replays of the last day. docs/node-health.md "
                    "says which errors count against a node.",
                    Query(
                        "topk(10, max by (node, gpu) (increase(muster_gpu_ecc_uncorrected_total[1d])) > 0)",
                        "{{node}} {{gpu}} memory errors",
                    ),
                    Query(
                        "topk(10, max by (node, gpu) (increase(muster_gpu_pcie_replays_total[1d])) > 0)",
                        "{{node}} {{gpu}} PCIe replays",
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
    "on-call engineers, from an alert about Muster itself; administrators of the API server",
    "leadership, reconciliations, requests to the API server, informers, reports",
    (),
    (
        (
            "Now",
            (
                stat(
                    "Leaders",
                    "sum(muster_is_leader) or vector(0)",
                    "One replica leads, except for some seconds while another takes over. Runbook: "
                    "docs/runbooks/MusterNoLeader.md.",
                    steps=((None, "red"), (1, "green"), (2, "red")),
                ),
                stat(
                    "Replicas",
                    "count(muster_is_leader)",
                    "The panel counts the replicas that Prometheus reaches. Runbook for a missing replica: "
                    "docs/runbooks/MusterReplicaMissing.md.",
                    steps=((None, "orange"), (2, "green")),
                ),
                stat(
                    "FleetPolicy",
                    f"max({led('muster_fleet_policy_unreadable')})",
                    "The panel shows whether the operator can read the FleetPolicy. Runbook: "
                    "docs/runbooks/MusterFleetPolicyUnreadable.md.",
                    steps=BAD_IS_ONE,
                    value_texts={"0": "readable", "1": "unreadable"},
                ),
                stat(
                    "Contradictions in the policy",
                    f"max({led('muster_health_policy_problems')})",
                    "The panel counts contradictions in spec.health of the FleetPolicy. The operator's log names them.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Missing admission policies",
                    f"sum({led('muster_admission_policy_missing')}) or vector(0)",
                    "The API server accepts what these policies have to refuse. Runbook: "
                    "docs/runbooks/MusterAdmissionPolicyMissing.md.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Outdated definitions",
                    "sum(max by (resource) (muster_definition_outdated)) or vector(0)",
                    "These definitions lack fields of a replica's version, so that it does not lead. Runbook: "
                    "docs/runbooks/MusterDefinitionsOutdated.md.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Launchers",
                    f"sum({led('muster_launchers')})",
                    "The panel counts launchers that have reported to the leader and are not forgotten.",
                ),
                stat(
                    "Certificate expires in",
                    "min(muster_certificate_expiry_timestamp_seconds > 0) - time()",
                    "Launchers and Prometheus connect by this certificate. The panel shows the replica whose "
                    "certificate expires first. Runbook: docs/runbooks/MusterCertificateEndsSoon.md.",
                    unit="s",
                    steps=((None, "red"), (3 * 86400, "green")),
                ),
                stat(
                    "Accounts lost in a day",
                    'sum(increase(muster_history_writes_total{outcome="lost"}[1d])) or vector(0)',
                    "Muster could not write these accounts of ended jobs, and does not try again. Runbook: "
                    "docs/runbooks/MusterHistoryLost.md.",
                    steps=GOOD_IS_ZERO,
                ),
                stat(
                    "Open long polls",
                    f"sum({led('muster_reports_held')})",
                    "Launchers and checkers wait in these requests until there is news, or until the request times "
                    "out.",
                ),
                _alerts(
                    ', alertname=~"Muster(NoLeader|Replica|Admission|Launchers|History|Certificate|Memory|Reconcile|FleetPolicy|Clock).*"',  # noqa: E501
                    "the firing alerts about the operator",
                ),
                Panel(
                    "Leadership",
                    "state-timeline",
                    (Query("max by (instance) (muster_is_leader)", "{{instance}}"),),
                    "The bars show when each replica led.",
                    wide=24,
                    tall=6,
                    value_texts={"0": "standby", "1": "leader"},
                ),
            ),
        ),
        (
            "Reconciliation",
            (
                lines(
                    "Clock difference",
                    "The lines show by how much each replica's clock is ahead of the API server's, to a second or "
                    "two. Runbook from 5 s on: docs/runbooks/MusterClockOff.md.",
                    Query("max by (instance) (muster_clock_ahead_seconds)", "{{instance}}"),
                    unit="s",
                ),
                lines(
                    "Duration of a reconciliation",
                    "The time is that of one reconciliation of one job, requests to the API server included.",
                    *(
                        Query(quantile(q, "muster_reconcile_seconds_bucket"), name)
                        for q, name in ((0.5, "median"), (0.99, "99th percentile"))
                    ),
                    unit="s",
                ),
                lines(
                    "Reconciliations per second",
                    "The graph shows all reconciliations, and those that ended with an error. ValueError, KeyError "
                    "and similar reasons are a defect of Muster. Runbook: docs/runbooks/MusterReconcileFailing.md.",
                    Query("sum(rate(muster_reconcile_seconds_count[$__rate_interval]))", "all"),
                    Query(
                        "sum by (reason) (rate(muster_reconcile_failures_total[$__rate_interval]))",
                        "failed: {{reason}}",
                    ),
                    unit="ops",
                ),
                lines(
                    "Duration of placement",
                    "The time runs until the operator has found nodes for one waiting job, or knows that there are "
                    "none.",
                    *(
                        Query(quantile(q, "muster_placement_seconds_bucket"), name)
                        for q, name in ((0.5, "median"), (0.99, "99th percentile"))
                    ),
                    unit="s",
                ),
                lines(
                    "CPU and memory",
                    "The lines show what each replica uses. Runbook for memory near its limit: "
                    "docs/runbooks/MusterMemoryNearLimit.md.",
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
                    "Code 0 means that there was no answer. With 403, a permission is missing or a quota refuses. "
                    "With 429, the API server asks for fewer requests.",
                    Query("sum by (code) (rate(muster_api_requests_total[$__rate_interval]))", "{{code}}"),
                    unit="reqps",
                ),
                lines(
                    "Requests by verb and resource",
                    "The graph shows the 15 most frequent kinds of requests, without watches.",
                    Query(
                        "topk(15, sum by (verb, resource) "
                        '(rate(muster_api_requests_total{verb!="WATCH"}[$__rate_interval])) > 0)',
                        "{{verb}} {{resource}}",
                    ),
                    unit="reqps",
                ),
                lines(
                    "Duration of a request",
                    "The time runs until the response was complete. The lines are the 99th percentile.",
                    Query(quantile(0.99, "muster_api_request_seconds_bucket", "verb"), "{{verb}}"),
                    unit="s",
                ),
                table(
                    "Failed requests in the last hour",
                    "Repeated 403 for one verb and resource means that a permission is missing.",
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
                    "Full lists of informers in 15 minutes",
                    "An informer makes a full list when its watch has to start over. The number is near 0 when all "
                    "is well.",
                    Query("sum by (informer) (increase(muster_informer_lists_total[15m]))", "{{informer}}"),
                    unit="none",
                ),
                lines(
                    "Objects of informers",
                    "The graph counts the objects that the leader's informers hold.",
                    Query(f"max by (informer) ({led('muster_informer_objects')})", "{{informer}}"),
                    unit="none",
                ),
                lines(
                    "Reports by code",
                    "The codes answer reports of launchers and checkers. 421: this replica does not lead; 503: no "
                    "replica leads; 401: the token cannot be verified; 403: the pod is no worker. Runbooks: "
                    "docs/runbooks/MusterLaunchersRefused.md, and for one namespace "
                    "docs/runbooks/MusterWorkersRefused.md.",
                    Query("sum by (code) (rate(muster_reports_total[$__rate_interval]))", "{{code}}"),
                    unit="reqps",
                ),
                lines(
                    "Unreadable objects and lost Events per hour",
                    "The graph counts objects that the operator could not read, which its log names, and Events that "
                    "it could not post.",
                    Query("sum by (informer) (increase(muster_unreadable_objects_total[1h])) > 0", "{{informer}}"),
                    Query("sum(increase(muster_events_dropped_total[1h]))", "lost Events"),
                    unit="none",
                ),
            ),
        ),
    ),
)

DASHBOARDS = (FLEET, JOB, NODES, OPERATOR)


def rendered(dashboard: Dashboard) -> str:
    """Return a dashboard as Grafana's JSON, with a line for each panel and variable, so that a diff shows the place."""
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
    summary = dashboard.summary
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": f"{summary[0].upper()}{summary[1:]}. Generated by tools/monitoring/dashboards.py.",
        "tags": ["muster"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
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
        "refresh": 2,  # whenever the time range changes: jobs come and go
        "sort": 1,
        "multi": variable.every,
        "includeAll": variable.every,
        "hide": 0,
    }
    if variable.every:
        found |= {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"], "selected": True}}
    return found


def _with_positions(dashboard: Dashboard) -> Iterator[Json]:
    """Yield each heading and its panels from left to right, in lines of 24 columns."""
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
                "options": {
                    value: {"text": text, "index": n} for n, (value, text) in enumerate(panel.value_texts.items())
                },
            }
        ]
        if panel.value_texts
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
    """Return the transformations to one row per set of labels, with a column per label and query, without the time."""
    names = [f"Value #{letter}" for letter, _ in zip("ABCDEFGHIJ", panel.queries, strict=False)]
    if len(names) == 1:
        names = ["Value"]
    legends = dict(zip(names, (query.legend for query in panel.queries), strict=True))
    hidden = {"Time": True, **{name: True for name, legend in legends.items() if legend == _HIDDEN}}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden, "indexByName": {}, "renameByName": legends}},
    ]


def _overrides(panel: Panel) -> list[Json]:
    found: list[Json] = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit in panel.units.items()
    ]
    if panel.kind == "table" and any("job_name" in query.expr for query in panel.queries):
        # Users choose the names, so other characters are escaped.
        url = "/d/muster-job?var-namespace=${__data.fields.namespace:percentencode}&var-job_name=${__data.fields.job_name:percentencode}"  # noqa: E501
        link = {"title": "the job's dashboard", "url": url, "targetBlank": False}
        found.append(
            {"matcher": {"id": "byName", "options": "job_name"}, "properties": [{"id": "links", "value": [link]}]}
        )
    return found


def listed(page: str) -> str:
    """Return docs/metrics.md with the present list of dashboards.

    Args:
        page: the text of docs/metrics.md.

    Raises:
        ValueError: the page has no list of dashboards.
    """
    rows = [
        f"| `{each.uid}` | {each.audience} | {each.summary}: {sum(1 for _ in each.panels)} panels |\n"
        for each in DASHBOARDS
    ]
    page, places = _LIST.subn(lambda _: "".join(rows), page)
    if places != 1:
        raise ValueError(f"{PAGE} has {places} lists of dashboards")
    return page


def main() -> int:
    """Write the files, or with --check compare them."""
    page = (_ROOT / PAGE).read_text(encoding="utf-8")
    wanted = {FOLDER / f"{each.uid}.json": rendered(each) for each in DASHBOARDS} | {PAGE: listed(page)}
    status = 0
    for path, text in wanted.items():
        whole = _ROOT / path
        if whole.is_file() and whole.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path} differs from tools/monitoring/dashboards.py: run `make generate`", file=sys.stderr)
            status = 1
        else:
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
