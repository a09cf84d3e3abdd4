"""One replica with the rights of the installation: it starts, leads, shows its figures, places a job and lets it go."""

import json
import os
from pathlib import Path
from typing import Any

import yaml
from tests.integration.install.manifests import a_job


def test_deployments_pods_are_admitted_where_pod_security_is_restricted(installation: Any) -> None:
    labels = installation.get("namespace", installation.namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pods = [
        installation.get("pod", name, f"--namespace={installation.namespace}") for name in installation.operator_pods()
    ]
    assert len(pods) == 2
    assert {pod["spec"]["priority"] for pod in pods} == {2000000000}


def test_applying_again_changes_nothing(installation: Any, overlay: Any, definitions: Any) -> None:
    generation = installation.get("deployment", "muster", f"--namespace={installation.namespace}")["metadata"][
        "generation"
    ]
    installation.kubectl("apply", "-k", str(overlay))
    again = installation.get("deployment", "muster", f"--namespace={installation.namespace}")["metadata"]["generation"]
    assert again == generation
    for part in (definitions, overlay):
        installation.kubectl("diff", "-k", str(part))  # exits with 1 where anything differs


def test_leads_and_shows_its_figures(installation: Any, wait_until: Any) -> None:
    replica = installation.start_leader()
    assert replica.get("/healthz") == (200, "ok")
    lease = installation.get("lease", "muster-leader", f"--namespace={installation.namespace}")
    assert lease["spec"]["holderIdentity"].startswith(replica.pod)
    requests = replica.samples("muster_api_requests_total")
    assert requests[("code", "201"), ("resource", "leases"), ("verb", "POST")] == 1
    watched = (("code", "200"), ("resource", "nodes"), ("verb", "WATCH"))
    wait_until(lambda: replica.samples("muster_api_requests_total").get(watched, 0) >= 1, "it watches nodes")

    def told() -> bool:
        lease = installation.get("lease", "muster-leader", f"--namespace={installation.namespace}")
        told = {"muster.dev/coordinator-address": replica.coordinator_address}
        return bool(lease["metadata"]["annotations"] == told)

    wait_until(told, "the address of its coordinator stands in the lease")
    assert installation.coordinator_pods() == installation.operator_pods(), "whoever is asked names the leader"


def test_starts_a_job_and_lets_it_go_without_a_refusal(installation: Any, namespace: str, wait_until: Any) -> None:
    replica = installation.start_leader()
    installation.apply(a_job("two", namespace))
    names = wait_until(lambda: _pods_of(installation, namespace, 2), "two workers")
    assert len(names) == 2
    pinned = {_pinned_to(installation.get("pod", name, f"--namespace={namespace}")) for name in names}
    assert pinned == {"node-a", "node-b"}
    wait_until(lambda: installation.get("trainingjob", "two", f"--namespace={namespace}").get("status"), "a status")
    assert replica.samples("muster_reconcile_seconds_count")[()] >= 1
    installation.kubectl("delete", "trainingjob", "two", f"--namespace={namespace}", "--wait=true")
    kinds = "pods,gangs,poddisruptionbudgets,configmaps,services"
    wait_until(
        lambda: (
            [item["metadata"]["name"] for item in installation.get(kinds, f"--namespace={namespace}")["items"]]
            == ["kube-root-ca.crt"]
        ),
        "everything of the job is gone",
    )
    codes = {dict(labels)["code"] for labels in replica.samples("muster_api_requests_total")}
    assert "403" not in codes
    assert "201" in codes


def test_a_job_that_nests_too_deep_stops_no_other(installation: Any, namespace: str, wait_until: Any) -> None:
    depth = 3000  # the API server admits it, and Python's own parser of JSON does not
    job = a_job("deep", namespace)
    job["spec"]["template"]["deep"] = "HERE"
    text = json.dumps(job).replace('"HERE"', '{"a":' * depth + "1" + "}" * depth)
    installation.kubectl("create", "--validate=false", "-f", "-", stdin=text)
    replica = installation.start_leader()
    installation.apply(a_job("two", namespace))
    wait_until(lambda: _pods_of(installation, namespace, 2), "two workers of the other job")
    assert replica.process.poll() is None
    installation.kubectl("delete", "trainingjobs", "--all", f"--namespace={namespace}", "--wait=true")


def test_an_edit_role_may_write_jobs_and_no_gangs(installation: Any, namespace: str, wait_until: Any) -> None:
    for role in ("edit", "view"):
        installation.kubectl(
            "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}or", f"--namespace={namespace}"
        )

    def may(user: str, verb: str, resource: str) -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "resourceAttributes": {
                    "namespace": namespace,
                    "group": "muster.dev",
                    "resource": resource,
                    "verb": verb,
                },
            },
        }
        answer = installation.kubectl("create", "-f", "-", "--output=json", stdin=json.dumps(review))
        return bool(json.loads(answer)["status"].get("allowed"))

    wait_until(lambda: may("editor", "create", "trainingjobs"), "the roles are aggregated")
    assert may("editor", "delete", "trainingjobs")
    assert may("editor", "list", "gangs")
    assert not may("editor", "update", "gangs")
    assert not may("editor", "create", "gangs")
    wait_until(lambda: may("viewor", "get", "trainingjobs"), "the roles are aggregated")
    assert may("viewor", "watch", "gangs")
    assert not may("viewor", "create", "trainingjobs")


def _pods_of(installation: Any, namespace: str, count: int) -> list[str]:
    pods = installation.get("pods", f"--namespace={namespace}", "--selector=muster.dev/job=two")["items"]
    return [pod["metadata"]["name"] for pod in pods] if len(pods) == count else []


def _pinned_to(pod: Any) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    name: str = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    return name


def test_an_overlay_of_ones_own_sets_every_image(installation: Any, overlay: Path, tmp_path: Path) -> None:
    there = yaml.safe_load((overlay / "kustomization.yaml").read_text())["images"]
    images = [
        {"name": image["name"], "newName": f"registry.example.org/{image['name'].rpartition('/')[2]}", "newTag": "2"}
        for image in there
    ]
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(overlay, tmp_path.resolve())],
        "images": images,
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
    rendered = installation.kubectl("kustomize", str(tmp_path))
    workloads = {item["kind"]: item for item in yaml.safe_load_all(rendered)}
    (agent,) = workloads["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert agent["image"] == "registry.example.org/agent:2"
    (container,) = workloads["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.org/operator:2"
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["MUSTER_LAUNCHER_IMAGE"] == "registry.example.org/launcher:2"
