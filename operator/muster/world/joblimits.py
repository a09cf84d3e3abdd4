"""Limit a job's settings by the FleetPolicy: decisions see the job within these limits. Pure."""

from typing import Any, NamedTuple

from muster.api.fleetpolicy import JobLimits
from muster.api.trainingjob import OnFailure, TrainingJob


class _Field(NamedTuple):
    part: str  # of the job's spec
    name: str  # in the part, and in the limits
    path: str  # the field's path in YAML


_FIELDS = (
    _Field("checkpoint", "save_timeout_seconds", "saveTimeoutSeconds"),
    _Field("recovery", "application_restarts_per_day", "applicationRestartsPerDay"),
    _Field("recovery", "hardware_restarts_per_day", "hardwareRestartsPerDay"),
)
_HOLD = _Field("recovery", "hold_seconds", "holdSeconds")


def within_limits(job: TrainingJob, limits: JobLimits) -> TrainingJob:
    """Return the job with its waiting times and restarts limited to what the fleet allows."""
    changes: dict[str, Any] = {}
    for field in _beyond(job, limits):
        part = changes.get(field.part, getattr(job.spec, field.part))
        changes[field.part] = part.model_copy(update={field.name: getattr(limits, field.name)})
    return job.model_copy(update={"spec": job.spec.model_copy(update=changes)}) if changes else job


def lowered_fields(job: TrainingJob, limits: JobLimits) -> str:
    """Name the fields that the fleet lowers, with both values; "" for none."""
    return "; ".join(
        f"spec.{field.part}.{field.path} is {getattr(getattr(job.spec, field.part), field.name)}, and "
        f"{getattr(limits, field.name)} is applied: FleetPolicy default allows no more (spec.jobLimits.{field.path})"
        for field in _beyond(job, limits)
    )


def _beyond(job: TrainingJob, limits: JobLimits) -> list[_Field]:
    """Return the fields in which the job asks for more than the fleet allows."""
    fields = (*_FIELDS, _HOLD) if job.spec.recovery.on_failure is OnFailure.HOLD else _FIELDS
    return [f for f in fields if getattr(getattr(job.spec, f.part), f.name) > getattr(limits, f.name)]


def too_many_nodes(job: TrainingJob, limits: JobLimits) -> str:
    """Say that the job has more nodes than the fleet allows, with the remedy; "" if it has not."""
    if job.spec.nodes <= limits.nodes:
        return ""
    return (
        f"spec.nodes is {job.spec.nodes}, and FleetPolicy default lets a job have {limits.nodes} at most "
        "(spec.jobLimits.nodes). Delete the job and create it again with fewer, or ask the fleet's administrators "
        "to raise the limit."
    )
