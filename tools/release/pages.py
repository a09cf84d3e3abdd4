"""The pages of a release: those that messages of Muster name, as `docs/install.md`, and what these pages lead to.

Tests: tests/unit/release/test_pages.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from release.checks import git

PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples", "manifests/gitops")


def write_pages(root: Path, folder: Path) -> None:
    """Copy what the repository has of the pages into `folder`, under the same names."""
    for name in git(root, "ls-files", "-z", *PAGES).rstrip("\0").split("\0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
