"""Defects that Muster once had, put back one at a time: what the simulator is there to find.

Each is a change of shipped functions, with a story that shows it; letters are those of the issue that named the defects.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from muster.api.gang import GangSpec, Resume
from muster.api.goodput import Seen, added
from muster.checkpoint import candidate
from muster.controller import cluster
from muster.controller.records import RecordWriter
from muster.goodput import account
from muster.kube import decode, informer
from muster.kube.errors import ServerError, Unreachable
from muster.launcher import supervisor
from muster.launcher.fence import fenced_after_seconds, marked_after_seconds
from muster.launcher.marker import Marker
from muster.launcher.peers import Peers
from muster.launcher.supervisor import Supervisor
from muster.lifecycle import assembling, commit, managed, members, record, resume, status, survivors
from muster.lifecycle.plain import Plain
from muster.queueing import queue
from muster.queueing.limits import Limits
from muster.recovery import budgets, failures, silence
from muster.simulate import accounts, stories
from muster.simulate.faults import FOR_GOOD, Fault
from muster.simulate.play import Story
from muster.world import fleet
from muster.world.job import JobWorld, Seat
from muster.world.views import PodView

BASE_FENCE_SECONDS = 20.0

Patch = pytest.MonkeyPatch


def _no_fence(patch: Patch) -> None:
    """Launchers never end their ranks by themselves."""
    patch.setattr(Supervisor, "_why_to_fence", lambda *_: "")


def _closed_set(patch: Patch) -> None:
    """a: Who hears its neighbours is not told that others miss somebody, and there is no marker in the directory."""
    patch.setattr(Peers, "found_broken", lambda *_: None)
    patch.setattr(supervisor, "is_superseded", lambda *_: False)
    patch.setattr(Supervisor, "_is_alone", lambda *_: False)
    patch.setattr(Marker, "unread_seconds", lambda *_: 0.0)


def _short_fence(patch: Patch) -> None:
    """b: The operator reckons with the base fence, whatever the steps take."""
    patch.setattr(managed, "fenced_after_seconds", lambda s: fenced_after_seconds(min(s, BASE_FENCE_SECONDS)))
    patch.setattr(managed, "marked_after_seconds", lambda s: marked_after_seconds(min(s, BASE_FENCE_SECONDS)))


def _plain_unfenced(patch: Patch) -> None:
    """c: A Plain pod whose node is not heard is taken for dead."""
    patch.setattr(Plain, "is_ended", lambda *_: True)
    patch.setattr(assembling, "_predecessor", lambda *_: None)


def _lost_commit(patch: Patch) -> None:
    """d: A commit whose answer is lost is taken for none: its nodes are free for others."""

    async def write(self: RecordWriter, body: Mapping[str, Any]) -> bytes:
        return await self._try(body)

    patch.setattr(RecordWriter, "write", write)


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


def _nanoseconds(patch: Patch) -> None:
    """h: A shard that is newer than the marker, be it by a clock that is ahead, rejects the checkpoint."""
    patch.setattr(candidate, "CLOCKS_DIFFER_NS", 0)


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


def _late_evidence(patch: Patch) -> None:
    """What is learned late of a lost node clears the attempt under way, and not the one that it had ended."""
    patch.setattr(record, "_first_open", lambda gang: int(gang.attempt))


def _terminating_is_gone(patch: Patch) -> None:
    """A worker's pod that is being deleted holds its node no longer."""
    original = fleet.claim_of

    def claim_of(pod: Any, *of_what: Any) -> Any:
        leaves = isinstance(pod, PodView) and pod.deleting
        return ("", fleet._NOTHING) if leaves else original(pod, *of_what)

    for module in (fleet, cluster):
        patch.setattr(module, "claim_of", claim_of)


