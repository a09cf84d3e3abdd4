"""`kubectl muster report JOB --incident [N]`: one failure in full: what was seen, what was decided, and why."""

import asyncio

from rich.console import Console
from rich.text import Text

from muster.answers.inquiry import JobIncident, inquire, numbers
from muster.answers.jobstatus import UNREADABLE_EVENTS
from muster.answers.roles import FLEET_ROLE
from muster.api.nodehealth import NodeHealth
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.jobs import events_of, job_of
from muster.cli.reading import record_of
from muster.cli.session import Session
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound

SHOWN = 12  # numbers in an error


async def find(session: Session, name: str, number: int | None) -> JobIncident:
    """Read a job, its record, its Events and what is known of the node, as far as this user may.

    Raises:
        CliError: there is no such job or incident, or the job does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    job = await job_of(session, name)
    (record, notes), events = await asyncio.gather(record_of(session, job), events_of(session, job.metadata.uid))
    incident_numbers = numbers(job, record)
    called = f"{job.metadata.namespace}/{job.metadata.name}"
    if not incident_numbers:
        raise CliError(f"{called} has had no incident")
    wanted = incident_numbers[-1] if number is None else number
    if events is None:
        notes = [*notes, UNREADABLE_EVENTS]
    first = inquire(job, record, wanted, events, None, notes)
    if first is None:
        listed = ", ".join(map(str, incident_numbers[-SHOWN:]))
        older = " (older ones are no longer kept)" if wanted < incident_numbers[0] else ""
        raise CliError(f"{called} has no incident {wanted}{older}: there are {listed}")
    if events and not any(event.time and event.time <= first.time for event in events):
        notes = [*notes, "the cluster no longer has the Events of that time: it keeps them for about an hour"]
    elif events == []:
        notes = [*notes, "the cluster has no Events of this job (any more): it keeps them for about an hour"]
    health, unknown = await _health(session, first.node)
    return inquire(job, record, wanted, events, health, [*notes, *unknown]) or first


async def _health(session: Session, node: str) -> tuple[NodeHealth | None, list[str]]:
    if not node:
        return None, []
    try:
        health = decode.custom(NodeHealth)(await session.client.get(paths.muster("nodehealths", name=node)))
    except Forbidden:
        return None, [f"the findings on {node} may not be read (nodehealths): ask for ClusterRole {FLEET_ROLE}"]
    except NotFound:
        return None, []
    return (health, []) if isinstance(health, NodeHealth) else (None, [f"the NodeHealth of {node} cannot be read"])


def render(console: Console, it: JobIncident) -> None:
    """Print it as text: one page."""
    where = f" on {it.node}" if it.node else ""
    head = Text(f"{it.namespace}/{it.name} incident {it.number}: ", style="bold")
    head.append(show.on_one_line(f"{it.reason}{where}"), style="red" if it.resumed_time is None else "yellow")
    console.print(head)
    if it.message:
        show.print_foreign_text(console, it.message)
    console.print()
    show.facts(console, _facts(it))
    if it.last_lines:
        show.headline(console, "LAST LINES OF THE CULPRIT (as far as the record has them)")
        for line in it.last_lines:
            console.print(Text(f"  {show.on_one_line(line)}"), soft_wrap=True)
    if it.stacks:
        show.headline(console, "WHERE THE RANKS STOOD (main thread, innermost frame first)")
        for group in it.stacks:
            console.print(Text(f"  {show.count(group.count, 'rank')}: {show.on_one_line(group.ranks)}"), soft_wrap=True)
            for line in group.stack.splitlines() or [f"not known: {group.problem}"]:
                console.print(Text(f"    {show.on_one_line(line)}"), soft_wrap=True)
    show.headline(console, "WHAT WAS SEEN")
    made = show.table("TIME", "BY", "WHAT", whole=("TIME",))
    for entry in it.timeline:
        show.add(made, f"{entry.time:%m-%d %H:%M:%S.%f}"[:-3], entry.source, show.on_one_line(entry.event))
    console.print(made)
    show.headline(console, "WHAT WAS DECIDED")
    for line in it.decisions:
        console.print(Text(f"-  {show.on_one_line(line)}"), soft_wrap=True)
    console.print()
    job = f"{it.namespace}/{it.name}"
    is_of_worker = it.worker is not None or bool(it.node)  # a hang may be of none
    printed = (
        f"more of what it printed: kubectl muster logs {job} --failed"
        if is_of_worker
        else (f"what its workers printed: kubectl muster logs {job}")
    )
    more = [f"{printed} --attempt {it.number}"]
    more += [f"the node's life: kubectl muster nodes {it.node}"] if it.node else []
    for line in [*more, *(f"note: {note}" for note in it.notes)]:
        console.print(Text(show.on_one_line(line), style="dim"), soft_wrap=True)


def _facts(it: JobIncident) -> list[tuple[str, object]]:
    fault = it.fault_time or it.time
    seen = (it.time - fault).total_seconds()
    back = show.duration(max((it.resumed_time - fault).total_seconds(), 0)) if it.resumed_time else ""
    ended = f"signal {it.signal}" if it.signal is not None else ""
    if it.exit_code is not None:
        ended = f"code {it.exit_code}"
    lost = ""
    if it.lost_steps is not None:
        took = f", which had taken {show.duration(it.lost_seconds)}" if it.lost_seconds else ""
        lost = f"{show.count(it.lost_steps, 'step')}{took}"
    return [
        ("Happened", show.moment(fault)),
        ("Seen", f"{show.duration(max(seen, 0))} later" if it.fault_time and seen >= 1 else "at once"),
        ("Waited", show.duration(max((it.time - it.asked_time).total_seconds(), 0)) if it.asked_time else ""),
        ("Worker", it.worker),
        ("Rank", it.rank),
        ("Ended with", ended),
        ("Class", it.fault_class),
        ("Step", it.step),
        ("Ran with", ran_with(it)),
        ("Training after", back or "no step has been seen since"),
        ("Lost", lost),
    ]


def ran_with(it: JobIncident) -> str:
    """Return what the ranks ran with, on one line, and what of it was new with this attempt."""
    now, previous = it.fingerprint, it.fingerprint_before
    if now is None:
        return ""
    parts = []
    for name in ("image", "gpu_model", "driver", "collectives", "environment", "revision"):
        value, old = (
            show.on_one_line(getattr(fingerprint, name)) if fingerprint else "" for fingerprint in (now, previous)
        )
        if value or old:
            short = value.removeprefix("sha256:")[:16] if name == "image" else value
            # The collectives' library is known only once ranks train.
            is_new = previous is not None and value != old and bool(name != "collectives" or (value and old))
            parts.append(f"{name.replace('gpu_model', 'GPU')} {short or 'unknown'}{' (new)' if is_new else ''}")
    return ", ".join(parts)
