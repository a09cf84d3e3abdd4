"""The charts as a release has them, and Helm to try them with."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from chart.charts import Files, charts, packed
from localcluster.build import HELM, extra
from localcluster.patience import PATIENCE_SECONDS

VERSION = "0.2.0"
IMAGES = {
    name: f"registry.example.org/muster/{name}@sha256:{str(digit) * 64}"
    for digit, name in enumerate(("operator", "agent", "launcher", "burn-in"))
}
Helm = Callable[..., "subprocess.CompletedProcess[str]"]


def helm_of(folder: Path, kubeconfig: Path | None = None) -> Helm:
    """`helm(*arguments)`; the caller judges the result. Without a kubeconfig it has no cluster."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig or folder / "none"),
    }
    program = str(extra(HELM) / "helm")

    def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    return helm


def release(folder: Path, images: Mapping[str, str] = IMAGES) -> dict[str, Path]:
    """Both charts, packed into a folder."""
    return {name: archive(folder, name, files) for name, files in charts(VERSION, images).items()}


def archive(folder: Path, name: str, files: Files) -> Path:
    """One chart of these files."""
    path = folder / f"{name}.tgz"
    path.write_bytes(packed(name, files))
    return path
