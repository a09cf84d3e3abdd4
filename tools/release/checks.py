"""What must hold before anything is built: the version, the changelog, the tree and the tag belong together.

Tests: tests/unit/release/test_checks.py.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from muster import __version__

# semver.org, without build metadata: an image's tag has no "+".
_NUMBER = r"(?:0|[1-9]\d*)"
_IDENTIFIER = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_REGISTRY = re.compile(r"[a-z0-9]+(?:[.-]+[a-z0-9]+)*(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_IDENTIFIER}(?:\.{_IDENTIFIER})*)?")


class ReleaseError(Exception):
    """The release cannot be made; the message says what to do."""


def require_semantic(version: str) -> None:
    """Raise unless this is a semantic version."""
    if not _SEMVER.fullmatch(version):
        raise ReleaseError(f"version {version!r}: give a semantic version without a leading v, as 1.2.3 or 1.2.3-rc1")


def require_version(version: str, own: str = __version__) -> None:
    """Raise unless this is a semantic version, and the one of the tree."""
    require_semantic(version)
    if version != own:
        raise ReleaseError(
            f"VERSION={version}, and this tree is {own}: set __version__ in operator/muster/__init__.py, run "
            "`make generate`, and commit; or give the version of the tree"
        )


def require_registry(registry: str) -> None:
    """Raise unless images can have names that begin so."""
    if not _REGISTRY.fullmatch(registry):
        raise ReleaseError(
            f"REGISTRY={registry}: give host and path in small letters, as registry.example.org/muster, without "
            "https:// and without a slash at the end"
        )


def changelog_section(changelog: str, version: str) -> str:
    """Return the section of a version, with its heading.

    Raises:
        ReleaseError: there is none, or it is empty.
    """
    sections = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)
    for section in sections:
        heading, _, content = section.partition("\n")
        if heading.split() == ["##", version] and content.strip():
            return section.rstrip() + "\n"
    raise ReleaseError(f"CHANGELOG.md says nothing under the heading `## {version}`: write what is new, and commit")


def require_commit(commit: str | None) -> str:
    """Return the commit; None: the tree differs from it."""
    if commit is None:
        raise ReleaseError("the tree is not that of a commit: commit what `git status` shows, or move it away")
    return commit


def require_free_tag(root: Path, version: str, commit: str) -> None:
    """Raise if the tag of the version is of another commit."""
    tagged = git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/v{version}^{{commit}}", check=False)
    if tagged not in ("", commit):
        raise ReleaseError(
            f"the tag v{version} is of commit {tagged[:12]}, and this is {commit[:12]}: a published version never "
            "changes. Take the next version, or check the tag out"
        )


def git(root: Path, *arguments: str, check: bool = True) -> str:
    """Return what git prints, without white space at its ends."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, text=True).stdout.strip()
