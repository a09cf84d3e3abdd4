"""Where the ranks of a hung attempt stood: in groups, bounded, and the few that stand elsewhere as a suspicion."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, an_incident, an_unfenced_worker, at, idle, running

from muster.api.gang import FaultClass, GangSpec
from muster.lifecycle.commit import leftovers
from muster.protocol.messages import IDLE, RECLAIMING, StackReport
from muster.record import incidents
from muster.recovery.failure import Kind
from muster.recovery.stacks import is_printing, stacks_of
from muster.world.job import JobWorld

REDUCE = "torch/distributed/c10d.py:2501 in all_reduce\n/code/train.py:88 in main"
LOAD = "/code/data.py:12 in load\n/code/train.py:80 in main"


def world(*stacks: tuple[str, str], per_worker: int = 1, attempt: int = 1) -> JobWorld:
    """A gang whose ranks stood there; each is frames and problem."""
    nodes = len(stacks) // per_worker
    here = Scene(a_job(nodes=nodes)).fleet(nodes).gang(2).pods()
    for index in range(nodes):
        mine = range(index * per_worker, (index + 1) * per_worker)
        told = tuple(StackReport(rank, *stacks[rank]) for rank in mine)
        here.launcher(index, replace(idle(2), stacks=told, stacks_attempt=attempt))
    return here.world()


def test_the_few_that_stand_elsewhere_are_named_as_a_suspicion() -> None:
    stood = [(REDUCE, "")] * 16
    stood[3] = LOAD, ""
    groups, summary = stacks_of(world(*stood, per_worker=2), 1)
    assert summary == (
        "rank 3 (worker 1) stands elsewhere than the 15 others: data.py:12 in load (a suspicion, no proof)"
    )
    assert [(group.ranks, group.count, group.stack) for group in groups] == [
        ("0-2, 4-15", 15, REDUCE),
        ("3", 1, LOAD),
    ]


def test_a_rank_without_a_stack_stands_elsewhere_than_those_that_have_one() -> None:
    stuck = "", "it has not printed its stack within 1 s (state D (disk sleep), waits in nfs_wait)"
    groups, summary = stacks_of(world((REDUCE, ""), (REDUCE, ""), stuck), 1)
    assert summary.startswith("rank 2 (worker 2) stands elsewhere than the 2 others: no stack: it has not printed")
    assert groups[1].problem == stuck[1]


@pytest.mark.parametrize(
    ("stood", "summary"),
    [
        ([REDUCE] * 3, "all 3 ranks stood at c10d.py:2501 in all_reduce"),
        ([LOAD], "rank 0 (worker 0) stood at data.py:12 in load"),
        (
            [REDUCE, LOAD],
            "rank 0 (worker 0) stood at c10d.py:2501 in all_reduce; rank 1 (worker 1) stood at data.py:12 in load",
        ),
        (
            [REDUCE] * 3 + [LOAD] * 3,
            "the 6 ranks stood at 2 places, 3 of them at c10d.py:2501 in all_reduce",
        ),
        (
            [REDUCE] * 6 + [LOAD, "/code/a.py:1 in save"],
            "2 ranks stand elsewhere than the 6 others: rank 6 (worker 6) at data.py:12 in load; rank 7 (worker 7) at "
            "a.py:1 in save (a suspicion, no proof)",
        ),
    ],
    ids=["all at one place", "a gang of one", "one and one", "half and half", "two"],
)
def test_only_a_clear_minority_is_suspected(stood: list[str], summary: str) -> None:
    assert stacks_of(world(*((frames, "") for frames in stood)), 1)[1] == summary


def test_stacks_of_another_attempt_do_not_count() -> None:
    assert stacks_of(world((REDUCE, ""), attempt=3), 1) == ([], "")


@pytest.mark.parametrize(
    ("changes", "seconds", "prints"),
    [
        ({}, 1.0, True),
        ({"state": RECLAIMING}, 1.0, True),
        ({"state": RECLAIMING, "stacks_attempt": 1}, 1.0, False),
        ({"state": IDLE}, 1.0, False),
        ({"heard_age_seconds": 60.0}, 1.0, False),
        ({"attempt": 2}, 1.0, False),
        ({}, 60.0, False),
    ],
    ids=["not yet", "while they do", "they have", "ended", "silent", "ranks of another attempt", "never"],
)
def test_the_pod_of_a_hung_rank_is_kept_until_it_has_printed_its_stack(
    changes: dict[str, Any], seconds: float, prints: bool
) -> None:
    here = Scene(a_job()).fleet().gang(2, go=False, incidents=[an_incident(1, reason=Kind.HANG)])
    here.pod(0).launcher(0, replace(running(1, 7), **changes)).but(attempt_age_seconds=seconds)
    assert here.record is not None
    newer = [member.model_copy(update={"incarnation": 2}) for member in here.record.members]
    here.record = here.record.model_copy(update={"members": newer})
    assert is_printing(here.world(), here.uid(0)) is prints
    assert (leftovers(here.world()) == ()) is prints


def test_the_pod_of_a_rank_that_failed_is_not_kept() -> None:
    here = Scene(a_job()).fleet().gang(2, go=False, incidents=[an_incident(1)]).pod(0).launcher(0, running(1, 7))
    assert not is_printing(here.but(attempt_age_seconds=1.0).world(), here.uid(0))


def test_stacks_of_a_pod_that_was_replaced_and_is_gone_count() -> None:
    here = Scene(a_job(nodes=1)).fleet(1)
    former = an_unfenced_worker("gone", 30.0).model_copy(update={"pod": "job-1a2b3-0-1"})
    here.gang(2, go=False, unfenced_workers=[former])
    here.launchers["gone"] = replace(idle(1), stacks=(StackReport(0, LOAD),), stacks_attempt=1)
    assert stacks_of(here.world(), 1)[1] == "rank 0 (worker 0) stood at data.py:12 in load"


def test_many_places_are_kept_in_part_with_the_largest() -> None:
    stood = [(REDUCE, "")] * 3 + [(f"/a.py:{number} in f", "") for number in range(20)]
    groups, summary = stacks_of(world(*stood), 1)
    assert len(groups) == 8
    assert groups[0].count == 3
    assert groups[-1].ranks == "22"
    assert summary.startswith("the 23 ranks stood at 21 places")


def settled(world: JobWorld, **changes: object) -> GangSpec:
    """The record once the blame of its last incident is final."""
    assert world.gang is not None
    fields = {"fault_class": FaultClass.UNKNOWN, "reason": Kind.HANG, "time": at(90.0), "message": "no step", **changes}
    spec = world.gang.spec.model_copy(update={"incidents": [an_incident(1, **fields)]})
    gang = world.gang.model_copy(update={"spec": spec})
    return incidents.with_incidents_settled(replace(world, gang=gang), gang)


def test_an_incident_says_where_its_ranks_stood_and_names_no_node_for_it() -> None:
    record = settled(world((REDUCE, ""), (REDUCE, ""), (LOAD, "")), node="", index=None)
    (incident,) = record.incidents
    assert [group.count for group in incident.stacks] == [2, 1]
    assert incident.message.startswith("no step; rank 2 (worker 2) stands elsewhere than the 2 others: data.py:12")
    assert (incident.node, incident.index, incident.fault_class) == ("", None, FaultClass.UNKNOWN)


def test_another_failure_has_no_stacks() -> None:
    (incident,) = settled(world((REDUCE, "")), reason=Kind.RANK_FAILED).incidents
    assert (incident.stacks, incident.message) == ([], "no step")


def test_stacks_of_the_newest_hangs_alone_are_kept() -> None:
    groups, _ = stacks_of(world((REDUCE, "")), 1)
    hangs = [an_incident(n, reason=Kind.HANG, stacks=groups) for n in range(4)]
    assert [bool(each.stacks) for each in incidents._without_old_stacks(hangs)] == [False, False, True, True]


def test_a_hang_after_which_ranks_have_started_gets_no_stacks_of_later_ones() -> None:
    (incident,) = settled(world((REDUCE, "")), resumed_step=7).incidents
    assert (incident.stacks, incident.message) == ([], "no step")
