"""What launchers tell, as the account takes it."""

from dataclasses import replace

import pytest
from tests.unit.goodput.test_account import trains

from muster.answers.job_text import step_text
from muster.answers.reported import report
from muster.goodput.evidence import current_evidence, milliseconds
from muster.goodput.status_goodput import goodput_of_status
from muster.node.launcher.stepclock import StepClock
from muster.protocol.messages import CheckpointReport


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ((10_000, 9_000, 8_000), 1_000),
        ((10_037, 10_000, 9_000, 8_000), 1_000),  # one that was saved out of turn
        ((10_037, 10_000, 9_000), 1_000),
        ((2_000, 1_000), 1_000),
        ((1_000,), 0),
        ((), 0),
    ],
)
def test_checkpoints_are_as_far_apart_as_most_of_them_are(steps: tuple[int, ...], want: int) -> None:
    scene = trains(now=160, step=101)
    saved = tuple(CheckpointReport(step, f"/ckpt/{step}", verified=True) for step in steps)
    scene.all(replace(next(iter(scene.launchers.values())), checkpoints=saved))
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert seen.checkpoint_steps == want


def test_what_any_rank_prints_beside_its_steps_is_told() -> None:
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(view)
    last = max(scene.launchers)
    scene.launchers[last] = replace(
        view, printed_loss="2.31\x1b[31m", printed_tokens=7104.4, printed_tflops=411.2, printed_mfu=0.4158
    )
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.loss, seen.tokens_per_gpu_second) == ("2.31 [31m", 7104)
    assert (seen.gflops_per_gpu, seen.mfu_permille) == (411_200, 416)


@pytest.mark.parametrize(("stride", "wanted"), [(1, 2_500), (10, 1_100)])
def test_one_step_in_ten_is_as_long_as_on_the_slowest_worker_that_shows_single_steps(stride: int, wanted: int) -> None:
    scene = trains(now=160, step=101)
    view = replace(next(iter(scene.launchers.values())), step_p90_seconds=1.1, step_stride=1)
    scene.all(view)
    last = max(scene.launchers)
    scene.launchers[last] = replace(view, step=100, step_p90_seconds=2.5, step_stride=stride)
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.step, seen.step_p90_milliseconds) == (101, wanted)


def test_stalls_of_saves_that_launchers_measured_count_unless_reported() -> None:
    """Of three launchers the one knows of three saves that scans, and it is not the one that prints steps."""
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(view)
    last = max(scene.launchers)
    scene.launchers[last] = replace(view, measured_stall_seconds=7.5, measured_saves=3)
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.reported_milliseconds, seen.measured_saves) == ({"checkpointStall": 7_500}, 3)
    found = goodput_of_status(scene.world(), step=101, ended=False, succeeded=False)
    assert found is not None
    assert (found.checkpoint_stall_milliseconds, found.seconds["checkpointStall"]) == (2_500, 8)
    scene.launchers[last] = replace(view, measured_saves=3)  # saved beside the training
    found = goodput_of_status(scene.world(), step=101, ended=False, succeeded=False)
    assert found is not None
    assert (found.checkpoint_stall_milliseconds, "checkpointStall" in found.seconds) == (0, False)
    scene.launchers[last] = replace(
        view, measured_stall_seconds=7.5, measured_saves=3, checkpoint_stall_seconds=2.0
    )  # the program knows better
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert seen.measured_saves == 0


def test_one_rank_reports_the_stall_of_saves_for_all() -> None:
    """The first rank alone writes checkpointSeconds; the last one has finished a step more."""
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(replace(view, step=100, step_age_seconds=1.0))
    first, *_, last = sorted(scene.launchers)
    scene.launchers[first] = replace(scene.launchers[first], checkpoint_stall_seconds=30.0)
    scene.launchers[last] = view
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.step, seen.reported_milliseconds) == (101, {"checkpointStall": 30_000})


