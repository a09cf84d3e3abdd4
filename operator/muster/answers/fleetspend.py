"""Split all GPU-hours of a fleet by use: one sum over what jobs held and what no job held. Pure.

It joins two independent counts. The accounts of jobs say how the GPU-hours that they held were used. The hours of the
fleet say how many GPU-hours jobs held, and what the others were used for. GPU-hours that jobs held and no account
explains are a part of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import Field

from muster.answers.text_parts import moment
from muster.api.base import ApiModel
from muster.api.fleethours import FleetHours, GpuState
from muster.api.goodput import PRODUCTIVE, Bucket
from muster.goodput.failure_rate import HOUR
from muster.goodput.fleethours import counted_from, hours_between

PROGRESS = "progress"
NOT_SAVED_YET = "notSavedYet"
NO_PROGRESS = "noProgress"
UNKNOWN = "unknown"
NO_ACCOUNT = "noAccount"
MAY_BE_PROGRESS = (NOT_SAVED_YET, UNKNOWN, NO_ACCOUNT, GpuState.NOT_OBSERVED)
"""The share of progress in these parts is unknown, or not known yet."""
# The leader writes the hours every five minutes, and they are kept by hours.
COUNTED = timedelta(hours=1)
MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class HeldTime:
    """Time that one job held in the period.

    Attributes:
        gpu_seconds: by bucket.
        unsaved: GPU-seconds in steps that no complete checkpoint holds yet.
        progress_unknown: it is unknown what the job has kept.
        price: of one GPU-hour; None: not known.
    """

    gpu_seconds: Mapping[str, int]
    unsaved: float
    progress_unknown: bool
    price: float | None


class SpendPart(ApiModel):
    """GPU-hours of one use."""

    part: str
    gpu_hours: float
    share: float = Field(description="Of all GPU-hours of the fleet, without those of other pods.")
    cost: float | None = Field(None, description="Absent: the price of some of them is not known.")


class FleetSpend(ApiModel):
    """All GPU-hours of the fleet by use."""

    unknown_reason: str = Field("", description="Why the split is not known; empty: it is known.")
    gpu_hours: float = Field(0.0, description="The sum of all parts; what other pods held is not in it.")
    cost: float | None = Field(None, description="Absent: the price of some of them is not known.")
    progress: float | None = Field(None, description="Share of the GPU-hours that became progress, at least.")
    progress_at_most: float | None = Field(
        None, description="The same, if all unknown use, and all that is not saved yet, became progress."
    )
    other_pods_gpu_hours: float = Field(0.0, description="Held by pods that are not Muster's: in no part.")
    parts: list[SpendPart] = Field([], description="Those of jobs first.")


def fleet_spend(
    held: Sequence[HeldTime],
    hours: FleetHours | None,
    begin: datetime | None,
    end: datetime,
    idle_price: float | None,
) -> FleetSpend:
    """Split the GPU-hours between two moments by use.

    Args:
        held: what each job held between the two.
        hours: what the accelerators of the fleet did; None: not known.
        begin: None: there was no job before.
        end: the later moment.
        idle_price: of a GPU-hour that no job held, and whose model is not counted; None: not known.
    """
    why = _why_unknown(hours, begin, end)
    if why or hours is None:
        return FleetSpend(unknown_reason=why)
    states = {str(state): amount / MILLISECONDS for state, amount in hours_between(hours, begin, end).items()}
    others = states.pop(GpuState.OTHER_PODS, 0.0)
    by_jobs = states.pop(GpuState.HELD, 0.0)
    amounts, costs = _of_jobs(held)
    by_accounts = sum(amounts.values())
    states[NO_ACCOUNT] = max(by_jobs - by_accounts, 0.0)
    # Accounts continue to the end, and the hours of the fleet are written every few minutes.
    lag = max((end - max(hours.until, begin or hours.until)).total_seconds(), 0.0)
    not_counted = max(hours.gpus * lag - max(by_accounts - by_jobs, 0.0), 0.0)
    states[GpuState.NOT_OBSERVED] = states.get(GpuState.NOT_OBSERVED, 0.0) + not_counted
    for name in (NO_ACCOUNT, *GpuState):
        if amount := states.get(name, 0.0):
            amounts[name] = amount
            costs[name] = None if idle_price is None else amount * idle_price / HOUR
    total = sum(amounts.values())
    if not total:
        return FleetSpend(unknown_reason="in this time the fleet had no accelerators, and no job held any")
    progress = amounts.get(PROGRESS, 0.0)
    return FleetSpend(
        gpu_hours=total / HOUR,
        cost=_sum_if_known(costs.values()),
        progress=progress / total,
        progress_at_most=(progress + sum(amounts.get(name, 0.0) for name in MAY_BE_PROGRESS)) / total,
        other_pods_gpu_hours=others / HOUR,
        parts=[
            SpendPart(part=name, gpu_hours=amount / HOUR, share=amount / total, cost=costs[name])
            for name, amount in amounts.items()
        ],
    )


def _why_unknown(hours: FleetHours | None, begin: datetime | None, end: datetime) -> str:
    """Say why the two counts do not cover the same time; "" where they do."""
    first = None if hours is None else counted_from(hours)
    if hours is None or first is None:
        return "the fleet's accelerators were not counted yet, or you may not read the count"
    if begin is not None and begin < first >= end:
        return (
            f"the fleet's accelerators are counted from {moment(first)} on: ask again after that, with --since "
            f"{first:%Y-%m-%dT%H:%M}Z or later"
        )
    if begin is not None and begin < first:
        return (
            f"the fleet's accelerators are counted from {moment(first)} on: say --since {first:%Y-%m-%dT%H:%M}Z, or "
            "later"
        )
    if hours.until < end - COUNTED:
        return (
            f"the fleet's accelerators are counted until {moment(hours.until)}: say --until "
            f"{hours.until:%Y-%m-%dT%H:%M}Z"
        )
    return ""


def _of_jobs(held: Iterable[HeldTime]) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return GPU-seconds by part, and their cost; empty parts are left out."""
    amounts = dict.fromkeys((PROGRESS, NOT_SAVED_YET, NO_PROGRESS, UNKNOWN), 0.0)
    costs: dict[str, float | None] = dict.fromkeys(amounts, 0.0)
    for job in held:
        for name, amount in _parts_of_job(job).items():
            amounts[name] += amount
            cost_so_far = costs[name]
            costs[name] = (
                cost_so_far
                if not amount
                else None
                if cost_so_far is None or job.price is None
                else cost_so_far + amount * job.price / HOUR
            )
    return {name: amount for name, amount in amounts.items() if amount}, costs


def _parts_of_job(job: HeldTime) -> dict[str, float]:
    total = sum(job.gpu_seconds.values())
    if job.progress_unknown:
        return {UNKNOWN: total}
    in_steps = sum(job.gpu_seconds.get(bucket, 0) for bucket in PRODUCTIVE)
    unknown = job.gpu_seconds.get(Bucket.UNKNOWN, 0)
    return {
        PROGRESS: in_steps - job.unsaved,
        NOT_SAVED_YET: job.unsaved,
        NO_PROGRESS: total - in_steps - unknown,
        UNKNOWN: unknown,
    }


def _sum_if_known(amounts: Iterable[float | None]) -> float | None:
    all_amounts = [*amounts]
    return None if None in all_amounts else sum(amount for amount in all_amounts if amount is not None)
