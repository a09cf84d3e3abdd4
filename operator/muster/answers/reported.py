"""Build the reports of one job: pure, from the TrainingJob's status to the answers of `report` and `report
--incidents`.

Tests: tests/unit/cli/test_report.py.
"""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.text_parts import count, duration, hours, percent
from muster.answers.training import seen_time, still_since
from muster.api.base import ApiModel, Time
from muster.api.gang import FaultClass
from muster.api.goodput import PRODUCTIVE, Bucket, Fingerprint, Goodput
from muster.api.installation import name_component
from muster.api.trainingjob import Incident, TrainingJob
from muster.goodput.efficiency import Efficiency, cost_per_checkpoint, cost_per_million, job_efficiency, speed
from muster.goodput.energy import MeteredEnergy, energy, energy_of_nodes, why_no_energy
from muster.goodput.failure_rate import HOUR, NONE_SEEN, exposed_seconds, in_steps, time_between
from muster.goodput.figures import LEAST_UNKNOWN_SHARE, ettr_at_most, gpus_while_running, thousandth
from muster.goodput.history import level_amounts, lost_before_the_end
from muster.goodput.opened import clock_lead_seconds, figures_until
from muster.goodput.prices import NO_PRICES, Prices
from muster.protocol.numerals import significant
from muster.recovery.failure import Kind
from muster.whatif.formula import best_interval_seconds, ettr

# Time from a failure to the first step after it is in one of these.
_AWAY = (
    Bucket.UNDETECTED,
    Bucket.RECLAIM,
    Bucket.REQUEUED,
    Bucket.BURN_IN,
    Bucket.STARTING,
    Bucket.RESTARTING,
    Bucket.UNKNOWN,
)
# A smaller share of the time gets no advice.
WORTH_A_WORD = 0.01
# Printed and computed figures may differ by this: one is of the newest line, the other of the newest 64 steps.
DIFFERS = 0.1
NO_COUNTERS = (
    "no launcher has read the drivers' counters; kubectl muster report JOB --prometheus URL takes those of the nodes"
)
NO_DIRECTORY = "without spec.checkpoint.directory Muster sees no checkpoints"
NO_SAMPLES = (
    f"Prometheus has no sample of the power of this job's nodes: the rules of {name_component('monitoring')} have to "
    "be loaded, and Muster and the DCGM exporter (or Muster's agent) scraped, while the job runs"
)


class Share(ApiModel):
    """One bucket with its share of the time."""

    bucket: str
    seconds: int
    share: float = Field(description="Of the wall clock.")
    gpu_hours: float


class Checkpoints(ApiModel):
    """Cost of the interval between checkpoints, where enough is known."""

    interval_seconds: float = Field(description="As it is: steps between two checkpoints, times the median step.")
    stall_seconds: float | None = Field(
        None,
        description=("How long a save stops the training, as the program reports, else as measured; absent: unknown."),
    )
    durable_seconds: float | None = Field(
        None, description="From the end of a save's step until it was seen complete, the median; absent: unknown."
    )
    best_interval_seconds: float | None = Field(None, description="By Young and Daly.")
    gain: float | None = Field(None, description="Expected ETTR with that interval, less that with the present one.")


class Yield(ApiModel):
    """Efficiency, where the job has the tokens of a step (spec.throughput). Absent: not known."""

    tokens: int | None = Field(None, description="Of the steps that count; absent: it is unknown what is kept.")
    tokens_per_second: float | None = Field(None, description="Of the whole gang, in the time of steps that count.")
    tokens_per_gpu_second: float | None = Field(None, description="The same for one accelerator.")
    mfu: float | None = Field(None, description="Share of the accelerators' peak, in the time of steps that count.")
    mfu_overall: float | None = Field(None, description="The same of all the time in which accelerators were held.")
    mfu_formula: str = Field("", description="What gave the operations of a token: 6N/v1 or flopsPerToken/v1.")
    peak_tflops: int | None = Field(None, description="Of one accelerator.")
    mfu_unknown: str = Field("", description="Why there is no MFU although the job asks for it.")
    delivered: float | None = Field(
        None, description="Share of what the burn-in has reached on these nodes, in the time of steps that count."
    )
    measured_tflops: int | None = Field(None, description="What that is, of one accelerator of the slowest node.")


