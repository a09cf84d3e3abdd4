"""Which member causes a failure, and which class of fault pays for it."""

import itertools

import pytest
from tests.unit.lifecycle.builders import an_incident

from muster.api.gang import FaultClass, Level
from muster.recovery import blame
from muster.recovery.failure import TRAITS, Failure, Kind

APPLICATION, INFRASTRUCTURE, UNKNOWN = FaultClass.APPLICATION, FaultClass.INFRASTRUCTURE, FaultClass.UNKNOWN


def a_failure(kind: Kind = Kind.RANK_FAILED, index: int = 0, **changes: object) -> Failure:
    values: dict[str, object] = {"level": Level.IN_PLACE, "node": f"n{index}", "message": "it broke"}
    return Failure(kind=kind, index=index, **(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failures", "index"),
    [
        pytest.param(
            [a_failure(index=0, victim=True, age_seconds=2), a_failure(index=1, age_seconds=1)],
            1,
            id="a victim is not the culprit, though it came first",
        ),
        pytest.param(
            [a_failure(index=0, age_seconds=1), a_failure(index=1, age_seconds=3)], 1, id="the oldest exit caused it"
        ),
        pytest.param(
            [a_failure(index=0, age_seconds=1.0), a_failure(index=1, age_seconds=1.1)],
            0,
            id="within the error bound nobody is first: the lowest index",
        ),
        pytest.param(
            [a_failure(index=0, age_seconds=1.1), a_failure(index=1, age_seconds=1.0, node_fault="ECC errors")],
            1,
            id="within the error bound a sick node goes before the lowest index",
        ),
        pytest.param(
            [a_failure(index=0, age_seconds=1.1), a_failure(index=1, age_seconds=1.0, killed=True)],
            1,
            id="within the error bound what was killed goes before the lowest index",
        ),
        pytest.param(
            [a_failure(index=0, age_seconds=3.0), a_failure(index=1, age_seconds=1.0, killed=True)],
            0,
            id="an earlier moment goes before a signal",
        ),
        pytest.param(
            [a_failure(Kind.POD_ENDED, index=0), a_failure(Kind.POD_ENDED, index=1, killed=True)],
            1,
            id="of pods that have ended the one that was killed",
        ),
        pytest.param(
            [a_failure(index=0, age_seconds=9), a_failure(Kind.POD_DELETED, index=2)], 2, id="a pod outweighs a rank"
        ),
        pytest.param(
            [a_failure(index=1, age_seconds=9), a_failure(Kind.POD_DELETED, index=0, age_seconds=3, dated=True)],
            1,
            id="an exception of its own goes before a pod that was deleted later",
        ),
        pytest.param(
            [a_failure(index=1, age_seconds=9), a_failure(Kind.POD_DELETED, index=0, age_seconds=8.5, dated=True)],
            0,
            id="a pod that was deleted in the same moment outweighs a rank",
        ),
        pytest.param(
            [
                a_failure(index=1, age_seconds=9, victim=True),
                a_failure(index=2, age_seconds=9, signal=9, killed=True),
                a_failure(Kind.POD_DELETED, index=0, age_seconds=3, dated=True),
            ],
            0,
            id="no victim and nothing that was killed goes before a pod that was deleted later",
        ),
        pytest.param(
            [a_failure(index=1, age_seconds=9), a_failure(Kind.EVICTED, index=0)],
            0,
            id="an eviction outweighs a rank that ended while the evicted pod was being stopped",
        ),
        pytest.param(
            [a_failure(Kind.POD_ENDED, index=0), a_failure(Kind.NODE_UNREACHABLE, index=1)],
            1,
            id="a node outweighs a pod",
        ),
    ],
)
def test_culprit(failures: list[Failure], index: int) -> None:
    """In whatever order they are heard."""
    for order in itertools.permutations(failures):
        assert blame.culprit(order).index == index


def test_every_kind_has_its_traits() -> None:
    assert set(Kind) - set(TRAITS) == set(), "each needs a row of TRAITS in operator/muster/recovery/failure.py"
    for kind in Kind:
        assert blame.culprit([a_failure(kind)]).kind is kind
        assert blame.fault_class(a_failure(kind)) in FaultClass


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (a_failure(exit_code=1), APPLICATION),
        (a_failure(Kind.CORRUPTION), APPLICATION),
        (a_failure(Kind.CORRUPTION, node_fault="ECC errors"), FaultClass.HARDWARE),
        (a_failure(signal=9, killed=True), UNKNOWN),
        (a_failure(exit_code=137, killed=True), UNKNOWN),
        (a_failure(signal=11), APPLICATION),
        (a_failure(victim=True, exit_code=1), UNKNOWN),
        (a_failure(Kind.OUT_OF_MEMORY), APPLICATION),
        (a_failure(Kind.POD_DELETED), INFRASTRUCTURE),
        (a_failure(Kind.NODE_UNREACHABLE), INFRASTRUCTURE),
    ],
)
def test_class(failure: Failure, expected: FaultClass) -> None:
    assert blame.fault_class(failure) is expected


