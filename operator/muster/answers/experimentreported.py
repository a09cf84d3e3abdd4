"""Build the report of an experiment: the jobs of one namespace that share a label. Pure, from accounts of jobs.

Time to train is from the creation of the first job to the end of the last one. It is reported once none runs any more.
Scaling efficiency is tokens per second and accelerator against those of the jobs with the fewest accelerators. It
compares jobs with a known model, and with the same accelerators and costs of a token: weak and strong scaling alike.

Tests: tests/unit/cli/test_experiment.py.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.fleetreported import AccountedJob
from muster.answers.scaling import RatedJob, Scaling, ScalingSize, scaling
from muster.api.base import ApiModel, Time
from muster.api.endedjob import Ending
from muster.goodput.efficiency import cost_per_million
from muster.goodput.failure_rate import HOUR
from muster.goodput.figures import progress_share, thousandth
from muster.goodput.prices import Prices


class ExperimentJob(ApiModel):
    """One job. What is absent is not known."""

    name: str
    uid: str
    state: str
    running: bool
    creation_time: Time
    end_time: Time = Field(description="Up to when it counts.")
    wall_seconds: int
    gpus: int = Field(description="That it asked for.")
    gpu_model: str = ""
    gpu_hours: float
    goodput: float | None = Field(None, description="Productive GPU-hours of all of its own.")
    ettr: float | None = None
    failures: int
    step: int | None = None
    steps: int | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None
    scaling: float | None = Field(
        None, description="Tokens per second and accelerator, by those of the jobs with the fewest accelerators."
    )
    mfu: float | None = None
    mfu_formula: str = ""
    mfu_unknown: str = Field("", description="Why there is no MFU although the job asks for it.")
    cost: float | None = None


class ExperimentReport(ApiModel):
    """What an experiment took. Fields without a value are left out of JSON and YAML."""

    api_version: str = OUTPUT_VERSION
    kind: str = "ExperimentReport"
    experiment: str
    namespace: str
    creation_time: Time
    end_time: Time = Field(description="Of the last job; while one runs, up to when it counts.")
    running: int
    elapsed_seconds: int = Field(description="From creationTime to endTime, pauses between jobs included.")
    busy_seconds: int = Field(description="The part of it in which one job at least was there.")
    time_to_train_seconds: int | None = Field(
        None, description="The same as elapsed; absent while a job runs, and where none has succeeded."
    )
    states: dict[str, int]
    gpu_hours: float
    goodput: float | None = None
    failures: int
    tokens: int | None = Field(None, description="Of all jobs; absent where one does not say what a step is worth.")
    currency: str = ""
    cost: float | None = Field(None, description="Of all jobs; absent where the price of one is not known.")
    cost_to_train: float | None = Field(
        None, description="The same; absent while a job runs, and where none has succeeded."
    )
    cost_per_million_tokens: float | None = None
    end_unknown_jobs: int = Field(description="Jobs whose end was not observed: counted up to what was last known.")
    scaling: list[ScalingSize] = Field(
        [], description="The jobs by size, of each model of which there are several sizes; empty: the notes say why."
    )
    job_details: list[ExperimentJob] = Field(description="By beginning.")
    notes: list[str] = Field([], description="What limits this answer.")


def experiment_report(
    experiment: str, namespace: str, lives: Iterable[AccountedJob], prices: Prices, notes: Sequence[str] = ()
) -> ExperimentReport:
    """Build the report of these jobs, at least one, each of which is there once."""
    lives = sorted(lives, key=lambda life: (life.spec.creation_time, life.spec.name, life.spec.job_uid))
    rated = [RatedJob.at_prices(life.spec, prices) for life in lives]
    scaled = scaling(rated)
    listed = [_job(life, job, scaled) for life, job in zip(lives, rated, strict=True)]
    creation_time, end = min(life.spec.creation_time for life in lives), max(life.spec.end_time for life in lives)
    running = sum(life.running for life in lives)
    states: dict[str, int] = {}
    for life in lives:
        states[life.state] = states.get(life.state, 0) + 1
    held_gpu_seconds = sum(sum(life.spec.gpu_seconds.values()) for life in lives)
    cost = _all([job.cost for job in listed if job.gpu_hours])
    tokens = _all([job.tokens for job in listed if job.wall_seconds])
    is_trained = not running and any(life.state == Ending.SUCCEEDED for life in lives)
    elapsed = max(int((end - creation_time).total_seconds()), 0)
    return ExperimentReport(
        experiment=experiment,
        namespace=namespace,
        creation_time=creation_time,
        end_time=end,
        running=running,
        elapsed_seconds=elapsed,
        busy_seconds=_busy_seconds([(life.spec.creation_time, life.spec.end_time) for life in lives]),
        time_to_train_seconds=elapsed if is_trained else None,
        states=dict(sorted(states.items())),
        gpu_hours=held_gpu_seconds / HOUR,
        goodput=progress_share((life.spec.gpu_seconds, life.spec.progress_unknown) for life in lives),
        failures=sum(life.spec.failures for life in lives),
        tokens=None if tokens is None else int(tokens),
        currency=prices.currency if cost is not None else "",
        cost=cost,
        cost_to_train=cost if is_trained else None,
        cost_per_million_tokens=cost_per_million(cost, None if tokens is None else int(tokens)),
        end_unknown_jobs=sum(life.state == Ending.UNKNOWN for life in lives),
        job_details=listed,
        scaling=scaled.sizes,
        notes=[*notes, *scaled.why],
    )


def _job(life: AccountedJob, job: RatedJob, scaled: Scaling) -> ExperimentJob:
    spec, efficiency, rate = life.spec, job.efficiency, job.efficiency.tokens_per_gpu_second
    base = None if job.kind is None else scaled.bases.get(job.kind)
    return ExperimentJob(
        name=spec.name,
        uid=spec.job_uid,
        state=life.state,
        running=life.running,
        creation_time=spec.creation_time,
        end_time=spec.end_time,
        wall_seconds=sum(spec.seconds.values()),
        gpus=spec.gpus,
        gpu_model=spec.gpu_model,
        gpu_hours=sum(spec.gpu_seconds.values()) / HOUR,
        goodput=progress_share([(spec.gpu_seconds, spec.progress_unknown)]),
        ettr=thousandth(spec.ettr_permille),
        failures=spec.failures,
        step=spec.step,
        steps=spec.steps,
        tokens=efficiency.tokens,
        tokens_per_second=efficiency.tokens_per_second,
        scaling=rate / base if rate is not None and base else None,
        mfu=efficiency.mfu,
        mfu_formula=efficiency.formula,
        mfu_unknown=efficiency.why,
        cost=job.cost,
    )


def _all(amounts: Sequence[float | None]) -> float | None:
    """Return the sum of the amounts; None where one of them is not known, or there is none."""
    known_amounts = [amount for amount in amounts if amount is not None]
    return sum(known_amounts) if known_amounts and len(known_amounts) == len(amounts) else None


def _busy_seconds(spans: Sequence[tuple[datetime, datetime]]) -> int:
    """Return the time that is in one span at least."""
    edges = sorted(
        [(begin, 1) for begin, end in spans if end > begin] + [(end, -1) for begin, end in spans if end > begin]
    )
    seconds, depth = 0.0, 0
    for (at, step), (later, _) in pairwise(edges):
        depth += step
        if depth:
            seconds += (later - at).total_seconds()
    return int(seconds)
