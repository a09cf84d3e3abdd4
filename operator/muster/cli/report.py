"""`kubectl muster report JOB` and `kubectl muster incidents JOB`: where the time went, and what took it."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.text import Text

from muster.api.goodput import Bucket
from muster.api.trainingjob import Incident
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.explain import REPAIRS, job_of
from muster.cli.reported import JobIncidents, JobReport, Share, incidents, report
from muster.cli.session import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    job_argument,
    run,
)

BAR_WIDTH = 60
# What each bucket looks like in the bar, and its colour; productive ones are full.
_LOOKS = {
    Bucket.COMPUTE: ("█", "green"),
    Bucket.COMMUNICATION: ("▓", "green"),
    Bucket.INPUT_WAIT: ("▒", "yellow"),
    Bucket.CHECKPOINT_STALL: ("c", "cyan"),
    Bucket.LOST_WORK: ("x", "red"),
    Bucket.UNDETECTED: ("!", "red"),
    Bucket.QUEUED: ("q", "dim"),
    Bucket.REQUEUED: ("Q", "red"),
    Bucket.BURN_IN: ("b", "blue"),
    Bucket.STARTING: ("s", "blue"),
    Bucket.RECLAIM: ("k", "yellow"),
    Bucket.RESTARTING: ("r", "yellow"),
    Bucket.SUSPENDED: ("z", "dim"),
    Bucket.FINISHING: ("f", "blue"),
    Bucket.UNKNOWN: ("?", "dim"),
}


def command(
    context: typer.Context,
    job: JobArgument,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Say where a job's time went, what failures took, and what would make it better."""
    name, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    run(options, lambda session: find(session, name), render)


def incidents_command(
    context: typer.Context,
    job: JobArgument,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """List a job's failures and planned leaves: when, where, how they were mended, and what they took."""
    name, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    run(options, lambda session: find_incidents(session, name), render_incidents)


async def find(session: Session, name: str) -> JobReport:
    """Read a job and report of it.

    Raises:
        CliError: there is no such job, it does not fit the model, or nothing was counted of it yet.
        ApiError: the API server did not answer as it should.
    """
    job = await job_of(session, name)
    if job.status.goodput is None or not job.status.goodput.wall_seconds:
        raise CliError(
            f"of job {session.namespace}/{name} nothing has been counted yet: it has no nodes so far, or its operator is of "
            f"an older version; kubectl muster explain {name} says what it waits for"
        )
    return report(job, job.status.goodput)


async def find_incidents(session: Session, name: str) -> JobIncidents:
    """Read a job's incidents.

    Raises:
        CliError: there is no such job, or it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    return incidents(await job_of(session, name))


def render(console: Console, it: JobReport) -> None:
    """Print a report as text: one page."""
    head = Text(f"{it.namespace}/{it.name} ", style="bold")
    head.append(f"is {it.state}", style=show.STATE_STYLES.get(it.state, ""))
    head.append(f", {show.duration(it.wall_seconds)} from {show.moment(it.begun)}", style="not bold")
    console.print(head)
    console.print()
    console.print(bar(it.buckets))
    console.print()
    made = show.table("", "WHERE THE TIME WENT", "TIME", "SHARE", "GPU-HOURS", numbers=("TIME", "SHARE", "GPU-HOURS"))
    for each in it.buckets:
        sign, style = _look(each)
        show.add(
            made,
            Text(sign, style=style),
            each.bucket,
            show.duration(each.seconds),
            f"{each.share:.1%}",
            f"{each.gpu_hours:,.1f}",
        )
    show.add(made, "", "all of it", show.duration(it.wall_seconds), "100.0%", f"{it.gpu_hours:,.1f}")
    console.print(made)
    console.print()
    show.facts(console, _numbers(it))
    if it.incidents:
        show.headline(console, f"INCIDENTS (the last {len(it.incidents)})")
        _print_incidents(console, it.incidents)
    if it.advice:
        show.headline(console, "ADVICE")
        for line in it.advice:
            console.print(Text(f"-  {show.printable(line)}"))


def render_incidents(console: Console, it: JobIncidents) -> None:
    """Print incidents as text, the newest one first."""
    if not it.incidents:
        console.print(Text(f"{it.namespace}/{it.name} has had no incident"))
        return
    _print_incidents(console, it.incidents)
    for incident in it.incidents[::-1]:
        message = show.printable(incident.message.strip())
        console.print()
        console.print(Text(f"{show.moment(incident.time)}  {incident.reason}", style="bold"))
        console.print(Text(message))


def bar(buckets: Sequence[Share]) -> Text:
    """All buckets side by side; whatever took any time gets a sign, the largest gives way to it."""
    if not buckets:
        return Text()
    widths = [max(1, round(each.share * BAR_WIDTH)) for each in buckets]
    widths[0] = max(1, widths[0] + BAR_WIDTH - sum(widths))
    drawn = Text()
    for each, width in zip(buckets, widths, strict=True):
        sign, style = _look(each)
        drawn.append(sign * width, style=style)
    return drawn


def _look(each: Share) -> tuple[str, str]:
    return next((look for bucket, look in _LOOKS.items() if bucket == each.bucket), ("?", ""))


def _numbers(it: JobReport) -> list[tuple[str, object]]:
    mttf = f"{it.mttf_hours:,.1f} h ({show.count(it.failures, 'failure')})" if it.mttf_hours is not None else ""
    if it.mttf_at_least_hours is not None:
        mttf = f"no failure; at least {it.mttf_at_least_hours:,.1f} h with 95 % confidence"
    first, back = it.first_checkpoint_seconds, it.recovery_seconds
    return [
        ("ETTR", _percent(it.ettr)),
        ("  without the first queue", _percent(it.ettr_after_queue)),
        ("Time between failures", mttf or "unknown"),
        ("Back to training in", show.duration(back) if back is not None else ""),
        ("Steps made again", it.lost_steps),
        ("First checkpoint after", show.duration(first) if first is not None else "none seen yet"),
    ]


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"


def _print_incidents(console: Console, listed: Sequence[Incident]) -> None:
    columns = ("SEEN", "AFTER", "CLASS", "REASON", "NODE", "REPAIRED", "TRAINING AFTER", "STEPS", "LOST")
    made = show.table(*columns, numbers=("AFTER", "TRAINING AFTER", "STEPS", "LOST"), whole=("SEEN",))
    for incident in listed[::-1]:
        fault = incident.fault_time or incident.time
        resumed = incident.resumed_time
        show.add(
            made,
            show.moment(incident.time),
            show.duration((incident.time - fault).total_seconds()) if incident.fault_time else "",
            incident.fault_class,
            incident.reason,
            incident.node,
            REPAIRS.get(incident.level, incident.level),
            show.duration((resumed - fault).total_seconds()) if resumed else "",
            incident.lost_steps,
            show.duration(incident.lost_seconds) if incident.lost_seconds is not None else "",
        )
    console.print(made)
