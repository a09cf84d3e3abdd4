"""Builds a worker's pod and the objects that all workers of a job share. Pure: from records to manifests.

Pod specs are never compared afterwards: an upgrade of Muster changes only pods that are made later.

Tests: tests/unit/lifecycle/test_pods_as_they_come.py, tests/unit/recovery/test_sick_nodes.py.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from muster.api.base import API_VERSION
from muster.api.gang import Member
from muster.api.trainingjob import LaunchMode, ProgressPreset, TrainingJob
from muster.placement.eligibility import UNREACHABLE_TAINTS
from muster.pods import shared_memory
from muster.protocol.contract import IDENTITY, PLAIN_IDENTITY
from muster.protocol.expansion import REFERRING, kept, referring
from muster.protocol.messages import TOKEN_AUDIENCE
from muster.world.names import gang_name, pod_name
from muster.world.views import (
    INCARNATION_LABEL,
    INDEX_LABEL,
    JOB_NAME_LABEL,
    JOB_UID_LABEL,
    SAVES_TO_ANNOTATION,
    SCHEDULER_NAME,
)

MUSTER_DIRECTORY = "/muster"
IDENTITY_DIRECTORY = "/muster/identity"
LAUNCHER_PATH = f"{MUSTER_DIRECTORY}/run.pyz"
TOKEN_EXPIRATION_SECONDS = 3600
PLAIN_MASTER_PORT = 29500
_KEPT_PARTS = 64  # parts that all pods of a job have in common are made once, for the last jobs
# Of the trainer's resources those that its init container asks for, too; devices it needs none.
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
POD_DEADLINE = "activeDeadlineSeconds"
UNUSED_PROBES = ("livenessProbe", "startupProbe")
CLUSTER_DNS, CLUSTER_DNS_ON_HOST = "ClusterFirst", "ClusterFirstWithHostNet"

_MOUNT = {"name": "muster", "mountPath": MUSTER_DIRECTORY}
_IDENTITY_MOUNT = {"name": "muster-identity", "mountPath": IDENTITY_DIRECTORY, "readOnly": True}
_UNREACHABLE_TOLERATIONS = tuple(
    {"key": taint, "operator": "Exists", "effect": "NoExecute"} for taint in UNREACHABLE_TAINTS
)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the installation adds to every worker.

    Attributes:
        launcher_image: image whose entry point copies the launcher into a volume.
        coordinator_url: https address under which launchers find the leader.
        coordinator_name: name in the coordinator's certificate.
        ca_bundle: PEM of the authorities to trust, old and new together.
        accelerator_resource: extended resource that `gpusPerNode` counts.
    """

    launcher_image: str
    coordinator_url: str
    coordinator_name: str
    ca_bundle: str
    accelerator_resource: str


