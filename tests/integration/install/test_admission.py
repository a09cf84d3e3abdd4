"""Records are the operator's, and a thief of its token can do with it what the operator does and little more.

Both policies of the installation on a real API server, with tokens that it issued. That the operator itself is refused
nothing, and uses each of its rights, test_rights.py proves under the same policies.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.install.manifests import a_job
from tests.integration.install.thief import APPLY, JSON_PATCH, MERGE, Thief

from muster.world.names import gang_name

ROOT = Path(__file__).resolve().parents[3]
GANGS = "/apis/muster.dev/v1alpha1/namespaces/{}/gangs"
JOBS = "/apis/muster.dev/v1alpha1/namespaces/{}/trainingjobs"
PODS = "/api/v1/namespaces/{}/pods"
ALONE = "written by the operator of Muster alone"
ONLY_OWN = "only Muster's own objects"
NO_POD = "pods only with a TrainingJob as controller"
TIME = "2026-01-31T12:00:00.000000Z"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
KUBE, SYSTEM = "kube-system", "muster-system"
STRATEGIC = "application/strategic-merge-patch+json"


def owner(job: dict[str, Any]) -> dict[str, Any]:
    metadata = job["metadata"]
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def gang(job: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A record by which the job takes both nodes."""
    uid = job["metadata"]["uid"]
    members = [{"node": f"node-{name}", "incarnation": 1} for name in "ab"]
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {
            "name": gang_name(job["metadata"]["name"], uid),
            "namespace": job["metadata"]["namespace"],
            "ownerReferences": [owner(job)],
            **metadata,
        },
        "spec": {
            "jobUid": uid,
            "attempt": 1,
            "time": TIME,
            "level": "Start",
            "reason": "Started",
            "members": members,
        },
    }


def pod(job: dict[str, Any], namespace: str, **metadata: Any) -> dict[str, Any]:
    """A pod that looks like a worker of the job and runs what a thief likes."""
    uid = job["metadata"]["uid"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job['metadata']['name']}-evil",
            "namespace": namespace,
            "labels": {"muster.dev/job-uid": uid},
            "ownerReferences": [owner(job)],
            **metadata,
        },
        "spec": {
            "containers": [{"name": "c", "image": "example.org/evil:1", "securityContext": RESTRICTED}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }


def shared(job: dict[str, Any], kind: str, **more: Any) -> dict[str, Any]:
    """What a job's workers share, as the operator makes it."""
    made = pod(job, job["metadata"]["namespace"])
    version = "policy/v1" if kind == "PodDisruptionBudget" else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": made["metadata"], **more}


@pytest.fixture
def job(installation: Any, namespace: str) -> Iterator[dict[str, Any]]:
    """A TrainingJob that is suspended; no operator runs."""
    installation.apply(a_job("real", namespace, suspend=True))
    found: dict[str, Any] = installation.get("trainingjob", "real", f"--namespace={namespace}")
    yield found
    # The nodes are for other tests.
    installation.kubectl("delete", "trainingjob", "real", f"--namespace={namespace}", "--ignore-not-found")


@pytest.fixture
def tenant(installation: Any, namespace: str, job: dict[str, Any], wait_until: Callable[..., Any]) -> Thief:
    """Whoever may do everything in the namespace."""
    here = f"--namespace={namespace}"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "all"}}
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    installation.apply({**role, "metadata": {"name": "all", "namespace": namespace}, "rules": [everything]})
    installation.kubectl("create", "rolebinding", "all", "--role=all", f"--serviceaccount={namespace}:default", here)
    tenant = Thief.of(installation, "default", namespace)
    wait_until(lambda: tenant.request("GET", GANGS.format(namespace))[0] == 200, "the role is in force")
    return tenant


@pytest.fixture
def thief(installation: Any) -> Thief:
    """With the token of the operator."""
    return Thief.of(installation, "muster", SYSTEM)


