"""A job's life as a strip: what the status bears out, in order, without gaps."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.page.conftest import HOUR, NOW, a_job, a_life, before

from muster.page.life import life


def kinds(**status: Any) -> list[tuple[str, float]]:
    """What was for how many hours."""
    found = life(a_job("ours", **status), NOW)
    assert found is not None
    return [(each.kind, (each.end - each.begin).total_seconds() / HOUR) for each in found.stretches]


def test_each_incident_is_where_it_was() -> None:
    assert kinds(**a_life("gpu-1")) == [
        ("queued", 1),
        ("starting", 1),
        ("training", 44),
        ("lostWork", 4),
        ("undetected", 1),
        ("recovering", 3),
        ("training", 26),
        ("recovering", 0.5),
        ("training", 19.5),
    ]


def test_a_job_that_waits_has_waited_all_the_time() -> None:
    assert kinds(state="Pending") == [("queued", 100)]


def test_a_job_that_is_stalled_says_so_at_its_end() -> None:
    stands = {"type": "Stalled", "status": "True", "reason": "Budget", "lastTransitionTime": before(2 * HOUR)}
    assert kinds(**a_life(state="Stalled", conditions=[stands]))[-1] == ("stalled", 2)


def test_a_hold_is_not_time_in_which_nothing_was_seen() -> None:
    status = a_life("gpu-1")
    status["incidents"][0]["heldSeconds"] = HOUR // 2
    assert kinds(**status)[3:7] == [("lostWork", 4), ("undetected", 0.5), ("held", 0.5), ("recovering", 3)]
    stands = {"type": "Running", "status": "False", "reason": "FailureHeld", "lastTransitionTime": before(2 * HOUR)}
    assert kinds(**a_life(state="Held", conditions=[stands]))[-1] == ("held", 2)


def a_condition(kind: str, status: str, hours_ago: float) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "X", "lastTransitionTime": before(hours_ago * HOUR)}


def test_a_suspension_that_is_over_is_no_training() -> None:
    seconds = {"queued": HOUR, "compute": 60 * HOUR, "suspended": 30 * HOUR, "requeued": 8 * HOUR, "restarting": HOUR}
    goodput = {"creationTime": before(100 * HOUR), "countedUntil": before(0), "seconds": seconds}
    conditions = [a_condition("Suspended", "False", 40), a_condition("Running", "True", 31)]
    drawn = [("queued", 1), ("training", 29), ("suspended", 30), ("starting", 9), ("training", 31)]
    assert kinds(state="Running", goodput=goodput, conditions=conditions) == drawn
    # After a failure since then the ranks run since its repair, not since the resumption.
    times = {"attempt": 2, "time": before(20 * HOUR), "resumedTime": before(19 * HOUR)}
    failed = {**times, "level": "R0", "faultClass": "Application", "reason": "RankExited"}
    conditions = [a_condition("Suspended", "False", 40), a_condition("Running", "True", 19)]
    drawn = [("queued", 1), ("training", 29), ("suspended", 30), ("training", 20), ("recovering", 1), ("training", 19)]
    assert kinds(state="Running", goodput=goodput, conditions=conditions, incidents=[failed]) == drawn
    # Who was never suspended has such a condition, too.
    goodput["seconds"] = {"queued": HOUR, "compute": 99 * HOUR}
    assert kinds(state="Running", goodput=goodput, conditions=conditions[:1]) == [("queued", 1), ("training", 99)]


def test_an_ended_job_ends_when_it_ended() -> None:
    ended = {"result": "Failed", "reason": "Budget", "time": before(10 * HOUR), "attempt": 3}
    assert sum(hours for _, hours in kinds(**a_life(state="Failed", completion=ended))) == 90


def test_marks_are_where_things_happened_and_those_outside_of_its_life_are_left_out() -> None:
    odd = a_life("gpu-1")
    odd["checkpoint"]["saves"].append({"step": 5, "time": before(200 * HOUR)})
    found = life(a_job("ours", **odd), NOW)
    assert found is not None
    times = [mark.time for mark in found.marks]
    assert times == sorted(times)
    assert all(found.begin <= time <= found.end for time in times)
    assert [mark.kind for mark in found.marks if mark.kind != "checkpoint"] == ["failure", "planned"]
    assert len(found.marks) == 2 + 9


moments = st.integers(-200 * HOUR, 200 * HOUR).map(lambda seconds: (NOW - timedelta(seconds=seconds)).isoformat())
incidents = st.fixed_dictionaries(
    {
        "attempt": st.integers(0, 9),
        "time": moments,
        "level": st.just("R0"),
        "faultClass": st.sampled_from(["Hardware", "Planned"]),
        "reason": st.just("X"),
    },
    optional={"faultTime": moments, "resumedTime": moments, "lostSeconds": st.integers(0, 2**53 - 1)},
)


@given(
    st.lists(incidents, max_size=16),
    st.sampled_from(["Running", "Pending", "Stalled", "Suspended", "Recovering", "Starting", "Succeeded", ""]),
    moments,
    st.dictionaries(st.sampled_from(["queued", "starting", "suspended", "compute"]), st.integers(0, 2**53 - 1)),
)
def test_whatever_the_clocks_say_the_strip_is_whole(
    known: list[Any], state: str, begun: str, seconds: dict[str, int]
) -> None:
    goodput = {"creationTime": begun, "countedUntil": before(0), "seconds": seconds}
    since = {"type": "X", "status": "True", "reason": "X", "lastTransitionTime": begun}
    resumed = {**since, "type": "Suspended", "status": "False"}
    conditions = [since, resumed, {**since, "type": "Running"}]
    found = life(a_job("ours", state=state, incidents=known, goodput=goodput, conditions=conditions), NOW)
    assert found is not None
    assert found.begin <= found.end
    if found.stretches:
        assert (found.stretches[0].begin, found.stretches[-1].end) == (found.begin, found.end)
    else:
        assert found.begin == found.end
    assert all(each.begin < each.end for each in found.stretches)
    assert all(one.end == other.begin and one.kind != other.kind for one, other in pairwise(found.stretches))
