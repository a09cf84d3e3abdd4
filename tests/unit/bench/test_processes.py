"""CPU and memory as the kernel counts them."""

import os
import subprocess
import sys
import time

from bench.processes import cpu_seconds, peak_mebibytes, reset_peaks, spent


def test_work_of_a_process_is_seen_between_two_readings():
    me, began = {"me": os.getpid()}, time.process_time()
    before = cpu_seconds(me)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    seen = spent(before, cpu_seconds(me))["me"]
    tick = 1 / os.sysconf("SC_CLK_TCK")  # the kernel's figure is in whole ticks
    assert 0.1 - 2 * tick <= seen <= time.process_time() - began + 2 * tick


def test_a_process_that_has_ended_is_left_out():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    before = {"gone": 1.0}
    assert cpu_seconds({"gone": process.pid}) == {}
    assert spent(before, {}) == {}


def test_peak_memory_falls_back_when_it_is_reset():
    code = "import sys; big = bytearray(64 << 20); del big; print('made', flush=True); sys.stdin.readline()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "made\n"
        high = peak_mebibytes([process.pid])
        reset_peaks([process.pid])
        assert high > 64
        assert peak_mebibytes([process.pid]) < high - 48
    finally:
        process.kill()
        process.communicate()
