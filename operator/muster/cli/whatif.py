"""`kubectl muster what-if`: what a gang would get done at given failure rates, and what another choice would change.

It needs no cluster, but for `--rates fleet`, which reads what the records of jobs remember of failures.
"""

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.text import Text

from muster.api.base import ApiModel
from muster.api.trainingjob import TrainingJobSpec
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.explanation import OUTPUT_VERSION
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    run,
    tell,
)
from muster.whatif.answer import Answer, Estimate, Option, answer
from muster.whatif.measured import measured
from muster.whatif.plan import Plan, usual_start_seconds
from muster.whatif.rates import PUBLISHED, Rates, RatesError, causes_from, of_nodes
from muster.whatif.weather import Dice

FLEET = "fleet"
# Nobody waits longer for an answer: about ten minutes of a core.
MAX_FAILURES = 20_000_000
_MODEL = (
    "Launchers are not played one by one: what recovery takes is taken from the shipped time-outs. A spare is a free node "
    "that nobody else takes; Muster keeps nothing running on it. Where the defaults come from: docs/what-if.md"
)


class WhatIf(ApiModel):
    """What was asked, and the answer."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["WhatIf"] = "WhatIf"
    plan: Plan
    rates: Rates
    seed: int
    answer: Answer
    notes: list[str] = Field([], description="What limits this answer.")


def _number(name: str, text: str, least: float, most: float) -> Any:
    return typer.Option(name, min=least, max=most, help=text)


def command(
    context: typer.Context,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=65536, help="Workers of the gang, one on each node.")],
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=1, max=64)] = 8,
    days: Annotated[float, _number("--days", "For how long it trains.", 0.01, 3650)] = 54.0,
    rates: Annotated[
        str,
        typer.Option(
            "--rates",
            metavar="NAME",
            help="How often nodes fail and of what: llama3, ft-hsdp, or fleet (measured here).",
        ),
    ] = "llama3",
    mttf_days: Annotated[
        float | None,
        _number("--mttf-days", "Mean time between two failures of one node, in place of --rates'.", 0.01, 1e6),
    ] = None,
    cause: Annotated[
        list[str] | None,
        typer.Option(
            "--cause",
            metavar="NAME=SHARE:HOW",
            help="A cause in place of --rates'; HOW is Crash, Hang, Silent or evidence like Xid79. May be repeated.",
        ),
    ] = None,
    spares: Annotated[int, typer.Option("--spares", min=0, max=65536, help="Free nodes that nobody else takes.")] = 0,
    repair_hours: Annotated[
        float, _number("--repair-hours", "Mean time until a node that was left can be used again.", 0.01, 8760)
    ] = 2.2,
    checkpoint_minutes: Annotated[
        float, _number("--checkpoint-minutes", "Training between two saves.", 0.01, 14400)
    ] = 10.0,
    save_seconds: Annotated[
        float, _number("--save-seconds", "For so long a save stops the training.", 0, 86400)
    ] = 10.0,
    durable_seconds: Annotated[
        float, _number("--durable-seconds", "After that, until the checkpoint is complete on storage.", 0, 86400)
    ] = 0.0,
    step_seconds: Annotated[float, _number("--step-seconds", "A step; a fence has room for three.", 0.01, 3600)] = 4.0,
    hang_seconds: Annotated[
        float,
        _number("--hang-seconds", "A hang ends after this: progress.stepTimeoutSeconds, else NCCL's own.", 1, 86400),
    ] = 600.0,
    pod_seconds: Annotated[
        float, _number("--pod-seconds", "From a node for a new pod to its launcher, image included.", 0, 86400)
    ] = 120.0,
    start_seconds: Annotated[
        float | None,
        _number(
            "--start-seconds",
            "From the start of the ranks to their first step, loading included. Default: as published for this size.",
            0,
            86400,
        ),
    ] = None,
    lives: Annotated[int, typer.Option("--lives", min=20, max=100000, help="So many times it is lived through.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same answer.")] = 1,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """What a gang would get done at given failure rates: ETTR, what is lost to what, and what would change it."""
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    try:
        causes = causes_from(cause or [])
    except RatesError as error:
        raise typer.BadParameter(str(error), param_hint="--cause") from error
    if rates not in (*PUBLISHED, FLEET):
        known = ", ".join((*PUBLISHED, FLEET))
        raise typer.BadParameter(f"there are no rates {rates!r}: choose one of {known}", param_hint="--rates")

    def found(base: Rates) -> WhatIf:
        known = base
        if causes:
            source = f"causes as given; how often: {known.source}"
            known = known.model_copy(update={"name": "own", "causes": causes, "source": source})
        if mttf_days is not None:
            source = "as given" if causes else f"as given; causes: {known.source}"
            known = known.model_copy(update={"name": "own", "mttf_days": mttf_days, "source": source})
        plan = Plan(
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            days=days,
            mttf_days=known.mttf_days,
            spares=spares,
            repair_seconds=repair_hours * 3600,
            checkpoint_seconds=checkpoint_minutes * 60,
            save_seconds=save_seconds,
            durable_seconds=durable_seconds,
            step_seconds=step_seconds,
            hang_seconds=hang_seconds,
            pod_seconds=pod_seconds,
            start_seconds=usual_start_seconds(nodes * gpus_per_node) if start_seconds is None else start_seconds,
        )
        return what_if(plan, known, lives, seed)

    if rates == FLEET:
        run(options, lambda session: _of_fleet(session, found), render)
        return
    try:
        it = found(of_nodes(PUBLISHED[rates], gpus_per_node))
    except CliError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    tell(options, it, render)


def what_if(plan: Plan, rates: Rates, lives: int, seed: int) -> WhatIf:
    """Answer one question.

    Raises:
        CliError: it would take too long.
    """
    failures = plan.seconds / plan.gang_mttf_seconds * lives
    if failures > MAX_FAILURES:
        few = max(20, math.floor(lives * MAX_FAILURES / failures))
        raise CliError(
            f"{failures:,.0f} failures would have to be lived through, at most {MAX_FAILURES:,} are: "
            f"give --lives {few}, fewer --days, or a longer --mttf-days"
        )

    found = answer(plan, rates, dice(seed), lives)
    return WhatIf(plan=plan, rates=rates, seed=seed, answer=found, notes=_notes(plan))


def dice(seed: int | str) -> Dice:
    """Other chance for each life, the same each time."""
    return lambda life: random.Random(f"{seed}/{life}").random


async def _of_fleet(session: Session, found: Callable[[Rates], WhatIf]) -> WhatIf:
    from muster.cli.observe import records

    jobs, gangs = await records(session.client)
    try:
        rates = measured(jobs, gangs, timedelta(days=90), datetime.now(UTC))
    except RatesError as error:
        raise CliError(str(error)) from error
    return found(rates)


def _notes(plan: Plan) -> list[str]:
    notes = []
    largest = _most(TrainingJobSpec.model_fields["nodes"])
    if plan.nodes > largest:
        notes.append(f"a TrainingJob has at most {largest:,} nodes")
    return notes


def _most(field: FieldInfo) -> int:
    """The limit of a field of the API."""
    return next(int(item.le) for item in field.metadata if hasattr(item, "le"))


def render(console: Console, it: WhatIf) -> None:
    """Print the answer on one screen."""
    plan, found = it.plan, it.answer
    console.print(
        Text(
            f"{plan.nodes:,} nodes, {plan.gpus:,} GPUs, {plan.days:g} days: a failure every "
            f"{_time(plan.gang_mttf_seconds)}, one of a node every {plan.mttf_days:,.0f} days",
            style="bold",
        )
    )
    console.print()
    ettr, lost = found.ettr, found.gpu_hours - found.useful_gpu_hours
    rows = [
        ("ETTR", f"{_percent(ettr.mean)} ({_between(ettr)}); 9 runs in 10: {_between_lives(found)}"),
        ("Closed form", f"{_percent(found.closed_form_ettr)}, were a node always free and nothing struck a recovery"),
        ("Lost", f"{lost:,.0f} of {found.gpu_hours:,.0f} GPU-hours; {found.saving_gpu_hours:,.0f} of them by saving"),
        (
            "Recovery",
            f"{_time(found.recovery_seconds)} on average with a free node, {_time(plan.start_seconds)} of it to start",
        ),
        ("Rates", it.rates.source),
    ]
    show.facts(console, rows)
    console.print()
    heads = ("FAILURES", "GPU-HOURS", "REDONE", "NOTICING", "NO NODE", "NEW POD", "STARTING")
    table = show.table("LOST TO", *heads, numbers=heads)
    for row in found.causes:
        hours = (row.gpu_hours, row.redone, row.noticing, row.waiting, row.replacing, row.starting)
        show.add(table, row.name, f"{row.failures:,.1f}", *(f"{value:,.0f}" for value in hours))
    console.print(table)
    show.headline(console, "WHAT WOULD CHANGE IT")
    for option in found.spares:
        word = "more" if option.spares > plan.spares else "fewer"
        console.print(Text(f"-  one spare {word} ({option.spares}): {_gain(option, found)}"))
    for line in _intervals(found, plan):
        console.print(Text(f"-  {line}"))
    for note in it.notes:
        console.print(Text(f"note: {note}", style="dim"))
    console.print(Text(f"Means of {found.lives} lives, with their 95 % intervals. {_MODEL}", style="dim"))


def _intervals(found: Answer, plan: Plan) -> list[str]:
    best = next(o for o in found.checkpoints if o.checkpoint_seconds == found.best_checkpoint_seconds)
    says = f"Young/Daly says {_time(found.young_daly_seconds)}"
    if best.checkpoint_seconds == plan.checkpoint_seconds:
        head = f"checkpoints every {_time(best.checkpoint_seconds)} are the best of those tried ({says})"
    else:
        head = f"checkpoints every {_time(best.checkpoint_seconds)}, the best of those tried ({says}): {_gain(best, found)}"
    others = [
        f"{_time(option.checkpoint_seconds)} {_points(option.gain.mean)}"
        for option in found.checkpoints
        if option.checkpoint_seconds not in (best.checkpoint_seconds, plan.checkpoint_seconds)
    ]
    return [head, f"every {', '.join(others)}"] if others else [head]


def _gain(option: Option, found: Answer) -> str:
    gain = option.gain
    if option.gain.low == option.gain.high == 0.0:
        return "no change"
    hours = gain.mean * found.gpu_hours
    return f"{_points(gain.mean)} points ({_points(gain.low)} to {_points(gain.high)}), {hours:+,.0f} GPU-hours"


def _points(share: float) -> str:
    """A difference of ETTRs, in percentage points."""
    return f"{100 * share:+.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _between(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.2f} to {100 * estimate.high:.2f}"


def _between_lives(found: Answer) -> str:
    return f"{100 * found.ettr.life_low:.1f} to {100 * found.ettr.life_high:.1f}"


def _time(seconds: float) -> str:
    return show.duration(round(seconds))
