"""The rights of the installation are the ones that the operator uses: none is missing, none is there for nothing.

The API server's audit log tells both: what was refused, and by which request each right was used. The story below makes
the operator use every right once, the rare ones too.
"""

import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from tests.integration.install.manifests import a_job
from tests.unit.manifests.builders import rights_of

from localcluster.patience import PATIENCE_SECONDS
from muster.protocol.messages import REPORT_PATH, TOKEN_AUDIENCE
from muster.world.names import pod_name

Right = tuple[str, str, str, str]  # namespace of the Role ("" for the ClusterRole), group, resource, verb

TAINT = Path(__file__).resolve().parents[3] / "manifests" / "components" / "node-taint" / "rights.yaml"

# Server-side apply of an object that is not there yet needs `create` beside `patch`; the audit log shows `patch` only.
IMPLIED_BY_APPLY = {
    ("", "", "configmaps", "create"),
    ("", "", "services", "create"),
    ("", "policy", "poddisruptionbudgets", "create"),
}
# Asked for by the admission plugin OwnerReferencesPermissionEnforcement, which is on here, not by a request.
ASKED_BY_ADMISSION = {("", "muster.dev", "trainingjobs/finalizers", "update")}
# Used when the answer to a write is lost on its way, which nothing here brings about
# (tests/unit/controller/test_records.py, tests/unit/controller/test_nodefitness.py).
USED_WHEN_AN_ANSWER_IS_LOST = {("", "muster.dev", kind, "get") for kind in ("gangs", "nodehealths")}
# Used when a machine has been gone for long (tests/integration/controller/test_health.py).
USED_AFTER_DAYS = {("", "muster.dev", "nodehealths", "delete")}
# What every service account may read: kopf looks for the resources that there are.
DISCOVERY = ("/api", "/apis", "/version", "/openapi/v3")


def test_every_right_is_used_and_none_is_missing(
    installation: Any, namespace: str, overlay: Any, wait_until: Callable[..., Any]
) -> None:
    begin = len(_lines(installation.audit_log))
    base = set(_declared(installation.kubectl("kustomize", str(overlay))))
    component = set(_declared(TAINT.read_text()))
    assert component == {("", "", "nodes", verb) for verb in ("get", "patch")}
    assert not component & base, "the default enforcement writes no Node"
    declared = base | component
    unused = IMPLIED_BY_APPLY | ASKED_BY_ADMISSION | USED_WHEN_AN_ANSWER_IS_LOST | USED_AFTER_DAYS

    def recorded() -> list[Any]:
        return [json.loads(line) for line in _lines(installation.audit_log)[begin:]]

    def used() -> set[Right]:
        return {right for event in recorded() for right in _used(event, declared)}

    story(installation, namespace, wait_until)
    # A request is written down after it was answered. Which right is still missing, the last assertion tells.
    with contextlib.suppress(AssertionError):
        wait_until(lambda: declared - used() <= unused, "every right is used")
    events = recorded()
    refused = [event for event in events if _is_refused(event)]
    assert [(event["verb"], event["requestURI"]) for event in refused] == []
    assert used() - declared == set()
    assert declared - used() == unused


