"""kubectl as the administrator of a control plane."""

import subprocess
from collections.abc import Callable

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def kubectl_of(control_plane: ControlPlane) -> Kubectl:
    """`kubectl(*arguments, stdin=None)`; the caller judges the result."""

    def kubectl(*arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                str(control_plane.kubectl),
                f"--kubeconfig={control_plane.kubeconfig}",
                # What it has learnt about a server is keyed by the address, which another session may have used.
                f"--cache-dir={control_plane.directory / 'kubectl-cache'}",
                *arguments,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    return kubectl
