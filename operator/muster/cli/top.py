"""`kubectl muster top`: print all jobs, live on a terminal, once into a pipe.

Each update is one list of TrainingJobs. Keys are read without waiting for a line; however it ends, the terminal is
restored.
"""

import asyncio
import contextlib
import importlib.util
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from muster.answers.overview import JobsTop, TopRow, overview
from muster.cli import show
from muster.cli.job_list import list_jobs
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    connected,
    run,
)
from muster.kube.errors import ApiError

_LIVE = importlib.util.find_spec("termios") is not None  # Windows lacks it: there the list is printed once
QUIT_KEYS = frozenset("qQ\x03\x04\x1b")
_ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O[A-Za-z])")  # of an arrow or another key without a character
NARROW = 110  # a terminal of fewer columns has no room for all
LEAST_WHY = 16
LEAST_SECONDS, MOST_SECONDS = 0.5, 3600.0


class _Shown(NamedTuple):
    """A job as a line of the screen needs it.

    Attributes:
        row: the job.
        now: the time.
        several: whether jobs of more than one namespace are listed.
    """

    row: TopRow
    now: datetime
    several: bool


class _Column(NamedTuple):
    """A column of the screen.

    Attributes:
        head: its name.
        cell: the text for one job.
        number: whether it is aligned to the right.
        wide: whether a narrow terminal does without it.
    """

    head: str
    cell: Callable[[_Shown], str]
    number: bool = False
    wide: bool = False


COLUMNS = (
    _Column("JOB", lambda of: f"{of.row.namespace}/{of.row.name}" if of.several else of.row.name),
    _Column("STATE", lambda of: show.on_one_line(of.row.state or "New")),
    _Column("FOR", lambda of: show.age(of.row.since, of.now), wide=True),
    _Column("NODES", lambda of: str(of.row.nodes or ""), number=True),
    _Column("STEP", lambda of: "" if of.row.step is None else f"{of.row.step:,}", number=True),
    _Column("SPEED", lambda of: show.rate(of.row.steps_per_second), number=True),
    _Column("ETTR", lambda of: "" if of.row.ettr is None else show.percent(of.row.ettr), number=True),
    _Column(
        "SAVED",
        lambda of: f"{show.age(of.row.checkpoint_time, of.now)} ago" if of.row.checkpoint_time else "",
        wide=True,
    ),
)
"""All columns from left to right; WHY follows them."""


def command(
    context: typer.Context,
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="List also jobs that have ended.")] = False,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces, as without --namespace, which it overrides.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", min=LEAST_SECONDS, max=MOST_SECONDS, help="Time between two polls."
        ),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Poll once, also on a terminal.")] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Show all jobs live: state, speed, ETTR, why one waits.

    q or Ctrl-C ends it; into a pipe it is printed once.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    one_namespace = options.namespace is not None and not all_namespaces
    if not once and options.output is None and _LIVE and sys.stdout.isatty() and sys.stdin.isatty():
        connected(options, lambda session: watch(session, interval, ended=all_jobs, one_namespace=one_namespace))
        return
    run(
        options,
        lambda session: find(session, ended=all_jobs, one_namespace=one_namespace),
        lambda console, it: console.print(screen(it, it.time, console.width)),
    )


