"""What is kept of the last decisions: the last few of each job, never more than so much in all."""

import itertools

import pytest
from tests.unit.lifecycle.builders import SETTINGS, a_job, a_node, at, in_queue

from muster.controller.keptdecisions import PER_KEY
from muster.controller.keptjobs import NODES_PER_WORKER_VIEW, KeptJobs
from muster.decision.decided import Decided, replay, write
from muster.lifecycle.plan import DeletePod, Plan
from muster.lifecycle.step import decide
from muster.status.report import Announcement, State, StatusReport
from muster.world.fleet import Fleet, KnownAges
from muster.world.job import JobWorld
from muster.world.views import PodView

KEY = ("default", "job")
ACTS = Plan((DeletePod("p", "u"),))
_seconds = itertools.count()


def decided(plan: Plan | None = ACTS, workers: int = 0, fleet: Fleet | None = None, error: str = "") -> Decided:
    pods = {f"p{i}": PodView("default", f"p{i}", f"u{i}", 1) for i in range(workers)}
    return Decided(JobWorld(at(next(_seconds)), a_job(), pods=pods, fleet=fleet or Fleet()), SETTINGS, plan, error)


def times(kept: KeptJobs, key: tuple[str, str] = KEY) -> list[object]:
    return [each.world.now for each in kept.decisions_of(key)]


def test_the_last_decisions_of_a_job_are_kept_the_newest_last() -> None:
    kept, made = KeptJobs(), [decided() for _ in range(PER_KEY + 2)]
    for each in made:
        kept.keep(KEY, each)
    assert times(kept) == [each.world.now for each in made[-PER_KEY:]]
    assert kept.decisions_of(("default", "other")) == []


def waits(state: State = State.PENDING, reason: str = "NoPlace") -> Plan:
    return Plan(status_report=StatusReport(state, reason))


def test_a_long_wait_does_not_drive_out_what_led_to_it() -> None:
    kept, first = KeptJobs(), decided()
    kept.keep(KEY, first)
    for _ in range(10):
        kept.keep(KEY, decided(waits()))
    last = decided(waits())
    kept.keep(KEY, last)
    assert times(kept) == [first.world.now, last.world.now]


@pytest.mark.parametrize(
    "other",
    [
        decided(waits(reason="NoTurn")),
        decided(waits(State.STALLED)),
        decided(Plan(status_report=StatusReport(State.PENDING, "NoPlace"), announcements=(Announcement("A", "b"),))),
        decided(None, error="KeyError: 'x'"),
    ],
    ids=["another reason", "another state", "an Event", "an error"],
)
def test_what_says_something_else_is_another_decision(other: Decided) -> None:
    kept, first, last = KeptJobs(), decided(waits()), decided(waits())
    for each in (first, other, last):
        kept.keep(KEY, each)
    assert times(kept) == [first.world.now, other.world.now, last.world.now]


def test_a_job_that_fails_again_and_again_is_one_decision() -> None:
    kept = KeptJobs()
    for _ in range(5):
        kept.keep(KEY, decided(None, error="KeyError: 'x'"))
    assert len(kept.decisions_of(KEY)) == 1


def test_all_together_are_bounded_and_the_oldest_go_first() -> None:
    kept = KeptJobs(most_worker_views=100)
    for name in "abcdef":
        kept.keep(("ns", name), decided(workers=24))
    assert kept.size <= 100
    assert [name for name in "abcdef" if kept.decisions_of(("ns", name))] == ["c", "d", "e", "f"]


def test_the_newest_is_kept_whatever_its_size() -> None:
    kept = KeptJobs(most_worker_views=100)
    kept.keep(("ns", "small"), decided())
    kept.keep(KEY, decided(workers=500))
    assert (len(kept.decisions_of(KEY)), kept.decisions_of(("ns", "small"))) == (1, [])


def test_a_snapshot_counts_once_for_all_worlds_that_share_it() -> None:
    fleet = Fleet.from_parts({f"n{i}": a_node(f"n{i}") for i in range(10 * NODES_PER_WORKER_VIEW)})
    kept = KeptJobs()
    for name in "abc":
        kept.keep(("ns", name), decided(fleet=fleet.snapshot(KnownAges({}))))
    assert kept.size == 3 + 10
    fleet.put_node(a_node("n1", ready=False))
    kept.keep(("ns", "d"), decided(fleet=fleet.snapshot(KnownAges({}))))
    assert kept.size == 4 + 2 * 10


def test_what_is_dropped_is_not_counted_any_more() -> None:
    kept = KeptJobs(most_worker_views=50)
    fleet = Fleet.from_parts({"n0": a_node("n0")})
    for number in range(200):
        fleet.put_node(a_node("n0", ready=bool(number % 2)))
        kept.keep(("ns", str(number % 7)), decided(workers=number % 5, fleet=fleet.snapshot(KnownAges({}))))
    left = [each.world for name in range(7) for each in kept.decisions_of(("ns", str(name)))]
    snapshots = {id(world.fleet.nodes): len(world.fleet.nodes) for world in left}
    assert kept.size == sum(1 + len(world.pods) for world in left) + sum(snapshots.values()) / NODES_PER_WORKER_VIEW
    assert len(kept._of) <= 7


def test_what_is_kept_can_be_decided_again() -> None:
    world = in_queue(JobWorld(at(0), a_job(nodes=1), fleet=Fleet.from_parts({"n0": a_node("n0")})))[0]
    kept = KeptJobs()
    assert world.holding == {}
    kept.keep(KEY, Decided(world, SETTINGS, decide(world, SETTINGS)))
    (found,) = kept.decisions_of(KEY)
    assert "holding" in vars(world)
    assert "holding" not in vars(found.world), "what was worked out on the way is not kept"
    assert replay(write(found)).same
