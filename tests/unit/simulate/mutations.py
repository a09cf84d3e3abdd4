"""Defects that Muster once had, put back one at a time: what the simulator is there to find.

Each is a change of shipped functions, with a story that shows it; letters are those of the issue that named the defects.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from muster.launcher.fence import fenced_after_seconds, marked_after_seconds
from muster.launcher.supervisor import Supervisor
from muster.lifecycle import managed, members, resume, status
from muster.recovery import budgets, failures
from muster.simulate.faults import FOR_GOOD, Fault
from muster.simulate.play import Story
from muster.world.job import JobWorld, Seat

BASE_FENCE_SECONDS = 20.0

Patch = pytest.MonkeyPatch


def _no_fence(patch: Patch) -> None:
    """Launchers never end their ranks by themselves."""
    patch.setattr(Supervisor, "_why_to_fence", lambda *_: "")


def _short_fence(patch: Patch) -> None:
    """b: The operator reckons with the base fence, whatever the steps take."""
    patch.setattr(managed, "fenced_after_seconds", lambda s: fenced_after_seconds(min(s, BASE_FENCE_SECONDS)))
    patch.setattr(managed, "marked_after_seconds", lambda s: marked_after_seconds(min(s, BASE_FENCE_SECONDS)))


def _oldest_common(patch: Patch) -> None:
    """e: What every worker lists now is resumed from, whatever anybody has seen."""

    def unasked(world: JobWorld, record: Any, lineage: Any) -> Any:
        listings = [{(c.step, c.path) for c in view.checkpoints if c.judged} for view in world.views.values()]
        common = set.intersection(*listings) if listings else set()
        found = resume.Resume(step=max(common)[0], path=max(common)[1]) if common else None
        return resume.Start(found, lineage)

    patch.setattr(resume, "_unasked", unasked)


def _old_refund(patch: Patch) -> None:
    """f: An old checkpoint beyond the failing step refunds the failure."""
    patch.setattr(budgets, "_refunded", lambda i, gang: gang.checkpoint and gang.checkpoint.step > (i.step or 0))


def _forgotten_resume(patch: Patch) -> None:
    """g: Nobody compares the first step with the checkpoint."""
    for module in (failures, status):
        patch.setattr(module, "runs_behind", lambda *_: False)


def _unheard_for_ever(patch: Patch) -> None:
    """i: A launcher that is never heard keeps its gang waiting."""
    patch.setattr(failures, "unheard", lambda *_: None)


def _culprit_again(patch: Patch) -> None:
    """j: The node that a failure came from is taken again."""
    patch.setattr(members, "EXCLUSION", timedelta(0))


def _by_phase(patch: Patch) -> None:
    """k: A worker has ended when its pod has: a sidecar hides it."""
    patch.setattr(JobWorld, "container_of", lambda *_: None)
    patch.setattr(Seat, "over", property(lambda seat: seat.pod is not None and seat.pod.terminal))


class Mutation(NamedTuple):
    """A defect.

    Attributes:
        put_back: does so.
        rule: what it violates.
        story: in which it shows.
    """

    put_back: Callable[[Patch], None]
    rule: str
    story: Story


_ALIVE, _ENDS = "no rank starts while one of another attempt is alive", "quiet seconds not every job has ended"
_NEWEST, _TOLD = "never behind the newest complete checkpoint", "does not go on from its checkpoint is told"
_UNHEARD = Fault(5.0, "CutFromOperator", number=1, seconds=FOR_GOOD)
_ALL_LEAVE = Fault(60.0, "PodDeleted", job="a", count=3)


def _story(*faults: Fault, day: str = "Three", seconds: float = 300.0) -> Story:
    return Story(1, [*faults, Fault(seconds, "WatchesEnd")], day=day)


MUTATIONS = {
    "no fence": Mutation(_no_fence, _ALIVE, _story(Fault(30.0, "CutOffButStorage", seconds=150.0))),
    "b short fence": Mutation(
        _short_fence, _ALIVE, _story(Fault(200.0, "CutOff", seconds=400.0), day="Slow", seconds=700.0)
    ),
    "e oldest common": Mutation(
        _oldest_common,
        _NEWEST,
        _story(Fault(60.0, "StorageLags", job="a", amount=30.0, seconds=150.0), Fault(80.0, "RankKilled", job="a")),
    ),
    "f old refund": Mutation(_old_refund, _ENDS, Story(1, [], day="Faulty")),
    "g forgotten resume": Mutation(_forgotten_resume, _TOLD, _story(Fault(60.0, "RankKilled", job="a"), day="Faulty")),
    "i unheard for ever": Mutation(_unheard_for_ever, _ENDS, _story(_UNHEARD, _ALL_LEAVE)),
    "j culprit again": Mutation(_culprit_again, _ENDS, _story(_UNHEARD, _ALL_LEAVE)),
    "k by phase": Mutation(_by_phase, _ENDS, _story(Fault(60.0, "RankKilled", job="plain"), day="Slow")),
}
