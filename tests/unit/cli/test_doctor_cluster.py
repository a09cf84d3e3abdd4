"""Checks of what an installation has from the API server."""

import json
from typing import Any

import pytest
from tests.unit.cli.installing import (
    GANGS,
    NETWORK,
    POLICIES,
    REVIEWS,
    SLICES,
    a_gang,
    documents,
    install,
    only_wrong,
    refuse,
    rows_of,
    set_variable,
    unread,
)

from muster import __version__
from muster.api.installation import InstallationProfile, name_component
from muster.api.rights import RoleRule, granted, is_path
from muster.cli.doctor_cluster import (
    AGENT_RIGHTS,
    check_admission,
    check_agent_rights,
    check_definitions,
    check_network,
    check_operator_rights,
    check_roles,
    check_server,
    definition_path,
    lets_out,
    policies_of,
    served_schema,
)
from muster.kube.schemas import MODELS, fields_of, fields_of_model

POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{}"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{}"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/muster-system/{}/muster-operator"
RULES = [rule for grant in granted(InstallationProfile.JOBS) for rule in grant.rules]
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/{}/muster-operator"


@pytest.fixture
def installed(api: Any) -> Any:
    install(api)
    return api


def test_an_api_server_that_is_too_old_is_wrong(installed: Any) -> None:
    installed.put("/version", {"gitVersion": "v1.32.0", "major": "1", "minor": "32"})
    finding, _ = only_wrong(installed, check_server)
    assert "Kubernetes 1.33 or later" in finding


@pytest.mark.parametrize("resource", MODELS)
def test_the_definitions_that_are_shipped_have_the_fields_of_the_models(resource: str) -> None:
    shipped = {it["metadata"]["name"]: it for it in documents("crds/*.yaml")}
    assert len(shipped) == len(MODELS)
    schema = served_schema(shipped[f"{resource}.muster.dev"])
    assert schema is not None
    fields = fields_of_model(resource)
    assert fields_of(schema) == fields
    assert len(fields) > 5


def test_a_definition_that_is_missing_is_wrong(installed: Any) -> None:
    del installed.bodies[definition_path("gangs")]
    finding, remedy = only_wrong(installed, check_definitions)
    assert finding == "CustomResourceDefinition gangs.muster.dev is missing"
    assert "kubectl apply -k" in remedy


def test_a_definition_that_serves_another_version_is_wrong(installed: Any) -> None:
    installed.bodies[definition_path("gangs")]["spec"]["versions"][0]["served"] = False
    finding, _ = only_wrong(installed, check_definitions)
    assert finding == "CustomResourceDefinition gangs.muster.dev does not serve v1alpha1"


def test_a_field_that_lacks_in_depth_means_an_older_definition(installed: Any) -> None:
    schema = served_schema(installed.bodies[definition_path("nodehealths")])
    assert schema is not None
    status = schema["properties"]["status"]["properties"]
    del status["evidence"]["items"]["properties"]["bootId"]
    del status["agent"]
    finding, remedy = only_wrong(installed, check_definitions)
    assert finding == (
        f"CustomResourceDefinition nodehealths.muster.dev is older than this command ({__version__}): it has no "
        ".status.agent, .status.evidence[].bootId"
    )
    assert "apply the definitions of the operator's version" in remedy


def test_a_field_too_many_means_a_newer_definition(installed: Any) -> None:
    schema = served_schema(installed.bodies[definition_path("gangs")])
    assert schema is not None
    schema["properties"]["spec"]["properties"] |= {f"new{n}": {"type": "string"} for n in range(5)}
    finding, remedy = only_wrong(installed, check_definitions)
    assert finding.endswith(
        f"is newer than this command ({__version__}): it also has .spec.new0, .spec.new1, .spec.new2 and 2 more"
    )
    assert "install the kubectl muster of the operator's version" in remedy


