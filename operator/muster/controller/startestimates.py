"""When the first jobs of the queue start, as it was last estimated, and how far a plan may still go by that.

An estimate is made more seldom than a plan. A job that passes a reservation by an old one would be lent nodes for too
long.

Tests: tests/unit/controller/test_queue.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from muster.queueing.lending import LendingOffer, lending_offer
from muster.queueing.preemption import Loan, Preemption
from muster.queueing.starts import NOT_ESTIMATED
from muster.world.fleet import Fleet
from muster.world.queuedecision import StartEstimate


class StartEstimates:
    """The newest estimates. `replan` is called where jobs may pass again by new ones.

    Attributes:
        by_uid: when the first jobs start.
        earlier: for how long ended jobs held nodes, by namespace; the ends of jobs are estimated by it.
    """

    def __init__(self, fleet: Fleet, replan: Callable[[], None]) -> None:
        self.by_uid: Mapping[str, StartEstimate] = {}
        self._withdrawn: Collection[str] = ()
        self.earlier: Mapping[str, Sequence[float]] = {}
        self._fleet = fleet
        self._replan = replan
        self._known_loans: frozenset[Loan] = frozenset()  # those of which the estimates know
        self._is_outdated = False  # nodes, or places in the queue, have become free since: jobs may start sooner
        self._is_used = False  # a plan has gone by them

    def set(
        self, estimates: Mapping[str, StartEstimate], loans: frozenset[Loan], withdrawn: Collection[str] = ()
    ) -> None:
        """Set when the first jobs start, by uid, as it was estimated with these loans; and the uids of those that are
        not among the first any more."""
        self.by_uid, self._known_loans, self._withdrawn = estimates, loans, withdrawn
        if self._is_outdated:
            self._replan()
        self._is_outdated = self._is_used = False

    def estimate_of(self, job_uid: str) -> StartEstimate | None:
        """Return what the status of a job is to say; None: nothing new."""
        if job_uid in self._withdrawn:
            return StartEstimate(None, NOT_ESTIMATED)
        return self.by_uid.get(job_uid)

    def outdate(self) -> None:
        """Note that jobs may start sooner than was estimated."""
        self._is_outdated = self._is_used  # one plan goes by each estimate, or no job would pass on a busy fleet

    def for_plan(self, preemption: Preemption) -> Mapping[str, LendingOffer]:
        """Return what the first jobs lend in a plan, by uid; one that is absent has no known start, and lends nothing.

        None lends by an estimate that is older than the end of a job, or than the leave of another one from the queue:
        nodes would be lent for too long.
        """
        self._is_used = True
        if self._is_outdated:
            return {}
        # A time cannot say which loans are new: records are by the leader's clock, and are seen a moment later.
        lent = sum(len(self._fleet.nodes_of(loan.job_uid)) for loan in preemption.loans - self._known_loans)
        offers = ((uid, lending_offer(it, preemption.now, lent)) for uid, it in self.by_uid.items())
        return {uid: offer for uid, offer in offers if offer is not None}
