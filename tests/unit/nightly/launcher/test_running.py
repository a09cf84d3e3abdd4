"""More cases of how ranks start than the gate has."""

from __future__ import annotations

import pytest
from tests.unit.launcher.real_launchers import (
    a_command_that_cannot_start_is_a_failed_rank,
    a_pipe_is_replaced_and_no_link_is_written_through,
    composer_finds_this_link,
    megatron_finds_this_tracker,
)


def test_a_command_that_cannot_start_is_a_failed_rank(coordinator, launch):
    a_command_that_cannot_start_is_a_failed_rank(coordinator, launch, "/etc/passwd", 126, "Permission denied")


@pytest.mark.parametrize("said", ["30", None])
def test_a_tracker_by_which_megatron_does_not_end_is_left(coordinator, run_python, until, tmp_path, said):
    megatron_finds_this_tracker(coordinator, run_python, until, tmp_path, said, said)


def test_where_there_is_no_link_that_composer_follows_none_is_made(coordinator, run_python, until, tmp_path):
    composer_finds_this_link(coordinator, run_python, until, tmp_path, None, None)


def test_a_pipe_in_the_place_of_megatrons_tracker_is_replaced(coordinator, run_python, until, tmp_path):
    a_pipe_is_replaced_and_no_link_is_written_through(
        coordinator, run_python, until, tmp_path, "Megatron", "iter_0000040"
    )
