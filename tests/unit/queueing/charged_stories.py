"""Random queues in which some namespaces' gangs never come to be, played from one event to the next, and the bound of
what they cost."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from tests.unit.queueing.builders import tree, wants
from tests.unit.queueing.planned import plan

from muster.queueing.charges import FIRST_SECONDS, JOBS_THAT_PAY_ALONE, LONGEST_SECONDS, Charges, pause_seconds
from muster.queueing.preemption import Preemption
from muster.queueing.queue import order
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import Placed

ASSEMBLY = 300.0


@dataclass
class Job:
    """Attributes:
    anew: it is deleted each time that it comes to nothing, and another one, made long before, comes in its place. It
        takes nodes only while others wait: it could pass nobody else.
    """

    waiting: WaitingJob
    lasts: float
    fails: bool
    again_at: float
    anew: bool = False
    releases: int = 0
    placed_at: float | None = None


def a_job_that(
    name: str, nodes: int, namespace: str, *, fails: bool = False, anew: bool = False, **changes: Any
) -> Job:
    """Attributes of the job in the queue, and how long it keeps its nodes."""
    lasts, arrives = changes.pop("lasts", ASSEMBLY), changes.pop("arrives", 0.0)
    waiting = wants(name, nodes, seconds=arrives, namespace=namespace, **changes)
    return Job(waiting, ASSEMBLY if fails else lasts, fails, arrives, anew)


@st.composite
def stories(draw: st.DrawFn, most_jobs: int = 6) -> list[Job]:
    jobs = []
    for number in range(draw(st.integers(2, most_jobs))):
        namespace = draw(st.sampled_from(["bad", "bad", "worse", "good", "fine"]))
        fails = namespace in ("bad", "worse") and draw(st.booleans())
        jobs.append(
            a_job_that(
                f"j{number}",
                draw(st.integers(1, 6)),
                namespace,
                fails=fails,
                anew=fails and draw(st.booleans()),
                lasts=float(draw(st.integers(1, 30)) * 600),
                arrives=float(draw(st.integers(0, 30)) * 600),
                priority=draw(st.integers(-1, 1)),
            )
        )
    return jobs


class Story:
    """Eight nodes in two blocks, from one event to the next; `passed` has who waited, whose gang that comes to nothing
    got nodes before it meanwhile, and when.
    """

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.charges = Charges()
        self.passed: defaultdict[tuple[str, str], set[tuple[float, str]]] = defaultdict(set)
        self.gave_back: defaultdict[str, dict[str, float]] = defaultdict(dict)  # namespace -> uid -> when first
        self._due = sorted({job.again_at for job in jobs})

    def play(self) -> None:
        while self._due and (now := self._due.pop(0)) < LONGEST_SECONDS:
            self._end(now)
            self._place(now)
            self._due = sorted({at for at in self._due if at > now})

    def _end(self, now: float) -> None:
        for job in [job for job in self.jobs if job.placed_at is not None and job.placed_at + job.lasts <= now]:
            if not job.fails:
                self.jobs.remove(job)
                continue
            job.releases += 1
            job.placed_at, job.again_at = None, now + min(60.0 * 2 ** (job.releases - 1), FIRST_SECONDS)
            namespace, uid = job.waiting.namespace, job.waiting.job_uid
            self.gave_back[namespace].setdefault(uid, now)
            self.charges.charge(namespace, uid, now)
            if job.anew:
                job.waiting, job.again_at = replace(job.waiting, job_uid=f"{uid}'", name=f"{job.waiting.name}'"), now
            paying = (*self.charges._namespaces.values(), *self.charges._jobs[namespace].values())
            self._due += [job.again_at, *(charge.until for charge in paying)]

    def _place(self, now: float) -> None:
        fleet = tree("b1/r1:4 b2/r2:4")
        free = iter(sorted(fleet.nodes))
        for uid, needs in ((job.waiting.job_uid, job.waiting.needs) for job in self.jobs if job.placed_at is not None):
            fleet.occupy(("gang", uid), uid, frozenset(itertools.islice(free, needs)))
        queued = {job.waiting.job_uid: job for job in self.jobs if job.placed_at is None and job.again_at <= now}
        if all(job.anew for job in queued.values()):
            return
        charged = self.charges.charged(now)
        line = order([job.waiting for job in queued.values()], charged)
        turns = plan(fleet, line, preemption=Preemption(charged=charged))
        waits = [job for job in line if not isinstance(turns[job.job_uid].answer, Placed)]
        for place, each in enumerate(line):
            if each in waits:
                continue
            job = queued[each.job_uid]
            job.placed_at = now
            self._due.append(now + job.lasts)
            for other in waits if job.fails else ():
                is_behind = charged.payer(other.namespace, other.job_uid) is not None
                if other.namespace != each.namespace and not is_behind and line.index(other) > place:
                    self.passed[other.job_uid, each.namespace].add((now, each.job_uid))


def rounds_of(times: Iterable[float]) -> list[float]:
    """When gangs got nodes; what was taken before the first of them gave its nodes back belongs to the same time."""
    rounds: list[float] = []
    for now in sorted(times):
        if not rounds or now >= rounds[-1] + ASSEMBLY:
            rounds.append(now)
    return rounds


def passed_once_in_a_pause(jobs: list[Job]) -> list[int]:
    """While a job waits, a gang of another namespace that comes to nothing gets nodes before it once, then not for an
    hour, then not for two, and so on. Once more jobs of that namespace have done it than pay alone, that holds for all
    of them together, whatever their number, age and priority, and though each is deleted and made anew.

    Returns:
        how often each namespace that pays got nodes before a job that waited.
    """
    story, passed = Story(jobs), list[int]()
    story.play()
    for (_, namespace), taken in story.passed.items():
        for uid in {uid for _, uid in taken}:
            rounds = rounds_of(now for now, each in taken if each == uid)
            for count, (earlier, later) in enumerate(itertools.pairwise(rounds), start=1):
                assert later - (earlier + ASSEMBLY) >= pause_seconds(count), (uid, rounds)
        firsts = sorted(story.gave_back[namespace].values())
        if len(firsts) <= JOBS_THAT_PAY_ALONE:
            continue
        began = firsts[JOBS_THAT_PAY_ALONE]
        together = rounds_of(now for now, _ in taken if now >= began)
        passed.append(len(together))
        for count, (earlier, later) in enumerate(itertools.pairwise([began - ASSEMBLY, *together]), start=1):
            assert later - (earlier + ASSEMBLY) >= pause_seconds(count), (namespace, began, together)
        alone = rounds_of(now for now, _ in taken if now < began)
        assert len(alone) <= JOBS_THAT_PAY_ALONE * 5 + 1, "five times in a day for each job that pays alone"
    return passed
