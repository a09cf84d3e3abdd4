"""`kubectl muster report --fleet`: where the GPU-hours of all jobs went, those that have ended included."""

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from muster.api.endedjob import PLURAL, EndedJob, EndedJobSpec, Ending
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.errors import FLEET_ROLE
from muster.cli.fleetreported import FleetReport, Life, fleet_report
from muster.cli.prices import prices_for
from muster.cli.reading import PAGE_SIZE, items
from muster.goodput.history import record
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from muster.cli.session import Session
    from muster.kube.client import Client

SYSTEM = "muster-system"
LISTED_JOBS = 20
LISTED_NODES = 10
_AGO = re.compile(r"(?P<number>[0-9]{1,5})(?P<unit>[hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
LONGEST = timedelta(days=36500)

Progress = Callable[[str, int], None]


def moment_since(text: str, now: datetime) -> datetime:
    """The moment that `--since` names: 90d, 12h, 2w, a day or a time.

    Raises:
        ValueError: it is none; says what to write.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - min(int(ago["number"]) * _UNITS[ago["unit"]], LONGEST)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("write how long ago (90d, 12h, 2w), or when (2026-01-31, 2026-01-31T12:00:00Z)") from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    if found >= now:
        raise ValueError("it is in the future: write how long ago (90d), or an earlier day")
    return found


def tell_progress(what: str, count: int) -> None:
    """Tell a terminal what long work has come to."""
    if sys.stderr.isatty() and count % PAGE_SIZE == 0:
        typer.echo(f"reading {what}: {count:,}", err=True)


async def find(
    session: "Session",
    now: datetime,
    since: datetime | None = None,
    price: float | None = None,
    progress: Progress = tell_progress,
) -> FleetReport:
    """Read all jobs and the history, and report of them.

    Raises:
        ApiError: jobs of all namespaces may not be listed, or the API server did not answer as it should.
    """
    found, notes = await lives(session.client, since=since, progress=progress)
    return fleet_report(found, now, since, await prices_for(session, price), notes)


async def lives(
    client: "Client",
    *,
    namespace: str | None = None,
    experiment: str | None = None,
    since: datetime | None = None,
    progress: Progress = tell_progress,
) -> tuple[list[Life], list[str]]:
    """The jobs that there are and those that have ended, each once, and what limits this answer.

    Args:
        namespace: only of this one.
        experiment: only those that carry this label.
        since: of those that have ended only those that did so after that.

    Raises:
        ApiError: the jobs may not be listed, or the API server did not answer as it should.
    """
    # Jobs first: one that ends meanwhile is in both rather than in none.
    living, notes = await _living(client, namespace, progress)
    ended, more = await _ended(client, since, progress)
    found = dict(ended)
    for uid, life in living.items():
        kept = found.get(uid)
        # Nobody saw the end of one that is there: it was taken for gone.
        if kept is None or (life.running and kept.spec.state is Ending.UNSEEN):
            found[uid] = life
    wanted = [
        life
        for life in found.values()
        if (namespace is None or life.spec.namespace == namespace)
        and (experiment is None or life.spec.experiment == experiment)
    ]
    return wanted, [*notes, *more]


async def _living(client: "Client", namespace: str | None, progress: Progress) -> tuple[dict[str, Life], list[str]]:
    """The jobs that there are, by uid; whatever has no figures yet is left out."""
    read, found, unreadable, count = decode.custom(TrainingJob), dict[str, Life](), 0, 0
    async for item in items(client, paths.muster("trainingjobs", namespace=namespace or "")):
        progress("jobs", count)
        count += 1
        try:
            job = read(item)
            if not isinstance(job, TrainingJob):
                unreadable += 1
                continue
            if job.status.goodput is not None:
                spec = record(job, None, job.status.goodput, Ending.DELETED)
                running = job.status.completion is None
                state = job.status.state if running else str(spec.state)
                found[job.metadata.uid] = Life(spec, state or "Pending", running)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            unreadable += 1
    return found, [f"{show.count(unreadable, 'job')} cannot be read by this version"] if unreadable else []


async def _ended(client: "Client", since: datetime | None, progress: Progress) -> tuple[dict[str, Life], list[str]]:
    """The history, by uid."""
    read, found, unreadable, count = decode.custom(EndedJob), dict[str, Life](), 0, 0
    without = "what is told is of jobs that still exist, alone"
    try:
        async for item in items(client, paths.muster(PLURAL, namespace=SYSTEM)):
            progress("ended jobs", count)
            count += 1
            try:
                kept = read(item)
                if not isinstance(kept, EndedJob) or kept.spec.job_uid != kept.metadata.name:
                    unreadable += 1
                elif since is None or kept.spec.end > since:
                    found[kept.spec.job_uid] = _life(kept.spec)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                unreadable += 1
    except Forbidden:
        return {}, [
            f"the history of ended jobs may not be read ({PLURAL} in namespace {SYSTEM}: list): {without}; ask for ClusterRole "
            f"{FLEET_ROLE} (a ClusterRoleBinding)"
        ]
    except NotFound:
        return {}, [f"this cluster's Muster is too old to keep a history of ended jobs: {without}"]
    return found, [f"{show.count(unreadable, 'ended job')} cannot be read by this version"] if unreadable else []


def _life(spec: EndedJobSpec) -> Life:
    return Life(spec, str(spec.state), running=False)


def remarks(it: FleetReport) -> list[str]:
    """What a reader has to know to take the figures for what they are."""
    found = []
    if it.estimated:
        found.append(
            f"{it.estimated:.1%} of the GPU-hours are an estimate: of jobs that began before the time that was asked for, the same "
            "share of each figure counts as of their lives"
        )
    if it.unpriced:
        found.append(
            f"of {it.unpriced:.1%} of the GPU-hours the price is not known, so no cost is told: name their models in the FleetPolicy "
            "(spec.prices), or give --price"
        )
    if it.unseen:
        found.append(f"{show.count(it.unseen, 'job')} ended unseen: counted up to what was last known")
    if it.uncounted_seconds:
        found.append(
            f"the last {show.duration(it.uncounted_seconds)} of running jobs, all together, are not in it yet: they wait or start, "
            "and that counts once it is over"
        )
    return [*found, *(f"note: {note}" for note in it.notes)]


def period(it: FleetReport) -> str:
    """Of which time it tells."""
    return f"from {show.moment(it.since)} to {show.moment(it.time)}" if it.since else f"until {show.moment(it.time)}"


def figures(it: FleetReport) -> list[tuple[str, str]]:
    """The figures that people look for first."""
    mttf = f"{it.mttf_hours:,.1f} h ({number(it.failures)} failures)" if it.mttf_hours is not None else "unknown"
    if it.mttf_at_least_hours is not None:
        mttf = f"no failure; at least {it.mttf_at_least_hours:,.1f} h with 95 % confidence"
    rate = it.failures_per_thousand_node_days
    return [
        ("Goodput", share(it.goodput)),
        ("ETTR", share(it.ettr)),
        ("GPU-hours", f"{it.gpu_hours:,.1f}"),
        *([("Cost", money(it.cost, it.currency))] if it.cost is not None else []),
        ("Time between a job's failures", mttf),
        ("Failures in 1,000 node-days", f"{rate:,.2f}" if rate is not None else "unknown"),
        ("Jobs", f"{it.jobs:,}, of which {it.running:,} run"),
    ]


def share(value: float | None) -> str:
    """In per cent."""
    return "unknown" if value is None else f"{value:.1%}"


def money(value: float | None, currency: str = "") -> str:
    """A sum in whatever currency the price was in."""
    return "" if value is None else f"{value:,.2f} {currency}".strip()


def small_money(value: float, currency: str = "") -> str:
    """The same of a sum that may be far below one: three digits that count."""
    return money(value, currency) if value >= 1 else f"{value:.3g} {currency}".strip()


def number(value: float) -> str:
    """A count, which is no whole number where jobs were cut."""
    return f"{value:,.1f}".removesuffix(".0")


Rows = tuple[str, list[str], list[list[str]]]


def tables(it: FleetReport, jobs: int, nodes: int) -> list[Rows]:
    """All tables of the report, as text: title, heads, rows. The first column says what, the others are figures."""
    priced = it.cost is not None

    def cost(value: float | None) -> list[str]:
        return [money(value)] if priced else []

    price = ["COST"] if priced else []
    found: list[Rows] = [
        (
            "WHERE THE TIME WENT",
            ["BUCKET", "GPU-HOURS", "SHARE", *price, "WALL CLOCK"],
            [
                [
                    each.bucket,
                    f"{each.gpu_hours:,.1f}",
                    share(each.share),
                    *cost(each.cost),
                    show.duration(each.seconds),
                ]
                for each in it.buckets
            ],
        ),
        (
            "WHAT FAILURES TOOK",
            ["CAUSE", "CLASS", "INCIDENTS", "GPU-HOURS", "SHARE", *price],
            [
                [
                    each.reason,
                    each.fault_class,
                    number(each.incidents),
                    f"{each.gpu_hours:,.1f}",
                    share(each.share),
                    *cost(each.cost),
                ]
                for each in it.causes
            ],
        ),
        (
            "WORST NODES",
            ["NODE", "INCIDENTS", "JOBS", "GPU-HOURS"],
            [
                [each.node, number(each.incidents), str(each.jobs), f"{each.gpu_hours:,.1f}"]
                for each in it.offenders[:nodes]
            ],
        ),
        (
            "NAMESPACES",
            ["NAMESPACE", "JOBS", "GPU-HOURS", "GOODPUT", *price],
            [
                [each.namespace, str(each.jobs), f"{each.gpu_hours:,.1f}", share(each.goodput), *cost(each.cost)]
                for each in it.namespaces[:jobs]
            ],
        ),
        (
            f"JOBS (the largest {min(jobs, len(it.listed))} of {len(it.listed):,})",
            ["JOB", "STATE", "GPUS", "GPU-HOURS", "GOODPUT", "FAILURES", "TAKEN"],
            [
                [
                    f"{each.namespace}/{each.name}",
                    each.state,
                    str(each.gpus),
                    f"{each.gpu_hours:,.1f}{'' if each.counted == 1 else '*'}",
                    share(each.goodput),
                    number(each.failures),
                    f"{each.taken_gpu_hours:,.1f}",
                ]
                for each in it.listed[:jobs]
            ],
        ),
    ]
    return [table for table in found if table[2]]


def render(console: Console, it: FleetReport) -> None:
    """Print the report as text."""
    console.print(Text(f"The fleet, {period(it)}", style="bold"))
    console.print()
    show.facts(console, figures(it))
    for title, heads, rows in tables(it, LISTED_JOBS, LISTED_NODES):
        show.headline(console, title)
        words = {"CLASS", "STATE"}
        made = show.table(*heads, numbers=[head for head in heads[1:] if head not in words], whole=(heads[0],))
        for row in rows:
            show.add(made, *(show.on_one_line(cell) for cell in row))
        console.print(made)
    if not it.jobs:
        console.print(Text("no job has had nodes in this time"))
    if any(each.counted < 1 for each in it.listed[:LISTED_JOBS]):
        console.print(Text("* an estimate: the job began before", style="dim"))
    if lines := remarks(it):
        console.print()
        for line in lines:
            console.print(Text(show.printable(line), style="dim"))
