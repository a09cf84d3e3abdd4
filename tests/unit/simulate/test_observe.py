"""What an operator of profile observe does in hours full of faults: it finds what is sick, and writes nothing else."""

from tests.unit.simulate.observing import WRITES, observed, reasons, writes


def test_hours_full_of_faults() -> None:
    with observed(seed=7, hours=6, faults_per_hour=10) as life:
        assert writes(life) <= WRITES
        assert {"NodeObserved", "NodeUnhealthy"} & reasons(life)
