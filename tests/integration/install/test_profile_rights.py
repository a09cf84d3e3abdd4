"""The API server allows the operator what the table of rights says for its profile, and nothing else.

It is asked what `kubectl auth can-i --list` asks. No operator runs here.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.install import checkers
from tests.unit.manifests.builders import OVERLAYS, objects_of

from localcluster.api import Api
from muster.api.namespaces import NODE_LEASES, SYSTEM
from muster.api.rights import granted

ROLES = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
FOLDER = Path(__file__).resolve().parents[3] / "manifests" / "overlays"
KINDS = "clusterrole,clusterrolebinding,role,rolebinding"
Allowed = set[tuple[str, str, str, str]]  # verb, group, resource, name


@pytest.fixture
def without_roles(installation: Any) -> Iterator[None]:
    """The installation without the operator's roles, and with a namespace of checkers."""
    installation.api.create("/api/v1/namespaces", {"metadata": {"name": checkers.NAMESPACE}})
    installation.kubectl("delete", KINDS, "-A", "-l", "muster.dev/profile")
    yield
    installation.kubectl("delete", KINDS, "-A", "-l", "muster.dev/profile")
    installation.kubectl("delete", "namespace", checkers.NAMESPACE)
    installation.install_operator()


def test_each_overlay_allows_what_the_table_says(
    installation: Any, without_roles: None, wait_until: Callable[..., Any]
) -> None:
    plane = installation.control_plane
    operator = Api(plane.server, installation.token("muster", SYSTEM), plane.pki.ca)
    other = Api(plane.server, installation.token("default", SYSTEM), plane.pki.ca)
    namespaces = (SYSTEM, NODE_LEASES, checkers.NAMESPACE, "default")

    def found() -> dict[str, Allowed]:
        return {namespace: allowed(operator, namespace) - allowed(other, namespace) for namespace in namespaces}

    def expected(name: str) -> dict[str, Allowed]:
        return {namespace: stated(name, namespace) - allowed(other, namespace) for namespace in namespaces}

    for name in ("observe", "health", "burn-in", "jobs"):  # each has the roles of those before it
        rendered = list(yaml.safe_load_all(installation.kubectl("kustomize", str(FOLDER / name))))
        assert comparable(rendered) == comparable(objects_of(FOLDER / name)), "unit tests see what kustomize makes"
        for role in filter(is_of_operator, rendered):
            installation.api.apply(path_of(role), role)
        wait_until(lambda name=name: found() == expected(name), f"the rights of {name}")
        question = ("auth", "can-i", "create", "pods", f"--as={installation.user}", "--quiet")
        if name == "observe":
            with pytest.raises(AssertionError, match="auth can-i create pods"):
                installation.kubectl(*question, "-A")
    installation.kubectl(*question, "-A")
    # The command of docs/profiles.md on the way down.
    installation.kubectl("delete", KINDS, "-A", "-l", "muster.dev/profile in (burn-in,jobs)")
    wait_until(lambda: found() == expected("health"), "the rights of health")


def allowed(user: Api, namespace: str) -> Allowed:
    """What a user may do in a namespace."""
    status = user.create(REVIEWS, {"spec": {"namespace": namespace}})["status"]
    resources = {
        (verb, group, resource, name)
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }
    rules = status["nonResourceRules"]
    return resources | {
        (verb, "", path, "") for rule in rules for verb in rule["verbs"] for path in rule["nonResourceURLs"]
    }


def stated(name: str, namespace: str) -> Allowed:
    """What the table says that an overlay allows there."""
    return {
        (right.verb, right.group, right.resource, right.name)
        for grant in granted(*OVERLAYS[name])
        for rule in grant.rules
        for right in rule.rights()
        if right.namespace in ("", namespace)
    }


def is_of_operator(each: Any) -> bool:
    return "muster.dev/profile" in each["metadata"].get("labels", {})


def path_of(role: Any) -> str:
    namespace = role["metadata"].get("namespace")
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{ROLES}{place}/{role['kind'].lower()}s/{role['metadata']['name']}"


def comparable(objects: list[Any]) -> dict[tuple[str, str, str], Any]:
    """Objects by kind and name; where a merge puts variables and ports among others is no difference."""
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                container["env"].sort(key=lambda entry: entry["name"])
                container["ports"].sort(key=lambda entry: entry["name"])
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects}