def _listed_wins(patch: Patch) -> None:
    """The newest checkpoint that is listed now wins over what the record and the status know."""
    original = resume.newest

    def newest(world: JobWorld, gang: GangSpec) -> Resume | None:
        listed = max(((c.step, c.path) for c in resume.all_complete(world, gang)), default=None)
        return Resume(step=listed[0], path=listed[1]) if listed else original(world, gang)

    patch.setattr(resume, "newest", newest)


def _start_forgotten(patch: Patch) -> None:
    """A reclaim is over once nothing is found, though the start of a rank is under way."""

    def is_reclaimed(self: Any, reclaim: Any) -> bool:
        return bool(reclaim.step(self._scanner.pids | self._marker.pids | self._matcher.pids))

    patch.setattr(Supervisor, "_is_reclaimed", is_reclaimed)


def _written_twice(patch: Patch) -> None:
    """A commit whose answer is lost is written again, and the conflict with itself is taken for somebody else's."""

    async def write(self: RecordWriter, body: Mapping[str, Any]) -> bytes:
        try:
            return await self._try(body)
        except (ServerError, Unreachable):
            return await self._try(body)

    patch.setattr(RecordWriter, "write", write)


def _counted_twice(patch: Patch) -> None:
    """What a job keeps counts against its namespace's limit once as held and once as asked for."""
    original = Limits.refusal
    patch.setattr(Limits, "refusal", lambda self, space, _, size, answer: original(self, space, size, size, answer))


def _ghosts_forgotten(patch: Patch) -> None:
    """A second failure before the go forgets whom the first one has left behind."""
    original = survivors.ghosts

    def ghosts(world: JobWorld, gang: GangSpec, seats: Any) -> Any:
        return original(world, gang if gang.go else gang.model_copy(update={"ghosts": []}), seats)

    for module in (survivors, record):
        patch.setattr(module, "ghosts", ghosts)


def _first_heard(patch: Patch) -> None:
    """When a leader that nobody could reach is heard again, whoever is not the first is taken for silent."""
    patch.setattr(silence, "_others_heard_seconds", lambda *_: math.inf)


def _unbound_is_nowhere(patch: Patch) -> None:
    """Found by a life: a pod that is not seen to be bound holds no node, and its job gives up its nodes."""
    patch.setattr(decode, "_pinned", lambda affinity: "")


def _marker_is_enough(patch: Patch) -> None:
    """Found by a life: a checkpoint that has lost a file is waited for as long as somebody who does not judge lists it."""
    patch.setattr(resume, "_is_torn", lambda *_: False)


def _listed_before(patch: Patch) -> None:
    """Found on real nodes: what was listed while a rank of before still saved counts once that is proved dead."""
    patch.setattr(assembling, "_is_outwaited", lambda *_: False)


def _torn_hide(patch: Patch) -> None:
    """Found by a life: the eight newest are torn, and the whole ones before them, for which a listing has no room, count for
    nothing."""
    patch.setattr(resume, "_may_see", lambda keys, key: key in keys)


def _age_alone(patch: Patch) -> None:
    """Nobody's priority counts in the queue."""
    patch.setattr(
        queue, "order", lambda waiting: sorted(waiting, key=lambda job: (not job.replacement, job.created, job.name))
    )


def _nothing_reserved(patch: Patch) -> None:
    """Small jobs take whatever becomes free before a large one that came first."""
    patch.setattr(queue._Desk, "_reserve", lambda *_: None)


def _charged_twice(patch: Patch) -> None:
    """Whoever is seen to fail a moment after the others is an incident of his own."""
    patch.setattr(record, "_same_story", lambda *_: False)


def _never_refunded(patch: Patch) -> None:
    """A checkpoint beyond the failing step gives no restart back."""
    patch.setattr(budgets, "_refunded", lambda *_: False)


def _never_named(patch: Patch) -> None:
    """A start says that it is under way, however long it takes."""
    patch.setattr(assembling, "WORTH_TELLING_SECONDS", math.inf)


