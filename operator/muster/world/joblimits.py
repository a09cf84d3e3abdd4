"""What a FleetPolicy lets a job ask for: decisions see the job within these limits. Pure."""

from typing import Any

from muster.api.fleetpolicy import JobLimits
from muster.api.trainingjob import TrainingJob


def within_limits(job: TrainingJob, limits: JobLimits) -> TrainingJob:
    """The job with what it asks for of patience and restarts, as far as the fleet lets it."""
    checkpoint, recovery = job.spec.checkpoint, job.spec.recovery
    changes: dict[str, Any] = {}
    if checkpoint.save_timeout_seconds > limits.save_timeout_seconds:
        changes["checkpoint"] = checkpoint.model_copy(update={"save_timeout_seconds": limits.save_timeout_seconds})
    restarts = {
        "application_restarts_per_day": limits.application_restarts_per_day,
        "hardware_restarts_per_day": limits.hardware_restarts_per_day,
    }
    beyond = {field: most for field, most in restarts.items() if getattr(recovery, field) > most}
    if beyond:
        changes["recovery"] = recovery.model_copy(update=beyond)
    return job.model_copy(update={"spec": job.spec.model_copy(update=changes)}) if changes else job


def too_many_nodes(job: TrainingJob, limits: JobLimits) -> str:
    """Why the job has more nodes than the fleet lets a job have, with the remedy; "" if it has not."""
    if job.spec.nodes <= limits.nodes:
        return ""
    return (
        f"spec.nodes is {job.spec.nodes}, and FleetPolicy default lets a job have {limits.nodes} at most (spec.jobs.nodes). "
        "Delete the job and create it again with fewer, or ask the fleet's administrators to raise the limit."
    )
