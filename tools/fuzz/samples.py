"""What is mutated: objects and reports as real ones are, with every field that anybody reads.

Jobs come with all that belongs to them, as a life in which things go wrong has left them at some moment: their record,
their pods, what their launchers said last. The rest is written here.
"""

import functools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.protocol import checks, messages
from muster.protocol.checks import CheckAnswer, CheckReport, FigureReport, PassReport, ProbeReport, Put
from muster.world.names import gang_name
from simulate.apiserver import Object
from simulate.fault import Fault, MissedError
from simulate.faults import begin
from simulate.life import Life
from simulate.surroundings import NAMESPACE
from simulate.training import Script

MOMENTS_SECONDS = 4.0
MOST_FAMILIES = 60

_WHEN = "2026-01-01T00:05:00.000000Z"
_LATER = "2026-01-02T00:00:00Z"

TEMPLATE: Object = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"example.org/note": "anything"}},
    "spec": {
        "schedulerName": "default-scheduler",
        "priorityClassName": "batch",
        "serviceAccountName": "trainer",
        "terminationGracePeriodSeconds": 60,
        "hostIPC": True,
        "shareProcessNamespace": False,
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "dedicated", "operator": "Equal", "value": "training"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "topology.muster.dev/block", "operator": "In", "values": ["b0", "b1"]},
                                {"key": "broken", "operator": "DoesNotExist"},
                                {"key": "generation", "operator": "Gt", "values": ["3"]},
                            ],
                            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n7"]}],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 10, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
                ],
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
                ]
            },
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            {"name": "script", "configMap": {"name": "script", "items": [{"key": "train.py", "path": "train.py"}]}},
        ],
        "initContainers": [
            {"name": "fetch", "image": "fetch:1", "resources": {"requests": {"cpu": "500m"}}},
            {"name": "logs", "image": "logs:1", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}},
        ],
        "containers": [
            {
                "name": "main",
                "image": "trainer:1",
                "command": ["torchrun", "train.py"],
                "args": ["--steps", "1000"],
                "env": [
                    {"name": "NCCL_DEBUG", "value": "INFO"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
                ],
                "resources": {
                    "requests": {"cpu": "32", "memory": "256Gi", "rdma/hca": "8"},
                    "limits": {"nvidia.com/gpu": "8", "memory": "512Gi"},
                },
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}],
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "sleep 1"]}}},
            },
            {"name": "sidecar", "image": "metrics:1", "ports": [{"containerPort": 9090}]},
        ],
        "overhead": {"cpu": "250m"},
    },
}

JOB_SPEC: Object = {
    "nodes": 2,
    "gpusPerNode": 8,
    "template": TEMPLATE,
    "launch": {"mode": "Managed", "processesPerNode": 8, "workerContainer": "main"},
    "placement": {"required": "block", "preferred": "rack", "segmentSize": 1, "avoidNodes": ["n5"]},
    "checkpoint": {
        "directory": "/ckpt/a",
        "localDirectory": "/local",
        "resumeArgument": ["--load", "$(MUSTER_RESUME_PATH)"],
        "resumeFrom": 100,
        "saveRequest": "first",
        "saveTimeoutSeconds": 60,
    },
    "progress": {
        "stepPattern": "step=([0-9]+)",
        "stepTimeoutSeconds": 600,
        "startTimeoutSeconds": 900,
        "totalSteps": 5000,
    },
    "queueing": {"expectedDurationSeconds": 86400, "preemptible": True},
    "recovery": {
        "applicationRestartsPerDay": 3,
        "hardwareRestartsPerDay": 50,
        "unreachableTimeoutSeconds": 20,
        "unfencedTimeoutSeconds": 300,
    },
    "completion": {"ttlSecondsAfterFinished": 3600},
    "suspend": False,
}

NODE_STATUS: Object = {
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": _WHEN},
        {"type": "MemoryPressure", "status": "False", "lastTransitionTime": _WHEN},
        {
            "type": "GpuMemWatch",
            "status": "False",
            "reason": "GpuMemWatchIsHealthy",
            "message": "No Health Failures",
            "lastTransitionTime": _WHEN,
        },
        {
            "type": "AcceleratedHardwareReady",
            "status": "False",
            "reason": "NvidiaXID79Error",
            "lastTransitionTime": _WHEN,
        },
        {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock", "lastTransitionTime": _WHEN},
    ],
    "allocatable": {"cpu": "63500m", "memory": "1056784Mi", "pods": "110", "nvidia.com/gpu": "8", "rdma/hca": "8"},
    "capacity": {"cpu": "64", "memory": "1056Gi", "pods": "110", "nvidia.com/gpu": "8", "rdma/hca": "8"},
    "nodeInfo": {"bootID": "f5c5e9b2-9c1f-4a3b-8a0e-000000000001", "systemUUID": "x"},
    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
}

NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "f0",
        "uid": "node-f0",
        "labels": {
            "kubernetes.io/hostname": "f0",
            "kubernetes.io/arch": "amd64",
            "topology.muster.dev/block": "b1",
            "topology.muster.dev/rack": "r9",
            "sagemaker.amazonaws.com/node-health-status": "Schedulable",
            "nvidia.com/gpu.product": "H200",
        },
        "annotations": {"example.org/anything": "here"},
        "creationTimestamp": _WHEN,
    },
    "spec": {
        "podCIDR": "10.1.0.0/24",
        "providerID": "x://y",
        "taints": [
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
            {"key": "muster.dev/unhealthy", "effect": "NoSchedule", "timeAdded": _WHEN},
        ],
        "unschedulable": False,
    },
    "status": NODE_STATUS,
}

NODE_HEALTH: Object = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "NodeHealth",
    "metadata": {"name": "f0", "uid": "health-f0", "generation": 1},
    "spec": {
        "override": {"decision": "Release", "reason": "looked at", "user": "ann", "time": _WHEN},
        "lost": {"time": _WHEN, "reason": "powered off", "user": "bob", "bootId": "b", "lastRenewal": _WHEN},
    },
    "status": {
        "evidence": [
            {
                "kind": "Xid",
                "subject": "GPU-1",
                "code": 79,
                "message": "NVRM: Xid 79, GPU has fallen off the bus.",
                "firstSeen": _WHEN,
                "lastSeen": _WHEN,
                "count": 2,
                "bootId": "b",
            },
            {
                "kind": "RecoveryAction",
                "subject": "GPU-2",
                "code": 2,
                "firstSeen": _WHEN,
                "lastSeen": _LATER,
                "count": 1,
            },
            {"kind": "GpuLost", "value": "7", "threshold": "8", "firstSeen": _WHEN, "lastSeen": _WHEN, "count": 1},
        ],
        "agent": {
            "version": "0.1.0",
            "bootId": "b",
            "systemUuid": "u",
            "gpuSerials": ["1", "2"],
            "gpuModel": "H200",
            "gpus": 8,
            "driver": "580.1",
        },
        "state": "Unhealthy",
        "reason": "Xid79",
        "message": "GPU has fallen off the bus",
        "since": _WHEN,
        "recommendedAction": "Reboot",
        "findings": [
            {
                "source": "agent",
                "reason": "Xid79",
                "subject": "GPU-1",
                "severity": "Fatal",
                "message": "m",
                "since": _WHEN,
            }
        ],
        "effect": "excluded",
        "incidents": [
            {
                "time": _WHEN,
                "state": "Unhealthy",
                "reason": "Xid79",
                "bootId": "b",
                "taken_out_time": _WHEN,
                "cleared_time": _LATER,
                "clearedBy": "reboot",
            },
            {"time": _LATER, "state": "Quarantined", "reason": "Xid79", "taken_out_time": _LATER},
        ],
        "offences": {"hardware": "d", "score": "1.5", "asOf": _WHEN},
        "nodeUid": "node-f0",
        "bootId": "b",
    },
}

