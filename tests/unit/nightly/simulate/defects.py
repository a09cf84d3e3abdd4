"""Defects that Muster or the simulator's checks once had, put back one at a time: what the simulator is there to find.

Each is a change of shipped functions. The story of the same name in tests/unit/simulate/stories shows it.
"""

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from muster.api.gang import GangSpec, Resume
from muster.api.goodput import AttemptProgress, added
from muster.checkpoints import resume
from muster.controller import cluster
from muster.controller.records import RecordWriter
from muster.decision import accounted
from muster.fencing import managed, survivors
from muster.fencing.plain import PlainProofs
from muster.goodput import account
from muster.kube import decode, informer
from muster.kube.errors import ServerError, Unreachable
from muster.lifecycle import evacuating, evacuation_step, holding, start_earlier_attempts, start_pods, start_wait
from muster.node.checkpoint import candidate
from muster.node.launcher import moves, supervisor
from muster.node.launcher.fence_file import FenceFile
from muster.node.launcher.peers import Peers
from muster.node.launcher.supervisor import Supervisor
from muster.protocol.fence import fenced_after_seconds, marked_after_seconds
from muster.queueing import queue
from muster.queueing.waiting import WaitingJob
from muster.record import attempts, exclusions, incidents
from muster.recovery import budgets, exits, failures, silence
from muster.status import job_status
from muster.world import fleet
from muster.world.job import JobWorld, WorkerView
from muster.world.views import PodView
from simulate import checks, training

BASE_FENCE_SECONDS = 20.0

Patch = pytest.MonkeyPatch


def _no_fence(patch: Patch) -> None:
    """Launchers never end their ranks by themselves."""
    patch.setattr(Supervisor, "_why_to_fence", lambda *_: "")


def _closed_set(patch: Patch) -> None:
    """Who hears its neighbours is not told that others miss somebody, and there is no fence file in the directory."""
    patch.setattr(Peers, "found_broken", lambda *_: None)
    patch.setattr(moves, "is_superseded", lambda *_: False)
    for module in (moves, supervisor):
        patch.setattr(module, "is_alone", lambda *_: False)
    patch.setattr(FenceFile, "unread_seconds", lambda *_: 0.0)


def _short_fence(patch: Patch) -> None:
    """The operator reckons with the base fence, whatever the steps take."""
    patch.setattr(managed, "fenced_after_seconds", lambda s: fenced_after_seconds(min(s, BASE_FENCE_SECONDS)))
    patch.setattr(managed, "marked_after_seconds", lambda s: marked_after_seconds(min(s, BASE_FENCE_SECONDS)))


def _plain_unfenced(patch: Patch) -> None:
    """A Plain pod whose node is not heard is taken for dead."""
    patch.setattr(PlainProofs, "is_ended", lambda *_: True)
    patch.setattr(start_pods, "find_predecessor", lambda *_: None)


def _lost_commit(patch: Patch) -> None:
    """A commit whose answer is lost is taken for none: its nodes are free for others."""

    async def write(self: RecordWriter, body: Mapping[str, Any]) -> bytes:
        return await self._try(body)

    patch.setattr(RecordWriter, "write", write)


def _oldest_common(patch: Patch) -> None:
    """What every worker lists now is resumed from, whatever anybody has seen."""

    def unasked(world: JobWorld, record: Any, branch: Any) -> Any:
        listings = [{(c.step, c.path) for c in view.checkpoints if c.verified} for view in world.views.values()]
        common = set.intersection(*listings) if listings else set()
        found = resume.Resume(step=max(common)[0], path=max(common)[1]) if common else None
        return resume.Start(found, branch)

    patch.setattr(resume, "_start_without_request", unasked)


def _old_refund(patch: Patch) -> None:
    """An old checkpoint beyond the failing step refunds the failure."""
    patch.setattr(budgets, "_refunded", lambda i, gang: gang.checkpoint and gang.checkpoint.step > (i.step or 0))


def _forgotten_resume(patch: Patch) -> None:
    """Nobody compares the first step with the checkpoint."""
    for module in (failures, job_status):
        patch.setattr(module, "runs_behind", lambda *_: False)


def _nanoseconds(patch: Patch) -> None:
    """A shard that is newer than the marker, be it by a clock that is ahead, rejects the checkpoint."""
    patch.setattr(candidate, "CLOCKS_DIFFER_NS", 0)


def _unheard_for_ever(patch: Patch) -> None:
    """A launcher that is never heard keeps its gang waiting."""
    patch.setattr(failures, "unheard", lambda *_: None)


def _culprit_again(patch: Patch) -> None:
    """The node that a failure came from is taken again."""
    patch.setattr(exclusions, "EXCLUSION", timedelta(0))


