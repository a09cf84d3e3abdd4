"""What people submit: several sorts of fleets' days, from which a life takes one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.simulate.training import Script

_OFTEN = {"applicationRestartsPerDay": 100, "hardwareRestartsPerDay": 100}
_WATCHED = {"progress": {"stepTimeoutSeconds": 60, "startTimeoutSeconds": 120}}
_PLAIN = {"launch": {"mode": "Plain"}, "checkpoint": {}}


@dataclass(frozen=True)
class JobPlan:
    """A job and what is to become of it.

    Attributes:
        step_seconds: 0: as the life has it.
        has_sidecar: beside the container that trains there is one that never ends by itself.
        crashes_after: the step after which its first rank always fails; None: its program is sound.
        forgets: its program does not load what it is told to resume from.
        waits: its ranks are not told of the death of another.
        ends: the state in which it has to end.
    """

    nodes: int
    spec: Mapping[str, Any] = field(default_factory=dict)
    step_seconds: float = 0.0
    has_sidecar: bool = False
    crashes_after: int | None = None
    forgets: bool = False
    waits: bool = False
    ends: str = "Succeeded"

    @property
    def is_sound(self) -> bool:
        """Whether its program does what it should, and Muster can tell whose fault a failure is."""
        return self.crashes_after is None and not self.forgets and "launch" not in self.spec

    def script(self, trouble_seconds: float, sparse: bool) -> Script:
        """How it trains, long enough to be there for all of the trouble."""
        step = self.step_seconds or (3.0 if sparse else 1.5)
        steps = 40 + int(trouble_seconds / 4) if not self.step_seconds else 10 + int(trouble_seconds / step)
        return Script(
            total_steps=steps,
            step_seconds=step,
            checkpoint_every=10 if step < 10 else 2,
            crashes_after=self.crashes_after,
            forgets=self.forgets,
            waits=self.waits,
        )


@dataclass(frozen=True)
class Day:
    """Jobs by name, and the nodes that there are for them.

    Attributes:
        limit: how many of the nodes their namespace may hold; None for all.
    """

    jobs: Mapping[str, JobPlan]
    nodes: int = 8
    limit: int | None = None


_THREE = {
    "a": JobPlan(3, {"recovery": _OFTEN, **_WATCHED}),
    "b": JobPlan(2, {"recovery": _OFTEN, **_WATCHED}, has_sidecar=True),
    "plain": JobPlan(2, {"recovery": _OFTEN, **_PLAIN}),
}

DAYS: Mapping[str, Day] = {
    "Three": Day(_THREE),
    "Limited": Day(_THREE, limit=7),
    # A gang of which a whole part can be cut off while it starts elsewhere, and one that is always cut off whole.
    "Wide": Day(
        {
            "a": JobPlan(6, {"recovery": _OFTEN, **_WATCHED}, waits=True),
            "b": JobPlan(1, {"recovery": _OFTEN, **_WATCHED}),
        },
        nodes=12,
    ),
    # Three steps are longer than the fence that jobs have by default.
    "Slow": Day(
        {
            "a": JobPlan(3, {"recovery": _OFTEN}, step_seconds=60.0),
            "b": JobPlan(2, {"recovery": _OFTEN}, step_seconds=20.0),
            "plain": JobPlan(1, {"recovery": _OFTEN, **_PLAIN}, has_sidecar=True),
        }
    ),
    # Programs with defects of their own.
    "Faulty": Day(
        {
            "a": JobPlan(3, {"recovery": _OFTEN, **_WATCHED}, forgets=True),
            "b": JobPlan(
                1,
                {"recovery": {"applicationRestartsPerDay": 4, "hardwareRestartsPerDay": 100}, **_WATCHED},
                crashes_after=25,
                forgets=True,
                ends="Failed",
            ),
        }
    ),
}
