"""Compute how training scales: how much faster twice the accelerators are, and the cost of the same tokens. Pure.

Only jobs with the same accelerators, parameters and operations of a token are compared: their difference is their size.
Rates are of the time in steps that count. All jobs of a size count together, so that one lucky run sets no mark.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from muster.answers.text_parts import count
from muster.api.base import ApiModel
from muster.api.endedjob import EndedJobSpec
from muster.api.goodput import PRODUCTIVE
from muster.goodput.efficiency import Efficiency, cost_per_million, job_efficiency
from muster.goodput.fingerprint import SEVERAL
from muster.goodput.prices import Prices


@dataclass(frozen=True, slots=True)
class ModelKind:
    """The properties that two jobs must share for their rates to be compared."""

    gpu_model: str
    parameters: int | None
    flops_per_token: int | None


@dataclass(frozen=True, slots=True)
class RatedJob:
    """A job with its efficiency.

    Attributes:
        cost: of all that it held; None: not known.
    """

    spec: EndedJobSpec
    efficiency: Efficiency
    cost: float | None = None

    @classmethod
    def at_prices(cls, spec: EndedJobSpec, prices: Prices) -> "RatedJob":
        """Rate a job by its whole life, at these prices."""
        return cls(spec, job_efficiency(spec, spec.throughput), prices.cost(spec.gpu_seconds, spec.gpu_model))

    @property
    def kind(self) -> ModelKind | None:
        """Return the kind; None: its accelerators or the size of its model are not known."""
        throughput = self.spec.throughput
        if self.spec.gpu_model in ("", SEVERAL) or (
            throughput.parameters is None and throughput.flops_per_token is None
        ):
            return None
        return ModelKind(self.spec.gpu_model, throughput.parameters, throughput.flops_per_token)


class ScalingSize(ApiModel):
    """The jobs of one model that asked for the same number of accelerators, beside those that asked for the fewest."""

    gpu_model: str
    parameters: int | None = None
    flops_per_token: int | None = None
    gpus: int = Field(description="That a job asked for.")
    jobs: int
    tokens_per_second: float = Field(description="Of one job, in the time in steps that count.")
    times_gpus: float = Field(description="Accelerators held in that time, by those of the smallest size.")
    times_speed: float = Field(description="Tokens per second, by those of the smallest size.")
    efficiency: float = Field(description="timesSpeed by timesGpus.")
    times_cost: float = Field(description="What the same tokens take in GPU-hours of steps, by the smallest size.")
    cost_per_million_tokens: float | None = Field(
        None, description="Of all that these jobs held, failures and waiting included; absent: not known of all."
    )


@dataclass(frozen=True, slots=True)
class Scaling:
    """How training scales, by all sizes.

    Attributes:
        sizes: of each model of which there are at least two.
        bases: tokens per second and accelerator of each model's smallest size.
        why: why other jobs are not compared, a sentence each.
    """

    sizes: list[ScalingSize]
    bases: Mapping[ModelKind, float]
    why: list[str]


@dataclass(frozen=True, slots=True)
class _Size:
    """The sums of the jobs of one size."""

    jobs: Sequence[RatedJob]
    tokens: float
    seconds: int
    gpu_seconds: int

    @classmethod
    def of_jobs(cls, jobs: Sequence[RatedJob]) -> "_Size":
        seconds = [sum(job.spec.seconds.get(bucket, 0) for bucket in PRODUCTIVE) for job in jobs]
        gpu_seconds = sum(job.spec.gpu_seconds.get(bucket, 0) for job in jobs for bucket in PRODUCTIVE)
        rates = [job.efficiency.tokens_per_second or 0.0 for job in jobs]
        tokens = sum(rate * job_seconds for rate, job_seconds in zip(rates, seconds, strict=True))
        return cls(jobs, tokens, sum(seconds), gpu_seconds)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds

    @property
    def speed_of_gpu(self) -> float:
        return self.tokens / self.gpu_seconds

    @property
    def cost_per_million(self) -> float | None:
        costs, tokens = [job.cost for job in self.jobs], [job.efficiency.tokens for job in self.jobs]
        if None in costs or None in tokens:
            return None
        return cost_per_million(sum(cost or 0.0 for cost in costs), sum(token_count or 0 for token_count in tokens))


def scaling(jobs: Iterable[RatedJob]) -> Scaling:
    """Compute how training scales from these jobs."""
    rated = [job for job in jobs if job.efficiency.tokens_per_gpu_second]
    by_kind: dict[ModelKind, dict[int, list[RatedJob]]] = {}
    for job in rated:
        if job.kind is not None:
            by_kind.setdefault(job.kind, {}).setdefault(job.spec.gpus, []).append(job)
    sizes, bases = list[ScalingSize](), dict[ModelKind, float]()
    for kind, by_gpus in sorted(by_kind.items(), key=lambda item: -_weight(item[1])):
        if len(by_gpus) > 1:
            own_sizes = [(gpus, _Size.of_jobs(theirs)) for gpus, theirs in sorted(by_gpus.items())]
            bases[kind] = own_sizes[0][1].speed_of_gpu
            sizes += [_as_size(kind, gpus, size, own_sizes[0][1]) for gpus, size in own_sizes]
    return Scaling(sizes, bases, list(_why_not(rated, bases)))


def _weight(by_gpus: Mapping[int, Sequence[RatedJob]]) -> int:
    """Return all GPU-seconds that these jobs held."""
    return sum(sum(job.spec.gpu_seconds.values()) for theirs in by_gpus.values() for job in theirs)


def _as_size(kind: ModelKind, gpus: int, size: _Size, smallest: _Size) -> ScalingSize:
    efficiency = size.speed_of_gpu / smallest.speed_of_gpu
    speed = size.speed / smallest.speed
    return ScalingSize(
        gpu_model=kind.gpu_model,
        parameters=kind.parameters,
        flops_per_token=kind.flops_per_token,
        gpus=gpus,
        jobs=len(size.jobs),
        tokens_per_second=size.speed,
        times_gpus=speed / efficiency,
        times_speed=speed,
        efficiency=efficiency,
        times_cost=1 / efficiency,
        cost_per_million_tokens=size.cost_per_million,
    )


def _why_not(rated: Sequence[RatedJob], compared: Mapping[ModelKind, float]) -> Iterator[str]:
    """Say why some of several jobs with known rates are not compared."""
    why = Counter(
        "the nodes have no label with the model of their accelerators"
        if not job.spec.gpu_model
        else "their accelerators are of several models"
        if job.spec.gpu_model == SEVERAL
        else "spec.throughput says neither parameters nor flopsPerToken, so their models may differ"
        if job.kind is None
        else "none of another size has the same accelerators, parameters and flopsPerToken"
        for job in rated
        if job.kind is None or job.kind not in compared
    )
    if len(rated) > 1:
        yield from (f"no scaling of {count(jobs, 'job')}: {reason}" for reason, jobs in why.items())
