"""Many preemptible jobs that never save, and a gang that wants half of their nodes, twice."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.unit.lifecycle.testbed import OneJob, steps

from muster.record.preemptions import PREEMPTED
from simulate.apiserver import Object
from simulate.surroundings import NAMESPACE

JOBS, PER_RACK = 128, 16
SAVE_SECONDS = 30
# Their pods have 30 s to end, and within as long the plan and the next one are made and written.
LEAVE_SECONDS = SAVE_SECONDS + 60
NEVER_SAVES = steps(10**4, every=10**6, seconds=10.0)


def of_many(number: int) -> dict[str, Any]:
    checkpoint = {"directory": f"/ckpt/p{number}", "saveTimeoutSeconds": SAVE_SECONDS}
    return {"checkpoint": checkpoint, "queueing": {"preemptible": True}}


class Requests:
    """Counts how often each job is asked to leave for another one, by uid."""

    def __init__(self, job: OneJob) -> None:
        self.asked: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        job.server.listen(self._written)

    def _written(self, resource: str, before: Object | None, after: Object | None) -> None:
        if resource != "gangs" or before is None or after is None:
            return
        was, now = ((gang["spec"].get("evacuation") or {"since": ""})["since"] for gang in (before, after))
        if now and now != was:
            self.asked[after["spec"]["jobUid"]] += 1
        if before["spec"]["members"] and not after["spec"]["members"]:
            assert after["spec"]["reason"] == PREEMPTED
            self.left[after["spec"]["jobUid"]] += 1


def holding(job: OneJob) -> int:
    """How many jobs train."""
    return sum(bool(gang["spec"].get("start")) for gang in job.server.all("gangs"))


def gang_comes(job: OneJob, name: str) -> None:
    """It starts in time, trains, and ends; then all others train again."""
    uid, came_at = job.submit(name, JOBS // 2, steps(20)), job.agenda.now
    job.until(lambda: job.attempt_of(uid) == 1, LEAVE_SECONDS)
    assert job.agenda.now - came_at >= SAVE_SECONDS, "each has its time to save"
    job.until(lambda: job.has_ended(name))
    job.server.remove("trainingjobs", NAMESPACE, name)
    job.until(lambda: holding(job) == JOBS)


def test_as_many_leave_as_the_gang_needs_and_the_same_ones_again(submitted: Callable[..., OneJob]) -> None:
    job = submitted(nodes=JOBS, workers=1, per_rack=PER_RACK, script=NEVER_SAVES, **of_many(0))
    for number in range(1, JOBS):
        job.submit(f"p{number}", 1, NEVER_SAVES, **of_many(number))
    job.until(lambda: holding(job) == JOBS, 600.0)
    requests = Requests(job)
    gang_comes(job, "first")
    leavers = set(requests.left)
    assert len(leavers) == JOBS // 2, "the gang needs no more"
    assert requests.asked == requests.left == Counter(leavers), "no job is asked twice"
    # Their attempts are the newest now: that they never answered spares them nothing.
    gang_comes(job, "second")
    assert requests.asked == requests.left == Counter(dict.fromkeys(leavers, 2))
