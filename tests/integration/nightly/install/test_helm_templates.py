"""What Helm renders is what kustomize renders, for every profile and option, and wrong values are refused in words."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.nightly.install.charts import IMAGES, VERSION, Helm, helm_of, release

from chart.kustomize import MANIFESTS
from chart.merge import in_order
from chart.values import UNSET
from chart.variants import PROFILES, Document, Variant, definitions, documents, variants
from muster import __version__
from muster.health.sources import UNHEALTHY_TAINT

RELEASED = IMAGES | {"uninstall": IMAGES["operator"]}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return helm_of(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return release(tmp_path_factory.mktemp("charts"))


def rendered(helm: Helm, package: Path, *arguments: str) -> list[str]:
    done = helm("template", "muster", str(package), "--namespace=muster-system", *arguments)
    assert done.returncode == 0, done.stderr
    return comparable(yaml.safe_load_all(done.stdout))


def comparable(documents: Iterable[Document]) -> list[str]:
    return sorted(json.dumps(in_order(each), sort_keys=True) for each in documents if each)


def with_released_images(documents: Iterable[Document]) -> Any:
    text = json.dumps(list(documents))
    for name, reference in RELEASED.items():
        by_tag_and_digest = reference.replace("@", f":{VERSION}@")
        text = text.replace(f'"{UNSET}{name}:{__version__}"', json.dumps(by_tag_and_digest))
    return json.loads(text)


def values_of(variant: Variant) -> list[str]:
    enabled = {
        "nodeMarks": variant.node_marks,
        "checkers": variant.checkers,
        "page": variant.page,
        "monitoring": variant.monitoring,
        "certManager": variant.cert_manager,
    }
    return [
        f"--set=profile={variant.profile}",
        *(f"--set={name}.enabled={json.dumps(it)}" for name, it in enabled.items()),
    ]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_variant_is_what_kustomize_renders(helm: Helm, packages: dict[str, Path], profile: str) -> None:
    chosen = [each for each in variants() if each.profile == profile]
    assert len(chosen) >= 16
    for variant in chosen:
        expected = comparable(with_released_images(documents(variant)))
        assert rendered(helm, packages["muster"], *values_of(variant)) == expected, variant


@pytest.mark.parametrize("profile", PROFILES)
def test_the_definitions_are_those_of_the_profile(helm: Helm, packages: dict[str, Path], profile: str) -> None:
    expected = comparable(definitions(Variant(profile)))
    assert rendered(helm, packages["muster-definitions"], f"--set=profile={profile}") == expected


@pytest.mark.parametrize("chart", ["muster", "muster-definitions"])
def test_lint_has_nothing_to_say(helm: Helm, packages: dict[str, Path], chart: str) -> None:
    done = helm("lint", "--strict", "--namespace=muster-system", str(packages[chart]))
    assert (done.returncode, "0 chart(s) failed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "WARN" not in done.stdout + done.stderr
    assert "ERROR" not in done.stdout + done.stderr


MISTAKES = {
    "a profile that there is not": (
        ["profile=burnin"],
        "at '/profile': value must be one of 'observe', 'health', 'burn-in', 'jobs'",
    ),
    "no profile": (["profile=null"], "missing property 'profile'"),
    "no part of the values": (["operator=null"], "missing property 'operator'"),
    "an option without its switch": (["nodeMarks.enabled=null"], "at '/nodeMarks': missing property 'enabled'"),
    "no registry": (["images.registry=null"], "at '/images': missing property 'registry'"),
    "the tag latest": (
        ["images.operator.digest=", "images.operator.tag=latest"],
        "images.operator.tag: latest is another image tomorrow: set the digest, or the tag of a version",
    ),
    "no digest": (
        ["images.launcher.digest="],
        "images.launcher has neither digest nor tag: set the digest that your registry shows for the image",
    ),
    "a repository with a tag": (
        ["images.operator.repository=team/operator:0.2.0"],
        "images.operator.repository: team/operator:0.2.0 has a tag: set images.operator.tag and an empty digest",
    ),
    "a repository with a digest": (
        ["images.agent.repository=agent:0.2.0@sha256:" + "0" * 64],
        f"images.agent.repository: agent:0.2.0@sha256:{'0' * 64} has a digest: set images.agent.digest",
    ),
    "a repository with its registry": (
        ["images.operator.repository=registry.example.org:5000/operator"],
        'images.operator.repository: "registry.example.org:5000/operator" is no name behind a registry',
    ),
    "a repository that begins with a slash": (
        ["images.operator.repository=/operator"],
        'images.operator.repository: "/operator" is no name behind a registry: small letters, without its registry',
    ),
    "a tag beside the digest of the release": (
        ["images.operator.tag=0.2.0"],
        'images.operator has a digest and a tag: leave tag out to pull by digest, or set digest to "" to pull by tag',
    ),
    "a digest without its algorithm": (
        ["images.operator.digest=abc"],
        "images.operator.digest: abc is no digest, which is sha256: and 64 hexadecimal digits",
    ),
    "a tag of the image that removes marks, without its name": (
        ["images.uninstall.tag=0.2.0"],
        "images.uninstall.repository is empty: name the image, without its registry",
    ),
    "a digest of the image that removes marks, without its name": (
        ["images.uninstall.digest=sha256:" + "0" * 64],
        "images.uninstall.repository is empty: name the image, without its registry",
    ),
    "a URL as registry": (
        ["images.registry=https://registry.example.org"],
        "images.registry: https://registry.example.org is a URL: leave the part before and with :// out",
    ),
    "a registry in capitals": (
        ["images.registry=registry.example.org/Muster"],
        'images.registry: "registry.example.org/Muster" is no host with a path: small letters, without spaces and',
    ),
    "a registry with a tag": (
        ["images.registry=registry.example.org/muster:0.2"],
        'images.registry: "registry.example.org/muster:0.2" is no host with a path',
    ),
    "no replica": (["operator.replicas=0"], "at '/operator/replicas': minimum: got 0, want 1"),
    "a key in other case": (
        ["operator.nodeselector.a=b"],
        "at '/operator': additional properties 'nodeselector' not allowed",
    ),
    "pull secrets as names": (["imagePullSecrets={regcred}"], "at '/imagePullSecrets/0': value must be 'name: SECRET'"),
    "checkers in a profile that tests nothing": (
        ["profile=health", "checkers.enabled=true"],
        "checkers.enabled: profile health tests no nodes: set profile to burn-in or jobs, or checkers.enabled to false",
    ),
    "burn-in without checkers": (
        ["profile=burn-in"],
        "checkers.enabled: profile burn-in is for checkers: set it to true",
    ),
    "an option that is no object": (
        ["monitoring=true"],
        "at '/monitoring': value must be one of 'enabled: true', 'enabled: false'",
    ),
    "a part with more values that is no object": (
        ["page=false"],
        "at '/page': value must be one of 'enabled: true', 'enabled: false'",
    ),
    "a quantity as people write it": (
        ["operator.resources.limits.memory=2GB"],
        "at '/operator/resources/limits/memory': '2GB' does not match pattern "
        "'^[0-9]+([.][0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$'",
    ),
    "thousandths of a byte": (
        ["agent.resources.limits.memory=512m"],
        "at '/agent/resources/limits/memory': '512m' does not match pattern",
    ),
    "a resource that there is not": (
        ["page.resources.limits.memroy=2Gi"],
        "at '/page/resources/limits': additional properties 'memroy' not allowed",
    ),
    "values of another version, as --reuse-values keeps them": (
        ["version=0.1.0"],
        "version: these values, with the digests of their images, are of 0.1.0, and the chart is of 0.2.0: "
        "upgrade with --reset-then-reuse-values, not --reuse-values",
    ),
    "another namespace": (
        ["--namespace=training"],
        "namespace training: Muster runs in muster-system, which its roles and policies name: "
        "add --namespace muster-system",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_its_remedy(helm: Helm, packages: dict[str, Path], mistake: str) -> None:
    values, words = MISTAKES[mistake]
    arguments = [value if value.startswith("--") else f"--set={value}" for value in values]
    done = helm("template", "muster", str(packages["muster"]), "--namespace=muster-system", *arguments)
    assert done.returncode != 0
    assert words in done.stderr


def test_keys_of_other_charts_are_refused_with_those_of_this_one(helm: Helm, packages: dict[str, Path]) -> None:
    remedies = json.loads((MANIFESTS / "chart/muster/values.schema.json").read_text())["dependencies"]
    assert len(remedies) == 10
    done = helm(
        *("template", "muster", str(packages["muster"]), "--namespace=muster-system"),
        *(f"--set={key}.any=1" for key in remedies),
    )
    assert done.returncode != 0
    for key, (remedy,) in remedies.items():
        assert f"at '': properties '{remedy}' required, if '{key}' exists" in done.stderr


RESOURCES = {"cpu": "100m", "memory": 2**30, "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": 1}


def test_every_resource_of_kubernetes_can_be_set(helm: Helm, packages: dict[str, Path]) -> None:
    values = f"--set-json=agent.resources.limits={json.dumps(RESOURCES)}"
    (agent,) = (it for it in map(json.loads, rendered(helm, packages["muster"], values)) if it["kind"] == "DaemonSet")
    assert agent["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == RESOURCES


def test_images_can_be_pulled_by_tag_and_from_a_mirror_with_a_path(helm: Helm, packages: dict[str, Path]) -> None:
    values = ["images.registry=mirror.example.org:5000/m", "images.operator.digest=", "images.operator.tag=0.2.0-own"]
    text = "\n".join(rendered(helm, packages["muster"], *(f"--set={value}" for value in values)))
    assert '"image": "mirror.example.org:5000/m/operator:0.2.0-own"' in text
    digest = IMAGES["launcher"].partition("@")[2]
    assert f'"value": "mirror.example.org:5000/m/launcher:{VERSION}@{digest}"' in text


def test_the_hook_is_placed_as_the_operator_and_on_marked_nodes(helm: Helm, packages: dict[str, Path]) -> None:
    chosen: dict[str, Any] = {
        "nodeSelector": {"arch": "amd64"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}, "podAntiAffinity": None},
        "priorityClassName": "training-infrastructure",
    }
    texts = rendered(helm, packages["muster"], *(f"--set-json=operator.{it}={json.dumps(chosen[it])}" for it in chosen))
    placed = {
        each["metadata"]["name"]: {name: each["spec"]["template"]["spec"].get(name) for name in chosen}
        for each in map(json.loads, texts)
        if each["kind"] in ("Deployment", "Job")
    }
    operator = {**chosen, "affinity": {"nodeAffinity": chosen["affinity"]["nodeAffinity"]}}
    marked = {"key": UNHEALTHY_TAINT, "operator": "Exists"}
    assert placed == {
        "muster": operator,
        "muster-uninstall": {**operator, "tolerations": [marked, *chosen["tolerations"]]},
    }


def test_the_page_is_placed_and_sized_by_values(helm: Helm, packages: dict[str, Path]) -> None:
    placed = {
        "nodeSelector": {"arch": "amd64"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    }
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": None, "memory": "3Gi"}}
    page = json.dumps({"enabled": True, "resources": resources, **placed})
    texts = rendered(helm, packages["muster"], f"--set-json=page={page}")
    deployments = {it["metadata"]["name"]: it for it in map(json.loads, texts) if it["kind"] == "Deployment"}
    pod = deployments["muster-page"]["spec"]["template"]["spec"]
    assert placed.items() <= pod.items()
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "128Mi"},
        "limits": {"memory": "3Gi"},
    }


@pytest.mark.parametrize(("enabled", "is_there"), [("true", True), ("false", False)])
def test_a_parent_chart_has_them_by_conditions(
    helm: Helm, packages: dict[str, Path], tmp_path: Path, enabled: str, is_there: bool
) -> None:
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    dependencies = [{"name": it, "version": VERSION, "condition": f"{it}.enabled"} for it in packages]
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": dependencies}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
    for name, package in packages.items():
        (parent / "charts" / f"{name}.tgz").write_bytes(package.read_bytes())
    values = ["global.registry=x", *(f"{name}.enabled={enabled}" for name in packages)]
    texts = rendered(helm, parent, *(f"--set={value}" for value in values))
    kinds = {json.loads(each)["kind"] for each in texts}
    assert ("Deployment" in kinds, "CustomResourceDefinition" in kinds) == (is_there, is_there)


def test_every_account_names_the_pull_secrets(helm: Helm, packages: dict[str, Path]) -> None:
    everything = Variant("jobs", node_marks=True, checkers=True, page=True)
    texts = rendered(helm, packages["muster"], *values_of(everything), "--set=imagePullSecrets[0].name=regcred")
    accounts = [each for each in map(json.loads, texts) if each["kind"] == "ServiceAccount"]
    assert {each["metadata"]["name"] for each in accounts} == {
        *("muster", "muster-agent", "muster-check", "muster-page", "muster-uninstall")
    }
    assert all(each["imagePullSecrets"] == [{"name": "regcred"}] for each in accounts)
    users = {
        each["spec"]["template"]["spec"]["serviceAccountName"]
        for each in map(json.loads, texts)
        if each["kind"] in ("Deployment", "DaemonSet", "Job")
    }
    assert users == {each["metadata"]["name"] for each in accounts}
