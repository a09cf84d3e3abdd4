"""The manifests of a release: definitions, and one file for each profile, with images named by digest.

Tests: tests/integration/release/test_rendering.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from chart.kustomize import MANIFESTS, rendered
from release.images import NO_REGISTRY, ReleasedImage

DEFINITIONS = {
    "definitions.yaml": "definitions",
    "definitions-health.yaml": "definitions-health",
    "definitions-observe.yaml": "definitions-observe",
}


class Overlay(NamedTuple):
    """What an installation is made from."""

    folder: str
    definitions: str
    summary: str


OVERLAYS = {
    "install.yaml": Overlay("default", "definitions.yaml", "profile jobs, without checkers and rights to mark nodes"),
    "install-burn-in.yaml": Overlay("burn-in", "definitions-health.yaml", "profile burn-in"),
    "install-health.yaml": Overlay("health", "definitions-health.yaml", "profile health"),
    "install-jobs.yaml": Overlay("jobs", "definitions.yaml", "profile jobs, with checkers and rights to mark nodes"),
    "install-observe.yaml": Overlay("observe", "definitions-observe.yaml", "profile observe"),
    "page.yaml": Overlay("page", "one of the others", "the page for browsers, beside what is installed"),
}
_DEFINITIONS_HEADER = """\
# Muster {version}: the definitions, and the namespace muster-system. They are an installation of their own: with them
# Kubernetes deletes all jobs, records and the history. Delete them to remove Muster for good, and never otherwise.
"""
_OVERLAY_HEADER = """\
# Muster {version}: {overlay.summary}. Apply {overlay.definitions} first.
# This file has no definitions: deleting it takes the operator alone, and no job, record or history.
"""
_REGISTRY_HEADER = """\
# No node pulls these images before you name the registry that has them (images.txt, images/):
#   sed -i 's#{registry}#registry.example.org/muster#' *.yaml images.txt
"""


def write_manifests(folder: Path, version: str, images: Mapping[str, ReleasedImage]) -> None:
    """Write every manifest of the release into `folder`.

    Args:
        folder: of the release.
        version: for the first lines.
        images: by their short names.
    """
    for name, source in DEFINITIONS.items():
        header = _DEFINITIONS_HEADER.format(version=version)
        (folder / name).write_text(header + rendered([source]))
    is_unset = any(image.repository.startswith(NO_REGISTRY) for image in images.values())
    released = [
        {"name": f"{NO_REGISTRY}/{name}", "newName": it.repository, "newTag": it.tag, "digest": it.digest}
        for name, it in images.items()
    ]
    for name, overlay in OVERLAYS.items():
        header = _OVERLAY_HEADER.format(version=version, overlay=overlay)
        if is_unset:
            header += _REGISTRY_HEADER.format(registry=NO_REGISTRY)
        (folder / name).write_text(header + rendered([f"overlays/{overlay.folder}"], images=released))
    shutil.copyfile(MANIFESTS / "fleetpolicy.yaml", folder / "fleetpolicy.yaml")
