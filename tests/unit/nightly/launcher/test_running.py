"""All cases of how ranks start, of which the gate has one each."""

from __future__ import annotations

import pytest
from tests.unit.launcher.real_launchers import (
    a_command_that_cannot_start_is_a_failed_rank,
    a_pipe_is_replaced_and_no_link_is_written_through,
    composer_finds_this_link,
    megatron_finds_this_tracker,
)


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [("/no/such/program", 127, "No such file"), ("/etc/passwd", 126, "Permission denied")],
    ids=["missing", "not executable"],
)
def test_a_command_that_cannot_start_is_a_failed_rank(coordinator, launch, command, code, text):
    a_command_that_cannot_start_is_a_failed_rank(coordinator, launch, command, code, text)


@pytest.mark.parametrize(("before", "after"), [("", "40"), ("30", "30"), (None, None)])
def test_a_tracker_by_which_megatron_would_end_is_mended_and_no_other(
    coordinator, run_python, until, tmp_path, before, after
):
    megatron_finds_this_tracker(coordinator, run_python, until, tmp_path, before, after)


@pytest.mark.parametrize(("before", "after"), [("ep1-ba80-rank0.pt", "ep1-ba40-rank0.pt"), (None, None)])
def test_the_link_that_composer_follows_leads_to_the_checkpoint_where_there_is_one(
    coordinator, run_python, until, tmp_path, before, after
):
    composer_finds_this_link(coordinator, run_python, until, tmp_path, before, after)


@pytest.mark.parametrize(("preset", "name"), [("DeepSpeed", "global_step40"), ("Megatron", "iter_0000040")])
def test_a_pipe_in_the_place_of_that_file_is_replaced(coordinator, run_python, until, tmp_path, preset, name):
    a_pipe_is_replaced_and_no_link_is_written_through(coordinator, run_python, until, tmp_path, preset, name)