FLEET_POLICY: Object = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "FleetPolicy",
    "metadata": {"name": "default", "uid": "policy", "generation": 1},
    "spec": {
        "topology": {
            "levels": [
                {"name": "block", "label": "topology.muster.dev/block"},
                {"name": "rack", "label": "topology.muster.dev/rack"},
            ]
        },
        "pools": [
            {"name": "h200", "nodeSelector": {"nvidia.com/gpu.product": "H200"}, "binding": "Direct"},
            {"name": "rest", "nodeSelector": {}, "binding": "Scheduler"},
        ],
        "placement": {"acceleratorNodesForOtherJobs": "WhenFree"},
        "queueing": {
            "limits": [{"namespace": "n0", "nodes": 4}, {"namespace": "n1", "nodes": 0}],
            "defaultLimit": 8,
            "priorityClasses": ["batch", "urgent"],
            "preemption": {
                "priorityClasses": [{"name": "urgent", "namespaces": ["n0", "n1"]}],
                "minRunSeconds": 60,
                "preemptionsPerDay": 5,
            },
            "showJobsOfOtherNamespaces": True,
            "assemblyTimeoutSeconds": 300,
        },
        "health": {
            "enforcement": "Nodes",
            "budgets": [
                {"nodes": "10%", "windowSeconds": 600},
                {"nodes": "4", "per": "Domain", "reasons": ["UncertainFault"]},
            ],
            "quarantine": {"incidents": 3, "halfLifeSeconds": 604800},
            "sources": [{"name": "npd", "enabled": False}, {"name": "eks", "enabled": True}],
            "rules": [
                {
                    "name": "burn-in",
                    "condition": {"type": "BurnIn", "badWhenFalse": False, "reason": "Failed"},
                    "minimumAgeSeconds": 60,
                    "severity": "Degraded",
                    "action": "Inspect",
                    "planned": True,
                },
                {"name": "bad", "label": {"key": "example.org/health", "value": "bad"}, "severity": "Fatal"},
                {"name": "repair", "taint": {"key": "example.org/repair"}, "severity": "Warning", "action": "Replace"},
            ],
        },
        "acceleratorResource": "nvidia.com/gpu",
    },
}

OCCUPANT: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "n0",
        "uid": "pods-web",
        "labels": {"app": "web"},
        "creationTimestamp": _WHEN,
    },
    "spec": {"nodeName": "f0", **{key: TEMPLATE["spec"][key] for key in ("containers", "initContainers", "overhead")}},
    "status": {"phase": "Running"},
}

PRIORITY_CLASS: Object = {
    "metadata": {"name": "batch", "uid": "prio"},
    "value": 1000,
    "globalDefault": False,
    "description": "for training",
}

LEASE: Object = {
    "metadata": {"name": "f0", "namespace": "kube-node-lease", "uid": "lease-f0"},
    "spec": {"holderIdentity": "f0", "leaseDurationSeconds": 40, "renewTime": _WHEN},
}


@dataclass(frozen=True)
class Family:
    """A job and what belongs to it, at one moment.

    Attributes:
        gang: its record, where it has one.
        reports: what the launcher of a pod said last, by the pod's uid.
    """

    job: Object
    gang: Object | None
    pods: list[Object]
    reports: dict[str, Object] = field(default_factory=dict)

    def settled_as(self, number: int) -> "Family":
        """The same in a namespace of its own, on nodes that no kubelet looks after, with other uids."""
        old = self.job["metadata"]["uid"]
        new = f"f{number}-{old}"
        name = self.job["metadata"]["name"]
        known = [pod["metadata"]["uid"] for pod in self.pods]
        changes = {gang_name(name, old): gang_name(name, new), old: new, f'"{NAMESPACE}"': f'"{namespace(number)}"'}
        changes |= {uid: f"f{number}-{uid}" for uid in known}
        changes |= {f'"n{node}"': f'"f{node}"' for node in range(8)}

        def settled(value: Any) -> Any:
            text = msgspec.json.encode(value).decode()
            for before, after in changes.items():
                text = text.replace(before, after)
            return msgspec.json.decode(text)

        reports = {f"f{number}-{uid}": settled(report) for uid, report in self.reports.items() if uid in known}
        return Family(settled(self.job), settled(self.gang), settled(self.pods), reports)


def namespace(number: int) -> str:
    """Of a settled family."""
    return f"n{number}-tenant"


