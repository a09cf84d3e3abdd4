"""What launchers tell, as the account takes it."""

from dataclasses import replace

import pytest
from tests.unit.goodput.test_account import trains

from muster.goodput.evidence import told_now
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
    saved = tuple(CheckpointReport(step, f"/ckpt/{step}", judged=True) for step in steps)
    scene.all(replace(next(iter(scene.launchers.values())), checkpoints=saved))
    assert scene.record is not None
    seen = told_now(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert seen.checkpoint_steps == want


def test_what_any_rank_prints_beside_its_steps_is_told() -> None:
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(view)
    last = max(scene.launchers)
    scene.launchers[last] = replace(view, printed_loss="2.31\x1b[31m", printed_tokens=7104.4)
    assert scene.record is not None
    seen = told_now(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.loss, seen.tokens_per_gpu_second) == ("2.31 [31m", 7104)


@pytest.mark.parametrize("tokens", [None, float("nan"), float("inf"), -1.0])
def test_what_is_no_number_of_tokens_is_none(tokens: float | None) -> None:
    scene = trains(now=160, step=101)
    scene.all(replace(next(iter(scene.launchers.values())), printed_tokens=tokens))
    assert scene.record is not None
    seen = told_now(scene.world(), scene.record, 110_000)
    assert seen is not None
    assert (seen.loss, seen.tokens_per_gpu_second) == ("", 0)
