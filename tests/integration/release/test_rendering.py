"""The manifests of a release, rendered by kubectl: what an overlay has, with each image named by digest."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster import __version__
from release.images import NO_REGISTRY, SHIPPED, ReleasedImage
from release.rendering import DEFINITIONS, OVERLAYS, write_manifests

ROOT = Path(__file__).resolve().parents[3]


def render(folder: Path, registry: str) -> dict[str, str]:
    images = {name: ReleasedImage(f"{registry}/{name}", __version__, f"sha256:{name:0>64}") for name in SHIPPED}
    write_manifests(folder, __version__, images)
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return render(tmp_path_factory.mktemp("release"), "registry.example.org/muster")


def kinds_and_names(text: str) -> set[tuple[str, str]]:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def test_definitions_and_installation_share_nothing(rendered: dict[str, str]) -> None:
    assert set(rendered) == {*DEFINITIONS, *OVERLAYS, "fleetpolicy.yaml"}
    definitions = kinds_and_names(rendered["definitions.yaml"])
    assert ("Namespace", "muster-system") in definitions
    assert len([name for kind, name in definitions if kind == "CustomResourceDefinition"]) == 6
    for name in OVERLAYS:
        installed = kinds_and_names(rendered[name])
        assert not installed & definitions
        assert not [kind for kind, _ in installed if kind == "CustomResourceDefinition"]
    profiles = {
        name: {name for kind, name in kinds_and_names(rendered[name]) if kind in ("Deployment", "DaemonSet")}
        for name in OVERLAYS
    }
    assert profiles["install.yaml"] == profiles["install-observe.yaml"] == {"muster", "muster-agent"}
    assert profiles["install-jobs.yaml"] == {"muster", "muster-agent", "muster-check"}
    assert profiles["page.yaml"] == {"muster-page"}


def test_every_image_is_named_by_digest(rendered: dict[str, str]) -> None:
    for name in OVERLAYS:
        found = re.findall(r"(?:image|value): (\S+/(?:operator|agent|launcher|burn-in)\S*)", rendered[name])
        assert found, name
        for image in found:
            assert re.fullmatch(rf"registry\.example\.org/muster/([\w-]+):{__version__}@sha256:0*\1", image), image
    assert not [name for name, text in rendered.items() if NO_REGISTRY in text]


def test_a_release_without_a_registry_says_how_to_name_one(tmp_path: Path) -> None:
    texts = render(tmp_path, NO_REGISTRY)
    for name in OVERLAYS:
        (command,) = re.findall(r"sed -i 's#(\S+)#(\S+)#'", texts[name].partition("apiVersion")[0])
        assert texts[name].replace(*command).count(NO_REGISTRY) == 0
