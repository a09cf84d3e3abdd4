"""The digest of the final weights is a witness: a correct resume gives the undisturbed one, every wrong one another.

The demo and the recovery tests compare this digest. If it did not notice a lost optimizer state or a skipped batch,
they would prove nothing. PyTorch is in the trainer's image, so the check runs there, in one pod.
"""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from localcluster.patience import PATIENCE_SECONDS

WRONG = ["batch_skipped", "optimizer_state_not_loaded", "resumed_one_step_ahead", "resumed_one_step_back"]
RIGHT = ["resumed", "resumed_twice", "undisturbed_again"]


class Cluster(Protocol):
    """What this test needs of the `cluster` fixture."""

    def kubectl(self, *arguments: str) -> str: ...

    def image(self, name: str) -> str: ...


def selfcheck_pod(namespace: str, image: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "selfcheck", "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "selfcheck",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "/opt/torch-ddp/selfcheck.py", "--world-size=2"],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


@pytest.fixture(scope="module")
def digests(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Digest of the final weights by the name of the variant."""
    namespace = f"trainer-hash-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", namespace)
    try:
        cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s", f"--namespace={namespace}")
        manifest: Path = tmp_path_factory.mktemp("selfcheck") / "pod.json"
        manifest.write_text(json.dumps(selfcheck_pod(namespace, cluster.image("torch-ddp"))))
        cluster.kubectl("create", "--filename", str(manifest))
        phase = wait_until_finished(cluster, namespace)
        output = cluster.kubectl("logs", "selfcheck", f"--namespace={namespace}")
        assert phase == "Succeeded", output
        yield json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def wait_until_finished(cluster: Cluster, namespace: str) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        phase = cluster.kubectl(
            "get", "pod", "selfcheck", f"--namespace={namespace}", "--output=jsonpath={.status.phase}"
        )
        if phase in ("Succeeded", "Failed"):
            return phase
        time.sleep(0.5)
    pytest.fail(cluster.kubectl("describe", "pod", "selfcheck", f"--namespace={namespace}"))


def test_the_check_ran_every_variant(digests: dict[str, str]) -> None:
    assert sorted(digests) == sorted(["undisturbed", *RIGHT, *WRONG])


@pytest.mark.parametrize("variant", RIGHT)
def test_a_correct_run_ends_with_the_same_weights(digests: dict[str, str], variant: str) -> None:
    assert digests[variant] == digests["undisturbed"]


@pytest.mark.parametrize("variant", WRONG)
def test_a_wrong_resume_ends_with_other_weights(digests: dict[str, str], variant: str) -> None:
    assert digests[variant] != digests["undisturbed"]


def test_each_mistake_is_told_apart(digests: dict[str, str]) -> None:
    assert len({digests[variant] for variant in WRONG}) == len(WRONG)
