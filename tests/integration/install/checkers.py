"""Checkers without a kubelet: their namespace, a pod on a node with its token, and what the coordinator answers it."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from muster.protocol import checks, messages
from muster.protocol.checks import CHECK_PATH, CheckReport
from muster.protocol.messages import TOKEN_AUDIENCE

NAMESPACE = ACCOUNT = "muster-check"
HERE = f"--namespace={NAMESPACE}"


@contextmanager
def namespace(installation: Any, wait_until: Callable[..., Any]) -> Iterator[None]:
    """The checkers' namespace and service account, as anybody makes them who may create a namespace."""
    installation.kubectl("create", "namespace", NAMESPACE)
    installation.kubectl("create", "serviceaccount", ACCOUNT, HERE)
    wait_until(lambda: len(installation.get("serviceaccounts", HERE)["items"]) == 2, "the default service account")
    try:
        yield
    finally:
        installation.kubectl("delete", "pods", HERE, "--all", "--grace-period=0", "--force")
        installation.kubectl("delete", "namespace", NAMESPACE)


def token(installation: Any, name: str, account: str) -> str:
    """That of a pod on node-a, as its kubelet would ask for it."""
    spec = {"serviceAccountName": account, "nodeName": "node-a", "containers": [{"name": "c", "image": "i"}]}
    installation.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    )
    uid = installation.get("pod", name, HERE)["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}")
    return str(installation.kubectl("create", "token", account, HERE, f"--audience={TOKEN_AUDIENCE}", *bound)).strip()


def report(replica: Any, trust: ssl.SSLContext, bearer: str, sequence: int) -> tuple[int, bytes]:
    """Status and body of the answer to a checker that is ready."""
    body = messages.encode(CheckReport(sequence, state=checks.READY, model="NVIDIA H200"))
    request = urllib.request.Request(
        f"https://127.0.0.1:{replica.coordinator_port}{CHECK_PATH}",
        data=body,
        headers={"Authorization": f"Bearer {bearer}"},
    )
    try:
        with urllib.request.urlopen(request, context=trust, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
