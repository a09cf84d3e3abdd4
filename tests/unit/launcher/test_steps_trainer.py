"""The trainer of the end-to-end tests keeps its promises: it fails like gloo, and resumes to the same weights."""

from pathlib import Path

from tests.unit.launcher.steps_trainer import (
    a_failure_ends_all_ranks_and_the_resumed_run_ends_alike,
    wrong_weights_are_saved_and_told_of_once,
)


def test_wrong_weights_are_saved_and_told_of_once(tmp_path: Path) -> None:
    wrong_weights_are_saved_and_told_of_once(tmp_path, 1)


def test_a_failure_ends_all_ranks_and_a_resumed_run_has_the_same_weights(tmp_path: Path) -> None:
    """The weights are those of an undisturbed run."""
    a_failure_ends_all_ranks_and_the_resumed_run_ends_alike(tmp_path, 2)
