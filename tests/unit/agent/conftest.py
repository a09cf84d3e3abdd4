"""The real agent with the real NVML child and the fake library; only the API server is replaced, by a list."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.nvml.build import library

from localcluster.patience import PATIENCE_SECONDS
from muster.node.agent.agent import Agent
from muster.node.agent.nvml_process import NvmlProcess
from muster.node.agent.settings import Settings
from muster.node.agent.thresholds import DEFAULTS, Thresholds

ROOT = Path(__file__).resolve().parents[3]

EPOCH = 1_790_000_000.0
DEADLINE = 1000.0
"""NVML hangs when a test lets this pass (`Running.let_nvml_hang`), and never because the machine is slow."""

QUICK = {
    "nvml.fast_period": 0.1,
    "nvml.normal_period": 0.2,
    "nvml.slow_period": 0.3,
    "nvml.retry_period": 0.5,
    "nvml.renewal_period": 1e9,
    "nvml.deadline": DEADLINE,
    "nvml.slow_deadline": DEADLINE,
    "nvml.start_deadline": DEADLINE,
    "nvml.clear": 0.3,
    "gpu.clear": 0.2,
    "infiniband.state_period": 0.1,
    "infiniband.counter_period": 0.1,
    "infiniband.missing": 0.2,
    "infiniband.clear": 0.2,
    "machine.period": 0.2,
    "fabric.sustain": 0.2,
    "fabricmanager.sustain": 0.2,
    "pcie.width_sustain": 0.2,
    "pcie.generation_sustain": 0.5,
    "pcie.clear": 0.2,
    "heat.clear": 0.2,
    "gpu.unreachable": 0.5,
    "nvml.failed": 0.5,
    "nvml.unloaded": 1.0,
    "persistence.sustain": 0.2,
    "temperature.sustain": 0.2,
    "throttle.window": 1.0,
    "energy.sustain": 0.4,
}
"""Everything that takes minutes on a node, in tenths of a second; but for the deadlines of NVML."""


class Wrote:
    """Stands in for the writer: keeps what it was offered."""

    def __init__(self, on_stored: Callable[[dict[str, Any]], None], stored: dict[str, Any]) -> None:
        self._on_stored, self._stored = on_stored, {k: v for k, v in stored.items() if k != "spec"}
        self.spec = stored.get("spec", {})
        self.offers: list[tuple[dict[str, Any], bool]] = []
        self.writes = self.errors = self.refused = 0
        self.refused_seconds, self.problem = 0.0, ""

    def start(self) -> None:
        self._on_stored({"status": self._stored, "spec": self.spec})

    def is_alive(self) -> bool:
        return True

    def offer(self, status: dict[str, Any], *, urgent: bool) -> None:
        self.offers.append((status, urgent))


@dataclass
class Node:
    """A node made of files."""

    folder: Path
    control: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "sys/class/infiniband").mkdir(parents=True)
        (self.folder / "proc/1").mkdir(parents=True)
        (self.folder / "kmsg").touch()
        self.boot("boot-1")
        (self.folder / "uuid").write_text("4c4c4544-0001\n")
        self.mount(read_only=False)
        self.faults()

    def boot(self, boot_id: str) -> None:
        (self.folder / "boot_id").write_text(f"{boot_id}\n")

    def faults(self, *lines: str) -> None:
        """The fake library's control file; nothing that is not named is wrong."""
        new = self.folder / "control.new"
        new.write_text("".join(f"{line}\n" for line in ("gpus=8", *lines)))
        new.rename(self.folder / "control")

    def log(self, *lines: str) -> None:
        with (self.folder / "kmsg").open("a") as stream:
            stream.writelines(f"{line}\n" for line in lines)

    def mount(self, *, read_only: bool) -> None:
        way = "ro" if read_only else "rw"
        (self.folder / "proc/1/mounts").write_text(
            f"/dev/nvme0n1p1 / ext4 {way},relatime 0 0\nproc /proc proc rw 0 0\n"
        )

    def port(self, name: str, state: str = "4: ACTIVE", physical: str = "5: LinkUp", **counters: int) -> Path:
        device, number = name.split("/")
        path = self.folder / "sys/class/infiniband" / device / "ports" / number
        for part in ("counters", "hw_counters"):
            (path / part).mkdir(parents=True, exist_ok=True)
        (path / "state").write_text(f"{state}\n")
        (path / "phys_state").write_text(f"{physical}\n")
        for counter, value in counters.items():
            hardware = counter in ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart")
            (path / ("hw_counters" if hardware else "counters") / counter).write_text(f"{value}\n")
        return path

    def settings(self, **changes: Any) -> Settings:
        files = {"token_file": "token", "ca_file": "ca.crt", "kernel_log": "kmsg", "sysfs": "sys", "proc": "proc"}
        files |= {"boot_id_file": "boot_id", "system_uuid_file": "uuid", "mounts_file": "proc/1/mounts"}
        values: dict[str, Any] = {name: self.folder / file for name, file in files.items()}
        values |= {"node": "node-1", "api_server": "https://127.0.0.1:1", "thresholds_file": None}
        values |= {"expected_gpus": None, "expected_ports": None, "listen": ("127.0.0.1", 0)}
        values["node_addresses"] = frozenset()
        return Settings(**{**values, **changes})


