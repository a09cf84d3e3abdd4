"""The first job starts no later for those who pass it: random fleets and queues, and ends that are known."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_fleet, a_node, at
from tests.unit.queueing.builders import wants

from muster.placement.parts import at_once
from muster.queueing.ends import EndBasis, JobEnd, RemainingTime
from muster.queueing.lending import lending_offer
from muster.queueing.preemption import Borrower, Preemption, place_of
from muster.queueing.queue import order, plan_steps
from muster.queueing.starts import Ends, start_times
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed, StartEstimate

NOW = at(0)
RACKS, NODES = 3, 4
SECONDS = st.integers(1, 20)


@dataclass
class Case:
    fleet: Fleet
    waiting: list[WaitingJob]
    ends: dict[str, float]  # of holders, in seconds from now
    passed: dict[str, Borrower] = field(default_factory=dict)
    lent: int = 0  # nodes that jobs which have passed hold

    @property
    def preemption(self) -> Preemption:
        return Preemption(dict(self.passed), now=NOW)

    def answers(self, known: Mapping[str, StartEstimate]) -> dict[str, Placed | NotPlaced]:
        """The plan's answers, by uid, where these estimates are known from before the first job has passed."""
        said = {uid: lending_offer(estimate, NOW, self.lent) for uid, estimate in known.items()}
        offers = {uid: offer for uid, offer in said.items() if offer is not None}
        steps = plan_steps(self.fleet, self.waiting, preemption=self.preemption, offers=offers)
        return {step[0]: step[1].answer for step in steps if step is not None}

    def plan(self, known: Mapping[str, StartEstimate]) -> None:
        """Have the jobs take what the plan gives them."""
        answers = self.answers(known)
        for job in list(self.waiting):
            answer, uid = answers[job.job_uid], job.job_uid
            if not isinstance(answer, Placed):
                continue
            self.waiting.remove(job)
            self.fleet.names[uid] = job.name
            self.fleet.occupy(uid, uid, frozenset((*answer.nodes, *answer.spares)))
            self.ends[uid] = job.expected_seconds or 0.0
            if answer.backfill is not None:
                event("passes")
                until = answer.backfill.lent_until
                self.passed[uid] = Borrower(job.name, NOW, place=place_of(job), lent_until=until)
                self.lent += job.needs

    def estimates(self) -> Mapping[str, StartEstimate]:
        """When the waiting jobs start, by uid."""
        lasts = {job.job_uid: job.expected_seconds for job in self.waiting}
        ends = Ends(
            lambda holder: JobEnd(at(self.ends[holder]), EndBasis.EXPECTED, ""),
            lambda uid: RemainingTime(lasts[uid], EndBasis.EXPECTED, ""),
        )
        answers = self.answers({})
        queue = [(job, answers[job.job_uid]) for job in order(self.waiting)]
        return at_once(start_times(self.fleet, queue, ends, self.preemption, NOW))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """One to three large jobs stand before small ones; most nodes are busy."""
    nodes = [a_node(f"r{rack}-{number}", "b1", f"r{rack}") for rack in range(RACKS) for number in range(NODES)]
    busy = draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 5]), min_size=len(nodes), max_size=len(nodes)))
    held = {node.name: {f"h{number}"} for node, number in zip(nodes, busy, strict=True) if number}
    ends = {f"h{number}": float(draw(SECONDS)) for number in range(1, 6)}
    waited = draw(st.sampled_from([timedelta(0), timedelta(days=8)]))
    waiting = []
    for number, large in enumerate([True] * draw(st.integers(1, 3)) + [False] * draw(st.integers(1, 4))):
        required = draw(st.sampled_from([None, "rack"]))
        count = draw(st.integers(3, NODES if required else RACKS * NODES) if large else st.integers(1, 2))
        segment_size = draw(st.sampled_from([1, 1, 2])) if count % 2 == 0 else 1
        job = wants(f"j{number}", count, segment_size=segment_size, required=required, seconds=number)
        waiting.append(replace(job, created=job.created - waited, expected_seconds=float(draw(SECONDS))))
    passed = {}
    for holder in ends:
        until = draw(st.sampled_from([None, None, 0, 1, 5]))
        if until is not None:
            passed[holder] = Borrower(f"default/{holder}", NOW, place=(0, at(99), holder), lent_until=at(until))
    return Case(a_fleet(nodes, holders=held), waiting, ends, passed)


NEVER = NOW + timedelta(days=999)


def times_of(estimate: StartEstimate) -> tuple[datetime, datetime]:
    """When a job starts, and until when it lends nodes."""
    start = estimate.time or NEVER
    return start, estimate.lends.until if estimate.lends else start


@settings(max_examples=300)
@given(cases(), st.integers(0, 3))
def test_the_first_starts_no_later_for_those_who_pass_it(case: Case, late: int) -> None:
    """Two plans go by one estimate; some jobs come before the second."""
    case.plan({})
    if not case.waiting:
        return
    first, late_jobs = order(case.waiting)[0], case.waiting[1:][-late:] if late else []
    case.waiting = [job for job in case.waiting if job not in late_jobs]
    known = case.estimates()
    case.plan(known)
    case.waiting += late_jobs
    case.plan(known)
    assert first in case.waiting
    (then, _), (before, until) = times_of(case.estimates()[first.job_uid]), times_of(known[first.job_uid])
    has_waited_long = NOW - first.created > timedelta(days=7)
    assert then <= (before if has_waited_long else until)
