"""What an installation must keep to, whoever edits it: least rights, Pod Security restricted, names that the code
uses."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.manifests.builders import objects_of

from apidocs.render import GROUP, RESOURCES
from imagebuild.plan import IMAGES
from muster import __version__
from muster.api.fleethours import CONFIG_MAP
from muster.api.fleetpolicy import FleetPolicy
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import NodeHealthStatus
from muster.controller.admission import OPERATOR, RECORDS
from muster.controller.history import NOTE
from muster.controller.metrics import PATH, READ
from muster.controller.operator import LEASE_NAME
from muster.controller.settings import COORDINATOR_SERVICE, EXTERNAL_ISSUER, Settings
from muster.health.sources import UNHEALTHY_TAINT
from muster.kube.certificates import AUTHORITY_SECRET_NAME, SECRET_NAME, SERVICE_NAME, SERVING_LIFE, names_of
from muster.node.agent import settings as agent_settings
from muster.node.agent.client import API_VERSION
from muster.node.checker import settings as checker_settings
from muster.page.settings import Settings as PageSettings
from muster.protocol.messages import TOKEN_AUDIENCE
from muster.queueing.enabling import NO_POLICY, refusal
from muster.world.views import JOB_NAME_LABEL, JOB_UID_LABEL, MUSTER_HEALTHY

Manifests = list[dict[str, Any]]
ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
AGENT = "muster-agent"
CHECKER = "muster-check"
AGENT_FILES = ("agent.yaml", "agent-rbac.yaml", "agent-admission.yaml")


# Hosts of names that the tree gives out: one that cannot exist, and two whose owners are those that are meant.
UNSET = "muster.invalid/set-your-registry-in-the-overlay"
TRUSTED = ("muster.invalid/set-your-", "nvcr.io/nvidia/", "docker.io/library/")


def short_name(repository: str) -> str:
    """How `make images` calls an image."""
    return repository.rpartition("/")[2]


def of_kind(objects: Manifests, *kinds: str) -> Manifests:
    return [item for item in objects if item["kind"] in kinds]


def named(objects: Manifests, kind: str, name: str) -> dict[str, Any]:
    return next(item for item in of_kind(objects, kind) if item["metadata"]["name"] == name)


def is_of_operator(role: dict[str, Any]) -> bool:
    """Whether a role is one of the operator's."""
    return "muster.dev/profile" in role["metadata"]["labels"]


