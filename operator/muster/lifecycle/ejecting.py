"""A gang leaves Muster on its user's request (spec.eject): the ranks train on to their end. Pure.

One commit of the record divides the two lives. Before it every promise holds: a failure restarts the gang, and the
request waits. After it nothing is decided any more, by no leader, whatever becomes of the gang. See
docs/decisions/0084.

Tests: tests/unit/lifecycle/test_ejecting.py.
"""

from muster.lifecycle.plan import Plan
from muster.status.report import State, StatusReport


def plan() -> Plan:
    """Return the plan of a gang that has left: it reports which launchers know of it, and does nothing else."""
    return Plan((), StatusReport(State.EJECTED))
