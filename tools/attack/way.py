"""The operator's way to the API server, through the proxy, and what goes wrong on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from attack.proxy import Wrong
from localcluster.layout import API_PORT, CONTROL_PLANE_ADDRESS
from testbed.bed import ROOT, SYSTEM_NAMESPACE, Bed
from testbed.kube import wait_until

PORT = 6444
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class Way:
    """A running proxy."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._wrongs: list[Wrong] = []
        self._numbers = count(1)
        self._lock = threading.Lock()

    def begin(self, what: str, addresses: Sequence[str], resource: str, amount: float) -> Wrong:
        """Something goes wrong from now on."""
        with self._lock:
            wrong = Wrong(next(self._numbers), what, tuple(addresses), resource, amount)
            self._wrongs.append(wrong)
            self._send_wrongs()
            return wrong

    def end(self, wrong: Wrong) -> None:
        """And no more."""
        with self._lock:
            self._wrongs.remove(wrong)
            self._send_wrongs()

    def _send_wrongs(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([wrong.to_json() for wrong in self._wrongs]) + "\n")
        self._process.stdin.flush()
        self.expect("taken")

    def expect(self, word: str) -> None:
        """Wait until it says this.

        Raises:
            RuntimeError: it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"the fault proxy has ended; its log is {_log()}")


def _log() -> Path:
    return ROOT / "build" / "attack" / "proxy.log"


@contextmanager
def routed_through_proxy(bed: Bed) -> Iterator[Way]:
    """Every replica of the operator comes through the proxy, until this ends."""
    described = bed.cluster.describe()
    keys = Path(described["state"]) / "control-plane" / "pki"
    log = _log()
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *("nsenter", "--target", str(described["supervisor_pid"]), "--net", "--", sys.executable, "-m", "attack.proxy"),
        *(CONTROL_PLANE_ADDRESS, str(PORT), f"https://{CONTROL_PLANE_ADDRESS}:{API_PORT}"),
        *(str(keys / name) for name in ("ca.crt", "apiserver.crt", "apiserver.key")),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment["PYTHONPATH"] = str(ROOT / "tools")
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    try:
        way = Way(process)
        way.expect("ready")
        _point(bed, f"{_HOST}={CONTROL_PLANE_ADDRESS}", f"{_PORT}={PORT}")
        yield way
    finally:
        _point(bed, f"{_HOST}-", f"{_PORT}-")
        process.kill()
        process.wait()


def restore(bed: Bed) -> None:
    """Undo what a run left behind that was killed: operators that are pointed at a proxy which is no more."""
    found = bed.kubectl.find("get", "deployment", "muster", "-n", SYSTEM_NAMESPACE)
    containers = found["spec"]["template"]["spec"]["containers"] if found else []
    if any(variable["name"] == _HOST for container in containers for variable in container["env"]):
        _point(bed, f"{_HOST}-", f"{_PORT}-")


def _point(bed: Bed, *variables: str) -> None:
    bed.kubectl("set", "env", "deployment/muster", "-n", SYSTEM_NAMESPACE, *variables)
    bed.rolled_out("deployment/muster", SYSTEM_NAMESPACE)
    wait_until("a leader", bed.leader)
