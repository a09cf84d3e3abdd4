"""The page for on-call engineers names every reason that they can meet, with the class that the code gives it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster import controller, lifecycle, queueing
from muster.recovery import blame
from muster.recovery.failure import Kind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md").read_text()


def row(reason: str) -> str:
    """The table row whose first cell has this reason."""
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    found = [line for line in rows if reason in re.split(r"[,|]\s*", line.split("|")[1].replace(" ", ""))]
    assert found, f"docs/troubleshooting.md says nothing of {reason}"
    return found[-1]


def test_every_failure_has_its_row_and_its_class() -> None:
    for kind in Kind:
        told = row(kind.value)
        if kind is not Kind.RANK_FAILED:
            assert blame.CLASSES[kind].value in told.split("|")[3], told


# Names of kinds and what Kubernetes says, where they stand in the code in the form of a reason.
NO_REASONS = {
    "AlreadyExists",  # of the API server's own answer
    "ClusterFirst",
    "ClusterFirstWithHostNet",
    "ConfigMap",
    "ContainerCreating",
    "EndedJob",
    "FallbackToLogsOnError",
    "FleetPolicy",
    "MaxText",
    "NoExecute",
    "NodeHealth",
    "NoSchedule",
    "OneOfSeveral",
    "PodDisruptionBudget",
    "PodInitializing",
    "RepairRequest",
    "RuntimeDefault",
    "ScheduleAnyway",
    "TrainingJob",
}
# Events of a node or of the FleetPolicy, which other pages tell of.
ELSEWHERE = {"NotLost", "PolicyUnreadable", "BudgetExhausted", "BudgetAvailable", "AgentsSilent", "AgentsRecovered"}


def reasons() -> Iterator[str]:
    """Whatever in the code has the form of a reason, wherever it stands there: in a call, a tuple, a constant."""
    for room in (lifecycle, queueing, controller):
        for path in sorted(Path(room.__path__[0]).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from re.findall(r"^[A-Z][a-z]+(?:[A-Z][a-z0-9]*)+$", node.value)


@pytest.mark.parametrize("reason", sorted(set(reasons()) - NO_REASONS - ELSEWHERE))
def test_every_reason_that_a_user_can_see_has_its_row(reason: str) -> None:
    row(reason)


def test_reasons_are_found_wherever_they_stand() -> None:
    called, returned, constant = "EvacuationPlanned", "CreationForbidden", "TopologyUnsatisfied"
    assert {called, returned, constant} <= set(reasons())
