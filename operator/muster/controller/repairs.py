"""Requests repairs: writes, keeps and deletes the RepairRequests of nodes that are out of use and empty, where the
FleetPolicy wants that.

Requests are few and slow, so they are listed now and then instead of being watched. They are not listed at all while
the policy asks for none. What a look does follows from what it has read (`muster.health.repairs`). Every deletion names
what was read, so that a repair system that has taken a request on in between keeps it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import structlog
from prometheus_client import Gauge

from muster.answers.lists import items
from muster.api.base import API_VERSION
from muster.api.nodehealth import AgentStatus, RecommendedAction
from muster.api.repairrequest import Machine, RepairAction, RepairRequest
from muster.controller.cluster import Cluster
from muster.controller.nodereconciler import NodeReconciler
from muster.controller.nodeworlds import NodeWorlds
from muster.health.repairs import (
    NOT_EMPTY,
    Case,
    ExistingRequest,
    RepairPlan,
    RepairStatus,
    RepairWorld,
    Stage,
    is_held,
    plan,
)
from muster.kube import decode, paths
from muster.kube.client import Client
from muster.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, LeadershipLost, NotFound
from muster.kube.events import NORMAL, WARNING, EventRecorder, Regarding

PERIOD_SECONDS = 10.0
# A node that others' pods come to and go from is not asked for again and again.
REST_SECONDS = 600.0
WRITES = 32
"""Of a kind at one look, at most; the others come with the next ones."""

log = structlog.get_logger()
_read = decode.custom(RepairRequest)
_requests = Gauge("muster_repair_requests", "RepairRequests, by stage.", ["stage"])
_TOLD = {
    Stage.ASKED: (NORMAL, "RepairRequested"),
    Stage.IN_PROGRESS: (NORMAL, "RepairInProgress"),
    Stage.DONE: (NORMAL, "RepairDone"),
    Stage.FAILED: (WARNING, "RepairFailed"),
}


@dataclass(frozen=True, slots=True)
class _Found:
    """A request as it was read: what decisions need of it, and what a deletion names."""

    request: ExistingRequest
    uid: str
    resource_version: str


class _BareStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _Bare(msgspec.Struct, frozen=True):
    status: _BareStatus = _BareStatus()


def _phase_of(data: bytes) -> str:
    """The phase of a request that does not fit its schema; "" where not even that can be read."""
    try:
        return msgspec.json.decode(data, type=_Bare).status.phase
    except msgspec.DecodeError:
        return ""


def _machine_of(agent: AgentStatus | None) -> Machine:
    if agent is None:
        return Machine()
    return Machine(
        system_uuid=agent.system_uuid,
        gpu_model=agent.gpu_model,
        gpu_serials=agent.gpu_serials,
        boot_id=agent.boot_id,
    )


class RepairKeeper:
    """Keeps RepairRequests in line with what nodes need; to be run by the leader."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        nodes: NodeReconciler,
        worlds: NodeWorlds,
        events: EventRecorder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._nodes = nodes
        self._worlds = worlds
        self._events = events
        self._clock = clock
        self._changed = asyncio.Event()
        self._words: dict[str, RepairStatus] | None = None  # None: requests have not been read yet
        self._missing_since: dict[str, float] = {}
        self._rests_until: dict[str, float] = {}
        cluster.policies.store.subscribe(lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """Look at all requests again and again until cancelled.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        while True:
            self._changed.clear()
            if not self._is_wanted():
                if self._words is None:
                    self._report_statuses({})
                await self._changed.wait()
                continue
            try:
                await self.reconcile()
            except ApiError as error:
                log.warning("repairs not looked after", error=str(error))
            except LeadershipLost:
                raise
            except Exception:
                log.exception("repairs not looked after")
            await asyncio.sleep(PERIOD_SECONDS)

    def _is_wanted(self) -> bool:
        return bool(self._cluster.policy().health.repair.actions) or self._worlds.knows_of_repairs()

    async def reconcile(self) -> None:
        """Read all requests, then create, keep and delete them as nodes need.

        Raises:
            ApiError: the requests could not be read.
            LeadershipLost: this process may not write any more.
        """
        requests = await self._listed()
        if self._cluster.policy_unknown:
            return
        cases = {name: self._case(name) for name in {*self._nodes.out(), *requests, *(self._words or ())}}
        repair_plan = self._planned(requests, {name: case for name, case in cases.items() if case is not None})
        words = dict(repair_plan.kept)
        words |= {name: requests[name].request.status for name in repair_plan.ends}
        words |= {
            name: RepairStatus(Stage.ASKED, case.wants.value)
            for name in (*repair_plan.creates, *repair_plan.holds)
            if (case := cases[name]) is not None and case.wants is not None
        }
        for name, word in (self._words or {}).items():  # nothing is known of these just now
            if cases[name] is None and name not in words and word.stage is Stage.ASKED and self._exists(name):
                words[name] = word
        self._report_statuses(words)
        await self._carry_out(repair_plan, requests, words)

    def _exists(self, name: str) -> bool:
        return name in self._cluster.fleet.nodes

    def _planned(self, requests: Mapping[str, _Found], cases: Mapping[str, Case]) -> RepairPlan:
        now = self._clock()
        self._rests_until = {name: until for name, until in self._rests_until.items() if until > now}
        self._missing_since = {name: self._missing_since.get(name, now) for name in requests if not self._exists(name)}
        return plan(
            RepairWorld(
                cases,
                {name: request.request for name, request in requests.items()},
                self._cluster.policy().health.repair,
                {name: now - since for name, since in self._missing_since.items()},
                self._rests_until,
            )
        )

    async def _carry_out(
        self, repair_plan: RepairPlan, requests: Mapping[str, _Found], words: dict[str, RepairStatus]
    ) -> None:
        for name, why in list(repair_plan.ends.items())[:WRITES]:
            try:
                is_deleted = await self._deleted(name, requests[name], why)
            except ApiError as error:
                log.warning("request for repair not deleted", node=name, error=str(error))
                continue
            if is_deleted:
                if why == NOT_EMPTY:
                    self._rests_until[name] = self._clock() + REST_SECONDS
                words.pop(name, None)
                self._report_statuses(words)
        for name in repair_plan.creates[:WRITES]:
            try:
                await self._create(name)
            except ApiError as error:
                log.warning("repair not asked for", node=name, error=str(error))

    def _case(self, name: str) -> Case | None:
        """The facts about a node for the decision whether to request a repair; None while they are not known."""
        if name in self._cluster.fleet.outside:  # what is not in progress yet is withdrawn
            return Case(name, None)
        record, verdict = self._cluster.node_record(name), self._nodes.verdict_of(name)
        in_force = self._nodes.effect_in_force(name)
        if record is None or verdict is None or in_force is None:
            return None
        incident = verdict.open_incident
        if not verdict.out or incident is None:
            return Case(name, None, held=is_held(record.status.findings))
        ours = (
            incident.taken_out_time is not None
            and in_force.avoid
            and not (verdict.grounds.cordoned or verdict.grounds.in_charge)
        )
        repair = verdict.follow_up.repair
        return Case(
            node=name,
            incident_time=incident.time,
            wants=RepairAction(repair.value) if ours and repair is not RecommendedAction.NONE else None,
            reason=verdict.conclusion.reason,
            message=verdict.conclusion.message,
            findings=verdict.conclusion.findings,
            node_uid=verdict.record.node_uid,
            machine=_machine_of(record.status.agent),
            held=is_held(record.status.findings),
            is_empty=self._cluster.is_empty(name),
        )

    async def _create(self, name: str) -> None:
        case = self._case(name)  # again: other writes have taken their time
        action = case.asks(self._cluster.policy().health.repair) if case is not None else None
        if case is None or action is None or not case.held or case.incident_time is None:
            return
        body = {
            "apiVersion": API_VERSION,
            "kind": "RepairRequest",
            "metadata": {"name": name},
            "spec": case.spec().to_json(),
        }
        try:
            await self._client.post(paths.muster("repairrequests"), body)
        except AlreadyExists:
            return  # by a write of which the answer was lost, or of the leader before: the next look reads it
        log.info("repair asked for", node=name, action=action.value, reason=case.reason)
        self._record(name, Stage.ASKED, f"{action.value} is requested: {case.message}")

    async def _deleted(self, name: str, request: _Found, why: str) -> bool:
        preconditions = {"uid": request.uid, "resourceVersion": request.resource_version}
        try:
            await self._client.delete(paths.muster("repairrequests", name=name), {"preconditions": preconditions})
        except NotFound:
            return True
        except Conflict:  # it was just written to, maybe by the system that takes it on
            return False
        log.info("request for repair deleted", node=name, why=why)
        return True

    async def _listed(self) -> dict[str, _Found]:
        """All requests, by name; empty where the cluster does not know the kind, or the profile has no right to it."""
        try:
            objects = [raw async for raw in items(self._client, paths.muster("repairrequests"))]
        except NotFound as error:
            log.warning("the cluster knows no RepairRequests: apply Muster's CRDs", error=str(error))
            return {}
        except Forbidden as error:
            if self._cluster.profile.acts_on_nodes:
                raise
            log.warning("RepairRequests of an earlier profile may be left: delete them", error=str(error))
            return {}
        requests: dict[str, _Found] = {}
        for raw in objects:
            decoded = _read(raw)
            if isinstance(decoded, decode.Undecodable):
                request = ExistingRequest.unreadable(_phase_of(raw), decoded.error)
                requests[decoded.name] = _Found(request, decoded.uid, str(decoded.resource_version))
            else:
                meta = decoded.metadata
                requests[meta.name] = _Found(ExistingRequest.from_object(decoded), meta.uid, meta.resource_version)
        return requests

    def _report_statuses(self, words: Mapping[str, RepairStatus]) -> None:
        old_statuses, self._words = self._words, dict(words)
        self._worlds.note_repairs(words)
        for stage in _TOLD:
            _requests.labels(stage.value).set(sum(word.stage is stage for word in words.values()))
        for name, word in words.items():
            old_status = (old_statuses or {}).get(name)
            if (
                old_statuses is not None
                and word.stage is not Stage.ASKED
                and (old_status is None or old_status.stage is not word.stage)
            ):
                self._record(name, word.stage, f"{word.action or 'repair'}: {word.message or word.stage.value}")

    def _record(self, name: str, stage: Stage, text: str) -> None:
        kind, reason = _TOLD[stage]
        self._events.record(Regarding("v1", "Node", name, name), kind, reason, text[:1024])