class Cost(ApiModel):
    """What the job has cost, where a price is known."""

    currency: str = ""
    per_gpu_hour: float
    total: float = Field(description="Of all GPU-hours.")
    not_productive: float | None = Field(
        None,
        description=(
            "Of those that were no steps that count, or unknown; absent: it is unknown what the job has kept."
        ),
    )
    per_million_tokens: float | None = None
    per_checkpoint: float | None = Field(
        None,
        description=(
            "All that was held from one complete checkpoint to the next, in the mean; absent: the distance is unknown."
        ),
    )
    per_save: float | None = Field(None, description="While a save stops the training; absent: unknown.")


class EnergySource(StrEnum):
    """The reader of the drivers' counters of energy."""

    LAUNCHERS = "launchers"
    PROMETHEUS = "prometheus"


class EnergyUsed(ApiModel):
    """What the accelerators have used, by the drivers' own counters."""

    source: EnergySource = Field(
        description="launchers: of the accelerators that the job asks for, while ranks ran. prometheus: of all of "
        "the nodes that it held, for as long as it held them."
    )
    joules: int = Field(description="Lost work included.")
    watts_per_gpu: float = Field(description="The mean of one accelerator while it was metered.")
    metered: float = Field(
        description="Share of the time that was metered; of launchers of that in which ranks ran, or may have: starts."
    )
    joules_per_token: float | None = Field(None, description="Of tokens that count; absent: not known.")
    joules_per_token_unknown: str = Field("", description="Why joulesPerToken is not known.")


class Took(ApiModel):
    """Estimated time of one incident: all accelerators that the job asks for while it lasted, no more than were
    held."""

    attempt: int
    time: Time
    gpu_hours: float = Field(description="From the fault to the first step after it, and the work that was lost.")
    cost: float | None = Field(None, description="Absent: no price is known.")


class ClassFailures(ApiModel):
    """How often failures of one class happen."""

    fault_class: str
    failures: float
    mttf_hours: float
    mttf_low_hours: float = Field(description="The bounds of 95 %.")
    mttf_high_hours: float | None = Field(None, description="Absent of less than one failure.")


