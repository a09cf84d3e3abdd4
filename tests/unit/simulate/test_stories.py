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
# Most are left to nightly/: with the defect put back this unit test of the gate fails as well.
SHOWN_BY = {
    "age-alone": "queueing/test_queue.py::test_reservation",
    "any-list": "kube/test_informer.py::test_a_list_names_no_version_which_means_the_newest",
    "by-phase": "recovery/test_waits.py::test_does_not_hide_a_death",
    "charged-twice": "record/test_incidents.py::test_those_that_follow_at_once_are_part_of_the_same_incident",
    "closed-set": "launcher/test_cut_off.py::test_who_asks_for_news_gets_it",
    "created-for-nobody": (
        "controller/test_perform.py::test_a_pod_whose_job_goes_while_it_is_created_takes_its_node_for_a_minute"
    ),
    "culprit-again": "lifecycle/test_scenarios.py::test_a_pod_that_does_not_terminate_costs_the_node",
    "drain-for-ever": "lifecycle/test_scenarios.py::test_without_another_node_the_job_stops_in_time_saved_and_waits",
    "fenced": "record/test_incidents.py::test_who_fell_because_others_had_been_fenced_is_not_the_program",
    "first-follows": "goodput/test_account.py::test_a_return_to_before_the_first_step_counts_alike_at_any_later_step",
    "forgotten-resume": "checkpoints/test_resume.py::test_one_that_starts_from_zero_is_stopped_once",
    "given-up": "simulate/test_checks.py::test_a_rank_starts_on_another_node_than_one_for_which_sigkill_waits",
    "held-for-ever": "lifecycle/test_holding.py::test_it_lasts_by_a_clock_that_can_be_right",
    "leave-for-ever": "lifecycle/test_scenarios.py::test_or_for_the_deadline",
    "leave-unsaid": "status/test_job_status.py::test_an_evacuation_without_a_place_says_so_and_no_deadline",
    "listed-wins": "checkpoints/test_resume.py::test_what_is_gone_for_everybody_was_removed_by_somebody",
    "marker-is-enough": (
        "checkpoints/test_resume.py::test_what_all_judges_find_torn_is_gone_though_others_see_its_marker"
    ),
    "nanoseconds": "checkpoint/test_dcp.py::test_a_shard_stamped_by_a_clock_that_is_a_little_ahead",
    "never-named": "lifecycle/test_waiting_and_binding.py::test_whose_pod_does_not_come_to_run_is_said_after_a_minute",
    "never-refunded": "recovery/test_budgets.py::test_a_checkpoint_beyond_the_failing_step_refills",
    "nothing-reserved": "queueing/test_queue.py::test_reservation",
    "old-refund": "recovery/test_budgets.py::test_a_checkpoint_that_was_there_before_refunds_nothing",
    "oldest-common": "checkpoints/test_resume.py::test_a_worker_that_does_not_see_the_newest_stops_the_start",
    "plain-unfenced": (
        "fencing/test_survivors.py::test_a_pod_that_was_force_deleted_on_a_node_that_is_cut_off_is_waited_for"
    ),
    "second-counted-twice": (
        "decision/test_accounted.py::test_a_record_with_its_go_counts_each_millisecond_until_then_once"
    ),
    "short-fence": "fencing/test_survivors.py::test_the_fence_file_waits_longer_for_a_longer_fence",
    "start-forgotten": (
        "launcher/test_starting.py::test_a_worker_is_not_idle_before_what_was_started_has_come_up_and_was_ended"
    ),
    "terminating-is-gone": (
        "controller/test_cluster.py::test_a_pod_that_is_being_deleted_holds_its_node_until_it_is_gone"
    ),
    "torn-ones-hide": "checkpoints/test_resume.py::test_a_listing_that_is_full_of_torn_ones_hides_nothing",
    "unbound-is-nowhere": "kube/test_decode.py::test_where_a_pod_may_be_bound_is_known_before_it_is",
    "unfenced-workers-forgotten": (
        "fencing/test_survivors.py::test_an_earlier_unfenced_worker_is_fenced_once_its_gang_has_gone_on"
    ),
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
