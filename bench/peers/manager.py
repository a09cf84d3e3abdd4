"""A manager that usually runs in the cluster, run beside it: its process, and its webhooks pointed at this machine."""

from __future__ import annotations

import base64
import http.client
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.api import Object
from bench.bed import Bed
from localcluster.api import wait_for
from localcluster.errors import LocalClusterError
from localcluster.processes import kill, log_tail, spawn

HOST = "127.0.0.1"
_READY_SECONDS = 60.0
_ANSWER_SECONDS = 5.0


class Manager:
    """One process; it dies with this one."""

    def __init__(self, bed: Bed, name: str) -> None:
        self.name = name
        self.folder = bed.cluster.directory / name
        self.folder.mkdir(exist_ok=True)
        self._log = bed.cluster.directory / "logs" / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise LocalClusterError(f"{self.name} does not run: start it first")
        return self._process.pid

    def start(self, command: Sequence[str], ready_port: int, environment: Mapping[str, str] | None = None) -> None:
        """Start it and wait until /readyz on a port says that it is ready."""
        process = self._process = spawn(command, self._log, environment=environment, folder=self.folder)

        def ready() -> bool:
            if process.poll() is not None:
                raise LocalClusterError(f"{self.name} ended at its start; its log says:\n{log_tail(self._log)}")
            return _answers(ready_port, "/readyz")

        wait_for(ready, f"{self.name} ready", _READY_SECONDS)

    def stop(self) -> None:
        """End it; nothing when it does not run."""
        if self._process is not None:
            kill(self._process)
            self._process = None


def _answers(port: int, path: str) -> bool:
    """Whether a port of this machine answers over plain HTTP with success."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def serving_pair(bed: Bed, folder: Path) -> Path:
    """The folder, with a certificate for this machine and its key under the names that managers look for."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(bed.cluster.pki.serving, folder / "tls.crt")
    shutil.copy(bed.cluster.pki.serving_key, folder / "tls.key")
    return folder


def client_config(bed: Bed, port: int, path: str) -> Object:
    """Where the API server finds a webhook, in place of a Service."""
    bundle = base64.b64encode(bed.cluster.pki.ca.read_bytes()).decode()
    return {"url": f"https://{HOST}:{port}{path}", "caBundle": bundle}


def pointed_here(bed: Bed, name: str, port: int, configurations: Sequence[Object]) -> list[Object]:
    """Webhook configurations of the project `name`, as its kustomization names them, served on this machine's
    `port`."""
    for configuration in configurations:
        configuration["metadata"]["name"] = f"{name}-{configuration['metadata']['name']}"
        for webhook in configuration["webhooks"]:
            webhook["clientConfig"] = client_config(bed, port, webhook["clientConfig"]["service"]["path"])
    return list(configurations)


def remove_webhooks(bed: Bed, configurations: Sequence[Object]) -> None:
    """Delete webhook configurations, so that nobody waits for a manager that is gone."""
    for configuration in configurations:
        plural = configuration["kind"].lower() + "s"
        bed.connection.delete(f"/apis/admissionregistration.k8s.io/v1/{plural}/{configuration['metadata']['name']}")