class JobReport(ApiModel):
    """Where a job's time went. Fields without a value are left out of JSON and YAML."""

    api_version: str = OUTPUT_VERSION
    kind: str = "JobReport"
    name: str
    namespace: str
    state: str
    creation_time: Time
    time: Time = Field(description="Up to when the figures count.")
    no_progress_seconds: int = Field(
        0, description="Since its newest step, of a job that is to make steps and has long made none; in `unknown`."
    )
    wall_seconds: int
    gpu_hours: float
    buckets: list[Share] = Field(description="Largest first; their sum is the wall clock.")
    ettr: float | None = None
    ettr_after_queue: float | None = None
    ettr_at_most: float | None = Field(
        None, description="ettr if all unknown time were in steps that count; absent: hardly any time is unknown."
    )
    unsaved_seconds: int | None = Field(
        None, description="In ettr, of a job that has not ended: steps that no complete checkpoint holds yet."
    )
    lost_at_end_seconds: int = Field(
        0, description="Not in ettr, of a job that has ended without success: steps that no complete checkpoint held."
    )
    progress_unknown: bool = Field(
        False,
        description="There is no ETTR: without spec.checkpoint.directory it is unknown what is kept before success, "
        "or no step has a known time.",
    )
    untimed_steps: bool = Field(
        False,
        description=("progressUnknown because no step has a known time: one line in an attempt, and no pace."),
    )
    failures: int
    mttf_hours: float | None = Field(None, description="Mean time between failures while ranks ran; absent: none yet.")
    mttf_failures: int = Field(0, description="Failures that this rests on: those of starts are not among them.")
    mttf_low_hours: float | None = Field(None, description="The bounds of mttfHours with 95 % confidence.")
    mttf_high_hours: float | None = None
    mttf_at_least_hours: float | None = Field(None, description="Where there was none: with 95 % confidence.")
    mttf_by_class: list[ClassFailures] = Field([], description="The same of each class of failures; most first.")
    recovery_seconds: float | None = Field(None, description="Mean, from a failure to the first step after it.")
    lost_steps: int
    first_checkpoint_seconds: int | None = None
    first_checkpoint_unknown: str = Field(
        "", description="Why firstCheckpointSeconds is not known; empty: it is, or there was no complete checkpoint."
    )
    input_wait: float | None = Field(
        None,
        description="Share of the time in steps that count that they waited for data; absent: none was reported.",
    )
    checkpoints: Checkpoints | None = None
    steps: int | None = Field(None, description="That count, and of which the time is known.")
    step_seconds: float | None = Field(None, description="Median time of a step, or of the mean of stepStride steps.")
    step_stride: int = Field(1, description="Steps from one line of the program to the next.")
    step_p90_seconds: float | None = Field(None, description="One step in ten takes longer, of the last 64.")
    printed_loss: str = Field("", description="As the program has printed it last, in this attempt; empty: not read.")
    printed_tokens_per_gpu_second: int | None = Field(None, description="The same of the tokens that it trains.")
    printed_step_seconds: float | None = Field(None, description="The same of the time of a step.")
    printed_tflops_per_gpu: float | None = Field(None, description="The same of 10^12 operations in a second.")
    printed_mfu: float | None = Field(None, description="The same of the share of the accelerators' peak.")
    gpu_model: str = ""
    throughput: Yield | None = None
    cost: Cost | None = None
    energy: EnergyUsed | None = Field(None, description="Absent: not known.")
    energy_unknown: str = Field("", description="Why there is no energy.")
    fingerprints: list[Fingerprint] = Field(
        [], description="What the ranks ran with: the newest changes, oldest first."
    )
    incidents: list[Incident]
    incident_costs: list[Took] = Field([], description="What each of the incidents has taken, in their order.")
    advice: list[str]


class JobIncidents(ApiModel):
    """The failures of a job, and their cost."""

    api_version: str = OUTPUT_VERSION
    kind: str = "JobIncidents"
    name: str
    namespace: str
    incidents: list[Incident] = Field(description="The newest ones, oldest first.")


