"""`make test-gpu`: a GPU that was there and cannot be opened any more, and a driver that cannot be talked to.

The devices are hidden from the agent alone: in a mount namespace of its own something that is no device lies on them.
Nothing of the machine is changed. Root, for the namespace and for the kernel log.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest
from tests.fakes.sink import Sink
from tests.gpu.test_real_gpu import ROOT, Agent, wait

from muster.api.nodehealth import VerdictState
from muster.node.agent import kinds

SOON = {"gpu.unreachable": 2.0, "nvml.failed": 2.0, "nvml.unloaded": 2.0, "nvml.retry_period": 1.0, "gpu.clear": 2.0}
"""What waits for minutes on a node."""
SEEN = {kinds.GPU_COUNT, kinds.GPU_LOST, kinds.GPU_UNREACHABLE, kinds.NVML_FAILED}
OUT = (VerdictState.DEGRADED, VerdictState.UNHEALTHY)


@dataclass
class Place:
    """What the agents of one test share: who hears them, and files."""

    sink: Sink
    folder: Path

    @contextmanager
    def agent(self, *hidden: str) -> Iterator[Agent]:
        """An agent that finds no device at these paths."""
        environment = {
            **os.environ,
            **self.sink.environment,
            "MUSTER_NODE": "here",
            "MUSTER_KERNEL_LOG": str(self.folder / "kmsg"),
            "MUSTER_THRESHOLDS": str(self.folder / "thresholds.json"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")]),
        }
        hide = [f"mount --bind '{self.folder / 'nothing'}' '{path}'" for path in hidden]
        script = " && ".join([*hide, f"exec '{sys.executable}' -m muster.node.agent"])
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        process = subprocess.Popen(command, env=environment)
        try:
            yield Agent(self.sink, self.folder / "kmsg")
            assert process.poll() is None, "the agent has ended: it needs root, for a mount namespace"
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) in (0, -15)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "kmsg").touch()
    (tmp_path / "nothing").touch()
    (tmp_path / "thresholds.json").write_text(json.dumps(SOON))
    return Place(Sink(tmp_path), tmp_path)


def device_of_the_first_gpu() -> str:
    pynvml.nvmlInit()
    try:
        return f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(pynvml.nvmlDeviceGetHandleByIndex(0))}"
    finally:
        pynvml.nvmlShutdown()


@pytest.mark.parametrize("what", ["its own device", "the driver's device"])
def test_a_gpu_that_was_there_and_is_hidden_is_seen_and_seen_to_come_back(what: str, place: Place) -> None:
    hidden = device_of_the_first_gpu() if what == "its own device" else "/dev/nvidiactl"
    with place.agent() as agent:
        wait("the GPUs are seen", lambda: agent.sink.status.get("agent", {}).get("gpus"))
        assert agent.sink.status["evidence"] == []
        gpus = agent.sink.status["agent"]["gpus"]
    with place.agent(hidden) as agent:
        wait("the GPU is missed", lambda: SEEN & {item["kind"] for item in agent.sink.status["evidence"]})
        print(hidden, agent.sink.status["agent"]["problem"], agent.sink.status["evidence"])
        assert agent.sink.status["agent"]["gpus"] < gpus
        assert agent.sink.status["agent"]["gpusExpected"] == gpus
        assert agent.verdict().conclusion.state in OUT
    with place.agent() as agent:
        wait("it is back", lambda: agent.sink.status["agent"]["gpus"] == gpus)
        wait("nothing stands against it", lambda: not agent.sink.status["evidence"])
        assert agent.verdict().conclusion.state is VerdictState.HEALTHY
