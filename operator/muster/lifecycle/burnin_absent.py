"""Checkers that cannot test: why, as text, and for how long the burn-in waits for them. Pure.

Tests: tests/unit/lifecycle/test_burnin.py.
"""

from muster.protocol.checks import STARTING
from muster.world.checks import CheckerView

# The burn-in waits no more for a checker that is silent this long, or cannot test.
CHECKER_SECONDS = 60.0
# torch is imported in 4 to 30 s, on a busy node in minutes.
STARTING_SECONDS = 300.0


def absence(node: str, view: CheckerView | None, most_seconds: float) -> tuple[str, float]:
    """Return why a node's checker cannot test, and for how many more seconds it is waited for; 0 or less: no longer.

    Args:
        node: its name.
        view: the checker's last report, however old; None: it was never heard.
        most_seconds: the longest time for which a checker that was never heard can have been silent.
    """
    if view is None or not view.is_fresh:
        silent = most_seconds if view is None else view.heard_age_seconds
        words = f"no checker on {node} reports: check that a pod of DaemonSet muster-check runs there"
        return words, CHECKER_SECONDS - silent
    if view.report.state == STARTING:
        return f"the checker on {node} is still starting", STARTING_SECONDS - view.state_seconds
    return f"the checker on {node} cannot test: {view.report.problem}", 0.0
