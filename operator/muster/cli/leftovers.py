"""Read what a removal of Muster takes and leaves, kind by kind, with the user's own rights.

A kind that may not be read is a row of its own that says so, because it may have objects. Only metadata is read of most
kinds: an object of another version, or one that fits no model, is listed like any other.

Tests: tests/unit/cli/test_uninstall.py, tests/integration/nightly/install/test_leftovers.py.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.lists import listed
from muster.api.base import GROUP, ApiModel
from muster.api.namespaces import CHECKERS, SYSTEM
from muster.health.sources import UNHEALTHY_TAINT
from muster.kube import paths
from muster.kube.errors import Forbidden, NotFound
from muster.protocol.checkpoint_names import is_url
from muster.world.names import gang_name, nodes_text
from muster.world.views import JOB_UID_LABEL, MUSTER_HEALTHY

if TYPE_CHECKING:
    from muster.kube.client import Client

PAGE = "muster-page"
OWN_NAMESPACES = {SYSTEM: "definitions", "muster-agent": "overlay", CHECKERS: "overlay", PAGE: "page"}
PART_OF, NAME = "app.kubernetes.io/part-of", "muster"
# The steps of docs/install.md, "Removing everything", in their order.
STEPS = {
    "history": "kubectl get endedjobs -n muster-system -o yaml > history.yaml",
    "jobs": "kubectl delete trainingjobs --all --all-namespaces --cascade=foreground",
    "page": "kubectl delete -k manifests/overlays/page --ignore-not-found",
    "overlay": "kubectl delete -k manifests/overlays/default --ignore-not-found",
    "taints": f"kubectl taint nodes --all {UNHEALTHY_TAINT}-",
    "definitions": "kubectl delete -k manifests/definitions --ignore-not-found",
}
STAYS = "stays"  # in the place of a step
MOST_JOBS = 10  # of a namespace whose leftovers have a row each
_CONDITION_OFF = """kubectl patch fleetpolicy default --type=merge -p '{"spec":{"health":{"nodeCondition":false}}}'"""


class Place(StrEnum):
    """Where something is."""

    NODES = "Nodes"
    DIRECTORIES = "Directories"
    NAMESPACES = "Namespaces"
    CLUSTER = "Cluster"


class ListedObject(ApiModel):
    """One object, file or directory."""

    name: str = Field(description="NAMESPACE/NAME where it has a namespace; NODE:PATH of a file on a node's disk.")
    note: str = Field("", description="What else is known of it.")


class RemovalRow(ApiModel):
    """All of one kind that one step removes, or that stays."""

    place: Place
    kind: str = Field(description="As Kubernetes calls it; File or Directory.")
    mark: str = Field("", description="Where the object itself is not Muster's: what of it is.")
    command: str = Field(description="Removes it; of a history, saves it.")
    objects: list[ListedObject] = Field([], description="By name.")
    unread: str = Field("", description="Why there may be more; empty: these are all.")


class RemovalStep(ApiModel):
    """One command of the documented removal."""

    command: str
    rows: list[RemovalRow]


class RemovalPlan(ApiModel):
    """What each step takes, and what stays when all are done."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["RemovalPlan"] = "RemovalPlan"
    steps: list[RemovalStep] = Field(description="In the order in which they are run.")
    stays: list[RemovalRow] = Field(description="What no step takes, each with the command that does.")
    notes: list[str] = Field([], description="What limits this answer.")


class _Owner(msgspec.Struct):
    kind: str = ""
    controller: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _RoleRef(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Meta
    role_ref: _RoleRef | None = None
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def is_shipped(self) -> bool:
        """Whether the manifests have it."""
        return (self.metadata.labels or {}).get(PART_OF) == NAME

    @property
    def is_of_job(self) -> bool:
        """Whether it is deleted with its TrainingJob. What an ejected job has left has no controller."""
        return any(owner.controller and owner.kind == "TrainingJob" for owner in self.metadata.owner_references or ())


class _Taint(msgspec.Struct):
    key: str = ""


class _NodeSpec(msgspec.Struct):
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct):
    type: str = ""


class _NodeStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Checkpoint(msgspec.Struct, rename="camel"):
    directory: str = ""
    local_directory: str = ""
    move_incomplete: bool = False


class _JobSpec(msgspec.Struct):
    checkpoint: _Checkpoint | None = None


class _JobStatus(msgspec.Struct):
    state: str = ""
    nodes: list[str] | None = None


