"""Performs the actions of a plan. Each action is idempotent and says what it expects; none is retried here.

A failing action ends the pass: the next one decides anew from what is then seen. Refusals that will last a while (a
quota, an admission plugin) are remembered. So the job's status names them, and the API server is not flooded.
"""

import asyncio
import functools
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from muster.api.base import API_VERSION
from muster.api.trainingjob import TrainingJob
from muster.controller.backoff import doubled
from muster.controller.cluster import CLASS_AWAY_SECONDS, Cluster, JobMemory
from muster.controller.patterns import PatternUntriedError, StepPatterns
from muster.controller.records import RecordWriter
from muster.kube import decode, jitter, paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Denied,
    DryRunUnsupported,
    Forbidden,
    Invalid,
    NotFound,
    Refusal,
    ServerError,
    Unreachable,
    WebhookFailed,
)
from muster.lifecycle.pending import (
    INVALID_STEP_PATTERN,
    PASSING_REFUSALS,
    STEP_PATTERN_UNTRIED,
    TEMPLATE_RETRY_SECONDS,
)
from muster.lifecycle.plan import (
    Action,
    ApplySupport,
    BindPod,
    CheckTemplate,
    CommitGang,
    CreatePod,
    DeleteJob,
    DeletePod,
    Plan,
)
from muster.pods.worker_pod import owner_reference
from muster.queueing.priority_classes import PRIORITY_CLASS_MISSING, missing_class_remedy, named_class
from muster.status.template import AGAIN
from muster.world.job import CreateError, TemplateVerdict, VerdictKind
from muster.world.names import gang_name
from muster.world.quotas import claim_of_pod
from muster.world.views import PodView

FIELD_MANAGER = "muster"
WRITES_AT_ONCE = 128  # pods of one job, created or deleted
# Of the connections that such writes have together: what hangs in one namespace leaves the others some.
NAMESPACE_WRITES = 96
MAX_CREATE_BACK_OFF_SECONDS = 60.0
# A refused template is shown to the API server again for what is not in it: admission, a quota, a claim. Thousands of
# jobs that wait for that cost it a few requests a second together.
MAX_TEMPLATE_PAUSE_SECONDS = 900.0
MAX_PASSING_PAUSE_SECONDS = 300.0
LATE_RETRY_SECONDS = 1.0
MAX_CLAIMS = 16  # of a template that are looked up: each takes two requests, and a template may mount hundreds
JITTER = 0.75, 1.0  # jobs that were refused together do not come back together
PROGRESS_WRITE_SECONDS = 30.0
COUNTS_WRITE_SECONDS = 2.0
# All waiting jobs have something new to tell whenever a node becomes free: so many writes a second for all of them.
WAITING_WRITES_PER_SECOND = 20.0
# Parts of the status that change all the time; they alone are no reason to write more often than that.
_PROGRESS = frozenset({"step", "checkpoint", "goodput"})
# These change with each of thousands of workers that start together.
_COUNTS = _PROGRESS | {"nodesReady", "waiting", "startEstimate"}

_PATHS: Mapping[str, Callable[..., str]] = {
    "ConfigMap": lambda **where: paths.core("configmaps", **where),
    "Service": lambda **where: paths.core("services", **where),
    "PodDisruptionBudget": lambda **where: paths.group("policy/v1", "poddisruptionbudgets", **where),
}

OneOfSeveral = TypeVar("OneOfSeveral", CreatePod, DeletePod, BindPod, ApplySupport)

log = structlog.get_logger()


