"""Builds the answer from many simulated lives of a gang: their means, and what another choice would change. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from pydantic import Field

from muster.api.base import ApiModel
from muster.whatif.failure_model import Blow, Dice, blows
from muster.whatif.formula import expected_ettr, recovery_seconds, young_daly_seconds
from muster.whatif.life import LifeAccount, Loss, live
from muster.whatif.plan import Plan
from muster.whatif.rates import Rates
from muster.whatif.recovery_model import Way, way_of

HOUR_SECONDS = 3600.0
DEVIATIONS_95 = 1.96
# Intervals that people choose, in seconds; those near the best one by the formula are tried.
_INTERVALS = (15, 30, 60, 120, 180, 300, 420, 600, 900, 1200, 1800, 2700, 3600, 7200, 10800, 14400, 21600, 28800, 43200)
_NEAR = 5.0


class Estimate(ApiModel):
    """A mean over many simulated lives, with its confidence interval."""

    mean: float
    low: float = Field(description="The true mean is not below this, nor above `high`, with 95 % confidence.")
    high: float


class Spread(Estimate):
    """A mean over many simulated lives, and how much single lives differ."""

    life_low: float = Field(description="One life in twenty is below this.")
    life_high: float = Field(description="One life in twenty is above this.")


class CauseLost(ApiModel):
    """The mean cost of one cause per life, in GPU-hours; `gpu_hours` is the sum of the parts."""

    name: str
    symptom: str
    failures: float
    gpu_hours: float
    lost_work_gpu_hours: float = Field(description="Training that no complete checkpoint held.")
    detection_gpu_hours: float = Field(
        description="Until it was seen, decided on, and all ranks were proved to have ended."
    )
    queue_gpu_hours: float = Field(description="Until there was a node.")
    pod_gpu_hours: float = Field(description="Until the new pod was there.")
    start_gpu_hours: float = Field(description="Until the first step.")


class Option(ApiModel):
    """The plan with one thing changed, struck by the same failures."""

    spares: int
    checkpoint_seconds: float
    ettr: float
    gain: Estimate = Field(description="ETTR beyond that of the plan.")


class BudgetExhausted(ApiModel):
    """The number of lives in which the default restart budgets would have ended the job."""

    application: int = Field(description="Failures of the job's own making: recovery.applicationRestartsPerDay.")
    hardware: int = Field(description="Failures of nodes: recovery.hardwareRestartsPerDay.")


class Answer(ApiModel):
    """The result of all simulated lives."""

    lives: int
    ettr: Spread
    closed_form_ettr: float = Field(description="With a free node for each lost one, and no failure during a recovery.")
    gang_mttf_hours: float
    recovery_seconds: float = Field(description="From a failure to the next step, with a free node for each lost one.")
    gpu_hours: float = Field(description="Of a life; = useful + saving + what the causes cost.")
    useful_gpu_hours: float
    saving_gpu_hours: float = Field(description="Training stood still for a save.")
    causes: list[CauseLost] = Field(description="Most expensive first.")
    spares: list[Option] = Field(description="One fewer and one more.")
    checkpoints: list[Option] = Field(description="Other intervals, the plan's included, shortest first.")
    best_checkpoint_seconds: float = Field(description="The best of `checkpoints`.")
    young_daly_seconds: float = Field(description="The best interval by the formula.")
    budget_exhausted: BudgetExhausted = Field(
        description="Lives in which a default budget would have ended the job; here it goes on."
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """One plan, simulated through all lives.

    Attributes:
        ettrs: ETTR of each life so far.
    """

    plan: Plan
    ways: Sequence[Way]
    ettrs: list[float]

    def live(self, storm: Sequence[Blow]) -> LifeAccount:
        account = live(self.plan, self.ways, storm)
        self.ettrs.append(account.useful / self.plan.seconds)
        return account


def answer(plan: Plan, rates: Rates, dice: Dice, lives: int, lived: Callable[[int], None] | None = None) -> Answer:
    """Simulate many lives of a gang, and return their means and the effect of other choices.

    Args:
        plan: the gang.
        rates: the causes of failures and their shares; the plan has their frequency.
        dice: returns the random numbers of each life.
        lives: number of lives; at least two.
        lived: called after each life with the number of lives done.
    """
    shares = [cause.share for cause in rates.causes]

    def trial(other: Plan) -> _Trial:
        return _Trial(other, [way_of(cause.symptom, other) for cause in rates.causes], [])

    own, others = trial(plan), [trial(other) for other in others_than(plan)]
    accounts: list[LifeAccount] = []
    for number in range(lives):
        storm = blows(dice(number), plan.nodes, plan.gang_mttf_seconds, plan.seconds, shares)
        accounts.append(own.live(storm))
        for other in others:
            other.live(storm)
        if lived:
            lived(number + 1)
    options = [_option(trial, own) for trial in (own, *others)]
    intervals = sorted(
        (option for option in options if option.spares == plan.spares), key=lambda option: option.checkpoint_seconds
    )
    recovery = recovery_seconds(plan, own.ways, shares)
    hours = plan.gpus / HOUR_SECONDS
    return Answer(
        lives=lives,
        ettr=_spread(own.ettrs),
        closed_form_ettr=expected_ettr(plan, recovery),
        gang_mttf_hours=plan.gang_mttf_seconds / HOUR_SECONDS,
        recovery_seconds=recovery,
        gpu_hours=hours * plan.seconds,
        useful_gpu_hours=hours * fmean(account.useful for account in accounts),
        saving_gpu_hours=hours * fmean(account.saving for account in accounts),
        causes=_causes(rates, accounts, hours),
        spares=[option for option in options if option.spares != plan.spares],
        checkpoints=intervals,
        best_checkpoint_seconds=max(intervals, key=lambda option: option.ettr).checkpoint_seconds,
        young_daly_seconds=young_daly_seconds(plan),
        budget_exhausted=BudgetExhausted(
            application=sum(account.own_budget_exhausted for account in accounts),
            hardware=sum(account.nodes_budget_exhausted for account in accounts),
        ),
    )


def others_than(plan: Plan) -> list[Plan]:
    """Return the plans to compare with: one spare fewer, one spare more, and other intervals between checkpoints."""
    spares: list[dict[str, float]] = [{"spares": n} for n in (plan.spares - 1, plan.spares + 1) if n >= 0]
    intervals: list[dict[str, float]] = [
        {"checkpoint_seconds": s} for s in _intervals(plan) if s != plan.checkpoint_seconds
    ]
    return [plan.model_copy(update=change) for change in (*spares, *intervals)]


def _option(trial: _Trial, own: _Trial) -> Option:
    gain = _estimate([after - was for after, was in zip(trial.ettrs, own.ettrs, strict=True)])
    plan = trial.plan
    return Option(spares=plan.spares, checkpoint_seconds=plan.checkpoint_seconds, ettr=fmean(trial.ettrs), gain=gain)


def _intervals(plan: Plan) -> list[float]:
    best = young_daly_seconds(plan)
    least = max(plan.step_seconds, plan.durable_seconds, plan.save_seconds)
    near = [float(s) for s in _INTERVALS if max(least, best / _NEAR) <= s <= best * _NEAR]
    return sorted({*near, best, plan.checkpoint_seconds})


def _causes(rates: Rates, accounts: Sequence[LifeAccount], hours: float) -> list[CauseLost]:
    causes = []
    for place, cause in enumerate(rates.causes):
        losses = [account.losses[place] for account in accounts]

        def mean(of: Callable[[Loss], float], losses: Iterable[Loss] = losses) -> float:
            return hours * fmean(map(of, losses))

        lost = CauseLost(
            name=cause.name,
            symptom=cause.symptom,
            failures=fmean(loss.failures for loss in losses),
            gpu_hours=mean(lambda loss: loss.seconds),
            lost_work_gpu_hours=mean(lambda loss: loss.redone),
            detection_gpu_hours=mean(lambda loss: loss.noticing),
            queue_gpu_hours=mean(lambda loss: loss.waiting),
            pod_gpu_hours=mean(lambda loss: loss.replacing),
            start_gpu_hours=mean(lambda loss: loss.starting),
        )
        causes.append(lost)
    return sorted(causes, key=lambda lost: -lost.gpu_hours)


def _estimate(values: Sequence[float]) -> Estimate:
    mean, error = fmean(values), DEVIATIONS_95 * stdev(values) / math.sqrt(len(values))
    return Estimate(mean=mean, low=mean - error, high=mean + error)


def _spread(values: Sequence[float]) -> Spread:
    whole, ordered = _estimate(values), sorted(values)
    last = len(ordered) - 1
    return Spread(
        mean=whole.mean,
        low=max(0.0, whole.low),
        high=min(1.0, whole.high),
        life_low=ordered[round(0.05 * last)],
        life_high=ordered[round(0.95 * last)],
    )
