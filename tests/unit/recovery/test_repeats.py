"""What is said of failures that come again and again."""

import pytest
from tests.unit.lifecycle.builders import an_incident

from muster.api.gang import FaultClass, GangIncident
from muster.recovery.failure import Kind
from muster.recovery.repeats import repeated, same_step


def at_step(step: int | None, *, trained: bool = True, **changes: object) -> GangIncident:
    return an_incident(**{"reason": Kind.RANK_FAILED, "step": step, "trained": trained, **changes})


def hung(reason: Kind = Kind.HANG, **changes: object) -> GangIncident:
    return at_step(**{"step": 49, "reason": reason, "fault_class": FaultClass.UNKNOWN, **changes})  # type: ignore[arg-type]


AT_49, UNSEEN = at_step(49), at_step(None, trained=False)
CAUSE = ": the program, not a node, is the likely cause"


@pytest.mark.parametrize(
    ("incidents", "text", "step"),
    [
        ([], "", None),
        ([AT_49], "", None),
        ([AT_49, AT_49], "twice at step 49" + CAUSE, 49),
        ([at_step(12), AT_49, AT_49, AT_49], "three times at step 49" + CAUSE, 49),
        ([AT_49, AT_49, at_step(50)], "", None),
        ([AT_49, UNSEEN], "", None),
        ([AT_49] * 12, "12 times at step 49" + CAUSE, 49),
        ([UNSEEN, UNSEEN], "twice, and no step was seen", None),
        ([UNSEEN, at_step(50, trained=False)], "twice, and no step was seen", None),
        ([AT_49, at_step(49, fault_class=FaultClass.UNKNOWN)], "", None),
        ([AT_49, at_step(49, fault_class=FaultClass.HARDWARE), AT_49], "", None),
        ([at_step(49, reason=Kind.CORRUPTION)] * 2, "", None),
        ([hung(), hung()], "twice at step 49" + CAUSE, 49),
        ([AT_49, hung()], "twice at step 49" + CAUSE, 49),
        ([hung(), hung(fault_class=FaultClass.HARDWARE)], "", None),
        ([hung(Kind.START_HANG, step=None, trained=False)] * 2, "twice, and no step was seen", None),
    ],
)
def test_failures_of_the_program_that_are_alike_are_counted_from_the_last(
    incidents: list[GangIncident], text: str, step: int | None
) -> None:
    assert (repeated(incidents), same_step(incidents)) == (text, step)
