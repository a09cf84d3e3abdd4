"""The happy path: wait, run, steps, exit; and how ranks that fail are told."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from tests.unit.launcher.real_launchers import (
    a_command_that_cannot_start_is_a_failed_rank,
    a_pipe_is_replaced_and_no_link_is_written_through,
    composer_finds_this_link,
    megatron_finds_this_tracker,
)
from tests.unit.reports.corpus import cases

from muster.protocol.messages import EXIT, EXITED, IDLE, RUNNING, TERMINATING

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
STEPS_TO_FILE = """
import json, os, time
for step in range(1, 601):
    with open(os.environ["MUSTER_PROGRESS"], "a") as file:
        file.write(json.dumps({"step": step, "loss": 0.5}) + "\\n")
    time.sleep(0.05)
"""


def test_waits_then_runs_then_exits_with_the_code_it_is_told(coordinator, run_python):
    launcher = run_python("print('hello from the rank')", patient=True)
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 1)
    assert report.ranks == ()
    assert report.address == "127.0.0.1"
    assert report.peer_port > 0
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert (report.attempt, [(k.rank, k.exit_code, k.signal, k.tail) for k in report.ranks]) == (1, [(0, 0, None, "")])
    coordinator.set(kind=EXIT, attempt=1, exit_code=7, reason="all ranks have finished")
    assert launcher.wait() == 7
    assert coordinator.latest.state == TERMINATING
    assert launcher.text == "hello from the rank\n"
    assert "muster: attempt 1: rank 0 of 1 starting, without a checkpoint from Muster\n" in launcher.error_text
    assert "muster: exiting with code 7: all ranks have finished\n" in launcher.error_text


def test_a_rank_that_finds_its_results_wrong_is_told_of_at_once_and_with_its_end(coordinator, run_python):
    launcher = run_python(
        'import os, sys; line = \'{"corruption": "NonFiniteLoss", "foundAt": 24, "lastGood": 20}\\n\';'
        "open(os.environ['MUSTER_PROGRESS'], 'a').write(line * (os.environ['RANK'] == '1')); sys.exit(1)"
    )
    coordinator.run(1, node_count=1, processes_per_node=2)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    told = [(rank.rank, rank.exit_code, rank.corruption, rank.found_at, rank.last_good) for rank in report.ranks]
    assert told == [(0, 1, "", None, None), (1, 1, "NonFiniteLoss", 24, 20)]
    assert "muster: attempt 1: rank 1: it has found NonFiniteLoss at step 24" in launcher.error_text


def test_ranks_see_the_contract_and_torchruns_variables(coordinator, run_python):
    launcher = run_python(
        "import json, os; print(json.dumps(dict(os.environ)))", MUSTER_RESUME_STEP="99", TORCH_NCCL_DUMP_ON_TIMEOUT="0"
    )
    coordinator.run(
        3,
        node_rank=1,
        node_count=2,
        processes_per_node=2,
        master_port=29403,
        resume_path="/ckpt/step-40",
        resume_step=40,
    )
    coordinator.wait_for(lambda r: r.state == EXITED)
    seen = {environment["LOCAL_RANK"]: environment for environment in map(json.loads, launcher.text.splitlines())}
    assert sorted(seen) == ["0", "1"]
    expected = {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "NODE_RANK": "1", "NNODES": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29403", "PET_NNODES": "2", "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "29403", "PET_NPROC_PER_NODE": "2",
        "JAX_COORDINATOR_ADDRESS": "127.0.0.1:29403", "JAX_PROCESS_ID": "3", "JAX_NUM_PROCESSES": "4",
        "JAX_COORDINATOR_IP": "127.0.0.1", "JAX_COORDINATOR_PORT": "29403",
        "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "MUSTER_ATTEMPT": "3", "MUSTER_RESUME_PATH": "/ckpt/step-40", "MUSTER_RESUME_STEP": "40",
    }  # fmt: skip
    assert {name: seen["1"].get(name) for name in expected} == expected
    assert seen["0"]["MUSTER_PROGRESS"] != seen["1"]["MUSTER_PROGRESS"]


def test_a_run_is_started_once_and_an_exited_attempt_stays_exited(coordinator, run_python):
    launcher = run_python("print('started')")
    coordinator.run(1, hold_seconds=0.5)
    coordinator.wait_for(lambda r: r.state == EXITED)
    coordinator.run(1, reason="said again", hold_seconds=0.5)
    seen = coordinator.latest.directive_seen
    coordinator.wait_for(lambda r: r.directive_seen != seen)
    sequence = coordinator.latest.sequence
    coordinator.wait_for(lambda r: r.sequence > sequence and r.state == EXITED)
    assert launcher.text == "started\n"


def test_a_wait_that_arrives_after_the_run_of_the_same_attempt_is_stale(coordinator, run_python):
    run_python(SLEEP)
    coordinator.run(2)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.wait_to_run(2)
    seen = coordinator.latest.directive_seen
    coordinator.wait_for(lambda r: r.directive_seen != seen)
    sequence = coordinator.latest.sequence
    assert coordinator.wait_for(lambda r: r.sequence > sequence + 2).state == RUNNING


def test_an_unknown_directive_keeps_the_state(coordinator, run_python):
    run_python(SLEEP)
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    seen = coordinator.latest.directive_seen
    coordinator.set(kind="Dance", attempt=9)
    sequence = coordinator.wait_for(lambda r: r.directive_seen != seen).sequence
    report = coordinator.wait_for(lambda r: r.sequence > sequence + 2)
    assert (report.state, report.attempt) == (RUNNING, 1)


def test_the_next_attempt_replaces_the_ranks(coordinator, run_python):
    launcher = run_python(
        "import os, time; print('attempt', os.environ['MUSTER_ATTEMPT'], flush=True); time.sleep(600)"
    )
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert report.previous_attempt == 1
    assert [(k.alive, k.signal, k.ended_by_launcher) for k in report.previous_ranks] == [(False, signal.SIGKILL, True)]
    coordinator.run(2)
    coordinator.wait_for(lambda r: r.state == RUNNING and r.attempt == 2)
    coordinator.wait_for(lambda _: "attempt 2" in launcher.text)
    coordinator.run(3)  # without a Wait between
    coordinator.wait_for(lambda r: r.state == RUNNING and r.attempt == 3)


def test_a_torchrun_that_failed_is_told_with_the_rank_that_it_names_and_its_lines(coordinator, launch, until, tmp_path):
    [recorded] = [case for case in cases("first_failures") if str(case) == "torchrun-1"]
    (tmp_path / "printed").write_text(recorded.given)
    (tmp_path / "torchrun").write_text(f"#!/bin/sh\ncat {tmp_path}/printed >&2\nexit 1\n")
    (tmp_path / "torchrun").chmod(0o755)
    launcher = launch("sh", "-c", f"echo begins; {tmp_path}/torchrun train.py")
    coordinator.run(1, node_rank=1, node_count=2)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    [rank] = report.ranks
    assert (rank.rank, rank.exit_code, rank.starter) == (1, 1, "torchrun")
    assert (rank.failed_rank, rank.failed_local_rank, rank.failed_exit_code, rank.failed_signal) == (1, 1, 1, None)
    assert rank.tail.startswith("Traceback (most recent call last):\n")
    assert rank.tail.endswith("\nRuntimeError: shape mismatch in my new attention at step 50")
    assert (
        "muster: attempt 1: torchrun on node 1 of 2 starting, without a checkpoint from Muster\n" in launcher.error_text
    )
    ended = "muster: attempt 1: torchrun on node 1 ended with exit code 1: rank 1 ended with exit code 1\n"
    until(lambda: ended in launcher.error_text, "the launcher's line about the end")  # it may come behind the report


def test_a_failed_rank_is_told_with_code_tail_and_its_neighbour_goes_on(coordinator, run_python):
    run_python(
        "import os, sys, time\n"
        "if os.environ['LOCAL_RANK'] == '1':\n"
        "    sys.exit('ValueError: the loss is not a number')\n"
        "time.sleep(600)"
    )
    coordinator.run(1, processes_per_node=2)
    report = coordinator.wait_for(lambda r: len(r.ranks) == 2 and not r.ranks[1].alive)
    assert report.state == RUNNING
    assert report.ranks[0].alive
    assert (report.ranks[1].exit_code, report.ranks[1].signal) == (1, None)
    assert report.ranks[1].tail == "ValueError: the loss is not a number\n"
    assert report.ranks[1].exited_age_seconds >= 0


def test_a_rank_that_ended_well_reports_its_last_lines_with_a_traceback(coordinator, run_python):
    run_python(
        "import os, sys, traceback\n"
        "print('the end', file=sys.stderr)\n"
        "try:\n"
        "    raise RuntimeError('shape mismatch')\n"
        "except RuntimeError:\n"
        "    traceback.print_exc() if os.environ['LOCAL_RANK'] == '1' else None\n"
    )
    coordinator.run(1, processes_per_node=2)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert [rank.exit_code for rank in report.ranks] == [0, 0]
    assert report.ranks[0].tail == ""
    assert report.ranks[1].tail.endswith("RuntimeError: shape mismatch\n")


def test_a_rank_killed_by_a_signal_is_told_with_the_signal(coordinator, run_python, until):
    launcher = run_python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert (report.ranks[0].exit_code, report.ranks[0].signal) == (None, signal.SIGSEGV)
    assert not report.ranks[0].ended_by_launcher
    until(lambda: "attempt 1: rank 0 was ended by SIGSEGV" in launcher.error_text, "the log")


def test_a_command_that_cannot_start_is_a_failed_rank(coordinator, launch):
    a_command_that_cannot_start_is_a_failed_rank(coordinator, launch, "/no/such/program", 127, "No such file")


def test_references_in_the_command_are_those_of_the_attempt(coordinator, launch):
    tell = "import os, sys; sys.exit(' '.join((*sys.argv[1:], os.environ['ENDPOINT'])))"
    own = {"ENDPOINT": "$(MUSTER_ATTEMPT)!", "MUSTER_REFERRING": '["ENDPOINT"]'}
    launch(sys.executable, "-S", "-c", tell, "$(NODE_RANK)/$(NNODES) $(NOBODY) $$(RANK)", **own)
    for attempt in (1, 2):
        coordinator.run(attempt, node_rank=attempt, node_count=4)
        report = coordinator.wait_for(lambda r, attempt=attempt: r.attempt == attempt and r.state == EXITED)
        assert report.ranks[0].tail.strip() == f"{attempt}/4 $(NOBODY) $(RANK) {attempt}!"


def test_steps_come_from_the_progress_file_while_the_answer_is_held(coordinator, run_python):
    run_python(STEPS_TO_FILE)
    coordinator.run(1)
    first = coordinator.wait_for(lambda r: r.step is not None and r.step_seconds is not None)
    assert first.step_age_seconds >= 0
    assert first.step_seconds > 0
    coordinator.wait_for(lambda r: r.step > first.step)


def test_only_a_start_that_goes_on_gets_the_words_that_resume(coordinator, run_python, until):
    program = "import sys, time; print('words', sys.argv[1:], flush=True); time.sleep(600)"
    words = json.dumps(["--load", "$(MUSTER_RESUME_PATH)", "--step=$(MUSTER_RESUME_STEP)", "$$HOME"])
    launcher = run_python(program, MUSTER_RESUME_ARGUMENT=words)
    coordinator.run(1)
    until(lambda: "words []" in launcher.text, "a start from scratch")
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: (r.state, r.attempt) == (IDLE, 2))
    coordinator.run(2, resume_path="/c/step-40", resume_step=40)
    until(lambda: "words ['--load', '/c/step-40', '--step=40', '$HOME']" in launcher.text, "one that goes on")


def test_a_preset_ends_the_command_of_a_start_that_goes_on(coordinator, run_python, until):
    program = "import sys, time; print('words', sys.argv[1:], flush=True); time.sleep(600)"
    launcher = run_python(program, MUSTER_CHECKPOINT_DIRECTORY="/c")
    coordinator.run(1, resume_preset="Megatron")
    until(lambda: "words []" in launcher.text, "a start from scratch")
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: (r.state, r.attempt) == (IDLE, 2))
    coordinator.run(2, resume_path="/c/iter_0000040", resume_step=40, resume_preset="Megatron")
    until(lambda: "words ['--load', '/c', '--ckpt-step', '40']" in launcher.text, "one that goes on")


def test_a_preset_writes_the_frameworks_pointer_file_before_any_rank_runs(coordinator, run_python, until, tmp_path):
    (tmp_path / "latest").write_text("global_step80")  # incomplete, or of a history that was left behind
    launcher = run_python(
        f"print('says', open({str(tmp_path / 'latest')!r}).read(), flush=True)",
        MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path),
    )
    coordinator.run(1, resume_path=str(tmp_path / "global_step40"), resume_step=40, resume_preset="DeepSpeed")
    until(lambda: "says global_step40" in launcher.text, "the file")
    assert [path.name for path in tmp_path.iterdir() if "latest" in path.name] == ["latest"]


def test_a_tracker_by_which_megatron_would_end_is_mended_before_any_rank_runs(coordinator, run_python, until, tmp_path):
    """It ends with code 0 by an empty one, as if the training were over."""
    megatron_finds_this_tracker(coordinator, run_python, until, tmp_path, "", "40")


def test_the_link_that_composer_follows_leads_to_the_checkpoint_before_any_rank_runs(
    coordinator, run_python, until, tmp_path
):
    composer_finds_this_link(coordinator, run_python, until, tmp_path, "ep1-ba80-rank0.pt", "ep1-ba40-rank0.pt")


def test_a_pipe_in_the_place_of_that_file_is_replaced_and_no_link_is_written_through(
    coordinator, run_python, until, tmp_path
):
    a_pipe_is_replaced_and_no_link_is_written_through(
        coordinator, run_python, until, tmp_path, "DeepSpeed", "global_step40"
    )


def test_ranks_do_not_start_where_that_file_cannot_be_written(coordinator, run_python, tmp_path):
    (tmp_path / "latest").mkdir()
    run_python("print('started', flush=True)", MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path))
    coordinator.run(1, resume_path=str(tmp_path / "global_step40"), resume_step=40, resume_preset="DeepSpeed")
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert "latest" in report.ranks[0].tail
    assert report.ranks[0].exit_code == 126


def test_steps_come_from_the_output(coordinator, run_python):
    run_python(
        "import time\nfor step in range(600): print(f'iter {step} | loss 0.5', flush=True); time.sleep(0.05)",
        MUSTER_STEP_PATTERN=r"iter (\d+) \|",
    )
    coordinator.run(1)
    first = coordinator.wait_for(lambda r: r.step is not None)
    coordinator.wait_for(lambda r: r.step > first.step)


def test_the_end_of_a_rank_is_told_with_the_last_step_that_it_has_printed(coordinator, run_python, tmp_path):
    run_python(
        "import os, time\nprint('iter 1', flush=True)\n"
        "while not os.path.exists(os.path.join(os.environ['TEST_DIRECTORY'], 'end')): time.sleep(0.01)\n"
        "text = ''.join(f'iter {step:<99}\\n' for step in range(2, 501))\n"
        "os.write(1, text.encode()); os._exit(0)",
        MUSTER_STEP_PATTERN=r"iter (\d+)",
    )
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.step == 1)
    (tmp_path / "end").touch()
    coordinator.wait_for(lambda r: r.state == EXITED)
    ends = [item.report for item in coordinator.received if item.report.state == EXITED]
    assert ends[0].step == 500


def test_the_step_is_that_of_the_slowest_local_rank(coordinator, run_python):
    run_python(
        "import os, time\n"
        "with open(os.environ['MUSTER_PROGRESS'], 'a') as file:\n"
        "    step = 7 if os.environ['LOCAL_RANK'] == '0' else 9\n"
        '    file.write(\'not json\\n{"step": "x"}\\n[1]\\n{"step": %d}\\n{"step": 50\' % step)\n'
        "time.sleep(600)"
    )
    coordinator.run(1, processes_per_node=2)
    assert coordinator.wait_for(lambda r: r.step == 7).previous_step is None
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert (report.step, report.previous_attempt, report.previous_step) == (None, 1, 7)


def test_files_of_an_attempt_stay_in_the_directory_of_the_launcher(coordinator, run_python):
    launcher = run_python("import os; print(os.environ['MUSTER_PROGRESS'])")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == EXITED)
    assert Path(launcher.text.strip()).is_relative_to(launcher.directory / "attempt-1")


def test_a_pipe_in_place_of_the_progress_file_holds_up_no_attempt(coordinator, run_python):
    """A wrapper that puts one there, to read the steps itself."""
    run_python(
        "import os, pathlib, time\n"
        "here = pathlib.Path(os.environ['MUSTER_PROGRESS'])\n"
        "for path in (here, pathlib.Path(str(here).replace('attempt-1', 'attempt-2'))):\n"
        "    path.parent.mkdir(exist_ok=True); path.unlink(missing_ok=True); os.mkfifo(path)\n"
        "time.sleep(600)\n"
    )
    coordinator.run(1)
    at = coordinator.wait_for(lambda r: r.state == RUNNING and r.ranks).sequence
    coordinator.wait_for(lambda r: r.sequence > at + 5 and r.loop_age_seconds < 2)
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: (r.state, r.attempt) == (IDLE, 2))
    coordinator.run(2)
    coordinator.wait_for(lambda r: (r.state, r.attempt) == (RUNNING, 2) and r.ranks)