def owner_reference(job: TrainingJob) -> dict[str, Any]:
    """Return the owner reference by which all objects of a job are deleted with it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def worker_container(job: TrainingJob) -> dict[str, Any] | None:
    """Return the container of the template that trains; None if the template has none of that name."""
    containers = job.spec.containers
    wanted = job.spec.launch.worker_container
    if wanted is None:
        return containers[0] if containers else None
    return next((container for container in containers if container.get("name") == wanted), None)


def support_manifests(job: TrainingJob, settings: WorkerSettings, first: Member | None = None) -> list[dict[str, Any]]:
    """Return the objects that a job's workers share and need before they start.

    In mode Managed that is a ConfigMap with trusted authorities, in mode Plain a Service for the worker of rank 0.

    Args:
        job: whose workers they are.
        settings: of the installation.
        first: the member of rank 0; None stands for the one of index 0.
    """
    if job.spec.launch.mode is LaunchMode.PLAIN:
        # Only the worker that the others call: each pod behind a Service costs the cluster one more write of them all.
        selector = {JOB_UID_LABEL: job.metadata.uid, INDEX_LABEL: str(first.index if first else 0)}
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
        return [{"apiVersion": "v1", "kind": "Service", "metadata": _shared(job), "spec": spec}]
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": _shared(job), "data": {"ca.crt": settings.ca_bundle}}]


def disruption_budget(job: TrainingJob) -> dict[str, Any]:
    """Return the PodDisruptionBudget that lets no pod of the gang be evicted without Muster.

    It is not made before the gang runs: its status is written for each new pod, and there is nothing to protect yet.
    """
    selector = {"matchLabels": {JOB_UID_LABEL: job.metadata.uid}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _shared(job),
        "spec": {"minAvailable": job.spec.nodes, "selector": selector},
    }


def _shared(job: TrainingJob) -> dict[str, Any]:
    return {
        "name": gang_name(job.metadata.name, job.metadata.uid),
        "namespace": job.metadata.namespace,
        "labels": {JOB_NAME_LABEL: job.metadata.name, JOB_UID_LABEL: job.metadata.uid},
        "ownerReferences": [owner_reference(job)],
    }


def worker_manifest(
    job: TrainingJob,
    member: Member,
    settings: WorkerSettings,
    *,
    first: Member | None = None,
    direct: bool = False,
    saves_to: str = "",
) -> dict[str, Any]:
    """Return the pod of one member: the user's template, pinned to the member's node, with the launcher in front.

    The result must not be changed deep inside, because all pods of a job share its parts. A gang of thousands is made
    in one step, and a copy of a large template takes some 20 ms.

    Args:
        job: with the template.
        member: whose pod it is.
        settings: of the installation.
        first: the member of rank 0, to which the others connect; None: the member itself.
        direct: whether Muster binds the pod. It is pinned all the same: no other scheduler may bind it elsewhere.
        saves_to: where the job saves, by which the pod is known once it belongs to no job; "": nowhere.
    """
    index = member.index
    template = job.spec.template
    spec: dict[str, Any] = {**(template.get("spec") or {})}
    template_metadata = template.get("metadata") or {}
    metadata = {
        "name": pod_name(job.metadata.name, job.metadata.uid, index, member.incarnation),
        "namespace": job.metadata.namespace,
        "labels": {
            **(template_metadata.get("labels") or {}),
            JOB_NAME_LABEL: job.metadata.name,
            JOB_UID_LABEL: job.metadata.uid,
            INDEX_LABEL: str(index),
            INCARNATION_LABEL: str(member.incarnation),
        },
        "annotations": {
            **(template_metadata.get("annotations") or {}),
            "karpenter.sh/do-not-disrupt": "true",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            **({SAVES_TO_ANNOTATION: saves_to} if saves_to else {}),
        },
        "ownerReferences": [owner_reference(job)],
    }
    spec["restartPolicy"] = "Never"
    spec.pop(POD_DEADLINE, None)
    if misses_cluster_dns(spec):
        spec["dnsPolicy"] = CLUSTER_DNS_ON_HOST
    spec["tolerations"] = [*(spec.get("tolerations") or []), *_UNREACHABLE_TOLERATIONS]
    if member.node:
        _pin(spec, member.node)
    if direct:
        spec["schedulerName"] = SCHEDULER_NAME
    container = worker_container(job)
    name = container.get("name") if container else ""
    spec["containers"] = containers = list(spec.get("containers") or [])
    place = next((place for place, c in enumerate(containers) if c.get("name") == name), None)
    if place is not None:
        worker = containers[place] = asking(containers[place], settings.accelerator_resource, job.spec.gpus_per_node)
        for field in ("restartPolicy", "restartPolicyRules"):  # only Muster restarts the gang
            worker.pop(field, None)
        if job.spec.launch.mode is LaunchMode.MANAGED:
            _wrap(spec, worker, job, index, settings)
        else:
            _plain(spec, worker, job, member, first or member)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pin(spec: dict[str, Any], node: str) -> None:
    """Require the node's name in every term of the pod's node affinity, as terms are alternatives; DaemonSets do the
    same.

    Args:
        spec: of the pod; changed in place.
        node: its name.
    """
    whole = spec["affinity"] = {**(spec.get("affinity") or {})}
    affinity = whole["nodeAffinity"] = {**(whole.get("nodeAffinity") or {})}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    required = affinity[key] = {**(affinity.get(key) or {})}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or []), field]} for term in terms
    ]


def misses_cluster_dns(spec: Mapping[str, Any]) -> bool:
    """Whether a pod on the host's network asks for the cluster's DNS and would get the node's resolver.

    Source: Kubernetes documentation, "DNS for Services and Pods".
    """
    return bool(spec.get("hostNetwork")) and spec.get("dnsPolicy") in (None, "", CLUSTER_DNS)


def asking(container: Mapping[str, Any], resource: str, count: int) -> dict[str, Any]:
    """Return a copy of the container that trains, which asks for this many accelerators; 0: unchanged."""
    worker = {**container}
    if count:
        resources = worker["resources"] = {**(worker.get("resources") or {})}
        resources["limits"] = {**(resources.get("limits") or {}), resource: str(count)}
        if "requests" in resources:
            resources["requests"] = {**(resources["requests"] or {}), resource: str(count)}
    return worker


def _wrap(spec: dict[str, Any], worker: dict[str, Any], job: TrainingJob, index: int, settings: WorkerSettings) -> None:
    command = [*(worker.get("command") or []), *(worker.get("args") or [])]
    worker["command"] = ["python3", "-I", LAUNCHER_PATH, "--", *map(kept, command)]
    worker.pop("args", None)
    for probe in UNUSED_PROBES:  # they ask a program that does not run while the gang waits
        worker.pop(probe, None)
    # What the launcher says when this Python will not do is told in the job's status.
    worker.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    gang = gang_name(job.metadata.name, job.metadata.uid)
    environment = _environment(
        ("MUSTER_COORDINATOR", settings.coordinator_url),
        ("MUSTER_COORDINATOR_NAME", settings.coordinator_name),
        ("MUSTER_TOKEN_FILE", f"{IDENTITY_DIRECTORY}/token"),
        ("MUSTER_CA_FILE", f"{IDENTITY_DIRECTORY}/ca.crt"),
        ("MUSTER_DIRECTORY", MUSTER_DIRECTORY),
        ("MUSTER_GANG", gang),
        ("MUSTER_CHECKPOINT_DIRECTORY", _verbatim(job.spec.checkpoint.directory or "")),
        ("MUSTER_LOCAL_CHECKPOINT_DIRECTORY", _verbatim(job.spec.checkpoint.local_directory or "")),
        ("MUSTER_CHECKPOINT_PATTERN", _verbatim(job.spec.checkpoint.pattern or "")),
        ("MUSTER_RESUME_ARGUMENT", _resume_argument(job)),
        ("MUSTER_STEP_PATTERN", _verbatim(job.spec.progress.step_pattern or "")),
        ("MUSTER_PROGRESS_PRESET", _preset(job)),
        ("MUSTER_GPUS_PER_NODE", str(job.spec.gpus_per_node or "")),
        (REFERRING, _referring(worker)),
        ("MUSTER_OWN_SHARED_MEMORY", "1" if shared_memory.is_own(job.spec.pod, worker) else None),
    )
    own = {"name": "MUSTER_WORKER_INDEX", "value": str(index)}
    worker["env"] = [*_theirs(worker, IDENTITY, kept), *environment, own]
    worker["volumeMounts"] = [*(worker.get("volumeMounts") or []), _MOUNT, _IDENTITY_MOUNT]
    user = (spec.get("securityContext") or {}).get("runAsUser")
    installer = _installer(settings.launcher_image, json.dumps(_compute(worker)), as_root=user == 0)
    spec["initContainers"] = [installer, *(spec.get("initContainers") or [])]
    spec["volumes"] = [*(spec.get("volumes") or []), *_volumes(gang)]


def _theirs(
    worker: Mapping[str, Any], ours: frozenset[str], written: Callable[[str], str] = str
) -> list[dict[str, Any]]:
    """Return the container's own variables without those that Muster sets, which would get into the values of others.

    Args:
        worker: the container.
        ours: names of the variables that Muster sets.
        written: returns how a value is to be written.
    """
    others = [
        variable
        for variable in worker.get("env") or ()
        if not isinstance(variable, dict) or str(variable.get("name")) not in ours
    ]
    return [
        {**variable, "value": written(variable["value"])}
        if isinstance(variable, dict) and isinstance(variable.get("value"), str)
        else variable
        for variable in others
    ]


def _referring(worker: Mapping[str, Any]) -> str:
    """Return, as JSON, the names of the container's variables that the launcher has to complete at each start."""
    theirs = [variable for variable in _theirs(worker, IDENTITY) if isinstance(variable, dict)]
    names = referring(
        (str(variable.get("name")), variable["value"]) for variable in theirs if isinstance(variable.get("value"), str)
    )
    return _verbatim(json.dumps(names))


