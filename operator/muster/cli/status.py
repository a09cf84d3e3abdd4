"""`kubectl muster status JOB`: print the state of a job on one screen; with `--burn-in`, the results of its burn-in."""

import asyncio
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import ENDED, MAX_EVENTS, JobEvent
from muster.answers.health import verdict
from muster.answers.job_text import ettr_text, why_no_ettr
from muster.answers.jobstatus import JobStatusView, WorkerRow, job_status
from muster.api.trainingjob import Waiting
from muster.cli import burnin, show
from muster.cli.jobs import REPAIRS, events_of, read_job, status_time
from muster.cli.reading import healths_of, pods_of, profile_notes, record_of
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
    run_with_ages,
)
from muster.protocol.numerals import significant

MAX_WORKERS = 12
"""Of a larger gang only workers with a problem are listed."""
MAX_LISTED = 20
SHOWN_EVENTS = 5
SAID_BELOW = frozenset({"Training", "RanksStarted"})  # the message of these names the nodes


def command(
    context: typer.Context,
    job: JobArgument,
    burn_in: Annotated[
        bool,
        typer.Option(
            "--burn-in",
            help="Show instead how the job's nodes did in their burn-in: which are tested, failed, left out.",
        ),
    ] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Show where a job stands, on one screen.

    It says why the job waits or does not train, its speed, checkpoint, workers and Events, what comes, and what you
    can do.
    """
    name, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    if burn_in:
        run_with_ages(options, lambda session: burnin.find(session, name), burnin.render)
        return
    run(options, lambda session: find(session, name), lambda console, it: render(console, it, it.time))


async def find(session: Session, name: str) -> JobStatusView:
    """Read a job, its record, its pods, its Events and what is known of its nodes, as far as this user may.

    Raises:
        CliError: there is no such job, or it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    data, job = await read_job(session, name)
    (record, unread), (pods, hidden), events, profile = await asyncio.gather(
        record_of(session, job),
        pods_of(session, job),
        events_of(session, job.metadata.uid),
        profile_notes(session, [job.status.state]),
    )
    nodes = [member.node for member in record.members] if record else job.status.nodes
    healths, unknown = await healths_of(session, nodes)
    return job_status(
        job=job,
        record=record,
        pods=pods,
        healths=healths,
        now=session.now(),
        notes=[*profile, *unread, *hidden, *unknown],
        events=events,
        written=status_time(data),
    )


def render(console: Console, it: JobStatusView, now: datetime) -> None:
    """Print it as text: one screen."""
    line = Text(f"{it.namespace}/{it.name} ", style="bold")
    if it.state:
        line.append(f"is {show.on_one_line(it.state)}", style=show.STATE_STYLES.get(it.state, ""))
        line.append(f": {show.on_one_line(it.reason)}" if it.reason not in ("", it.state) else "")
    else:
        line.append("has not been looked at by an operator yet", style="yellow")
    if it.since is not None:
        line.append(f", for {show.age(it.since, now)}", style="not bold")
    console.print(line)
    if it.message and it.reason not in SAID_BELOW:
        console.print(Text(show.on_one_line(it.message)))
    if it.warnings:
        show.headline(console, "WARNINGS")
        for warning in it.warnings:
            warning_text = f"-  {warning.reason}, for {show.age(warning.since, now)}: {warning.message}"
            console.print(Text(show.on_one_line(warning_text), style="yellow"), soft_wrap=True)
    if it.waiting is not None:
        _print_waiting(console, it.waiting)
    console.print()
    show.facts(console, _facts(it, now))
    _print_workers(console, it)
    if it.open_incident is not None:
        incident = it.open_incident
        where = f" on {incident.node}" if incident.node else ""
        show.headline(console, f"OPEN INCIDENT {incident.number}")
        repair = f"is repaired {REPAIRS.get(incident.level, incident.level)}"
        if it.reason == "AwaitingEvidence":
            repair = "no restart is left"
        seen = f"{incident.reason}{where}, seen {show.age(incident.time, now)} ago ({incident.fault_class}); {repair}"
        console.print(Text(show.on_one_line(seen), style="yellow"))
        if incident.message:
            show.print_foreign_text(console, incident.message)
    for head, lines in (("WHAT COMES", it.next), ("WHAT YOU CAN DO", it.actions)):
        if lines:
            show.headline(console, head)
            for sentence in lines:  # folded by the terminal: commands are there to be copied
                console.print(Text(f"-  {show.on_one_line(sentence)}"), soft_wrap=True)
    if it.events:
        _print_events(console, it.events, now)
    if it.notes:
        console.print()
        for note in it.notes:
            console.print(Text(f"note: {show.on_one_line(note)}", style="dim"), soft_wrap=True)


def _print_waiting(console: Console, waiting: Waiting) -> None:
    needs = f"{show.count(waiting.needs, 'node')}, all at once"
    if waiting.level:
        needs += f", inside one {waiting.level}"
    if waiting.segment_size and waiting.segment_size > 1:
        needs += f", in segments of {waiting.segment_size}"
    console.print()
    free_text = f"{waiting.free} free for it now, {waiting.suitable} if nothing else ran, {waiting.fleet} in the fleet"
    # If only the namespace's limit keeps a job waiting, no nodes were searched, and it has no such numbers.
    rows = [("Needs", needs), ("There is", free_text if waiting.counts_nodes else "")]
    show.facts(console, rows)
    if waiting.domains:
        head = (waiting.level or "domain").upper()
        console.print()
        domains = show.table(f"BEST {head}", "FREE", "SUITABLE", "MISSING", numbers=("FREE", "SUITABLE", "MISSING"))
        for domain in waiting.domains:
            missing = max(waiting.needs - domain.free, 0)
            show.add(domains, domain.domain or "(fleet)", domain.free, domain.suitable, missing)
        console.print(domains)
    if waiting.blockers:
        console.print()
        blockers = show.table("NODES", "NOT FREE BECAUSE", numbers=("NODES",))
        for blocker in waiting.blockers:
            show.add(blockers, blocker.nodes, blocker.reason)
        console.print(blockers)


def _print_events(console: Console, events: list[JobEvent], now: datetime) -> None:
    shown = events[-SHOWN_EVENTS:][::-1]
    or_more = " or more" if len(events) == MAX_EVENTS else ""
    show.headline(console, f"LAST EVENTS ({len(shown)} of {len(events)}{or_more})")
    made = show.table("AGE", "REASON", "MESSAGE", whole=("AGE", "REASON"))
    for event in shown:
        times = f" ({event.count} times)" if event.count > 1 else ""
        style = "yellow" if event.type == "Warning" else ""
        show.add(
            made, show.age(event.time, now), event.reason, show.on_one_line(f"{event.message}{times}"), style=style
        )
    console.print(made)


def _facts(it: JobStatusView, now: datetime) -> list[tuple[str, object]]:
    speed = show.rate(it.steps_per_second)
    rows: list[tuple[str, object]] = []
    if it.step is not None:
        remark = f" (as of {show.age(it.status_time, now)} ago)" if it.status_time and it.state not in ENDED else ""
        if it.still_since is not None and it.step_seconds is not None:
            still = show.age(it.still_since, now)
            remark = f"; no other for {still}, although a step takes {significant(it.step_seconds)} s"
        rows.append(("Step", f"{it.step:,}" + (f", {speed}" if speed else "") + remark))
    elif it.step_unseen:
        rows.append(("Step", f"not seen yet: {it.step_unseen}"))
    if it.ettr is not None:
        after = (
            f" ({show.percent(it.ettr_after_queue)} without the first queue)" if it.ettr_after_queue is not None else ""
        )
        unsaved = f", {show.duration(it.unsaved_seconds)} of it not saved yet" if it.unsaved_seconds else ""
        rows.append(("ETTR", f"{ettr_text(it.ettr, it.ettr_at_most)}{after}{unsaved}"))
    elif it.progress_unknown:
        rows.append(("ETTR", why_no_ettr(it.state, untimed_steps=it.untimed_steps)))
    saved = it.checkpoint
    if saved is not None:
        behind = f", {show.count(saved.steps_since, 'step')} behind" if saved.steps_since else ""
        rows.append(("Checkpoint", f"step {saved.step:,}, {show.age(saved.time, now)} old{behind}: {saved.path}"))
    elif it.step is not None or it.step_unseen:
        where = f" in {show.on_one_line(it.checkpoint_directory)}" if it.checkpoint_directory else ""
        rest = "was seen" if it.state in ENDED else f"seen yet{where}: after a failure Muster has none to resume from"
        rows.append(("Checkpoint", f"none {rest}"))
    rows += [(f"  {concern.reason}", concern.message) for concern in it.concerns]
    if it.attempt:
        rows.append(("Attempt", f"{it.attempt} ({show.count(it.restarts, 'restart')})"))
    placed = [node for node in it.nodes if node]
    if placed and (it.state in ENDED or len(it.workers) > MAX_WORKERS):
        rows.append(("Nodes", show.folded(placed)))
    if it.state in ENDED:
        return rows
    levels = ", ".join(show.count(level.domains, level.level) for level in it.topology)
    ready = f"{it.nodes_ready} ready" if it.nodes_ready else f"{it.nodes_wanted} wanted"
    rows.append(("Workers", ready + (f", in {levels}" if levels else "")))
    return rows


def _print_workers(console: Console, it: JobStatusView) -> None:
    shown = it.workers if len(it.workers) <= MAX_WORKERS else [row for row in it.workers if not row.is_well]
    healths = any(row.health is not None for row in it.workers)
    if shown:
        console.print()
        spares = any(row.role != "Worker" for row in shown)
        pods = any(row.pod or row.pod_state for row in it.workers)
        columns = ["WORKER", *(["ROLE"] if spares else []), "NODE", *(["HEALTH"] if healths else [])]
        columns += ["POD", "STATE"] if pods else []
        made = show.table(*columns, numbers=("WORKER",), whole=("NODE", "POD"))
        for row in shown[:MAX_LISTED]:
            cells: list[object] = [row.worker, *([row.role] if spares else []), row.node or "(none yet)"]
            cells += [_health(row)] if healths else []
            cells += [row.pod, Text(show.on_one_line(row.pod_state), style=_style(row.pod_state))] if pods else []
            show.add(made, *cells)
        console.print(made)
    hidden = len(it.workers) - len(shown)
    lines = []
    if len(shown) > MAX_LISTED:
        lines.append(f"{len(shown) - MAX_LISTED} more workers with something to report: -o json lists them")
    if hidden:
        lines.append(f"{hidden} more workers without problems, on nodes without findings")
    for line in lines:
        console.print(Text(line, style="dim"))


def _health(row: WorkerRow) -> Text:
    if row.health is None or row.health.state is None:
        return Text("")
    words = row.health.state if not row.health.is_unhealthy else verdict(row.health)
    return Text(show.on_one_line(words), style=show.STATE_STYLES.get(row.health.state, ""))


def _style(state: str) -> str:
    return "green" if state == "Running" else "yellow" if state else ""