def test_the_checkpoint_interval_is_known_from_ranks_that_print_no_steps() -> None:
    """Megatron-LM's last rank prints. The first three of four workers verify checkpoints."""
    scene = trains(now=160, step=101, nodes=4)
    view = next(iter(scene.launchers.values()))
    listed = tuple(CheckpointReport(step, f"/ckpt/{step}", verified=True) for step in (25, 50, 75, 100))
    silent = replace(view, step=None, step_age_seconds=None, first_step=None, first_step_age_seconds=None)
    first, *_, last = sorted(scene.launchers)
    scene.all(silent)
    scene.launchers[first] = replace(silent, checkpoints=listed)
    scene.launchers[last] = replace(view, checkpoints=listed[:1])  # from before the start
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.step, seen.checkpoint_steps) == (101, 25)


@pytest.mark.parametrize("tokens", [None, float("nan"), float("inf"), -1.0])
def test_what_is_no_number_of_tokens_is_none(tokens: float | None) -> None:
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(replace(view, printed_tokens=tokens, printed_tflops=tokens, printed_mfu=tokens))
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.loss, seen.tokens_per_gpu_second, seen.gflops_per_gpu, seen.mfu_permille) == ("", 0, 0, 0)


def test_of_steps_that_are_printed_ten_at_a_time_none_is_known_alone() -> None:
    """A step takes 5 s, every seventh 15 s. The program prints every tenth."""
    clock, now = StepClock(), 0.0
    for step in range(1, 401):
        now += 15.0 if step % 7 == 0 else 5.0
        if step % 10 == 0:
            clock.add_step(step, now)
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(
        replace(
            view,
            step_seconds=clock.step_seconds(),
            step_p90_seconds=clock.step_p90_seconds(),
            step_stride=clock.stride(),
        )
    )
    found = goodput_of_status(scene.world(), step=101, ended=False, succeeded=False)
    assert found is not None
    assert (found.step_stride, found.step_milliseconds, found.step_p90_milliseconds) == (10, 6000, None)
    assert found.progress is not None
    made = report(scene.job, found)
    assert step_text(made) == "unknown: 10 of them take 60 s, and the program prints no other"
    assert "one in ten" in step_text(made.model_copy(update={"step_stride": 1, "step_p90_seconds": 15.0}))


@pytest.mark.parametrize(
    ("workers", "want"),
    [
        # The loader of the second worker is slow; the first one waits for it in the sum of gradients.
        ([(2.0, 40.0), (40.0, 2.0)], {"inputWait": 40_000, "communication": 2_000}),
        ([(40.0, 2.0), (2.0, 40.0)], {"inputWait": 40_000, "communication": 2_000}),
        # A slow network, and loaders that are all alike.
        ([(3.0, 30.0), (3.0, 31.0)], {"inputWait": 3_000, "communication": 30_000}),
        # The first rank alone tells what sums take.
        ([(0.0, 40.0), (40.0, None)], {"inputWait": 40_000, "communication": 0}),
        ([(None, 12.0), (None, None)], {"communication": 12_000}),
        ([(None, None), (7.0, None)], {"inputWait": 7_000}),
        ([(None, None), (None, None)], {}),
    ],
)
def test_the_slowest_loader_counts_and_waiting_for_it_is_no_communication(
    workers: list[tuple[float | None, float | None]], want: dict[str, int]
) -> None:
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(view)
    for name, (loading, summing) in zip(list(scene.launchers), workers, strict=False):
        scene.launchers[name] = replace(view, input_wait_seconds=loading, communication_seconds=summing)
    assert scene.record is not None
    seen = current_evidence(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert seen.reported_milliseconds == want


def test_seconds_become_the_nearest_millisecond() -> None:
    """Differences of a launcher's clock are a little less than what they are called: 25 steps of 40 ms are no 975
    ms."""
    step_seconds = (1001.0 - 1000.0) / 25 - 1e-9
    assert milliseconds(step_seconds) * 25 == 1000
    assert [milliseconds(seconds) for seconds in (0.0396, 0.0004, 0.0006, None)] == [40, 0, 1, 0]