def report(
    job: TrainingJob,
    goodput: Goodput,
    prices: Prices = NO_PRICES,
    now: datetime | None = None,
    metered: MeteredEnergy | None = None,
) -> JobReport:
    """Build the report of a job with these figures, and its cost by these prices. With `now` a long time since the
    figures counts, too. Prometheus' figures, `metered`, precede those of launchers; None: it was not asked.
    """
    lead = clock_lead_seconds(goodput)
    if now is not None:
        goodput = figures_until(goodput, now + lead, job.status.state)
    wall = goodput.wall_seconds
    buckets = [
        Share(
            bucket=bucket,
            seconds=seconds,
            share=seconds / wall,
            gpu_hours=goodput.gpu_seconds.get(bucket, 0) / HOUR,
        )
        for bucket, seconds in sorted(goodput.seconds.items(), key=lambda item: (-item[1], item[0]))
    ]
    exposed, broken = exposed_seconds(goodput.seconds), in_steps(goodput.failures, goodput.failed_starts)
    recovery = _recovery_seconds(job.status.incidents, goodput)
    has_directory = job.spec.checkpoint.directory is not None
    made = JobReport(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        state=job.status.state,
        creation_time=goodput.creation_time - lead,
        time=goodput.counted_until - lead,
        no_progress_seconds=int((now - since).total_seconds()) if now and (since := still_since(job, now)) else 0,
        wall_seconds=wall,
        gpu_hours=sum(goodput.gpu_seconds.values()) / HOUR,
        buckets=buckets,
        ettr=thousandth(goodput.ettr_permille),
        ettr_after_queue=thousandth(goodput.ettr_after_queue_permille),
        ettr_at_most=ettr_at_most(goodput),
        unsaved_seconds=goodput.unsaved_seconds,
        lost_at_end_seconds=goodput.lost_at_end_seconds,
        progress_unknown=goodput.progress_unknown,
        untimed_steps=has_untimed_steps(job, goodput),
        failures=goodput.failures,
        **failure_times(exposed, broken, goodput.failures_by_class),
        recovery_seconds=recovery,
        lost_steps=goodput.lost_steps,
        first_checkpoint_seconds=goodput.first_checkpoint_seconds,
        first_checkpoint_unknown="" if goodput.first_checkpoint_seconds is not None or has_directory else NO_DIRECTORY,
        input_wait=_input_wait(goodput),
        steps=goodput.steps,
        step_seconds=thousandth(goodput.step_milliseconds),
        step_stride=goodput.step_stride,
        step_p90_seconds=thousandth(goodput.step_p90_milliseconds),
        printed_loss=goodput.progress.loss if goodput.progress else "",
        printed_tokens_per_gpu_second=(goodput.progress.tokens_per_gpu_second or None) if goodput.progress else None,
        printed_step_seconds=thousandth(goodput.progress.printed_step_milliseconds or None)
        if goodput.progress
        else None,
        printed_tflops_per_gpu=thousandth(goodput.progress.gflops_per_gpu or None) if goodput.progress else None,
        printed_mfu=thousandth(goodput.progress.mfu_permille or None) if goodput.progress else None,
        gpu_model=goodput.gpu_model,
        fingerprints=goodput.fingerprints,
        checkpoints=_checkpoints(goodput, exposed, recovery or 0.0, durable_seconds(job)),
        incidents=job.status.incidents,
        advice=[],
    )
    efficiency = job_efficiency(goodput, job.spec.throughput)
    used = _energy(job, goodput, efficiency.tokens, metered)
    changes = {
        "throughput": yield_of(efficiency),
        "cost": _cost(job, goodput, efficiency.tokens, prices),
        "energy": used,
        "energy_unknown": "" if used or not made.gpu_hours else _why_no_energy(goodput, metered),
        "incident_costs": _incident_costs(job, goodput, prices.price_of_model(goodput.gpu_model)),
    }
    return made.model_copy(update={"advice": list(_advice(job, goodput, made)), **changes})


def failure_times(exposed: float, failures: float, by_class: Mapping[str, float]) -> dict[str, Any]:
    """Return a report's fields with how often failures happen, of one job or of a fleet, from their number in `exposed`
    seconds in which ranks were seen to run.
    """
    between = time_between(exposed, failures)
    return {
        "mttf_failures": failures,
        "mttf_hours": between.mean if between else None,
        "mttf_low_hours": between.low if between else None,
        "mttf_high_hours": between.high if between else None,
        "mttf_at_least_hours": exposed / NONE_SEEN / HOUR if not failures and exposed else None,
        "mttf_by_class": _classes_of(exposed, by_class),
    }


def _classes_of(exposed: float, counts: Mapping[str, float]) -> list[ClassFailures]:
    """Return the time between failures of each class; most failures first."""
    by_class = {name: time_between(exposed, count) for name, count in counts.items()}
    return [
        ClassFailures(
            fault_class=name,
            failures=between.failures,
            mttf_hours=between.mean,
            mttf_low_hours=between.low,
            mttf_high_hours=between.high,
        )
        for name, between in sorted(by_class.items(), key=lambda item: (-counts[item[0]], item[0]))
        if between is not None
    ]


def has_untimed_steps(job: TrainingJob, goodput: Goodput) -> bool:
    """Whether progress is unknown although it is known what is kept."""
    is_kept = job.spec.checkpoint.directory is not None or job.status.state == "Succeeded"
    return goodput.progress_unknown and is_kept


