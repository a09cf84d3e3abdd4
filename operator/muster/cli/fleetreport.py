"""`kubectl muster report --fleet`: where the GPU-hours of all jobs went, those that have ended included."""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from muster.answers.fleet_text import CUT, figures, period, remarks, tables
from muster.answers.fleethours import hours
from muster.answers.fleetlives import Progress, lives
from muster.answers.fleetreported import FleetReport, fleet_report
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.prices import fleet_policy, prices_by
from muster.kube.pages import PAGE_SIZE

if TYPE_CHECKING:
    from muster.cli.session import Session

LISTED_JOBS = 20
LISTED_NODES = 10
_AGO = re.compile(r"(?P<number>[0-9]{1,5})(?P<unit>[hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
LONGEST = timedelta(days=36500)
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""No cluster is older: an earlier moment asks for everything."""


def moment_of(text: str, now: datetime) -> datetime:
    """Parse the moment of `--since` or `--until`: 90d, 12h, 2w, a day (its beginning) or a time.

    Raises:
        ValueError: it is none; says what to write.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(now - min(int(ago["number"]) * _UNITS[ago["unit"]], LONGEST), EARLIEST)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("write how long ago (90d, 12h, 2w), or when (2026-01-31, 2026-01-31T12:00:00Z)") from None
    moment = max(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC), EARLIEST)
    if moment >= now:
        raise ValueError("it is in the future: write how long ago (90d), or an earlier day")
    return moment


def time_between(since: str | None, until: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Parse both moments; None: not given.

    Raises:
        ValueError: one of them is none, or nothing lies between them; says which option, and what to write.
    """
    moments = dict[str, datetime]()
    for option, text in (("--since", since), ("--until", until)):
        try:
            if text is not None:
                moments[option] = moment_of(text, now)
        except ValueError as error:
            raise ValueError(f"{option} {text}: {error}") from error
    begin, end = moments.get("--since"), moments.get("--until")
    if begin is not None and end is not None and begin >= end:
        raise ValueError(f"--since {since} is not before --until {until}: write the earlier of the two with --since")
    return begin, end


def show_progress(subject: str, count: int) -> None:
    """Show the progress of long work on a terminal."""
    if sys.stderr.isatty() and count % PAGE_SIZE == 0:
        typer.echo(f"reading {subject}: {count:,}", err=True)


async def find(
    session: "Session",
    since: str | None = None,
    until: str | None = None,
    price: float | None = None,
    progress: Progress = show_progress,
) -> FleetReport:
    """Read all jobs and the history, and report on them.

    Args:
        session: reads in all namespaces.
        since: as `moment_of` reads it, by the cluster's clock.
        until: likewise.
        price: of one GPU-hour; None: the FleetPolicy's.
        progress: called with what was read so far, and how many of it.

    Raises:
        CliError: by that clock it is in the future.
        ApiError: jobs of all namespaces may not be listed, or the API server did not answer as it should.
    """
    policy = await fleet_policy(session)
    now = session.now()
    try:
        begin, end = time_between(since, until, now)
    except ValueError as error:
        raise CliError(str(error)) from error
    job_lives, notes = await lives(
        session.client, now, since=begin, history=policy.history if policy else None, progress=progress
    )
    fleet_hours, more = await hours(session.client)
    return fleet_report(job_lives, now, begin, prices_by(policy, price), [*notes, *more], fleet_hours, end)


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
    if any(job.counted_share < 1 for job in it.job_details[:LISTED_JOBS]):
        console.print(Text(CUT, style="dim"))
    if lines := remarks(it):
        console.print()
        for line in lines:
            console.print(Text(show.printable(line), style="dim"))
