"""Pods as people have them, on real nodes: all that makes one hard at once, its node's network, an image without
python3."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.e2e.conftest import TRAINER, submitter

from testbed.bed import Bed
from testbed.jobs import SHARED, Job, stage
from testbed.kube import wait_until

Submit = Callable[..., Job]

PRIVILEGED = "muster-e2e-host"
UID = 1000650000  # of the kind that OpenShift gives out: no image knows it
FOREVER = ["python3", "-c", "import time; time.sleep(1000000)"]
# The name that Python finds for the user, which it does not for a uid that the image does not know.
NAMED = (
    'mkdir -p "$RUN_DIR" && python3 -c "import getpass; print(getpass.getuser())" > "$RUN_DIR/user-$RANK" && exec "$@"'
)


def hard(pod: dict[str, Any]) -> None:
    """A sidecar that never ends, one of Kubernetes' own, an init container, a class with processors of its own, any
    uid, probes that never pass; the root file system is read-only as it is.
    """
    (trainer,) = pod["containers"]
    pod["securityContext"]["runAsUser"] = UID
    share = {"cpu": "100m", "memory": "96Mi"}
    own = {"cpu": "250m", "memory": "256Mi"}
    plain = {**trainer, "resources": {"requests": share, "limits": share}}
    plain["volumeMounts"] = [{"name": "notes", "mountPath": "/notes"}]
    write = {**plain, "name": "fetch", "command": ["sh", "-c", "id -u > /notes/fetched"]}
    native = {**plain, "name": "proxy", "command": FOREVER, "restartPolicy": "Always"}
    pod["initContainers"] = [native, write]
    never = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    trainer["command"] = ["sh", "-c", NAMED, "sh", *trainer["command"]]
    trainer["resources"] = {"requests": own, "limits": own}
    trainer["livenessProbe"] = trainer["startupProbe"] = trainer["readinessProbe"] = never
    trainer["volumeMounts"] = [*trainer["volumeMounts"], {"name": "notes", "mountPath": "/notes", "readOnly": True}]
    pod["containers"] = [{**plain, "name": "shipper", "command": FOREVER}, trainer]
    pod["volumes"] = [*pod["volumes"], {"name": "notes", "emptyDir": {}}]


def restarts(pod: dict[str, Any], sidecar: str) -> int:
    """Of a sidecar that is an init container."""
    found = (each for each in pod["status"]["initContainerStatuses"] if each["name"] == sidecar)
    return int(next(found)["restartCount"])


def test_a_pod_with_everything_trains_loses_its_launcher_and_its_sidecar_and_ends(bed: Bed, submit: Submit) -> None:
    trainer = ["--steps=80", "--step-seconds=0.1", "--checkpoint-every=10", "--hold-at=60"]
    job = submit("hard", nodes=2, trainer=trainer, reshape=hard, launch={"workerContainer": "trainer"})
    job.wait_step(15)
    pod = job.pods()[1]
    assert pod["status"]["qosClass"] == "Guaranteed"
    assert {(job.folder / f"user-{rank}").read_text().strip() for rank in (0, 1)} == {str(UID)}

    # A sidecar of Kubernetes' own is restarted by the kubelet, and nobody else notices.
    (proxy,) = bed.cluster.pids_of(pod["spec"]["nodeName"], job.namespace, pod["metadata"]["name"], "proxy")
    os.kill(proxy.pid, signal.SIGKILL)
    wait_until("its restart", lambda: restarts(job.pods()[1], "proxy") == 1)
    assert {line["attempt"] for line in job.events("step")} == {1}

    container = bed.cluster.pids_of(pod["spec"]["nodeName"], job.namespace, pod["metadata"]["name"], "trainer")
    os.kill(container[0].pid, signal.SIGKILL)  # the launcher itself, and with it the container
    again = job.wait_training_again(1)
    assert (again.level, again.reason) == ("R0b", "PodEnded")
    completion = job.completion()
    assert completion["result"] == "Succeeded", completion
    wait_until("the sidecars to end", lambda: not any(map(_runs, job.pods().values())))


def _runs(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def test_an_image_without_python_ends_the_job_at_once_with_a_remedy(bed: Bed, submit: Submit) -> None:
    """The launcher's own image has nothing but the launcher and what copies it."""

    def bare(pod: dict[str, Any]) -> None:
        pod["containers"][0]["image"] = bed.images["launcher"]

    command = ["/launcher/install", "--install", f"{SHARED}/never"]
    job = submit("bare", nodes=2, command=command, reshape=bare)
    completion = job.completion()
    assert (completion["result"], completion["reason"]) == ("Failed", "ContainerCannotStart")
    for part in ("container trainer of pod ", "python3", "Put python3 (3.8 or later", "spec.launch.mode to Plain"):
        assert part in completion["message"], completion["message"]
    stalled = next(each for each in job.status()["conditions"] if each["type"] == "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "ContainerCannotStart")
    assert job.status().get("restarts", 0) == 0


@pytest.fixture
def submit_on_host(bed: Bed) -> Iterator[Submit]:
    """Jobs in a namespace whose pods may use the network of their nodes."""
    made = stage(PRIVILEGED, TRAINER)
    made["items"][0]["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "privileged"}
    bed.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    yield from submitter(bed, PRIVILEGED, [])
    bed.kubectl("delete", "namespace", PRIVILEGED, "--wait=true")


def test_a_pod_in_its_nodes_network_finds_muster_and_the_others(bed: Bed, submit_on_host: Submit) -> None:
    def on_host(pod: dict[str, Any]) -> None:
        pod["hostNetwork"] = True

    job = submit_on_host("host", nodes=2, trainer=["--steps=20", "--step-seconds=0.05"], reshape=on_host)
    completion = job.completion()
    assert completion["result"] == "Succeeded", completion
    pods = job.pods().values()
    assert {pod["spec"]["dnsPolicy"] for pod in pods} == {"ClusterFirstWithHostNet"}
    assert all(pod["status"]["podIP"] == pod["status"]["hostIP"] for pod in pods)