def _input_wait(goodput: Goodput) -> float | None:
    """Return the input wait as a share of the steps that count.

    0 counts only if the program reports input waits; otherwise the wait is unknown.
    """
    waited, productive = goodput.amount(Bucket.INPUT_WAIT), goodput.amount(*PRODUCTIVE)
    return waited / productive if productive and (waited or Bucket.INPUT_WAIT in goodput.reported_buckets) else None


def yield_of(efficiency: Efficiency) -> Yield | None:
    """Return the efficiency for the report; None where the job does not have the tokens of a step."""
    if efficiency.tokens is None and efficiency.tokens_per_second is None and not efficiency.why:
        return None
    return Yield(
        tokens=efficiency.tokens,
        tokens_per_second=efficiency.tokens_per_second,
        tokens_per_gpu_second=efficiency.tokens_per_gpu_second,
        mfu=efficiency.mfu,
        mfu_overall=efficiency.overall,
        mfu_formula=efficiency.formula,
        peak_tflops=efficiency.peak_tflops,
        mfu_unknown=efficiency.why,
        delivered=efficiency.delivered,
        measured_tflops=efficiency.measured_tflops,
    )


def _cost(job: TrainingJob, goodput: Goodput, tokens: int | None, prices: Prices) -> Cost | None:
    price, total = prices.price_of_model(goodput.gpu_model), prices.cost(goodput.gpu_seconds, goodput.gpu_model)
    held_gpu_seconds = sum(goodput.gpu_seconds.values())
    if price is None or total is None:
        return None
    productive = sum(goodput.gpu_seconds.get(bucket, 0) for bucket in PRODUCTIVE)
    stall = goodput.checkpoint_stall_milliseconds
    gpus = gpus_while_running(goodput, job.spec.nodes * job.spec.gpus_per_node)
    return Cost(
        currency=prices.currency,
        per_gpu_hour=price,
        total=total,
        not_productive=None if goodput.progress_unknown else (held_gpu_seconds - productive) / HOUR * price,
        per_million_tokens=cost_per_million(total, tokens),
        per_checkpoint=cost_per_checkpoint(total, goodput.steps, goodput.checkpoint_steps),
        per_save=None if stall is None else stall / 1000 * gpus / HOUR * price,
    )


def _why_no_energy(goodput: Goodput, metered: MeteredEnergy | None) -> str:
    if metered is None:
        return NO_COUNTERS
    return (why_no_energy(metered, goodput) if metered.gpu_seconds > 0 else "") or NO_SAMPLES


def _energy(job: TrainingJob, goodput: Goodput, tokens: int | None, metered: MeteredEnergy | None) -> EnergyUsed | None:
    if metered is not None:
        of_nodes = energy_of_nodes(metered, goodput, tokens)
        if of_nodes is None:
            return None
        return EnergyUsed(source=EnergySource.PROMETHEUS, **dataclasses.asdict(of_nodes))
    asked = job.spec.nodes * job.spec.gpus_per_node
    gpu_seconds = {bucket: asked * seconds for bucket, seconds in goodput.seconds.items()}
    used = energy(goodput.joules, goodput.metered_gpu_seconds, gpu_seconds, tokens)
    return None if used is None else EnergyUsed(source=EnergySource.LAUNCHERS, **dataclasses.asdict(used))