CHECKED = CheckReport(
    sequence=7,
    boot_id="boot",
    state=checks.READY,
    problem="only seven GPUs",
    identity="0123abcd",
    device="cuda",
    gpus=8,
    model="NVIDIA H200",
    library="nccl-2.28.9",
    version="1",
    address="10.0.0.9",
    running="o3",
    answers=(
        CheckAnswer(
            order="o1",
            kind=checks.NODE,
            outcome="Result",
            round=2,
            peer="f1",
            gbps=48.5,
            retransmits=0.25,
            transport="IB",
            probes=(ProbeReport("gemm-bf16", "Result", 700.5, "TFLOP/s", True, "device 3", 1.5, "H200:0badcafe"),),
            message="all is well",
            seconds=4.5,
            given_back=False,
        ),
        CheckAnswer(
            "o2", checks.PAIR, "NoResult", 1, "f1", 0.0, 0.5, "IB", message="the other end is silent", seconds=30.0
        ),
    ),
    passes=(PassReport("Quick", 100.5, "g", 8),),
    figures=(
        FigureReport("gemm-bf16", 700.5, 10.5, "TFLOP/s", "NVLink", "team"),
        FigureReport("pair", 48.5, 9.5, "GB/s", "IB"),
    ),
    meeting="o2",
    puts=(Put(1, "0/0/1", "eJwDAAAAAAE=", 3), Put(0, "muster/here/0", "eJwDAAAAAAE=")),
    directive_seen="abc",
    hold_seconds=5.0,
)
"""A checker's report in which every field, and every field of the first of its parts, is set."""
CHECK_REPORT: Object = msgspec.json.decode(messages.encode(CHECKED))


@functools.cache
def families() -> list[Family]:
    """Jobs in all kinds of states, from lives with faults. The same at each call; it takes some seconds of CPU."""
    found: dict[tuple[Any, ...], Family] = {}
    for seed, faults in enumerate(_LIVES):
        life = Life(seed)
        try:
            for family in _moments(life, faults):
                found.setdefault(_kind_of(family), family)
        finally:
            life.close()
    return list(found.values())[:MOST_FAMILIES]


_LIVES = (
    [
        Fault(40.0, "RankExits", "a"),
        Fault(70.0, "Suspended", "b", seconds=40.0),
        Fault(90.0, "PowerCut", number=0, seconds=500.0),
        Fault(100.0, "PodDeleted", "plain"),
        Fault(130.0, "RankHangs", "b"),
    ],
    [
        Fault(40.0, "CutOff", number=1, count=2, seconds=60.0),
        Fault(60.0, "Drain", number=0, seconds=30.0),
        Fault(120.0, "RankKilled", "b"),
    ],
)


def _moments(life: Life, faults: list[Fault]) -> Iterator[Family]:
    recovery = {"applicationRestartsPerDay": 2, "hardwareRestartsPerDay": 2}
    script = Script(total_steps=60, step_seconds=2.0)
    life.submit("a", 3, script, recovery=recovery)
    life.submit("b", 2, script, recovery=recovery, progress={"stepTimeoutSeconds": 30})
    life.submit("plain", 2, script, launch={"mode": "Plain"}, checkpoint={})
    life.submit("large", 4, script, placement={"required": "rack"})
    left = list(faults)
    while life.age_seconds < 300.0:
        life.run(MOMENTS_SECONDS)
        while left and left[0].at <= life.age_seconds:
            fault = left.pop(0)
            with suppress(MissedError):
                undo = begin(life, fault)
                if undo is not None:
                    life.agenda.after(fault.seconds, undo)
        yield from (_family(life, job) for job in list(life.server.all("trainingjobs")))


def _family(life: Life, job: Object) -> Family:
    uid = job["metadata"]["uid"]
    gang = next((gang for gang in life.server.all("gangs") if gang["spec"]["jobUid"] == uid), None)
    owners = ((pod, pod["metadata"].get("ownerReferences") or ()) for pod in life.server.all("pods"))
    pods = [pod for pod, of in owners if any(owner["uid"] == uid for owner in of)]
    reports: dict[str, Object] = {}
    if life.leader is not None:
        for pod in pods:
            said = life.leader.operator.hub.last(pod["metadata"]["uid"])
            if said is not None:
                reports[pod["metadata"]["uid"]] = msgspec.json.decode(messages.encode(said))
    return Family(job, gang, pods, reports)


def _kind_of(family: Family) -> tuple[Any, ...]:
    """What makes a moment another one than those that are kept."""
    status, spec = family.job.get("status") or {}, (family.gang or {}).get("spec") or {}
    phases = tuple(sorted({str(pod["status"].get("phase")) for pod in family.pods}))
    said = tuple(sorted({report["state"] for report in family.reports.values()}))
    parts = tuple(
        bool(spec.get(part)) for part in ("start", "unfenced_workers", "evacuation", "holdUntil", "checkpoint")
    )
    name = family.job["metadata"]["name"]
    return name == "plain", status.get("state"), status.get("reason"), spec.get("level"), phases, said, parts
