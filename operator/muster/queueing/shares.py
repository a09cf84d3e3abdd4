"""Of the time that a plan takes, what each namespace may have: thousands of costly jobs hold up their own kind only. Pure."""

from collections import defaultdict

from muster.queueing.queue import OrderKey, Waiting, order_key

# For each namespace in each plan, twice: jobs that ask for the same cost 0.1 ms, those with wishes of their own 4 ms.
FIRST_SECONDS = 0.5
OTHERS_SECONDS = 0.5


class Shares:
    """Who is asked for in a plan.

    One part of a namespace's time goes to the first of its jobs, in the order of the queue; the other goes to those behind
    them, who take turns from plan to plan.
    """

    def __init__(self) -> None:
        self._first: dict[str, float] = defaultdict(float)  # seconds in this plan, by namespace
        self._others: dict[str, float] = defaultdict(float)
        self._reached: dict[str, OrderKey] = {}  # the last of the others that has had his turn

    def begin(self) -> None:
        """A new plan."""
        for namespace in [name for name in self._reached if self._others[name] < OTHERS_SECONDS]:
            del self._reached[namespace]  # all of them have had their turns
        self._first.clear()
        self._others.clear()

    def admits(self, job: Waiting) -> bool:
        """Whether this job, the next in the queue, is asked for now; else what it was told before holds."""
        namespace = job.namespace
        if self._is_first(namespace):
            return True
        if self._others[namespace] < OTHERS_SECONDS:
            reached = self._reached.get(namespace)
            if reached is None or order_key(job) > reached:
                return True
        return False

    def spent(self, job: Waiting, seconds: float) -> None:
        """So long it took to answer a job that was admitted."""
        if self._is_first(job.namespace):
            self._first[job.namespace] += seconds
        else:
            self._others[job.namespace] += seconds
            self._reached[job.namespace] = order_key(job)

    def _is_first(self, namespace: str) -> bool:
        return self._first[namespace] < FIRST_SECONDS
