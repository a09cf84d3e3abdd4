"""What the accelerators of the fleet did, by hours: kept in a ConfigMap of Muster's namespace.

What the states mean, and who counts, stands in docs/goodput.md and docs/decisions/0038.
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
"""Older hours are summed up by days."""
MAX_SPANS = 24 * HOURLY_DAYS + 24 + 1000


class GpuState(StrEnum):
    """What an accelerator is there for at a moment; each is in exactly one."""

    HELD = "held"
    OTHER_PODS = "otherPods"
    QUARANTINED = "quarantined"
    MAINTENANCE = "maintenance"
    EXCLUDED = "excluded"
    RESERVED = "reserved"
    FREE = "free"
    UNSEEN = "unseen"


IDLE = (GpuState.RESERVED, GpuState.FREE)
"""Healthy, and nobody's."""
KNOWN = frozenset(GpuState)


def _in_known_states(amounts: Any) -> Any:
    """The same, with states that a newer version has written as `excluded`: an error would make the leader begin
    anew."""
    if not isinstance(amounts, Mapping):
        return amounts
    found = {state: amount for state, amount in amounts.items() if state in KNOWN}
    others = [amount for state, amount in amounts.items() if state not in KNOWN]
    if not others or not all(isinstance(amount, int) for amount in (*others, found.get(GpuState.EXCLUDED, 0))):
        return amounts
    return found | {GpuState.EXCLUDED: min(found.get(GpuState.EXCLUDED, 0) + sum(others), LONGEST_MILLISECONDS)}


GpuAmounts = Annotated[
    dict[GpuState, Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]],
    BeforeValidator(_in_known_states),
    Field(max_length=len(GpuState), description="Milliseconds times accelerators; what has none is left out."),
]


class FleetHours(ApiModel):
    """What the accelerators did until a moment. Nothing before `until` is ever counted again."""

    until: Time = Field(description="By the leader's clock.")
    gpus: int = Field(ge=0, le=LONGEST_MILLISECONDS, description="Of the fleet, at that moment.")
    spans: Annotated[
        dict[Annotated[str, Field(pattern=r"^[0-9]{4}-[01][0-9]-[0-3][0-9](T[0-2][0-9])?$")], GpuAmounts],
        Field(max_length=MAX_SPANS, description="By hour (2026-01-31T05) or day (2026-01-31), in UTC."),
    ]