def _leave_for_ever(patch: Patch) -> None:
    """A planned leave waits for its checkpoint whatever was asked for."""
    original = record.leaving

    def leaving(*of_what: Any) -> GangSpec:
        spec = original(*of_what)
        assert spec.leave is not None
        late = spec.leave.model_copy(update={"deadline": spec.leave.deadline + timedelta(days=1)})
        return spec.model_copy(update={"leave": late})

    patch.setattr(record, "leaving", leaving)


def _leave_unsaid(patch: Patch) -> None:
    """Found by a life: a planned leave for which no node is free names a deadline that has passed."""
    patch.setattr(status, "_held_up", lambda *_: "")


def _second_counted_twice(patch: Patch) -> None:
    """With each go a millisecond is counted once more."""
    kept = account.carried

    def carried(world: JobWorld, spec: GangSpec) -> GangSpec:
        made = kept(world, spec)
        if made.account is None or made.go is None:
            return made
        twice = added(made.account.milliseconds, {"starting": 1})
        return made.model_copy(update={"account": made.account.model_copy(update={"milliseconds": twice})})

    patch.setattr(commit, "carried", carried)


def _begun_anew(patch: Patch) -> None:
    """When a clock has gone back the account begins anew: what was counted is forgotten."""
    kept = account.carried

    def carried(world: JobWorld, spec: GangSpec) -> GangSpec:
        told = world.gang.spec.account if world.gang else None
        if told is None or told.time <= world.now:
            return kept(world, spec)
        return spec.model_copy(update={"account": account.Account(begun=world.now, time=world.now)})

    patch.setattr(commit, "carried", carried)


def _first_follows(patch: Patch) -> None:
    """A program that has gone back to before its first step has begun where it is now."""
    kept = account.told_now

    def told_now(world: JobWorld, spec: GangSpec, elapsed: int) -> Seen | None:
        found = kept(world, spec, elapsed)
        return found and found.model_copy(update={"first_step": min(found.first_step, found.step)})

    patch.setattr(account, "told_now", told_now)


def _any_list(patch: Patch) -> None:
    """A list may be as old as the cache of the API server that answers: version 0 in place of the newest."""
    read = informer.Informer._read

    async def any_version(self: informer.Informer[Any]) -> Any:
        kind = self.kind
        self.kind = replace(kind, query={**kind.query, "resourceVersion": "0"})
        try:
            return await read(self)
        finally:
            self.kind = kind

    patch.setattr(informer.Informer, "_read", any_version)


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


_ONE_JOB = "a node is given to one job"
_ALIVE, _ENDS = "no rank starts while one of another attempt is alive", "quiet seconds not every job has ended"
_NEWEST, _TOLD = "never behind the newest complete checkpoint", "does not go on from its checkpoint is told"
_UNHEARD = Fault(5.0, "CutFromOperator", number=1, seconds=FOR_GOOD)
_ALL_LEAVE = Fault(60.0, "PodDeleted", job="a", count=3)


_CHARGED = "hardware uses up no restart of the program"
_FIRST = "who comes first is served first"
_LOST_ANSWER = (
    Fault(60.0, "Cordon", number=0, seconds=300.0),
    Fault(60.0, "Cordon", number=4, seconds=300.0),
    Fault(61.0, "WatchLags", seconds=100.0, amount=60.0),
    Fault(61.5, "AnswersLost", seconds=12.0),
    Fault(62.0, "PodDeleted", job="a"),
    Fault(73.0, "PodDeleted", job="b"),
)


def _story(*faults: Fault, day: str = "Three", seconds: float = 300.0) -> Story:
    return Story(1, [*faults, Fault(seconds, "WatchesEnd")], day=day)


_FOUND = Path(__file__).parent / "found"

