"""The day on which start times are scored, a short one."""

from simulate.starts import played


def test_starts_are_estimated_and_compared() -> None:
    day = played(2.0, between_seconds=200.0)
    assert len(day.late_seconds) > 1, "jobs wait for others whose end is known"
    assert max(map(abs, day.late_seconds)) < 7200
    assert day.writes < 10 * len(day.jobs)
