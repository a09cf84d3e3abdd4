"""What a worker asks of a node and of its namespace: resources, volume claims, and nodes to avoid. Pure.

Tests: tests/unit/lifecycle/test_pods_as_they_come.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJob
from muster.placement.eligibility import Requirements
from muster.pods.objects import objects
from muster.pods.worker_pod import POD_DEADLINE, asking, worker_container
from muster.world.job import JobWorld
from muster.world.queuedecision import Refusal, RefusalKind
from muster.world.quotas import QuotaClaim, claim_of_pod
from muster.world.resources import template_requests
from muster.world.views import SCHEDULER_NAME

_AVOIDED_BY_SPEC = Refusal(RefusalKind.AVOIDED_BY_SPEC, "in spec.placement.avoidNodes")
_AVOIDED_AFTER_FAILURE = Refusal(RefusalKind.AVOIDED_AFTER_FAILURE, "avoided after a failure there")


def requirements(world: JobWorld, record: GangSpec | None) -> Requirements:
    """Return what a node has to offer to a worker of this job.

    Args:
        world: the state of the job.
        record: with the nodes to avoid; None: there is none yet.
    """
    avoid = dict.fromkeys(world.job.spec.placement.avoid_nodes, _AVOIDED_BY_SPEC)
    for node, until in (record.excluded_nodes if record else {}).items():
        if until > world.now:
            avoid[node] = _AVOIDED_AFTER_FAILURE
    spec, verdict = world.job.spec.pod, world.template_verdict
    gpus, resource = world.job.spec.gpus_per_node, world.fleet.policy.accelerator_resource
    requests = dict(verdict.requests) if verdict and verdict.requests else _asked(world.job, resource)
    return Requirements(gpus, spec, avoid, requests, scheduler_for(spec) or (verdict.scheduler_for if verdict else ""))


def _asked(job: TrainingJob, resource: str) -> dict[str, int]:
    """Return the resources that a worker's pod requests, accelerators included, by name."""
    return template_requests(_asking_spec(job, resource))


def quota_claim(job: TrainingJob, resource: str) -> QuotaClaim:
    """Return what a worker counts for in ResourceQuotas, without what the namespace's defaults add."""
    spec = _asking_spec(job, resource)
    spec.pop(POD_DEADLINE, None)
    return replace(claim_of_pod({"spec": spec}), is_answered=False)


def _asking_spec(job: TrainingJob, resource: str) -> dict[str, Any]:
    trains = worker_container(job)
    containers = [
        asking(container, resource, job.spec.gpus_per_node) if container is trains else container
        for container in job.spec.containers
    ]
    return {**job.spec.pod, "containers": containers}


def claims_of(job: TrainingJob) -> list[str]:
    """Return the names of the volume claims that the template mounts, sorted."""
    volumes = objects(job.spec.pod, "volumes")
    claims = (volume.get("persistentVolumeClaim") for volume in volumes)
    return sorted({str(claim["claimName"]) for claim in claims if isinstance(claim, dict) and claim.get("claimName")})


def mounted_names(job: TrainingJob) -> list[str]:
    """Return the ConfigMaps, Secrets and volume claims without which no container of a pod is created, such as
    `ConfigMap settings`, sorted."""
    volumes = objects(job.spec.pod, "volumes")
    projected = [volume["projected"] for volume in volumes if isinstance(volume.get("projected"), dict)]
    named = [*volumes, *(source for projection in projected for source in objects(projection, "sources"))]
    mounted = {f"claim {name}" for name in claims_of(job)}
    for kind, field in (("ConfigMap", "configMap"), ("Secret", "secret")):
        sources = (entry[field] for entry in named if isinstance(entry.get(field), dict))
        needed = (source for source in sources if source.get("optional") is not True)
        names = (source.get("secretName") or source.get("name") for source in needed)
        mounted |= {f"{kind} {name}" for name in names if name}
    return sorted(mounted)


def scheduler_for(spec: Mapping[str, Any]) -> str:
    """Return the part of a pod spec that only the cluster's scheduler can place, as text; "" if there is none.

    Whether a volume claim is bound is not seen in the spec.
    """
    if spec.get("resourceClaims"):
        return "resource claims"
    if any(volume.get("ephemeral") for volume in objects(spec, "volumes")):
        return "ephemeral volumes"
    if spec.get("schedulerName") not in (None, "", "default-scheduler", SCHEDULER_NAME):
        return "a scheduler named in the template"
    affinity = spec["affinity"] if isinstance(spec.get("affinity"), dict) else {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if isinstance(affinity.get(kind), dict) and affinity[kind].get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        ):
            return "required affinity between pods"
    spread = objects(spec, "topologySpreadConstraints")
    if any(constraint.get("whenUnsatisfiable") != "ScheduleAnyway" for constraint in spread):
        return "topology spread constraints"
    return ""