class _ListMeta(msgspec.Struct, rename="camel"):
    remaining_item_count: int = 0


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects of a kind, and why there may be more."""

    objects: list[_Object]
    unread: str = ""


Part = TypeVar("Part")
Rows = Iterator[tuple[str, RemovalRow]]


async def removal_plan(client: "Client") -> RemovalPlan:
    """Read everything that Muster has in the cluster.

    Raises:
        ApiError: the API server did not answer as it should; a refusal is part of the plan instead.
    """
    listings = dict(zip(KINDS, await asyncio.gather(*(_list(client, *kind) for kind in KINDS.values())), strict=True))
    rows = [*_rows_of_jobs(listings), *_rows_of_cluster(listings), *_rows_of_system(listings)]
    rows += [
        *_rows_of_nodes(listings["Node"]),
        *_rows_of_namespaces(listings["Namespace"]),
        *_rows_of_directories(listings),
    ]
    rows += await _rows_of_definitions(client, listings["CustomResourceDefinition"])
    by_step: dict[str, list[RemovalRow]] = {step: [] for step in (*STEPS, STAYS)}
    for step, row in rows:
        if row.objects or row.unread:
            by_step[step].append(row)
    for rows_of_step in by_step.values():
        rows_of_step.sort(key=lambda row: (list(Place).index(row.place), row.kind, row.mark))
    steps = [RemovalStep(command=command, rows=by_step[step]) for step, command in STEPS.items()]
    return RemovalPlan(steps=steps, stays=by_step[STAYS], notes=list(_NOTES))


_NOTES = (
    "where you have applied another folder of manifests/overlays, an overlay of your own or the file of a release, "
    "delete that one in place of manifests/overlays/default; with Helm: helm uninstall muster -n muster-system",
    "in a release the definitions are definitions.yaml, and the page is page.yaml",
    "checkpoint directories of jobs that were deleted before may have files .muster-* and .muster-incomplete, and "
    f"nodes that had a checker before may have /var/lib/{CHECKERS}: no object of the cluster names them any more",
    "Events that Muster has written expire by themselves, within an hour unless the API server is set otherwise",
)


RBAC, ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
OF_JOBS = {"labelSelector": JOB_UID_LABEL}
# What is listed of each kind: path and query.
KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "TrainingJob": (paths.muster("trainingjobs"), {}),
    "Gang": (paths.muster("gangs"), {}),
    "Pod": (paths.core("pods"), OF_JOBS),
    "Service": (paths.core("services"), OF_JOBS),
    "ConfigMap": (paths.core("configmaps"), OF_JOBS),
    "PodDisruptionBudget": (paths.group("policy/v1", "poddisruptionbudgets"), OF_JOBS),
    "ClusterRole": (paths.group(RBAC, "clusterroles"), {}),
    "ClusterRoleBinding": (paths.group(RBAC, "clusterrolebindings"), {}),
    "Role": (paths.group(RBAC, "roles"), {}),
    "RoleBinding": (paths.group(RBAC, "rolebindings"), {}),
    "ValidatingAdmissionPolicy": (paths.group(ADMISSION, "validatingadmissionpolicies"), {}),
    "ValidatingAdmissionPolicyBinding": (paths.group(ADMISSION, "validatingadmissionpolicybindings"), {}),
    "CustomResourceDefinition": (paths.group("apiextensions.k8s.io/v1", "customresourcedefinitions"), {}),
    "Node": (paths.core("nodes"), {}),
    "Namespace": (paths.core("namespaces"), {}),
    "EndedJob": (paths.muster("endedjobs", namespace=SYSTEM), {}),
    f"{SYSTEM}/Secret": (paths.core("secrets", namespace=SYSTEM), {}),
    f"{SYSTEM}/ConfigMap": (paths.core("configmaps", namespace=SYSTEM), {}),
    f"{SYSTEM}/Lease": (paths.leases(SYSTEM), {}),
    f"{CHECKERS}/Pod": (paths.core("pods", namespace=CHECKERS), {}),
}


async def _list(client: "Client", path: str, query: Mapping[str, str]) -> Listed:
    try:
        objects, unreadable = await listed(client, path, msgspec.json.Decoder(_Object).decode, query)
    except NotFound:
        return Listed([])
    except Forbidden:
        return Listed([], "you may not list it: ask a cluster administrator")
    return Listed(objects, f"{unreadable} of them cannot be read by this version" if unreadable else "")


def _row(
    step: str,
    place: Place,
    kind: str,
    objects: Iterable[tuple[str, str]],
    unread: str = "",
    mark: str = "",
    command: str = "",
) -> tuple[str, RemovalRow]:
    listed_objects = [ListedObject(name=name, note=note) for name, note in sorted(set(objects))]
    return step, RemovalRow(
        place=place, kind=kind, mark=mark, command=command or STEPS[step], objects=listed_objects, unread=unread
    )


def _named(objects: Iterable[_Object], note: str = "") -> list[tuple[str, str]]:
    return [(item.metadata.place, note) for item in objects]


def _rows_of_jobs(listings: Mapping[str, Listed]) -> Rows:
    """What the jobs have: their deletion takes it, but for what ejected jobs have left."""
    jobs = listings["TrainingJob"]
    held = [(job.metadata.place, _held(job)) for job in jobs.objects]
    yield _row("jobs", Place.NAMESPACES, "TrainingJob", held, jobs.unread)
    for kind in ("Gang", "Pod", "Service", "ConfigMap", "PodDisruptionBudget"):
        objects = listings[kind].objects
        yield _row("jobs", Place.NAMESPACES, kind, _named(it for it in objects if it.is_of_job), listings[kind].unread)
        yield from _rows_of_orphans(kind, [it for it in objects if not it.is_of_job])


def _rows_of_orphans(kind: str, objects: list[_Object]) -> Rows:
    """What no TrainingJob owns any more: a Gang goes with its definition, all else stays."""
    note = "no TrainingJob owns it"
    if kind == "Gang":
        yield _row("definitions", Place.NAMESPACES, kind, _named(objects, note))
        return
    by_namespace: dict[str, dict[str, list[_Object]]] = {}
    for item in objects:
        uid = (item.metadata.labels or {}).get(JOB_UID_LABEL, "")
        by_namespace.setdefault(item.metadata.namespace, {}).setdefault(uid, []).append(item)
    for namespace, by_job in by_namespace.items():
        if len(by_job) > MOST_JOBS:  # any user of a namespace can write the label, thousands of times
            left = _named((item for of_job in by_job.values() for item in of_job), note)
            command = f"{_DELETE_OF_JOBS.format(namespace)}, once the namespace has no TrainingJob"
            yield _row(STAYS, Place.NAMESPACES, kind, left, command=command)
            continue
        for uid, of_job in by_job.items():
            yield _row(STAYS, Place.NAMESPACES, kind, _named(of_job, note), command=orphans_removed_by(namespace, uid))


_DELETE_OF_JOBS = "kubectl -n {} delete pods,services,configmaps,poddisruptionbudgets -l " + JOB_UID_LABEL


def orphans_removed_by(namespace: str, job_uid: str) -> str:
    """Return the command that removes what an ejected job has left, which ends its ranks."""
    return f"{_DELETE_OF_JOBS.format(namespace)}={job_uid}"


def _held(job: _Object) -> str:
    status = _part(job.status, _JobStatus)
    nodes = sum(map(bool, status.nodes or ()))
    holds = f"holds {nodes_text(nodes)}" if nodes else "holds no nodes"
    return ", ".join(filter(None, (status.state, holds)))


def _rows_of_cluster(listings: Mapping[str, Listed]) -> Rows:
    """Roles, bindings and policies: those of the manifests go with them, those that users have made stay."""
    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    for kind in (*kinds, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        listing = listings[kind]
        place = Place.NAMESPACES if kind in ("Role", "RoleBinding") else Place.CLUSTER
        by_step: dict[str, list[_Object]] = {"page": [], "overlay": [], STAYS: []}
        for item in listing.objects:
            if not _is_named(item) or item.metadata.namespace in OWN_NAMESPACES:
                continue
            step = "page" if item.metadata.name.startswith(PAGE) else "overlay"
            by_step[step if item.is_shipped else STAYS].append(item)
        for step, objects in by_step.items():
            where = " -n NAMESPACE" if place == Place.NAMESPACES else ""
            command = f"kubectl delete {kind.lower()} NAME{where}" if step == STAYS else ""
            unread = listing.unread if step != "page" else ""
            yield _row(step, place, kind, _named(objects), unread, command=command)


def _is_named(item: _Object) -> bool:
    """Whether an object is of the manifests, has a name like theirs, or binds a role of theirs."""
    names = (item.metadata.name, item.role_ref.name if item.role_ref else "")
    return item.is_shipped or any(name == NAME or name.startswith(f"{NAME}-") for name in names)


def _rows_of_system(listings: Mapping[str, Listed]) -> Rows:
    """What has to be kept, or is gone with the namespace."""
    history = listings["EndedJob"]
    yield _row("history", Place.NAMESPACES, "EndedJob", _named(history.objects), history.unread)
    for kind in ("Secret", "ConfigMap", "Lease"):
        listing = listings[f"{SYSTEM}/{kind}"]
        yield _row("definitions", Place.NAMESPACES, kind, _named(listing.objects), listing.unread)


def _rows_of_nodes(nodes: Listed) -> Rows:
    """The marks on Nodes: the taint, the condition, and labels and annotations of Muster's."""
    tainted, with_condition = [], []
    for item in nodes.objects:
        taints = _part(item.spec, _NodeSpec).taints or ()
        conditions = _part(item.status, _NodeStatus).conditions or ()
        tainted += [item] if UNHEALTHY_TAINT in {taint.key for taint in taints} else []
        with_condition += [item] if MUSTER_HEALTHY in {condition.type for condition in conditions} else []
    yield _row("taints", Place.NODES, "Node", _named(tainted), nodes.unread, f"taint {UNHEALTHY_TAINT}")
    off = f"{_CONDITION_OFF}, before the overlay is deleted"
    yield _row(STAYS, Place.NODES, "Node", _named(with_condition), nodes.unread, f"condition {MUSTER_HEALTHY}", off)
    yield from _rows_of_keys(nodes, Place.NODES, "Node")