class AgentClock:
    """The agent's monotonic clock. It runs on by itself; a test moves it forward, or holds it.

    Args:
        held: the clock stands at this moment until `release`.
    """

    def __init__(self, held: float | None = None) -> None:
        self._held, self._ahead = held, 0.0

    def __call__(self) -> float:
        held = self._held
        return time.monotonic() + self._ahead if held is None else held

    def wall(self) -> float:
        """Seconds since the epoch; EPOCH and the clock while that is held."""
        return time.time() if self._held is None else EPOCH + self._held

    def advance(self, seconds: float) -> None:
        """Move the clock forward while it runs."""
        self._ahead += seconds

    def release(self) -> None:
        """Let a clock that was held run on."""
        assert self._held is not None
        self._ahead, self._held = self._held - time.monotonic(), None


class Nvml(NvmlProcess):
    """The real process, with a record of what it has answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[str, float] = {}
        """By batch: when the newest one was asked that has been answered."""
        self.events = 0

    def read(self, now: float) -> Iterator[dict[str, Any]]:
        asked = self.outstanding
        for message in super().read(now):
            self.events += "event" in message
            if "batch" in message and asked is not None:
                self.answered[message["batch"]] = asked.asked_at
            yield message


BATCHES = ("fast", "normal", "slow")


class Running:
    """An agent in a thread."""

    def __init__(
        self, settings: Settings, thresholds: Thresholds, stored: dict[str, Any], clock: AgentClock | None
    ) -> None:
        self.clock = clock if clock is not None else AgentClock()
        self.nvml = Nvml()
        made: list[Wrote] = []

        def writer(on_stored: Callable[[dict[str, Any]], None]) -> Any:
            made.append(Wrote(on_stored, stored))
            return made[0]

        self.agent = Agent(settings, thresholds, (), self.nvml, writer, self.clock, self.clock.wall)
        self.wrote = made[0]
        self.turns = 0
        turn = self.agent._poll

        def counted() -> None:
            self.turns += 1
            turn()

        self.agent._poll = counted  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self.agent.run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        return self.wrote.offers[-1][0] if self.wrote.offers else {"evidence": [], "agent": {}}

    @property
    def evidence(self) -> list[dict[str, Any]]:
        return self.status["evidence"]

    def about(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.evidence if item["kind"] == kind]

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        until = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < until, self.status
            time.sleep(0.01)
        return result

    def wait_for(self, kind: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        return self.wait(lambda: self.about(kind), seconds)[0]

    def wait_until_gone(self, kind: str, seconds: float = PATIENCE_SECONDS) -> None:
        self.wait(lambda: not self.about(kind), seconds)

    def wait_until_looking(self) -> None:
        self.wait(lambda: self.status["agent"].get("gpus"))
        self.wait(lambda: self.agent._gpus.figures)
        self.wait(lambda: self.agent._ports.has_looked)

    def wait_for_turn(self) -> None:
        """Wait until the loop has taken and published everything that there was for it before this call."""
        for _ in range(2):  # the turn that is under way may be past it; the next one has begun when this one is over
            before = self.turns
            self.agent._wake()
            self.wait(lambda before=before: self.turns > before)

    def wait_for_looks(self, batches: tuple[str, ...] = BATCHES) -> None:
        """Wait until everything has been looked at that can be seen at this call, and the result is published."""
        since = self.clock()
        self.wait(lambda: all(self.nvml.answered.get(batch, 0.0) > since for batch in batches))
        self.agent._ports.poll_again()
        self.wait(lambda: self.agent._ports.has_looked)
        self.wait_for_turn()

    def wait_for_log(self, lines: int) -> None:
        """Wait until so many lines of the kernel log have been read, and what they say is published."""
        self.wait(lambda: self.agent._log.lines >= lines)
        self.wait_for_turn()

    def advance(self, seconds: float) -> None:
        """Let time pass for the agent alone."""
        self.clock.advance(seconds)
        self.wait_for_turn()

    def look_for(self, seconds: float, batches: tuple[str, ...] = BATCHES) -> None:
        """Look at everything, let the time pass, and look at everything again: what lasts so long has been seen to."""
        assert seconds < DEADLINE
        self.wait_for_looks(batches)
        self.advance(seconds)
        self.wait_for_looks(batches)

    def let_nvml_hang(self, gpu: int | None = None) -> None:
        """Let the deadline of what NVML was asked pass, once it is held up at a GPU; the fault is there already."""
        hangs = self.nvml.hangs
        while self.nvml.hangs == hangs:
            asked = self.wait(lambda: self.nvml.outstanding)
            if gpu is not None:
                asked = self.wait(lambda: self.nvml.outstanding if _held_by(self.nvml, gpu) else None)
            self.advance(DEADLINE + 1)
            # One that was asked before the fault may have been answered just now: the next one is not.
            self.wait(lambda asked=asked: self.nvml.hangs > hangs or self.nvml.outstanding is not asked)

    def end_what_hangs(self) -> None:
        """Let the deadline pass of what NVML was asked while it hung; it answers from now on."""
        since = self.clock()
        self.advance(DEADLINE + 1)
        self.wait(lambda: (asked := self.nvml.outstanding) is None or asked.asked_at > since)


def _held_by(nvml: NvmlProcess, gpu: int) -> bool:
    outstanding = nvml.outstanding
    return outstanding is not None and outstanding.gpu == gpu


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def environment(node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`environment(driver="fake"|"old"|None)`: what the NVML child finds."""

    def setup(driver: str | None = "fake") -> None:
        folder = str(library(old=driver == "old")) if driver else str(node.folder)
        monkeypatch.setenv("LD_LIBRARY_PATH", folder)
        monkeypatch.setenv("FAKE_NVML_CONTROL", str(node.folder / "control"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")]))

    return setup


@pytest.fixture
def run(node: Node, environment: Callable[..., None]) -> Iterator[Callable[..., Running]]:
    """`run(driver, thresholds={}, stored={}, clock=None, **settings)`: an agent that looks at the node."""
    running: list[Running] = []

    def start(
        driver: str | None = "fake",
        thresholds: dict[str, float] | None = None,
        stored: dict[str, Any] | None = None,
        clock: AgentClock | None = None,
        **settings: Any,
    ) -> Running:
        environment(driver)
        values = Thresholds({**DEFAULTS.values, **QUICK, **(thresholds or {})})
        running.append(Running(node.settings(**settings), values, stored or {}, clock))
        return running[-1]

    yield start
    for agent in running:
        agent.stop()
