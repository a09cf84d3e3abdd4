"""What waiting jobs lend of the nodes that are reserved for them, and to which jobs behind them. Pure.

Tests: tests/unit/queueing/test_backfill.py, tests/unit/queueing/test_preemption.py.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from muster.placement.names import reserved_refusal
from muster.placement.request import Request
from muster.queueing.preemption import MAX_LENT_SECONDS
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import Backfill, LendingTerms, StartEstimate


class LendingOffer(NamedTuple):
    """What a waiting job lends of the nodes reserved for it, to which jobs and for how long, by its estimated start.

    Attributes:
        lends_seconds: it lends nodes for so long from now on, and no longer.
        ends_by_seconds: it lends to jobs that are expected to end within so long.
        extra_nodes: it lends so many nodes to others.
        nodes: those that it lends.
    """

    lends_seconds: float
    ends_by_seconds: float
    extra_nodes: int = 0
    nodes: frozenset[str] = frozenset()


def lending_offer(estimate: StartEstimate, now: datetime, lent: int = 0) -> LendingOffer | None:
    """Return what a job lends by the estimate of its start; None: that says no time.

    Args:
        estimate: of the job.
        now: by the clock of the estimate.
        lent: how many nodes have been lent since.
    """
    if estimate.time is None:
        return None
    ends_by, until, extra_nodes = estimate.lends or LendingTerms(estimate.time, estimate.time)
    lends_seconds, ends_by_seconds = ((time - now).total_seconds() for time in (until, ends_by))
    return LendingOffer(lends_seconds, ends_by_seconds, max(extra_nodes - lent, 0), estimate.nodes)


_LENDS_NOTHING = LendingOffer(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Lending:
    """What those before a job in the queue lend.

    Attributes:
        offers: of each of them, by name.
        sooner: those that want their nodes back before the job is expected to end.
        lacking: those of them that would then have too few.
    """

    offers: Mapping[str, LendingOffer]
    sooner: frozenset[str]
    lacking: frozenset[str]


class Lenders:
    """The jobs of one plan that nodes are reserved for, or which count on nodes, in the order of the queue."""

    def __init__(self, offers: Mapping[str, LendingOffer]) -> None:
        """`offers` has what jobs lend until they start, by uid, as far as their start is known."""
        self._by_uid = offers
        self._offers: dict[str, LendingOffer] = {}  # by name

    def add(self, job: WaitingJob, free: Iterable[str]) -> None:
        """Let the next job of the queue lend these nodes, which are reserved for it, besides those of its offer."""
        offer = self._by_uid.get(job.job_uid, _LENDS_NOTHING)
        self._offers[job.name] = offer._replace(nodes=offer.nodes.union(free))

    def request_of(self, job: WaitingJob) -> Request | None:
        """Return the request of a job that takes no node of those that do not lend to it; None: none of those before
        it lends."""
        lending = self._lending(job)
        if len(lending.lacking) == len(lending.offers):
            return None
        avoid = dict(job.request.needs.avoid)
        for name, offer in lending.offers.items():
            if name in lending.lacking:
                avoid |= dict.fromkeys(offer.nodes, reserved_refusal(name))
        return replace(job.request, needs=replace(job.request.needs, avoid=avoid))

    def lend(self, job: WaitingJob, nodes: Collection[str], now: datetime) -> Backfill:
        """Lend these nodes to a job, which waits no longer, and return for how long."""
        lending, seconds = self._lending(job), job.expected_seconds or 0.0
        del self._offers[job.name]
        by_lender = Counter(name for name, offer in lending.offers.items() for node in nodes if node in offer.nodes)
        lent_seconds = min(seconds, MAX_LENT_SECONDS, *(lending.offers[name].lends_seconds for name in by_lender))
        besides = by_lender.keys() & lending.sooner
        for name in besides:
            left = lending.offers[name].extra_nodes - by_lender[name]
            self._offers[name] = lending.offers[name]._replace(extra_nodes=left)
        return Backfill(seconds, now + timedelta(seconds=lent_seconds), leaves_enough=bool(besides))

    def _lending(self, job: WaitingJob) -> _Lending:
        seconds = job.expected_seconds or 0.0
        offers = dict(itertools.takewhile(lambda lender: lender[0] != job.name, self._offers.items()))
        sooner = frozenset(name for name, offer in offers.items() if offer.ends_by_seconds < seconds)
        return _Lending(offers, sooner, frozenset(name for name in sooner if offers[name].extra_nodes < job.needs))