class TestRecords:
    def test_nobody_but_the_operator_writes_a_record(
        self, installation: Any, tenant: Thief, thief: Thief, job: dict[str, Any]
    ) -> None:
        path = GANGS.format(job["metadata"]["namespace"])
        name = gang(job)["metadata"]["name"]
        code, message = tenant.request("POST", path, gang(job))
        assert (code, ALONE in message) == (403, True), message
        assert thief.request("POST", path, gang(job)) == (201, "")
        for body, kind in (
            ({"spec": {"attempt": 7}}, MERGE),
            ({"metadata": {"ownerReferences": None}}, MERGE),
            ([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], JSON_PATCH),
        ):
            code, message = tenant.request("PATCH", f"{path}/{name}", body, kind)
            assert (code, ALONE in message) == (403, True), message
        assert tenant.request("DELETE", f"{path}/{name}")[0] == 200, "deleting takes no node"

    def test_nobody_but_the_operator_writes_the_status_of_a_job(
        self, tenant: Thief, thief: Thief, job: dict[str, Any]
    ) -> None:
        path = f"{JOBS.format(job['metadata']['namespace'])}/real"
        status = {"status": {"state": "Running"}}
        code, message = tenant.request("PATCH", f"{path}/status", status, MERGE)
        assert (code, ALONE in message) == (403, True), message
        assert thief.request("PATCH", f"{path}/status", status, MERGE) == (200, "")
        body = {"spec": {"completion": {"ttlSecondsAfterFinished": 9}}}
        assert tenant.request("PATCH", path, body, MERGE) == (200, ""), "the spec is theirs"

    @pytest.mark.parametrize("wrong", ["none", "other uid", "other kind", "no controller"])
    def test_a_gang_belongs_to_the_job_that_it_names_whoever_writes_it(
        self, thief: Thief, job: dict[str, Any], wrong: str
    ) -> None:
        reference = owner(job)
        owners = {
            "none": [],
            "other uid": [{**reference, "uid": "another"}],
            "other kind": [{**reference, "apiVersion": "v1", "kind": "ConfigMap"}],
            "no controller": [{**reference, "controller": False}],
        }[wrong]
        body = gang(job, ownerReferences=owners)
        code, message = thief.request("POST", GANGS.format(job["metadata"]["namespace"]), body)
        assert (code, "the controller of a Gang is the TrainingJob" in message) == (422, True), message

    def test_the_garbage_collector_may_take_owners_away(
        self, installation: Any, thief: Thief, job: dict[str, Any]
    ) -> None:
        """As it does where a job is deleted with --cascade=orphan."""
        name, here = gang(job)["metadata"]["name"], f"--namespace={job['metadata']['namespace']}"
        assert thief.request("POST", GANGS.format(job["metadata"]["namespace"]), gang(job))[0] == 201
        collector = "--as=system:serviceaccount:kube-system:generic-garbage-collector"
        ownerless = '{"metadata":{"ownerReferences":null}}'
        installation.kubectl("patch", "gang", name, here, "--type=merge", f"--patch={ownerless}", collector)
        assert not installation.get("gang", name, here)["metadata"].get("ownerReferences")

    def test_the_accounts_of_nodes_and_jobs_are_the_operators(
        self, installation: Any, namespace: str, job: dict[str, Any], wait_until: Callable[..., Any]
    ) -> None:
        account = f"--serviceaccount={namespace}:default"
        installation.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=cluster-admin", account)
        admin = Thief.of(installation, "default", namespace)
        group = "/apis/muster.dev/v1alpha1"
        health = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "node-a"}}
        request = {
            **health,
            "kind": "RepairRequest",
            "spec": {"node": "node-a", "action": "Reboot", "incidentTime": TIME},
        }
        try:
            wait_until(
                lambda: admin.request("POST", f"{group}/nodehealths", health)[0] in (201, 409), "the role is in force"
            )
            for method, path, body in (
                ("PATCH", f"{group}/nodehealths/node-a/status", {"status": {"state": "Unhealthy"}}),
                ("POST", f"{group}/repairrequests", request),
            ):
                code, message = admin.request(method, path, body, MERGE if method == "PATCH" else "application/json")
                assert (code, ALONE in message) == (403, True), message
        finally:
            installation.kubectl("delete", "clusterrolebinding", namespace)
            installation.kubectl("delete", "nodehealth", "node-a", "--ignore-not-found")


