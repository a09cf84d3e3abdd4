"""Has kustomize render folders of manifests/ together.

Tests: tests/integration/chart/test_chart.py, tests/integration/release/test_rendering.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from imagebuild.report import run_quietly
from localcluster.build import binaries

MANIFESTS = Path(__file__).parents[2] / "manifests"


def rendered(
    resources: Sequence[str] = (), components: Sequence[str] = (), images: Sequence[dict[str, str]] = ()
) -> str:
    """The documents of these folders of manifests/, as text.

    Args:
        resources: folders, e.g. overlays/default.
        components: folders that change what the others have, in their order.
        images: entries of kustomize's `images`.

    Raises:
        BuildError: kustomize refuses it; has what it says.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        kustomization: dict[str, Any] = {
            "resources": [os.path.relpath(MANIFESTS / name, folder) for name in resources],
            "components": [os.path.relpath(MANIFESTS / name, folder) for name in components],
            "images": [*images],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return run_quietly([str(binaries() / "kubectl"), "kustomize", made])
