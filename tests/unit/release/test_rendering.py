"""What Muster's messages name for a release, and for the chart, is there."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.api.installation import InstallationProfile, name_component
from release.rendering import DEFINITIONS, OVERLAYS

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
NAMED = re.compile(r"manifests/components/(.+) \(in the chart: ([\w.]+)(?:: jobs)?(?:; in a release: (.+))?\)")


@pytest.mark.parametrize("profile", InstallationProfile)
def test_a_command_names_files_of_the_release(profile: InstallationProfile) -> None:
    of_definitions = profile.definitions_command.rpartition(" ")[2].removesuffix(")")
    assert DEFINITIONS[of_definitions] == profile.definitions
    overlay = OVERLAYS[profile.overlay_command.rpartition(" ")[2].removesuffix(")")]
    assert (overlay.folder, overlay.definitions) == (profile.overlay, of_definitions)


@pytest.mark.parametrize(
    "component", ["cert-manager", "checkers", "jobs", "monitoring", "node-condition", "node-taint"]
)
def test_a_component_is_in_the_chart_and_in_the_file_that_are_named(component: str) -> None:
    named = NAMED.fullmatch(name_component(component))
    assert named is not None
    folder, value, file = named.groups()
    assert (MANIFESTS / "components" / folder).is_dir()
    found = yaml.safe_load((MANIFESTS / "chart/muster/values.yaml").read_text())
    for name in value.split("."):
        found = found[name]
    having = {name for name, overlay in OVERLAYS.items() if component in components(overlay.folder)}
    assert having >= {file} if file else not having


def components(overlay: str) -> set[str]:
    """The components of an overlay, with those of the overlays below it."""
    path = MANIFESTS / "overlays" / overlay / "kustomization.yaml"
    made: dict[str, Any] = yaml.safe_load(path.read_text()) if path.exists() else {}
    below = (components(Path(each).name) for each in made.get("resources", ()))
    return {Path(each).name for each in made.get("components", ())}.union(*below)