def story(installation: Any, namespace: str, wait_until: Callable[..., Any]) -> None:
    system = f"--namespace={installation.namespace}"
    here = f"--namespace={namespace}"
    installation.kubectl("delete", "secret", "muster-coordinator-tls", system, "--ignore-not-found")

    def job(name: str) -> Any:
        return installation.get("trainingjob", name, here)

    def pods(name: str) -> list[Any]:
        found: list[Any] = installation.get("pods", here, f"--selector=muster.dev/job={name}")["items"]
        return found

    def suspend(name: str, *, yes: bool) -> None:
        installation.kubectl(
            "patch", "trainingjob", name, here, "--type=merge", f'--patch={{"spec":{{"suspend":{str(yes).lower()}}}}}'
        )

    # A job of the usual kind is placed, then suspended: its pods go.
    replica = installation.start_leader()
    installation.apply(a_job("usual", namespace))
    wait_until(lambda: len(pods("usual")) == 2, "two workers")
    suspend("usual", yes=True)
    wait_until(lambda: not pods("usual"), "the workers are deleted")
    # A launcher calls: the keys that verify its token are read.
    token = installation.kubectl("create", "token", "default", here, f"--audience={TOKEN_AUDIENCE}").strip()
    assert "not bound to a pod" in _report(replica.coordinator_port, token)
    # A job that nobody can place: the same is told again after a restart.
    installation.apply(a_job("large", namespace, nodes=9))
    wait_until(
        lambda: "only 2 of the fleet's 2 nodes are suitable" in json.dumps(_told(installation, here, "large")),
        "an Event",
    )
    assert replica.terminate() == 0
    # A certificate that nobody can use is replaced.
    installation.kubectl(
        "patch", "secret", "muster-coordinator-tls", system, "--type=merge", '--patch={"data":{"tls.key":""}}'
    )
    installation.kubectl(
        "patch",
        "trainingjob",
        "large",
        here,
        "--subresource=status",
        "--type=json",
        '--patch=[{"op":"remove","path":"/status"}]',
    )
    replica = installation.start_leader()
    wait_until(lambda: "series" in json.dumps(_told(installation, here, "large")), "the Event has a series")
    # A stranger's pod has the name that a worker would get.
    installation.apply(a_job("squatted", namespace, nodes=1, suspend=True))
    squatted = pod_name("squatted", job("squatted")["metadata"]["uid"], 0, 1)
    installation.apply(_pod(squatted, namespace))
    suspend("squatted", yes=False)
    wait_until(lambda: "PodNameTaken" in json.dumps(job("squatted").get("status", {})), "the stranger is noticed")
    installation.kubectl("delete", "trainingjob", "squatted", here)
    installation.kubectl("delete", "pod", squatted, here, "--grace-period=0", "--force")
    # A Plain job trains to its end and is deleted when its time to live is over.
    installation.apply(
        a_job("plain", namespace, nodes=1, launch={"mode": "Plain"}, completion={"ttlSecondsAfterFinished": 0})
    )
    wait_until(lambda: pods("plain"), "a Plain worker")
    name = pods("plain")[0]["metadata"]["name"]

    def becomes(status: dict[str, Any]) -> None:
        patch = f"--patch={json.dumps({'status': status})}"
        installation.kubectl("patch", "pod", name, here, "--subresource=status", "--type=merge", patch)

    becomes({"phase": "Running"})
    wait_until(lambda: "plain" in json.dumps(installation.get("pdb", here)), "a disruption budget while it runs")
    becomes({"phase": "Succeeded", "containerStatuses": [_ended("trainer")]})
    wait_until(
        lambda: not installation.get("trainingjobs", here, "--field-selector=metadata.name=plain")["items"],
        "it is gone",
    )
    assert "plain" in _kept(installation, system), "its account is kept before it goes"
    # Muster binds the pods of a pool itself, once it knows that the job's volume is bound to no node.
    pools = [{"name": "all", "binding": "Direct"}]
    installation.apply_policy({"pools": pools, "history": {"maxJobs": 1}})
    for manifest in _volume("data", namespace):
        installation.apply(manifest)
    bound = json.dumps({"status": {"phase": "Bound"}})
    installation.kubectl("patch", "pvc", "data", here, "--subresource=status", "--type=merge", f"--patch={bound}")
    direct = a_job("direct", namespace, nodes=1)
    direct["spec"]["template"]["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    wait_until(lambda: _kept(installation, system) == ["plain"], "Muster knows the policy: it keeps one account")
    installation.apply(direct)
    wait_until(lambda: [pod for pod in pods("direct") if pod["spec"].get("nodeName")], "Muster has bound a worker")
    # Its node is for other tests, and no kubelet ends its pod. The account of one job is kept, the newest.
    installation.kubectl("delete", "trainingjob", "direct", here)
    wait_until(lambda: _kept(installation, system) == ["direct"], "the account of the job that ended last")
    installation.open_fleet()
    for pod in pods("direct"):
        installation.kubectl("delete", "pod", pod["metadata"]["name"], here, "--grace-period=0", "--force")
    a_node_turns_sick_and_gets_well(installation, wait_until)
    assert "403" not in {dict(labels)["code"] for labels in replica.samples("muster_api_requests_total")}


def a_node_turns_sick_and_gets_well(installation: Any, wait_until: Callable[..., Any]) -> None:
    """What is known against it is written down, and its taint is put on and taken off."""
    installation.kubectl("apply", f"--filename={TAINT}")
    installation.apply_policy({"health": {"enforcement": "Nodes", "repair": {"actions": ["Reboot"]}}})

    def health() -> Any:
        found = installation.get("nodehealths", "--field-selector=metadata.name=node-b")["items"]
        return found[0].get("status", {}) if found else {}

    def taints() -> list[str]:
        return [taint["key"] for taint in installation.get("node", "node-b")["spec"].get("taints", [])]

    def patched(what: str, status: dict[str, Any]) -> None:
        patch = f"--patch={json.dumps({'status': status})}"
        installation.kubectl("patch", what, "node-b", "--subresource=status", "--type=strategic", patch)

    def agent_says(boot: str, *evidence: dict[str, Any]) -> None:
        status = {"evidence": evidence, "agent": {"version": "test", "bootId": boot}}
        patch = f"--patch={json.dumps({'status': status})}"
        installation.kubectl("patch", "nodehealth", "node-b", "--subresource=status", "--type=merge", patch)

    # A mark of somebody else's, before any agent has spoken: Muster makes the object.
    mark = {"type": "GpuDcgmUnresponsive", "reason": "DcgmIsSilent"}
    patched("node", {"conditions": [{**mark, "status": "True"}]})
    wait_until(lambda: health().get("state") == "Suspect", "the mark is written down")
    assert "muster.dev/unhealthy" not in taints()
    now = datetime.now(UTC).isoformat()
    agent_says("1", {"kind": "Xid", "code": 79, "subject": "GPU-1", "firstSeen": now, "lastSeen": now, "bootId": "1"})
    wait_until(lambda: "muster.dev/unhealthy" in taints(), "the taint")
    assert health()["state"] == "Unhealthy"

    def asked() -> list[Any]:
        found: list[Any] = installation.get("repairrequests", "--field-selector=metadata.name=node-b")["items"]
        return found

    # Nobody uses it, so that somebody is asked to boot it; nobody has taken that on when it comes back from a reboot.
    wait_until(asked, "a reboot is asked for")
    patched("node", {"conditions": [{**mark, "status": "False"}]})
    agent_says("2")
    wait_until(lambda: "muster.dev/unhealthy" not in taints(), "the taint is taken off")
    wait_until(lambda: health().get("state") == "Healthy", "it is well")
    assert asked() == []
    patched("node", {"conditions": [{"type": mark["type"], "$patch": "delete"}]})
    installation.kubectl("delete", "nodehealth", "node-b")
    installation.open_fleet()
    installation.kubectl("delete", f"--filename={TAINT}")


def _kept(installation: Any, system: str) -> list[str]:
    """The jobs whose accounts are kept."""
    return [kept["spec"]["name"] for kept in installation.get("endedjobs", system)["items"]]


def _volume(name: str, namespace: str) -> list[dict[str, Any]]:
    """A claim and the volume that it is bound to."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**common, "capacity": {"storage": "1Gi"}, "nfs": {"server": "10.0.0.1", "path": "/"}}
    claim = {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{namespace}-{name}"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{namespace}-{name}"}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": claim,
        },
    ]


def _pod(name: str, namespace: str) -> dict[str, Any]:
    container = {"name": "stranger", "image": "example.org/stranger:1"}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _ended(container: str) -> dict[str, Any]:
    ended = {"exitCode": 0, "reason": "Completed"}
    return {
        "name": container,
        "ready": False,
        "restartCount": 0,
        "image": "i",
        "imageID": "i",
        "state": {"terminated": ended},
    }


def _is_refused(event: Any) -> bool:
    """Whether a role or an admission policy said no; the dry runs that have to be refused apart."""
    answer = event.get("responseStatus", {})
    by_policy = "ValidatingAdmissionPolicy" in answer.get("message", "")
    return (answer.get("code") == 403 or by_policy) and event["objectRef"].get("name") != "muster-policy-check"


def _lines(log: Path) -> list[bytes]:
    """The lines that are complete: another one may be on its way."""
    return [line for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _told(installation: Any, here: str, name: str) -> list[Any]:
    events: list[Any] = installation.get("events.events.k8s.io", here)["items"]
    return [event for event in events if event["regarding"]["name"] == name]


def _report(port: int, token: str) -> str:
    """What the coordinator answers to a caller with this token."""
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}{REPORT_PATH}", data=b"{}", headers={"Authorization": f"Bearer {token}"}
    )
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, context=unchecked, timeout=PATIENCE_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def _declared(manifests: str) -> Iterator[Right]:
    """The rights of the operator's roles, whatever names they are limited to."""
    for right in rights_of(list(yaml.safe_load_all(manifests))):
        yield right.namespace, right.group, right.resource, right.verb


def _used(event: Any, declared: set[Right]) -> Iterator[Right]:
    """The right by which a request was allowed: that of the namespace's Role where there is one, else the
    ClusterRole's."""
    reference = event.get("objectRef")
    if reference is None:
        path = event["requestURI"].split("?")[0]
        if ("", "", path, event["verb"]) in declared or not path.startswith(DISCOVERY):
            yield "", "", path, event["verb"]
        return
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    right = (reference.get("apiGroup", ""), resource, event["verb"])
    local = (reference.get("namespace", ""), *right)
    yield local if local in declared else ("", *right)
