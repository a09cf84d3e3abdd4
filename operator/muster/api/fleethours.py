"""What the accelerators of the fleet did, by hours: kept in a ConfigMap of Muster's namespace.

docs/goodput.md says what the states mean, and docs/decisions/0038 how the time is counted.

Tests: tests/unit/goodput/test_fleethours.py.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from muster.api.base import RecordedModel, Time
from muster.api.goodput import LONGEST_MILLISECONDS

CONFIG_MAP = "muster-fleet-hours"
KEY = "hours"
HOURLY_DAYS = 14
"""Hours that are older than this many days are summed up by days."""
MAX_SPANS = 24 * HOURLY_DAYS + 24 + 1000


class GpuState(StrEnum):
    """GpuState is what an accelerator was there for at a moment. Each accelerator is in exactly one state;
    docs/goodput.md defines them.
    """

    HELD = "held"
    OTHER_PODS = "otherPods"
    QUARANTINED = "quarantined"
    MAINTENANCE = "maintenance"
    EXCLUDED = "excluded"
    RESERVED = "reserved"
    FREE = "free"
    NOT_OBSERVED = "notObserved"


IDLE = (GpuState.RESERVED, GpuState.FREE)
"""The states of accelerators that are healthy and not in use."""
KNOWN = frozenset(GpuState)
MAX_STATES = 32
"""With room for those of later versions."""


def known_state(state: str) -> GpuState:
    """The state as which the time of a state counts: `excluded` for one that only a later version knows."""
    return GpuState(state) if state in KNOWN else GpuState.EXCLUDED


GpuAmounts = Annotated[
    dict[str, Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]],
    Field(
        max_length=MAX_STATES,
        description=(
            "Accelerator-milliseconds by GpuState. States without time are left out; those of a later version are kept."
        ),
    ),
]


class FleetHours(RecordedModel):
    """FleetHours is what the accelerators of the fleet did until a moment. Time before `until` is never counted
    again.
    """

    until: Time = Field(description="until is the time up to which the hours are counted, by the operator's clock.")
    gpus: int = Field(
        ge=0,
        le=LONGEST_MILLISECONDS,
        description="gpus is the number of accelerators in the fleet at that time (until).",
    )
    spans: Annotated[
        dict[Annotated[str, Field(pattern=r"^[0-9]{4}-[01][0-9]-[0-3][0-9](T[0-2][0-9])?$")], GpuAmounts],
        Field(
            max_length=MAX_SPANS,
            description="spans has the amounts for each hour (2026-01-31T05) or day (2026-01-31), in UTC.",
        ),
    ]