def _rows_of_namespaces(namespaces: Listed) -> Rows:
    for name, step in OWN_NAMESPACES.items():
        namespace = [item for item in namespaces.objects if item.metadata.name == name]
        unread = namespaces.unread if name == SYSTEM else ""
        yield _row(step, Place.CLUSTER, "Namespace", _named(namespace, "with all that is in it"), unread)
    yield from _rows_of_keys(namespaces, Place.CLUSTER, "Namespace")


def _rows_of_keys(listing: Listed, place: Place, kind: str) -> Rows:
    """One row for each label and annotation of Muster's on objects that are not."""
    marked: dict[tuple[str, str], list[_Object]] = {}
    for item in listing.objects:
        for sort, keys in (("label", item.metadata.labels), ("annotation", item.metadata.annotations)):
            for key in keys or ():
                if f".{key.partition('/')[0]}".endswith(f".{GROUP}"):
                    marked.setdefault((sort, key), []).append(item)
    if listing.unread:
        command = f"kubectl label {kind.lower()} NAME KEY-"
        yield _row(STAYS, place, kind, (), listing.unread, f"labels and annotations of {GROUP}", command)
    for (sort, key), objects in marked.items():
        verb = "label" if sort == "label" else "annotate"
        command = f"kubectl {verb} {kind.lower()}s --all {key}-"
        yield _row(STAYS, place, kind, _named(objects), mark=f"{sort} {key}", command=command)


