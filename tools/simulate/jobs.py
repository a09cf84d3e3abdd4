"""What people submit: several sorts of fleets' days, from which a life takes one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulate.machines import MISSING_IMAGE
from simulate.training import OnRequest, Script

LEAST_OFTEN = 90  # restarts of those that may be started often: people who edit a job leave it so many at least
QUIET_STEP_SECONDS = 5.0  # three of them are no longer than the fence that jobs have by default
SPARSE_WORK = 0.6  # whose steps are longer: many jobs would be there for long after the trouble
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
        answers: what its program does when it is asked to leave; None: it does not look for requests.
        ends: the state in which it has to end; "" where nobody cares.
        comes_at: seconds into the life at which it is submitted.
        work: share of the trouble for which it would train if nothing went wrong, of what is usual; 1: it may last
            until the end.
        priority_class: see `Day.classes`.
        preemptible_at: seconds after `comes_at` at which its user makes it preemptible; None: not later.
        estimate: how long its user says that it takes, in multiples of what it trains if nothing goes wrong; 0: its
            user does not say.
    """

    nodes: int
    spec: Mapping[str, Any] = field(default_factory=dict)
    step_seconds: float = 0.0
    has_sidecar: bool = False
    crashes_after: int | None = None
    forgets: bool = False
    waits: bool = False
    answers: OnRequest | None = None
    ends: str = "Succeeded"
    comes_at: float = 0.0
    work: float = 1.0
    priority_class: str = ""
    image: str = "trainer:1"
    preemptible_at: float | None = None
    estimate: float = 0.0

    @property
    def is_often(self) -> bool:
        """Whether it may be started as often as there are faults in all but the longest lives."""
        recovery = self.spec.get("recovery", {})
        return all(recovery.get(budget) == restarts for budget, restarts in _OFTEN.items())

    @property
    def is_sound(self) -> bool:
        """Whether its program does what it should, and Muster can tell whose fault a failure is."""
        return self.crashes_after is None and not self.forgets and "launch" not in self.spec

    @property
    def gives_way(self) -> bool:
        """Whether it is preemptible, comes to be so, or may pass others."""
        is_preemptible = self.preemptible_at is not None or "preemptible" in self.spec.get("queueing", {})
        return is_preemptible or self.estimate > 0

    def spec_of(self, script: Script) -> Mapping[str, Any]:
        """What its user writes, if it trains like this."""
        if not self.estimate:
            return self.spec
        seconds = int(self.estimate * script.total_steps * script.step_seconds)
        return {**self.spec, "queueing": {**self.spec.get("queueing", {}), "expectedDurationSeconds": seconds}}

    def script(self, trouble_seconds: float, *, sparse: bool, lasts: bool = False) -> Script:
        """How it trains, long enough to be there for all of the trouble.

        Args:
            lasts: for as long as there is trouble, if its work is not limited.
        """
        lasts = lasts and self.work == 1 and self.crashes_after is None
        step = self.step_seconds or (QUIET_STEP_SECONDS if lasts and sparse else 3.0 if sparse else 1.5)
        work = min(self.work, SPARSE_WORK) if sparse and self.work != 1 else self.work
        steps = 40 + int(work * trouble_seconds / 4) if not self.step_seconds else 10 + int(trouble_seconds / step)
        if lasts:
            steps = 10
        return Script(
            total_steps=steps,
            step_seconds=step,
            checkpoint_every=10 if step < 10 else 2,
            crashes_after=self.crashes_after,
            forgets=self.forgets,
            waits=self.waits,
            answers=self.answers,
            lasts_seconds=trouble_seconds if lasts else 0.0,
        )


@dataclass(frozen=True)
class Day:
    """Jobs by name (see `simulate.surroundings.key_of`), and the nodes that there are for them.

    Attributes:
        limits: how many of the nodes a namespace may hold, where it is not all.
        classes: PriorityClasses and their values.
        counted: those that count in the queue; None: all.
        preempting: those that preempt, with the namespaces whose jobs do so by them.
        late: jobs that come when the trouble is over, and so long after that as they say.
    """

    jobs: Mapping[str, JobPlan]
    nodes: int = 8
    limits: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)
    counted: frozenset[str] | None = None
    preempting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    late: Mapping[str, JobPlan] = field(default_factory=dict)

    def priority_of(self, plan: JobPlan) -> int:
        """With which a job waits."""
        counts = self.counted is None or plan.priority_class in self.counted
        return self.classes.get(plan.priority_class, 0) if counts else 0


