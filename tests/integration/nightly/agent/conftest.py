"""The agent as a process of its own, beside the API server."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.nvml.build import library

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[4]
QUICK = {
    "nvml.fast_period": 0.2,
    "nvml.normal_period": 0.5,
    "nvml.start_deadline": 5.0,
    "nvml.clear": 1.0,
    "gpu.clear": 0.5,
    "infiniband.state_period": 0.2,
    "infiniband.clear": 0.5,
    "machine.period": 0.5,
    "write.check": 2.0,
    "write.counts": 2.0,
}


class AgentProcess:
    """`python -m muster.node.agent` on a node made of files."""

    def __init__(self, folder: Path, name: str, server: ControlPlane, kubectl: Callable[..., Any]) -> None:
        self.folder, self.name = folder, name
        self._server, self._kubectl = server, kubectl
        self._processes: list[subprocess.Popen[bytes]] = []
        for part in ("sys/class/infiniband", "proc/1"):
            (folder / part).mkdir(parents=True)
        (folder / "kmsg").touch()
        (folder / "boot_id").write_text("boot-1\n")
        (folder / "proc/1/mounts").write_text("")
        (folder / "thresholds").write_text(json.dumps(QUICK))
        (folder / "token").write_text(server.api.token)
        self.faults()

    def faults(self, *lines: str) -> None:
        new = self.folder / "control.new"
        new.write_text("".join(f"{line}\n" for line in ("gpus=8", *lines)))
        new.rename(self.folder / "control")

    def log(self, line: str) -> None:
        with (self.folder / "kmsg").open("a") as stream:
            stream.write(f"{line}\n")

    def start(self) -> "subprocess.Popen[bytes]":
        files = {"TOKEN_FILE": "token", "KERNEL_LOG": "kmsg", "SYSFS": "sys", "PROC": "proc"}
        files |= {"BOOT_ID_FILE": "boot_id", "MOUNTS_FILE": "proc/1/mounts", "THRESHOLDS": "thresholds"}
        environment = {
            **os.environ,
            **{f"MUSTER_{name}": str(self.folder / file) for name, file in files.items()},
            "MUSTER_NODE": self.name,
            "MUSTER_API_SERVER": self._server.server,
            "MUSTER_CA_FILE": str(self._server.pki.ca),
            "MUSTER_LISTEN": "127.0.0.1:0",
            "LD_LIBRARY_PATH": str(library()),
            "FAKE_NVML_CONTROL": str(self.folder / "control"),
            "PYTHONPATH": str(ROOT / "operator"),
        }
        with (self.folder / f"agent-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, "-m", "muster.node.agent"], env=environment, stderr=log)
        self._processes.append(process)
        return process

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            assert process.wait(PATIENCE_SECONDS) in (0, -15)

    def logged(self) -> list[dict[str, Any]]:
        lines = [line for path in sorted(self.folder.glob("agent-*.log")) for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def told(self, number: int) -> list[list[str]]:
        """The kinds of evidence in each write of its process with this number; -1 is the last one."""
        log = self.folder / f"agent-{range(len(self._processes))[number]}.log"
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        return [line["kinds"] for line in lines if line["event"] == "evidence written"]

    def object(self) -> dict[str, Any]:
        found = self._kubectl("get", "nodehealth", self.name, "-o", "json", "--show-managed-fields")
        return json.loads(found.stdout) if found.returncode == 0 else {}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.object().get("status", {})
        return found

    def kinds(self) -> list[str]:
        return sorted(item["kind"] for item in self.status().get("evidence", []))

    def wait(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        until = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < until, (self.object(), self.logged()[-5:])
            time.sleep(0.1)
        return result


@pytest.fixture
def make_agent(
    api_server: ControlPlane, kubectl: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[], AgentProcess]]:
    made: list[AgentProcess] = []

    def make() -> AgentProcess:
        name = f"node-{abs(hash(request.node.name)) % 10**8}-{len(made)}"
        (tmp_path / name).mkdir()
        made.append(AgentProcess(tmp_path / name, name, api_server, kubectl))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()