def test_a_smaller_profile_needs_less(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    for resource in ("repairrequests", "trainingjobs", "gangs", "endedjobs"):
        del installed.bodies[definition_path(resource)]
    ((state, finding, _),) = rows_of(installed, check_definitions)
    assert (state, finding) == ("Ok", f"those of observe are there, with the fields of version {__version__}")
    asked = []

    async def review(_path: str, body: Any, **_: Any) -> bytes:
        asked.append(body["spec"].get("resourceAttributes", {}))
        return json.dumps({"status": {"allowed": True}}).encode()

    monkeypatch.setattr(installed, "post", review)
    rows_of(installed, check_operator_rights)
    assert {each["resource"] for each in asked if each} == {
        *("configmaps", "events", "fleetpolicies", "gangs", "leases", "nodehealths", "nodes", "pods"),
        *("subjectaccessreviews", "tokenreviews", "trainingjobs"),
    }
    assert {each["verb"] for each in asked if each.get("resource") in ("nodes", "pods")} == {"list", "watch"}
    del installed.bodies[definition_path("nodehealths")]
    assert only_wrong(installed, check_definitions)[0] == "CustomResourceDefinition nodehealths.muster.dev is missing"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.task)
def test_a_right_that_the_operator_lacks_is_wrong(
    installed: Any, rule: RoleRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = list(rule.rights())[-1]
    resource, _, subresource = right.resource.partition("/")
    lacking = {"verb": right.verb, "group": right.group, "namespace": right.namespace, "name": right.name}
    lacking |= {"resource": resource, "subresource": subresource}
    if is_path(right.resource):
        lacking = {"verb": right.verb, "path": right.resource}
    lacking = {key: value for key, value in lacking.items() if value}
    groups = []

    async def review(path: str, body: Any, **_: Any) -> bytes:
        assert path == REVIEWS
        groups.append((body["spec"]["user"], tuple(body["spec"]["groups"])))
        asked = body["spec"].get("resourceAttributes") or body["spec"]["nonResourceAttributes"]
        return json.dumps({"status": {"allowed": asked != lacking}}).encode()

    monkeypatch.setattr(installed, "post", review)
    finding, remedy = only_wrong(installed, check_operator_rights)
    text = f"{rule.task} ({right.verb} {right.resource})"
    assert finding == f"service account muster-system/muster may not {text}"
    assert f"kubectl auth can-i {right.verb} " in remedy
    account = "system:serviceaccounts", "system:serviceaccounts:muster-system", "system:authenticated"
    assert set(groups) == {("system:serviceaccount:muster-system:muster", account)}


def test_of_many_rights_that_lack_each_task_is_named_once(installed: Any) -> None:
    installed.put(REVIEWS, {"status": {"allowed": False}})
    finding, _ = only_wrong(installed, check_operator_rights)
    assert "may not see the FleetPolicy (list fleetpolicies), see nodes (list nodes), see who holds" in finding


@pytest.mark.parametrize(
    ("resource", "question"),
    [
        ("nodehealths/status", "patch nodehealths.muster.dev --subresource=status -A --as"),
        ("/version", "get /version --as"),
        ("leases", "create leases.coordination.k8s.io -n muster-system --as"),
    ],
)
def test_the_remedy_has_the_command_that_asks_again(
    installed: Any, resource: str, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def review(_path: str, body: Any, **_: Any) -> bytes:
        asked = body["spec"].get("resourceAttributes") or {"resource": body["spec"]["nonResourceAttributes"]["path"]}
        named = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        return json.dumps({"status": {"allowed": named != resource}}).encode()

    monkeypatch.setattr(installed, "post", review)
    assert question in only_wrong(installed, check_operator_rights)[1]


def test_the_manifests_give_agents_the_right_that_is_asked_about(installed: Any) -> None:
    (role,) = (body for path, body in installed.bodies.items() if path.endswith("/clusterroles/muster-agent"))
    given = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert {(right.resource, right.verb) for _, right in AGENT_RIGHTS} <= given


def test_one_right_is_counted_as_one(installed: Any) -> None:
    account = "service account muster-agent/muster-agent"
    assert rows_of(installed, check_agent_rights) == [("Ok", f"{account} has the 1 right that it needs", "")]


def test_a_right_that_agents_lack_is_wrong_where_there_are_agents(installed: Any) -> None:
    installed.put(REVIEWS, {"status": {"allowed": False}})
    finding, _ = only_wrong(installed, check_agent_rights)
    assert finding == ("service account muster-agent/muster-agent may not report evidence (patch nodehealths/status)")
    set_variable(installed, "MUSTER_AGENT_NAMESPACE", "")
    assert rows_of(installed, check_agent_rights) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (CLUSTER_ROLES.format("clusterroles"), "ClusterRole muster-operator is missing"),
        (CLUSTER_ROLES.format("clusterrolebindings"), "ClusterRoleBinding muster-operator is missing"),
        (ROLES.format("roles"), "Role muster-operator in namespace muster-system is missing"),
        (ROLES.format("rolebindings"), "RoleBinding muster-operator in namespace muster-system is missing"),
        (f"{CLUSTER_ROLES.format('clusterroles')}-jobs", "ClusterRole muster-operator-jobs is missing"),
    ],
)
def test_a_role_or_binding_that_is_missing_is_wrong(installed: Any, path: str, text: str) -> None:
    del installed.bodies[path]
    assert only_wrong(installed, check_roles)[0] == text