async def find(session: Session, *, ended: bool = False, one_namespace: bool = False) -> JobsTop:
    """List the jobs once: of all namespaces, unless one is given or no more may be read.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    jobs, namespace, notes = await list_jobs(session, one_namespace=one_namespace)
    return overview(jobs, namespace, session.now(), ended=ended, notes=notes)


async def watch(session: Session, interval: float, *, ended: bool, one_namespace: bool) -> None:
    """List the jobs repeatedly, until a key, a signal or an error of the first request ends it.

    Raises:
        ApiError: the first request failed; errors of later ones are shown on the screen.
    """
    jobs_top = await find(session, ended=ended, one_namespace=one_namespace)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    console = Console(markup=False, highlight=False, emoji=False)
    trouble = ""
    with _keys(over, loop), Live(console=console, screen=True, auto_refresh=False) as live:
        while not over.is_set():
            now = session.now()
            live.update(screen(jobs_top, now, console.width, console.height, trouble or "q ends"), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), interval)
            if over.is_set():
                return
            look = asyncio.ensure_future(find(session, ended=ended, one_namespace=one_namespace))
            end = asyncio.ensure_future(over.wait())
            await asyncio.wait({look, end}, return_when=asyncio.FIRST_COMPLETED)
            end.cancel()
            if not look.done():
                look.cancel()
                return
            try:
                jobs_top, trouble = look.result(), ""
            except ApiError as error:  # the last list stays, with its time
                trouble = f"as of {jobs_top.time:%H:%M:%S} UTC: {show.on_one_line(str(error))}"


@contextlib.contextmanager
def _keys(over: asyncio.Event, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let a key end the loop without the line's end; on exit the terminal is restored."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    previous_settings = termios.tcgetattr(descriptor)

    def pressed() -> None:
        import os

        typed = os.read(descriptor, 64).decode(errors="replace")
        if not typed or QUIT_KEYS.intersection(_ESCAPE_SEQUENCE.sub("", typed)):
            over.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, previous_settings)


def screen(it: JobsTop, now: datetime, width: int, height: int | None = None, footer: str = "") -> Group:
    """Lay all out as one screen; jobs beyond its height in lines are only counted. Without a height it is as high as it
    takes.
    """
    states = ", ".join(f"{number} {state}" for state, number in it.states.items()) or "no jobs"
    where = f"namespace {it.namespace}" if it.namespace else "all namespaces"
    # A folded line would push the rest off the screen.
    head = Text(show.on_one_line(f"{where}: {states}"), style="bold", no_wrap=height is not None, overflow="ellipsis")
    if it.nodes:
        head.append(f"; {show.count(it.nodes, 'node')} train", style="not bold")
    if it.goodput is not None:
        head.append(f"; goodput {show.percent(it.goodput)}", style="not bold")
    note_lines = [*(f"note: {show.on_one_line(note)}" for note in it.notes), *([footer] if footer else [])]
    tail = [Text(line, style="dim", no_wrap=height is not None, overflow="ellipsis") for line in note_lines]
    shown = it.jobs
    if height is not None and len(shown) > (room := max(height - 3 - len(tail) - 1, 1)):
        shown = shown[:room]
    hidden = len(it.jobs) - len(shown)
    if hidden:
        tail.insert(0, Text(f"... and {hidden} more", style="dim"))
    if not it.jobs:
        ended = sum(number for state, number in it.states.items() if state in ("Succeeded", "Failed"))
        tail.insert(0, Text(f"all {ended} have ended: --all lists them" if ended else "there is no TrainingJob"))
        return Group(head, *tail)
    several = not it.namespace
    narrow = width < NARROW
    columns = [column for column in COLUMNS if not (narrow and column.wide)]
    heads = [column.head for column in columns]
    rows = [[column.cell(_Shown(row, now, several)) for column in columns] for row in shown]
    # Formatted here: a table of rich's takes half a second for 500 rows, and folds lines, which would push others off
    # the screen.
    sizes = [max(map(cell_len, (name, *texts))) for name, *texts in zip(heads, *rows, strict=True)]
    room = max(width - sum(sizes) - 2 * len(sizes), LEAST_WHY)
    made = [Text(_line(columns, sizes, heads, "WHY", room), style="bold", no_wrap=True)]
    for row, cells in zip(shown, rows, strict=True):
        line = Text(_line(columns, sizes, cells, show.on_one_line(_why(row)), room), no_wrap=True)
        line.stylize(show.STATE_STYLES.get(row.state, ""), sizes[0] + 2, sizes[0] + 2 + sizes[1])
        made.append(line)
    return Group(head, Text(""), *made, *tail)


def _line(columns: Sequence[_Column], sizes: Sequence[int], cells: Sequence[str], why: str, room: int) -> str:
    padded = []
    for column, size, cell in zip(columns, sizes, cells, strict=True):
        blank = " " * (size - cell_len(cell))
        padded.append(blank + cell if column.number else cell + blank)
    short = why if cell_len(why) <= room else f"{set_cell_size(why, room - 1)}…"
    return "  ".join([*padded, short]).rstrip()


def _why(row: TopRow) -> str:
    parts = [f"#{row.position}"] if row.position else []
    parts += [f"incident {row.open_incident}"] if row.open_incident is not None else []
    parts += [f"! {show.on_one_line(row.warnings[0])}"] if row.warnings else []
    parts += [row.message] if row.message else []
    return ": ".join(parts)
