"""Attempts that print a single line before they end: what they have made follows from the pace in that line, else it is
unknown."""

import io
from typing import Any

import pytest
from rich.console import Console
from tests.unit.goodput.test_account import broken, counted
from tests.unit.lifecycle.builders import Scene, a_job, at, running

from muster.answers.job_text import UNTIMED, step_text
from muster.answers.reported import report
from muster.api.gang import AttemptStart, GangSpec, Resume
from muster.api.goodput import Account
from muster.cli.report import render
from muster.goodput.account import with_account
from muster.goodput.figures import KeptWork, figures, progress_share
from muster.goodput.status_goodput import goodput_of_status
from muster.node.launcher.printed import Reader

ATTEMPTS, STEPS, INTERVAL = 3, 199, 100
LOADS_SECONDS, BETWEEN_SECONDS = 10, 11
MEGATRON = (
    " [2026-08-22 10:00:00.123456] iteration {step:8d}/    1000 | consumed samples:        76800 | elapsed time per "
    "iteration (ms): 1000.0 | learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 2.310000E+00 |"
)
TITAN = (
    "step: {step}  loss:  2.31000  grad_norm:  0.8100  memory: 44.21GiB(55.90%)  tps: 100  tflops: 411.20  mfu: 41.58%"
)
DEEPSPEED = (
    "[2026-08-22 10:00:00,123] [INFO] [logging.py:128:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001], mom=[0.9]"
)


def attempt(record: GangSpec, number: int, line: str, **throughput: int) -> tuple[Scene, int]:
    """An attempt that goes on from a checkpoint 100 steps after the one before and makes 199 steps of a second, one
    line in a hundred."""
    begun = 50 + (number - 1) * (LOADS_SECONDS + STEPS + BETWEEN_SECONDS)
    ends = begun + LOADS_SECONDS + STEPS
    scene = Scene(a_job(checkpoint={"directory": "/ckpt"}, throughput=throughput), seconds=ends).fleet().gang().pods()
    go = AttemptStart(time=at(begun), master_address="10.0.0.1", master_port=20001)
    if number > 1:
        resumed = (number - 1) * INTERVAL
        go = go.model_copy(update={"resume": Resume(step=resumed, path=f"/ckpt/{resumed}")})
    later = Scene(scene.job, seconds=begun).fleet()
    later.record = record
    incidents = [
        each.model_copy(update={"resumed_step": go.resume.step if go.resume else 0}) for each in record.incidents
    ]
    scene.record = with_account(later.world(), record.model_copy(update={"start": go, "incidents": incidents}))
    found = Reader("Auto").read(0, line.format(step=number * INTERVAL).encode())
    assert found is not None
    age = float(STEPS - INTERVAL)
    view = running(
        number,
        found.step,
        first_step=found.step,
        started_age_seconds=float(LOADS_SECONDS + STEPS),
        first_step_age_seconds=age,
        step_age_seconds=age,
        printed_step_seconds=found.figures.get("stepSeconds"),
        printed_tokens=found.figures.get("tokens"),
    )
    return scene.all(view), ends


def three_attempts(line: str, **throughput: int) -> Account:
    first = Scene(a_job(), seconds=50).fleet().gang(go=False)
    assert first.record is not None
    record = first.record.model_copy(update={"account": counted(50)})
    for number in range(1, ATTEMPTS + 1):
        scene, _ = attempt(record, number, line, **throughput)
        failed = broken(scene)
        record = failed.model_copy(update={"attempt": number + 1})
    assert record.account is not None
    account = record.account
    assert sum(account.milliseconds.values()) == 1000 * (account.counted_until - account.creation_time).total_seconds()
    return account


@pytest.mark.parametrize(
    ("line", "throughput"),
    [
        pytest.param(MEGATRON, {}, id="Megatron"),
        pytest.param(TITAN, {"tokensPerStep": 2400}, id="TorchTitan, by the tokens of a step and its tps on 24 GPUs"),
    ],
)
def test_three_attempts_with_a_line_in_a_hundred_count_a_hundred_steps(line: str, throughput: dict[str, int]) -> None:
    """Each attempt makes 199 steps; a hundred count of each."""
    account = three_attempts(line, **throughput)
    begin, between = LOADS_SECONDS * 1000, BETWEEN_SECONDS * 1000
    assert account.milliseconds == {
        "queued": 50_000,
        "starting": begin,
        "compute": ATTEMPTS * INTERVAL * 1000,
        "lostWork": ATTEMPTS * (STEPS - INTERVAL) * 1000,
        "restarting": 2 * (begin + between),
    }
    found = figures(account, None, None, KeptWork(is_known=True, step=ATTEMPTS * INTERVAL))
    assert (found.ettr_permille, found.steps, found.progress_unknown) == (429, 300, False)


@pytest.mark.parametrize(("line", "throughput"), [(DEEPSPEED, {}), (TITAN, {})])
def test_without_a_pace_what_they_have_made_is_unknown_and_never_nothing(line: str, throughput: dict[str, Any]) -> None:
    account = three_attempts(line, **throughput)
    assert account.milliseconds["unknown"] == ATTEMPTS * (LOADS_SECONDS + INTERVAL) * 1000
    assert "starting" not in account.milliseconds
    found = figures(account, None, None, KeptWork(is_known=True, step=ATTEMPTS * INTERVAL))
    assert (found.ettr_permille, found.ettr_after_queue_permille, found.steps) == (None, None, None)
    assert progress_share([(found.gpu_seconds, found.progress_unknown)]) is None
    console = Console(file=io.StringIO(), width=200)
    render(console, report(a_job(checkpoint={"directory": "/ckpt"}), found))
    assert UNTIMED in console.file.getvalue()  # type: ignore[attr-defined]


def test_of_one_line_with_a_pace_the_report_says_what_a_step_takes() -> None:
    record = Scene(a_job(), seconds=50).fleet().gang(go=False).record
    assert record is not None
    scene, _ = attempt(record.model_copy(update={"account": counted(50)}), 1, MEGATRON)
    found = goodput_of_status(scene.world(), step=INTERVAL, ended=False, succeeded=False)
    assert found is not None
    assert (found.step_milliseconds, found.step_p90_milliseconds) == (None, None)
    assert step_text(report(scene.job, found)) == "1 s, as printed"