@pytest.mark.parametrize(("name", "elsewhere"), [("base", set()), ("definitions", {"../../crds"})])
def test_every_file_is_part_of_the_installation(root: Path, name: str, elsewhere: set[str]) -> None:
    folder = root / "manifests" / name
    listed = set(yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"])
    assert listed == {path.name for path in folder.iterdir()} - {"kustomization.yaml"} | elsewhere


KEPT = {
    ("Namespace", "muster-system"),
    *(("CustomResourceDefinition", f"{each.plural}.{GROUP}") for each in RESOURCES),
}


def test_the_definitions_and_the_history_are_an_installation_of_their_own(root: Path) -> None:
    folder = root / "manifests" / "definitions"
    assert _keys(objects_of(folder)) == KEPT
    annotations = yaml.safe_load((folder / "kustomization.yaml").read_text())["commonAnnotations"]
    assert annotations == {
        "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
        "kustomize.toolkit.fluxcd.io/prune": "disabled",
        "helm.sh/resource-policy": "keep",
    }


def test_what_may_be_deleted_or_pruned_takes_neither(root: Path) -> None:
    places = [*(root / "manifests/overlays").iterdir(), *(root / "manifests/components").iterdir()]
    assert len(places) > 5
    for place in places:
        assert _keys(objects_of(place)).isdisjoint(KEPT), place


def _keys(objects: Manifests) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def test_everything_namespaced_names_its_namespace(installed: Manifests) -> None:
    cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", *ADMISSION}
    places = {item["metadata"].get("namespace") for item in installed if item["kind"] not in cluster_wide}
    assert places == {"muster-system", "muster-agent", "kube-node-lease"}
    strangers = {item["kind"] for item in installed if item["metadata"].get("namespace") == "kube-node-lease"}
    assert strangers == {"Role", "RoleBinding"}


def test_no_right_is_a_wildcard(everything: Manifests) -> None:
    for role in of_kind(everything, "Role", "ClusterRole"):
        for rule in role["rules"]:
            entries = [entry for values in rule.values() for entry in values]
            assert not [entry for entry in entries if "*" in entry], role["metadata"]["name"]


def test_secrets_are_reached_by_a_namespaced_role_only(everything: Manifests) -> None:
    for role in of_kind(everything, "ClusterRole"):
        assert not [rule for rule in role["rules"] if "secrets" in rule.get("resources", ())]
    (local,) = (role for role in of_kind(everything, "Role") if "secrets" in str(role))
    assert local["metadata"]["namespace"] == "muster-system"
    rules = [rule for rule in local["rules"] if "secrets" in rule["resources"]]
    assert [set(rule["verbs"]) for rule in rules if not rule.get("resourceNames")] == [{"create"}]
    assert not {"list", "watch", "delete", "patch"} & {verb for rule in rules for verb in rule["verbs"]}


def test_the_operator_may_see_whether_a_record_stands_whose_write_was_not_answered(installed: Manifests) -> None:
    rules = [rule for role in of_kind(installed, "ClusterRole") if is_of_operator(role) for rule in role["rules"]]
    verbs = [set(rule["verbs"]) for rule in rules if "gangs" in rule.get("resources", ())]
    assert set.union(*verbs) == {"list", "watch", "get", "create", "update"}


@pytest.mark.parametrize("verb", ["escalate", "bind", "impersonate", "deletecollection", "approve", "sign"])
def test_the_operator_cannot_raise_its_own_rights(everything: Manifests, verb: str) -> None:
    roles = [role for role in of_kind(everything, "Role", "ClusterRole") if is_of_operator(role)]
    assert len(roles) == 11
    rules = [rule for role in roles for rule in role["rules"]]
    assert verb not in {held for rule in rules for held in rule["verbs"]}
    groups = {group for rule in rules for group in rule.get("apiGroups", ())}
    of_kubernetes = {"coordination", "events", "scheduling", "authentication", "authorization"}
    assert groups == {"", "muster.dev", "policy", *(f"{group}.k8s.io" for group in of_kubernetes)}
    resources = {resource for rule in rules for resource in rule.get("resources", ())}
    assert (
        not {"pods/eviction", "pods/exec", "pods/attach", "pods/portforward", "nodes/proxy", "serviceaccounts/token"}
        & resources
    )


def test_people_cannot_write_gangs(installed: Manifests) -> None:
    for role in of_kind(installed, "ClusterRole"):
        if not any("aggregate-to" in label for label in role["metadata"]["labels"]):
            continue
        for rule in role["rules"]:
            if "gangs" in rule["resources"]:
                assert set(rule["verbs"]) == {"get", "list", "watch"}


@pytest.mark.parametrize(
    ("folder", "name", "level"), [("definitions", "muster-system", "restricted"), ("base", AGENT, "privileged")]
)
def test_each_namespace_enforces_a_level_of_pod_security(root: Path, folder: str, name: str, level: str) -> None:
    labels = named(objects_of(root / "manifests" / folder), "Namespace", name)["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {level}


def test_nothing_but_the_agent_is_where_pods_may_be_privileged(installed: Manifests) -> None:
    there = [item for item in installed if item["metadata"].get("namespace") == AGENT]
    assert {(item["kind"], item["metadata"]["name"]) for item in there} == {
        ("DaemonSet", AGENT),
        ("ServiceAccount", AGENT),
        ("NetworkPolicy", AGENT),
    }


def test_the_pods_are_restricted(deployment: dict[str, Any]) -> None:
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 10000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert not container["image"].endswith(":latest")
    assert all("hostPath" not in volume for volume in spec["volumes"])


def test_two_replicas_that_leave_lost_nodes_soon(installed: Manifests, deployment: dict[str, Any]) -> None:
    spec = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 2
    assert {t["key"]: t["tolerationSeconds"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready": 20,
        "node.kubernetes.io/unreachable": 20,
    }
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert of_kind(installed, "PodDisruptionBudget")[0]["spec"]["minAvailable"] == 1


def test_operators_prefer_nodes_without_tenants_training(deployment: dict[str, Any]) -> None:
    affinity = deployment["spec"]["template"]["spec"]["affinity"]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    _, others = (entry["podAffinityTerm"] for entry in affinity["podAntiAffinity"][preferred])
    assert others == {
        "topologyKey": "kubernetes.io/hostname",
        "namespaceSelector": {},
        "labelSelector": {"matchExpressions": [{"key": JOB_NAME_LABEL, "operator": "Exists"}]},
    }
    (nodes,) = affinity["nodeAffinity"][preferred]
    assert {each["operator"] for each in nodes["preference"]["matchExpressions"]} == {"DoesNotExist"}


def test_policies_name_what_the_code_names(installed: Manifests, deployment: dict[str, Any]) -> None:
    account = f"system:serviceaccount:muster-system:{deployment['spec']['template']['spec']['serviceAccountName']}"
    for name, file in ((RECORDS, "records-admission.yaml"), (OPERATOR, "operator-admission.yaml")):
        policy, binding = (named(installed, kind, name)["spec"] for kind in ADMISSION)
        assert policy["failurePolicy"] == "Fail", file
        assert (binding["policyName"], binding["validationActions"]) == (name, ["Deny"])
        assert f"'{account}'" in str(policy)
    text = str(named(installed, ADMISSION[0], OPERATOR))
    for word in (JOB_UID_LABEL, UNHEALTHY_TAINT, MUSTER_HEALTHY, CHECKER):
        assert f"'{word}'" in text
    for name in (
        f"configmaps/muster-system/{NOTE}",
        f"configmaps/muster-system/{CONFIG_MAP}",
        f"configmaps/{CHECKER}/{COORDINATOR_SERVICE}",
        f"secrets/muster-system/{SECRET_NAME}",
    ):
        assert f"'{name}'" in text


def test_selectors_find_the_pods(installed: Manifests, deployment: dict[str, Any]) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    key, value = "app.kubernetes.io/name", "muster"
    assert labels[key] == value
    coordinator = named(installed, "Service", COORDINATOR_SERVICE)["spec"]
    assert coordinator["selector"] == {key: value}, "every replica: one that does not lead names the leader"
    assert coordinator["publishNotReadyAddresses"] is True
    assert named(installed, "Service", "muster-metrics")["spec"]["selector"] == {key: value}
    spec = deployment["spec"]["template"]["spec"]
    selectors = [
        deployment["spec"]["selector"],
        of_kind(installed, "PodDisruptionBudget")[0]["spec"]["selector"],
        named(installed, "NetworkPolicy", "muster")["spec"]["podSelector"],
        spec["topologySpreadConstraints"][0]["labelSelector"],
        spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"][
            "labelSelector"
        ],
    ]
    assert selectors == [{"matchLabels": {key: value}}] * len(selectors)


def test_ports_and_names_are_the_codes(installed: Manifests, deployment: dict[str, Any]) -> None:
    defaults = Settings()
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "coordinator": defaults.coordinator_port,
        "probes": defaults.probe_port,
        "metrics": defaults.metrics_port,
    }
    for probe in ("readinessProbe", "startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "probes"
    (metrics,) = named(installed, "Service", "muster-metrics")["spec"]["ports"]
    assert (metrics["port"], metrics["targetPort"]) == (defaults.metrics_port, "metrics")
    service = named(installed, "Service", COORDINATOR_SERVICE)
    assert service["spec"]["ports"][0]["port"] == defaults.coordinator_port
    namespace = service["metadata"]["namespace"]
    assert namespace == defaults.namespace
    assert f"{COORDINATOR_SERVICE}.{namespace}.svc" in names_of(namespace)
    lease = [
        name
        for role in of_kind(installed, "Role")
        for rule in role["rules"]
        if "leases" in rule["resources"]
        for name in rule.get("resourceNames", ())
    ]
    assert lease == [LEASE_NAME]


READERS_OF_METRICS = [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]


def let_in(policy: dict[str, Any]) -> dict[int, Any]:
    """From where, by port; None: from everywhere."""
    return {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def test_everybody_may_come_to_the_coordinator_and_nobody_to_the_probes(installed: Manifests) -> None:
    """A kubelet reaches the pods of its own node whatever a NetworkPolicy says."""
    ports = Settings()
    assert let_in(named(installed, "NetworkPolicy", "muster")) == {
        ports.coordinator_port: None,
        ports.metrics_port: READERS_OF_METRICS,
    }


def test_metrics_have_a_right_of_their_own_that_nobody_has_by_another_role(installed: Manifests) -> None:
    role = named(installed, "ClusterRole", "muster-metrics-reader")
    assert role["rules"] == [{"nonResourceURLs": [PATH], "verbs": [READ.verb]}]
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]


def test_the_environment_is_one_that_the_operator_takes(deployment: dict[str, Any]) -> None:
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    environment = {entry["name"]: entry.get("value", "from-the-pod") for entry in container["env"]}
    settings = Settings.from_environment(environment)
    assert settings.pod_name == "from-the-pod"
    assert settings.namespace == "from-the-pod"
    assert settings.launcher_image == f"{UNSET}/launcher:{__version__}"
    assert settings.agent_namespace == AGENT


def test_a_profile_needs_what_it_does() -> None:
    def settings(**more: str) -> Settings:
        return Settings.from_environment({f"MUSTER_{name}": value for name, value in more.items()})

    remedy = (
        r"kubectl apply -k manifests/overlays/default \(in a release: -f install.yaml\), set profile to jobs in the"
    )
    with pytest.raises(SystemExit, match=f"=jobs Muster runs TrainingJobs: run {remedy} chart, or add components/jobs"):
        settings()
    assert settings(LAUNCHER_IMAGE="it").profile is InstallationProfile.JOBS
    for profile in ("observe", "health"):
        made = settings(PROFILE=profile, CHECKER_NAMESPACE=CHECKER)
        assert (made.profile, made.checker_namespace) == (profile, ""), "no checker is trusted"
    assert settings(PROFILE="burn-in", CHECKER_NAMESPACE=CHECKER).checker_namespace == CHECKER
    with pytest.raises(
        SystemExit, match=r"test nodes: run .*-f install-burn-in.yaml\), set checkers.enabled in the ch"
    ):
        settings(PROFILE="burn-in")
    with pytest.raises(
        SystemExit, match="MUSTER_PROFILE='all' is not known: give jobs or burn-in or health or observe"
    ):
        settings(PROFILE="all")


@pytest.mark.parametrize("name", ["observe", "default"])
def test_an_overlay_sets_every_image_of_its_profile(root: Path, name: str) -> None:
    folder = root / "manifests/overlays" / name
    images = set()
    for workload in of_kind(objects_of(folder), "Deployment", "DaemonSet"):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        values = [entry.get("value", "") for entry in container["env"]]
        images |= {text for text in (container["image"], *values) if text.startswith(UNSET)}
    overlay = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert {image["name"] for image in overlay["images"]} == {image.partition(":")[0] for image in images}
    parts = {"operator", "agent", "launcher"} if name == "default" else {"operator", "agent"}
    assert {short_name(image["name"]) for image in overlay["images"]} == parts


def test_an_overlay_reaches_the_variable_with_the_launchers_image(root: Path) -> None:
    fields = yaml.safe_load((root / "manifests/components/jobs/image-fields.yaml").read_text())
    assert [field["path"] for field in fields["images"]] == ["spec/template/spec/containers/env/value"]


@pytest.mark.parametrize("folder", ["manifests", "examples"])
def test_no_image_is_one_that_somebody_else_may_own(root: Path, folder: str) -> None:
    """`muster/operator` would be pulled from whoever has that name at Docker Hub, and run as root on every node."""
    lines = [line for path in (root / folder).rglob("*.yaml") for line in path.read_text().splitlines()]
    keys = re.compile(r"^[\s-]*(?:image|newName): (\S+)")
    images = [found[1] for line in lines if (found := keys.match(line))]
    assert images
    assert [image for image in images if not image.startswith(TRUSTED)] == []


def test_every_line_of_the_threat_model_names_a_test_that_there_is(root: Path) -> None:
    page = (root / "docs" / "security.md").read_text().partition("## Attackers\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == [
        "A tenant",
        "A pod on the network",
        "A stolen token of a launcher",
        "A stolen token of an agent",
        "Root on a node",
        "A stolen token of the operator",
        "A stolen token of the uninstallation",
        "A reader of the page",
        "A reader of a support bundle",
        "What a user of the command line is given",
        "A mirror or a registry",
    ]
    rows = [row for row in page.splitlines() if row.startswith("| ") and not row.startswith("| attempt")]
    assert [row for row in rows if "`tests/" not in row] == []
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page):
        assert re.search(rf"^\s*(?:async )?def {test}\(", (root / file).read_text(), re.MULTILINE), test


def test_security_page_names_every_right_of_agents(root: Path, installed: Manifests) -> None:
    page = (root / "docs" / "security.md").read_text().partition("## The agents' rights\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \|", page, re.MULTILINE)
    told = {(resource, verb) for resource, verbs in rows for verb in verbs.split(", ")}
    held = {
        (resource, verb)
        for role in of_kind(installed, "Role", "ClusterRole")
        if role["metadata"]["name"] == AGENT
        for rule in role["rules"]
        for resource in (*rule.get("resources", ()), *rule.get("nonResourceURLs", ()))
        for verb in rule["verbs"]
    }
    assert told == held


class TestTheAgent:
    @pytest.fixture
    def pod(self, installed: Manifests) -> dict[str, Any]:
        spec: dict[str, Any] = named(installed, "DaemonSet", AGENT)["spec"]["template"]["spec"]
        return spec

    def test_its_environment_is_one_that_it_takes(self, pod: dict[str, Any]) -> None:
        (container,) = pod["containers"]
        fields = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"][:1]}
        assert fields == {"MUSTER_NODE": "spec.nodeName"}
        environment = {entry["name"]: entry.get("value", "node-1") for entry in container["env"]}
        settings = agent_settings.from_environment({**environment, "KUBERNETES_SERVICE_HOST": "10.96.0.1"})
        assert settings.node == "node-1"
        assert settings.listen == ("", container["ports"][0]["containerPort"])
        places = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert set(places) == {str(settings.sysfs), str(settings.proc)}
        assert all(mount["readOnly"] for mount in places.values())

    def test_of_the_node_it_sees_the_two_file_systems_that_it_reads(self, pod: dict[str, Any]) -> None:
        assert [volume["hostPath"]["path"] for volume in pod["volumes"]] == ["/sys", "/proc"]
        assert not [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}

    def test_it_stays_on_sick_nodes(self, pod: dict[str, Any]) -> None:
        assert pod["tolerations"] == [{"operator": "Exists"}]
        assert pod["priorityClassName"] == "system-node-critical"

    def test_it_runs_from_an_image_of_its_own(self, pod: dict[str, Any]) -> None:
        (container,) = pod["containers"]
        assert short_name(container["image"].partition(":")[0]) == "agent"
        assert "agent" in {image.name for image in IMAGES}
        assert container["command"] == ["python3", "-m", "muster.node.agent"]

    def test_selectors_and_ports_find_it(self, installed: Manifests) -> None:
        daemon_set, policy = named(installed, "DaemonSet", AGENT), named(installed, "NetworkPolicy", AGENT)
        template = daemon_set["spec"]["template"]
        labels = daemon_set["spec"]["selector"]["matchLabels"]
        assert labels.items() <= template["metadata"]["labels"].items()
        assert policy["spec"]["podSelector"]["matchLabels"] == labels
        (container,) = template["spec"]["containers"]
        ports = [port["containerPort"] for port in container["ports"]]
        assert let_in(policy) == dict.fromkeys(ports, READERS_OF_METRICS)
        key, value = "app.kubernetes.io/name", "muster"
        assert template["metadata"]["labels"][key] != value, "it would be taken for an operator"

    def test_the_policy_is_about_its_service_account_and_its_fields(self, installed: Manifests) -> None:
        policy, binding = (named(installed, kind, AGENT)["spec"] for kind in ADMISSION)
        assert policy["failurePolicy"] == "Fail"
        assert (binding["policyName"], binding["validationActions"]) == (AGENT, ["Deny"])
        account = named(installed, "ServiceAccount", AGENT)["metadata"]
        (condition,) = policy["matchConditions"]
        assert f"'system:serviceaccount:{account['namespace']}:{account['name']}'" in condition["expression"]
        (rule,) = policy["matchConstraints"]["resourceRules"]
        (group,) = rule["apiGroups"]
        assert API_VERSION.startswith(f"{group}/")
        (fields,) = {
            found
            for check in policy["validations"]
            for found in re.findall(r"key in \[([^]]+)\] \|\|", check["expression"])
        }
        names = fields.replace("'", "").split(", ")
        assert set(names) == {"evidence", "agent"} <= set(NodeHealthStatus.model_fields)

    def test_every_part_has_the_label_by_which_it_can_be_left_out(self, root: Path, installed: Manifests) -> None:
        files = [yaml.safe_load_all((root / "manifests" / "base" / name).read_text()) for name in AGENT_FILES]
        parts = [part for documents in files for part in documents]
        label = {"app.kubernetes.io/component": "agent"}
        assert [part for part in installed if label.items() <= part["metadata"]["labels"].items()] == parts


class TestTheChecker:
    @pytest.fixture
    def parts(self, root: Path) -> Manifests:
        """What the component brings besides the operator's right there, one for each kind."""
        folder = root / "manifests" / "components" / "checkers"
        component = yaml.safe_load((folder / "kustomization.yaml").read_text())
        assert component["resources"] == ["checker.yaml", "rights.yaml"]
        assert component["patches"] == [{"path": "trust.yaml"}]
        return list(yaml.safe_load_all((folder / "checker.yaml").read_text()))

    @pytest.fixture
    def pod(self, parts: Manifests) -> dict[str, Any]:
        (daemon_set,) = of_kind(parts, "DaemonSet")
        spec: dict[str, Any] = daemon_set["spec"]["template"]["spec"]
        return spec

    def test_it_is_left_out_unless_the_overlay_has_it(self, root: Path, installed: Manifests) -> None:
        for name in ("burn-in", "jobs"):
            overlay = yaml.safe_load((root / f"manifests/overlays/{name}/kustomization.yaml").read_text())
            assert "../../components/checkers" in overlay["components"]
        assert not [part for part in installed if part["kind"] not in ADMISSION and CHECKER in str(part)]

    def test_the_operator_trusts_it_once_it_is_installed(self, root: Path, deployment: dict[str, Any]) -> None:
        """A namespace of this name is anybody's until then."""
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        assert not [entry for entry in container["env"] if entry["name"] == "MUSTER_CHECKER_NAMESPACE"]
        assert Settings().checker_namespace == ""
        patch = yaml.safe_load((root / "manifests/components/checkers/trust.yaml").read_text())
        assert {patch["metadata"][name] for name in ("name", "namespace")} == {
            deployment["metadata"][name] for name in ("name", "namespace")
        }
        (patched,) = patch["spec"]["template"]["spec"]["containers"]
        assert patched == {
            "name": container["name"],
            "env": [{"name": "MUSTER_CHECKER_NAMESPACE", "value": CHECKER}],
        }

    def test_all_of_it_is_in_a_namespace_of_its_own_and_has_no_rights(self, parts: Manifests) -> None:
        kinds = sorted(part["kind"] for part in parts)
        assert kinds == ["DaemonSet", "Namespace", "NetworkPolicy", "ServiceAccount"]
        assert {part["metadata"].get("namespace", CHECKER) for part in parts} == {CHECKER}
        assert {part["metadata"]["name"] for part in parts} == {CHECKER}
        (namespace,) = of_kind(parts, "Namespace")
        modes = ("enforce", "audit", "warn")
        assert {namespace["metadata"]["labels"][f"pod-security.kubernetes.io/{mode}"] for mode in modes} == {
            "privileged"
        }
        label = {"app.kubernetes.io/component": "checker"}
        assert [part for part in parts if label.items() <= part["metadata"]["labels"].items()] == parts

    def test_its_environment_is_one_that_it_takes(self, pod: dict[str, Any], installed: Manifests) -> None:
        (container,) = pod["containers"]
        environment = {entry["name"]: entry.get("value", "10.0.0.1") for entry in container["env"]}
        settings = checker_settings.from_environment(environment)
        service = named(installed, "Service", COORDINATOR_SERVICE)
        namespace = service["metadata"]["namespace"]
        assert settings.endpoint.port == service["spec"]["ports"][0]["port"]
        assert settings.endpoint.server_name in names_of(namespace)
        assert settings.address == "10.0.0.1"
        probe = container["livenessProbe"]["httpGet"]
        assert settings.listen == (probe["host"], probe["port"])
        places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert (places["run"], places["lib"]) == (settings.run_directory, settings.lib_directory)
        files = (settings.endpoint.token_file, settings.endpoint.ca_file)
        assert files == (f"{places['identity']}/token", f"{places['identity']}/ca.crt")

    def test_its_token_is_for_the_coordinator_alone(self, pod: dict[str, Any], parts: Manifests) -> None:
        (account,) = of_kind(parts, "ServiceAccount")
        assert account["automountServiceAccountToken"] is pod["automountServiceAccountToken"] is False
        (identity,) = [volume for volume in pod["volumes"] if volume["name"] == "identity"]
        token, trust = identity["projected"]["sources"]
        assert token["serviceAccountToken"]["audience"] == TOKEN_AUDIENCE
        assert "optional" not in trust["configMap"]  # the kubelet would bring it a minute late

    def test_it_sees_every_gpu_and_asks_for_none(self, pod: dict[str, Any]) -> None:
        (container,) = pod["containers"]
        assert set(container["resources"]) == {"requests"}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
        assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
        assert pod["hostNetwork"] is True
        assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"
        assert pod["tolerations"] == [{"operator": "Exists"}]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True

    def test_what_it_writes_is_gone_with_a_boot_or_stays(self, pod: dict[str, Any]) -> None:
        paths = {volume["name"]: volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume}
        assert paths == {
            "run": {"path": "/run/muster-check", "type": "DirectoryOrCreate"},
            "lib": {"path": "/var/lib/muster-check", "type": "DirectoryOrCreate"},
        }

    def test_the_overlay_sets_its_image_which_is_one_that_is_built(self, root: Path, pod: dict[str, Any]) -> None:
        (container,) = pod["containers"]
        name = container["image"].partition(":")[0]
        for overlay in ("burn-in", "jobs"):
            listed = yaml.safe_load((root / f"manifests/overlays/{overlay}/kustomization.yaml").read_text())
            assert [image["name"] for image in listed["images"]] == [name]
        assert short_name(name) in {image.name for image in IMAGES}
        assert container["command"] == ["python3", "-m", "muster.node.checker"]

    def test_the_page_names_every_variable_and_metric(self, root: Path) -> None:
        page = (root / "docs" / "burn-in.md").read_text()
        source = (root / "operator/muster/node/checker/settings.py").read_text()
        assert set(re.findall(r"MUSTER_[A-Z_]+", source)) == set(re.findall(r"MUSTER_[A-Z_]+", page))
        code = (root / "operator/muster/node/checker/checker.py").read_text()
        assert set(re.findall(r"muster_check_\w+", code)) == set(
            re.findall(r"^\| `(muster_check_\w+)`", page, re.MULTILINE)
        )


class TestWhatIsWrittenOnNodes:
    @pytest.mark.parametrize(
        ("component", "resource", "verbs"),
        [("node-condition", "nodes/status", ["patch"]), ("node-taint", "nodes", ["get", "patch"])],
    )
    def test_its_right_is_added_to_the_operator_only_where_an_overlay_has_it(
        self, root: Path, installed: Manifests, component: str, resource: str, verbs: list[str]
    ) -> None:
        folder = root / "manifests" / "components" / component
        assert yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"] == ["rights.yaml"]
        parts = list(yaml.safe_load_all((folder / "rights.yaml").read_text()))
        (role,) = of_kind(parts, "ClusterRole")
        (binding,) = of_kind(parts, "ClusterRoleBinding")
        assert role["rules"] == [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        (operators,) = (
            each for each in of_kind(installed, "ClusterRoleBinding") if each["metadata"]["name"] == "muster-operator"
        )
        assert binding["subjects"] == operators["subjects"]
        rules = [rule for each in of_kind(installed, "ClusterRole") if is_of_operator(each) for rule in each["rules"]]
        (nodes,) = (rule for rule in rules if not {"nodes", "nodes/status"}.isdisjoint(rule.get("resources", ())))
        assert set(nodes["verbs"]) == {"list", "watch"}


class TestThePage:
    @pytest.fixture
    def parts(self, root: Path) -> Manifests:
        """What the component brings."""
        return list(yaml.safe_load_all((root / "manifests/components/page/page.yaml").read_text()))

    def test_its_overlay_touches_nothing_that_is_installed(
        self, root: Path, parts: Manifests, installed: Manifests
    ) -> None:
        """The operator's image in particular: in another overlay, it would be the placeholder."""
        overlay = yaml.safe_load((root / "manifests/overlays/page/kustomization.yaml").read_text())
        assert overlay.keys() == {"apiVersion", "kind", "components", "images"}
        assert overlay["components"] == ["../../components/page"]
        component = yaml.safe_load((root / "manifests/components/page/kustomization.yaml").read_text())
        assert component.keys() == {"apiVersion", "kind", "resources"}

        def keys(objects: Manifests) -> set[tuple[str, str, str]]:
            return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects}

        assert keys(parts).isdisjoint(keys(installed))

    def test_it_is_left_out_unless_an_overlay_has_it(self, installed: Manifests) -> None:
        assert not [part for part in installed if part["kind"] not in ADMISSION and "muster-page" in str(part)]

    def test_it_can_only_look_and_ask_who_may_what(self, parts: Manifests) -> None:
        (role,) = of_kind(parts, "ClusterRole")
        rights = {(each, verb) for rule in role["rules"] for each in rule["resources"] for verb in rule["verbs"]}
        looked_at = ("trainingjobs", "nodehealths", "fleetpolicies", "nodes")
        asked = {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
        watched = {(each, verb) for each in looked_at for verb in ("list", "watch")}
        assert rights == asked | watched | {("endedjobs", "list"), ("configmaps", "get")}
        (hours,) = (rule for rule in role["rules"] if "configmaps" in rule["resources"])
        assert hours["resourceNames"] == ["muster-fleet-hours"]

    def test_nothing_else_is_in_the_namespace_where_readers_may_forward_ports(
        self, parts: Manifests, installed: Manifests
    ) -> None:
        assert {part["metadata"].get("namespace", "muster-page") for part in parts} == {"muster-page"}
        assert [part for part in installed if part["metadata"].get("namespace") == "muster-page"] == []
        (role,) = of_kind(parts, "Role")
        forwards = [rule for rule in role["rules"] if "pods/portforward" in rule["resources"]]
        assert [rule["verbs"] for rule in forwards] == [["create"]]
        (namespace,) = of_kind(parts, "Namespace")
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"

    def test_its_pod_is_restricted_and_its_ports_are_those_it_listens_at(self, parts: Manifests) -> None:
        (deployment,) = of_kind(parts, "Deployment")
        test_the_pods_are_restricted(deployment)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        settings = PageSettings.from_environment({})
        assert [port["containerPort"] for port in container["ports"]] == [settings.port, settings.probe_port]
        (policy,) = of_kind(parts, "NetworkPolicy")
        readers = [{"namespaceSelector": {"matchLabels": {"muster.dev/page": "enabled"}}}]
        assert let_in(policy) == {settings.port: readers, settings.probe_port: READERS_OF_METRICS}
        assert short_name(container["image"].partition(":")[0]) in {image.name for image in IMAGES}
        assert container["command"] == ["python3", "-m", "muster.page"]

    def test_the_page_of_the_docs_names_every_variable(self, root: Path) -> None:
        source = (root / "operator/muster/page/settings.py").read_text()
        page = (root / "docs/page.md").read_text()
        assert set(re.findall(r"MUSTER_[A-Z_]+", source)) == set(re.findall(r"MUSTER_[A-Z_]+", page))


class TestCertManager:
    """The component by which cert-manager issues the coordinator's certificate."""

    # Of cert-manager.io/v1 as its CustomResourceDefinitions say (deploy/crds in github.com/cert-manager/cert-manager).
    ISSUER = ("selfSigned", "ca")
    CERTIFICATE = (
        *("commonName", "dnsNames", "duration", "isCA", "issuerRef", "privateKey", "renewBefore", "secretName"),
        "usages",
    )
    KEY = ("algorithm", "size", "rotationPolicy")

    @pytest.fixture
    def parts(self, root: Path) -> Manifests:
        folder = root / "manifests" / "components" / "cert-manager"
        return list(yaml.safe_load_all((folder / "certificates.yaml").read_text()))

    def test_every_field_is_one_that_cert_manager_has(self, parts: Manifests) -> None:
        for part in parts:
            assert part["apiVersion"] == "cert-manager.io/v1"
            is_issuer = part["kind"] == "Issuer"
            assert set(part["spec"]) <= set(self.ISSUER if is_issuer else self.CERTIFICATE)
            if not is_issuer:
                assert set(part["spec"]["privateKey"]) == set(self.KEY)
                assert set(part["spec"]["issuerRef"]) == {"group", "kind", "name"}

    def test_the_certificate_is_the_one_that_the_operator_serves_with(self, parts: Manifests) -> None:
        spec = named(parts, "Certificate", SERVICE_NAME)["spec"]
        assert (spec["secretName"], tuple(spec["dnsNames"])) == (SECRET_NAME, names_of("muster-system"))
        assert spec["usages"] == ["digital signature", "server auth"]
        assert int(spec["duration"].removesuffix("h")) * 3600 == SERVING_LIFE.total_seconds()
        assert int(spec["renewBefore"].removesuffix("h")) * 3 == int(spec["duration"].removesuffix("h"))
        signer = named(parts, "Issuer", spec["issuerRef"]["name"])["spec"]["ca"]["secretName"]
        authority = named(parts, "Certificate", signer)["spec"]
        assert (authority["isCA"], authority["secretName"]) == (True, signer)
        assert authority["privateKey"]["rotationPolicy"] == "Never", "jobs that run for weeks trust the same key"
        assert named(parts, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}

    def test_the_operator_may_not_read_that_authoritys_key(self, parts: Manifests, installed: Manifests) -> None:
        signer = named(parts, "Issuer", SERVICE_NAME)["spec"]["ca"]["secretName"]
        rules = [rule for role in of_kind(installed, "Role") for rule in role["rules"]]
        secrets = [rule["resourceNames"] for rule in rules if "secrets" in rule["resources"] and "get" in rule["verbs"]]
        assert secrets == [[SECRET_NAME, AUTHORITY_SECRET_NAME]]
        assert signer not in secrets[0]

    def test_it_sets_who_issues_the_certificate(self, root: Path, deployment: dict[str, Any]) -> None:
        patch = yaml.safe_load((root / "manifests/components/cert-manager/issuer.yaml").read_text())
        assert patch["metadata"] == {key: deployment["metadata"][key] for key in ("name", "namespace")}
        (container,) = patch["spec"]["template"]["spec"]["containers"]
        assert container["name"] == deployment["spec"]["template"]["spec"]["containers"][0]["name"]
        (entry,) = container["env"]
        environment = {entry["name"]: entry["value"], "MUSTER_LAUNCHER_IMAGE": "it"}
        assert Settings.from_environment(environment).certificate_issuer == EXTERNAL_ISSUER
        with pytest.raises(SystemExit, match="give muster or external"):
            Settings.from_environment({**environment, entry["name"]: "other"})


def test_the_authoritys_key_is_read_by_the_operator_alone(installed: Manifests) -> None:
    readers = {
        role["metadata"]["name"]
        for role in of_kind(installed, "Role", "ClusterRole")
        for rule in role["rules"]
        if "secrets" in rule.get("resources", ()) and AUTHORITY_SECRET_NAME in rule.get("resourceNames", ())
    }
    assert readers == {"muster-operator-burn-in"}
    policy = named(installed, "ValidatingAdmissionPolicy", "muster-operator")
    assert f"secrets/muster-system/{AUTHORITY_SECRET_NAME}'" in str(policy)


def test_the_fleet_policy_of_a_new_installation_starts_no_job(root: Path, installed: list[dict[str, Any]]) -> None:
    """It is in no Kustomization, so that applying one again changes nothing that people have set since."""
    path = root / "manifests" / "fleetpolicy.yaml"
    policy = FleetPolicy.model_validate(yaml.safe_load(path.read_text()))
    assert policy.spec.queueing.limits_of(["team-a"]) == {"team-a": 0}
    answer = refusal(policy.spec, "team-a", {})
    assert answer is not None
    assert answer.remedy.endswith("kubectl label namespace team-a muster.dev/training=enabled")
    assert refusal(policy.spec, "team-a", {"muster.dev/training": "enabled"}) is None
    assert str(path.relative_to(root)) in NO_POLICY.remedy
    named = [kustomization.read_text() for kustomization in (root / "manifests").rglob("kustomization.yaml")]
    assert not any("fleetpolicy" in text for text in named)
    assert not [each for each in installed if each["kind"] == "FleetPolicy"]
