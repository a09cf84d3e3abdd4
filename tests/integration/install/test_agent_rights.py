"""The agents of the installation: they run with the rights that they have, and a stolen token is good for one node
only.

No kubelet runs their pods: the test binds them to their nodes, asks for the token that a kubelet would mount, and runs
`python -m muster.node.agent` with it, or does with it what a thief would.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.install.thief import APPLY, JSON_PATCH, MERGE, Thief

from localcluster.patience import PATIENCE_SECONDS
from muster.node.agent.client import ApiError, NodeHealthClient
from muster.node.agent.settings import from_environment

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "--namespace=muster-agent"
API = "/apis/muster.dev/v1alpha1/nodehealths"
TIME = "2026-01-31T12:00:00.000000Z"
XID = {"kind": "Xid", "code": 79, "firstSeen": TIME, "lastSeen": TIME}
JUDGEMENT = {
    "state": "Unhealthy",
    "reason": "Xid79",
    "findings": [{"source": "agent", "reason": "Xid79", "since": TIME}],
}
OWN, OTHER = "node-a", "node-b"

NOT_ITS_NODE = "which may write the NodeHealth of that node only"
NOT_ITS_STATUS = "an agent may write evidence and agent and nothing else of status"
NOT_ITS_SPEC = "an agent may write nothing of spec, that is for people"
NOT_ITS_METADATA = "an agent may not change labels, annotations, finalizers or owners"


def health(name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": name}, **parts}


@pytest.fixture(scope="module")
def agent_pods(installed: Any, wait_until: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """The pods of the DaemonSet on two nodes, by node."""
    # What a kubelet would say of its node.
    installed.kubectl("label", "node", OWN, OTHER, "kubernetes.io/os=linux")

    def bound() -> dict[str, Any]:
        found = {}
        for pod in installed.get("pods", NAMESPACE)["items"]:
            wanted = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            node = wanted["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            name = pod["metadata"]["name"]
            if node in (OWN, OTHER):
                found[node] = pod
            if node in (OWN, OTHER) and not pod["spec"].get("nodeName"):
                target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": node}}
                place = f"/api/v1/namespaces/muster-agent/pods/{name}/binding"
                installed.kubectl("create", "--raw", place, "-f", "-", stdin=json.dumps(target))
        done = all(pod["spec"].get("nodeName") == node for node, pod in found.items())
        return found if done and len(found) == 2 else {}

    yield wait_until(bound, "the agents' pods are there and bound")
    installed.kubectl("delete", "nodehealths", "--all")
    installed.kubectl("label", "node", OWN, OTHER, "kubernetes.io/os-")
    # No kubelet would ever end them.
    installed.kubectl("delete", "pods", "--all", NAMESPACE, "--grace-period=0", "--force")


def token_of(installation: Any, pod: Any) -> str:
    """What a kubelet mounts into the pod."""
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod['metadata']['name']}")
    text: str = installation.kubectl("create", "token", "muster-agent", NAMESPACE, *bound)
    return text.strip()


class AgentThief(Thief):
    """With the token of an agent."""

    def patch(self, path: str, body: Any, kind: str = MERGE) -> tuple[int, str]:
        """A patch of a NodeHealth, by server-side apply with force where it is one."""
        more = "?fieldManager=muster-agent&force=true" if kind == APPLY else ""
        return self.request("PATCH", f"{API}/{path}{more}", body, kind)


def thief_with(installation: Any, token: str) -> AgentThief:
    return AgentThief(installation.control_plane.server, installation.control_plane.pki.ca, token)


def judge(installation: Any) -> None:
    """Both nodes have a NodeHealth as the operator leaves it."""
    for name in (OWN, OTHER):
        installation.apply(health(name, metadata={"name": name, "labels": {"keep": "this"}}))
        status = json.dumps({"status": {**JUDGEMENT, "evidence": [XID]}})
        installation.kubectl("patch", "nodehealth", name, "--subresource=status", "--type=merge", f"--patch={status}")


@pytest.fixture(scope="module")
def thief(installed: Any, agent_pods: dict[str, Any], wait_until: Callable[..., Any]) -> AgentThief:
    """With the token of the agent on node-a."""
    judge(installed)
    thief = thief_with(installed, token_of(installed, agent_pods[OWN]))
    # The API server hears of a policy a moment after it is made.
    body: dict[str, Any] = {"status": {"evidence": []}}
    wait_until(lambda: thief.patch(f"{OTHER}/status?dryRun=All", body)[0] == 403, "the policy is in force")
    return thief


def test_the_agents_are_admitted_to_every_node(agent_pods: dict[str, Any]) -> None:
    assert set(agent_pods) == {OWN, OTHER}
    assert {pod["spec"]["priority"] for pod in agent_pods.values()} == {2000001000}


def test_an_agent_runs_with_the_rights_of_the_installation(
    installation: Any, agent_pods: dict[str, Any], wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    installation.kubectl("delete", "nodehealths", "--all")
    pod = agent_pods[OWN]
    (tmp_path / "token").write_text(token_of(installation, pod))
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    (tmp_path / "kmsg").touch()
    given = {
        entry["name"]: entry.get("value", pod["spec"]["nodeName"]) for entry in pod["spec"]["containers"][0]["env"]
    }
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "operator"),
        **given,
        "MUSTER_API_SERVER": installation.control_plane.server,
        "MUSTER_CA_FILE": str(installation.control_plane.pki.ca),
        "MUSTER_TOKEN_FILE": str(tmp_path / "token"),
        "MUSTER_SYSFS": str(tmp_path / "sys"),
        "MUSTER_PROC": str(tmp_path / "proc"),
        "MUSTER_KERNEL_LOG": str(tmp_path / "kmsg"),
        "MUSTER_LISTEN": "127.0.0.1:0",
    }
    command = pod["spec"]["containers"][0]["command"][1:]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, *command], env=environment, stderr=log)

    def status() -> Any:
        found = installation.get("nodehealths")["items"]
        return next((item.get("status", {}) for item in found if item["metadata"]["name"] == OWN), {})

    try:
        # Created, then written; then a judgement stands beside it, and it writes again.
        wait_until(lambda: status().get("agent", {}).get("bootId") == "boot-1", "the agent has written")
        judged = json.dumps({"status": JUDGEMENT})
        installation.kubectl("patch", "nodehealth", OWN, "--subresource=status", "--type=merge", f"--patch={judged}")
        since_boot = time.monotonic_ns() // 1000  # an XID of a day ago would be none any more
        line = f"6,1,{since_boot},-;NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus.\n"
        (tmp_path / "kmsg").write_text(line)
        wait_until(lambda: status().get("evidence"), "the agent has written evidence")
    finally:
        process.terminate()
        said = (tmp_path / "log").read_text()
        print(said)
    assert process.wait(PATIENCE_SECONDS) == 0
    events = [{**json.loads(line), "time": ""} for line in said.splitlines()]  # a time may have 403 milliseconds
    assert events
    assert not re.search(r"\b403\b", json.dumps(events))
    assert status()["state"] == "Unhealthy"
    judge(installation)


SICK = {"status": {"evidence": [XID]}}


@pytest.mark.parametrize(
    ("path", "body", "kind", "says"),
    [
        pytest.param(f"{OTHER}/status", health(OTHER, **SICK), APPLY, NOT_ITS_NODE, id="evidence of another node"),
        pytest.param(f"{OTHER}/status", {"status": {"evidence": []}}, MERGE, NOT_ITS_NODE, id="none of another node"),
        pytest.param("node-new", health("node-new"), APPLY, NOT_ITS_NODE, id="an object of another node"),
        pytest.param(f"{OTHER}/status", {"status": {"agent": {"gpus": 0}}}, MERGE, NOT_ITS_NODE, id="another agent"),
        pytest.param(
            f"{OWN}/status", {"status": {"state": "Healthy"}}, MERGE, NOT_ITS_STATUS, id="its own node's state"
        ),
        pytest.param(
            f"{OWN}/status", health(OWN, status={"state": "Healthy"}), APPLY, NOT_ITS_STATUS, id="the same by apply"
        ),
        pytest.param(
            f"{OWN}/status", {"status": {"effect": "tainted"}}, MERGE, NOT_ITS_STATUS, id="something that was not there"
        ),
        pytest.param(f"{OWN}/status", {"status": {"state": None}}, MERGE, NOT_ITS_STATUS, id="the state taken away"),
        pytest.param(f"{OWN}/status", {"status": {"findings": []}}, MERGE, NOT_ITS_STATUS, id="the findings"),
        pytest.param(
            f"{OWN}/status",
            {"status": {"evidence": [XID], "findings": []}},
            MERGE,
            NOT_ITS_STATUS,
            id="beside what it may",
        ),
        pytest.param(
            f"{OWN}/status", [{"op": "remove", "path": "/status"}], JSON_PATCH, NOT_ITS_STATUS, id="all of it"
        ),
        pytest.param(
            OWN,
            {"spec": {"override": {"decision": "Release", "reason": "trust me", "time": TIME}}},
            MERGE,
            NOT_ITS_SPEC,
            id="a human's word",
        ),
        pytest.param(
            OWN, {"spec": {"check": {"id": "1", "profile": "Deep", "time": TIME}}}, MERGE, NOT_ITS_SPEC, id="a test"
        ),
        pytest.param(
            OTHER,
            {"spec": {"check": {"id": "1", "profile": "Deep", "time": TIME}}},
            MERGE,
            NOT_ITS_NODE,
            id="a test of another node",
        ),
        pytest.param(OWN, {"spec": {"lost": {"reason": "dead", "time": TIME}}}, MERGE, NOT_ITS_SPEC, id="a dead node"),
        pytest.param(OWN, {"metadata": {"labels": {"keep": "that"}}}, MERGE, NOT_ITS_METADATA, id="a label"),
        pytest.param(OWN, {"metadata": {"labels": None}}, MERGE, NOT_ITS_METADATA, id="labels taken away"),
        pytest.param(OWN, {"metadata": {"annotations": {"a": "b"}}}, MERGE, NOT_ITS_METADATA, id="an annotation"),
        pytest.param(OWN, {"metadata": {"finalizers": ["a.b/c"]}}, MERGE, NOT_ITS_METADATA, id="a finalizer"),
    ],
)
def test_a_stolen_token_is_refused(path: str, body: Any, kind: str, says: str, thief: AgentThief) -> None:
    code, message = thief.patch(path, body, kind)
    assert (code, says in message) == (403, True), message


def test_metadata_does_not_change_through_the_door_of_status(installation: Any, thief: AgentThief) -> None:
    body = {"metadata": {"labels": None, "annotations": {"a": "b"}, "finalizers": ["a.b/c"]}}
    assert thief.patch(f"{OWN}/status", body) == (200, "")
    stored = installation.get("nodehealth", OWN)["metadata"]
    assert stored["labels"] == {"keep": "this"}
    assert "finalizers" not in stored
    assert "a" not in stored["annotations"]


def test_an_owner_is_refused(installation: Any, thief: AgentThief, wait_until: Callable[..., Any]) -> None:
    """By the policy, too, not only by the admission plugin for owners, which is on here and not everywhere."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": OTHER, "uid": "u"}
    body = {"metadata": {"ownerReferences": [owner]}}
    assert "cannot set an ownerRef" in thief.patch(OWN, body)[1]
    # What the plugin asks for.
    account = "--serviceaccount=muster-agent:muster-agent"
    installation.kubectl("create", "clusterrole", "deleter", "--verb=delete", "--resource=nodehealths.muster.dev")
    installation.kubectl("create", "clusterrolebinding", "deleter", "--clusterrole=deleter", account)
    try:
        wait_until(lambda: NOT_ITS_METADATA in thief.patch(OWN, body)[1], "the policy refuses it")
    finally:
        installation.kubectl("delete", "clusterrole,clusterrolebinding", "deleter")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"spec": {"override": {"decision": "Cordon", "reason": "why not", "time": TIME}}}, NOT_ITS_SPEC),
        ({"metadata": {"name": OWN, "labels": {"a": "b"}}}, NOT_ITS_METADATA),
    ],
    ids=["with a human's word", "with a label"],
)
def test_an_object_that_says_more_is_not_created(
    parts: dict[str, Any], says: str, installation: Any, thief: AgentThief
) -> None:
    installation.kubectl("delete", "nodehealth", OWN)
    for code, message in (
        thief.patch(OWN, health(OWN, **parts), APPLY),
        thief.request("POST", API, health(OWN, **parts)),
    ):
        assert (code, says in message) == (403, True), message
    assert thief.patch(OWN, health(OWN), APPLY) == (201, "")
    judge(installation)