def _resume_argument(job: TrainingJob) -> str | None:
    """Return, as JSON, what the launcher adds to the command of a start from a checkpoint; None: nothing."""
    words = job.spec.checkpoint.resume_argument
    return _verbatim(json.dumps(words)) if words else None


def _verbatim(text: str) -> str:
    """Return the value of a variable from which the kubelet makes this text: it turns two $ into one."""
    return text.replace("$", "$$")


def _preset(job: TrainingJob) -> str | None:
    """Return the preset by which the launcher reads steps from the output; None: by no preset."""
    progress = job.spec.progress
    if progress.step_pattern is not None or progress.preset is ProgressPreset.OFF:
        return None
    return (progress.preset or ProgressPreset.AUTO).value


@lru_cache(maxsize=_KEPT_PARTS)
def _environment(*variables: tuple[str, str | None]) -> tuple[dict[str, Any], ...]:
    """Return the variables that all workers of a job get; those without a value are left out."""
    address = {"name": "MUSTER_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return (*({"name": name, "value": value} for name, value in variables if value), address)


@lru_cache(maxsize=_KEPT_PARTS)
def _volumes(gang: str) -> tuple[dict[str, Any], ...]:
    """Return the volumes with the launcher, its token, and the authorities that it trusts."""
    token: dict[str, Any] = {
        "serviceAccountToken": {
            "path": "token",
            "audience": TOKEN_AUDIENCE,
            "expirationSeconds": TOKEN_EXPIRATION_SECONDS,
        }
    }
    trust = {"configMap": {"name": gang, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    return (
        {"name": "muster", "emptyDir": {}},
        {"name": "muster-identity", "projected": {"sources": [token, trust]}},
    )


def _compute(worker: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the trainer requests of CPU, memory and disk."""
    resources = worker.get("resources") or {}
    parts = {part: resources.get(part) or {} for part in ("requests", "limits")}
    by_part = {part: {name: asked[name] for name in _COMPUTE if name in asked} for part, asked in parts.items()}
    return {part: asked for part, asked in by_part.items() if asked}


@lru_cache(maxsize=_KEPT_PARTS)
def _installer(image: str, compute: str, *, as_root: bool) -> dict[str, Any]:
    """Return the init container that puts the launcher into the shared volume; it fits Pod Security `restricted`.

    It requests what the trainer requests, which runs after it, so that this costs nothing. With other requests the pod
    would lose its class Guaranteed, and with that exclusive processors. A quota or LimitRange might refuse it, too.

    Args:
        image: of the launcher.
        compute: the resources to request, as JSON.
        as_root: whether the pod runs as root.
    """
    return {
        "name": "muster-launcher",
        "image": image,
        "args": ["--install", LAUNCHER_PATH],
        "volumeMounts": [_MOUNT],
        "resources": json.loads(compute),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": not as_root,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _plain(spec: dict[str, Any], worker: dict[str, Any], job: TrainingJob, member: Member, first: Member) -> None:
    """Give the container NODE_RANK, NNODES and the address of the first worker; the rest is the user's.

    Args:
        spec: of the pod; changed in place.
        worker: the container that trains; changed in place.
        job: whose pod it is.
        member: whose pod it is.
        first: the member of rank 0.
    """
    service = gang_name(job.metadata.name, job.metadata.uid)
    spec["hostname"] = pod_name(job.metadata.name, job.metadata.uid, member.index, member.incarnation)
    spec["subdomain"] = service
    master = pod_name(job.metadata.name, job.metadata.uid, first.index, first.incarnation)
    environment = {
        "NODE_RANK": str(member.rank),
        "NNODES": str(job.spec.nodes),
        "MASTER_ADDR": f"{master}.{service}.{job.metadata.namespace}.svc",
        "MASTER_PORT": str(PLAIN_MASTER_PORT),
    }
    # First, so that the others may refer to them.
    worker["env"] = [*({"name": k, "value": v} for k, v in environment.items()), *_theirs(worker, PLAIN_IDENTITY)]
