"""What a leader has seen of unfenced workers itself: heartbeats without a break, the go of the current attempt."""

from typing import Any

from tests.unit.lifecycle.builders import Scene, a_job, a_node, an_unfenced_worker

from muster.api.gang import Gang
from muster.fencing.ages import BREAK_SECONDS, Beats, UnfencedAges
from muster.world.job import JobWorld


def looked(seen: UnfencedAges, world: JobWorld, beats: Beats, now: float) -> UnfencedAges:
    seen.update(
        world.gang, {pod.uid for pod in world.pods.values() if not pod.terminal}, {"n0": a_node("n0")}, beats, now, now
    )
    return seen


def with_unfenced_worker(attempt: int = 1, **pod: Any) -> Scene:
    """A gang with the unfenced worker of a pod on n0; the pod is as given, or gone."""
    here = Scene(a_job()).fleet().gang(attempt).pods()
    assert here.record is not None
    name, uid = here.world().names[0], here.uid(0)
    unfenced_worker = an_unfenced_worker(uid, 0.0).model_copy(update={"pod": name})
    here.record = here.record.model_copy(update={"unfenced_workers": [unfenced_worker]})
    if pod:
        here.pod(0, **pod)
    else:
        here.pod_views.pop(name)
    return here


def test_a_node_that_sends_no_heartbeats_was_not_there() -> None:
    beats = Beats()
    assert beats.lasting_seconds("n0", 1000.0) == 0.0
    beats.renewed("n0", 1500.0, 1500.0)
    beats.forget("n0")
    beats.renewed("n0", 1500.0 + BREAK_SECONDS, 1520.0)
    assert beats.lasting_seconds("n0", 1000.0) == 0.0, "what a lease before said counts no more"


def test_a_pod_that_is_wanted_is_not_counted_as_removed() -> None:
    for pod, is_removed in (({}, True), ({"phase": "Failed"}, True), ({"phase": "Running"}, False)):
        here = with_unfenced_worker(**pod)
        assert bool(looked(UnfencedAges(), here.world(), Beats(), 1000.0).removed_seconds) is is_removed


def test_a_pod_of_the_same_name_is_another() -> None:
    here = with_unfenced_worker(phase="Running")
    assert here.record is not None
    unfenced_worker = here.record.unfenced_workers[0].model_copy(update={"pod_uid": "before"})
    here.record = here.record.model_copy(update={"unfenced_workers": [unfenced_worker]})
    assert looked(UnfencedAges(), here.world(), Beats(), 1000.0).removed_seconds == {"before": 0.0}


def test_each_go_is_as_old_as_it_was_seen() -> None:
    seen, beats = UnfencedAges(), Beats()
    assert looked(seen, with_unfenced_worker(1).world(), beats, 1000.0).start_age_seconds == 0.0
    assert looked(seen, with_unfenced_worker(1).world(), beats, 1060.0).start_age_seconds == 60.0
    assert looked(seen, with_unfenced_worker(2).world(), beats, 1070.0).start_age_seconds == 0.0


def test_the_go_of_a_record_that_was_made_anew_is_not_the_one_of_before() -> None:
    """Somebody has deleted the Gang, and the status lags: the same number may come again."""
    ages, beats, gang = UnfencedAges(), Beats(), Scene(a_job()).fleet().gang().world().gang

    def go_age(record: Gang | None, now: float) -> float:
        ages.update(record, (), {}, beats, now, 0.0)
        return ages.start_age_seconds

    assert go_age(gang, 0.0) == 0.0
    assert go_age(gang, 40.0) == 40.0
    assert go_age(None, 50.0) == 0.0
    assert go_age(gang, 60.0) == 0.0
    assert go_age(gang, 65.0) == 5.0


def test_a_listing_is_as_old_as_it_was_asked_for_and_the_attempt_no_younger_for_it() -> None:
    seen, beats = UnfencedAges(), Beats()
    here = Scene(a_job()).fleet().gang(2, go=False)
    assert here.record is not None
    looked(seen, here.world(), beats, 1000.0)
    here.record = here.record.model_copy(update={"listing_round": 1})
    looked(seen, here.world(), beats, 1100.0)
    looked(seen, here.world(), beats, 1105.0)
    assert (seen.attempt_age_seconds, seen.listing_age_seconds) == (105.0, 5.0)
    here.gang(3, go=False)
    here.record = here.record.model_copy(update={"listing_round": 1})
    looked(seen, here.world(), beats, 1110.0)
    assert (seen.attempt_age_seconds, seen.listing_age_seconds) == (0.0, 0.0)
