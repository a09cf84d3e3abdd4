"""`make test-gpu`: the agent with the driver that is on this machine. Fails where there is none; nothing else runs it.

No setting of the GPU is changed, and no fault is made but that of a program. Root, for the kernel log.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.fakes.sink import Sink

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import NodeHealth, NodeHealthStatus, VerdictState
from muster.health.assess import assess
from muster.health.facts import NodeFacts
from muster.health.memory import MachineOffences
from muster.health.node_world import NodeWorld
from muster.health.sources import Rules
from muster.health.verdict import Verdict
from muster.node.agent.gpus import Gpus
from muster.node.agent.nvml_process import NvmlProcess
from muster.node.agent.thresholds import DEFAULTS
from muster.world.views import NodeView

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlProcess]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")]))
    process = NvmlProcess()
    assert process.start(time.monotonic())
    yield process
    process.close()


def ask(child: NvmlProcess, batch: str, seconds: float) -> tuple[dict[str, Any], float]:
    """The answer to a batch, and how long it took."""
    began = time.monotonic()
    child.ask(batch, began, seconds)
    while True:
        for message in child.read(time.monotonic()):
            if message.get("batch") == batch:
                return message["answer"], time.monotonic() - began
        late = child.hung(time.monotonic())
        assert late is None, f"{late} has not been answered"
        assert not child.has_ended(), "the child has ended"
        time.sleep(0.001)


def test_the_gpus_of_this_machine_are_seen_and_healthy(child: NvmlProcess) -> None:
    gpus = Gpus(DEFAULTS, None)
    answer, seconds = ask(child, "start", 60)
    assert "init_error" not in answer, answer
    print(f"start: {seconds * 1e3:.1f} ms")
    signals = list(gpus.started(answer))
    bad = set()
    for moment in range(5):
        for batch, read in (("fast", gpus.fast), ("slow", gpus.slow)):
            answer, seconds = ask(child, batch, 30)
            assert "errors" not in answer, answer
            print(f"{batch}: {seconds * 1e3:.1f} ms")
            signals += read(answer)
        answer, seconds = ask(child, "normal", 5)
        assert "errors" not in answer, answer
        print(f"normal: {seconds * 1e3:.1f} ms {answer if moment == 0 else ''}")
        signals += gpus.normal(answer, time.monotonic())
        bad |= {(signal.kind, signal.message) for signal in signals if signal.bad}
        time.sleep(1)
    assert gpus.answering >= 1
    assert gpus.driver
    assert len(set(gpus.names.values())) == gpus.answering  # the kernel log names each GPU, too, by its PCI address
    assert bad == set()


def test_events_can_be_waited_for() -> None:
    pynvml.nvmlInit()
    try:
        from muster.node.agent.nvml_batches import Batches

        batches = Batches(pynvml)
        assert "init_error" not in batches.start()
        events = batches.listen()
        assert events is not None
        until = time.monotonic() + 5
        while time.monotonic() < until:
            event = batches.event(events, 500)
            assert event is None or "xid" not in event, event
    finally:
        pynvml.nvmlShutdown()


def test_looking_costs_little(child: NvmlProcess) -> None:
    """What the child's CPU does for the batches of an hour is far below 1 % of a core for 8 GPUs."""
    gpus = len(ask(child, "start", 60)[0]["gpus"])
    assert child.pid is not None
    share = 0.0
    for batch, times in (("fast", 500), ("normal", 100), ("slow", 5)):
        before, began = cpu_seconds(child.pid), time.monotonic()
        for _ in range(times):
            ask(child, batch, 30)
        cpu, wall = (
            (end - start) / times / gpus for start, end in ((before, cpu_seconds(child.pid)), (began, time.monotonic()))
        )
        share += cpu / DEFAULTS[f"nvml.{batch}_period"]
        print(f"{batch}: {cpu * 1e3:.2f} ms of CPU, {wall * 1e3:.2f} ms in all for a GPU")
    print(f"{share:.4%} of a core a GPU")
    assert share * 8 < 0.01


