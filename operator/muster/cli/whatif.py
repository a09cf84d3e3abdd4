"""`kubectl muster what-if`: forecast a gang's progress at given failure rates, and what another choice would change.

It needs no cluster, but for `--rates fleet`, which reads the failures in the records of jobs.
"""

import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.api.trainingjob import Recovery, TrainingJobSpec
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    print_finding,
    run,
)
from muster.whatif.answer import Answer, Estimate, Option, answer, others_than
from muster.whatif.failure_model import Dice
from muster.whatif.measured import measured
from muster.whatif.plan import Plan, usual_start_seconds
from muster.whatif.rates import PUBLISHED, Rates, RatesError, causes_from, of_nodes

FLEET = "fleet"
# A longer answer is refused: some fifteen minutes of a core.
MAX_FAILURES = 20_000_000
MIN_LIVES, LEAST_DAYS = 20, 0.01
# Time of a core for one failure in one of the compared plans (make bench-what-if); for a forecast.
FAILURE_SECONDS = 5e-6
# If an answer takes longer than the first, its duration is printed, and the progress each time that the second has
# passed.
FORECAST_SECONDS, TOLD_EACH_SECONDS = 20.0, 30.0
_MODEL = (
    "Launchers are not played one by one: what recovery takes is taken from the shipped time-outs. A spare is a free "
    "node that no other job takes; Muster keeps nothing running on it. Where the defaults come from: docs/what-if.md"
)


