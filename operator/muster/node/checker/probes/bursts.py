"""Measures rates in short bursts: a disturbance makes a burst slower, never faster, so the best burst says most.

Each burst is timed from outside, with one wait for the device at its end.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List

from muster.node.checker.probes.worker import Worker

_DIGITS = 6


def rates(worker: Worker, step: Callable[[], Any], size: float) -> List[float]:
    """Return the rate of each burst, per second, measured for the order's `seconds`; one step does `size`.

    A burst has as many steps as fill `burst_seconds`. The first steps determine that number, and also warm up.
    """
    step()
    worker.wait()
    began = time.monotonic()
    step()
    worker.wait()
    steps = max(1, round(worker.order["burst_seconds"] / max(time.monotonic() - began, 1e-6)))
    burst_rates = []
    end = time.monotonic() + worker.order["seconds"]
    while True:
        began = time.monotonic()
        for _ in range(steps):
            step()
        worker.wait()
        now = time.monotonic()
        burst_rates.append(steps * size / max(now - began, 1e-9))
        if now >= end:
            return burst_rates


def summary(burst_rates: List[float], unit: str, scale: float) -> Dict[str, Any]:
    """Return best, median and number of the bursts."""
    return {
        "best_%s" % unit: significant(max(burst_rates) / scale),
        "median_%s" % unit: significant(statistics.median(burst_rates) / scale),
        "bursts": len(burst_rates),
    }


def significant(number: float) -> float:
    """Return the number rounded to its significant digits."""
    return float("%.*g" % (_DIGITS, number))
