"""Checkers and an operator with the rights of the installation: whom they trust, who is believed, what they are told."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from muster.protocol import checks, messages
from muster.protocol.checks import CHECK_PATH, CheckReport
from muster.protocol.messages import TOKEN_AUDIENCE

CHECKERS = "muster-check"


@pytest.fixture
def checkers(installation: Any, wait_until: Callable[..., Any]) -> Iterator[Callable[[], None]]:
    """Makes the checkers' namespace and service account, where the installation has none."""
    there = [item["metadata"]["name"] for item in installation.get("namespaces")["items"]]
    here = f"--namespace={CHECKERS}"

    def install() -> None:
        if CHECKERS in there:
            return
        installation.kubectl("create", "namespace", CHECKERS)
        installation.kubectl("create", "serviceaccount", CHECKERS, here)
        wait_until(lambda: len(installation.get("serviceaccounts", here)["items"]) == 2, "the default service account")

    yield install
    installation.kubectl("delete", "pods", here, "--selector=test=checkers", "--grace-period=0", "--force")
    if CHECKERS not in there:
        installation.kubectl("delete", "namespace", CHECKERS)


def token(installation: Any, name: str, account: str) -> str:
    """That of a pod on node-a, as its kubelet would ask for it."""
    here = f"--namespace={CHECKERS}"
    spec = {"serviceAccountName": account, "nodeName": "node-a", "containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": name, "namespace": CHECKERS, "labels": {"test": "checkers"}}
    installation.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    uid = installation.get("pod", name, here)["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}")
    return str(installation.kubectl("create", "token", account, here, f"--audience={TOKEN_AUDIENCE}", *bound)).strip()


def test_a_checker_trusts_reports_and_is_told(
    installation: Any, checkers: Callable[[], None], wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader()
    checkers()

    def bundle() -> str:
        found = installation.get("configmaps", f"--namespace={CHECKERS}")["items"]
        named = [item for item in found if item["metadata"]["name"] == "muster-coordinator"]
        return str(named[0]["data"]["ca.crt"]) if named else ""

    trust = ssl.create_default_context(cadata=wait_until(bundle, "the authorities are where checkers mount them"))
    trust.check_hostname = False  # it is called by its address here

    def report(bearer: str, sequence: int) -> tuple[int, bytes]:
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

    stranger = token(installation, "stranger", "default")
    status, body = report(stranger, 1)
    assert (status, "it runs as service account default" in json.loads(body)["error"]) == (403, True)
    assert sum(replica.samples("muster_checkers").values()) == 0
    checker = token(installation, "checker", CHECKERS)
    sequence = iter(range(1, 1000))

    def told() -> bool:
        status, body = report(checker, next(sequence))
        assert status == 200, body
        directive = checks.decode_check_directive(body)
        assert directive.orders == ()
        return directive.known

    wait_until(told, "everything was decided once: nobody wants anything of this node")
    assert replica.samples("muster_checkers") == {(("state", checks.READY),): 1.0}
    assert replica.samples("muster_check_orders_open") == {(): 0.0}