_THREE = {
    "a": JobPlan(3, {"recovery": _OFTEN, **_WATCHED}),
    "b": JobPlan(2, {"recovery": _OFTEN, **_WATCHED}, has_sidecar=True),
    "plain": JobPlan(2, {"recovery": _OFTEN, **_PLAIN}),
}

_SURE: dict[str, Any] = {"recovery": _OFTEN, **_WATCHED}
_HELD: dict[str, Any] = {"recovery": {**_OFTEN, "onFailure": "Hold", "holdSeconds": 60}, **_WATCHED}
# Another tenant's: whatever becomes of them, nobody else is to be concerned. They hold two nodes at most.
_BROKEN = {
    "junk/loop": JobPlan(1, _SURE, crashes_after=0, priority_class="vip", ends=""),
    "junk/image": JobPlan(2, _SURE, image=MISSING_IMAGE, comes_at=10.0, priority_class="vip", ends=""),
    "junk/huge": JobPlan(500, _SURE, priority_class="urgent", ends=""),
    "junk/gpus": JobPlan(2, {"gpusPerNode": 16, **_SURE}, comes_at=5.0, priority_class="urgent", ends=""),
}
_CLASSES = {"urgent": 1000, "batch": -10, "vip": 5000}
_COUNTED = frozenset({"urgent", "batch"})
_CONTENDED = {
    # About twice as many nodes are wanted as there are.
    "Contended": Day(
        {
            "a": JobPlan(3, {**_SURE, "checkpoint": {"directory": "/ckpt/a", "saveTimeoutSeconds": 60}}, work=1.2),
            "b": JobPlan(2, _SURE, has_sidecar=True, work=1.2),
            "plain": JobPlan(2, {"recovery": _OFTEN, **_PLAIN}, priority_class="batch", work=1.2),
            "lab/a": JobPlan(4, _SURE, comes_at=40.0, priority_class="urgent", work=1.2),
            "lab/b": JobPlan(2, _SURE, comes_at=90.0, priority_class="batch", work=1.2),
            "lab/c": JobPlan(1, _WATCHED, comes_at=20.0, work=1.2),  # has the restarts that everybody has
            **_BROKEN,
        },
        limits={"junk": 2},
        classes=_CLASSES,
        counted=_COUNTED,
    ),
    # Small ones come and come, some of them urgent, and one that needs more than half of the nodes is among them.
    "Rush": Day(
        {
            "a": JobPlan(2, _SURE, work=0.5),
            "lab/a": JobPlan(2, _SURE, work=0.9),
            "lab/b": JobPlan(1, _SURE, work=1.3, priority_class="batch"),
            "dev/a": JobPlan(2, {"recovery": _OFTEN, **_PLAIN}, comes_at=15.0, work=0.4),
            "b": JobPlan(1, _SURE, comes_at=30.0, work=0.8, priority_class="batch"),
            "dev/b": JobPlan(2, _SURE, comes_at=45.0, work=0.5, priority_class="urgent"),
            "dev/c": JobPlan(2, _SURE, comes_at=50.0, work=0.6, priority_class="batch"),
            "c": JobPlan(5, _SURE, comes_at=60.0, work=0.4),
            "lab/c": JobPlan(2, _SURE, comes_at=60.0, work=0.5, priority_class="urgent"),
            "lab/d": JobPlan(1, _WATCHED, comes_at=60.0, work=0.4),  # has the restarts that everybody has
            "d": JobPlan(1, _SURE, comes_at=90.0, work=0.4, priority_class="urgent"),
            "e": JobPlan(1, _SURE, comes_at=100.0, work=0.4, has_sidecar=True),
            "f": JobPlan(2, _SURE, comes_at=130.0, work=0.4),
            "dev/d": JobPlan(1, _SURE, comes_at=160.0, work=0.4),
            "junk/loop": JobPlan(1, _SURE, crashes_after=0, priority_class="urgent", ends=""),
        },
        limits={"lab": 3, "junk": 1},
        classes=_CLASSES,
    ),
}