def test_victims_alone_wait_for_their_culprit_but_not_for_ever() -> None:
    assert blame.gathering_seconds([a_failure(victim=True, age_seconds=0.25)]) == 0.75
    assert blame.gathering_seconds([a_failure(victim=True, age_seconds=5)]) == 0
    assert blame.gathering_seconds([a_failure(victim=True), a_failure(index=1)]) == 0


def test_late_evidence_upgrades_what_no_start_has_come_between() -> None:
    before = [an_incident(2), an_incident(5, UNKNOWN), an_incident(6, FaultClass.PLANNED)]
    after = blame.upgrade(before, 5, INFRASTRUCTURE, "NodeUnreachable", "n1")
    assert [incident.fault_class for incident in after] == [APPLICATION, INFRASTRUCTURE, FaultClass.PLANNED]
    assert "follows from NodeUnreachable on n1" in after[1].message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"settled": True, "own_exception": True}, APPLICATION),
        ({"settled": False, "own_exception": True}, INFRASTRUCTURE),
        ({"settled": True, "own_exception": False}, INFRASTRUCTURE),
    ],
)
def test_what_the_program_raised_is_its_own_once_that_is_settled(
    changes: dict[str, object], expected: FaultClass
) -> None:
    before = [an_incident(5).model_copy(update={"fault_class": APPLICATION, **changes})]
    (after,) = blame.upgrade(before, 5, INFRASTRUCTURE, "NodeGone", "n1")
    assert after.fault_class is expected


@pytest.mark.parametrize(
    ("incident", "failure", "takes_over"),
    [
        ({"exit_code": 1}, a_failure(Kind.POD_DELETED, index=1), True),
        ({"exit_code": 1}, a_failure(Kind.NODE_LOST, index=1), True),
        ({"exit_code": 1}, a_failure(Kind.OUT_OF_MEMORY, index=1), True),
        ({"exit_code": 1}, a_failure(Kind.LAUNCHER_SILENT, index=1), False),
        ({"exit_code": 1}, a_failure(Kind.RANK_FAILED, index=1), False),
        ({"exit_code": 1, "fault_class": APPLICATION}, a_failure(Kind.POD_DELETED, index=1), False),
        ({"exit_code": 1, "settled": True}, a_failure(Kind.POD_DELETED, index=1), False),
        ({"exit_code": 1, "reason": "StepTimeout"}, a_failure(Kind.POD_DELETED, index=1), False),
        ({"signal": 9}, a_failure(Kind.POD_DELETED, index=1), False),
        ({"signal": 9}, a_failure(Kind.POD_DELETED, index=0), True),
    ],
)
def test_a_lost_pod_takes_the_place_of_a_rank_that_fell_over_it(
    incident: dict[str, object], failure: Failure, takes_over: bool
) -> None:
    known = {"reason": "RankFailed", "index": 0, "fault_class": UNKNOWN, "settled": False}
    assert blame.is_cause_of(failure, an_incident(5).model_copy(update=known | incident)) is takes_over


def test_an_application_failure_upgrades_nothing() -> None:
    before = [an_incident(5, UNKNOWN)]
    assert blame.upgrade(before, 5, APPLICATION, "RankFailed", "n1") == before
