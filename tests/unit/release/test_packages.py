"""`kubectl muster` as a release has it."""

import pytest
import yaml

from release.packages import (
    COMMAND,
    PLATFORMS,
    PYTHONS,
    archive_name,
    complete_platform,
    krew_manifest,
)


def test_krew_finds_the_archive_of_each_platform() -> None:
    manifest = yaml.safe_load(krew_manifest("1.0.0-rc1", {name: name * 4 for name in PLATFORMS}))
    assert manifest["spec"]["version"] == "v1.0.0-rc1"
    found = {
        "-".join(entry["selector"]["matchLabels"][label] for label in ("os", "arch")): entry
        for entry in manifest["spec"]["platforms"]
    }
    assert set(found) == {"linux-amd64", "linux-arm64", "darwin-arm64"}
    for name, entry in found.items():
        assert entry["uri"] == f"https://muster.invalid/v1.0.0-rc1/{COMMAND}-{name}.tar.gz"
        assert (entry["sha256"], entry["bin"]) == (name * 4, COMMAND)
    assert "It needs Python 3.11 to 3.14" in manifest["spec"]["caveats"]


# Names of wheels in requirements/cli.txt, for each platform.
@pytest.mark.parametrize(
    ("platform", "minor", "tag"),
    [
        ("linux-amd64", 11, "cp311-cp311-manylinux_2_17_x86_64"),
        ("linux-amd64", 14, "cp314-cp314-manylinux_2_28_x86_64"),
        ("linux-amd64", 13, "cp311-abi3-manylinux_2_34_x86_64"),
        ("linux-arm64", 12, "cp312-cp312-manylinux2014_aarch64"),
        ("darwin-arm64", 13, "cp313-cp313-macosx_10_13_universal2"),
        ("darwin-arm64", 11, "cp311-cp311-macosx_11_0_arm64"),
    ],
)
def test_a_platform_takes_its_wheels(platform: str, minor: int, tag: str) -> None:
    tags = complete_platform(PLATFORMS[platform], minor)["compatible_tags"]
    assert tag in tags
    assert tags[-1] == "py3-none-any"
    assert not [other for other in tags if f"cp3{minor + 1}" in other], "nothing of a later Python"


def test_archives_are_named_by_platform() -> None:
    assert {archive_name(name) for name in PLATFORMS} == {f"kubectl-muster-{name}.tar.gz" for name in PLATFORMS}
    assert len(PYTHONS) == PYTHONS[-1] - PYTHONS[0] + 1
