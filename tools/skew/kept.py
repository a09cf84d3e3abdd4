"""The kept releases: versions whose objects and messages this version reads (docs/versions.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from release.checks import ReleaseError, git

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "data" / "releases"
LIST = FOLDER / "releases.json"


class NoHistoryError(Exception):
    """This clone does not have the commit of a release; the message says how to get it."""

    def __init__(self, commit: str) -> None:
        super().__init__(f"this clone has no commit {commit}: correct the hash, or git fetch --unshallow")


@dataclass(frozen=True)
class Release:
    """One kept release.

    Attributes:
        version: as its users know it.
        commit: of this repository.
        gone: what it wrote and this version does not keep, as `KIND: FIELD`, with the reason.
    """

    version: str
    commit: str
    gone: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """What it leaves behind, as `skew.record` writes it."""
        return FOLDER / f"{self.version}.json"

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    def tree(self) -> Path:
        """Return its tree, unpacked from the history.

        Raises:
            NoHistoryError: this clone does not have the commit.
        """
        tree = ROOT / "build" / "before" / self.commit
        if not tree.is_dir():
            tree.parent.mkdir(parents=True, exist_ok=True)
            packed = tree.with_suffix(".tar")
            command = ["git", "-C", str(ROOT), "archive", "--output", str(packed), self.commit]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            if answer.returncode != 0:
                raise NoHistoryError(self.commit)
            unpacking = tree.with_suffix(".unpacking")
            with tarfile.open(packed) as opened:
                opened.extractall(unpacking, filter="data")
            unpacking.rename(tree)
            packed.unlink()
        return tree

    def run(self, program: str, file: Path) -> str:
        """Run a program of this folder with the code of the release, and return what it prints."""
        tree = self.tree()
        paths = os.pathsep.join(str(tree / part) for part in ("operator", "tools"))
        command = [sys.executable, str(Path(__file__).with_name(f"{program}.py")), str(file)]
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
        return subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


RELEASES = [Release(**entry) for entry in json.loads(LIST.read_text())]


def keep(version: str, commit: str) -> Release:
    """Add a release to the list, with what it leaves behind.

    Raises:
        NoHistoryError: this clone does not have the commit.
        ReleaseError: it is not named by its full hash, which alone stays the same.
    """
    found = git(ROOT, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}", check=False)
    if not found:
        raise NoHistoryError(commit)
    if found != commit:
        raise ReleaseError(f"commit {commit}: give its full hash, {found}")
    release = Release(version, commit)
    release.run("record", release.file)
    entries = [entry for entry in json.loads(LIST.read_text()) if entry["version"] != version]
    LIST.write_text(json.dumps([*entries, {"version": version, "commit": commit}], indent=2) + "\n")
    return release
