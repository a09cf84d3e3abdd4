"""Profiles that leave parts out: nothing absent is asked for, and what a higher profile left behind is cleaned up.

The installation has the roles of all profiles, but where only observe's are left; each replica is told by
MUSTER_PROFILE which one it is.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.integration.install import checkers
from tests.integration.install.manifests import a_job

from muster.answers.without_jobs import WITHOUT_JOBS

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = ROOT / "manifests" / "components"
RIGHTS = [COMPONENTS / component / "rights.yaml" for component in ("node-taint", "node-condition")]
NODE = "node-b"
# What an operator that only observes writes; refused dry runs show that admission policies are in force.
WRITES = {
    "authentication.k8s.io tokenreviews create",
    "authorization.k8s.io subjectaccessreviews create",
    "coordination.k8s.io leases create",
    "coordination.k8s.io leases update",
    "events.k8s.io events create",
    "muster.dev nodehealths/status patch",
    "muster.dev nodehealths create",  # a dry run
    " configmaps create",  # a dry run
    " configmaps patch",  # the hours of the fleet
}
READS = {
    " nodes",
    " pods",
    " configmaps",
    "coordination.k8s.io leases",
    "muster.dev fleetpolicies",
    "muster.dev nodehealths",
}


def test_observing_needs_two_definitions_and_asks_for_no_other_kind(
    observed: Any, wait_until: Callable[..., Any]
) -> None:
    replica = observed.start_leader()
    with a_record(observed):
        report(observed, boot="1", xid=79)
        wait_until(lambda: status(observed).get("state") == "Unhealthy", "the verdict")
        wait_until(lambda: "NodeUnhealthy" in reasons(observed), "an Event")
        wait_until(lambda: replica.samples("muster_gpus"), "hours of the fleet are counted")
        assert taints(observed) == []
        assert replica.terminate() == 0
    lines = observed.audit_log.read_bytes().splitlines()
    events = [json.loads(line) for line in lines if line.endswith(b"}")]
    asked = [
        (event["verb"], event["objectRef"], event["responseStatus"]["code"]) for event in events if "objectRef" in event
    ]
    reads = {what(reference) for verb, reference, _ in asked if verb in ("get", "list", "watch")}
    writes = {f"{what(reference)} {verb}" for verb, reference, _ in asked if verb not in ("get", "list", "watch")}
    assert (reads, writes) == (READS, WRITES)
    assert [(verb, reference) for verb, reference, code in asked if code == 403] == []
    absent = {what(reference) for _, reference, code in asked if code == 404}
    assert absent <= {" configmaps", "coordination.k8s.io leases", "muster.dev nodehealths"}, "objects, and no kind"
    assert replica.said("informer interrupted") == replica.said("exiting") == []
    assert WITHOUT_JOBS in jobs_shown(observed)


def test_while_a_gang_runs_no_replica_without_jobs_takes_over(
    installation: Any, namespace: str, wait_until: Callable[..., Any]
) -> None:
    here = f"--namespace={namespace}"
    leader = installation.start_leader()
    installation.apply(a_job("runs", namespace))

    def pods() -> list[Any]:
        found: list[Any] = installation.get("pods", here, "--selector=muster.dev/job=runs")["items"]
        return found

    wait_until(lambda: len(pods()) == 2, "two workers")
    successor = installation.start(installation.operator_pods()[1], MUSTER_PROFILE="health")
    wait_until(lambda: f"jobs hold nodes: {namespace}/runs." in successor.get("/readyz")[1], "it says which job")
    assert successor.get("/readyz")[0] == 503
    assert leader.leads()
    installation.kubectl("patch", "trainingjob", "runs", here, "--type=merge", '--patch={"spec":{"suspend":true}}')
    wait_until(lambda: not pods(), "the leader of before suspends it")
    wait_until(successor.ready, "nothing is in the way any more")
    assert leader.leads()
    assert leader.terminate() == 0
    wait_until(successor.leads, "it leads")
    assert successor.answers() == (0, ""), "nothing listens for launchers"


def test_on_the_way_down_tests_taints_and_conditions_go(installation: Any, wait_until: Callable[..., Any]) -> None:
    for rights in RIGHTS:
        installation.kubectl("apply", f"--filename={rights}")
    health = {"enforcement": "Nodes", "nodeCondition": True, "budgets": []}
    installation.apply_policy({"health": health, "preflight": {"profile": "Quick"}})
    try:
        with a_record(installation):
            installation.start_leader(MUSTER_PROFILE="burn-in", MUSTER_CHECKER_NAMESPACE=checkers.NAMESPACE)
            report(installation, boot="1", xid=79)
            wait_until(lambda: taints(installation), "the taint")
            report(installation, boot="2")
            wait_until(lambda: status(installation).get("state") == "Validating", "it waits for a test")
            assert taints(installation)
            installation.stop_all()
            installation.start_leader(MUSTER_PROFILE="health", MUSTER_CHECKER_NAMESPACE=checkers.NAMESPACE)
            wait_until(lambda: status(installation).get("state") == "Healthy", "it waits for no test")
            wait_until(lambda: not taints(installation), "the taint is gone")
            report(installation, boot="2", xid=79)
            wait_until(lambda: taints(installation), "the taint once more")
            wait_until(lambda: condition(installation) == "False", "the condition")
            installation.stop_all()
            observer = installation.start_leader(MUSTER_PROFILE="observe")
            wait_until(lambda: not taints(installation), "the taint is gone before the right to it")
            wait_until(lambda: condition(installation) == "", "so is the condition")
            assert status(installation)["state"] != "Healthy"
            assert len(observer.said("the FleetPolicy asks for a part that is not installed")) == 1
            wait_until(lambda: "PartNotInstalled" in reasons(installation), "an Event of the FleetPolicy")
    finally:
        installation.stop_all()
        for rights in RIGHTS:
            installation.kubectl("delete", f"--filename={rights}")
        installation.open_fleet()


def jobs_shown(installation: Any) -> str:
    """What `kubectl muster top` prints."""
    environment = {**os.environ, "KUBECONFIG": str(installation.kubeconfig()), "PYTHONPATH": str(ROOT / "operator")}
    command = [sys.executable, "-m", "muster.cli", "top"]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return run.stdout


@contextmanager
def a_record(installation: Any, node: str = NODE) -> Iterator[None]:
    """The node's NodeHealth, as its agent makes it."""
    installation.apply({"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": node}})
    try:
        yield
    finally:
        installation.kubectl("delete", "nodehealth", node)


