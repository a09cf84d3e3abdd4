"""What a reservation that comes to nothing costs: the rule by rows, and its bound over random queues."""

import itertools
from collections import defaultdict
from dataclasses import dataclass

from hypothesis import event, given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_job
from tests.unit.queueing.builders import queue, told, tree, wants

from muster.queueing import explain
from muster.queueing.charges import FIRST_SECONDS, LONGEST_SECONDS, Charges, pause_seconds
from muster.queueing.queue import Waiting, order, plan
from muster.world.turn import Placed

HOUR = FIRST_SECONDS


def test_a_namespace_stands_behind_for_an_hour_then_two_then_four_up_to_a_day() -> None:
    charges, now = Charges(), 0.0
    pauses = []
    for _ in range(7):
        charges.charge("team", now)
        assert charges.charged(now) == {"team"}
        pauses.append(next(s for s in range(0, 10**6, 1800) if not charges.charged(now + s)))
        now += pauses[-1]
    assert pauses == [HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, LONGEST_SECONDS, LONGEST_SECONDS]


def test_what_happens_while_it_stands_behind_is_not_counted() -> None:
    charges = Charges()
    for now in (0.0, 1.0, HOUR - 1):
        charges.charge("team", now)
    assert charges.charged(HOUR) == frozenset()


def test_a_day_after_a_pause_all_is_forgotten() -> None:
    charges = Charges()
    charges.charge("team", 0.0)
    charges.charge("team", HOUR + LONGEST_SECONDS - 1)
    assert charges.charged(HOUR + LONGEST_SECONDS + HOUR) == {"team"}, "twice in a row: two hours"
    charges = Charges()
    charges.charge("team", 0.0)
    charges.charge("team", HOUR + LONGEST_SECONDS)
    assert charges.charged(HOUR + LONGEST_SECONDS + HOUR) == frozenset()


def test_neither_age_nor_priority_helps_but_replacements_go_first() -> None:
    jobs = queue(
        wants("old", 1, namespace="bad", priority=9),
        wants("young", 1, namespace="good", priority=-9),
        wants("hurt", 1, namespace="bad", replacement=True),
    )
    assert [job.name for job in order(jobs, {"bad"})] == ["bad/hurt", "good/young", "bad/old"]


def test_who_stands_behind_is_told_so() -> None:
    jobs = queue(wants("old", 3, namespace="bad"), wants("young", 2, namespace="good"))
    turns = plan(tree("b1/r1:2"), jobs, {}, {}, charged={"bad"})
    assert told({name: turns[f"uid-of-{name}"].answer for name in ("old", "young")}) == {"old": "NeverFits", "young": 2}
    turn = turns["uid-of-old"]
    assert turn.behind_others
    assert "stands behind other namespaces for now" in explain.message(a_job("old", nodes=3), turn)


# The bound, over random queues in which some namespaces' gangs never come to be.

ASSEMBLY = 300.0


@dataclass
class Job:
    waiting: Waiting
    lasts: float
    fails: bool
    again_at: float
    releases: int = 0
    placed_at: float | None = None


@st.composite
def stories(draw: st.DrawFn) -> list[Job]:
    jobs = []
    for number in range(draw(st.integers(2, 8))):
        namespace = draw(st.sampled_from(["bad", "bad", "worse", "good", "fine"]))
        arrives = float(draw(st.integers(0, 30)) * 600)
        waiting = wants(
            f"j{number}",
            draw(st.integers(1, 6)),
            seconds=arrives,
            namespace=namespace,
            priority=draw(st.integers(-1, 1)),
        )
        lasts = float(draw(st.integers(1, 30)) * 600)
        fails = namespace in ("bad", "worse") and draw(st.booleans())
        jobs.append(Job(waiting, ASSEMBLY if fails else lasts, fails, arrives))
    return jobs


class Story:
    """Eight nodes in two blocks, from one event to the next; `passed` has who waited, whose gang that comes to nothing
    got nodes before it meanwhile, and when.
    """

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.charges = Charges()
        self.passed: defaultdict[tuple[str, str], set[float]] = defaultdict(set)
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
            job.placed_at, job.again_at = None, now + min(60.0 * 2 ** (job.releases - 1), HOUR)
            self.charges.charge(job.waiting.namespace, now)
            self._due += [job.again_at, self.charges._charges[job.waiting.namespace].until]

    def _place(self, now: float) -> None:
        fleet = tree("b1/r1:4 b2/r2:4")
        free = iter(sorted(fleet.nodes))
        for uid, needs in ((job.waiting.job_uid, job.waiting.needs) for job in self.jobs if job.placed_at is not None):
            fleet.occupy(("gang", uid), uid, frozenset(itertools.islice(free, needs)))
        queued = {job.waiting.job_uid: job for job in self.jobs if job.placed_at is None and job.again_at <= now}
        charged = self.charges.charged(now)
        line = order([job.waiting for job in queued.values()], charged)
        turns = plan(fleet, line, {}, {}, charged=charged)
        waits = [job for job in line if not isinstance(turns[job.job_uid].answer, Placed)]
        for place, each in enumerate(line):
            if each in waits:
                continue
            job = queued[each.job_uid]
            job.placed_at = now
            self._due.append(now + job.lasts)
            for other in waits if job.fails else ():
                if other.namespace not in {each.namespace, *charged} and line.index(other) > place:
                    self.passed[other.job_uid, each.namespace].add(now)


@given(stories())
def test_who_waits_is_passed_by_reservations_that_come_to_nothing_once_in_a_pause(jobs: list[Job]) -> None:
    """While a job waits, gangs of one other namespace that come to nothing get nodes before it once, then not for an
    hour, then not for two, and so on: whatever their number, age and priority.
    """
    story = Story(jobs)
    story.play()
    for (_, namespace), taken in story.passed.items():
        # What was taken before the first of them gave its nodes back belongs to the same reservation.
        rounds: list[float] = []
        for now in sorted(taken):
            if not rounds or now >= rounds[-1] + ASSEMBLY:
                rounds.append(now)
        event(f"passed {len(rounds)} times")
        for count, (earlier, later) in enumerate(itertools.pairwise(rounds), start=1):
            assert later - (earlier + ASSEMBLY) >= pause_seconds(count), (namespace, rounds)