class TestAStolenTokenOfTheOperator:
    def test_no_decision_of_a_person_about_a_node(self, thief: Thief) -> None:
        path = "/apis/muster.dev/v1alpha1/nodehealths?dryRun=All"
        health = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "node-x"}}
        decision = {"override": {"decision": "Cordon", "reason": "evil", "time": TIME}}
        code, message = thief.request("POST", path, {**health, "spec": decision})
        assert (code, "that is for people" in message) == (422, True), message
        assert thief.request("POST", path, health) == (201, ""), "its own part is another one"

    def test_no_pod_in_kubernetes_or_musters_own_namespaces(
        self, installation: Any, thief: Thief, job: dict[str, Any]
    ) -> None:
        for where in (KUBE, "kube-node-lease", SYSTEM, "muster-agent"):
            code, message = thief.request("POST", PODS.format(where), pod(job, where))
            assert (code, NO_POD in message) == (403, True), message

    def test_nothing_in_a_namespace_whose_label_forbids_training(
        self, installation: Any, thief: Thief, job: dict[str, Any]
    ) -> None:
        where = job["metadata"]["namespace"]
        worker, shares = pod(job, where), shared(job, "ConfigMap")
        name, configmaps = worker["metadata"]["name"], f"/api/v1/namespaces/{where}/configmaps"
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-a"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        assert thief.request("POST", PODS.format(where), worker)[0] == 201
        installation.kubectl("label", "namespace", where, "muster.dev/training=disabled")
        try:
            for method, path, body, words in (
                ("POST", PODS.format(where), worker, NO_POD),
                ("POST", f"{PODS.format(where)}/{name}/binding", binding, "binds no pod"),
                ("DELETE", f"{PODS.format(where)}/{name}", None, NO_POD),
                ("POST", configmaps, shares, ONLY_OWN),
            ):
                code, message = thief.request(method, path, body)
                assert (code in (403, 422), words in message) == (True, True), f"{method} {path}: {message}"
        finally:
            installation.kubectl("label", "namespace", where, "muster.dev/training-")
        assert thief.request("POST", configmaps, shares)[0] == 201
        assert thief.request("DELETE", f"{PODS.format(where)}/{name}")[0] == 200

    @pytest.mark.parametrize(
        "changes",
        [
            {"ownerReferences": []},
            {"labels": {}},
            {"name": "other"},
            {"labels": {"muster.dev/job-uid": "another"}},
        ],
        ids=["no owner", "no label", "another name", "the uid of another job"],
    )
    def test_no_pod_that_is_no_worker(self, thief: Thief, job: dict[str, Any], changes: dict[str, Any]) -> None:
        where = job["metadata"]["namespace"]
        code, message = thief.request("POST", PODS.format(where), pod(job, where, **changes))
        assert (code, NO_POD in message) == (403, True), message

    def test_no_pod_of_others_is_deleted_or_bound_there(self, installation: Any, thief: Thief, namespace: str) -> None:
        (mine, *_) = installation.operator_pods()
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-a"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": mine}, "target": target}
        for method, path, body in (
            ("DELETE", f"{PODS.format(SYSTEM)}/{mine}", None),
            ("POST", f"{PODS.format(SYSTEM)}/{mine}/binding", binding),
        ):
            assert thief.request(method, path, body)[0] == 403
        plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}}
        installation.apply({**plain, "spec": {"containers": [{"name": "c", "image": "example.org/web:1"}]}})
        code, message = thief.request("DELETE", f"{PODS.format(namespace)}/web")
        assert (code, NO_POD in message) == (403, True), message

    def test_nobodys_object_is_written_over_or_made(
        self, installation: Any, thief: Thief, job: dict[str, Any], wait_until: Callable[..., Any]
    ) -> None:
        here = job["metadata"]["namespace"]
        force = "?fieldManager=muster&force=true"
        labels, owners = pod(job, here)["metadata"]["labels"], [owner(job)]
        installation.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "real-theirs", "namespace": here}}
        )
        taken = {"name": "real-theirs", "namespace": here, "labels": labels, "ownerReferences": owners}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
        # What OwnerReferencesPermissionEnforcement asks for before a new owner, which is on here and not everywhere.
        place = f"--namespace={here}"
        installation.kubectl("create", "role", "deleter", "--verb=delete", "--resource=configmaps", place)
        account = f"--serviceaccount={SYSTEM}:muster"
        installation.kubectl("create", "rolebinding", "deleter", "--role=deleter", account, place)
        over = f"/api/v1/namespaces/{here}/configmaps/real-theirs{force}"
        wait_until(
            lambda: ONLY_OWN in thief.request("PATCH", over, {**config_map, "metadata": taken}, APPLY)[1],
            "the policy refuses it",
        )
        service = {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None"}}
        for where, body in (
            (f"/api/v1/namespaces/{here}/configmaps/new", {**config_map, "metadata": {"name": "new"}}),
            (
                f"/api/v1/namespaces/{KUBE}/configmaps/real-evil",
                {**config_map, "metadata": {**taken, "name": "real-evil", "namespace": KUBE}},
            ),
            (f"/api/v1/namespaces/{here}/services/new", {**service, "metadata": {"name": "new"}}),
        ):
            code, message = thief.request("PATCH", f"{where}{force}", body, APPLY)
            assert (code, ONLY_OWN in message) == (422, True), message
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": SYSTEM}}
        code, message = thief.request("POST", f"/api/v1/namespaces/{SYSTEM}/secrets", secret)
        assert (code, ONLY_OWN in message) == (422, True), message
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"}}
        path = f"/apis/policy/v1/namespaces/{here}/poddisruptionbudgets/all"
        code, message = thief.request("PATCH", f"{path}{force}", {**budget, "spec": {"minAvailable": 1}}, APPLY)
        assert (code, ONLY_OWN in message) == (422, True), message

    def test_no_secret_of_its_own_becomes_a_token_that_never_expires(self, installation: Any, thief: Thief) -> None:
        path = f"/api/v1/namespaces/{SYSTEM}/secrets"
        installation.kubectl("delete", "secret", "muster-coordinator-ca", f"--namespace={SYSTEM}", "--ignore-not-found")
        account = {"kubernetes.io/service-account.name": "muster"}
        metadata = {"name": "muster-coordinator-ca", "namespace": SYSTEM, "annotations": account}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        code, message = thief.request("POST", path, {**secret, "type": "kubernetes.io/service-account-token"})
        assert (code, "of type Opaque only" in message) == (403, True), message
        assert thief.request("POST", f"{path}?dryRun=All", secret)[0] == 201

    def test_a_service_redirects_nothing(self, thief: Thief, job: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{job['metadata']['namespace']}/services/real-evil?fieldManager=muster&force=true"
        spec = {"externalIPs": ["10.0.0.1"], "ports": [{"port": 443}]}
        code, message = thief.request("PATCH", path, shared(job, "Service", spec=spec), APPLY)
        assert (code, "headless Services only" in message) == (403, True), message
        assert thief.request("PATCH", path, shared(job, "Service", spec={"clusterIP": "None"}), APPLY)[0] == 201

    def test_what_is_left_is_to_do_as_the_operator_does(
        self, installation: Any, thief: Thief, job: dict[str, Any]
    ) -> None:
        """Pods of jobs that there are, with whatever service account: docs/security.md says so."""
        here = job["metadata"]["namespace"]
        assert thief.request("POST", PODS.format(here), pod(job, here)) == (201, "")
        assert thief.request("DELETE", f"{PODS.format(here)}/real-evil")[0] == 200
        # What anybody made in the name of a job is deleted with the job's other pods.
        installation.apply(pod(job, here, name="other"))
        assert thief.request("DELETE", f"{PODS.format(here)}/other")[0] == 200
        path = f"/api/v1/namespaces/{here}/configmaps/real-evil?fieldManager=muster&force=true"
        assert thief.request("PATCH", path, shared(job, "ConfigMap", data={"a": "b"}), APPLY)[0] == 201
        assert thief.request("PATCH", path, shared(job, "ConfigMap", data={"a": "c"}), APPLY)[0] == 200

    def test_what_is_left_is_to_ask_for_repairs_and_to_forge_and_delete_records(self, thief: Thief) -> None:
        """No policy limits these kinds: docs/security.md says so."""
        group = "/apis/muster.dev/v1alpha1"
        spec = {"node": "node-a", "action": "Reboot", "incidentTime": TIME}
        request = {"kind": "RepairRequest", "metadata": {"name": "node-a"}, "spec": spec}
        path = f"{group}/repairrequests?dryRun=All"
        assert thief.request("POST", path, {"apiVersion": "muster.dev/v1alpha1", **request}) == (201, "")
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "forged", "namespace": KUBE},
            "eventTime": TIME,
            "reportingController": "kubelet",
            "reportingInstance": "node-a",
            "action": "Forge",
            "reason": "Forged",
            "type": "Warning",
            "regarding": {"kind": "Pod", "name": "dns", "namespace": KUBE},
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{KUBE}/events?dryRun=All"
        assert thief.request("POST", path, event) == (201, "")
        assert thief.request("DELETE", f"{group}/namespaces/{SYSTEM}/endedjobs/none")[0] == 404, "it may"


class TestNodes:
    @pytest.fixture
    def components(self, installation: Any, thief: Thief, wait_until: Callable[..., Any]) -> Iterator[None]:
        """The rights that components add."""
        rights = [f"--filename={ROOT / 'manifests/components' / name / 'rights.yaml'}" for name in COMPONENTS]
        installation.kubectl("apply", *rights)
        for path in ("/api/v1/nodes/node-a", "/api/v1/nodes/node-a/status"):
            wait_until(
                lambda path=path: thief.request("PATCH", f"{path}?dryRun=All", {}, MERGE)[0] == 200,
                "the role is in force",
            )
        yield
        installation.kubectl("delete", *rights)

    def test_without_a_component_no_node_is_written(self, thief: Thief) -> None:
        for path in ("/api/v1/nodes/node-a", "/api/v1/nodes/node-a/status"):
            code, message = thief.request("PATCH", path, {}, MERGE)
            assert (code, "cannot patch" in message) == (403, True), message

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("", {"spec": {"unschedulable": True}}),
            ("", {"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}),
            ("", {"spec": {"taints": [{"key": "muster.dev/unhealthy", "effect": "NoExecute"}]}}),
            ("", {"spec": {"taints": [{"key": "muster.dev/unhealthy", "effect": "PreferNoSchedule"}]}}),
            ("", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            ("", {"metadata": {"annotations": {"a": "b"}}}),
            ("/status", {"status": {"capacity": {"cpu": "1"}}}),
            ("/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        ],
        ids=[
            "cordon",
            "another taint",
            "NoExecute",
            "PreferNoSchedule",
            "label",
            "annotation",
            "capacity",
            "not ready",
        ],
    )
    def test_of_a_node_the_taint_and_the_condition_and_nothing_else(
        self, thief: Thief, components: None, path: str, body: dict[str, Any]
    ) -> None:
        code, message = thief.request("PATCH", f"/api/v1/nodes/node-a{path}", body, MERGE)
        assert (code, "the operator changes n" in message) == (403, True), message

    def test_a_taint_of_another_effect_stays_as_it_is_or_goes(
        self, installation: Any, thief: Thief, components: None
    ) -> None:
        installation.kubectl("taint", "node", "node-a", "muster.dev/unhealthy=byhand:PreferNoSchedule")
        (taint,) = installation.get("node", "node-a")["spec"]["taints"]
        node, own = "/api/v1/nodes/node-a", {"key": "muster.dev/unhealthy", "value": "Xid79", "effect": "NoSchedule"}
        assert thief.request("PATCH", node, {"spec": {"taints": [taint, own]}}, MERGE) == (200, "")
        worse = {"spec": {"taints": [{**taint, "value": "worse"}, own]}}
        assert thief.request("PATCH", node, worse, MERGE)[0] == 403
        assert thief.request("PATCH", node, {"spec": {"taints": None}}, MERGE) == (200, "")

    def test_both_are_admitted(self, installation: Any, thief: Thief, components: None) -> None:
        taint = {"key": "muster.dev/unhealthy", "value": "Xid79", "effect": "NoSchedule"}
        node = "/api/v1/nodes/node-a"
        assert thief.request("PATCH", node, {"spec": {"taints": [taint]}}, MERGE) == (200, "")
        assert thief.request("PATCH", node, {"spec": {"taints": None}}, MERGE) == (200, "")
        condition = {"type": "MusterHealthy", "status": "True", "reason": "Healthy"}
        body = {"status": {"conditions": [condition]}}
        assert thief.request("PATCH", f"{node}/status", body, STRATEGIC) == (200, "")
        body = {"status": {"conditions": [{"type": "MusterHealthy", "$patch": "delete"}]}}
        assert thief.request("PATCH", f"{node}/status", body, STRATEGIC) == (200, "")

    def test_no_kubelet_changes_the_label_of_the_scope(self, installation: Any) -> None:
        """That is NodeRestriction's rule, on which docs/install.md relies for the label's prefix."""
        kubelet = ("--as=system:node:node-a", "--as-group=system:nodes", "--as-group=system:authenticated")
        installation.kubectl("label", "node", "node-a", "example.org/cluster=training", *kubelet)
        installation.kubectl("label", "node", "node-a", "example.org/cluster-", *kubelet)
        label = "node-restriction.kubernetes.io/cluster"
        with pytest.raises(AssertionError, match="is not allowed to modify labels"):
            installation.kubectl("label", "node", "node-a", f"{label}=training", *kubelet)
        installation.kubectl("label", "node", "node-a", f"{label}=training")
        try:
            with pytest.raises(AssertionError, match="is not allowed to modify labels"):
                installation.kubectl("label", "node", "node-a", f"{label}-", *kubelet)
        finally:
            installation.kubectl("label", "node", "node-a", f"{label}-")

    @pytest.fixture
    def scope(self, installation: Any, thief: Thief, wait_until: Callable[..., Any]) -> Iterator[Callable[..., None]]:
        """Sets the FleetPolicy's scope, and waits until the API server says which of two nodes may be marked: node-a,
        which has the label cell=a, and node-b, which has none."""

        def set_scope(selector: dict[str, Any] | None, *, selects: tuple[bool, bool]) -> None:
            installation.apply_policy({} if selector is None else {"scope": {"nodeSelector": selector}})
            wait_until(
                lambda: tuple(thief.request(*taint_of(f"node-{name}"), MERGE)[0] == 200 for name in "ab") == selects,
                f"the scope is in force: {selector}",
            )

        installation.kubectl("label", "node", "node-a", "cell=a")
        yield set_scope
        installation.open_fleet()
        installation.kubectl("label", "node", "node-a", "cell-")

    @pytest.mark.parametrize(
        ("selector", "selects"),
        [
            ({"matchLabels": {"cell": "a"}}, (True, False)),
            ({"matchLabels": {"cell": "b"}}, (False, False)),
            ({"matchExpressions": [{"key": "cell", "operator": "In", "values": ["a", "c"]}]}, (True, False)),
            ({"matchExpressions": [{"key": "cell", "operator": "NotIn", "values": ["a"]}]}, (False, True)),
            ({"matchExpressions": [{"key": "cell", "operator": "Exists"}]}, (True, False)),
            ({"matchExpressions": [{"key": "cell", "operator": "DoesNotExist"}]}, (False, True)),
            ({}, (True, True)),
        ],
        ids=["label", "other label", "In", "NotIn", "Exists", "DoesNotExist", "all"],
    )
    def test_the_marks_come_only_to_nodes_of_the_scope(
        self,
        thief: Thief,
        components: None,
        scope: Callable[..., None],
        selector: dict[str, Any],
        selects: tuple[bool, bool],
    ) -> None:
        scope({"matchLabels": {"cell": "nowhere"}}, selects=(False, False))
        scope(selector, selects=selects)
        for name, is_selected in zip("ab", selects, strict=True):
            code, message = thief.request(*condition_of(f"node-{name}"), STRATEGIC)
            assert code == (200 if is_selected else 403), message
            assert is_selected or f"node node-{name} is outside spec.scope of FleetPolicy default" in message

    def test_outside_the_scope_the_marks_change_no_more_and_may_be_removed(
        self, thief: Thief, components: None, scope: Callable[..., None]
    ) -> None:
        node = "/api/v1/nodes/node-b"
        scope(None, selects=(True, True))
        taint = {"key": "muster.dev/unhealthy", "value": "Xid79", "effect": "NoSchedule"}
        assert thief.request("PATCH", node, {"spec": {"taints": [taint]}}, MERGE) == (200, "")
        condition = {"type": "MusterHealthy", "status": "True", "reason": "Healthy"}
        status = {"status": {"conditions": [condition]}}
        assert thief.request("PATCH", f"{node}/status", status, STRATEGIC) == (200, "")
        scope({"matchLabels": {"cell": "a"}}, selects=(True, False))
        worse = {"status": {"conditions": [{**condition, "status": "False"}]}}
        assert thief.request("PATCH", f"{node}/status", worse, STRATEGIC)[0] == 403
        assert thief.request("PATCH", node, {"spec": {"taints": [{**taint, "value": "Xid48"}]}}, MERGE)[0] == 403
        label = {"metadata": {"labels": {"cell": "a"}}, "spec": {"taints": [{**taint, "value": "Xid48"}]}}
        assert thief.request("PATCH", node, label, MERGE)[0] == 403, "no node is brought into the scope"
        gone = {"status": {"conditions": [{"type": "MusterHealthy", "$patch": "delete"}]}}
        assert thief.request("PATCH", f"{node}/status", gone, STRATEGIC) == (200, "")
        assert thief.request("PATCH", node, {"spec": {"taints": None}}, MERGE) == (200, "")

    def test_nobody_else_depends_on_the_scope_or_on_a_fleetpolicy(
        self,
        installation: Any,
        thief: Thief,
        components: None,
        scope: Callable[..., None],
        wait_until: Callable[..., Any],
    ) -> None:
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        beat = f"--patch={json.dumps({'status': {'conditions': [condition]}})}"
        taint = "muster.dev/unhealthy=byhand:NoSchedule"
        scope({"matchLabels": {"cell": "a"}}, selects=(True, False))
        for exists in (True, False):
            if not exists:
                installation.kubectl("delete", "fleetpolicy", "default")
                wait_until(lambda: thief.request(*taint_of("node-b"), MERGE)[0] == 200, "no scope is in force")
            installation.kubectl("patch", "node", "node-b", "--subresource=status", beat)
            installation.kubectl("taint", "node", "node-b", taint)
            installation.kubectl("taint", "node", "node-b", "muster.dev/unhealthy-")


def taint_of(node: str) -> tuple[str, str, dict[str, Any]]:
    """The dry run of a taint."""
    taint = {"key": "muster.dev/unhealthy", "value": "asked", "effect": "NoSchedule"}
    return "PATCH", f"/api/v1/nodes/{node}?dryRun=All", {"spec": {"taints": [taint]}}


def condition_of(node: str) -> tuple[str, str, dict[str, Any]]:
    """The dry run of a condition."""
    condition = {"type": "MusterHealthy", "status": "False", "reason": "Xid79"}
    return "PATCH", f"/api/v1/nodes/{node}/status?dryRun=All", {"status": {"conditions": [condition]}}


COMPONENTS = ("node-taint", "node-condition")


@pytest.mark.parametrize("profile", ["observe", "jobs"])
def test_a_policy_that_is_missing_is_said(installation: Any, profile: str, wait_until: Callable[..., Any]) -> None:
    def missing(replica: Any) -> dict[str, float]:
        samples = replica.samples("muster_admission_policy_missing")
        return {dict(labels)["policy"]: value for labels, value in samples.items()}

    replica = installation.start_leader(MUSTER_PROFILE=profile)
    assert wait_until(lambda: len(missing(replica)) == 2 and missing(replica), "both were asked") == {
        "muster-records": 0.0,
        "muster-operator": 0.0,
    }
    assert replica.said("admission policy missing") == replica.said("admission policy not checked") == []
    installation.stop_all()
    manifests = ROOT / "manifests" / "base"
    documents = list(yaml.safe_load_all((manifests / "records-admission.yaml").read_text()))
    installation.kubectl("delete", "validatingadmissionpolicybinding", "muster-records")
    try:
        wait_until(lambda: _admits_a_gang_of_nobody(installation), "the binding is out of force")
        replica = installation.start_leader(MUSTER_PROFILE=profile)
        wait_until(lambda: missing(replica).get("muster-records") == 1.0, "it is said")
        (line,) = replica.said("admission policy missing")
        assert line["policy"] == "muster-records"
        assert "Apply your overlay again" in line["message"]
    finally:
        installation.kubectl("apply", "-f", "-", stdin=json.dumps(documents[1]))


def _admits_a_gang_of_nobody(installation: Any) -> bool:
    job = {"metadata": {"name": "none", "namespace": SYSTEM, "uid": "none"}}
    thief = Thief.of(installation, "muster", SYSTEM)
    return thief.request("POST", f"{GANGS.format(SYSTEM)}?dryRun=All", gang(job, ownerReferences=[]))[0] == 201