def test_what_an_agent_has_to_write_is_let_through(installation: Any, thief: AgentThief) -> None:
    mine = {"evidence": [{**XID, "count": 2}], "agent": {"gpus": 7}}
    assert thief.patch(f"{OWN}/status", health(OWN, status=mine), APPLY) == (200, "")
    stored = installation.get("nodehealth", OWN)
    assert stored["status"]["agent"] == {"gpus": 7}
    assert stored["status"]["evidence"][0]["count"] == 2
    assert {name: stored["status"][name] for name in JUDGEMENT} == JUDGEMENT
    assert stored["metadata"]["labels"] == {"keep": "this"}
    judge(installation)


def test_a_token_that_is_bound_to_no_pod_is_good_for_nothing(installation: Any, thief: AgentThief) -> None:
    unbound = thief_with(installation, installation.kubectl("create", "token", "muster-agent", NAMESPACE).strip())
    for node in (OWN, OTHER):
        code, message = unbound.patch(f"{node}/status", health(node, **SICK), APPLY)
        assert code == 403
        assert "bound to no pod on a node" in message
    assert thief.patch(f"{OWN}/status", health(OWN, **SICK), APPLY) == (200, "")


@pytest.mark.parametrize(
    ("whose", "node", "says"),
    [
        ("agent", OTHER, f"{NOT_ITS_NODE} (MUSTER_NODE has to be the node of this pod"),
        ("default", OWN, "(the agent's ClusterRole has to allow get, create and patch of nodehealths"),
    ],
)
def test_an_agent_that_is_refused_says_what_to_do(
    whose: str, node: str, says: str, installation: Any, thief: AgentThief, tmp_path: Path
) -> None:
    stranger = installation.kubectl("create", "token", "default", NAMESPACE)
    (tmp_path / "token").write_text(thief.token if whose == "agent" else stranger)
    environment = {
        "MUSTER_NODE": node,
        "MUSTER_API_SERVER": thief.server,
        "MUSTER_CA_FILE": str(thief.ca_file),
        "MUSTER_TOKEN_FILE": str(tmp_path / "token"),
    }
    client = NodeHealthClient(from_environment(environment))
    with pytest.raises(ApiError) as caught:
        client.apply({"evidence": []})
    client.close()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", f"{API}/{OWN}"),
        ("GET", API),
        ("PUT", f"{API}/{OWN}/status"),
        ("GET", "/api/v1/nodes"),
        ("PATCH", f"/api/v1/nodes/{OWN}"),
        ("GET", "/api/v1/namespaces/muster-agent/secrets"),
        ("POST", "/api/v1/namespaces/muster-agent/serviceaccounts/muster-agent/token"),
        ("DELETE", API),
        ("GET", f"{API}?watch=1"),
        *(
            ("GET", f"/apis/muster.dev/v1alpha1/{kind}")
            for kind in ("trainingjobs", "gangs", "fleetpolicies", "repairrequests", "endedjobs")
        ),
        *(("GET", f"/api/v1/{kind}") for kind in ("pods", "configmaps", "secrets", "events")),
        ("GET", "/api/v1/namespaces/muster-system/configmaps/muster-open-jobs"),
        ("POST", "/api/v1/namespaces/muster-check/configmaps"),
        ("POST", "/api/v1/namespaces/muster-check/pods"),
        ("POST", "/apis/muster.dev/v1alpha1/repairrequests"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ("GET", "/metrics"),
    ],
)
def test_everything_else_is_refused_by_the_roles(method: str, path: str, thief: AgentThief) -> None:
    body = None if method in ("GET", "DELETE") else health(OWN)
    code, message = thief.request(method, path, body, MERGE if method == "PATCH" else "application/json")
    assert (code, "cannot" in message) == (403, True), message