def cpu_seconds(pid: int) -> float:
    """Of all threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@dataclass
class Agent:
    """The whole agent on this machine as it is; of the kernel log it sees what has been written since."""

    sink: Sink
    log: Path

    def xids(self) -> list[dict[str, Any]]:
        return [item for item in self.sink.status["evidence"] if item["kind"] == "Xid"]

    def verdict(self) -> Verdict:
        """What the operator would make of it."""
        facts = NodeFacts(NodeView(name="here", uid="here", resource_version=1, ready=True, boot_id="here"))
        health = NodeHealth(metadata=ObjectMeta(name="here"), status=NodeHealthStatus.model_validate(self.sink.status))
        return assess(
            NodeWorld(
                facts,
                health,
                Rules.from_policy(FleetPolicySpec()),
                datetime.now(UTC),
                memory=MachineOffences([]),
                reports=[],
            )
        )


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    sink, log, ended = Sink(tmp_path), tmp_path / "kmsg", threading.Event()
    log.touch()
    copier = threading.Thread(target=copy_kernel_log, args=(log, ended))
    copier.start()
    environment = {
        **os.environ,
        **sink.environment,
        "MUSTER_NODE": "here",
        "MUSTER_KERNEL_LOG": str(log),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.Popen([sys.executable, "-m", "muster.node.agent"], env=environment)
    yield Agent(sink, log)
    process.terminate()
    ended.set()
    copier.join()
    assert process.wait(10) in (0, -15)


def copy_kernel_log(to: Path, ended: threading.Event) -> None:
    """What is new from now on: an XID of an earlier run would be of the same burst."""
    source = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(source, 0, os.SEEK_END)
        while not ended.wait(0.01):
            with contextlib.suppress(BlockingIOError), to.open("ab") as copy:
                while True:
                    copy.write(os.read(source, 8192))
    finally:
        os.close(source)


def wait(what: str, condition: Callable[[], Any], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)


# Hundreds of warps fail at once; of a misaligned address the driver writes many lines.
@pytest.mark.parametrize(("crash", "xid", "lines"), [("wild", 31, 1), ("odd", 13, 2), ("trap", 43, 1)])
def test_a_program_that_crashes_is_noticed_once_and_moves_nobody(
    agent: Agent, crash: str, xid: int, lines: int
) -> None:
    """The driver tells NVML and the kernel log of the same XID; that is one piece of evidence, in the log's words."""
    subject = uuid()
    wait("the agent has written", lambda: agent.sink.status.get("agent", {}).get("gpus"))
    subprocess.run([sys.executable, str(PROGRAM), crash], check=True, timeout=60)
    crashed = time.monotonic()

    def seen() -> list[dict[str, Any]]:
        return [item for item in agent.xids() if item["code"] == xid]

    wait("the XID is seen", seen)
    print(f"{crash}: evidence {time.monotonic() - crashed:.2f} s after the program's end")
    subprocess.run([sys.executable, str(PROGRAM), "work", "5"], check=True, timeout=60)  # all has been said by now
    wait("the log's words", lambda: all("NVRM: Xid" in item["message"] for item in seen()))
    said = sum("NVRM: Xid" in line and f"): {xid}," in line for line in agent.log.read_text().splitlines())
    print(f"{said} lines, {seen()}")
    assert said >= lines
    assert [(item["subject"], item["count"]) for item in seen()] == [(subject, 1)]
    verdict = agent.verdict()
    print(verdict.conclusion.state, [(finding.message, finding.severity) for finding in verdict.conclusion.findings])
    assert verdict.conclusion.state in (VerdictState.HEALTHY, VerdictState.SUSPECT)


def uuid() -> str:
    """Of GPU 0, which the program uses."""
    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
    finally:
        pynvml.nvmlShutdown()
