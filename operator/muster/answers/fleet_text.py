"""Format the report of the fleet as text and tables, for a terminal, a file or the page.

Tests: tests/unit/cli/test_fleetreport.py.
"""

from collections.abc import Sequence

from muster.answers.fleetreported import FleetReport
from muster.answers.fleetspend import FleetSpend
from muster.answers.reported import JobReport
from muster.answers.scaling import ScalingSize
from muster.answers.text_parts import count, duration, hours, moment, percent
from muster.api.fleethours import GpuState
from muster.api.goodput import Bucket
from muster.goodput.figures import LEAST_UNKNOWN_SHARE
from muster.goodput.prices import DIFFERENT_PRICES
from muster.protocol.numerals import significant

THOUSAND = 1000
BILLION = 10**9
SHOWN = 0.0005
"""Smaller differences of shares are not visible in print."""
Rows = tuple[str, list[str], list[list[str]]]
"""A table as text: title, heads, rows."""
NO_PRICE = "unknown: some GPUs, or all, have no known price (spec.prices of the FleetPolicy, or --price)"
CUT = "* an estimate: a part of the job's life lies outside this time"


def remarks(it: FleetReport) -> list[str]:
    """Say what limits the figures."""
    sentences = []
    if it.estimated_share:
        sentences.append(
            f"{percent(it.estimated_share)} of the GPU-hours are an estimate: where a part of a job's life lies "
            "outside the time that was asked for, the same share of each figure counts"
        )
    if it.progress_unknown_jobs:
        sentences.append(
            f"goodput and ETTR leave out {count(it.progress_unknown_jobs, 'job')} with "
            f"{it.progress_unknown_gpu_hours:,.1f} GPU-hours: it is unknown what a job has kept that has no "
            "spec.checkpoint.directory and has not succeeded, nor how long steps took of which one line was "
            "printed, and no pace"
        )
    unknown = sum(bucket.share for bucket in it.buckets if bucket.bucket == Bucket.UNKNOWN)
    if unknown >= LEAST_UNKNOWN_SHARE:
        least = "" if it.ettr is None else ", so goodput and ETTR are at least what is said here"
        sentences.append(f"{percent(unknown)} of the GPU-hours are unknown{least}")
    if it.unpriced_share:
        sentences.append(
            f"of {percent(it.unpriced_share)} of the GPU-hours the price is not known, so no cost is shown: name their "
            "models in the FleetPolicy (spec.prices), or give --price"
        )
    if it.scaling_unknown:
        sentences.append(f"scaling is unknown: {it.scaling_unknown}")
    if it.idle_cost_unknown and it.cost is not None and it.spend.cost is None and it.spend.parts:
        remedy = (
            "" if it.idle_cost_unknown == DIFFERENT_PRICES else "set spec.prices.perGpuHour of the FleetPolicy, or "
        )
        sentences.append(
            f"what the GPU-hours cost that no job held is not known: {it.idle_cost_unknown}, and the fleet's hours are "
            f"not counted by model; {remedy}give one price for all (--price)"
        )
    if it.spend.other_pods_gpu_hours:
        sentences.append(
            f"{it.spend.other_pods_gpu_hours:,.1f} GPU-hours of pods that are not Muster's are not among all "
            "GPU-hours: what they were spent on is unknown"
        )
    if it.runtime_unknown_jobs:
        sentences.append(
            f"{count(it.runtime_unknown_jobs, 'job')} left out of the time between failures: for more than a tenth "
            "of their time it is unknown whether ranks ran (launch.mode Plain, or no visible steps)"
        )
    if it.end_unknown_jobs:
        sentences.append(
            f"{count(it.end_unknown_jobs, 'job')} ended while no operator saw it: counted up to what was last known"
        )
    if it.uncounted_seconds:
        sentences.append(
            f"the last {duration(it.uncounted_seconds)} of running jobs, all together, are not in it yet: "
            "their next step is awaited"
        )
    not_observed = sum(gpu_state.share for gpu_state in it.gpu_states if gpu_state.state is GpuState.NOT_OBSERVED)
    if not_observed:
        sentences.append(
            f"in {percent(not_observed)} of the fleet's GPU-hours no operator ran that could see what they were spent "
            "on"
        )
    return [*sentences, *(f"note: {note}" for note in it.notes)]


def period(it: FleetReport) -> str:
    """Name the period of the report."""
    end = moment(it.until or it.time)
    return f"from {moment(it.since)} to {end}" if it.since else f"until {end}"


