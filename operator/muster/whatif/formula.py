"""Holds the closed forms for rare failures, and the best interval between checkpoints. Pure.

Sources: ETTR as in "Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (HPCA 2025, arXiv
2410.21680); the interval is Young's first-order one (1974) with Daly's correction (2006).

Tests: tests/unit/whatif/test_answer.py.
"""

import math
from collections.abc import Sequence

from muster.whatif.plan import Plan
from muster.whatif.recovery_model import Leaves, Way


def recovery_seconds(plan: Plan, ways: Sequence[Way], shares: Sequence[float]) -> float:
    """Return the mean time from a failure to the first step after it, while a free node is always available."""
    recoveries = (
        way.noticed_seconds
        + (plan.pod_seconds if way.leaves is Leaves.ALWAYS or (way.leaves is Leaves.IF_FREE and plan.spares) else 0.0)
        + plan.start_seconds
        for way in ways
    )
    return sum(share * seconds for share, seconds in zip(shares, recoveries, strict=True)) / sum(shares)


def expected_ettr(plan: Plan, recovery: float) -> float:
    """Return useful time of all time, between 0 and 1: to first order 1 - w/(D+w) - (D/2 + T)/M.

    M is the gang's mean time between failures, D the interval, w the stall of a save, s the time until it is complete
    and T the recovery. Of an exponential time to failure, D e^(-s/M) / (e^((D+w)/M) - 1) is kept on average. The
    formula assumes that no failure strikes during a recovery, and that no worker ever waits for a node.
    """
    return ettr(plan.gang_mttf_seconds, plan.interval_seconds, plan.save_seconds, plan.durable_seconds, recovery)


def ettr(mttf: float, interval: float, save: float, durable: float, recovery: float) -> float:
    """Return the ETTR of these values, all in seconds: M, D, w, s and T of `expected_ettr`."""
    cycles = (interval + save) / mttf
    kept = interval * math.exp(-durable / mttf - cycles) / -math.expm1(-cycles)
    return kept / (mttf + recovery)


def young_daly_seconds(plan: Plan) -> float:
    """Return the best interval between checkpoints, to first order: sqrt(2 w M) - w; never shorter than a save, or a
    step."""
    best = best_interval_seconds(plan.save_seconds, plan.gang_mttf_seconds)
    return max(best, plan.durable_seconds, plan.step_seconds)


def best_interval_seconds(save: float, mttf: float) -> float:
    """Return the best interval for this stall of a save and this mean time between failures, all in seconds; never
    shorter than a save."""
    return max(math.sqrt(2.0 * save * mttf) - save, save)