class Performer:
    """Turns actions into API calls and puts the answers into the stores at once. `before_deletion` is called with an
    ended job before it is deleted; an ApiError that it raises puts that off.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
        before_deletion: Callable[[TrainingJob], Awaitable[None]] | None = None,
        step_patterns: StepPatterns | None = None,
    ) -> None:
        self._client = client
        self._before_deletion = before_deletion
        self._records = RecordWriter(client)
        self._cluster = cluster
        self._clock = clock
        self._step_patterns = step_patterns or StepPatterns()
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def perform(self, job: TrainingJob, plan: Plan) -> None:
        """Perform all actions but creations of pods.

        Deletions, bindings and the objects that workers share come first, each group side by side, then the others in
        order.

        Raises:
            ApiError: an action failed; those of the groups after it were not begun.
        """
        deletions = [action for action in plan.actions if isinstance(action, DeletePod)]
        await _side_by_side(functools.partial(self._delete_pod, job), deletions)
        bindings = [action for action in plan.actions if isinstance(action, BindPod)]
        if bindings:
            memory = self._cluster.memory(job.metadata.uid)
            memory.bound &= {action.uid for action in bindings}
            await _side_by_side(functools.partial(self._bind_pod, job), bindings)
        anew = any(isinstance(action, CreatePod) for action in plan.actions)
        support = [action for action in plan.actions if isinstance(action, ApplySupport)]
        await _side_by_side(functools.partial(self._apply, job, anew=anew), support)
        for action in plan.actions:
            await self._perform_one(job, action)

    async def conclude(self, job: TrainingJob, plan: Plan) -> float | None:
        """Create the pods and, beside that, write the status: thousands of pods take seconds.

        Returns:
            None when the status is as wanted, else the seconds after which its changes are to be written.

        Raises:
            ApiError: a pod was not created, or the status not written.
        """
        creations = [action for action in plan.actions if isinstance(action, CreatePod)]
        if not creations:
            return await self._write_status(job, plan)
        writes = self._create_pods(job, creations), self._write_status(job, plan)
        created, unwritten = await asyncio.gather(*writes, return_exceptions=True)
        if isinstance(created, BaseException):
            raise created
        if isinstance(unwritten, BaseException):
            raise unwritten
        return unwritten

    async def _write_status(self, job: TrainingJob, plan: Plan) -> float | None:
        """Write the status if it differs, guarded by the job's resourceVersion.

        Returns:
            None when the status is as wanted, else the seconds after which its changes are to be written.

        Raises:
            ApiError: the status was not written.
        """
        if plan.status is None:
            return None
        wanted, current = plan.status.to_json(), job.status.to_json()
        differing = {key for key in wanted.keys() | current.keys() if wanted.get(key) != current.get(key)}
        memory = self._cluster.memory(job.metadata.uid)
        if not differing:
            return None
        for name in ("conditions", "warnings"):
            if _same_but_messages(wanted.get(name), current.get(name)):
                differing = differing - {name} | {"nodesReady"}
        # Each is announced once: it has to stand there before the next look.
        if _concerns_of(wanted) - _concerns_of(current):
            differing.add("concerns")
        progress_only, counts_only = differing <= _PROGRESS, differing <= _COUNTS
        due = float("-inf")
        if progress_only:
            due = memory.progress_written_at + PROGRESS_WRITE_SECONDS
        elif counts_only:
            queued = plan.status.waiting.queued if plan.status.waiting else 0
            pause = max(COUNTS_WRITE_SECONDS, queued / WAITING_WRITES_PER_SECOND)
            due = memory.counts_written_at + pause
        if due > self._clock():
            return due - self._clock()
        body = {
            "metadata": {"resourceVersion": job.metadata.resource_version},
            "status": _replacing(current, wanted),
        }
        path = paths.muster(
            "trainingjobs", namespace=job.metadata.namespace, name=job.metadata.name, subresource="status"
        )
        answer = await self._client.patch(path, body)
        if progress_only:
            memory.progress_written_at = self._clock()
        else:
            memory.counts_written_at = self._clock()
        self._cluster.jobs.assume(answer)
        return None

    async def _perform_one(self, job: TrainingJob, action: Action) -> None:
        """Perform one of the actions that come one after the other."""
        match action:
            case CommitGang():
                await self._commit(job, action)
            case CheckTemplate():
                await self._check_template(job, action)
            case DeleteJob():
                await self._delete_job(job)

    async def _commit(self, job: TrainingJob, action: CommitGang) -> None:
        namespace, name = job.metadata.namespace, gang_name(job.metadata.name, job.metadata.uid)
        body: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": "Gang",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner_reference(job)]},
            "spec": action.spec.to_json(),
        }
        if action.resource_version:
            body["metadata"]["resourceVersion"] = action.resource_version
        else:
            await self._see_that_it_stands(job)
        self._cluster.gangs.assume(await self._records.write(body))
        log.info(
            "committed",
            job=_name(job),
            attempt=action.spec.attempt,
            recovery=action.spec.level.value,
            reason=action.spec.reason,
            started=action.spec.start is not None,
            evacuation=action.spec.evacuation.reason if action.spec.evacuation else None,
            nodes=[member.node for member in action.spec.members][:16],
        )

    async def _see_that_it_stands(self, job: TrainingJob) -> None:
        """Check that the job exists before nodes are taken for it, because its watch may be behind.

        Otherwise a job that was deleted, or replaced by one of its name, would get a new record in place of the old
        one.

        Raises:
            Conflict: the job is gone, or being deleted.
        """
        path = paths.muster("trainingjobs", namespace=job.metadata.namespace, name=job.metadata.name)
        try:
            uid = decode.lasting_uid(await self._client.get(path))
        except NotFound:
            uid = ""
        if uid != job.metadata.uid:
            raise Conflict(409, "Conflict", f"trainingjobs {job.metadata.name!r} has been deleted")

    async def learn_claims(self) -> None:
        """Find out what the pods of jobs that hold nodes count for in quotas, with the defaults that they were
        given."""
        await asyncio.gather(*(self._learn_claim(uid, pod) for uid, pod in self._cluster.pods_with_unknown_claims()))

    async def _learn_claim(self, uid: str, pod: PodView) -> None:
        path = paths.core("pods", namespace=pod.namespace, name=pod.name)
        try:
            self._cluster.memory(uid).claim = claim_of_pod(decode.without_metadata(await self._client.get(path)))
        except (ApiError, ValueError) as error:  # the job counts by its template, under each quota that may count it
            log.warning("what a pod counts for in quotas is not known", pod=pod.name, error=str(error))

    async def _check_template(self, job: TrainingJob, action: CheckTemplate) -> None:
        memory = self._cluster.memory(job.metadata.uid)
        memory.template_verdict = await self._tried(job, memory, action)

    async def _tried(self, job: TrainingJob, memory: JobMemory, action: CheckTemplate) -> TemplateVerdict:
        """Have the API server try worker 0, and return what it says."""
        path = paths.core("pods", namespace=job.metadata.namespace)
        amiss = await self._pattern_refusal(action.step_pattern) if action.step_pattern else None
        if amiss is not None:
            return self._refused_template(job, memory, action.generation, *amiss)
        try:
            answer = await self._client.post(path, action.pod, {"dryRun": "All", "fieldValidation": "Strict"})
            memory.claim = claim_of_pod(decode.without_metadata(answer))
            scheduler_for = await self._scheduler_for(job, action.claims)
            verdict = TemplateVerdict(
                VerdictKind.ACCEPTED, action.generation, requests=decode.requests(answer), scheduler_for=scheduler_for
            )
            memory.template_recheck_at = float("inf")
            if scheduler_for:  # the claim may yet be bound
                verdict = self._to_be_checked_again(memory, verdict, MAX_PASSING_PAUSE_SECONDS)
            if self._cluster.lacks_class(job):  # one of the two has not yet seen that it has come, or gone
                memory.template_recheck_at = self._clock() + CLASS_AWAY_SECONDS
        except _REFUSALS as refused:
            return self._refused_template(job, memory, action.generation, *refusal(refused, named_class(job)))
        return verdict

    async def _pattern_refusal(self, pattern: str) -> tuple[str, str] | None:
        """Why a step pattern is refused, as reason and message; None where it is not."""
        try:
            problem = await self._step_patterns.problem(pattern)
        except PatternUntriedError as untried:
            return STEP_PATTERN_UNTRIED, f"{untried}; it is tried again by itself"
        return (INVALID_STEP_PATTERN, f"spec.progress.stepPattern: {problem}. {AGAIN}") if problem else None

    def _refused_template(
        self, job: TrainingJob, memory: JobMemory, generation: int, reason: str, message: str
    ) -> TemplateVerdict:
        verdict = TemplateVerdict(VerdictKind.REFUSED, generation, reason, message)
        _log_refusal("template refused", job, memory, reason, message)
        # The API server hears of a class later than others.
        is_late = reason == PRIORITY_CLASS_MISSING and not self._cluster.lacks_class(job)
        limit = MAX_PASSING_PAUSE_SECONDS if reason in PASSING_REFUSALS else MAX_TEMPLATE_PAUSE_SECONDS
        return self._to_be_checked_again(
            memory, verdict, limit, LATE_RETRY_SECONDS if is_late else TEMPLATE_RETRY_SECONDS
        )

    def _to_be_checked_again(
        self, memory: JobMemory, verdict: TemplateVerdict, limit: float, first: float = TEMPLATE_RETRY_SECONDS
    ) -> TemplateVerdict:
        """The verdict with the time of the next check, after `first` seconds and later after `limit` at most. A change
        of the job is checked at once."""
        generation, count = memory.template_checks
        count = count + 1 if generation == verdict.generation else 0
        memory.template_checks = verdict.generation, count
        pause = doubled(first, count, limit) * jitter.uniform(*JITTER)
        memory.template_recheck_at = self._clock() + pause
        return replace(verdict, retry_seconds=pause)

    async def _scheduler_for(self, job: TrainingJob, claims: Collection[str]) -> str:
        """The first of these volume claims that only the cluster's scheduler can deal with, in words; "" if none."""
        if len(claims) > MAX_CLAIMS:
            return f"more than {MAX_CLAIMS} volume claims"
        for name in claims:
            try:
                path = paths.core("persistentvolumeclaims", namespace=job.metadata.namespace, name=name)
                claim = decode.without_metadata(await self._client.get(path))
                volume_name = claim["spec"].get("volumeName")
                if claim["status"].get("phase") != "Bound" or not volume_name:
                    return f"the unbound volume claim {name}"
                path = paths.core("persistentvolumes", name=volume_name)
                volume = decode.without_metadata(await self._client.get(path))
            except NotFound:
                return f"the volume claim {name}, which does not exist"
            if volume["spec"].get("nodeAffinity"):
                return f"the volume claim {name}, whose volume is tied to certain nodes"
        return ""

    async def _apply(self, job: TrainingJob, action: ApplySupport, *, anew: bool) -> None:
        """Apply the shared objects that have changed since they were applied; with `anew` all of them, as before pods
        are created: one may have been deleted.
        """
        memory, manifest = self._cluster.memory(job.metadata.uid), action.manifest
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        metadata = manifest["metadata"]
        which = (manifest["kind"], metadata["name"])
        if (memory.support_applied.get(which) == digest and not anew) or self._pausing(memory):
            return
        path = _PATHS[manifest["kind"]](namespace=metadata["namespace"], name=metadata["name"])
        try:
            await self._client.patch(path, manifest, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": "true"})
        except _REFUSALS as refused:
            self._refused(job, memory, refused)
            raise
        memory.support_applied[which] = digest

    async def _create_pods(self, job: TrainingJob, creations: list[CreatePod]) -> None:
        memory = self._cluster.memory(job.metadata.uid)
        if self._pausing(memory):
            return

        async def create(action: CreatePod) -> None:
            if self._pausing(memory):
                return  # one was refused: the others would be, too
            try:
                pods = paths.core("pods", namespace=job.metadata.namespace)
                async with self._share(job):
                    if action.node in self._cluster.fleet.outside:
                        return  # it has just left the scope, and the job is decided about again
                    answer = await self._client.post(pods, action.manifest, one_of_many=True)
            except AlreadyExists:
                answer = await self._adopt(job, action)
            except _REFUSALS as refused:
                self._refused(job, memory, refused)
                raise
            except (ServerError, Unreachable):
                key = (job.metadata.namespace, action.manifest["metadata"]["name"])
                self._cluster.note_unanswered(job.metadata.uid, key, action.node)
                raise
            self._cluster.note_created(answer, action.node)

        # A deleted one is made again with the next pods, as everything that they share.
        memory.support_applied.pop(("PodDisruptionBudget", gang_name(job.metadata.name, job.metadata.uid)), None)
        await _side_by_side(create, creations)
        memory.create_error, memory.create_failures, memory.refusal_logged = None, 0, ""

    async def _adopt(self, job: TrainingJob, action: CreatePod) -> bytes:
        """The existing pod of that name, if an earlier call of Muster's made it.

        Raises:
            Conflict: the pod belongs to something else.
        """
        metadata = action.manifest["metadata"]
        answer = await self._client.get(paths.core("pods", namespace=metadata["namespace"], name=metadata["name"]))
        if self._cluster.pods.read(answer).owner_uid != job.metadata.uid:
            message = f"pod {metadata['name']} exists and is not this job's: delete it, or rename the job"
            self._remember_refusal(self._cluster.memory(job.metadata.uid), "PodNameTaken", message)
            raise Conflict(409, "AlreadyExists", message)
        return answer

    async def _delete_pod(self, job: TrainingJob, action: DeletePod) -> None:
        options = {"preconditions": {"uid": action.uid}, "propagationPolicy": "Background"}
        key = (job.metadata.namespace, action.name)
        try:
            answer = await self._client.delete(paths.core("pods", namespace=key[0], name=key[1]), options)
        except NotFound:
            self._cluster.pods.store.assume_deleted(key, action.uid)
            return
        self._cluster.pods.assume_delete(key, action.uid, answer)

    async def _bind_pod(self, job: TrainingJob, action: BindPod) -> None:
        memory = self._cluster.memory(job.metadata.uid)
        if action.uid in memory.bound:
            return  # the watch will show it
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": action.name, "uid": action.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": action.node},
        }
        path = paths.core("pods", namespace=job.metadata.namespace, name=action.name, subresource="binding")
        try:
            async with self._share(job):
                await self._client.post(path, body, one_of_many=True)
        except (NotFound, Conflict) as error:
            # Gone, being deleted, or bound by an earlier call of ours: the watch tells which.
            log.info("not bound", job=_name(job), pod=action.name, node=action.node, error=error.message)
        memory.bound.add(action.uid)

    async def _delete_job(self, job: TrainingJob) -> None:
        if self._before_deletion is not None:
            await self._before_deletion(job)
        options = {"preconditions": {"uid": job.metadata.uid}, "propagationPolicy": "Background"}
        path = paths.muster("trainingjobs", namespace=job.metadata.namespace, name=job.metadata.name)
        try:
            await self._client.delete(path, options)
        except NotFound:
            return
        log.info("deleted after its time to live", job=_name(job))

    def _share(self, job: TrainingJob) -> asyncio.Semaphore:
        """The semaphore for the namespace's share of the connections for writes that come by the thousand."""
        return self._shares.setdefault(job.metadata.namespace, asyncio.Semaphore(NAMESPACE_WRITES))

    def _pausing(self, memory: JobMemory) -> bool:
        return memory.create_not_before > self._clock()

    def _refused(self, job: TrainingJob, memory: JobMemory, error: ApiError) -> None:
        reason, message = refusal(error, named_class(job))
        self._remember_refusal(memory, reason, message)
        _log_refusal("creation refused", job, memory, reason, message)

    def _remember_refusal(self, memory: JobMemory, reason: str, message: str) -> None:
        memory.create_error = CreateError(reason, message)
        memory.outdate_template()  # it takes no nodes for the same pods again before that is tried
        if memory.create_not_before > self._clock():
            return
        memory.create_failures += 1
        pause = doubled(1.0, memory.create_failures, MAX_CREATE_BACK_OFF_SECONDS)
        memory.create_not_before = self._clock() + pause


