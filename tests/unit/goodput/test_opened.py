"""The phase that is still open: closed at the moment of reading, into its bucket, with the accelerators that are
held."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import Scene, a_job, at, idle, running

from muster.api.goodput import LONGEST_MILLISECONDS, Account, Bucket, Goodput, OpenPhase, added
from muster.api.trainingjob import TrainingJob
from muster.goodput.opened import figures_as_of, figures_until
from muster.goodput.status_goodput import goodput_of_status

TOLD = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_goodput(bucket: Bucket = Bucket.UNKNOWN, gpus: int = 16, **values: Any) -> Goodput:
    phase = OpenPhase(bucket=bucket, since=TOLD, gpus=gpus)
    return Goodput(
        creation_time=TOLD - timedelta(hours=1),
        counted_until=TOLD,
        **{"seconds": {"compute": 3600}, "open_phase": phase, **values},
    )


def passed(
    since: timedelta, bucket: Bucket = Bucket.UNKNOWN, gpus: int = 16, state: str = "Running", **values: Any
) -> Goodput:
    """The figures so long after they were counted."""
    return figures_until(a_goodput(bucket, gpus, **values), TOLD + since, state)


@pytest.mark.parametrize(
    ("bucket", "gpus"), [(Bucket.REQUEUED, 8), (Bucket.QUEUED, 0), (Bucket.UNKNOWN, 16), (Bucket.SUSPENDED, 0)]
)
def test_an_open_phase_is_closed_into_its_bucket(bucket: Bucket, gpus: int) -> None:
    found = passed(HOUR, bucket, gpus)
    before = a_goodput().seconds
    assert found.seconds == added(before, {bucket: 3600})
    assert found.gpu_seconds == ({bucket: 3600 * gpus} if gpus else {})
    assert found.counted_until == TOLD + HOUR
    productive, wanted = before.get("compute", 0), sum(found.seconds.values()) - found.seconds.get("suspended", 0)
    assert found.ettr_permille == round(productive * 1000 / wanted)
    assert figures_until(found, TOLD + 2 * HOUR, "Running") == passed(2 * HOUR, bucket, gpus), "in two parts as in one"


def test_ranks_of_which_no_step_was_ever_seen_are_starting_at_first() -> None:
    seconds = {"starting": 60}
    assert passed(timedelta(minutes=9), Bucket.STARTING, seconds=seconds).seconds == {"starting": 600}
    assert passed(timedelta(minutes=11), Bucket.STARTING, seconds=seconds).seconds == {"starting": 60, "unknown": 660}
    waits = passed(timedelta(minutes=11), Bucket.STARTING, state="Starting", seconds=seconds)
    assert waits.seconds == {"starting": 720}, "no rank runs yet"


def test_what_is_told_with_the_next_step_is_not_counted_before() -> None:
    assert passed(timedelta(minutes=2)) == a_goodput()
    slow = {"step_milliseconds": 120_000}
    assert passed(timedelta(minutes=20), **slow) == a_goodput(**slow)
    assert passed(timedelta(minutes=21), **slow) != a_goodput(**slow)
    assert passed(-HOUR) == a_goodput(), "a clock that has gone back"


def test_what_has_ended_goes_no_further() -> None:
    assert passed(HOUR, open_phase=None) == a_goodput(open_phase=None)


@given(
    bucket=st.sampled_from(Bucket),
    gpus=st.integers(0, 16),
    since=st.timedeltas(-HOUR, timedelta(days=36_500)),
    step=st.none() | st.integers(0, LONGEST_MILLISECONDS),
    seconds=st.dictionaries(st.sampled_from(["compute", "queued", "suspended", "unknown"]), st.integers(1, 10**9)),
)
def test_the_sum_is_the_wall_clock_and_never_less(
    bucket: Bucket, gpus: int, since: timedelta, step: int | None, seconds: dict[str, int]
) -> None:
    found = passed(since, bucket, gpus, seconds=seconds, step_milliseconds=step)
    assert sum(found.seconds.values()) - sum(seconds.values()) == (found.counted_until - TOLD).total_seconds()
    assert timedelta(0) <= found.counted_until - TOLD <= max(since, timedelta(0))
    assert sum(found.gpu_seconds.values()) == gpus * (sum(found.seconds.values()) - sum(seconds.values()))


def waits(seconds: float, nodes: int, *, go: bool = False, has_run: bool = True) -> Scene:
    """Three workers, of which so many have a node, at this second; the account goes up to second 50."""
    scene = Scene(a_job(), seconds=seconds).fleet().gang(go=go).pods()
    assert scene.record is not None
    members = [
        member if member.index < nodes else member.model_copy(update={"node": ""}) for member in scene.record.members
    ]
    account = Account(
        creation_time=at(0), counted_until=at(50), milliseconds={"compute": 50_000}, has_run=has_run, has_steps=has_run
    )
    scene.record = scene.record.model_copy(update={"members": members, "account": account})
    return scene


def told_of(scene: Scene, *, suspended: bool = False) -> Goodput | None:
    return goodput_of_status(scene.world(), step=None, ended=False, succeeded=False, suspended=suspended)


@pytest.mark.parametrize(
    ("nodes", "go", "has_run", "suspended", "bucket", "gpus"),
    [
        pytest.param(2, False, True, False, Bucket.REQUEUED, 16, id="waits for one more node"),
        pytest.param(0, False, False, False, Bucket.QUEUED, 0, id="waits for its first"),
        pytest.param(3, False, True, False, Bucket.RESTARTING, 24, id="has its nodes again"),
        pytest.param(3, False, False, False, Bucket.STARTING, 24, id="starts for the first time"),
        pytest.param(3, True, True, False, Bucket.RESTARTING, 24, id="its ranks make no step yet"),
        pytest.param(3, True, False, False, Bucket.STARTING, 24, id="its ranks have made no step yet"),
        pytest.param(0, False, True, True, Bucket.SUSPENDED, 0, id="suspended"),
    ],
)
def test_the_status_publishes_the_open_phase(
    nodes: int, go: bool, has_run: bool, suspended: bool, bucket: Bucket, gpus: int
) -> None:
    found = told_of(waits(60, nodes, go=go, has_run=has_run).all(idle(1)), suspended=suspended)
    assert found is not None
    assert found.open_phase == OpenPhase(bucket=bucket, since=at(50), gpus=gpus)


def test_of_plain_ranks_no_time_is_known() -> None:
    scene = waits(60, 3, go=True, has_run=False)
    scene.job = a_job(launch={"mode": "Plain"})
    found = told_of(scene)
    assert found is not None
    assert found.open_phase == OpenPhase(bucket=Bucket.UNKNOWN, since=at(50), gpus=24)
    assert figures_until(found, at(50 + 180), "Running").seconds == {"compute": 50, "unknown": 180}


def test_nothing_is_written_while_a_phase_lasts_and_one_that_changes_is_closed() -> None:
    scene = waits(60, 2)
    before = told_of(scene)
    status = scene.job.status.model_copy(update={"goodput": before, "attempt": 1})
    scene.job = scene.job.model_copy(update={"status": status})
    scene.seconds = 36_060
    assert told_of(scene) == before

    later = waits(36_060, 3)
    later.job = scene.job
    found = told_of(later)
    assert found is not None
    assert found.seconds == {"compute": 50, "requeued": 36_010}
    assert found.gpu_seconds == {"requeued": 36_010 * 16}
    assert found.open_phase == OpenPhase(bucket=Bucket.RESTARTING, since=at(36_060), gpus=24)


def test_a_suspension_that_is_over_is_not_taken_for_a_wait() -> None:
    scene = waits(60, 0)
    status = scene.job.status.model_copy(update={"goodput": told_of(scene, suspended=True), "attempt": 1})
    scene.job = scene.job.model_copy(update={"status": status})
    scene.seconds = 3650
    found = told_of(scene)
    assert found is not None
    assert found.seconds == {"compute": 50, "suspended": 3600}
    later_on = figures_until(found, at(3650 + 600), "Pending")
    assert later_on.seconds == {"compute": 50, "suspended": 3600, "requeued": 600}


def test_a_job_that_trains_is_counted_up_to_its_newest_step() -> None:
    scene = waits(100, 3, go=True).all(
        running(
            1, 40, first_step=1, started_age_seconds=49, first_step_age_seconds=40, step_age_seconds=1, step_seconds=1.0
        )
    )
    found = told_of(scene)
    assert found is not None
    assert found.counted_until == at(99)
    assert found.open_phase == OpenPhase(bucket=Bucket.UNKNOWN, since=at(99), gpus=24)


@pytest.mark.parametrize(
    ("state", "reason", "since", "generation", "seconds"),
    [
        pytest.param("Pending", "NotSuspended", 0, 1, {"queued": 7200}, id="waits"),
        pytest.param("Pending", "NotSuspended", 0, 4, {"queued": 7200}, id="waits, and was edited"),
        pytest.param("Suspended", "Suspended", 1, 1, {"suspended": 7200}, id="created suspended"),
        pytest.param("Pending", "Resumed", 3600, 2, {"suspended": 3600, "queued": 3600}, id="resumed"),
        pytest.param("Suspended", "Suspended", 3600, 2, {"queued": 3600, "suspended": 3600}, id="suspended"),
        pytest.param("Suspended", "Suspended", 3600, 3, {"unknown": 3600, "suspended": 3600}, id="changed before"),
        pytest.param("Pending", "Resumed", 90_000, 2, {"unknown": 7200}, id="dated by a clock that is ahead"),
        pytest.param("Suspended", "Suspended", -900, 2, {"unknown": 7200}, id="dated by a clock that is behind"),
    ],
)
def test_a_job_that_never_had_nodes_was_queued_and_suspended_one_after_the_other(
    state: str, reason: str, since: int, generation: int, seconds: dict[str, int]
) -> None:
    status = "True" if state == "Suspended" else "False"
    suspended = {"type": "Suspended", "status": status, "reason": reason, "lastTransitionTime": at(since).isoformat()}
    body = a_job().to_json() | {"status": {"state": state, "conditions": [suspended]}}
    body["metadata"] |= {"generation": generation, "creationTimestamp": at(0).isoformat()}
    found = figures_as_of(TrainingJob.model_validate(body), at(7200))
    assert found is not None
    assert (found.seconds, found.gpu_seconds) == (seconds, {})