def _incident_costs(job: TrainingJob, goodput: Goodput, price: float | None) -> list[Took]:
    """Return the time of each incident, up to its first step, the next incident or the end of the figures.

    Times of suspensions and of waiting without nodes in between are not known. All incidents together have not taken
    more than the job has held without making steps that count: the excess is taken off the longest.
    """
    gpus, job_incidents = gpus_while_running(goodput, job.spec.nodes * job.spec.gpus_per_node), job.status.incidents
    weights, lost = [], lost_before_the_end(job, goodput)
    for place, incident in enumerate(job_incidents):
        then = job_incidents[place + 1] if place + 1 < len(job_incidents) else None
        until = incident.resumed_time or ((then.fault_time or then.time) if then is not None else goodput.counted_until)
        weights.append((_seconds_between(incident, until) + lost[place]) * gpus)
    stopped_gpu_seconds: float = sum(goodput.gpu_seconds.get(bucket, 0) for bucket in (Bucket.LOST_WORK, *_AWAY))
    stopped_gpu_seconds -= min(goodput.lost_at_end_seconds * gpus, goodput.gpu_seconds.get(Bucket.LOST_WORK, 0))
    made = []
    for incident, gpu_seconds in zip(job_incidents, level_amounts(weights, stopped_gpu_seconds), strict=True):
        hours = gpu_seconds / HOUR
        cost = None if price is None else hours * price
        made.append(Took(attempt=incident.attempt, time=incident.time, gpu_hours=hours, cost=cost))
    return made


def contradictions(job: TrainingJob, goodput: Goodput) -> Iterator[str]:
    """Yield the first of the program's printed speeds that differs from spec.throughput's by more than a tenth.

    It is the cause of the differences that follow.
    """
    seen, gpus = goodput.progress, job.spec.nodes * job.spec.gpus_per_node
    if seen is None:
        return
    reckoned_speed = speed(job.spec.throughput, seen.pace_milliseconds, gpus, goodput.gpu_model)
    for printed, reckoned, unit_text in (
        (seen.tokens_per_gpu_second, reckoned_speed.tokens, "tokens per second and GPU: check tokensPerStep"),
        (seen.gflops_per_gpu / 1000, reckoned_speed.tflops, "TFLOP/s for each GPU: check parameters or flopsPerToken"),
        (seen.mfu_permille / 10, reckoned_speed.mfu and 100 * reckoned_speed.mfu, "% MFU: check peakTflopsPerGpu"),
    ):
        if printed and reckoned and abs(printed - reckoned) > DIFFERS * reckoned:
            yield (
                f"the program prints {significant(printed, 4)} and spec.throughput says {significant(reckoned, 4)} "
                f"{unit_text}"
            )
            return


def incidents(job: TrainingJob) -> JobIncidents:
    """Return the incidents of a job."""
    return JobIncidents(name=job.metadata.name, namespace=job.metadata.namespace, incidents=job.status.incidents)


def _seconds_between(incident: Incident, until: datetime) -> float:
    """Return the time from the fault to a moment."""
    return max((until - (incident.fault_time or incident.time)).total_seconds(), 0.0)


def _recovery_seconds(job_incidents: Sequence[Incident], goodput: Goodput) -> float | None:
    """Return the mean time from a failure to its first step, where both are known; suspensions are not in it."""
    took = [
        _seconds_between(incident, incident.resumed_time)
        for incident in job_incidents
        if incident.resumed_time is not None and incident.fault_class != FaultClass.PLANNED
    ]
    return statistics.mean(level_amounts(took, goodput.amount(*_AWAY))) if took else None


def _are_hangs(job_incidents: Sequence[Incident]) -> bool:
    """Whether most undetected time was that of hangs; the job's settings decide only about these."""
    unseen = [
        (incident.reason == Kind.HANG, (seen_time(incident) - (incident.fault_time or incident.time)).total_seconds())
        for incident in job_incidents
    ]
    return 2 * sum(seconds for is_hang, seconds in unseen if is_hang) > sum(seconds for _, seconds in unseen)


def durable_seconds(job: TrainingJob) -> float | None:
    """Return the median time until a checkpoint is durable, else of its files' writing, over the known saves."""
    saves = job.status.checkpoint.saves if job.status.checkpoint else []
    for times in ([save.durable_seconds for save in saves], [save.save_seconds for save in saves]):
        took = [seconds for seconds in times if seconds is not None]
        if took:
            return float(statistics.median(took))
    return None


