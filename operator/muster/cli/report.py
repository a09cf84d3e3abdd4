"""`kubectl muster report JOB`: print where the time went; with `--incidents` and `--incident`, what took it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from muster.answers import job_text
from muster.answers.fleetreported import FleetReport
from muster.answers.reported import JobIncidents, JobReport, Share, incidents, report
from muster.answers.training import seen_time
from muster.api.goodput import Bucket, Fingerprint
from muster.api.trainingjob import Incident
from muster.cli import experimentreport, fleetpage, fleetreport, show
from muster.cli import incident as single_incident
from muster.cli.cluster_names import complete_job
from muster.cli.errors import CliError
from muster.cli.jobs import REPAIRS, job_of
from muster.cli.prices import price_of, prices_for
from muster.cli.prometheus import metered_energy, url_of
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    Output,
    Session,
    connected,
    job_argument,
    run,
)
from muster.goodput.opened import clock_lead_seconds, figures_as_of

BAR_WIDTH = 60
# The sign of each bucket in the bar, and its colour; productive ones are full.
_STYLES = {
    Bucket.COMPUTE: ("█", "green"),
    Bucket.COMMUNICATION: ("▓", "green"),
    Bucket.INPUT_WAIT: ("▒", "yellow"),
    Bucket.CHECKPOINT_STALL: ("c", "cyan"),
    Bucket.LOST_WORK: ("x", "red"),
    Bucket.UNDETECTED: ("!", "red"),
    Bucket.HELD: ("h", "magenta"),
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

_PLANNED_COLUMN = "WAITED"
_INCIDENT_COLUMNS = (
    *("N", "SEEN", "AFTER", "CLASS", "REASON", "NODE", "REPAIRED"),
    *(_PLANNED_COLUMN, "BACK AFTER", "STEPS", "LOST"),
)
_NOT_IF_NARROW = ("AFTER", "REPAIRED", "STEPS")
NARROW = 110


class Form(StrEnum):
    """How a report is printed."""

    TABLE = "table"
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"
    YAML = "yaml"


_OUTPUTS = {Form.TABLE: Output.TABLE, Form.TEXT: Output.TABLE, Form.JSON: Output.JSON, Form.YAML: Output.YAML}
_PAGES = {Form.MARKDOWN: fleetpage.markdown, Form.HTML: fleetpage.page}


def _complete_form(context: typer.Context) -> list[str]:
    """Return the forms; without the fleet's pages where a job or an experiment is named, which has none."""
    # Before the value of its last option is typed, click leaves arguments unread.
    named_subject = context.params.get("job") or context.args or context.params.get("experiment")
    return [form for form in Form if not (named_subject and form in _PAGES)]