def figures(it: FleetReport) -> list[tuple[str, str]]:
    """Return the most important figures."""
    rate = it.failures_per_thousand_node_days
    return [
        ("Goodput", percent(it.goodput)),
        ("ETTR", percent(it.ettr)),
        *([("GPU-hours not saved yet", f"{it.unsaved_gpu_hours:,.1f}")] if it.unsaved_gpu_hours else []),
        ("GPU-hours", f"{it.gpu_hours:,.1f}"),
        ("Became progress, of all GPU-hours", spend_text(it.spend)),
        *([("Idle accelerators", percent(it.idle_share))] if it.idle_share is not None else []),
        ("Cost of all jobs", NO_PRICE if it.cost is None else money(it.cost, it.currency)),
        *between_failures("Time between a job's failures", it),
        _failure_rate(rate),
        ("Jobs", f"{it.jobs:,}, of which {it.running:,} run"),
    ]


def between_failures(called: str, it: JobReport | FleetReport) -> list[tuple[str, str]]:
    """Return the time between failures with its bounds, of all and of each class."""
    if it.mttf_hours is None or it.mttf_low_hours is None:
        if it.mttf_at_least_hours is None:
            return [(called, f"unknown: {_why_no_failure_time(it)}")]
        none = "none while steps were made" if it.failures else "no failure"
        return [(called, f"{none}; at least {hours(it.mttf_at_least_hours)} with 95 % confidence")]

    def line(failures: float, mean: float, low: float, high: float | None) -> str:
        counted = f"{number(failures)} {'failure' if failures == 1 else 'failures'}"
        bounds = f"at least {hours(low)}" if high is None else f"{hours(low)} to {hours(high)}"
        return f"{hours(mean)} ({counted}; 95 %: {bounds})"

    rows = [(called, line(it.mttf_failures, it.mttf_hours, it.mttf_low_hours, it.mttf_high_hours))]
    return rows + [
        (
            f"  {class_failures.fault_class}",
            line(
                class_failures.failures,
                class_failures.mttf_hours,
                class_failures.mttf_low_hours,
                class_failures.mttf_high_hours,
            ),
        )
        for class_failures in it.mttf_by_class
    ]


def _why_no_failure_time(it: JobReport | FleetReport) -> str:
    if any(bucket.bucket == Bucket.UNKNOWN for bucket in it.buckets):
        return "more than a tenth of the time in which ranks may have run is unknown"
    return "no rank was seen to train yet"


def spend_text(it: FleetSpend) -> str:
    """Format the share of all GPU-hours of the fleet that became progress, and the unknown part."""
    if it.progress is None or it.progress_at_most is None:
        return f"unknown: {it.unknown_reason}"
    if it.progress_at_most - it.progress < SHOWN:
        return percent(it.progress)
    return (
        f"{percent(it.progress)} at least; at most {percent(it.progress_at_most)}, by what is unknown or not saved yet"
    )


def _failure_rate(per_thousand_node_days: float | None) -> tuple[str, str]:
    """Format the rate in the unit that fits: jobs that fail at once have many failures in little time."""
    rate = per_thousand_node_days
    if rate is None or rate < THOUSAND:
        return "Failures in 1,000 node-days", f"{rate:,.2f}" if rate is not None else "unknown"
    if rate < 24 * THOUSAND:
        return "Failures in a node-day", f"{rate / THOUSAND:,.2f}"
    return "Failures in a node-hour", f"{rate / THOUSAND / 24:,.2f}"


def money(value: float | None, currency: str = "") -> str:
    """Format a sum in the currency of the price."""
    return "" if value is None else f"{value:,.2f} {currency}".strip()


def small_money(value: float, currency: str = "") -> str:
    """Format a sum that may be far below one, with three significant digits."""
    return money(value, currency) if value >= 1 else f"{significant(value)} {currency}".strip()


def number(value: float) -> str:
    """Format a count, which is no whole number where jobs were cut."""
    return f"{value:,.1f}".removesuffix(".0")


def _spend_rows(it: FleetSpend) -> list[list[str]]:
    """Return a row for each part, and below them their sum."""
    parts = [(part.part, part.gpu_hours, part.share, part.cost) for part in it.parts]
    if parts:
        parts.append(("all of it", it.gpu_hours, 1.0, it.cost))
    return [
        [part, f"{gpu_hours:,.1f}", percent(whole), *([money(cost)] if it.cost is not None else [])]
        for part, gpu_hours, whole, cost in parts
    ]


def model_text(it: ScalingSize) -> str:
    """Name the model and its accelerators."""
    if it.flops_per_token is not None:
        return f"{significant(it.flops_per_token / BILLION)} GFLOP a token, {it.gpu_model}"
    return f"{significant((it.parameters or 0) / BILLION)}B, {it.gpu_model}"


def _heading(title: str, count: int, most: int, *, or_more: bool = False) -> str:
    """The title of a table, which says how many rows it lacks if it lacks some."""
    if count <= most and not or_more:
        return title
    return f"{title} (the first {min(count, most)} of {count:,}{' or more' if or_more else ''})"