def _rows_of_directories(listings: Mapping[str, Listed]) -> Rows:
    """The files that launchers and checkers write."""
    jobs, files, folders = listings["TrainingJob"], [], []
    for job in jobs.objects:
        checkpoint = _part(job.spec, _JobSpec).checkpoint or _Checkpoint()
        fence = f".muster-{gang_name(job.metadata.name, job.metadata.uid)}"
        job_text = f"of {job.metadata.place}"
        for directory in (checkpoint.directory, checkpoint.local_directory):
            if directory and not is_url(directory):
                own_disk = ", on each node that it has trained on" if directory == checkpoint.local_directory else ""
                files.append((_inside(directory, fence), f"{job_text}{own_disk}"))
        if checkpoint.move_incomplete and checkpoint.directory:
            folders.append((_inside(checkpoint.directory, ".muster-incomplete"), job_text))
    command = "rm -r PATH where the directory is mounted, once no job uses it"
    yield _row(STAYS, Place.DIRECTORIES, "File", files, jobs.unread, command=command)
    yield _row(STAYS, Place.DIRECTORIES, "Directory", folders, command=command)
    pods = listings[f"{CHECKERS}/Pod"]
    nodes = sorted({_part(pod.spec, _PodSpec).node_name for pod in pods.objects} - {""})
    for path, command in (
        (f"/var/lib/{CHECKERS}", f"rm -r /var/lib/{CHECKERS} on the node"),
        (f"/run/{CHECKERS}", f"rm -r /run/{CHECKERS} on the node, or its next boot"),
    ):
        objects = [(f"{node}:{path}", "") for node in nodes]
        yield _row(STAYS, Place.DIRECTORIES, "Directory", objects, pods.unread, path, command)


def _inside(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"


async def _rows_of_definitions(client: "Client", definitions: Listed) -> list[tuple[str, RemovalRow]]:
    ours = [definition for definition in definitions.objects if definition.metadata.name.endswith(f".{GROUP}")]
    counts = await asyncio.gather(*(_count(client, definition.metadata.name.partition(".")[0]) for definition in ours))
    named = [(definition.metadata.name, count) for definition, count in zip(ours, counts, strict=True)]
    return [_row("definitions", Place.CLUSTER, "CustomResourceDefinition", named, definitions.unread)]


async def _count(client: "Client", plural: str) -> str:
    """Say how many objects of a kind there are, as far as this user may know it."""
    try:
        page = msgspec.json.decode(await client.get(paths.muster(plural), {"limit": 1}), type=_Page)
    except Forbidden:
        return "with objects that you may not list"
    except NotFound:
        return "with objects of another version alone"
    number = len(page.items or ()) + page.metadata.remaining_item_count
    return f"with {number:,} object{'s' if number != 1 else ''}"


def _part(data: msgspec.Raw, kind: type[Part]) -> Part:
    """Read the part of an object that matters here; what does not fit says nothing."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return kind()
