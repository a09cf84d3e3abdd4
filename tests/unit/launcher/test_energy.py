"""What the accelerators have used, as the driver's counters tell: a child that answers, hangs, dies, or has no
driver."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.nvml.build import library

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher.energy import ASK_SECONDS, DEADLINE_SECONDS, EnergyMeter
from muster.node.launcher.energy_child import answer_on_request


class Driver:
    """A child that is played."""

    pid, descriptor = 77, 9

    def __init__(self) -> None:
        self.asked = self.killed = 0
        self.answers: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.asked += 1
        return len(data)

    def read(self, _: int) -> bytes:
        if not self.answers:
            raise BlockingIOError
        return self.answers.pop(0)

    def kill(self) -> None:
        self.killed += 1

    def hang_up(self) -> None:
        """Nothing is left of it."""

    def say(self, millijoules: Any, gpus: Any = 8) -> None:
        self.answers.append(json.dumps({"millijoules": millijoules, "gpus": gpus}).encode() + b"\n")


def an_energy(*drivers: Driver) -> EnergyMeter:
    left = list(drivers)

    def converse(*_: str) -> Any:
        if not left:
            raise OSError("no process can be started")
        return left.pop(0)

    return EnergyMeter(converse, is_there=lambda: True)


def test_what_was_used_is_counted_from_the_start_of_the_attempt() -> None:
    driver = Driver()
    meter = an_energy(driver)
    meter.poll(100.0, {}, 1)
    driver.say(5_000_000)
    meter.poll(100.2, {}, 1)
    assert (meter.joules, meter.gpu_milliseconds) == (None, None)
    meter.poll(100.2 + ASK_SECONDS, {}, 1)
    driver.say(5_000_000 + 112_000_000)
    meter.poll(120.2, {}, 1)
    assert (meter.joules, meter.gpu_milliseconds) == (112_000, 8 * 20_000)
    meter.poll(121.0, {}, 2)  # another attempt
    assert (meter.joules, meter.gpu_milliseconds) == (None, None)
    driver.say(9_000_000_000)
    meter.poll(121.2, {}, 2)
    assert driver.asked == 3


def test_nobody_is_asked_while_no_ranks_run_or_where_there_is_no_driver() -> None:
    driver = Driver()
    an_energy(driver).poll(1.0, {}, None)
    absent = EnergyMeter(lambda *_: pytest.fail("a child was started"), is_there=lambda: False)
    absent.poll(1.0, {}, 1)
    assert driver.asked == 0
    assert (absent.pids, absent.descriptor) == (frozenset(), None)


@pytest.mark.parametrize(("millijoules", "gpus"), [(4_000_000, 8), (6_000_000, 7)])
def test_a_counter_that_begins_anew_or_another_gpu_makes_no_figure(millijoules: int, gpus: int) -> None:
    driver = Driver()
    meter = an_energy(driver)
    for now, told in ((0.0, (5_000_000, 8)), (20.0, (millijoules, gpus)), (40.0, (millijoules + 8_000_000, gpus))):
        meter.poll(now, {}, 1)
        driver.say(*told)
        meter.poll(now + 0.1, {}, 1)
    assert (meter.joules, meter.gpu_milliseconds) == (8000, pytest.approx(20_000 * gpus, abs=gpus))


def test_a_driver_that_hangs_is_asked_no_more_and_what_was_told_stays() -> None:
    driver = Driver()
    meter = an_energy(driver)
    meter.poll(0.0, {}, 1)
    meter.poll(DEADLINE_SECONDS + 1.0, {}, 1)
    assert driver.killed >= 1
    meter.poll(500.0, {}, 1)  # it cannot be killed: no other is started beside it
    assert (driver.asked, meter.pids) == (1, frozenset([77]))


def test_children_that_die_are_given_up() -> None:
    drivers = [Driver() for _ in range(5)]
    meter = an_energy(*drivers)
    for turn in range(20):
        meter.poll(100.0 * turn, {77: 9} if turn % 2 else {}, 1)
    assert [driver.asked for driver in drivers] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("answer", [b'{"error": "no library"}\n', b"nonsense\n", b"[]\n", b'{"gpus": null}\n'])
def test_a_child_that_tells_no_counters_is_ended_for_good(answer: bytes) -> None:
    driver = Driver()
    meter = an_energy(driver)
    meter.poll(0.0, {}, 1)
    driver.answers.append(answer)
    meter.poll(1.0, {}, 1)
    meter.poll(2.0, {77: 9}, 1)
    meter.poll(100.0, {}, 1)
    assert (driver.asked, driver.killed, meter.joules) == (1, 1, None)


def test_the_child_says_why_there_is_no_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.node.launcher.energy_child._LIBRARY", "libnothing-of-the-kind.so.1")
    said: list[str] = []
    answer_on_request(io.BytesIO(b"\n\n"), said.append)
    assert ["error" in json.loads(line) for line in said] == [True, True]


def test_the_launchers_own_child_reads_the_counters_of_all_gpus(tmp_path: Path) -> None:
    """The library of tests answers as an H200 does, and prints; its counters grow by 100 W."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library()), "FAKE_NVML_CONTROL": str(tmp_path / "control")}
    (tmp_path / "control").write_text("gpus=4\nnoise=1\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "muster.node.launcher", "--energy", ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        readings = []
        for _ in range(2):
            process.stdin.write(b"\n")
            process.stdin.flush()
            readings.append(json.loads(process.stdout.readline()))
        assert [reading["gpus"] for reading in readings] == [4, 4]
        assert readings[1]["millijoules"] >= readings[0]["millijoules"] > 0
    finally:
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
