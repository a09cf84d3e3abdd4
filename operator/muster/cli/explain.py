"""`kubectl muster explain JOB`: why a job waits, where it runs, what happened to it."""

import difflib
from datetime import datetime
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import JobEvent, JobExplanation, explain
from muster.api.trainingjob import TrainingJob, Waiting
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.session import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    job_argument,
    run_with_ages,
)
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound

SHOWN = 5  # incidents, and Events, in the table
PAGE_SIZE = 500
SAID_BELOW = frozenset({"Training", "RanksStarted"})  # the message of these says on which nodes
REPAIRS = {"R0": "in place", "R0b": "by a new pod", "R2": "by a new node", "R4": "by a new gang"}


def command(
    context: typer.Context,
    job: JobArgument,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Say why a job waits, where it runs, or why it has stopped."""
    name, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    run_with_ages(options, lambda session: find(session, name), render)


async def find(session: Session, name: str) -> JobExplanation:
    """Read a job and its Events.

    Raises:
        CliError: there is no such job, or it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    found = await job_of(session, name)
    return explain(found, await events_of(session, found.metadata.uid))


async def job_of(session: Session, name: str) -> TrainingJob:
    """Read a job.

    Raises:
        CliError: there is no such job, or it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    return (await read_job(session, name))[1]


async def read_job(session: Session, name: str) -> tuple[bytes, TrainingJob]:
    """A job as the API server has it, and as the model reads it.

    Raises:
        CliError: there is no such job, or it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    path = paths.muster("trainingjobs", namespace=session.namespace, name=name)
    try:
        data = await session.client.get(path)
        found = decode.custom(TrainingJob)(data)
    except NotFound as error:
        if error.details.get("name") != name:  # it is the kind that is unknown
            raise
        raise CliError(await _no_such_job(session, name)) from error
    if isinstance(found, decode.Undecodable):
        raise CliError(
            f"job {session.namespace}/{name} does not fit its definition ({found.error}): the operator or the "
            "CustomResourceDefinitions are of another version than this command; kubectl get tj -o yaml shows it as it is"
        )
    return data, found


async def events_of(session: Session, uid: str) -> list[JobEvent] | None:
    """The job's Events; None if this user may not read them."""
    query: dict[str, str | int] = {"fieldSelector": f"involvedObject.uid={uid}", "limit": PAGE_SIZE}
    try:
        page = decode.list_page(await session.client.get(paths.core("events", namespace=session.namespace), query))
    except Forbidden:
        return None
    return [_event(item) for item in page.items or ()]


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: datetime | None = None


class _Source(msgspec.Struct):
    component: str = ""


class _Event(msgspec.Struct, rename="camel"):
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: _Series | None = None
    reporting_component: str | None = None
    source: _Source | None = None


def _event(data: Any) -> JobEvent:
    """An Event of the core group, whichever group it was written in."""
    read = msgspec.json.decode(data, type=_Event)
    series = read.series or _Series()
    time = series.last_observed_time or read.last_timestamp or read.event_time
    return JobEvent(
        time=time,
        type=read.type,
        reason=read.reason,
        message=read.message,
        count=read.count or series.count,
        reporter=read.reporting_component or (read.source or _Source()).component or None,
    )


class _Named(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Listed(msgspec.Struct):
    metadata: _Named


async def _no_such_job(session: Session, name: str) -> str:
    """That there is no such job, and which one may have been meant."""
    missing = f"there is no TrainingJob {name} in namespace {session.namespace}"
    try:
        everywhere = await _names(session, "")
    except Forbidden:
        try:
            everywhere = await _names(session, session.namespace)
        except Forbidden:
            return f"{missing}: kubectl get tj -A lists those that there are"
    here = sorted(found.name for found in everywhere if found.namespace == session.namespace)
    elsewhere = sorted(found.namespace for found in everywhere if found.name == name)
    if elsewhere:
        return f"{missing}, but in {', '.join(elsewhere[:SHOWN])}: give it with -n"
    near = difflib.get_close_matches(name, here, n=3)
    if near:
        return f"{missing}: did you mean {' or '.join(near)}?"
    if not here:
        return f"{missing}, nor any other one: give another namespace with -n (kubectl get tj -A lists all)"
    more = f" and {len(here) - SHOWN} more" if len(here) > SHOWN else ""
    return f"{missing}: there are {', '.join(here[:SHOWN])}{more}"


async def _names(session: Session, namespace: str) -> list[_Named]:
    """Namespaces and names of all jobs."""
    found: list[_Named] = []
    query: dict[str, str | int] = {"limit": PAGE_SIZE}
    while True:
        page = decode.list_page(await session.client.get(paths.muster("trainingjobs", namespace=namespace), query))
        found += [msgspec.json.decode(item, type=_Listed).metadata for item in page.items or ()]
        if not page.metadata.continue_:
            return found
        query["continue"] = page.metadata.continue_


def render(console: Console, it: JobExplanation, now: datetime) -> None:
    """Print an explanation as text."""
    _print_state(console, it, now)
    if it.waiting is not None:
        _print_waiting(console, it.waiting)
    _print_life(console, it, now)
    if it.next:
        show.headline(console, "NEXT")
        for line in it.next:  # left to the terminal to fold: commands are there to be copied
            console.print(Text(f"-  {show.printable(line)}"), soft_wrap=True)
    if it.incidents:
        _print_incidents(console, it, now)
    if it.events:
        _print_events(console, it.events, now)
    if it.notes:
        console.print()
        for note in it.notes:
            console.print(Text(f"note: {note}", style="dim"))


def _print_state(console: Console, it: JobExplanation, now: datetime) -> None:
    line = Text(f"{it.namespace}/{it.name} ", style="bold")
    if not it.state:
        line.append("has not been looked at by an operator yet", style="yellow")
    else:
        line.append(f"is {it.state}", style=show.STATE_STYLES.get(it.state, ""))
        line.append(f": {it.reason}" if it.reason not in ("", it.state) else "")
    if it.since is not None:
        line.append(f", for {show.age(it.since, now)} (since {show.moment(it.since)})", style="not bold")
    console.print(line)
    if it.message and it.reason not in SAID_BELOW:
        console.print(Text(show.on_one_line(it.message)))


def _print_waiting(console: Console, waiting: Waiting) -> None:
    needs = f"{show.count(waiting.needs, 'node')}, all at once"
    if waiting.inside:
        needs += f", inside one {waiting.inside}"
    if waiting.segment_size and waiting.segment_size > 1:
        needs += f", in segments of {waiting.segment_size}"
    console.print()
    there = f"{waiting.free} free for it now, {waiting.suitable} if nothing else ran, {waiting.fleet} in the fleet"
    # What only its namespace's limit keeps waiting was not looked for, and has no such numbers.
    rows = [("Needs", needs), ("There is", there if waiting.fleet else "")]
    if waiting.position:
        rows.insert(1, ("Queue", f"place {waiting.position} of {waiting.queued}"))
    show.facts(console, rows)
    if waiting.domains:
        head = (waiting.inside or "domain").upper()
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
    if waiting.unblocks:
        show.headline(console, "WHAT WOULD UNBLOCK IT")
        _print_list(console, waiting.unblocks)


def _print_life(console: Console, it: JobExplanation, now: datetime) -> None:
    rows: list[tuple[str, object]] = []
    placed = [node for node in it.nodes if node]
    if placed:
        levels = ", ".join(show.count(level.domains, level.level) for level in it.topology)
        lacking = f", {it.wanted - len(placed)} still to find" if len(placed) < it.wanted else ""
        rows.append(("Where", f"{show.count(len(placed), 'node')}{f' in {levels}' if levels else ''}{lacking}"))
        rows.append(("Nodes", show.folded(placed)))
    if it.nodes_ready and placed:
        rows.append(("Ready", f"{it.nodes_ready} workers"))
    if it.attempt:
        rows.append(("Attempt", f"{it.attempt} ({show.count(it.restarts, 'restart')})"))
    rows.append(("Step", it.step))
    if it.checkpoint is not None:
        ahead = (it.step or 0) - it.checkpoint.step
        behind = f", {show.count(ahead, 'step')} ago" if ahead > 0 else ""
        seen = f"seen {show.age(it.checkpoint.time, now)} ago"
        rows.append(("Checkpoint", f"step {it.checkpoint.step}{behind}, {seen}: {it.checkpoint.path}"))
    if any(value is not None for _, value in rows):
        console.print()
        show.facts(console, rows)


def _print_incidents(console: Console, it: JobExplanation, now: datetime) -> None:
    shown = it.incidents[-SHOWN:][::-1]
    show.headline(console, f"LAST INCIDENTS ({len(shown)} of {len(it.incidents)})")
    made = show.table("AGE", "WHAT", whole=("AGE",))
    for incident in shown:
        where = f" on {incident.node}" if incident.node else ""
        lost = f", {show.count(incident.lost_steps, 'step')} lost" if incident.lost_steps is not None else ""
        repair = f"repaired {REPAIRS.get(incident.level, incident.level)}"
        head = f"{incident.reason}{where} in attempt {incident.attempt}: {repair}{lost}"
        message = incident.message.strip().splitlines()[:1]
        show.add(made, show.age(incident.time, now), "\n".join([head, *message]))
    console.print(made)


def _print_events(console: Console, events: list[JobEvent], now: datetime) -> None:
    shown = events[-SHOWN:][::-1]
    show.headline(console, f"LAST EVENTS ({len(shown)} of {len(events)})")
    made = show.table("AGE", "REASON", "MESSAGE", whole=("AGE", "REASON"))
    for event in shown:
        times = f" ({event.count} times)" if event.count > 1 else ""
        style = "yellow" if event.type == "Warning" else ""
        show.add(made, show.age(event.time, now), event.reason, f"{event.message}{times}", style=style)
    console.print(made)


def _print_list(console: Console, lines: list[str]) -> None:
    made = show.table("", "")
    made.show_header = False
    for line in lines:
        show.add(made, "-", line)
    console.print(made)
