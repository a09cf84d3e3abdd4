"""How long moments are known that lie ahead of the clock on the wall."""

from tests.unit.health.builders import NOW, after

from muster.health.ahead import FutureTimes


def test_what_lies_ahead_is_known_for_as_long_as_the_clock_that_only_goes_on_says() -> None:
    ahead = FutureTimes()
    assert ahead.ages_of_future_times([after(-5), NOW, after(3600)], NOW, 100.0) == {after(3600): 0.0}
    assert ahead.ages_of_future_times([after(3600), after(7200)], after(-86400), 160.0) == {
        after(3600): 60.0,
        after(7200): 0.0,
    }


def test_what_has_come_or_is_gone_is_forgotten() -> None:
    ahead = FutureTimes()
    ahead.ages_of_future_times([after(60), after(90)], NOW, 0.0)
    assert ahead.ages_of_future_times([after(60)], after(60), 60.0) == {}
    assert ahead.ages_of_future_times([after(60), after(90)], NOW, 61.0) == {after(60): 0.0, after(90): 0.0}
