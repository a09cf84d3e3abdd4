"""Writes the version of the package where manifests and pages name it, so that a new one is set in one place.

Tests: tests/unit/apidocs/test_version.py.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from muster import __version__

_NAMED = re.compile(
    r"(?P<before>/(?:operator|agent|launcher|burn-in|uninstall):|newTag: |with the fields of version |VERSION=|\$(?:file|name):)"
    r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.]*[0-9A-Za-z])?"
)
_PAGES = ("docs/install.md", "docs/cli.md", "docs/releasing.md")


def with_version(text: str) -> str:
    """Replace each version of Muster in the text by the one of this tree."""
    return _NAMED.sub(rf"\g<before>{__version__}", text)


def versioned_files(root: Path) -> Mapping[Path, str]:
    """Every file that names the version, by its path in the repository, with what it has to hold."""
    paths = [*root.glob("manifests/**/*.yaml"), *(root / page for page in _PAGES)]
    texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in sorted(paths)}
    return {path: with_version(text) for path, text in texts.items() if _NAMED.search(text)}
