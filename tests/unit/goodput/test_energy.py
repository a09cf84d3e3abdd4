"""Energy: what launchers tell comes to the account once, and what nobody has told is not known."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.goodput.test_account import GPUS, account_of, broken, trains
from tests.unit.lifecycle.builders import Scene

from muster.api.goodput import AttemptProgress, Goodput
from muster.goodput.energy import Energy, MeteredEnergy, energy, energy_of_nodes, why_no_energy
from muster.goodput.evidence import MOST_WATTS
from muster.goodput.figures import KeptWork, figures
from muster.goodput.status_goodput import goodput_of_status

SUCCEEDED = KeptWork(is_known=True, ended=True, succeeded=True)

TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECONDS = 100  # that were metered, of 110 since the start


def metered(**changes: Any) -> Scene:
    """Three workers of eight accelerators, each of which drew 500 W."""
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    return scene.all(
        replace(view, energy_joules=8 * 500 * SECONDS, energy_gpu_milliseconds=8 * 1000 * SECONDS, **changes)
    )


def test_what_all_workers_tell_is_added_up_once() -> None:
    scene = metered()
    before = goodput_of_status(scene.world(), step=101, ended=False, succeeded=False)
    account = account_of(broken(scene))
    assert (account.joules, account.metered_gpu_milliseconds) == (GPUS * 500 * SECONDS, GPUS * 1000 * SECONDS)
    found = figures(account, None, None, SUCCEEDED)
    assert (found.joules, found.metered_gpu_seconds) == (account.joules, GPUS * SECONDS)
    assert before is not None
    assert before.joules == found.joules


def test_what_was_told_before_the_launchers_fell_silent_counts() -> None:
    """They have ended their ranks, and say no more of what these have used."""
    scene = metered()
    seen = AttemptProgress(
        start_milliseconds=0,
        first_step_milliseconds=10_000,
        last_step_milliseconds=60_000,
        first_step=1,
        step=51,
        joules=7_000,
        metered_gpu_milliseconds=20_000,
    )
    assert scene.record is not None
    assert scene.record.account is not None
    scene.record = scene.record.model_copy(
        update={"account": scene.record.account.model_copy(update={"progress": seen})}
    )
    view = next(iter(scene.launchers.values()))
    scene.all(replace(view, energy_joules=None, energy_gpu_milliseconds=None))
    account = account_of(broken(scene))
    assert (account.joules, account.metered_gpu_milliseconds) == (7_000, 20_000)
    assert account.segments[-1].step == 101


@pytest.mark.parametrize(
    ("joules", "time"),
    [
        pytest.param(2**53 - 1, 8_000 * SECONDS, id="more than any accelerator draws"),
        pytest.param(400_000, 2**53 - 1, id="more time than there was"),
        pytest.param(400_000, 64_000 * SECONDS, id="all GPUs of a node of which it has a part"),
        pytest.param(400_000, 0, id="in no time"),
        pytest.param(None, 8_000 * SECONDS, id="nothing"),
    ],
)
def test_what_cannot_be_true_is_not_counted(joules: int | None, time: int) -> None:
    scene = metered()
    view = next(iter(scene.launchers.values()))
    scene.launcher(1, replace(view, energy_joules=joules, energy_gpu_milliseconds=time))
    account = account_of(broken(scene))
    assert account.joules == 2 * 8 * 500 * SECONDS
    assert account.metered_gpu_milliseconds == 2 * 8_000 * SECONDS
    assert account.joules <= MOST_WATTS * account.metered_gpu_milliseconds // 1000


def held() -> Goodput:
    """A job that has held two nodes of eight for an hour: 57,600 GPU-seconds, of which 48,000 in steps."""
    seconds = {"starting": 600, "compute": 3_000}
    return Goodput(
        creation_time=TIME,
        counted_until=TIME,
        seconds=seconds,
        gpu_seconds={name: 16 * s for name, s in seconds.items()},
    )


def of_nodes(joules: float, gpu_seconds: float, tokens: int | None) -> Energy | None:
    """What is reported of that job by so much from Prometheus."""
    return energy_of_nodes(MeteredEnergy(joules, gpu_seconds), held(), tokens)


def test_what_prometheus_has_is_of_all_the_time_in_which_nodes_were_held() -> None:
    assert of_nodes(500 * 57_600, 57_600, 10**9) == Energy(28_800_000, 500.0, 1.0, 0.0288)
    assert of_nodes(500 * 57_600, 57_600, None) == Energy(
        28_800_000, 500.0, 1.0, None, "the tokens that count are not known"
    )
    nearly = of_nodes(500 * 55_296, 55_296, 10**9)  # 96 %
    assert nearly == Energy(27_648_000, 500.0, 0.96, 0.027648)


def test_where_half_of_the_time_is_missing_no_token_has_an_energy() -> None:
    found = of_nodes(500 * 28_800, 28_800, 10**9)  # Prometheus no longer has the first half
    assert found is not None
    assert (found.watts_per_gpu, found.metered, found.joules_per_token) == (500.0, 0.5, None)
    assert found.joules_per_token_unknown.startswith("only 50% of the time was metered")


def test_more_time_than_the_job_has_held_is_no_energy_of_it() -> None:
    """57,600 GPU-seconds: 105 % of them are 60,480; a Prometheus that evaluates the rules every 15 s has 115,200."""
    found = of_nodes(500 * 60_480, 60_480, None)
    assert found is not None
    assert (found.joules, found.metered) == (30_240_000, 1.0)
    assert why_no_energy(MeteredEnergy(500 * 60_480, 60_480), held()) == ""
    assert of_nodes(500 * 60_510, 60_510, 10**9) is None
    assert of_nodes(500 * 115_200, 115_200, 10**9) is None
    assert why_no_energy(MeteredEnergy(500 * 115_200, 115_200), held()).startswith("Prometheus has 200% of the time")


def test_a_job_of_minutes_has_no_energy_by_means_of_minutes() -> None:
    """One GPU of 700 W for ten minutes is 420 kJ, and the rules have 357 kJ; time in the queue does not make it
    longer."""
    short = Goodput(
        creation_time=TIME,
        counted_until=TIME,
        seconds={"queued": 7_200, "starting": 60, "compute": 540},
        gpu_seconds={"queued": 0, "starting": 60, "compute": 540},
    )
    assert energy_of_nodes(MeteredEnergy(357_000, 600), short, 10**6) is None
    assert why_no_energy(MeteredEnergy(357_000, 600), short).startswith("the job held its nodes for 10 min")
    for compute, is_known in ((1_739, False), (1_740, True)):
        it = short.model_copy(
            update={
                "seconds": {"queued": 7_200, "starting": 60, "compute": compute},
                "gpu_seconds": {"starting": 60, "compute": compute},
            }
        )
        found = energy_of_nodes(MeteredEnergy(700.0 * (60 + compute), 60 + compute), it, 10**6)
        assert (found is not None) is is_known


def test_a_prometheus_that_has_nothing_tells_nothing() -> None:
    assert of_nodes(0, 0, 10**9) is None
    assert energy_of_nodes(MeteredEnergy(5.0, 5.0), Goodput(creation_time=TIME, counted_until=TIME), 10) is None


def test_the_energy_of_a_token_needs_nearly_all_of_the_time_metered() -> None:
    spent = {"compute": 860, "lostWork": 100, "queued": 5000, "restarting": 40, "burnIn": 300}
    whole = energy(480_000, 960, spent, 1_000_000)
    assert whole is not None
    assert (whole.watts_per_gpu, whole.metered, whole.joules_per_token) == (500.0, 0.96, 0.48)
    part = energy(450_000, 900, spent, 1_000_000)
    assert part is not None
    assert (part.watts_per_gpu, part.metered, part.joules_per_token) == (500.0, 0.9, None)
    more = energy(600_000, 1200, spent, None)  # counters need not agree with the clock
    assert more is not None
    assert (more.metered, more.joules_per_token) == (1.0, None)


@pytest.mark.parametrize("bucket", ["starting", "restarting", "undetected", "finishing", "unknown"])
def test_what_was_metered_beside_the_steps_does_not_hide_nodes_that_are_not(bucket: str) -> None:
    """Two nodes of one accelerator each, of which one has a meter: as long in steps as beside them."""
    found = energy(500 * 7200, 7200, {bucket: 7200, "compute": 7200}, 3_600_000)
    assert found is not None
    assert (found.metered, found.joules_per_token) == (0.5, None)


@pytest.mark.parametrize(("joules", "time", "spent"), [(0, 0, {"compute": 5}), (5, 0, {"compute": 5}), (5, 5, {})])
def test_nothing_metered_is_not_known(joules: int, time: int, spent: dict[str, int]) -> None:
    assert energy(joules, time, spent, 10) is None