@pytest.mark.parametrize("part", [{"subjects": []}, {"roleRef": {"kind": "ClusterRole", "name": "view"}}])
def test_a_binding_of_another_role_or_account_is_wrong(installed: Any, part: dict[str, Any]) -> None:
    installed.bodies[CLUSTER_ROLES.format("clusterrolebindings")] |= part
    finding, _ = only_wrong(installed, check_roles)
    assert finding == (
        "ClusterRoleBinding muster-operator does not give ClusterRole muster-operator to muster-system/muster"
    )


def test_rights_beyond_the_profile_are_wrong(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "health")
    finding, remedy = only_wrong(installed, check_roles)
    assert finding == (
        "the operator has rights that profile health does not use: muster-operator-burn-in, muster-operator-jobs"
    )
    assert remedy.startswith("once it leads with profile health: kubectl delete clusterrole,")
    assert remedy.endswith(
        "-A -l 'muster.dev/profile in (burn-in,jobs)'; or the components of your overlay are in the wrong order: the "
        "last one sets the profile"
    )
    for path in [
        path for path in installed.bodies if path.endswith(("muster-operator-burn-in", "muster-operator-jobs"))
    ]:
        del installed.bodies[path]
    assert [state for state, *_ in rows_of(installed, check_roles)] == ["Ok"]


