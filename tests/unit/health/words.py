"""What jobs say of nodes that they failed on, and what keeping it costs."""

from typing import Any

from tests.unit.counting import CountedWork
from tests.unit.health.builders import after

from muster.health.job_failures import JobFailureReports, JobRecord
from muster.world.jobfailures import JobFailureReport


def word(owner: str = "a", job: str = "llama", at: float = 0, **changes: Any) -> JobFailureReport:
    values: dict[str, Any] = {"attempt": 1, "what": "RankFailed", "time": after(at), "went_on": True}
    return JobFailureReport(owner, f"{owner}/{job}", **(values | changes))


def assert_that_work_goes_by_the_jobs_of_an_owner(owners: int) -> None:
    """Of 25 jobs each, on any nodes of many thousands."""
    words, steps = JobFailureReports(), []
    for number in range(25 * owners):
        owner, job = f"t{number % owners}", f"j{number}"
        said = tuple(word(owner, job, at=i) for i in range(8))
        with CountedWork() as counted:
            for node in words.replace_record(JobRecord(owner, f"{owner}/{job}", job, f"n{number * 31 % 16384}", said)):
                words.failures_on(node, 16384, after(10))
        steps.append(counted.steps)
    assert max(steps) < 6_000
