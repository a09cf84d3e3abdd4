"""What became of all GPU-hours that a fleet has: one sum over what jobs held and what no job held. Pure.

Two independent counts meet here. The accounts of jobs say what came of the GPU-hours that they held. The hours of the
fleet say how many GPU-hours jobs held, and what the others were there for. GPU-hours that jobs held and no account
explains are a part of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import Field

from muster.answers.words import moment
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
MAY_BE_PROGRESS = (NOT_SAVED_YET, UNKNOWN, NO_ACCOUNT, GpuState.UNSEEN)
"""What of these became progress nobody knows, or nobody knows yet."""
# The leader writes the hours every five minutes, and they are kept by hours.
COUNTED = timedelta(hours=1)
MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class HeldTime:
    """What one job held in the time that is asked for.

    Attributes:
        gpu_seconds: by bucket.
        unsaved: GPU-seconds in steps that no complete checkpoint holds yet.
        progress_unknown: nobody knows what the job has kept.
        price: of one GPU-hour; None: not known.
    """

    gpu_seconds: Mapping[str, int]
    unsaved: float
    progress_unknown: bool
    price: float | None


class SpendPart(ApiModel):
    """GPU-hours that became the same."""

    part: str
    gpu_hours: float
    share: float = Field(description="Of all GPU-hours of the fleet, without those of other pods.")
    cost: float | None = Field(None, description="Absent: the price of some of them is not known.")


class FleetSpend(ApiModel):
    """What became of all GPU-hours of the fleet."""

    why: str = Field("", description="Why it is not known; empty: it is.")
    gpu_hours: float = Field(0.0, description="The sum of all parts; what other pods held is not in it.")
    cost: float | None = Field(None, description="Absent: the price of some of them is not known.")
    progress: float | None = Field(None, description="Share of the GPU-hours that became progress, at least.")
    progress_at_most: float | None = Field(
        None, description="The same, if all that nobody knows, and all that is not saved yet, became progress."
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
    """What became of the GPU-hours between two moments.

    Args:
        held: of each job what it held between the two.
        hours: what the accelerators of the fleet did; None: nobody knows.
        begin: None: there was no job before.
        idle_price: of a GPU-hour that no job held, whose model nobody has counted; None: not known.
    """
    why = _why_unknown(hours, begin, end)
    if why or hours is None:
        return FleetSpend(why=why)
    states = {str(state): amount / MILLISECONDS for state, amount in hours_between(hours, begin, end).items()}
    others = states.pop(GpuState.OTHER_PODS, 0.0)
    by_jobs = states.pop(GpuState.HELD, 0.0)
    amounts, costs = _of_jobs(held)
    by_accounts = sum(amounts.values())
    states[NO_ACCOUNT] = max(by_jobs - by_accounts, 0.0)
    # Accounts go on to the end, and the hours of the fleet are written every few minutes.
    lag = max((end - max(hours.until, begin or hours.until)).total_seconds(), 0.0)
    not_counted = max(hours.gpus * lag - max(by_accounts - by_jobs, 0.0), 0.0)
    states[GpuState.UNSEEN] = states.get(GpuState.UNSEEN, 0.0) + not_counted
    for name in (NO_ACCOUNT, *GpuState):
        if amount := states.get(name, 0.0):
            amounts[name] = amount
            costs[name] = None if idle_price is None else amount * idle_price / HOUR
    total = sum(amounts.values())
    if not total:
        return FleetSpend(why="in this time the fleet had no accelerators, and no job held any")
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
    """Why the two counts do not cover the same time; "" where they do."""
    first = None if hours is None else counted_from(hours)
    if hours is None or first is None:
        return "nobody has counted yet what the fleet's accelerators did, or you may not read it"
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
    """GPU-seconds by part, and what they have cost; what has none is left out."""
    amounts = dict.fromkeys((PROGRESS, NOT_SAVED_YET, NO_PROGRESS, UNKNOWN), 0.0)
    costs: dict[str, float | None] = dict.fromkeys(amounts, 0.0)
    for job in held:
        for name, amount in _parts_of_job(job).items():
            amounts[name] += amount
            known = costs[name]
            costs[name] = (
                known
                if not amount
                else None
                if known is None or job.price is None
                else known + amount * job.price / HOUR
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
    known = [*amounts]
    return None if None in known else sum(each for each in known if each is not None)