def command(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Name of the TrainingJob, or NAMESPACE/NAME; or --fleet.",
            autocompletion=complete_job,
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Argument(
            metavar="N", help="With --incident: its number, as --incidents lists them. Default: the newest."
        ),
    ] = None,
    list_incidents: Annotated[
        bool, typer.Option("--incidents", help="List the job's failures and planned moves off nodes, newest first.")
    ] = False,
    one_incident: Annotated[
        bool,
        typer.Option(
            "--incident", help="Show incident N of the job: what was seen and when, what was decided, and why."
        ),
    ] = False,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="All jobs of all namespaces, those that have ended included.")
    ] = False,
    experiment: Annotated[
        str | None,
        typer.Option(
            "--experiment",
            metavar="NAME",
            help=(
                "The namespace's jobs with the label muster.dev/experiment=NAME together, those that have ended "
                "included."
            ),
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="With --fleet: only what was after that, e.g. 90d or 2026-01-31."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="WHEN", help="With --fleet: only what was before that, e.g. 2026-04-01."),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(
            "--price",
            metavar="NUMBER",
            help="What one GPU-hour costs, in any currency. Default: as the FleetPolicy says.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help=(
                "Of a job: take the energy of its nodes' accelerators from this Prometheus, e.g. http://127.0.0.1:9090."
            ),
        ),
    ] = None,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: Annotated[
        Form | None,
        typer.Option(
            "--output",
            "-o",
            help="Text for people, json or yaml for programs; with --fleet markdown or html, too.",
            autocompletion=_complete_form,
        ),
    ] = None,
) -> None:
    """Show where the time of a job, or of all jobs, went.

    It also shows what failures took, and what would make it better.
    """
    if [job is not None, fleet, experiment is not None].count(True) != 1:
        raise typer.BadParameter("name a job, or say --fleet or --experiment NAME: one of them", param_hint="JOB")
    if number is not None and not one_incident:
        raise typer.BadParameter("the number of an incident needs --incident", param_hint="N")
    priced = price is not None or prometheus is not None
    if (list_incidents or one_incident) and (job is None or priced or list_incidents == one_incident):
        raise typer.BadParameter(
            "--incidents and --incident are for a job, one of them, without --price and --prometheus"
        )
    if prometheus is not None and job is None:
        raise typer.BadParameter("--prometheus is for a job: it joins the energy of the nodes that one job held")
    if fleet:
        options = Options(kubeconfig, kube_context, namespace, _OUTPUTS.get(output) if output else None).over(
            context.obj
        )
        _fleet(options, (since, until), price, _PAGES.get(output) if output else None)
        return
    if since is not None or until is not None or output in _PAGES:
        raise typer.BadParameter("--since, --until, markdown and html are for --fleet")
    try:
        cost = price_of(price)
        url = url_of(prometheus) if prometheus is not None else None
        label = experimentreport.label_of(experiment) if experiment is not None else ""
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    form = _OUTPUTS[output] if output else None
    if label:
        options = Options(kubeconfig, kube_context, namespace, form).over(context.obj)
        run(options, lambda session: experimentreport.find(session, label, cost), experimentreport.render)
        return
    name, inside = job_argument(job or "", namespace)
    options = Options(kubeconfig, kube_context, inside, form).over(context.obj)
    if list_incidents:
        run(options, lambda session: find_incidents(session, name), render_incidents)
    elif one_incident:
        run(options, lambda session: single_incident.find(session, name, number), single_incident.render)
    else:
        run(options, lambda session: find(session, name, cost, url), render)


def _fleet(
    options: Options,
    between: tuple[str | None, str | None],
    price: float | None,
    page: Callable[[FleetReport], str] | None,
) -> None:
    """Report on the fleet."""
    since, until = between
    try:
        fleetreport.time_between(since, until, datetime.now(UTC))
        cost = price_of(price)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if page is None:
        run(options, lambda session: fleetreport.find(session, since, until, cost), fleetreport.render)
    else:
        typer.echo(page(connected(options, lambda session: fleetreport.find(session, since, until, cost))), nl=False)


async def find(session: Session, name: str, price: float | None = None, prometheus: str | None = None) -> JobReport:
    """Read a job and report on it.

    Args:
        session: with the job's namespace.
        name: of the job.
        price: of one GPU-hour; None: the FleetPolicy's.
        prometheus: address to take the energy from; None: launchers' figures count.

    Raises:
        CliError: there is no such job, it does not fit the model, it has no figures yet, or Prometheus does not answer.
        ApiError: the API server did not answer as it should.
    """
    job = await job_of(session, name)
    now = session.now()
    goodput = figures_as_of(job, now)
    if goodput is None and job.status.completion is not None and not job.status.attempt:
        raise CliError(
            f"job {session.namespace}/{name} ended without ever having had nodes: there are no figures of it"
        )
    if goodput is None or not goodput.wall_seconds:
        raise CliError(
            f"job {session.namespace}/{name} has no figures yet: it is new; "
            f"kubectl muster status {name} says what it waits for"
        )
    metered = None
    if prometheus is not None:
        off = clock_lead_seconds(goodput)  # Prometheus goes by the cluster's clock, as far as is known
        metered = await metered_energy(
            prometheus, session.namespace, name, goodput.creation_time - off, goodput.counted_until - off
        )
    return report(job, goodput, await prices_for(session, price), now, metered)


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
    head.append(f", {show.duration(it.wall_seconds)} from {show.moment(it.creation_time)}", style="not bold")
    console.print(head)
    if it.no_progress_seconds:
        text = f"for {show.duration(it.no_progress_seconds)} it has finished no step: that time is unknown"
        console.print(Text(text, style="bold yellow"))
    console.print()
    console.print(bar(it.buckets))
    console.print()
    made = show.table("", "WHERE THE TIME WENT", "TIME", "SHARE", "GPU-HOURS", numbers=("TIME", "SHARE", "GPU-HOURS"))
    for bucket in it.buckets:
        sign, style = _style_of(bucket)
        show.add(
            made,
            Text(sign, style=style),
            bucket.bucket,
            show.duration(bucket.seconds),
            show.percent(bucket.share),
            f"{bucket.gpu_hours:,.1f}",
        )
    show.add(made, "", "all of it", show.duration(it.wall_seconds), "100.0%", f"{it.gpu_hours:,.1f}")
    console.print(made)
    console.print()
    show.facts(console, job_text.figures(it))
    if it.fingerprints:
        show.headline(console, "WHAT IT RAN WITH")
        _print_fingerprints(console, it.fingerprints)
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
        console.print()
        reason = show.on_one_line(incident.reason)
        console.print(Text(f"{incident.attempt}  {show.moment(incident.time)}  {reason}", style="bold"))
        show.print_foreign_text(console, incident.message)


