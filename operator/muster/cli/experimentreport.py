"""`kubectl muster report --experiment NAME`: the report of one namespace's jobs with the label
muster.dev/experiment.

Tests: tests/unit/cli/test_experiment.py.
"""

import re
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from muster.answers import fleet_text
from muster.answers.experimentreported import ExperimentJob, ExperimentReport, experiment_report
from muster.answers.fleetlives import lives
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.fleetreport import show_progress
from muster.cli.prices import fleet_policy, prices_by

if TYPE_CHECKING:
    from muster.cli.session import Session

LISTED = 40
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def label_of(text: str) -> str:
    """Return the text if it is a valid value of a label.

    Raises:
        ValueError: it is none; says what to write.
    """
    if _LABEL.fullmatch(text) is None:
        raise ValueError(
            "write the value of the jobs' label muster.dev/experiment: at most 63 letters, digits, '-', '_' and '.'"
        )
    return text


async def find(session: "Session", experiment: str, price: float | None) -> ExperimentReport:
    """Read the namespace's jobs and the history, and report on those of the experiment.

    Raises:
        CliError: there is none.
        ApiError: the namespace's jobs may not be listed, or the API server did not answer as it should.
    """
    policy = await fleet_policy(session)
    job_lives, notes = await lives(
        session.client,
        session.now(),
        namespace=session.namespace,
        experiment=experiment,
        history=policy.history if policy else None,
        progress=show_progress,
    )
    if not job_lives:
        raise CliError(
            f"no job in namespace {session.namespace} with the label muster.dev/experiment={experiment} has had nodes"
            + "".join(f"; {note}" for note in notes)
        )
    return experiment_report(experiment, session.namespace, job_lives, prices_by(policy, price), notes)


def render(console: Console, it: ExperimentReport) -> None:
    """Print the report as text: one page."""
    states = ", ".join(f"{count} {show.on_one_line(state)}" for state, count in it.states.items())
    jobs = show.count(len(it.job_details), "job")
    console.print(Text(f"Experiment {it.namespace}/{it.experiment}: {jobs} ({states})", style="bold"))
    console.print()
    show.facts(console, _figures(it))
    total = len(it.job_details)
    show.headline(console, f"JOBS ({f'the newest {LISTED} of {total:,}' if total > LISTED else total})")
    costs = any(job.cost is not None for job in it.job_details)
    heads = ["JOB", "STATE", "GPUS", "TIME", "GPU-HOURS", "GOODPUT", "STEPS", "TOKENS/S", "SCALING", "MFU"]
    heads += ["COST"] if costs else []
    made = show.table(*heads, numbers=heads[2:], whole=("JOB",))
    for job in it.job_details[-LISTED:]:
        show.add(made, *map(show.on_one_line, _row(job, costs=costs)))
    console.print(made)
    if it.scaling:
        title, heads, rows = fleet_text.scaling_table(it.scaling, LISTED)
        show.headline(console, title)
        made = show.table(*heads, numbers=heads[1:], whole=heads[:1])
        for row in rows:
            show.add(made, *map(show.on_one_line, row))
        console.print(made)
    lines = list(dict.fromkeys(f"no MFU: {job.mfu_unknown}" for job in it.job_details if job.mfu_unknown))
    lines += (
        [f"{show.count(it.end_unknown_jobs, 'job')} ended while no operator saw it: counted up to what was last known"]
        if it.end_unknown_jobs
        else []
    )
    lines += [f"note: {note}" for note in it.notes]
    if lines:
        console.print()
    for line in lines:
        console.print(Text(show.printable(line), style="dim"))


def _row(job: ExperimentJob, *, costs: bool) -> list[str]:
    return [
        job.name,
        job.state,
        str(job.gpus),
        show.duration(job.wall_seconds),
        f"{job.gpu_hours:,.1f}",
        show.percent(job.goodput),
        "" if job.steps is None else f"{job.steps:,}",
        "" if job.tokens_per_second is None else f"{job.tokens_per_second:,.0f}",
        "" if job.scaling is None else show.percent(job.scaling),
        "" if job.mfu is None else show.percent(job.mfu),
        *([fleet_text.money(job.cost)] if costs else []),
    ]


def _figures(it: ExperimentReport) -> list[tuple[str, str]]:
    so_far = "" if it.time_to_train_seconds is not None else f" so far ({show.count(it.running, 'job')} not ended)"
    if not so_far:
        time = ("Time to train", show.duration(it.elapsed_seconds))
    else:
        time = ("Time", f"{show.duration(it.elapsed_seconds)}{so_far if it.running else ', and no job has succeeded'}")
    idle = it.elapsed_seconds - it.busy_seconds
    rows = [time, ("From", f"{show.moment(it.creation_time)} to {show.moment(it.end_time)}")]
    if idle >= 1:
        rows.append(("Without a job", show.duration(idle)))
    rows += [
        ("Goodput", show.percent(it.goodput)),
        ("GPU-hours", f"{it.gpu_hours:,.1f}"),
        ("Failures", f"{it.failures:,}"),
    ]
    called = "Cost" if it.cost_to_train is None else "Cost to train"
    rows += [
        (called, fleet_text.NO_PRICE if it.cost is None else fleet_text.money(it.cost, it.currency)),
        (
            "Tokens",
            "unknown: one job at least does not say what a step is worth, or it is unknown what it has kept"
            if it.tokens is None
            else f"{it.tokens:,}",
        ),
    ]
    if it.cost_per_million_tokens is not None:
        rows.append(("Cost of a million tokens", fleet_text.small_money(it.cost_per_million_tokens, it.currency)))
    return rows
