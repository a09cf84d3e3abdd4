"""Build the report of the fleet: pure, from the accounts of ended and running jobs.

GPU-hours are weighted by accelerators, and all figures are sums over jobs: nothing is sampled. A job that began before
the period, or continued after it, is cut. Its account does not date its buckets, so the same share of each figure
counts as of its wall clock. The report says how much of the whole is such an estimate.

Tests: tests/unit/cli/test_fleetreport.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.fleetspend import FleetSpend, HeldTime, fleet_spend
from muster.answers.reported import ClassFailures, failure_times
from muster.answers.scaling import RatedJob, ScalingSize, scaling
from muster.api.base import ApiModel, Time
from muster.api.endedjob import EndedJobSpec, Ending
from muster.api.fleethours import IDLE, FleetHours, GpuState
from muster.api.goodput import PRODUCTIVE, Bucket
from muster.goodput.failure_rate import HOUR, exposed_seconds, in_steps
from muster.goodput.figures import progress_share
from muster.goodput.fleethours import hours_between
from muster.goodput.history import TAKEN, allot_amount
from muster.goodput.prices import NO_PRICES, Prices

K = TypeVar("K", str, tuple[str, str])
N = TypeVar("N", int, float)

MILLISECONDS = 1000
NODE_DAY = 86400.0
# A running job whose figures are older than this gets a note.
FRESH = timedelta(minutes=2)
MAX_OFFENDERS = 100
RUNNING = "running"
RATES_UNKNOWN = "of fewer than two jobs are the tokens per second known (spec.throughput)"
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class AccountedJob:
    """One job with its account.

    Attributes:
        spec: its account.
        state: how it ended, or its present state.
        running: it has not ended: its account continues.
        unsaved_seconds: of its steps, those that no complete checkpoint holds yet.
    """

    spec: EndedJobSpec
    state: str
    running: bool
    unsaved_seconds: int = 0


class FleetBucket(ApiModel):
    """One bucket, summed over all jobs."""

    bucket: str
    seconds: int
    gpu_seconds: int
    gpu_hours: float
    share: float = Field(description="Of all GPU-hours; of the wall clock where there are none.")
    cost: float | None = None


class FleetCause(ApiModel):
    """Time of failures and planned evacuations of one kind."""

    fault_class: str
    reason: str
    incidents: float = Field(description="Not a whole number where jobs were cut.")
    gpu_seconds: int
    gpu_hours: float
    share: float = Field(description="Of all GPU-hours.")
    cost: float | None = None


class FleetOffender(ApiModel):
    """A node on which jobs have failed."""

    node: str
    incidents: float
    jobs: int
    gpu_hours: float


class FleetState(ApiModel):
    """Accelerators of the fleet in one state."""

    state: GpuState
    gpu_hours: float
    share: float = Field(description="Of all accelerator-hours, those that no leader observed included.")


class FleetNamespace(ApiModel):
    """The jobs of one namespace."""

    namespace: str
    jobs: int
    gpu_seconds: int
    gpu_hours: float
    goodput: float | None = None
    cost: float | None = None


class FleetOutcome(ApiModel):
    """The jobs with one outcome."""

    state: str = Field(description="How they ended; running: they have not.")
    jobs: int
    gpu_hours: float
    share: float = Field(description="Of the GPU-hours of all jobs.")
    goodput: float | None = None
    cost: float | None = None


class FleetJob(ApiModel):
    """One job."""

    namespace: str
    name: str
    uid: str
    state: str
    running: bool
    creation_time: Time
    end_time: Time = Field(description="Up to when it counts.")
    gpus: int
    gpu_model: str = ""
    experiment: str = ""
    owner: str = ""
    gpu_hours: float
    goodput: float | None = Field(None, description="Productive GPU-hours of all of its own.")
    failures: float
    incident_gpu_hours: float = Field(description="By failures and planned evacuations.")
    counted_share: float = Field(
        description="Share of its life that is in the report; less than 1: it began before, or went on after."
    )


class FleetReport(ApiModel):
    """Where the time of all jobs went. Fields without a value are left out of JSON and YAML."""

    api_version: str = OUTPUT_VERSION
    kind: str = "FleetReport"
    since: Time | None = Field(None, description="Absent: all that is kept.")
    until: Time | None = Field(None, description="Absent: up to `time`.")
    time: Time = Field(description="When this was read.")
    jobs: int
    running: int
    states: dict[str, int] = Field(description="Jobs by state.")
    wall_seconds: int
    gpu_seconds: int
    gpu_hours: float
    price_per_gpu_hour: float | None = Field(None, description="Where it is the same for all.")
    currency: str = ""
    unpriced_share: float = Field(
        0.0, description="Share of the GPU-hours whose price is not known although others' are; then no cost is shown."
    )
    cost: float | None = None
    goodput: float | None = Field(None, description="GPU-hours in steps that count, of all GPU-hours.")
    ettr: float | None = Field(None, description="The same of the wall clock of all jobs, without suspension.")
    progress_unknown_jobs: int = Field(
        0, description="Jobs that goodput and ettr leave out: without a checkpoint directory, and not succeeded."
    )
    progress_unknown_gpu_hours: float = Field(0.0, description="What these have held.")
    unsaved_gpu_hours: float = Field(
        0.0, description="Of running jobs, in goodput: steps that no complete checkpoint holds yet."
    )
    failures: float
    mttf_hours: float | None = Field(None, description="Of one job, while its ranks ran.")
    mttf_failures: float = Field(
        0.0, description="Failures that this rests on: of jobs that were seen to run, those of starts apart."
    )
    mttf_low_hours: float | None = Field(None, description="The bounds of mttfHours with 95 % confidence.")
    mttf_high_hours: float | None = None
    mttf_at_least_hours: float | None = Field(None, description="Where nothing failed: with 95 % confidence.")
    mttf_by_class: list[ClassFailures] = Field([], description="The same of each class of failures; most first.")
    failures_per_thousand_node_days: float | None = None
    runtime_unknown_jobs: int = Field(
        0,
        description=(
            "Jobs of which it is unknown for a tenth of the time whether their ranks ran: left out of these rates."
        ),
    )
    estimated_share: float = Field(
        description=(
            "Share of the GPU-hours that is an estimate: of jobs that began before `since`, or went on after `until`."
        )
    )
    end_unknown_jobs: int = Field(description="Jobs whose end was not observed: counted up to what was last known.")
    uncounted_seconds: int = Field(
        description="Of running jobs, from the moment up to which they count until now (or `until`)."
    )
    buckets: list[FleetBucket] = Field(description="Largest first; their sums are wallSeconds and gpuSeconds.")
    gpu_states: list[FleetState] = Field(
        [], description="What the accelerators of the whole fleet were there for; empty: not known."
    )
    spend: FleetSpend = Field(description="What became of all GPU-hours of the fleet, those that no job held included.")
    outcomes: list[FleetOutcome] = Field(description="What jobs took by how they ended; largest first.")
    scaling: list[ScalingSize] = Field(
        [], description="Jobs by size, of each model of which there are several sizes, by all of their lives."
    )
    scaling_unknown: str = Field("", description="Why scaling is empty.")
    idle_cost_unknown: str = Field(
        "",
        description=(
            "Why the GPU-hours that no job held have no cost; empty: they have one, or those of jobs have none either."
        ),
    )
    idle_share: float | None = Field(
        None, description="Share of the fleet's GPU-hours that were healthy and not in use."
    )
    counted_until: Time | None = Field(None, description="Up to when the fleet's accelerators are counted.")
    causes: list[FleetCause] = Field(description="Largest first.")
    offenders: list[FleetOffender] = Field(description="Nodes, worst first.")
    unlisted_offenders: int = Field(
        description="Nodes that jobs blamed beside these: those beyond the worst 100, and once for each job "
        "those that its account does not name."
    )
    namespaces: list[FleetNamespace] = Field(description="Largest first.")
    job_details: list[FleetJob] = Field(description="All jobs, by GPU-hours.")
    notes: list[str] = Field([], description="What limits this answer.")


@dataclass(frozen=True, slots=True)
class _Cut:
    """The part of one job that lies in the period.

    Attributes:
        share: of its life.
        later: share of its life after the period.
    """

    life: AccountedJob
    seconds: Mapping[str, int]
    gpu_seconds: Mapping[str, int]
    share: float
    later: float
    causes: Mapping[tuple[str, str], tuple[float, int]]
    nodes: Mapping[str, tuple[float, int]]
    price: float | None

    @property
    def gpus(self) -> int:
        return sum(self.gpu_seconds.values())

    @property
    def unsaved(self) -> float:
        """Return the unsaved GPU-seconds: they are the newest of its life, as far as those are in the period."""
        spent = sum(self.life.spec.seconds.get(bucket, 0) for bucket in PRODUCTIVE)
        held = sum(self.gpu_seconds.get(bucket, 0) for bucket in PRODUCTIVE)
        newest = max(self.life.unsaved_seconds - spent * self.later, 0.0)
        return held * min(newest / (spent * self.share), 1.0) if spent and self.share else 0.0


def fleet_report(
    lives: Iterable[AccountedJob],
    now: datetime,
    since: datetime | None = None,
    prices: Prices = NO_PRICES,
    notes: Sequence[str] = (),
    hours: FleetHours | None = None,
    until: datetime | None = None,
) -> FleetReport:
    """Build the report of what these jobs, each of which is there once, did from `since` to `until`. Without these it
    is all of their time up to now. `prices` are of one GPU-hour; costs are reported for all jobs or for none. `hours`
    is what the accelerators of the fleet did; None: not known.
    """
    states = hours_between(hours, since, until) if hours is not None else {}
    all_states = sum(states.values())
    lives = list(lives)
    cuts = [cut for life in lives if (cut := _cut(life, since, until, prices)) is not None]
    cuts.sort(key=lambda cut: (-cut.gpus, cut.life.spec.namespace, cut.life.spec.name, cut.life.spec.job_uid))
    seconds, gpu_seconds = _sums(cut.seconds for cut in cuts), _sums(cut.gpu_seconds for cut in cuts)
    wall, gpus = sum(seconds.values()), sum(gpu_seconds.values())
    failures = sum(cut.life.spec.failures * cut.share for cut in cuts)
    exposures = [(cut, exposed_seconds(cut.seconds)) for cut in cuts]
    exposed = sum(own for _, own in exposures)
    node_seconds = sum(cut.life.spec.nodes * own for cut, own in exposures)
    seen_to_fail = sum(
        in_steps(cut.life.spec.failures, cut.life.spec.failed_starts) * cut.share for cut, own in exposures if own
    )
    blind = sum(not own and cut.seconds.get(Bucket.UNKNOWN, 0) > 0 for cut, own in exposures)
    running = [cut for cut in cuts if cut.life.running]
    end = now if until is None else min(now, until)
    tails = [end - max(life.spec.end_time, since or life.spec.end_time) for life in lives if life.running]

    unpriced = [cut for cut in cuts if cut.price is None and cut.gpus]
    scaled = scaling(RatedJob.at_prices(cut.life.spec, prices) for cut in cuts)
    has_prices = prices != NO_PRICES
    without = sum(cut.gpus for cut in unpriced) / gpus if gpus and has_prices else 0.0
    is_priced = has_prices and not unpriced
    costs = _costs(cuts) if is_priced else None
    distinct_prices = {cut.price for cut in cuts if cut.gpus} or {prices.flat}

    def cost(amounts: Mapping[K, float] | None, name: K) -> float | None:
        return None if amounts is None else amounts.get(name, 0.0)

    offenders = _worst(_pairs(cut.nodes for cut in cuts))
    return FleetReport(
        since=since,
        until=until,
        time=now,
        jobs=len(cuts),
        running=len(running),
        states=dict(sorted(Counter(cut.life.state for cut in cuts).items())),
        wall_seconds=wall,
        gpu_seconds=gpus,
        gpu_hours=gpus / HOUR,
        price_per_gpu_hour=distinct_prices.pop() if is_priced and len(distinct_prices) == 1 else None,
        currency=prices.currency if is_priced else "",
        unpriced_share=without,
        cost=sum(costs.buckets.values()) if costs else None,
        goodput=progress_share((cut.gpu_seconds, cut.life.spec.progress_unknown) for cut in cuts),
        ettr=progress_share(({**cut.seconds, Bucket.SUSPENDED: 0}, cut.life.spec.progress_unknown) for cut in cuts),
        progress_unknown_jobs=sum(cut.life.spec.progress_unknown for cut in cuts),
        progress_unknown_gpu_hours=sum(cut.gpus for cut in cuts if cut.life.spec.progress_unknown) / HOUR,
        unsaved_gpu_hours=sum(cut.unsaved for cut in cuts) / HOUR,
        failures=failures,
        **failure_times(exposed, seen_to_fail, _failures_by_class(cut for cut, own in exposures if own)),
        failures_per_thousand_node_days=seen_to_fail / (node_seconds / NODE_DAY) * 1000 if node_seconds else None,
        runtime_unknown_jobs=blind,
        estimated_share=sum(cut.gpus for cut in cuts if cut.share < 1) / gpus if gpus else 0.0,
        end_unknown_jobs=sum(cut.life.state == Ending.UNKNOWN for cut in cuts),
        uncounted_seconds=sum(int(tail.total_seconds()) for tail in tails if tail > FRESH),
        buckets=[
            FleetBucket(
                bucket=name,
                seconds=seconds.get(name, 0),
                gpu_seconds=gpu_seconds.get(name, 0),
                gpu_hours=gpu_seconds.get(name, 0) / HOUR,
                share=gpu_seconds.get(name, 0) / gpus if gpus else seconds.get(name, 0) / max(wall, 1),
                cost=cost(costs.buckets if costs else None, name),
            )
            for name in sorted(
                seconds.keys() | gpu_seconds.keys(), key=lambda b: (-gpu_seconds.get(b, 0), -seconds.get(b, 0), b)
            )
        ],
        gpu_states=[
            FleetState(state=state, gpu_hours=amount / MILLISECONDS / HOUR, share=amount / all_states)
            for state, amount in sorted(states.items(), key=lambda item: (-item[1], item[0]))
            if amount
        ],
        spend=fleet_spend(
            [HeldTime(cut.gpu_seconds, cut.unsaved, cut.life.spec.progress_unknown, cut.price) for cut in cuts],
            hours,
            since or min((cut.life.spec.creation_time for cut in cuts), default=None),
            end,
            prices.price_of_any_model(),
        ),
        idle_cost_unknown=prices.why_none_of_any() if is_priced else "",
        outcomes=_outcomes(cuts, gpus, is_priced=is_priced),
        scaling=scaled.sizes,
        scaling_unknown="" if scaled.sizes else "; ".join(scaled.why) or RATES_UNKNOWN,
        idle_share=sum(states.get(state, 0) for state in IDLE) / all_states if all_states else None,
        counted_until=min(hours.until, end) if hours is not None and all_states else None,
        causes=[
            FleetCause(
                fault_class=fault_class,
                reason=reason,
                incidents=many,
                gpu_seconds=amount,
                gpu_hours=amount / HOUR,
                share=amount / gpus if gpus else 0.0,
                cost=cost(costs.causes if costs else None, (fault_class, reason)),
            )
            for (fault_class, reason), (many, amount) in _worst(_pairs(cut.causes for cut in cuts))
        ],
        offenders=[
            FleetOffender(
                node=node, incidents=many, jobs=sum(node in cut.nodes for cut in cuts), gpu_hours=amount / HOUR
            )
            for node, (many, amount) in offenders[:MAX_OFFENDERS]
        ],
        unlisted_offenders=len(offenders[MAX_OFFENDERS:]) + sum(cut.life.spec.other_blamed_nodes for cut in cuts),
        namespaces=_namespaces(cuts, is_priced=is_priced),
        job_details=[_job(cut) for cut in cuts],
        notes=[*notes],
    )


def _cut(life: AccountedJob, since: datetime | None, until: datetime | None, prices: Prices) -> _Cut | None:
    """Return the part of a job between two moments; None: nothing."""
    spec, price = life.spec, prices.price_of_model(life.spec.gpu_model)
    if (since is not None and spec.end_time <= since) or (until is not None and spec.creation_time >= until):
        return None
    whole, part = (
        spec.end_time - spec.creation_time,
        min(spec.end_time, until or spec.end_time) - max(spec.creation_time, since or spec.creation_time),
    )
    if part >= whole:
        causes = {
            (cause.fault_class, cause.reason): (float(cause.incidents), cause.gpu_seconds) for cause in spec.causes
        }
        nodes = {blamed.node: (float(blamed.incidents), blamed.gpu_seconds) for blamed in spec.blamed_nodes}
        return _Cut(
            life=life,
            seconds=spec.seconds,
            gpu_seconds=spec.gpu_seconds,
            share=1.0,
            later=0.0,
            causes=causes,
            nodes=nodes,
            price=price,
        )
    share, later = part / whole, max(spec.end_time - (until or spec.end_time), timedelta()) / whole

    def scaled(amounts: Mapping[str, int]) -> dict[str, int]:
        """Return how much of each amount lies between `since` and `until`, in whole seconds; the sum is cut alike."""
        total = sum(amounts.values()) * (part // _MICROSECOND) // (whole // _MICROSECOND)
        return dict(zip(amounts, allot_amount(total, list(amounts.values())), strict=True))

    gpu_seconds = scaled(spec.gpu_seconds)
    taken_gpu_seconds = sum(gpu_seconds.get(bucket, 0) for bucket in TAKEN)
    parts = allot_amount(taken_gpu_seconds, [cause.gpu_seconds for cause in spec.causes])
    causes = {
        (cause.fault_class, cause.reason): (cause.incidents * share, amount)
        for cause, amount in zip(spec.causes, parts, strict=True)
    }
    nodes = {blamed.node: (blamed.incidents * share, int(blamed.gpu_seconds * share)) for blamed in spec.blamed_nodes}
    return _Cut(
        life=life,
        seconds=scaled(spec.seconds),
        gpu_seconds=gpu_seconds,
        share=share,
        later=later,
        causes=causes,
        nodes=nodes,
        price=price,
    )


@dataclass(frozen=True, slots=True)
class _Costs:
    """Cost of all jobs, each at its own price."""

    buckets: Mapping[str, float]
    causes: Mapping[tuple[str, str], float]


def _costs(cuts: Iterable[_Cut]) -> _Costs:
    """Sum up the costs of jobs whose prices are known."""
    buckets, causes = dict[str, float](), dict[tuple[str, str], float]()
    for cut in cuts:
        price = (cut.price or 0.0) / HOUR
        for name, amount in cut.gpu_seconds.items():
            buckets[name] = buckets.get(name, 0.0) + amount * price
        for cause, (_, amount) in cut.causes.items():
            causes[cause] = causes.get(cause, 0.0) + amount * price
    return _Costs(buckets, causes)


def _failures_by_class(cuts: Iterable[_Cut]) -> dict[str, float]:
    return _sums({name: count * cut.share for name, count in cut.life.spec.failures_by_class.items()} for cut in cuts)


def _sums(amounts: Iterable[Mapping[str, N]]) -> dict[str, N]:
    sums: dict[str, N] = {}
    for summand in amounts:
        for name, amount in summand.items():
            sums[name] = sums[name] + amount if name in sums else amount
    return {name: amount for name, amount in sums.items() if amount}


def _pairs(amounts: Iterable[Mapping[K, tuple[float, int]]]) -> dict[K, tuple[float, int]]:
    sums: dict[K, tuple[float, int]] = {}
    for summand in amounts:
        for name, (many, amount) in summand.items():
            so_far = sums.get(name, (0.0, 0))
            sums[name] = so_far[0] + many, so_far[1] + amount
    return sums


def _worst(amounts: Mapping[K, tuple[float, int]]) -> list[tuple[K, tuple[float, int]]]:
    return sorted(amounts.items(), key=lambda item: (-item[1][1], -item[1][0], str(item[0])))


def _namespaces(cuts: Sequence[_Cut], *, is_priced: bool) -> list[FleetNamespace]:
    by_name: dict[str, list[_Cut]] = {}
    for cut in cuts:
        by_name.setdefault(cut.life.spec.namespace, []).append(cut)
    namespaces = []
    for name, theirs in by_name.items():
        gpu_seconds = _sums(cut.gpu_seconds for cut in theirs)
        amount = sum(gpu_seconds.values())
        namespaces.append(
            FleetNamespace(
                namespace=name,
                jobs=len(theirs),
                gpu_seconds=amount,
                gpu_hours=amount / HOUR,
                goodput=progress_share((cut.gpu_seconds, cut.life.spec.progress_unknown) for cut in theirs),
                cost=sum(cut.gpus / HOUR * (cut.price or 0.0) for cut in theirs) if is_priced else None,
            )
        )
    return sorted(namespaces, key=lambda namespace: (-namespace.gpu_seconds, namespace.namespace))


def _outcomes(cuts: Sequence[_Cut], gpus: int, *, is_priced: bool) -> list[FleetOutcome]:
    by_state: dict[str, list[_Cut]] = {}
    for cut in cuts:
        by_state.setdefault(RUNNING if cut.life.running else cut.life.state, []).append(cut)
    outcomes = [
        FleetOutcome(
            state=state,
            jobs=len(theirs),
            gpu_hours=sum(cut.gpus for cut in theirs) / HOUR,
            share=sum(cut.gpus for cut in theirs) / gpus if gpus else 0.0,
            goodput=progress_share((cut.gpu_seconds, cut.life.spec.progress_unknown) for cut in theirs),
            cost=sum(cut.gpus / HOUR * (cut.price or 0.0) for cut in theirs) if is_priced else None,
        )
        for state, theirs in by_state.items()
    ]
    return sorted(outcomes, key=lambda outcome: (-outcome.gpu_hours, outcome.state))


def _job(cut: _Cut) -> FleetJob:
    spec = cut.life.spec
    return FleetJob(
        namespace=spec.namespace,
        name=spec.name,
        uid=spec.job_uid,
        state=cut.life.state,
        running=cut.life.running,
        creation_time=spec.creation_time,
        end_time=spec.end_time,
        gpus=spec.gpus,
        gpu_model=spec.gpu_model,
        experiment=spec.experiment,
        owner=spec.owner,
        gpu_hours=cut.gpus / HOUR,
        goodput=progress_share([(cut.gpu_seconds, spec.progress_unknown)]),
        failures=spec.failures * cut.share,
        incident_gpu_hours=sum(cut.gpu_seconds.get(bucket, 0) for bucket in TAKEN) / HOUR,
        counted_share=cut.share,
    )
