"""Find the kubeconfig, context and namespace of a command, by kubectl's rules.

The client itself reads credentials from the same files; it does not return the context's namespace, and its errors are
not for people.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from muster.cli.errors import CliError

IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster and namespace of a command.

    Attributes:
        files: kubeconfig files as in KUBECONFIG; "" for the credentials that a pod has.
        context: its name; "" in a pod.
        namespace: the context's.
        user: the context's name for its user; "" in a pod.
    """

    files: str
    context: str
    namespace: str
    user: str = ""


def find(
    kubeconfig: str | None, context: str | None, environ: Mapping[str, str] = os.environ, in_pod: Path = IN_POD
) -> Target:
    """Return the target of these options and this environment.

    Raises:
        CliError: no kubeconfig, one that cannot be read, or no such context.
    """
    files = kubeconfig or environ.get("KUBECONFIG", "")
    if not files and (in_pod / "token").exists():
        namespace = in_pod / "namespace"
        return Target("", "", namespace.read_text().strip() if namespace.exists() else "default")
    files = files or str(Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config")
    configs = [_read(Path(file)) for file in files.split(os.pathsep) if file and Path(file).exists()]
    if not configs:
        raise CliError(f"there is no kubeconfig at {files}: set KUBECONFIG or give --kubeconfig FILE")
    # Of several files the first that sets a value wins.
    contexts: dict[str, Mapping[str, Any]] = {}
    for config in configs:
        for entry in config.get("contexts") or ():
            contexts.setdefault(str(entry.get("name")), entry.get("context") or {})
    wanted = context or next((c["current-context"] for c in configs if c.get("current-context")), "")
    context_names = ", ".join(sorted(contexts)) or "none"
    if not wanted:
        raise CliError(f"{files} has no current context: give --context NAME ({context_names})")
    if wanted not in contexts:
        raise CliError(f"{files} has no context {wanted!r}: give --context NAME ({context_names})")
    chosen = contexts[wanted]
    return Target(files, wanted, str(chosen.get("namespace") or "default"), str(chosen.get("user") or ""))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CliError(f"the kubeconfig {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict) or not all(isinstance(e, dict) for e in config.get("contexts") or ()):
        raise CliError(f"{path} is no kubeconfig: set KUBECONFIG or give --kubeconfig FILE")
    return config
