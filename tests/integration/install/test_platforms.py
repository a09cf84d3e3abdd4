"""The patches that docs/platforms.md and docs/sizes.md show: kustomize renders them, and the API server takes the
result."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PATCHES = re.compile(r"^    patches:\n(?:(?:    .*)?\n)+", re.MULTILINE)
PAGES = ("platforms", "sizes")
OVERLAYS = ("jobs", "page")
INSTALLED = ("muster-system", "muster-agent")  # an object in another namespace is rendered and not sent


def shown() -> list[Any]:
    """Each list of patches, with the page and the heading above it as its name."""
    found = []
    for name in PAGES:
        text = (ROOT / "docs" / f"{name}.md").read_text()
        for match in PATCHES.finditer(text):
            heading = re.findall(r"^## (.*)$", text[: match.start()], re.MULTILINE)[-1]
            block = "\n".join(line.removeprefix("    ") for line in match[0].splitlines())
            found.append(pytest.param(yaml.safe_load(block)["patches"], id=f"{name}: {heading}"))
    return found


Key = tuple[str, str, str]


@pytest.mark.parametrize("patches", shown())
def test_a_patch_of_the_page_changes_what_it_names_and_is_accepted(
    installation: Any, tmp_path: Path, patches: list[Any]
) -> None:
    before, after = (rendered(installation, tmp_path, given) for given in ([], patches))
    changed = {key for key in after if after[key] != before[key]}
    for patch in patches:
        target = patch["target"]
        name = re.compile(target.get("name", ".*"))
        wanted = {key for key in before if key[0] == target["kind"] and name.fullmatch(key[2])}
        assert wanted
        assert wanted <= changed
    for key in changed:
        if key[1] in INSTALLED:
            installation.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(after[key]))


def rendered(installation: Any, folder: Path, patches: list[Any]) -> dict[Key, Any]:
    """The overlays with these patches, by kind, namespace and name."""
    overlays = [os.path.relpath(ROOT / "manifests" / "overlays" / name, folder.resolve()) for name in OVERLAYS]
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": overlays, "patches": patches}))
    objects = yaml.safe_load_all(installation.kubectl("kustomize", str(folder)))
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects}