_SPOT: dict[str, Any] = {**_SURE, "queueing": {"preemptible": True}}


def _leaving(name: str) -> dict[str, Any]:
    """Its checkpoints are waited for a minute."""
    return {"checkpoint": {"directory": f"/ckpt/{name}", "saveTimeoutSeconds": 60}}


PREEMPTED = "Preempted"
# Preemptible jobs have most of the nodes, and others come for them again and again.
_PREEMPTED = Day(
    {
        "a": JobPlan(3, {**_SPOT, **_leaving("a")}, answers=OnRequest.ENDS_WELL, work=1.2),
        "lab/a": JobPlan(2, {**_SPOT, **_leaving("lab/a")}, answers=OnRequest.WAITS, work=1.2),
        "lab/b": JobPlan(2, {**_SURE, **_leaving("lab/b")}, preemptible_at=30.0, work=1.2),
        "b": JobPlan(
            1, {**_HELD, "queueing": {"preemptible": True}, **_leaving("b")}, answers=OnRequest.ENDS_BADLY, work=0.9
        ),
        "dev/plain": JobPlan(2, {"recovery": _OFTEN, **_PLAIN, "queueing": {"preemptible": True}}, comes_at=20.0),
        "c": JobPlan(2, _SURE, comes_at=40.0, work=0.4),
        "dev/a": JobPlan(5, _SURE, comes_at=100.0, work=0.3, has_sidecar=True),
        "lab/c": JobPlan(4, _SURE, comes_at=220.0, work=0.3),
        "d": JobPlan(1, _SURE, comes_at=230.0, work=0.5),
        "junk/loop": JobPlan(1, _SPOT, crashes_after=0, ends=""),
    },
    limits={"junk": 1},
    late={
        "late/a": JobPlan(3, {**_SPOT, **_leaving("late/a")}, step_seconds=10.0, answers=OnRequest.ENDS_WELL),
        "late/b": JobPlan(4, {**_SPOT, **_leaving("late/b")}, step_seconds=10.0),
        "late/c": JobPlan(5, _SURE, comes_at=90.0, work=0.1),
        "late/d": JobPlan(7, _SURE, comes_at=100.0, work=0.1),
    },
)


def _ranked(name: str, nodes: int, priority_class: str = "", **changes: Any) -> JobPlan:
    return JobPlan(nodes, {**_SURE, **_leaving(name)}, priority_class=priority_class, **changes)


OUTRANKED = "Outranked"
# Jobs of a class that may preempt come for the nodes of others, also of those whose program does not answer.
_OUTRANKED = Day(
    {
        "a": _ranked("a", 3, "batch", answers=OnRequest.ENDS_WELL, work=1.2),
        "lab/a": _ranked("lab/a", 2, answers=OnRequest.WAITS, work=1.2),
        "b": _ranked("b", 2, work=1.2),
        "lab/plain": JobPlan(1, {"recovery": _OFTEN, **_PLAIN}, priority_class="batch", work=0.9),
        "lab/b": _ranked("lab/b", 4, "urgent", comes_at=60.0, work=0.4),
        "dev/a": _ranked("dev/a", 3, "urgent", comes_at=70.0, work=0.3),
        "c": _ranked("c", 2, "urgent", comes_at=160.0, work=0.3, has_sidecar=True),
        "d": _ranked("d", 5, "vip", comes_at=220.0, work=0.2),
        "junk/loop": JobPlan(1, _SURE, crashes_after=0, priority_class="vip", ends=""),
        "junk/image": JobPlan(1, _SURE, image=MISSING_IMAGE, comes_at=20.0, priority_class="urgent", ends=""),
    },
    limits={"junk": 2},
    classes=_CLASSES,
    preempting={"urgent": ("team", "lab", "late", "junk"), "vip": ("team",)},
    late={
        "late/a": _ranked("late/a", 3, "batch", step_seconds=10.0, answers=OnRequest.ENDS_WELL),
        "late/b": _ranked("late/b", 4, step_seconds=10.0),
        "late/c": _ranked("late/c", 5, "urgent", comes_at=90.0, work=0.1),
    },
)


