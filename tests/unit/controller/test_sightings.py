"""How long pods have been as they are, by our own clock."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.unit.clock import Clock

from muster.controller.sightings import Sightings
from muster.world.job import PodAges
from muster.world.views import PodView

POD = PodView("ns", "p", "uid", 1, phase="Pending", created=datetime(1999, 1, 1, tzinfo=UTC))


def test_each_age_counts_from_when_it_was_first_seen_so(clock: Clock) -> None:
    seen, running = Sightings(clock), replace(POD, phase="Running")
    seen.note(None, POD)
    clock.now += 10.0
    assert seen.ages(["uid", "another"]) == {"uid": PodAges(10.0, 0.0, 0.0)}
    seen.note(POD, running)
    clock.now += 10.0
    seen.note(running, replace(running, pod_ip="10.0.0.1"))
    seen.note(running, replace(running, deleting=True))
    clock.now += 10.0
    seen.note(running, replace(running, deleting=True, message="again"))
    assert seen.ages(["uid"]) == {"uid": PodAges(30.0, 20.0, 10.0)}


def test_of_another_pod_of_its_name_nothing_has_been_seen(clock: Clock) -> None:
    seen = Sightings(clock)
    seen.note(None, POD)
    clock.now += 10.0
    seen.note(POD, replace(POD, uid="new"))
    assert seen.ages(["uid", "new"]) == {"new": PodAges()}
    seen.note(replace(POD, uid="new"), None)
    assert seen.ages(["new"]) == {}
