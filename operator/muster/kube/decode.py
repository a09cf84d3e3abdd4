"""Decodes the API server's bytes straight into what decisions read, field by field, without a typed client in between.

Pods and nodes come in thousands: msgspec skips every field that no decision reads. Muster's own kinds are few: pydantic
checks them, and one that does not validate becomes an Undecodable value instead of breaking the stream for the others.
"""

import itertools
import re
import sys
from array import array
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import pydantic

from muster.api.base import EARLIEST, LATEST, UID_LENGTH, ApiModel
from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.namespaces import NODE_LEASES
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.kube.errors import from_status
from muster.kube.template_shares import MAX_NAMESPACE_BYTES, TemplateShares, parsed_bytes, texts_bytes
from muster.protocol.messages import readable
from muster.world import resources
from muster.world.names import PLACE_DIGITS, place_digest
from muster.world.quotas import QuotaView, Scope, quota_amounts
from muster.world.record import JobIdentity
from muster.world.resources import amounts, requests_of, total_requests
from muster.world.views import (
    INCARNATION_LABEL,
    INDEX_LABEL,
    JOB_UID_LABEL,
    READ_ANNOTATIONS,
    SAVES_TO_ANNOTATION,
    TERMINAL_PHASES,
    ConditionView,
    ContainerView,
    NodeView,
    OccupantView,
    PodView,
    Taint,
)