def test_the_rights_to_mark_nodes_stay_until_no_node_is_marked(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    _, remedy = only_wrong(installed, check_roles)
    assert remedy.startswith("once it leads with profile observe and no node has a taint or condition of Muster's: ")


def test_the_rights_of_jobs_stay_while_jobs_hold_nodes(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "health")
    installed.lists(GANGS, a_gang("llama", "gpu-1"))
    assert only_wrong(installed, check_roles)[1] == "keep them while jobs hold nodes: see the row jobs"


@pytest.mark.parametrize(
    ("variable", "value", "role"),
    [
        ("MUSTER_CHECKER_NAMESPACE", "muster-check", "muster-operator-checkers in namespace muster-check"),
        ("MUSTER_CERTIFICATE_ISSUER", "external", "muster-operator-cert-manager in namespace muster-system"),
    ],
)
def test_a_component_needs_its_role(installed: Any, variable: str, value: str, role: str) -> None:
    set_variable(installed, variable, value)
    found = [finding for _, finding, _ in rows_of(installed, check_roles)]
    assert found == [f"Role {role} is missing", f"RoleBinding {role} is missing"]


NODES = {"enforcement": "Nodes"}


@pytest.mark.parametrize(
    ("asked", "mark", "right"),
    [
        ({"health": NODES}, "node-taint", ("patch", "nodes", "")),
        ({"pools": [{"name": "a", "nodeSelector": {"a": "b"}, "health": NODES}]}, "node-taint", ("get", "nodes", "")),
        ({"health": {"nodeCondition": True}}, "node-condition", ("patch", "nodes", "status")),
    ],
    ids=["of all nodes", "of a pool", "condition"],
)
def test_what_the_policy_asks_for_needs_its_role_and_rights(
    installed: Any, asked: dict[str, Any], mark: str, right: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def review(_path: str, body: Any, **_: Any) -> bytes:
        attributes = body["spec"].get("resourceAttributes", {})
        got = tuple(attributes.get(key, "") for key in ("verb", "resource", "subresource"))
        return json.dumps({"status": {"allowed": got != right}}).encode()

    monkeypatch.setattr(installed, "post", review)
    for plural in ("clusterroles", "clusterrolebindings"):
        installed.bodies.pop(f"/apis/rbac.authorization.k8s.io/v1/{plural}/muster-{mark}", None)
    both = check_roles, check_operator_rights
    assert [state for check in both for state, *_ in rows_of(installed, check)] == ["Ok", "Ok"], "it asks for neither"
    policy = {"metadata": {"name": "default", "resourceVersion": "1"}, "spec": asked}
    installed.lists(POLICIES, policy)
    rows = rows_of(installed, check_roles)
    kinds = "ClusterRole", "ClusterRoleBinding"
    assert [finding for _, finding, _ in rows] == [f"{kind} muster-{mark} is missing" for kind in kinds]
    finding, remedy = only_wrong(installed, check_operator_rights)
    assert "may not write the " in finding
    for text in (remedy, *(it for *_, it in rows)):
        assert f"your own overlay, or the chart, with {name_component(mark)}: docs/install.md" in text
    set_variable(installed, "MUSTER_PROFILE", "observe")
    assert [state for state, *_ in rows_of(installed, check_operator_rights)] == ["Ok"]


def test_what_a_smaller_profile_lacks_comes_with_its_own_overlay(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    for path in [path for path in installed.bodies if path.endswith(("-health", "-burn-in", "-jobs"))]:
        del installed.bodies[path]
    del installed.bodies[POLICY.format("muster-scope")]
    assert [state for state, *_ in rows_of(installed, check_admission)] == ["Ok"]
    del installed.bodies[CLUSTER_ROLES.format("clusterroles")]
    assert "kubectl apply -k manifests/overlays/observe " in only_wrong(installed, check_roles)[1]


def test_agents_and_their_network_policy_come_with_the_overlay_of_the_profile(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    installed.put(REVIEWS, {"status": {"allowed": False}})
    installed.lists(NETWORK.format("muster-agent"))
    for check in (check_agent_rights, check_network):
        assert "kubectl apply -k manifests/overlays/observe " in only_wrong(installed, check)[1]


@pytest.mark.parametrize("name", ["muster-agent", *policies_of(InstallationProfile.JOBS)])
def test_each_admission_policy_has_to_be_there_with_its_binding(installed: Any, name: str) -> None:
    policy = installed.bodies.pop(POLICY.format(name))
    assert only_wrong(installed, check_admission)[0] == f"ValidatingAdmissionPolicy {name} is missing"
    installed.put(POLICY.format(name), policy)
    del installed.bodies[BINDING.format(name)]
    assert only_wrong(installed, check_admission)[0] == f"ValidatingAdmissionPolicyBinding {name} is missing"


def test_an_admission_policy_that_refuses_nothing_is_wrong(installed: Any) -> None:
    policy, binding = POLICY.format("muster-records"), BINDING.format("muster-records")
    installed.bodies[policy]["spec"]["failurePolicy"] = "Ignore"
    assert "its failurePolicy is not Fail" in only_wrong(installed, check_admission)[0]
    installed.bodies[policy]["spec"]["failurePolicy"] = "Fail"
    installed.bodies[binding]["spec"]["validationActions"] = ["Audit"]
    assert "(validationActions)" in only_wrong(installed, check_admission)[0]
    installed.bodies[binding]["spec"] |= {"validationActions": ["Deny"], "policyName": "other"}
    assert "does not refuse what policy muster-records forbids" in only_wrong(installed, check_admission)[0]


def test_without_agents_their_policies_are_not_missed(installed: Any) -> None:
    for path in (POLICY.format("muster-agent"), BINDING.format("muster-agent")):
        del installed.bodies[path]
    installed.lists(NETWORK.format("muster-agent"))
    set_variable(installed, "MUSTER_AGENT_NAMESPACE", "")
    assert [state for state, *_ in rows_of(installed, check_admission)] == ["Ok"]
    assert [state for state, *_ in rows_of(installed, check_network)] == ["Ok"]


def test_another_port_of_the_api_server_is_wrong_for_operator_and_agents(installed: Any) -> None:
    installed.lists(SLICES, {"endpoints": [{"addresses": ["10.0.0.2", "10.0.0.3"]}], "ports": [{"port": 8443}]})
    rows = rows_of(installed, check_network)
    assert [(state, finding) for state, finding, _ in rows] == [
        (
            "Wrong",
            f"pods {name} in namespace {namespace} may not reach the API server at 10.0.0.2:8443, 10.0.0.3:8443",
        )
        for name, namespace in (("muster", "muster-system"), ("muster-agent", "muster-agent"))
    ]
    assert "kubectl -n muster-system edit networkpolicy muster" in rows[0][2]


def test_a_network_policy_that_is_missing_is_wrong(installed: Any) -> None:
    installed.lists(NETWORK.format("muster-system"))
    finding, _ = only_wrong(installed, check_network)
    assert finding == "NetworkPolicy muster in namespace muster-system is missing"


def allowing(**rule: Any) -> dict[str, Any]:
    return {"spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]}}


BLOCK = {"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16"]}


@pytest.mark.parametrize(
    ("policy", "open_for"),
    [
        (allowing(), True),
        (allowing(ports=[{"port": 6443}]), True),
        (allowing(ports=[{"port": 6000, "endPort": 7000}]), True),
        (allowing(ports=[{"protocol": "TCP"}]), True),
        (allowing(ports=[{"port": 6443, "protocol": "UDP"}]), False),
        (allowing(ports=[{"port": "https"}]), False),
        (allowing(ports=[{"port": 443}]), False),
        (allowing(to=[{"ipBlock": BLOCK}]), True),
        (allowing(to=[{"ipBlock": {**BLOCK, "except": ["10.0.0.0/24"]}}]), False),
        (allowing(to=[{"ipBlock": {"cidr": "fd00::/8"}}]), False),
        (allowing(to=[{"podSelector": {}}]), False),
        ({"spec": {"podSelector": {}, "policyTypes": ["Egress"]}}, False),
        ({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}, True),
        ({"spec": {"podSelector": {"matchLabels": {"app": "other"}}, "policyTypes": ["Egress"]}}, True),
    ],
)
def test_which_network_policies_let_a_pod_out(policy: dict[str, Any], open_for: bool) -> None:
    labels = {"app.kubernetes.io/name": "muster"}
    assert lets_out([policy], labels, "10.0.0.2", 6443) is open_for
    if policy["spec"]["podSelector"] == {} and "Egress" in policy["spec"]["policyTypes"]:
        assert lets_out([policy, allowing(ports=[{"port": 6443}])], labels, "10.0.0.2", 6443)


def test_what_decides_about_the_network_may_have_to_be_asked_for(installed: Any) -> None:
    refuse(installed, SLICES)
    finding, remedy = unread(installed, check_network)
    assert finding == "you may not list endpointslices.discovery.k8s.io in namespace default"
    assert "give you this right" in remedy
    del installed.errors[SLICES]
    installed.lists(SLICES)
    assert unread(installed, check_network)[0].startswith("no address of the API server is known")
