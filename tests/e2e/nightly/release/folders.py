"""The folders of a release of this commit and of the next version, made by the steps of docs/releasing.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from muster import __version__
from release.checks import git
from testbed.bed import ROOT

NEXT_VERSION = re.sub(r"\d+$", lambda number: str(int(number[0]) + 1), __version__)


def clone(tree: Path) -> None:
    """Make `tree` this commit and nothing else."""
    if not (ROOT / ".git").exists():
        pytest.skip("a release is made from a commit, and this tree has no history")
    commit = git(ROOT, "rev-parse", "HEAD")
    subprocess.run(["git", "clone", "--quiet", "--no-tags", "--no-checkout", str(ROOT), str(tree)], check=True)
    git(tree, "checkout", "--quiet", commit)


def set_next_version(tree: Path) -> None:
    """Make the commit that the next release is of."""
    own, changelog = tree / "operator" / "muster" / "__init__.py", tree / "CHANGELOG.md"
    own.write_text(own.read_text().replace(__version__, NEXT_VERSION))
    section = f"## {NEXT_VERSION}\n\nActions required: none.\n\n"
    changelog.write_text(changelog.read_text().replace(f"## {__version__}\n", f"{section}## {__version__}\n"))
    make(tree, "generate")
    who = ("-c", "user.name=Muster", "-c", "user.email=muster@muster.invalid")
    git(tree, *who, "commit", "--quiet", "--all", f"--message=Make the next version {NEXT_VERSION}")


def make_release(tree: Path, version: str) -> Path:
    make(tree, "release", f"VERSION={version}")
    return tree / "build" / "release"


def make(tree: Path, *arguments: str) -> None:
    subprocess.run(["make", "--no-print-directory", *arguments], cwd=tree, check=True)
