"""Two releases, and someone who has their folders and a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nightly.release.folders import NEXT_VERSION, clone, make_release, set_next_version
from tests.e2e.nightly.release.stranger import NAMESPACE, Stranger

from localcluster.build import HELM, extra
from muster import __version__
from supply.sign import find_cosign
from testbed.bed import Bed


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This commit and nothing else; a release of it takes gigabytes, and is not kept."""
    it = tmp_path_factory.mktemp("clone") / "muster"
    clone(it)
    yield it
    shutil.rmtree(it)


@pytest.fixture(scope="session")
def folder(tree: Path) -> Path:
    return make_release(tree, __version__)


@pytest.fixture(scope="session")
def next_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The release of one more commit, with the next version."""
    it = tmp_path_factory.mktemp("next") / "muster"
    clone(it)
    set_next_version(it)
    yield make_release(it, NEXT_VERSION)
    shutil.rmtree(it)


@pytest.fixture
def stranger(folder: Path, tmp_path: Path) -> Iterator[Stranger]:
    """It ends with a cluster that has nothing of Muster, whatever has failed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(extra(HELM) / "helm")
    (programs / "cosign").symlink_to(find_cosign())
    it = Stranger(folder, programs, Bed.open())
    yield it
    it.bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", check=False)
    it.run("helm", "uninstall", "muster", "-n", "muster-system", "--no-hooks", "--ignore-not-found", check=False)
    for name in ("install-jobs.yaml", "definitions.yaml"):
        it.bed.kubectl("delete", "-f", str(folder / name), "--ignore-not-found", check=False)