class WhatIf(ApiModel):
    """The question and its answer."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["WhatIf"] = "WhatIf"
    plan: Plan
    rates: Rates
    seed: int
    answer: Answer
    notes: list[str] = Field([], description="What limits this answer.")


def _number(name: str, text: str, least: float, most: float) -> Any:
    def number(value: str | float) -> float:
        try:
            parsed = float(value)
        except ValueError:
            parsed = math.nan
        if not math.isfinite(parsed):
            raise typer.BadParameter(f"{value!r} is not a number: give one from {least:g} to {most:g}", param_hint=name)
        if not least <= parsed <= most:
            raise typer.BadParameter(f"give a number from {least:g} to {most:g}, not {value}", param_hint=name)
        return parsed

    return typer.Option(name, parser=number, metavar="NUMBER", help=f"{text}  [{least:g}<=x<={most:g}]")


def command(
    context: typer.Context,
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=1, max=65536, help="Workers of the gang, one on each node.")
    ],
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", metavar="N", min=1, max=64)] = 8,
    days: Annotated[float, _number("--days", "Length of the training.", LEAST_DAYS, 3650)] = 54.0,
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
            metavar="NAME=SHARE:SYMPTOM",
            help="A cause in place of --rates'; SYMPTOM is Crash, Hang, Silent or evidence like Xid79. Repeatable.",
        ),
    ] = None,
    spares: Annotated[
        int, typer.Option("--spares", metavar="N", min=0, max=65536, help="Free nodes that no other job takes.")
    ] = 0,
    repair_hours: Annotated[
        float, _number("--repair-hours", "Mean time until a node that was left can be used again.", 0.01, 8760)
    ] = 2.2,
    checkpoint_minutes: Annotated[
        float, _number("--checkpoint-minutes", "Training time between two saves.", 0.01, 14400)
    ] = 10.0,
    save_seconds: Annotated[
        float, _number("--save-seconds", "Time for which a save stops the training.", 0, 86400)
    ] = 10.0,
    durable_seconds: Annotated[
        float, _number("--durable-seconds", "Time from then until the checkpoint is complete.", 0, 86400)
    ] = 0.0,
    step_seconds: Annotated[float, _number("--step-seconds", "Time of a step.", 0.01, 3600)] = 4.0,
    hang_seconds: Annotated[
        float,
        _number("--hang-seconds", "A hang ends after this: progress.stepTimeoutSeconds, else NCCL's own.", 1, 86400),
    ] = 600.0,
    pod_seconds: Annotated[
        float, _number("--pod-seconds", "From the binding of a new pod to its launcher, with the image.", 0, 86400)
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
    lives: Annotated[
        int, typer.Option("--lives", metavar="N", min=MIN_LIVES, max=100000, help="Number of simulated lives.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same answer.")] = 1,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Estimate what a gang gets done at given failure rates.

    It shows the ETTR, what is lost to which cause, and what would change it.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    try:
        causes = causes_from(cause or [])
    except RatesError as error:
        raise typer.BadParameter(str(error), param_hint="--cause") from error
    if rates not in (*PUBLISHED, FLEET):
        names = ", ".join((*PUBLISHED, FLEET))
        raise typer.BadParameter(f"there are no rates {rates!r}: choose one of {names}", param_hint="--rates")

    if checkpoint_minutes * 60 < step_seconds:
        raise typer.BadParameter(
            f"{checkpoint_minutes:g} min are less than a step takes (--step-seconds {step_seconds:g}), and "
            f"checkpoints are saved between steps: give {_minutes(step_seconds)} or more, or shorter --step-seconds",
            param_hint="--checkpoint-minutes",
        )

    def answer_at(base: Rates) -> WhatIf:
        chosen_rates = base
        if causes:
            source = f"causes as given; how often: {chosen_rates.source}"
            chosen_rates = chosen_rates.model_copy(update={"name": "own", "causes": causes, "source": source})
        if mttf_days is not None:
            source = "as given" if causes else f"as given; causes: {chosen_rates.source}"
            chosen_rates = chosen_rates.model_copy(update={"name": "own", "mttf_days": mttf_days, "source": source})
        plan = Plan(
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            days=days,
            mttf_days=chosen_rates.mttf_days,
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
        return what_if(plan, chosen_rates, lives, seed)

    if rates == FLEET:
        run(options, lambda session: _of_fleet(session, answer_at), render)
        return
    try:
        it = answer_at(of_nodes(PUBLISHED[rates], gpus_per_node))
    except CliError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    print_finding(options, it, render)


def what_if(plan: Plan, rates: Rates, lives: int, seed: int) -> WhatIf:
    """Answer one question.

    Raises:
        CliError: it would take too long.
    """
    of_a_life = plan.seconds / plan.gang_mttf_seconds
    if of_a_life * lives > MAX_FAILURES:
        raise CliError(
            f"{of_a_life * lives:,.0f} failures would have to be simulated, and the limit is {MAX_FAILURES:,}: "
            f"{_fewer(plan, of_a_life)}"
        )

    waiting = SearchProgress(lives)
    waiting.begin(of_a_life * lives, 1 + len(others_than(plan)))
    estimate = answer(plan, rates, dice(seed), lives, waiting.lived)
    return WhatIf(plan=plan, rates=rates, seed=seed, answer=estimate, notes=_notes(plan, estimate))


def _fewer(plan: Plan, of_a_life: float) -> str:
    """Say which option would make the failures few enough."""
    lives = math.floor(MAX_FAILURES / of_a_life)
    if lives >= MIN_LIVES:
        return f"give --lives {lives}, fewer --days, or a longer --mttf-days"
    over = MIN_LIVES * of_a_life / MAX_FAILURES
    most = [
        f"--days {_shortened(plan.days / over)} or less" if plan.days / over >= LEAST_DAYS else "",
        f"--nodes {math.floor(plan.nodes / over)} or less" if plan.nodes / over >= 1 else "",
        f"--mttf-days {_shortened(plan.mttf_days * over, math.ceil)} or more",
    ]
    return f"with --lives {MIN_LIVES}, the fewest, give one of {', '.join(part for part in most if part)}"


def _shortened(value: float, rounded: Callable[[float], int] = math.floor) -> str:
    """Round a number to three digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{rounded(value / unit) * unit:.6g}"


