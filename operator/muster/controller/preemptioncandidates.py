"""The jobs that hold nodes and may have to give way, and those that do by the newest plan.

Tests: tests/unit/controller/test_queue.py.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from muster.controller.bus import Key, Signal
from muster.queueing.charges import Charged
from muster.queueing.preemption import Borrower, Loan, Preemption, PreemptionCandidate, Victim
from muster.world.fleet import Fleet
from muster.world.queuedecision import Preemptors


class PreemptionCandidates:
    """The candidates. Those whose answer has changed are published on `job_changed`; `replan` is called for a new one.

    `now` is by the API server's clock.

    Attributes:
        loans_made: how many times nodes have been lent since the start.
    """

    def __init__(
        self, fleet: Fleet, job_changed: Signal[Key], replan: Callable[[], None], now: Callable[[], datetime]
    ) -> None:
        self._fleet = fleet
        self._job_changed = job_changed
        self._replan = replan
        self._now = now
        self._jobs: dict[Key, tuple[str, PreemptionCandidate]] = {}  # with their uids
        self.loans_made = 0
        self._preempted_by: Mapping[str, Preemptors] | None = None  # by uid; None: there is no plan yet

    def set(self, key: Key, job_uid: str, job: PreemptionCandidate | None) -> None:
        """Set the job that holds nodes and may have to give way; None = it holds none, or may keep them."""
        was = self._jobs.pop(key, None)
        if job is not None:
            self._jobs[key] = job_uid, job
            loan = _loan((job_uid, job))
            if loan is not None and loan != _loan(was):
                self.loans_made += 1
            if was is None:
                self._replan()  # other jobs may have its nodes now

    def is_borrower(self, key: Key, job_uid: str) -> bool:
        """Whether a job has nodes that are not its own."""
        uid, job = self._jobs.get(key, ("", None))
        return uid == job_uid and isinstance(job, Borrower)

    def for_plan(self, charged: Charged) -> Preemption:
        """Those that hold nodes now, for one plan. The charged jobs stand behind the others in it."""
        holders = [(uid, job) for uid, job in self._jobs.values() if self._fleet.nodes_of(uid)]
        lent = {uid: job for uid, job in holders if isinstance(job, Borrower)}
        victims = {uid: job for uid, job in holders if isinstance(job, Victim)}
        return Preemption(lent, victims, self._now(), charged)

    def preempted_by(self, job_uid: str) -> Preemptors | None:
        """The jobs that a job gives its nodes to; None: there is no plan yet."""
        return None if self._preempted_by is None else self._preempted_by.get(job_uid, ())

    def note_plan(self, preempted_by: Mapping[str, Preemptors]) -> None:
        """Note which jobs give way by the newest plan, by uid, and to which others."""
        old, self._preempted_by = self._preempted_by, preempted_by
        for key, (uid, _) in list(self._jobs.items()):
            if old is None or old.get(uid) != preempted_by.get(uid):
                self._job_changed.publish(key)


def _loan(held: tuple[str, PreemptionCandidate] | None) -> Loan | None:
    """Which nodes a job has been lent; None: it has none that are lent, or gives them back."""
    uid, job = held or ("", None)
    return Loan(uid, job.since) if isinstance(job, Borrower) and not job.leaves else None