def _by_phase(patch: Patch) -> None:
    """A worker has ended when its pod has: a sidecar hides it."""
    patch.setattr(JobWorld, "container_of", lambda *_: None)
    patch.setattr(
        WorkerView, "over", property(lambda worker_view: worker_view.pod is not None and worker_view.pod.terminal)
    )


def _late_evidence(patch: Patch) -> None:
    """What is learned late of a lost node clears the attempt under way, and not the one that it had ended.

    The program prints nothing about the connection that it has lost: its last line would name the cause as well.
    """
    patch.setattr(incidents, "first_open", lambda gang: int(gang.attempt))
    patch.setattr(training, "VICTIM_TAIL", "")


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
    original = resume.newest_checkpoint

    def newest(world: JobWorld, gang: GangSpec) -> Resume | None:
        listed = max(((c.step, c.path) for c in resume.complete_checkpoints(world, gang)), default=None)
        return Resume(step=listed[0], path=listed[1]) if listed else original(world, gang)

    patch.setattr(resume, "newest_checkpoint", newest)


def _start_forgotten(patch: Patch) -> None:
    """A reclaim is over once nothing is found, though the start of a rank is under way."""

    def is_reclaimed(self: Any, reclaim: Any) -> bool:
        return bool(reclaim.step(self._scanner.pids | self._fence_file.pids | self._matcher.pids))

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
    patch.setattr(WaitingJob, "adds", property(lambda job: job.held + job.needs))


def _unfenced_workers_forgotten(patch: Patch) -> None:
    """A second failure before the go forgets whom the first one has left behind."""
    original = survivors.unfenced_workers

    def unfenced_workers(world: JobWorld, gang: GangSpec, worker_views: Any) -> Any:
        return original(world, gang if gang.start else gang.model_copy(update={"unfenced_workers": []}), worker_views)

    for module in (survivors, attempts):
        patch.setattr(module, "unfenced_workers", unfenced_workers)


def _first_heard(patch: Patch) -> None:
    """When a leader that nobody could reach is heard again, whoever is not the first is taken for silent."""
    patch.setattr(silence, "_others_heard_seconds", lambda *_: math.inf)


def _unbound_is_nowhere(patch: Patch) -> None:
    """Found by a life: a pod that is not seen to be bound holds no node, and its job gives up its nodes."""
    patch.setattr(decode, "_pinned", lambda affinity: "")


def _created_for_nobody(patch: Patch) -> None:
    """Found by a life: a pod whose job goes while the pod is created takes no node before it is seen to be bound."""
    patch.setattr(cluster.Cluster, "note_created", lambda self, answer, _node: self.pods.assume(answer))
    patch.setattr(cluster.Cluster, "note_unanswered", lambda *_: None)


def _marker_is_enough(patch: Patch) -> None:
    """Found by a life: a checkpoint that has lost a file is waited for as long as somebody who does not judge lists
    it."""
    patch.setattr(resume, "_is_incomplete", lambda *_: False)


def _listed_before(patch: Patch) -> None:
    """Found on real nodes: what was listed while a rank of before still saved counts once that is proved dead."""
    patch.setattr(start_earlier_attempts, "_are_all_fenced", lambda *_: False)


def _torn_hide(patch: Patch) -> None:
    """Found by a life: the eight newest are torn, and the whole ones before them, for which a listing has no room,
    count for nothing."""
    patch.setattr(resume, "_may_see", lambda keys, key: key in keys)


def _age_alone(patch: Patch) -> None:
    """Nobody's priority counts in the queue."""
    patch.setattr(
        queue, "order", lambda waiting, _: sorted(waiting, key=lambda job: (not job.replacement, job.created, job.name))
    )


def _nothing_reserved(patch: Patch) -> None:
    """Small jobs take whatever becomes free before a large one that came first."""
    patch.setattr(queue._Planner, "_reserve", _reserves_none)


def _reserves_none(*_: object) -> Generator[None, None, None]:
    yield


def _charged_twice(patch: Patch) -> None:
    """Whoever is seen to fail a moment after the others is an incident of his own."""
    patch.setattr(incidents, "is_same_incident", lambda *_: False)


def _never_refunded(patch: Patch) -> None:
    """A checkpoint beyond the failing step gives no restart back."""
    patch.setattr(budgets, "_refunded", lambda *_: False)


def _never_named(patch: Patch) -> None:
    """A start says that it is under way, however long it takes."""
    patch.setattr(start_wait, "WORTH_TELLING_SECONDS", math.inf)