def bar(buckets: Sequence[Share]) -> Text:
    """Draw all buckets side by side; each that took any time gets a sign, at the cost of the largest."""
    if not buckets:
        return Text()
    widths = [max(1, round(bucket.share * BAR_WIDTH)) for bucket in buckets]
    widths[0] = max(1, widths[0] + BAR_WIDTH - sum(widths))
    drawn = Text()
    for bucket, width in zip(buckets, widths, strict=True):
        sign, style = _style_of(bucket)
        drawn.append(sign * width, style=style)
    return drawn


def _style_of(share: Share) -> tuple[str, str]:
    return next((look for bucket, look in _STYLES.items() if bucket == share.bucket), ("?", ""))


def _print_fingerprints(console: Console, listed: Sequence[Fingerprint]) -> None:
    heads = ["FROM ATTEMPT", "IMAGE", "GPU", "DRIVER", "COLLECTIVES", "ENVIRONMENT", "REVISION"]
    made = show.table(*heads, numbers=heads[:1])
    for fingerprint in listed:
        image = fingerprint.image.removeprefix("sha256:")[:12]
        cells = (
            image,
            fingerprint.gpu_model,
            fingerprint.driver,
            fingerprint.collectives,
            fingerprint.environment,
            fingerprint.revision,
        )
        show.add(made, fingerprint.attempt, *(show.on_one_line(cell) for cell in cells))
    console.print(made)


def _print_incidents(console: Console, listed: Sequence[Incident]) -> None:
    """Print a line for each incident. A narrow terminal omits the year, and what `--incident` shows."""
    narrow = console.width < NARROW
    unused = () if any(incident.asked_time for incident in listed) else (_PLANNED_COLUMN,)
    left_out = (*unused, *(_NOT_IF_NARROW if narrow else ()))
    columns = [name for name in _INCIDENT_COLUMNS if name not in left_out]
    numbers = [name for name in columns if name in ("N", "AFTER", _PLANNED_COLUMN, "BACK AFTER", "STEPS", "LOST")]
    made = show.table(*columns, numbers=numbers, whole=("N", "SEEN", _PLANNED_COLUMN, "BACK AFTER", "LOST"))
    for incident in listed[::-1]:
        cells = _incident(incident)
        if narrow:
            cells["SEEN"] = f"{incident.time:%m-%d %H:%M:%S}"
        show.add(made, *(cells[name] for name in columns))
    console.print(made)


def _incident(incident: Incident) -> dict[str, object]:
    """Return the cells of an incident by column."""
    fault, resumed, asked = incident.fault_time or incident.time, incident.resumed_time, incident.asked_time
    return {
        "N": incident.attempt,
        "SEEN": show.moment(incident.time),
        "AFTER": show.duration((seen_time(incident) - fault).total_seconds()) if incident.fault_time else "",
        "CLASS": incident.fault_class,
        "REASON": incident.reason,
        "NODE": incident.node,
        "REPAIRED": REPAIRS.get(incident.level, incident.level),
        _PLANNED_COLUMN: show.duration((incident.time - asked).total_seconds()) if asked else "",
        "BACK AFTER": show.duration((resumed - fault).total_seconds()) if resumed else "",
        "STEPS": incident.lost_steps,
        "LOST": show.duration(incident.lost_seconds) if incident.lost_seconds is not None else "",
    }