def test_what_is_left_is_to_read_what_is_known_against_a_node_whose_name_it_has(thief: AgentThief) -> None:
    assert thief.request("GET", f"{API}/{OTHER}") == (200, "")


@pytest.fixture
def with_patches_of(installation: Any, overlay: Path, tmp_path: Path) -> Callable[[str], list[Any]]:
    """What an overlay renders that has the patches which docs/install.md shows under a title."""

    def render(title: str) -> list[Any]:
        page = (ROOT / "docs" / "install.md").read_text()
        lines = page.partition(f"### {title}\n")[2].partition("\n    patches:\n")[2].splitlines()
        block = itertools.takewhile(lambda line: line.startswith("    ") or not line, lines)
        shown = yaml.safe_load("patches:\n" + "\n".join(line.removeprefix("    ") for line in block))
        kustomization = {"resources": [os.path.relpath(overlay, tmp_path.resolve())], **shown}
        (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
        return list(yaml.safe_load_all(installation.kubectl("kustomize", str(tmp_path))))

    return render


def test_the_agent_can_be_left_out(
    installation: Any, overlay: Path, with_patches_of: Callable[[str], list[Any]]
) -> None:
    rendered = with_patches_of("Leaving it out")
    everything = list(yaml.safe_load_all(installation.kubectl("kustomize", str(overlay))))
    kept = [item for item in rendered if item in everything]
    (operator,) = (item for item in rendered if item not in kept)
    left_out = [item for item in everything if item["metadata"]["name"] == "muster-agent"]
    assert len(left_out) == 8
    assert [item["metadata"]["name"] for item in everything if item not in kept and item not in left_out] == ["muster"]
    names = [entry["name"] for entry in operator["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert "MUSTER_NAMESPACE" in names
    assert "MUSTER_AGENT_NAMESPACE" not in names, "whoever makes that namespace is no agent"


def test_the_agent_can_do_without_privilege(installation: Any, with_patches_of: Callable[[str], list[Any]]) -> None:
    (agent,) = (item for item in with_patches_of("Without privilege") if item["kind"] == "DaemonSet")
    installation.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(agent))
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    assert "privileged" not in container["securityContext"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
