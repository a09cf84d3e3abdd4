"""Jobs that hold nodes or have ended, with what their status says of it."""

from datetime import datetime
from typing import Any

from tests.unit.lifecycle.builders import a_job, at

from muster.api.trainingjob import TrainingJob


def trains(
    name: str = "llama", *, held: float = 3600, until: float = 0, spec: dict[str, Any] | None = None, **status: Any
) -> TrainingJob:
    """A job that trains.

    Args:
        held: for how many seconds it has held nodes by its account, which counts up to `until`.
        until: seconds into the test.
        spec: fields of its spec.
        status: fields of its status in camelCase; `goodput` is added to that of its account.
    """
    job = a_job(name, **(spec or {}))
    goodput = {
        "creationTime": at(0),
        "countedUntil": at(until),
        "seconds": {"queued": 500, "compute": int(held)},
        **status.pop("goodput", {}),
    }
    told = {"state": "Running", "nodes": [f"{name}-1"], "goodput": goodput, **status}
    return TrainingJob.model_validate({**job.to_json(), "status": told})


def steps(step: int, total: int | None, seconds: float = 2.0, **more: Any) -> dict[str, Any]:
    """What `trains` is given of a job that reports steps."""
    progress = {} if total is None else {"progress": {"totalSteps": total}}
    goodput = {"stepMilliseconds": int(seconds * 1000), **more}
    return {"spec": progress, "step": step, "goodput": goodput}


def expects(seconds: int) -> dict[str, Any]:
    """The spec of a job whose user expects this duration."""
    return {"queueing": {"expectedDurationSeconds": seconds}}


def ended(name: str, held: float, result: str = "Succeeded", when: datetime | None = None) -> TrainingJob:
    """A job that has ended, and held nodes for so long."""
    completion = {"result": result, "reason": "Finished", "message": "", "attempt": 1, "time": when or at(0)}
    return trains(name, held=held, state=result, nodes=[], completion=completion)