def report(installation: Any, boot: str, xid: int = 0, node: str = NODE) -> None:
    """What the node's agent sees now."""
    now = datetime.now(UTC).isoformat()
    seen = {"kind": "Xid", "code": xid, "subject": "GPU-1", "firstSeen": now, "lastSeen": now, "bootId": boot}
    agents = {"evidence": [seen] if xid else [], "agent": {"version": "test", "bootId": boot}}
    patch = f"--patch={json.dumps({'status': agents})}"
    installation.kubectl("patch", "nodehealth", node, "--subresource=status", "--type=merge", patch)


def status(installation: Any) -> Any:
    return installation.get("nodehealth", NODE).get("status", {})


def taints(installation: Any) -> list[str]:
    """Muster's taints of the node."""
    found = installation.get("node", NODE)["spec"].get("taints", [])
    return [taint["key"] for taint in found if taint["key"].startswith("muster.dev/")]


def condition(installation: Any) -> str:
    """The status of Muster's condition of the node; "" where there is none."""
    found = installation.get("node", NODE)["status"].get("conditions", [])
    return next((each["status"] for each in found if each["type"] == "MusterHealthy"), "")


def reasons(installation: Any) -> set[str]:
    """Of all Events."""
    return {event["reason"] for event in installation.get("events.events.k8s.io")["items"]}


def what(reference: Any) -> str:
    """Group and resource of a request."""
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return f"{reference.get('apiGroup', '')} {resource}"