MUTATIONS = {
    "unbound is nowhere": Mutation(
        _unbound_is_nowhere,
        _ONE_JOB,
        # That pods are bound is seen 20 s late; what was bound just before its job went stays there, its kubelet standing still.
        _story(
            Fault(60.0, "WatchLags", number=6, seconds=150.0, amount=20.0),
            Fault(62.0, "JobReplaced", job="a"),
            Fault(75.0, "KubeletStops", count=8, seconds=100.0),
            Fault(88.0, "JobReplaced", job="a"),
            Fault(110.0, "JobReplaced", job="a"),
        ),
    ),
    "torn ones hide": Mutation(_torn_hide, _ENDS, stories.read(_FOUND / "torn.json")),
    "marker is enough": Mutation(
        _marker_is_enough,
        _ENDS,
        _story(Fault(90.0, "ShardLost", job="a"), Fault(90.5, "RankKilled", job="a"), day="Wide"),
    ),
    "no fence": Mutation(_no_fence, _ALIVE, _story(Fault(30.0, "CutOffButStorage", seconds=150.0))),
    "a closed set": Mutation(
        _closed_set,
        _ALIVE,
        _story(Fault(60.0, "CutOffButStorage", count=5, seconds=500.0), day="Wide", seconds=600.0),
    ),
    "b short fence": Mutation(
        _short_fence, _ALIVE, _story(Fault(200.0, "CutOff", seconds=400.0), day="Slow", seconds=700.0)
    ),
    "c plain unfenced": Mutation(
        _plain_unfenced,
        _ALIVE,
        _story(
            Fault(60.0, "KubeletStops", number=3, seconds=400.0),
            Fault(70.0, "PodForceDeleted", job="plain"),
            day="Slow",
        ),
    ),
    "d lost commit": Mutation(_lost_commit, _ONE_JOB, _story(*_LOST_ANSWER)),
    "e oldest common": Mutation(
        _oldest_common,
        _NEWEST,
        _story(Fault(60.0, "StorageLags", job="a", amount=30.0, seconds=150.0), Fault(80.0, "RankKilled", job="a")),
    ),
    "f old refund": Mutation(_old_refund, _ENDS, Story(1, [], day="Faulty")),
    "g forgotten resume": Mutation(_forgotten_resume, _TOLD, _story(Fault(60.0, "RankKilled", job="a"), day="Faulty")),
    "h nanoseconds": Mutation(_nanoseconds, _NEWEST, _story(Fault(60.0, "RankKilled", job="a"))),
    "i unheard for ever": Mutation(_unheard_for_ever, _ENDS, _story(_UNHEARD, _ALL_LEAVE)),
    "j culprit again": Mutation(_culprit_again, _ENDS, _story(_UNHEARD, _ALL_LEAVE)),
    "k by phase": Mutation(_by_phase, _ENDS, _story(Fault(60.0, "RankKilled", job="plain"), day="Slow")),
    # Planted by somebody who had not seen the simulator; random lives find most of these within a minute of CPU.
    "late evidence": Mutation(
        _late_evidence,
        _CHARGED,
        # The launcher that hears neither ends its rank first, and the connection that is closed by that ends another one.
        _story(
            Fault(60.0, "CutFromOperator", job="a", number=2, seconds=40.0),
            Fault(60.0, "PowerCut", job="a", number=1, seconds=300.0),
        ),
    ),
    "terminating is gone": Mutation(
        _terminating_is_gone,
        _ONE_JOB,
        _story(
            Fault(44.0, "RankUnkillable", job="b", count=2, seconds=30.0),
            Fault(45.0, "PodDeleted", job="b", count=2),
            Fault(46.0, "JobReplaced", job="b"),
        ),
    ),
    "first follows": Mutation(
        _first_follows,
        accounts.STEPS,
        _story(
            Fault(60.0, "RankKilled", job="a"),
            Fault(80.0, "StepsGoBack", job="a", amount=50.0),
            Fault(95.0, "RankKilled", job="a"),
            seconds=120.0,
        ),
    ),
    "listed wins": Mutation(
        _listed_wins,
        _NEWEST,
        _story(
            Fault(60.0, "StorageLags", job="a", count=8, seconds=60.0, amount=30.0), Fault(61.0, "RankKilled", job="a")
        ),
    ),
    "listed before": Mutation(
        _listed_before,
        _NEWEST,
        # It saves when its successor has listed, and is told to end before the marker tells it.
        _story(Fault(44.0, "CutOffButStorage", job="b", seconds=24.0), day="Wide", seconds=104.4),
    ),
    "start forgotten": Mutation(
        _start_forgotten,
        _ALIVE,
        _story(*[Fault(at, "RankKilled", job="a", count=n) for at, n in ((60, 1), (61.5, 3), (90, 1), (91.5, 3))]),
    ),
    "ghosts forgotten": Mutation(
        _ghosts_forgotten,
        _ALIVE,
        _story(
            Fault(200.0, "CutOff", job="a", seconds=500.0),
            Fault(260.0, "PodDeleted", job="a", number=1),
            day="Slow",
            seconds=700.0,
        ),
    ),
    "first heard": Mutation(
        _first_heard,
        "whom no trouble concerns trains on",
        _story(Fault(100.0, "LeaderCutOff", seconds=60.0), seconds=200.0),
    ),
    "counted twice": Mutation(
        _counted_twice,
        "who waits for the limit is kept by it",
        _story(Fault(80.0, "Drain", job="a", count=3, seconds=100.0), day="Limited"),
    ),
    "any list": Mutation(
        _any_list,
        "a fault is charged once",
        # A leader that begins with what was a moment ago takes its predecessor's last deeds for somebody else's.
        _story(
            Fault(61.0, "WatchLags", seconds=100.0, amount=20.0),
            Fault(66.0, "PodDeleted", job="a"),
            Fault(67.5, "LeaderKilled"),
        ),
    ),
    "written twice": Mutation(_written_twice, _ONE_JOB, _story(*_LOST_ANSWER)),
    "age alone": Mutation(_age_alone, _FIRST, _story(day="Rush", seconds=200.0)),
    "nothing reserved": Mutation(_nothing_reserved, _FIRST, _story(day="Rush", seconds=200.0)),
    "charged twice": Mutation(
        _charged_twice, "a fault is charged once", _story(Fault(60.0, "OutOfMemory", job="a", count=3), seconds=100.0)
    ),
    "never refunded": Mutation(
        _never_refunded,
        "who fails for a budget has used it up",
        _story(*[Fault(30.0 + 25.0 * n, "RankKilled", job="c") for n in range(5)], day="Faulty", seconds=140.0),
    ),
    "never named": Mutation(
        _never_named,
        "a start that takes long names what it waits for",
        _story(
            Fault(60.0, "StorageStalls", job="a", count=8, seconds=300.0),
            Fault(60.5, "RankKilled", job="a"),
        ),
    ),
    "second counted twice": Mutation(
        _second_counted_twice, accounts.RULE, _story(Fault(60.0, "RankKilled", job="a"), seconds=100.0)
    ),
    "account begun anew": Mutation(
        _begun_anew,
        accounts.RULE,
        _story(
            Fault(50.0, "ClockSteps", amount=-3600.0, seconds=300.0), Fault(60.0, "RankKilled", job="a"), seconds=100.0
        ),
    ),
    "leave for ever": Mutation(
        _leave_for_ever,
        "a planned leave has an end",
        _story(
            Fault(30.0, "StorageFull", job="a", seconds=400.0),
            Fault(31.0, "Suspended", job="a", seconds=200.0),
            day="Crowd",
            seconds=200.0,
        ),
    ),
    "leave unsaid": Mutation(
        _leave_unsaid,
        "a planned leave has an end",
        _story(
            Fault(20.0, "Cordon", job="a", seconds=480.0),
            Fault(30.0, "Cordon", count=8, seconds=470.0),
            day="Slow",
            seconds=25.0,
        ),
    ),
}