def _estimated(name: str, estimate: float, nodes: int = 1, **changes: Any) -> JobPlan:
    return JobPlan(nodes, {**_SURE, **_leaving(name)}, estimate=estimate, **changes)


BACKFILLED = "Backfilled"
# Large jobs wait for most of the nodes, and small ones pass them, of which some end as their users say.
_BACKFILLED = Day(
    {
        "a": JobPlan(3, _SURE, work=0.9, estimate=1.2),
        "lab/a": JobPlan(3, _SURE, work=0.5, estimate=1.2),
        "b": JobPlan(5, _SURE, comes_at=20.0, work=0.3, estimate=1.2),
        "lab/b": _estimated("lab/b", 0.2, comes_at=90.0, answers=OnRequest.ENDS_WELL, work=1.2),
        "dev/a": _estimated("dev/a", 1.0, comes_at=95.0, work=0.1),
        "lab/c": _estimated("lab/c", 0.3, comes_at=130.0, answers=OnRequest.WAITS, work=0.9),
        "dev/plain": JobPlan(1, {"recovery": _OFTEN, **_PLAIN}, comes_at=130.0, work=0.3, estimate=0.3),
        "c": _estimated("c", 10.0, comes_at=135.0, nodes=2, work=0.2),
        "dev/b": JobPlan(1, {**_SPOT, **_leaving("dev/b")}, comes_at=140.0, work=0.2, estimate=1.0),
        "d": JobPlan(6, _SURE, comes_at=150.0, work=0.2, estimate=1.2, priority_class="urgent"),
        "lab/d": _estimated("lab/d", 0.2, comes_at=200.0, work=0.9, priority_class="batch"),
        "e": JobPlan(1, _SURE, comes_at=210.0, work=0.4, has_sidecar=True),
    },
    classes=_CLASSES,
    late={
        "late/a": JobPlan(3, _SURE, work=0.3, estimate=1.2),
        "late/b": JobPlan(3, _SURE, work=0.2, estimate=1.2),
        "late/c": JobPlan(4, _SURE, comes_at=30.0, work=0.1, estimate=1.2),
        "late/d": _estimated("late/d", 0.1, comes_at=100.0, work=1.2),
        "late/e": _estimated("late/e", 0.2, comes_at=105.0, answers=OnRequest.ENDS_WELL, work=1.2),
        "late/f": JobPlan(1, _SURE, comes_at=170.0, work=0.1),
        "late/g": JobPlan(7, _SURE, comes_at=200.0, work=0.1, priority_class="urgent"),
    },
)

DAYS: Mapping[str, Day] = {
    "Three": Day(_THREE),
    "Limited": Day(_THREE, limits={"team": 7}),
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
    # Programs that save and leave when they are asked to.
    "Asked": Day(
        {
            "a": JobPlan(3, {"recovery": _OFTEN, **_WATCHED}, answers=OnRequest.ENDS_WELL),
            "b": JobPlan(2, {"recovery": _OFTEN, **_WATCHED}, answers=OnRequest.WAITS),
            "c": JobPlan(2, {"recovery": _OFTEN, **_WATCHED}, answers=OnRequest.ENDS_BADLY, has_sidecar=True),
        }
    ),
    # Failures of ranks are held for people.
    "Held": Day(
        {
            "a": JobPlan(3, _HELD),
            "b": JobPlan(2, _HELD, has_sidecar=True, waits=True),
            "c": JobPlan(2, _HELD, answers=OnRequest.ENDS_WELL),
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
            "c": JobPlan(1, _WATCHED),  # is sound, and has the restarts that everybody has
        }
    ),
    **_CONTENDED,
    PREEMPTED: _PREEMPTED,
    OUTRANKED: _OUTRANKED,
    BACKFILLED: _BACKFILLED,
}
CONTENDED_DAYS = tuple(_CONTENDED)
QUIETER = tuple(name for name in DAYS if name not in {*_CONTENDED, PREEMPTED, OUTRANKED, BACKFILLED})