def scaling_table(sizes: Sequence[ScalingSize], most: int) -> Rows:
    """Format how training scales; the figures with an x are relative to the smallest size."""
    priced = any(size.cost_per_million_tokens is not None for size in sizes)
    return (
        _heading("SCALING", len(sizes), most),
        [
            *("MODEL", "GPUS", "JOBS", "TOKENS/S", "X GPUS", "X SPEED", "EFFICIENCY", "X COST"),
            *(["A MILLION TOKENS"] if priced else []),
        ],
        [
            [
                model_text(size),
                f"{size.gpus:,}",
                f"{size.jobs:,}",
                f"{size.tokens_per_second:,.0f}",
                significant(size.times_gpus),
                significant(size.times_speed),
                percent(size.efficiency),
                significant(size.times_cost),
                *(
                    ["" if size.cost_per_million_tokens is None else small_money(size.cost_per_million_tokens)]
                    if priced
                    else []
                ),
            ]
            for size in sizes[:most]
        ],
    )


def tables(it: FleetReport, jobs: int, nodes: int) -> list[Rows]:
    """Return all tables of the report, as text: title, heads, rows. The first column has names, the others figures."""
    priced = it.cost is not None

    def cost(value: float | None) -> list[str]:
        return [money(value)] if priced else []

    price = ["COST"] if priced else []
    all_tables: list[Rows] = [
        (
            "WHERE THE TIME WENT",
            ["BUCKET", "GPU-HOURS", "SHARE", *price, "WALL CLOCK"],
            [
                [
                    bucket.bucket,
                    f"{bucket.gpu_hours:,.1f}",
                    percent(bucket.share),
                    *cost(bucket.cost),
                    duration(bucket.seconds),
                ]
                for bucket in it.buckets
            ],
        ),
        (
            "WHAT THE FLEET'S SPEND BECAME",
            ["PART", "GPU-HOURS", "SHARE", *(["COST"] if it.spend.cost is not None else [])],
            _spend_rows(it.spend),
        ),
        (
            "WHAT JOBS TOOK, BY THEIR END",
            ["ENDED", "JOBS", "GPU-HOURS", "SHARE", "GOODPUT", *price],
            [
                [
                    outcome.state,
                    str(outcome.jobs),
                    f"{outcome.gpu_hours:,.1f}",
                    percent(outcome.share),
                    percent(outcome.goodput),
                    *cost(outcome.cost),
                ]
                for outcome in it.outcomes
            ],
        ),
        scaling_table(it.scaling, jobs),
        (
            "WHAT THE FLEET'S ACCELERATORS DID",
            ["STATE", "GPU-HOURS", "SHARE"],
            [[gpu_state.state, f"{gpu_state.gpu_hours:,.1f}", percent(gpu_state.share)] for gpu_state in it.gpu_states],
        ),
        (
            "WHAT FAILURES TOOK",
            ["CAUSE", "CLASS", "INCIDENTS", "GPU-HOURS", "SHARE", *price],
            [
                [
                    cause.reason,
                    cause.fault_class,
                    number(cause.incidents),
                    f"{cause.gpu_hours:,.1f}",
                    percent(cause.share),
                    *cost(cause.cost),
                ]
                for cause in it.causes
            ],
        ),
        (
            _heading("WORST NODES", len(it.offenders), nodes, or_more=bool(it.unlisted_offenders)),
            ["NODE", "INCIDENTS", "JOBS", "GPU-HOURS"],
            [
                [offender.node, number(offender.incidents), str(offender.jobs), f"{offender.gpu_hours:,.1f}"]
                for offender in it.offenders[:nodes]
            ],
        ),
        (
            _heading("NAMESPACES", len(it.namespaces), jobs),
            ["NAMESPACE", "JOBS", "GPU-HOURS", "GOODPUT", *price],
            [
                [
                    namespace.namespace,
                    str(namespace.jobs),
                    f"{namespace.gpu_hours:,.1f}",
                    percent(namespace.goodput),
                    *cost(namespace.cost),
                ]
                for namespace in it.namespaces[:jobs]
            ],
        ),
        (
            f"JOBS (the largest {min(jobs, len(it.job_details))} of {len(it.job_details):,})",
            ["JOB", "STATE", "GPUS", "GPU-HOURS", "GOODPUT", "FAILURES", "TAKEN"],
            [
                [
                    f"{job.namespace}/{job.name}",
                    job.state,
                    str(job.gpus),
                    f"{job.gpu_hours:,.1f}{'' if job.counted_share == 1 else '*'}",
                    percent(job.goodput),
                    number(job.failures),
                    f"{job.incident_gpu_hours:,.1f}",
                ]
                for job in it.job_details[:jobs]
            ],
        ),
    ]
    return [table for table in all_tables if table[2]]
