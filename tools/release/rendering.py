"""The manifests of a release: definitions, and one file for each profile, with images named by digest.

Tests: tests/integration/release/test_rendering.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from imagebuild.report import run_quietly
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


def write_manifests(root: Path, kubectl: Path, folder: Path, version: str, images: Mapping[str, ReleasedImage]) -> None:
    """Write every manifest of the release into `folder`.

    Args:
        root: the repository.
        kubectl: whose kustomize renders.
        folder: of the release.
        version: for the first lines.
        images: by their short names.
    """
    for name, source in DEFINITIONS.items():
        header = _DEFINITIONS_HEADER.format(version=version)
        (folder / name).write_text(header + _kustomize(kubectl, root / "manifests" / source, {}))
    is_unset = any(image.repository.startswith(NO_REGISTRY) for image in images.values())
    for name, overlay in OVERLAYS.items():
        header = _OVERLAY_HEADER.format(version=version, overlay=overlay)
        if is_unset:
            header += _REGISTRY_HEADER.format(registry=NO_REGISTRY)
        (folder / name).write_text(header + _kustomize(kubectl, root / "manifests/overlays" / overlay.folder, images))
    (folder / "fleetpolicy.yaml").write_text((root / "manifests/fleetpolicy.yaml").read_text())


def _kustomize(kubectl: Path, source: Path, images: Mapping[str, ReleasedImage]) -> str:
    """Return an overlay with these images in place of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(source, Path(scratch).resolve())],
            "images": [
                {
                    "name": f"{NO_REGISTRY}/{name}",
                    "newName": image.repository,
                    "newTag": image.tag,
                    "digest": image.digest,
                }
                for name, image in images.items()
            ],
        }
        Path(scratch, "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return run_quietly([str(kubectl), "kustomize", scratch])