def _leave_for_ever(patch: Patch) -> None:
    """A planned evacuation waits for its checkpoint whatever was asked for."""
    original = evacuating.with_evacuation_begun

    def leaving(*of_what: Any) -> GangSpec:
        spec = original(*of_what)
        assert spec.evacuation is not None
        late = spec.evacuation.model_copy(update={"deadline": spec.evacuation.deadline + timedelta(days=1)})
        return spec.model_copy(update={"evacuation": late})

    patch.setattr(evacuating, "with_evacuation_begun", leaving)


def _held_for_ever(patch: Patch) -> None:
    """A failure is held whatever time was asked for."""
    patch.setattr(holding, "ends_at", lambda world, held: held.since + timedelta(days=1))


def _drain_for_ever(patch: Patch) -> None:
    """A node that nobody gives back is kept as long as no other one is free: its drain waits for ever."""
    patch.setattr(evacuation_step, "_is_last_call", lambda *_: False)


def _leave_unsaid(patch: Patch) -> None:
    """Found by a life: a planned evacuation for which no node is free stands, and names a deadline that has passed."""
    patch.setattr(evacuation_step, "_is_over_without_place", lambda *_: False)
    patch.setattr(job_status, "_held_up", lambda *_: "")


def _second_counted_twice(patch: Patch) -> None:
    """With each go a millisecond is counted once more."""
    kept = account.with_account

    def carried(world: JobWorld, spec: GangSpec) -> GangSpec:
        made = kept(world, spec)
        if made.account is None or made.start is None:
            return made
        twice = added(made.account.milliseconds, {"starting": 1})
        return made.model_copy(update={"account": made.account.model_copy(update={"milliseconds": twice})})

    patch.setattr(accounted, "with_account", carried)


def _begun_anew(patch: Patch) -> None:
    """When a clock has gone back the account begins anew: what was counted is forgotten."""
    kept = account.with_account

    def carried(world: JobWorld, spec: GangSpec) -> GangSpec:
        told = world.gang.spec.account if world.gang else None
        if told is None or told.counted_until <= world.now:
            return kept(world, spec)
        return spec.model_copy(update={"account": account.Account(creation_time=world.now, counted_until=world.now)})

    patch.setattr(accounted, "with_account", carried)


def _first_follows(patch: Patch) -> None:
    """A program that has gone back to before its first step has begun where it is now."""
    kept = account.current_evidence

    def told_now(world: JobWorld, spec: GangSpec, elapsed: int) -> AttemptProgress | None:
        found = kept(world, spec, elapsed)
        return found and found.model_copy(update={"first_step": min(found.first_step, found.step)})

    patch.setattr(account, "current_evidence", told_now)


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


def _not_fenced_before(patch: Patch) -> None:
    """A rank that fell over the connections of workers that had been fenced is charged to the program."""
    patch.setattr(exits, "find_fenced_worker", lambda *_: None)


def _nothing_given_up(patch: Patch) -> None:
    """The check: a rank that has got its SIGKILL and only holds its GPU counts as one that could still do something."""
    patch.setattr(checks.Checks, "_is_given_up", lambda *_: False)


# By the name of the story that shows it, in tests/unit/simulate/stories.
DEFECTS: dict[str, Callable[[Patch], None]] = {
    "unbound-is-nowhere": _unbound_is_nowhere,
    "created-for-nobody": _created_for_nobody,
    "torn-ones-hide": _torn_hide,
    "marker-is-enough": _marker_is_enough,
    "no-fence": _no_fence,
    "closed-set": _closed_set,
    "short-fence": _short_fence,
    "plain-unfenced": _plain_unfenced,
    "lost-commit": _lost_commit,
    "oldest-common": _oldest_common,
    "old-refund": _old_refund,
    "forgotten-resume": _forgotten_resume,
    "nanoseconds": _nanoseconds,
    "unheard-for-ever": _unheard_for_ever,
    "culprit-again": _culprit_again,
    "by-phase": _by_phase,
    "late-evidence": _late_evidence,
    "terminating-is-gone": _terminating_is_gone,
    "first-follows": _first_follows,
    "listed-wins": _listed_wins,
    "listed-before": _listed_before,
    "start-forgotten": _start_forgotten,
    "unfenced-workers-forgotten": _unfenced_workers_forgotten,
    "first-heard": _first_heard,
    "counted-twice": _counted_twice,
    "any-list": _any_list,
    "written-twice": _written_twice,
    "age-alone": _age_alone,
    "nothing-reserved": _nothing_reserved,
    "charged-twice": _charged_twice,
    "never-refunded": _never_refunded,
    "never-named": _never_named,
    "second-counted-twice": _second_counted_twice,
    "account-begun-anew": _begun_anew,
    "leave-for-ever": _leave_for_ever,
    "leave-unsaid": _leave_unsaid,
    "held-for-ever": _held_for_ever,
    "drain-for-ever": _drain_for_ever,
    "fenced": _not_fenced_before,
    "given-up": _nothing_given_up,
}
