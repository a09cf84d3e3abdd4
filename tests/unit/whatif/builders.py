"""Plans and chance for the tests of what-if."""

from muster.cli.whatif import dice
from muster.whatif.plan import Plan


def a_plan(**changes: float) -> Plan:
    """128 nodes at Llama 3's rate, with a free node for everybody, unless it is said otherwise."""
    given = {
        "nodes": 128,
        "days": 54.0,
        "mttf_days": 264.0,
        "spares": 16,
        "repair_seconds": 7200.0,
        "checkpoint_seconds": 600.0,
        "save_seconds": 10.0,
        "step_seconds": 1.0,
        "hang_seconds": 600.0,
        "pod_seconds": 100.0,
        "start_seconds": 60.0,
        **changes,
    }
    return Plan.model_validate(given)


DICE = dice("test")
