"""The version stands in the package alone; manifests, pages and metadata follow."""

import tomllib
from pathlib import Path

import pytest

from apidocs.version import versioned_files, with_version
from muster import __version__

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("image: muster.invalid/set/operator:0.1.0", f"image: muster.invalid/set/operator:{__version__}"),
        ("muster/launcher:9.9.9-rc.1@sha256:0a", f"muster/launcher:{__version__}@sha256:0a"),
        ("image: muster.invalid/set/uninstall:0.1.0", f"image: muster.invalid/set/uninstall:{__version__}"),
        ("    newTag: 1.0.0-rc1\n", f"    newTag: {__version__}\n"),
        ("with the fields of version 0.1.0.", f"with the fields of version {__version__}."),
        ("make release VERSION=0.1.0", f"make release VERSION={__version__}"),
        ("oci-archive:$file:1.2.3 docker:", f"oci-archive:$file:{__version__} docker:"),
        ("operator v0.1.0, launcher:dev and etcd:3.6.0", "operator v0.1.0, launcher:dev and etcd:3.6.0"),
    ],
)
def test_muster_s_own_version_is_written(before: str, after: str) -> None:
    assert with_version(before) == after


def test_manifests_and_pages_name_this_version() -> None:
    files = versioned_files(ROOT)
    assert {Path("manifests/base/agent.yaml"), Path("manifests/overlays/jobs/kustomization.yaml")} <= set(files)
    assert {path for path in files if path.suffix == ".md"} == {
        Path("docs/install.md"),
        Path("docs/cli.md"),
        Path("docs/releasing.md"),
    }
    stale = [str(path) for path, text in files.items() if (ROOT / path).read_text() != text]
    assert stale == [], "make generate"


def test_the_package_takes_its_version_from_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert "version" in project["project"]["dynamic"]
    assert (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text().count(f'__version__ = "{__version__}"') == 1