@dataclass(slots=True)
class SearchProgress:
    """Reports on stderr that an answer comes, and when.

    Attributes:
        lives: number of simulated lives.
        clock: in seconds.
        begun: when the first began.
        reported_at: time of the last report.
    """

    lives: int
    clock: Callable[[], float] = time.monotonic
    begun: float = 0.0
    reported_at: float = 0.0

    def begin(self, failures: float, plans: int) -> None:
        """Print how long it will take, if that is long."""
        self.begun = self.reported_at = self.clock()
        seconds = failures * plans * FAILURE_SECONDS
        if seconds >= FORECAST_SECONDS:
            self._say(
                f"{failures:,.0f} failures in {self.lives:,} lives under {plans} plans: about {_time(seconds)} of a "
                "core; fewer --lives are quicker"
            )

    def lived(self, done: int) -> None:
        """Count one more finished life."""
        now = self.clock()
        if done < self.lives and now - self.reported_at >= TOLD_EACH_SECONDS:
            self.reported_at = now
            left = (now - self.begun) / done * (self.lives - done)
            self._say(f"{done:,} of {self.lives:,} lives, about {_time(left)} more")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def dice(seed: int | str) -> Dice:
    """Return random numbers that differ for each life, and are the same for each seed."""
    return lambda life: random.Random(f"{seed}/{life}").random


async def _of_fleet(session: Session, answer_at: Callable[[Rates], WhatIf]) -> WhatIf:
    from muster.cli.observe import records

    jobs, gangs = await records(session.client)
    try:
        rates = measured(jobs, gangs, timedelta(days=90), session.now())
    except RatesError as error:
        raise CliError(str(error)) from error
    return answer_at(rates)


def _notes(plan: Plan, estimate: Answer) -> list[str]:
    notes = []
    largest = _most(TrainingJobSpec.model_fields["nodes"])
    if plan.nodes > largest:
        notes.append(f"a TrainingJob has at most {largest:,} nodes")
    if plan.interval_seconds < plan.save_seconds:
        notes.append(
            f"--checkpoint-minutes {plan.checkpoint_seconds / 60:g} is less than --save-seconds "
            f"{plan.save_seconds:g}: more time goes into saving than into training; give --checkpoint-minutes "
            f"{_minutes(plan.save_seconds)} or more (Young/Daly says {_time(estimate.young_daly_seconds)}), or a "
            "shorter --save-seconds"
        )
    if plan.checkpoint_seconds < plan.durable_seconds:
        notes.append(
            f"--checkpoint-minutes {plan.checkpoint_seconds / 60:g} is less than --durable-seconds "
            f"{plan.durable_seconds:g}: a save waits until the one before is complete, so that one comes every "
            f"{_time(plan.durable_seconds)}; give --checkpoint-minutes {_minutes(plan.durable_seconds)} or more, or "
            "a shorter --durable-seconds"
        )
    defaults, lives_at_limit = Recovery(), estimate.budget_exhausted
    for lives, name, budget, failures_text in (
        (
            lives_at_limit.application,
            "applicationRestartsPerDay",
            defaults.application_restarts_per_day,
            "failures of its own",
        ),
        (lives_at_limit.hardware, "hardwareRestartsPerDay", defaults.hardware_restarts_per_day, "failures of nodes"),
    ):
        if lives:
            notes.append(
                f"in {lives:,} of {estimate.lives:,} lives the default spec.recovery.{name}, {budget}, would have "
                f"ended the job, which goes on here: more {failures_text} within a day, with no complete checkpoint "
                "beyond the failing step; save more often, or set it higher"
            )
    return notes


def _minutes(seconds: float) -> str:
    """Format minutes for an option, rounded up."""
    return f"{math.ceil(seconds / 0.6) / 100:g}"


def _days(number: str) -> str:
    return f"{number} day{'' if number == '1' else 's'}"


def _most(field: FieldInfo) -> int:
    """Return the limit of a field of the API."""
    return next(int(item.le) for item in field.metadata if hasattr(item, "le"))