async def _side_by_side(act: Callable[[OneOfSeveral], Awaitable[None]], actions: Iterable[OneOfSeveral]) -> None:
    """Perform all actions, a limited number at once. The first error is raised when every one has ended."""
    limit = asyncio.Semaphore(WRITES_AT_ONCE)

    async def one(action: OneOfSeveral) -> None:
        async with limit:
            await act(action)

    answers = await asyncio.gather(*(one(action) for action in actions), return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if errors:
        raise errors[0]


def _replacing(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that leaves exactly what is wanted (RFC 7386): vanished keys are null, in nested maps, too."""
    patch: dict[str, Any] = dict.fromkeys(current.keys() - wanted.keys())
    for key, value in wanted.items():
        current_value = current.get(key)
        is_map = isinstance(value, Mapping) and isinstance(current_value, Mapping)
        patch[key] = _replacing(current_value or {}, value) if is_map else value
    return patch


def _concerns_of(status: Mapping[str, Any]) -> set[str]:
    """The reasons of a status's concerns about saving, from the status as it is sent."""
    return {concern["reason"] for concern in (status.get("checkpoint") or {}).get("concerns", [])}


def _same_but_messages(wanted: Any, current: Any) -> bool:
    def bare(listed: Any) -> Any:
        return [{**entry, "message": ""} for entry in listed or ()]

    return bool(wanted != current and bare(wanted) == bare(current))


def _log_refusal(event: str, job: TrainingJob, memory: JobMemory, reason: str, message: str) -> None:
    """Log a refusal once for as long as its reason stays the same: each try meets it again, by one pod or another."""
    if memory.refusal_logged != event + reason:
        memory.refusal_logged = event + reason
        log.info(event, job=_name(job), reason=reason, message=message)


# Answers to a creation that say why: nothing was written.
_REFUSALS = (Forbidden, Invalid, WebhookFailed, DryRunUnsupported)


def refusal(error: ApiError, priority_class: str) -> tuple[str, str]:
    """A stable reason for an API error, and the server's message with what can be done. An admission webhook's may read
    like the server's own.

    Args:
        error: that refuses a pod.
        priority_class: that the job names; "" if it names none.
    """
    text = error.message
    if isinstance(error, Denied):
        return "CreationForbidden", text
    if isinstance(error, WebhookFailed):
        return (
            "WebhookFailed",
            f"{text}. Creation is tried again. See that the webhook's Service has a pod that is Ready, or ask for "
            "its failurePolicy.",
        )
    if isinstance(error, DryRunUnsupported):
        return (
            "DryRunUnsupported",
            f"{text}, and Muster checks each template in a dry run before it reserves nodes. The check is tried again. "
            "Set sideEffects of that webhook to None or NoneOnDryRun.",
        )
    if error.refusal in (Refusal.QUOTA_EXCEEDED, Refusal.QUOTA_UNKNOWN):
        return "QuotaExceeded", f"{text}. It is tried again; raise the quota or lower what the job asks for."
    if error.refusal is Refusal.POD_SECURITY:
        return "PodSecurityViolation", f"{text}. Fix spec.template, delete the job and create it again."
    if error.refusal is Refusal.NAMESPACE_TERMINATING:
        return "NamespaceTerminating", text
    if error.refusal is Refusal.PRIORITY_CLASS_MISSING:
        return (
            PRIORITY_CLASS_MISSING,
            f"{text}. It is tried again. To change that, {missing_class_remedy(priority_class)}.",
        )
    if isinstance(error, Invalid):
        return "TemplateInvalid", f"spec.template: {text}. {AGAIN}"
    return "CreationForbidden", text


def _name(job: TrainingJob) -> str:
    return f"{job.metadata.namespace}/{job.metadata.name}"
