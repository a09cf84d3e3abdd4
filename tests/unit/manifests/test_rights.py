"""Each overlay has what its profile needs, and nothing of the profiles above it."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.manifests.builders import JOBS, OBSERVE, OVERLAYS, objects_of, rights_of

from apidocs.render import GROUP, RESOURCES
from muster.api.installation import InstallationProfile
from muster.api.namespaces import CHECKERS, SYSTEM
from muster.api.rights import GRANTS, Grant, granted
from muster.cli.doctor_cluster import AGENT, policies_of
from muster.controller.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
each_overlay = pytest.mark.parametrize("name", OVERLAYS)


@pytest.fixture(scope="session")
def overlays() -> dict[str, list[dict[str, Any]]]:
    return {name: objects_of(ROOT / "manifests" / "overlays" / name) for name in OVERLAYS}


def environment(overlay: list[dict[str, Any]]) -> dict[str, str]:
    (deployment,) = (each for each in overlay if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value", "from-the-pod") for entry in container["env"]}


@each_overlay
def test_an_overlay_has_the_rights_of_its_profile(overlays: dict[str, Any], name: str) -> None:
    expected = {right for grant in granted(*OVERLAYS[name]) for rule in grant.rules for right in rule.rights()}
    assert rights_of(overlays[name]) == expected


@each_overlay
def test_each_role_is_bound_to_the_operator_alone(overlays: dict[str, Any], name: str) -> None:
    def named(kind: str) -> set[tuple[str, str]]:
        found = [each for each in overlays[name] if each["kind"] == kind and "muster.dev/profile" in str(each)]
        return {(each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in found}

    for kind in ("Role", "ClusterRole"):
        assert named(kind) == named(f"{kind}Binding") != set()
    for binding in overlays[name]:
        if binding["kind"].endswith("RoleBinding") and "muster.dev/profile" in binding["metadata"]["labels"]:
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "muster", "namespace": SYSTEM}]
            assert binding["roleRef"]["name"] == binding["metadata"]["name"]
            assert binding["roleRef"]["kind"] == binding["kind"].removesuffix("Binding")


@each_overlay
def test_an_overlay_sets_its_profile_and_what_that_needs(overlays: dict[str, Any], name: str) -> None:
    profile, _ = OVERLAYS[name]
    settings = Settings.from_environment(environment(overlays[name]))
    assert settings.profile is profile
    assert bool(settings.launcher_image) is profile.has_jobs
    served = [each for each in overlays[name] if each["kind"] == "Service" and "8443" in str(each["spec"])]
    assert bool(served) is profile.has_coordinator
    # On the way down a replica of before leads on, and its launchers have to reach it.
    assert [each for each in overlays[name] if each["kind"] == "NetworkPolicy" and "8443" in str(each["spec"])]


@each_overlay
def test_an_overlay_has_the_policies_that_doctor_looks_for(overlays: dict[str, Any], name: str) -> None:
    found = {each["metadata"]["name"] for each in overlays[name] if each["kind"] == "ValidatingAdmissionPolicy"}
    assert found == {AGENT, *policies_of(OVERLAYS[name][0])}


def test_an_operator_that_observes_writes_no_node_no_pod_and_no_job() -> None:
    writes = {
        (right.resource, right.verb)
        for grant in granted(OBSERVE)
        for rule in grant.rules
        for right in rule.rights()
        if right.verb not in ("get", "list", "watch")
    }
    assert writes == {
        ("nodehealths", "create"),
        ("nodehealths", "delete"),
        ("nodehealths/status", "patch"),
        ("events", "create"),
        ("events", "patch"),
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
        ("leases", "create"),
        ("leases", "update"),
        ("configmaps", "create"),
        ("configmaps", "patch"),
    }


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: grant.role)
def test_a_folder_brings_what_it_is_granted(grant: Grant) -> None:
    rights = {right for rule in grant.rules for right in rule.rights()}
    assert rights_of(objects_of(ROOT / "manifests" / grant.folder)) == rights


def test_the_table_says_each_right_once_and_names_modules_that_there_are() -> None:
    rules = [rule for grant in GRANTS for rule in grant.rules]
    rights = [right for grant in granted(JOBS) for rule in grant.rules for right in rule.rights()]
    assert len(set(rights)) == len(rights)
    modules = {module for rule in rules for module in rule.code.split(", ")}
    assert [module for module in modules if not (ROOT / "operator/muster" / module).is_file()] == []
    assert Settings().namespace == SYSTEM
    assert CHECKERS in str(objects_of(ROOT / "manifests/components/checkers"))


@pytest.mark.parametrize("profile", InstallationProfile)
def test_definitions_are_those_that_the_profile_needs(profile: InstallationProfile) -> None:
    found = objects_of(ROOT / "manifests" / profile.definitions)
    names = {each["metadata"]["name"] for each in found if each["kind"] == "CustomResourceDefinition"}
    assert names == {f"{each.plural}.{GROUP}" for each in RESOURCES if profile.needs(each.plural)}
    assert [each["metadata"]["name"] for each in found if each["kind"] == "Namespace"] == [SYSTEM]


def test_each_profile_has_an_overlay() -> None:
    for profile in InstallationProfile:
        assert OVERLAYS[profile.overlay][0] is profile
    assert OVERLAYS["jobs"][0] is JOBS
