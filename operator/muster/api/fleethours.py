"""What the accelerators of the fleet did, by hours: kept in a ConfigMap of Muster's namespace.

docs/goodput.md says what the states mean, and docs/decisions/0038 how the time is counted.

Tests: tests/unit/goodput/test_fleethours.py.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from muster.api.base import ApiModel, Time
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


def _in_known_states(amounts: Any) -> Any:
    """The amounts with the time of unknown states, which a newer version has written, added to `excluded`.

    An error here would make the leader begin again from nothing.
    """
    if not isinstance(amounts, Mapping):
        return amounts
    kept = {state: amount for state, amount in amounts.items() if state in KNOWN}
    others = [amount for state, amount in amounts.items() if state not in KNOWN]
    if not others or not all(isinstance(amount, int) for amount in (*others, kept.get(GpuState.EXCLUDED, 0))):
        return amounts
    return kept | {GpuState.EXCLUDED: min(kept.get(GpuState.EXCLUDED, 0) + sum(others), LONGEST_MILLISECONDS)}


GpuAmounts = Annotated[
    dict[GpuState, Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]],
    BeforeValidator(_in_known_states),
    Field(max_length=len(GpuState), description="Accelerator-milliseconds by state. States without time are left out."),
]


class FleetHours(ApiModel):
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
