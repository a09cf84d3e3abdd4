"""What this process reads of worker pods and writes for them, in place of their kubelets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from muster.kube import paths
from muster.kube.decode import Raw, flat_meta
from muster.kube.informer import Kind
from muster.protocol.messages import TOKEN_AUDIENCE
from muster.world.names import gang_name
from muster.world.views import JOB_NAME_LABEL, JOB_UID_LABEL, TERMINAL_PHASES

# Longer than any bench: a kubelet would ask for less and renew in time.
TOKEN_SECONDS = 24 * 3600
NAME_VARIABLE = "MUSTER_COORDINATOR_NAME"
DIRECTORY_VARIABLE = "MUSTER_CHECKPOINT_DIRECTORY"


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """A worker pod as far as its launcher is concerned."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    job: str
    job_uid: str
    node: str
    phase: str
    address: str
    deleting: bool
    service_account: str
    containers: tuple[str, ...]
    environment: Mapping[str, str]  # what Muster has set for its launcher; empty for a Plain worker

    @property
    def runs(self) -> bool:
        """Whether its launcher is to be alive."""
        return self.phase == "Running" and not self.deleting and NAME_VARIABLE in self.environment

    @property
    def over(self) -> bool:
        """Whether its containers have ended."""
        return self.phase in TERMINAL_PHASES


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Variable(msgspec.Struct):
    name: str = ""
    value: str = ""


class _Container(msgspec.Struct):
    name: str = ""
    env: list[_Variable] = msgspec.field(default_factory=list)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    service_account_name: str = "default"
    containers: list[_Container] = msgspec.field(default_factory=list)


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_pods = msgspec.json.Decoder(_Pod)


def decode_pod(data: Raw) -> WorkerPod:
    """A worker pod from the API server's bytes."""
    parsed = _pods.decode(data)
    meta, spec, status = parsed.metadata, parsed.spec, parsed.status
    return WorkerPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        job=meta.labels.get(JOB_NAME_LABEL, ""),
        job_uid=meta.labels.get(JOB_UID_LABEL, ""),
        node=spec.node_name,
        phase=status.phase,
        address=status.pod_ip,
        deleting=meta.deletion_timestamp is not None,
        service_account=spec.service_account_name,
        containers=tuple(container.name for container in spec.containers),
        environment={
            variable.name: variable.value
            for container in spec.containers
            for variable in container.env
            if variable.name in (NAME_VARIABLE, DIRECTORY_VARIABLE)
        },
    )


def worker_pods(namespace: str) -> Kind[WorkerPod]:
    """The worker pods of one namespace, of all when none is named."""
    path = paths.core("pods", namespace=namespace)
    return Kind("launchers", path, decode_pod, flat_meta, query={"labelSelector": JOB_UID_LABEL})


def token_path(pod: WorkerPod) -> str:
    """Where a kubelet asks for the pod's token."""
    return paths.core("serviceaccounts", namespace=pod.namespace, name=pod.service_account, subresource="token")


def token_request(pod: WorkerPod) -> dict[str, Any]:
    """What a kubelet asks for: a token for the coordinator only, good for as long as the pod is there."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [TOKEN_AUDIENCE],
            "expirationSeconds": TOKEN_SECONDS,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
        },
    }


def trust_path(pod: WorkerPod) -> str:
    """The ConfigMap with the authorities that the job's launchers trust."""
    return paths.core("configmaps", namespace=pod.namespace, name=gang_name(pod.job, pod.job_uid))


def status_path(pod: WorkerPod) -> str:
    """Where a kubelet reports."""
    return paths.core("pods", namespace=pod.namespace, name=pod.name, subresource="status")


def ended_status(pod: WorkerPod, exit_code: int) -> dict[str, Any]:
    """A kubelet's report that the launcher, and with it the container, has exited (a merge patch)."""
    state = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
    statuses = [
        {"name": name, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        for name in pod.containers
    ]
    phase = "Failed" if exit_code else "Succeeded"
    return {"metadata": {"uid": pod.uid}, "status": {"phase": phase, "containerStatuses": statuses}}