def render(console: Console, it: WhatIf) -> None:
    """Print the answer on one screen."""
    plan, estimate = it.plan, it.answer
    console.print(
        Text(
            f"{plan.nodes:,} nodes, {plan.gpus:,} GPUs, {_days(f'{plan.days:g}')}: a failure every "
            f"{_time(plan.gang_mttf_seconds)}, one of a node every {_days(f'{plan.mttf_days:,.0f}')}",
            style="bold",
        )
    )
    console.print()
    ettr, lost = estimate.ettr, estimate.gpu_hours - estimate.useful_gpu_hours
    rows = [
        ("ETTR", f"{_percent(ettr.mean)} ({_between(ettr)}); 9 runs in 10: {_between_lives(estimate)}"),
        (
            "Closed form",
            f"{_percent(estimate.closed_form_ettr)}, were a node always free and nothing struck a recovery",
        ),
        (
            "Lost",
            f"{lost:,.0f} of {estimate.gpu_hours:,.0f} GPU-hours; {estimate.saving_gpu_hours:,.0f} of them by saving",
        ),
        (
            "Recovery",
            f"{_time(estimate.recovery_seconds)} on average with a free node, {_time(plan.start_seconds)} of it to "
            "start",
        ),
        ("Rates", it.rates.source),
    ]
    show.facts(console, rows)
    console.print()
    heads = ("FAILURES", "GPU-HOURS", "REDONE", "NOTICING", "NO NODE", "NEW POD", "STARTING")
    table = show.table("LOST TO", *heads, numbers=heads)
    for row in estimate.causes:
        hours = (
            row.gpu_hours,
            row.lost_work_gpu_hours,
            row.detection_gpu_hours,
            row.queue_gpu_hours,
            row.pod_gpu_hours,
            row.start_gpu_hours,
        )
        show.add(table, row.name, f"{row.failures:,.1f}", *(f"{value:,.0f}" for value in hours))
    console.print(table)
    show.headline(console, "WHAT WOULD CHANGE IT")
    for option in estimate.spares:
        word = "more" if option.spares > plan.spares else "fewer"
        console.print(Text(f"-  one spare {word} ({option.spares}): {_gain(option, estimate)}"))
    for line in _intervals(estimate, plan):
        console.print(Text(f"-  {line}"))
    for note in it.notes:
        console.print(Text(f"note: {note}", style="dim"))
    console.print(Text(f"Means of {estimate.lives} lives, with their 95 % intervals. {_MODEL}", style="dim"))


def _intervals(estimate: Answer, plan: Plan) -> list[str]:
    best = next(o for o in estimate.checkpoints if o.checkpoint_seconds == estimate.best_checkpoint_seconds)
    says = f"Young/Daly says {_time(estimate.young_daly_seconds)}"
    if best.checkpoint_seconds == plan.checkpoint_seconds:
        head = f"checkpoints every {_time(best.checkpoint_seconds)} are the best of those tried ({says})"
    else:
        head = (
            f"checkpoints every {_time(best.checkpoint_seconds)}, the best of those tried ({says}): "
            f"{_gain(best, estimate)}"
        )
    others = [
        f"{_time(option.checkpoint_seconds)} {_points(option.gain.mean)}"
        for option in estimate.checkpoints
        if option.checkpoint_seconds not in (best.checkpoint_seconds, plan.checkpoint_seconds)
    ]
    return [head, f"every {', '.join(others)}"] if others else [head]


def _gain(option: Option, estimate: Answer) -> str:
    gain = option.gain
    if option.gain.low == option.gain.high == 0.0:
        return "no change"
    hours = gain.mean * estimate.gpu_hours
    return f"{_points(gain.mean)} points ({_points(gain.low)} to {_points(gain.high)}), {hours:+,.0f} GPU-hours"


def _points(share: float) -> str:
    """Format a difference of ETTRs, in percentage points."""
    return f"{100 * share:+.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _between(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.2f} to {100 * estimate.high:.2f}"


def _between_lives(estimate: Answer) -> str:
    return f"{100 * estimate.ettr.life_low:.1f} to {100 * estimate.ettr.life_high:.1f}"


def _time(seconds: float) -> str:
    return show.duration(round(seconds))
