"""Stories that once showed a defect. Played again, they violate nothing.

Each is a file in stories/: a seed, faults, and what was violated. tests/unit/nightly/simulate/defects.py puts the
defect back, and the story shows it. A story with `until` ends then: its defect shows itself before, and nightly/ plays
it to its end. Each purpose and object of a life draws from a stream of its own, so that a change
of the sources moves what it touches, and nothing else.
"""

from pathlib import Path

import pytest

from simulate import stories
from simulate.play import Story, play


def told_once() -> dict[str, Story]:
    """Each life with the names of its files: where one has shown two defects, both files tell the same."""
    names: dict[str, list[str]] = {}
    told: dict[str, Story] = {}
    for path in sorted((Path(__file__).parent / "stories").glob("*.json")):
        story = stories.read(path)
        told[repr(story)] = story
        names.setdefault(repr(story), []).append(path.stem)
    return {", ".join(names[key]): story for key, story in told.items()}


KEPT = told_once()
# The longest of them are left to nightly/: with the defect put back this unit test of the gate fails as well.
SHOWN_BY = {
    "age-alone": "queueing/test_queue.py::test_reservation",
    "by-phase": "recovery/test_waits.py::test_does_not_hide_a_death",
    "culprit-again": "lifecycle/test_scenarios.py::test_a_pod_that_does_not_terminate_costs_the_node",
    "drain-for-ever": "lifecycle/test_scenarios.py::test_without_another_node_the_job_stops_in_time_saved_and_waits",
    "leave-for-ever": "lifecycle/test_scenarios.py::test_or_for_the_deadline",
    "leave-unsaid": (
        "lifecycle/test_status.py::"
        "test_a_planned_leave_without_a_place_to_go_to_says_so_and_no_deadline_that_has_passed"
    ),
    "marker-is-enough": "lifecycle/test_resume.py::test_what_all_judges_find_torn_is_gone_though_others_see_its_marker",
    "nothing-reserved": "queueing/test_queue.py::test_reservation",
    "torn-ones-hide": "lifecycle/test_resume.py::test_a_listing_that_is_full_of_torn_ones_hides_nothing",
    "unheard-for-ever": "recovery/test_waits.py::test_costs_its_pod_two_minutes_after_its_container_began",
}
HERE = [name for name in KEPT if not set(name.split(", ")) <= SHOWN_BY.keys()]


@pytest.mark.parametrize("name", HERE)
def test_a_story_violates_nothing(name: str) -> None:
    outcome = play(KEPT[name])
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])


def test_a_story_with_until_is_kept_and_ends_then(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    stories.write(path, Story(1, [], until=40.0))
    outcome = play(stories.read(path))
    assert not outcome.violation, outcome.violation
    assert outcome.seconds == pytest.approx(40.0, abs=1.0)


@pytest.mark.parametrize("story", SHOWN_BY)
def test_what_is_left_to_nightly_is_a_story_and_has_its_test(story: str) -> None:
    assert any(story in name.split(", ") for name in KEPT)
    file, _, test = SHOWN_BY[story].partition("::")
    assert f"def {test}(" in (Path(__file__).parents[1] / file).read_text()