# The API server lets objects nest 10,000 deep. A page of them nests deeper, and no version of Python reads that.
FLAT = 500  # deeper than anything that is read, and deeper than pydantic reads: a job that nests so stays unreadable
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""A kubelet puts it on the pods that it makes for its own files. The API server lets kubelets make no others, and lets
nobody add or remove it later."""
COMPUTE_DOMAIN_LABEL = "resource.nvidia.com/computeDomain"
"""NVIDIA's DRA driver puts it on the daemons of a ComputeDomain; the workers of one do not have it."""
_PLACE = re.compile(f"[0-9a-f]{{{PLACE_DIGITS}}}")
_ESCAPED, _RUNS = re.compile(rb"\\.", re.DOTALL), re.compile(b"\1+")
_STEPS = bytes({**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", 255)}.get(byte, 0) for byte in range(256))
MAX_IMAGE_ID = 512
# A tenant may write megabytes into a pod and its status, and each replica keeps all pods.
MAX_POD_BYTES = 256 * 1024
MAX_MESSAGE = 4096  # characters of one message of a status
MAX_MESSAGE_OF_LARGE = 64
MAX_GATES = 16
# Nodes offer a handful. Of a pod with more resources than this only those that nodes offer count, as for a kubelet.
MAX_RESOURCE_NAMES = 64
_NO_NAMES: frozenset[str] = frozenset()

Raw = bytes | msgspec.Raw
Key = tuple[str, str]  # namespace ("" for cluster-scoped kinds), name


class NodeLease(NamedTuple):
    """The heartbeat of one node's kubelet. The time is the kubelet's own clock: compare it for change only."""

    node: str
    renew_time: str
    resource_version: int

    @property
    def moment(self) -> datetime | None:
        """Return the renewal time; None where it is not a time, or has no zone."""
        try:
            moment = datetime.fromisoformat(self.renew_time)
        except ValueError:
            return None
        return moment if moment.tzinfo else None


class AgentPod(NamedTuple):
    """What is read of the Pod of a node's agent. Thousands of these are kept."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    node: str
    ready: bool
    starting: bool


class PriorityClass(NamedTuple):
    """What is read of a PriorityClass: its value orders jobs, and they may preempt by it."""

    name: str
    value: int
    is_default: bool
    resource_version: int
    preempts: bool = True


class NamespaceView(NamedTuple):
    """What is read of a Namespace: its labels say whether jobs may start there."""

    name: str
    uid: str
    resource_version: int
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that does not fit its model, e.g. written past an older CRD; `error` is for its author.

    Attributes:
        owner_uid: uid of the controlling owner: for a Gang its job.
        reason: stable and CamelCase, for an Event.
        nodes: spec.nodes of a TrainingJob; 0 where it cannot be read either.
        waits_for_room: whether only the memory for it is missing: it is read once there is room.
    """

    namespace: str
    name: str
    uid: str
    resource_version: int
    generation: int
    error: str
    owner_uid: str = ""
    reason: str = "InvalidSpec"
    nodes: int = 0
    waits_for_room: bool = False


@dataclass(frozen=True, slots=True)
class Meta:
    """What a store needs to know of any object: its identity and version."""

    key: Key
    uid: str
    resource_version: int


class _ObjectMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    owner_references: list["_OwnerReference"] | None = None


class _OwnerReference(msgspec.Struct):
    uid: str = ""
    controller: bool | None = None


class _Resources(msgspec.Struct):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class _Container(msgspec.Struct, rename="camel"):
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Gate(msgspec.Struct):
    name: str = ""


class _Field(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_fields: list[_Field] | None = None


class _Required(msgspec.Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct):
    required: _Required | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _DeviceClaim(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    resources: _Resources | None = None
    affinity: msgspec.Raw = msgspec.Raw()
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: dict[str, str] | None = None
    scheduling_gates: list[_Gate] | None = None
    resource_claims: list[_DeviceClaim] | None = None
    scheduler_name: str = ""


class _Waiting(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None


class _Running(msgspec.Struct):
    pass


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    state: _State | None = None
    image_id: str | None = msgspec.field(name="imageID", default=None)


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class _PodCondition(msgspec.Struct):
    """A condition of a pod, without its time: a tenant may write one that is no time of this calendar."""

    type: str = ""
    status: str = ""
    message: str | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    conditions: list[_PodCondition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _PodAnnotations(msgspec.Struct):
    saves_to: str = msgspec.field(default="", name=SAVES_TO_ANNOTATION)
    mirror: str | None = msgspec.field(default=None, name=MIRROR_ANNOTATION)


class _WorkerMeta(_ObjectMeta, rename="camel"):
    annotations: _PodAnnotations | None = None


class _Pod(msgspec.Struct):
    metadata: _WorkerMeta
    spec: _PodSpec
    status: _PodStatus | None = None


class _Occupant(msgspec.Struct):
    metadata: _ObjectMeta
    spec: _PodSpec


class _AgentSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _ReportedProblem(msgspec.Struct):
    type: str = ""
    status: str = ""


class _AgentStatus(msgspec.Struct):
    phase: str = ""
    conditions: list[_ReportedProblem] | None = None


class _AgentPod(msgspec.Struct):
    metadata: _ObjectMeta
    spec: _AgentSpec | None = None
    status: _AgentStatus | None = None


class _Taint(msgspec.Struct):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _NodeSpec(msgspec.Struct):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None


class _NodeInfo(msgspec.Struct, rename={"boot_id": "bootID"}):
    boot_id: str = ""


class _NodeStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    allocatable: dict[str, str] | None = None
    capacity: dict[str, str] | None = None
    node_info: _NodeInfo | None = None


class _NodeMeta(_ObjectMeta, rename="camel"):
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _NodeMeta
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _LeaseSpec(msgspec.Struct, rename="camel"):
    renew_time: str | None = None


class _LeaseMeta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str


class _Lease(msgspec.Struct):
    metadata: _LeaseMeta
    spec: _LeaseSpec | None = None


class _LeaseList(msgspec.Struct):
    metadata: "_ListMeta"
    items: list[_Lease] | None = None


class _PriorityClass(msgspec.Struct, rename="camel"):
    metadata: _ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class _ScopeRequirement(msgspec.Struct, rename="camel"):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class _ScopeSelector(msgspec.Struct, rename="camel"):
    match_expressions: list[_ScopeRequirement] | None = None


class _QuotaSpec(msgspec.Struct, rename="camel"):
    scopes: list[str] | None = None
    scope_selector: _ScopeSelector | None = None


class _QuotaStatus(msgspec.Struct):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class _ResourceQuota(msgspec.Struct):
    metadata: _ObjectMeta
    spec: _QuotaSpec | None = None
    status: _QuotaStatus | None = None


class _OnlyMeta(msgspec.Struct):
    metadata: _ObjectMeta


class _Plain(msgspec.Struct):
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    series: dict[str, Any] | None = None


class _DeletionMeta(msgspec.Struct, rename="camel"):
    finalizers: list[str] | None = None
    deletion_grace_period_seconds: int | None = None


class _Deletion(msgspec.Struct):
    kind: str = ""
    metadata: _DeletionMeta = msgspec.field(default_factory=_DeletionMeta)


class WatchEvent(msgspec.Struct):
    """One line of a watch: type ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    resource_version: str = "0"
    continue_: str | None = None


class ListPage(msgspec.Struct):
    """One page of a list, items still raw."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


Decoded = TypeVar("Decoded")

_pods = msgspec.json.Decoder(_Pod)
_affinities = msgspec.json.Decoder(_Affinity | None)
_occupants = msgspec.json.Decoder(_Occupant)
_nodes = msgspec.json.Decoder(_Node)
_agent_pods = msgspec.json.Decoder(_AgentPod)
_leases = msgspec.json.Decoder(_Lease)
_lease_lists = msgspec.json.Decoder(_LeaseList)
_priorities = msgspec.json.Decoder(_PriorityClass)
_quotas = msgspec.json.Decoder(_ResourceQuota)
_metas = msgspec.json.Decoder(_OnlyMeta)
_events = msgspec.json.Decoder(WatchEvent)
_pages = msgspec.json.Decoder(ListPage)
_plain = msgspec.json.Decoder(_Plain)
_deletions = msgspec.json.Decoder(_Deletion)


def watch_event(line: bytes) -> WatchEvent:
    """Decode one line of a watch."""
    return _deeply(_events, line)


def list_page(data: bytes) -> ListPage:
    """Decode one page of a list.

    Raises:
        ApiError: it is none, as where a proxy answers in place of the API server.
    """
    try:
        return _deeply(_pages, data)
    except msgspec.DecodeError as error:
        raise from_status(200, data) from error


def _deeply(decoder: "msgspec.json.Decoder[Decoded]", data: Raw) -> Decoded:
    """Decode JSON whose skipped parts may nest deeper than Python's limit allows."""
    try:
        return decoder.decode(data)
    except RecursionError:
        return decoder.decode(_flattened(bytes(data)))


def _flattened(data: bytes) -> bytes:
    """Return the JSON document with null in place of each value that nests deeper than FLAT. Loops in Python would take
    seconds for a large one."""
    outside = _ESCAPED.sub(b"..", data).split(b'"')
    outside[1::2] = [b"." * len(text) for text in outside[1::2]]
    steps = array("b", b'"'.join(outside).translate(_STEPS))
    deep = bytes(map(FLAT.__lt__, itertools.accumulate(steps)))
    kept, begin = [], 0
    for run in _RUNS.finditer(deep):
        kept += [data[begin : run.start()], b"null"]
        begin = run.end() + 1  # the bracket that closes it
    return b"".join([*kept, data[begin:]])


def resource_version(data: Raw) -> int:
    """Return metadata.resourceVersion alone, e.g. of a bookmark or of the answer to a write."""
    return int(_metas.decode(data).metadata.resource_version)


def lasting_uid(data: bytes) -> str:
    """Return metadata.uid of an object; "" for one that is being deleted."""
    meta = _deeply(_metas, data).metadata
    return "" if meta.deletion_timestamp is not None else meta.uid


def is_gone(answer: bytes) -> bool:
    """Whether the answer to a DELETE says that the object is gone already, and not only going to be.

    A Status means gone. So does an object without finalizers and without grace (a pod that no kubelet knows yet).
    """
    parsed = _deeply(_deletions, answer)
    meta = parsed.metadata
    return parsed.kind == "Status" or (meta.deletion_grace_period_seconds == 0 and not meta.finalizers)


def pod(data: Raw, offered: Container[str] = _NO_NAMES) -> PodView:
    """Decode a pod of a gang. Values that the pods of a gang have in common are stored once. `offered` are the extended
    resources and huge pages that nodes offer.
    """
    most = MAX_MESSAGE if len(bytes(data)) <= MAX_POD_BYTES else MAX_MESSAGE_OF_LARGE
    parsed = _deeply(_pods, data)
    meta, spec, status = parsed.metadata, parsed.spec, parsed.status or _PodStatus()
    labels = meta.labels or {}
    return PodView(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        owner_uid=_owner(meta),
        job_uid=sys.intern(_job_uid(meta)),
        index=_label_number(labels.get(INDEX_LABEL), -1),
        incarnation=_label_number(labels.get(INCARNATION_LABEL), 0),
        node=spec.node_name or "",
        pinned="" if spec.node_name or spec.scheduling_gates else _pinned(spec.affinity),
        phase=sys.intern(status.phase),
        reason=_text(status.reason, most),
        message=_text(status.message, most) if status.phase in TERMINAL_PHASES else "",
        pod_ip=status.pod_ip or "",
        host_ip=status.host_ip or "",
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
        grace_seconds=meta.deletion_grace_period_seconds or 0,
        scheduler=sys.intern(spec.scheduler_name),
        gates=tuple(sys.intern(gate.name) for gate in (spec.scheduling_gates or ())[:MAX_GATES]),
        requests=_requested(spec, offered),
        containers=(
            *(_container(c, most, init=True) for c in status.init_container_statuses or ()),
            *(_container(c, most, init=False) for c in status.container_statuses or ()),
        ),
        unschedulable_message=_text(
            next((c.message for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False"), ""),
            most,
        ),
        device_claim=_device_claim(meta, spec),
        saves_to=_saves_to(meta),
    )


def occupant(data: Raw, offered: Container[str] = _NO_NAMES) -> OccupantView:
    """Decode a pod only as far as it takes resources on its node. `offered` are the extended resources and huge pages
    that nodes offer.
    """
    parsed = _deeply(_occupants, data)
    meta, spec = parsed.metadata, parsed.spec
    requested = _requested(spec, offered) if spec.node_name else {}
    return OccupantView(
        meta.namespace,
        meta.name,
        meta.uid,
        int(meta.resource_version),
        spec.node_name or "",
        requested,
        _device_claim(meta, spec),
    )


def agent_pod(data: Raw) -> AgentPod:
    """Decode the Pod of a node's agent. It counts as starting until all of its containers have been created."""
    parsed = _agent_pods.decode(data)
    meta, status = parsed.metadata, parsed.status or _AgentStatus()
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions or ())
    return AgentPod(
        sys.intern(meta.namespace),
        meta.name,
        meta.uid,
        int(meta.resource_version),
        (parsed.spec.node_name if parsed.spec else None) or "",
        ready,
        status.phase == "Pending",
    )


def bare_agent_pod(data: Raw) -> AgentPod:
    """Decode only the identity of an agent's Pod that cannot be read otherwise: it counts as not Ready."""
    pod = bare_pod(data)
    return AgentPod(pod.namespace, pod.name, pod.uid, pod.resource_version, pod.node, ready=False, starting=False)


def requests(data: Raw) -> dict[str, int]:
    """Return what the scheduler would reserve for this pod."""
    return _requested(_deeply(_occupants, data).spec)


def without_metadata(data: Raw) -> dict[str, dict[str, Any]]:
    """Return spec, status and series of an object. Its managed fields may nest deeper than Python's parser reads."""
    return {name: value or {} for name, value in msgspec.structs.asdict(_deeply(_plain, data)).items()}


def node(data: Raw) -> NodeView:
    """Decode a node. Values that thousands of nodes have in common, about forty for each node, are stored once."""
    parsed = _deeply(_nodes, data)
    meta, spec, status = parsed.metadata, parsed.spec or _NodeSpec(), parsed.status or _NodeStatus()
    ready = next((c for c in status.conditions or () if c.type == "Ready"), _Condition())
    return NodeView(
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        labels={sys.intern(key): sys.intern(value) for key, value in (meta.labels or {}).items()},
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        ready=ready.status == "True",
        ready_reason=ready.reason or "",
        # A kernel's boot ID has 36 characters; a kubelet's value is not validated.
        boot_id=status.node_info.boot_id[:UID_LENGTH] if status.node_info else "",
        allocatable=amounts(status.allocatable),
        capacity=amounts(status.capacity),
        conditions=tuple(map(_node_condition, status.conditions or ())),
        annotations={key: value for key, value in (meta.annotations or {}).items() if key in READ_ANNOTATIONS},
        deleting=meta.deletion_timestamp,
    )


def _node_condition(condition: _Condition) -> ConditionView:
    return ConditionView(
        sys.intern(condition.type),
        sys.intern(condition.status),
        sys.intern(condition.reason or ""),
        sys.intern(condition.message or ""),
        _reckonable(condition.last_transition_time),
    )


def node_lease(data: Raw) -> NodeLease:
    """Decode a lease in kube-node-lease."""
    return _node_lease(_leases.decode(data))


def node_leases(data: bytes, read: Callable[[Raw], NodeLease]) -> tuple[list[NodeLease], int]:
    """Return all leases in kube-node-lease, and the resourceVersion of the list. Each lease is read by itself when
    decoding the whole list fails.
    """
    try:
        whole = _lease_lists.decode(data)
        return list(map(_node_lease, whole.items or ())), int(whole.metadata.resource_version)
    except (ValueError, RecursionError):
        page = list_page(data)
        return list(map(read, page.items or ())), int(page.metadata.resource_version)


def _node_lease(parsed: _Lease) -> NodeLease:
    renew_time = parsed.spec.renew_time if parsed.spec else None
    return NodeLease(parsed.metadata.name, renew_time or "", int(parsed.metadata.resource_version))


def priority_class(data: Raw) -> PriorityClass:
    """Decode a PriorityClass."""
    parsed = _priorities.decode(data)
    meta = parsed.metadata
    preempts = parsed.preemption_policy != "Never"
    return PriorityClass(meta.name, parsed.value, parsed.global_default, int(meta.resource_version), preempts)


def namespace(data: Raw) -> NamespaceView:
    """Decode a Namespace, of which only the metadata counts."""
    meta = _deeply(_bares, data).metadata
    return NamespaceView(meta.name, meta.uid, int(meta.resource_version), meta.labels or {})


def resource_quota(data: Raw) -> QuotaView:
    """Decode a ResourceQuota. Its status counts, as for the API server: a quota that no controller has seen yet limits
    nothing.

    A quota larger than MAX_QUOTA_BYTES is left to the API server: a tenant may write 20,000 names into it.
    """
    if len(data) > MAX_QUOTA_BYTES:
        return bare_quota(data)
    parsed = _deeply(_quotas, data)
    meta, spec, status = parsed.metadata, parsed.spec or _QuotaSpec(), parsed.status or _QuotaStatus()
    selected = spec.scope_selector.match_expressions if spec.scope_selector else None
    return QuotaView(
        meta.namespace,
        meta.name,
        meta.uid,
        int(meta.resource_version),
        quota_amounts(status.hard),
        quota_amounts(status.used),
        (
            *map(Scope, spec.scopes or ()),
            *(
                Scope(expression.scope_name, expression.operator, tuple(expression.values or ()))
                for expression in selected or ()
            ),
        ),
    )


Model = TypeVar("Model", bound=ApiModel)


class _BareJobSpec(msgspec.Struct):
    template: msgspec.Raw = msgspec.Raw(b"")


class _BareJobMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: msgspec.Raw = msgspec.Raw(b"")


class _BareJob(msgspec.Struct):
    metadata: _BareJobMeta = msgspec.field(default_factory=_BareJobMeta)
    spec: _BareJobSpec = msgspec.field(default_factory=_BareJobSpec)

    def parsed_bytes(self) -> int:
        """Return the memory of what a tenant may make large: the API server admits a megabyte of labels or owners."""
        meta = self.metadata
        objects = (self.spec.template, meta.owner_references)
        texts = (meta.labels or {}, meta.annotations or {})
        return sum(parsed_bytes(bytes(raw)) for raw in objects) + sum(map(texts_bytes, texts))


# Pods are far smaller; in memory an object may take thirty times its size, and each replica keeps all of them.
MAX_TEMPLATE_BYTES = 128 * 1024  # manifests/components/jobs/training-admission.yaml refuses larger ones
TEMPLATE_TOO_LARGE = "TemplateTooLarge"
MAX_QUOTA_BYTES = 64 * 1024
_jobs = msgspec.json.Decoder(_BareJob)


def custom(model: type[Model]) -> Callable[[Raw], Model | Undecodable]:
    """Return a decoder for one of Muster's own kinds."""

    def decode(data: Raw) -> Model | Undecodable:
        try:
            if model is TrainingJob and len(_jobs.decode(data).spec.template) > MAX_TEMPLATE_BYTES:
                most = f"spec.template is larger than {MAX_TEMPLATE_BYTES // 1024} KiB"
                return _too_large(data, f"{most}: put scripts and data into the image, a ConfigMap or a volume")
            return model.model_validate_json(bytes(data))
        except pydantic.ValidationError as error:
            return undecodable(data, _explain(error))
        except Exception as error:  # noqa: BLE001 - whatever one object does to its model, the others are read
            return undecodable(data, f"{type(error).__name__}: {error}")

    return decode


def training_job(shares: TemplateShares) -> Callable[[Raw], TrainingJob | Undecodable]:
    """Return a decoder for a process that keeps all jobs: of a job beyond its namespace's share only the identity is
    kept."""
    read = custom(TrainingJob)

    def decode(data: Raw) -> TrainingJob | Undecodable:
        try:
            bare = _jobs.decode(data)
        except Exception:  # noqa: BLE001 - it says why
            return read(data)
        key, size_bytes = (bare.metadata.namespace, bare.metadata.name), bare.parsed_bytes()
        if len(bare.spec.template) <= MAX_TEMPLATE_BYTES and not shares.has_room(key, size_bytes):
            most = (
                f"the templates and metadata of all jobs in namespace {key[0]} take more than "
                f"{MAX_NAMESPACE_BYTES // 2**20} MiB of memory"
            )
            remedy = "delete jobs there that have ended, and Muster takes this one in by itself"
            shares.refuse(key, size_bytes)
            return replace(_too_large(data, f"{most}: {remedy}"), waits_for_room=True)
        shares.forget(key)
        job = read(data)
        if isinstance(job, TrainingJob):
            shares.hold(key, size_bytes, job)
        return job

    return decode


def object_key(value: TrainingJob | Gang | FleetPolicy | NodeHealth | Undecodable) -> Key:
    """Return the key of an object of one of Muster's own kinds, decoded or not."""
    if isinstance(value, Undecodable):
        return value.namespace, value.name
    return value.metadata.namespace, value.metadata.name


def job_identity(job: TrainingJob | Undecodable) -> JobIdentity:
    """Return the identity by which a job and its Gang record refer to each other."""
    if isinstance(job, Undecodable):
        return JobIdentity(job.namespace, job.name, job.uid, job.nodes)
    return JobIdentity(job.metadata.namespace, job.metadata.name, job.metadata.uid, job.spec.nodes)


def _too_large(data: Raw, error: str) -> Undecodable:
    return replace(undecodable(data, error), reason=TEMPLATE_TOO_LARGE)


def undecodable(data: Raw, error: str) -> Undecodable:
    """Return what can be read of an object that does not fit its model."""
    meta = _deeply(_metas, data).metadata
    version = int(meta.resource_version)
    owner, nodes = _owner(meta), _size(data)
    return Undecodable(meta.namespace, meta.name, meta.uid, version, meta.generation, error, owner, nodes=nodes)


class _SizedSpec(msgspec.Struct):
    nodes: int = 0


class _Sized(msgspec.Struct):
    spec: _SizedSpec = msgspec.field(default_factory=_SizedSpec)


_sizes = msgspec.json.Decoder(_Sized)


def _size(data: Raw) -> int:
    try:
        return _deeply(_sizes, data).spec.nodes
    except msgspec.DecodeError:
        return 0


class _BareSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _BareMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None
    annotations: _PodAnnotations | None = None
    owner_references: list[_OwnerReference] | None = None


class _Bare(msgspec.Struct):
    metadata: _BareMeta


class _BarePod(_Bare):
    spec: _BareSpec | None = None


_bares = msgspec.json.Decoder(_Bare)
_bare_pods = msgspec.json.Decoder(_BarePod)
UNREADABLE = "Unreadable"


def bare_pod(data: Raw) -> PodView:
    """Decode only the identity of a pod that cannot be read otherwise: it counts as alive."""
    parsed = _deeply(_bare_pods, data)
    meta, labels = parsed.metadata, parsed.metadata.labels or {}
    owner = next((owner.uid for owner in meta.owner_references or () if owner.controller), "")
    return PodView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        owner_uid=owner,
        job_uid=_job_uid(meta),
        index=_label_number(labels.get(INDEX_LABEL), -1),
        incarnation=_label_number(labels.get(INCARNATION_LABEL), 0),
        node=(parsed.spec.node_name if parsed.spec else None) or "",
        reason=UNREADABLE,
        requests={resources.UNREADABLE: 1},
    )


def bare_occupant(data: Raw) -> OccupantView:
    """Decode only the identity of a pod that cannot be read otherwise: it counts as holding its whole node."""
    pod = bare_pod(data)
    return OccupantView(pod.namespace, pod.name, pod.uid, pod.resource_version, pod.node, pod.requests)


def bare_node(data: Raw) -> NodeView:
    """Decode only the identity of a node that cannot be read otherwise: it takes no worker."""
    parsed = _deeply(_bares, data)
    meta = parsed.metadata
    return NodeView(
        meta.name, meta.uid, int(meta.resource_version), labels=meta.labels or {}, ready=False, ready_reason=UNREADABLE
    )


def bare_lease(data: Raw) -> NodeLease:
    """Decode only the identity of a lease that cannot be read otherwise: its kubelet counts as silent."""
    meta = _deeply(_bares, data).metadata
    return NodeLease(meta.name, "", int(meta.resource_version))


def bare_quota(data: Raw) -> QuotaView:
    """Decode only the identity of a ResourceQuota that cannot be read otherwise: it is left to the API server."""
    meta = _deeply(_bares, data).metadata
    return QuotaView(meta.namespace, meta.name, meta.uid, int(meta.resource_version))


def bare_priority(data: Raw) -> PriorityClass:
    """Decode only the identity of a PriorityClass that cannot be read otherwise: it gives no job precedence."""
    meta = _deeply(_bares, data).metadata
    return PriorityClass(meta.name, 0, is_default=False, resource_version=int(meta.resource_version))


class _Flat(Protocol):
    """A namespaced value that carries its own metadata."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> int: ...


def flat_meta(value: _Flat) -> Meta:
    """Return the metadata of a PodView, an OccupantView or an Undecodable."""
    return Meta((value.namespace, value.name), value.uid, value.resource_version)


def node_meta(value: NodeView | NamespaceView) -> Meta:
    """Return the metadata of a Node or a Namespace."""
    return Meta(("", value.name), value.uid, value.resource_version)


def lease_meta(value: NodeLease) -> Meta:
    """Return the metadata of a node's lease. Its uid is not read: a lease that was created again still belongs to the
    same node."""
    return Meta((NODE_LEASES, value.node), value.node, value.resource_version)


def priority_meta(value: PriorityClass) -> Meta:
    """Return the metadata of a PriorityClass. Its uid is not read: its value is all that counts."""
    return Meta(("", value.name), value.name, value.resource_version)


def custom_meta(value: Any) -> Meta:
    """Return the metadata of one of Muster's own kinds, decoded or not."""
    if isinstance(value, Undecodable):
        return flat_meta(value)
    meta = value.metadata
    return Meta((meta.namespace, meta.name), meta.uid, int(meta.resource_version or 0))


def _reckonable(moment: datetime | None) -> datetime | None:
    """Return a time to which durations can be added; None for one beyond the range of datetime."""
    return moment if moment is not None and EARLIEST <= moment <= LATEST else None


def _owner(meta: _ObjectMeta) -> str:
    return next((sys.intern(owner.uid) for owner in meta.owner_references or () if owner.controller), "")


def _label_number(value: str | None, default: int) -> int:
    return int(value) if value is not None and value.isdigit() else default


def _pinned(affinity: msgspec.Raw) -> str:
    """Return the only node that a required affinity allows, as a worker's does; "" for any other affinity."""
    try:
        parsed = _affinities.decode(affinity) if bytes(affinity) else None
    except msgspec.DecodeError:  # the API server admits no such affinity: any node is allowed
        return ""
    required = parsed.node_affinity.required if parsed is not None and parsed.node_affinity is not None else None
    terms = required.node_selector_terms if required is not None else None
    names = {_named(term) for term in terms or ()}
    return names.pop() if len(names) == 1 else ""


def _named(term: _Term) -> str:
    for field in term.match_fields or ():
        if field.key == "metadata.name" and field.operator == "In" and field.values and len(field.values) == 1:
            return field.values[0]
    return ""


def _container(status: _ContainerStatus, most: int, *, init: bool) -> ContainerView:
    name, state = sys.intern(status.name), status.state or _State()
    image = sys.intern(status.image_id[:MAX_IMAGE_ID]) if status.image_id else ""
    if state.terminated is not None:
        ended = state.terminated
        return ContainerView(
            name,
            init,
            terminated=True,
            exit_code=ended.exit_code,
            terminated_reason=_text(ended.reason, most),
            terminated_message=readable((ended.message or "")[-most:]),
            image_id=image,
        )
    if state.running is not None:
        return ContainerView(name, init, running=True, image_id=image)
    waiting = state.waiting or _Waiting()
    reason, message = _text(waiting.reason, most), _text(waiting.message, most)
    return ContainerView(name, init, waiting_reason=reason, waiting_message=message)


def _text(given: str | None, most: int) -> str:
    """Return the first characters of a text for people, which may hold what a tenant's program or image says."""
    return readable((given or "")[:most])


def _requested(spec: _PodSpec, offered: Container[str] = _NO_NAMES) -> dict[str, int]:
    """Return what the scheduler reserves for a pod. Of a pod that names too many resources only those that nodes offer
    count."""
    askers = [spec, *(spec.containers or ()), *(spec.init_containers or ())]
    asked = [asker.resources for asker in askers if asker.resources is not None]
    named = [names for part in asked for names in (part.requests, part.limits) if names]
    if spec.overhead:
        named.append(spec.overhead)
    if len({name for names in named for name in names}) > MAX_RESOURCE_NAMES:
        for names in named:
            for name in [name for name in names if name not in resources.COUNTED and name not in offered]:
                del names[name]
    return total_requests(
        [_requests_of_part(container) for container in spec.containers or ()],
        [
            (_requests_of_part(container), container.restart_policy == "Always")
            for container in spec.init_containers or ()
        ],
        [amounts(spec.overhead)],
        _requests_of_part(spec),
    )


def _is_mirror(meta: _WorkerMeta | _BareMeta) -> bool:
    """Whether a kubelet made the pod for a file of its own. It may give it any label, in any namespace."""
    return meta.annotations is not None and meta.annotations.mirror is not None


def _job_uid(meta: _WorkerMeta | _BareMeta) -> str:
    """Return the uid of the job that a pod says it belongs to; "": to none."""
    return "" if _is_mirror(meta) else (meta.labels or {}).get(JOB_UID_LABEL, "")


def _saves_to(meta: _WorkerMeta) -> str:
    """Return where a worker's pod says that its job saves; "": nowhere.

    Older pods have the text in place of its digest.
    """
    text = "" if meta.annotations is None or _is_mirror(meta) else meta.annotations.saves_to
    return sys.intern(text if _PLACE.fullmatch(text) else place_digest(text))


def _device_claim(meta: _ObjectMeta, spec: _PodSpec) -> str:
    """Return the name of the first ResourceClaim of a pod, or of its template; "" where none can have an accelerator.

    A pod does not say which devices its claims have. Of the daemon of an NVIDIA ComputeDomain it is known: an IMEX
    daemon, which runs beside the workers of the domain.
    """
    if COMPUTE_DOMAIN_LABEL in (meta.labels or {}):
        return ""
    claim = next(iter(spec.resource_claims or ()), None)
    return "" if claim is None else claim.resource_claim_name or claim.resource_claim_template_name or claim.name


def _requests_of_part(asker: _Container | _PodSpec) -> dict[str, int]:
    resources = asker.resources
    return {} if resources is None else requests_of(resources.requests, resources.limits)


def _explain(error: pydantic.ValidationError) -> str:
    problems = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors(include_url=False)[:8]]
    return "; ".join(problems)
