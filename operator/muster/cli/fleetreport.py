"""`kubectl muster report --fleet`: where the GPU-hours of all jobs went, those that have ended included."""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from muster.cli import show
from muster.cli.fleetlives import Progress, lives
from muster.cli.fleetreported import FleetReport, fleet_report
from muster.cli.fleetwords import figures, period, remarks, tables
from muster.cli.prices import prices_for
from muster.cli.reading import PAGE_SIZE

if TYPE_CHECKING:
    from muster.cli.session import Session

LISTED_JOBS = 20
LISTED_NODES = 10
_AGO = re.compile(r"(?P<number>[0-9]{1,5})(?P<unit>[hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
LONGEST = timedelta(days=36500)


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