def _checkpoints(goodput: Goodput, exposed: int, recovery: float, durable: float | None) -> Checkpoints | None:
    if not goodput.checkpoint_steps or not goodput.step_milliseconds:
        return None
    interval = goodput.checkpoint_steps * goodput.step_milliseconds / 1000
    stall = goodput.checkpoint_stall_milliseconds
    broken = in_steps(goodput.failures, goodput.failed_starts)
    if not stall or not broken or not exposed:
        stall_seconds = None if stall is None else stall / 1000
        return Checkpoints(interval_seconds=interval, stall_seconds=stall_seconds, durable_seconds=durable)
    mttf, save, lasts = exposed / broken, stall / 1000, durable or 0.0
    best = max(best_interval_seconds(save, mttf), lasts, goodput.step_milliseconds / 1000)
    gain = ettr(mttf, best, save, lasts, recovery) - ettr(mttf, interval, save, lasts, recovery)
    lost = 1.0 if goodput.ettr_permille is None else 1 - goodput.ettr_permille / 1000
    gain = min(max(gain, 0.0), lost)  # no gain exceeds the loss
    return Checkpoints(
        interval_seconds=interval, stall_seconds=save, durable_seconds=durable, best_interval_seconds=best, gain=gain
    )


def _advice(job: TrainingJob, goodput: Goodput, made: JobReport) -> Iterator[str]:
    """Yield what would help, as far as the figures prove it."""
    shares = {bucket.bucket: bucket.share for bucket in made.buckets}
    saved = made.checkpoints
    if saved is not None and saved.gain is not None and saved.best_interval_seconds is not None:
        if saved.gain >= WORTH_A_WORD / 10:
            yield (
                f"a checkpoint every {duration(saved.best_interval_seconds)} in place of "
                f"{duration(saved.interval_seconds)} would gain {percent(saved.gain)} (Young/Daly, by "
                f"{count(made.mttf_failures, 'failure')} so far)"
            )
    elif saved is not None and made.failures and saved.stall_seconds is None:
        yield (
            f"checkpoints are {hours(saved.interval_seconds / HOUR)} apart; no launcher could measure how long a "
            "save stops the training: for the best interval let the trainer report checkpointSeconds "
            "(docs/trainer-contract.md)"
        )
    if saved is None and made.failures and goodput.lost_steps and goodput.first_checkpoint_seconds is None:
        yield (
            "no complete checkpoint has been seen, and each failure takes back everything: see "
            "spec.checkpoint.directory"
        )
    hangs = job.spec.progress.step_timeout_seconds
    if shares.get(Bucket.UNDETECTED, 0.0) >= WORTH_A_WORD and _are_hangs(job.status.incidents):
        how = f"lower spec.progress.stepTimeoutSeconds ({hangs})" if hangs else "set spec.progress.stepTimeoutSeconds"
        yield f"failures went undetected for {percent(shares[Bucket.UNDETECTED])} of the time, hangs most of it: {how}"
    if made.printed_loss.lower().lstrip("-") in ("nan", "inf"):
        yield (
            f"the loss is printed as {made.printed_loss}: unless that passes, suspend the job and go on from a "
            "checkpoint before it (spec.checkpoint.resumeFrom), or let the trainer report NonFiniteLoss "
            "(docs/trainer-contract.md)"
        )
    yield from contradictions(job, goodput)
    if shares.get(Bucket.INPUT_WAIT, 0.0) >= 10 * WORTH_A_WORD:
        yield (
            f"steps wait for their data for {shares[Bucket.INPUT_WAIT]:.0%} of the time: more loaders, or faster "
            "storage"
        )
    if shares.get(Bucket.UNKNOWN, 0.0) >= LEAST_UNKNOWN_SHARE:
        least = "" if made.ettr is None else ", so ETTR is at least what is said here"
        yield f"{percent(shares[Bucket.UNKNOWN])} of the time is unknown{least}: docs/goodput.md says why"
