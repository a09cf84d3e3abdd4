"""One fleet over a month: what happens to its machines, drawn from published rates, and what the shipped rules make of
it.

The simulator knows what is broken; agents and rules are told only what a real machine would show. Quiet time is
skipped: an agent is turned when its machine changes, and after that at moments that lie closer than its thresholds do,
until everything has settled.
"""

import contextlib
import heapq
import io
import math
import random
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from muster.api.fleetpolicy import FleetPolicySpec, HealthPolicy
from muster.api.nodehealth import Decision, Evacuate, RecommendedAction, VerdictState
from muster.api.preflight import PreflightPolicy, Profile
from muster.health.effects import Effect
from muster.health.orders import Order
from muster.health.pools import WITHOUT, pool_of
from muster.health.rulings import Act
from muster.world.views import ConditionView, NodeView
from simulate.clocks import START
from simulate.fleets import rates
from simulate.fleets.agents import NodeAgent
from simulate.fleets.keeper import Keeper
from simulate.fleets.machine import Machine, NodeFault
from simulate.fleets.oracle import BudgetOracle, Taken

DAY_SECONDS = 86400.0
CERTAIN_SECONDS = 10.0
FLEETS, SMALLEST, LARGEST, DAYS = 300, 16, 4096, 30.0

_CERTAIN = frozenset({"OffTheBus", "Uncontained", "DoubleBit", "RemapFailed", "Gsp"})
"""Faults of which the kernel's log and the driver's library tell at once, and apart from each other."""
_ALARM_CERTAIN = "OffTheBus"

_API_SECONDS, _GATHER_SECONDS = 0.05, 0.1
_SETTLING = (
    0.0,
    0.2,
    1.1,
    2.2,
    3.3,
    5.0,
    10.0,
    20.0,
    32.0,
    45.0,
    61.0,
    75.0,
    95.0,
    125.0,
    155.0,
    185.0,
    300.0,
    605.0,
    910.0,
    1900.0,
    3700.0,
)
_LINES_SETTLE = (0.0, 0.2, 1.1, 35.0)
_START_SETTLES = (0.0, 0.2, 1.1, 2.2, 5.0, 35.0, 65.0, 125.0, 185.0)
_LONG = (8 * 3600.0 + 60.0, 13 * 3600.0, DAY_SECONDS + 30.0)
"""Seconds after a change at which its agent is turned: closer than the thresholds of docs/node-agent.md."""
_RACK = 16
_DISK_SECONDS = 6 * 3600.0
_MODELS = (
    ("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3", 8, True, 0.6),
    ("NVIDIA-H200", "NVIDIA H200", 8, True, 0.15),
    ("NVIDIA-A100-PCIE-80GB", "NVIDIA A100 80GB PCIe", 8, False, 0.15),
    ("NVIDIA-L40S", "NVIDIA L40S", 4, False, 0.1),
)
_FALSE_CONDITIONS = (
    ("AcceleratedHardwareReady", "False", "NvidiaNVLinkError"),
    ("GpuNvlinkWatch", "True", "ErrorCode"),
    ("XIDErrors", "True", "XIDErrors"),
    ("NebiusGPUError", "True", "NebiusGPUError"),
)
_FALSE_LABELS = (
    ("dgxc.nvidia.com/nvsentinel-state", "quarantined"),
    ("sagemaker.amazonaws.com/node-health-status", "Unschedulable"),
    ("autopilot.ibm.com/gpuhealth", "EVICT"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What kind of fleet.

    Attributes:
        nodes: all of them, CPU nodes too.
        days: of the simulation.
        failures: in 1,000 node-days.
        validates: what was taken out has to pass a burn-in.
        is_fast: machinery repairs what a reset or a reboot repairs.
        pools: name of the model, how many nodes, whether its driver tells field 230.
    """

    seed: int
    nodes: int
    days: float
    failures: float
    validates: bool
    is_fast: bool
    pools: tuple[tuple[int, int, bool], ...]
    busy: float = 1.0
    """Times as many faults and alarms as published: for short tests."""


def plan(seed: int, days: float = DAYS, smallest: int = SMALLEST, largest: int = LARGEST, busy: float = 1.0) -> Plan:
    """The fleet of a seed: its size evenly spread over the powers of two."""
    draw = random.Random(f"plan {seed}")
    nodes = round(2 ** draw.uniform(math.log2(smallest), math.log2(largest)))
    without = round(nodes * draw.choice((0.0, 0.1, 0.25)))
    left = nodes - without
    pools: list[tuple[int, int, bool]] = []
    for number in draw.sample(range(len(_MODELS)), draw.randint(1, 3) if left >= 32 else 1):
        size = left if len(pools) == 2 else max(1, round(left * draw.uniform(0.3, 0.9)))
        pools.append((number, min(size, left), draw.random() < 0.8))
        left -= pools[-1][1]
        if left <= 0:
            break
    pools[0] = (pools[0][0], pools[0][1] + left, pools[0][2])
    return Plan(
        seed,
        nodes,
        days,
        draw.choice(rates.FAILURES),
        draw.random() < 0.5,
        draw.random() < 0.5,
        tuple(pools),
        busy,
    )


@dataclass(slots=True)
class Violation:
    """Something that must not be, as a person can follow it."""

    goal: str
    node: str
    seconds: float
    what: str
    story: list[str]


@dataclass(slots=True)
class Outcome:
    """What a fleet has shown. Times are seconds of nodes."""

    plan: Plan
    healthy_seconds: float = 0.0
    healthy_out_seconds: float = 0.0
    healthy_held_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    out_for: Counter[str] = field(default_factory=Counter)
    held_for: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    certain: list[float] = field(default_factory=list)
    certain_in_alarm: list[float] = field(default_factory=list)
    certain_unheard: int = 0
    certain_without_room: int = 0
    taken: int = 0
    alarms: int = 0
    held: int = 0
    events: int = 0
    violations: list[Violation] = field(default_factory=list)


@dataclass(slots=True)
class _Node:
    """One node, with what the simulation keeps of it."""

    view: NodeView
    machine: Machine
    pool: str
    rack: str
    ahead_seconds: float
    agent: NodeAgent | None = None
    agent_lives: bool = True
    is_up: bool = True
    counted_at: float = 0.0
    woken: bool = False
    effect: Effect = field(default_factory=Effect)
    reason: str = ""
    held: bool = False
    looks: list[float] = field(default_factory=list)
    person: bool = False
    visits: int = 0
    testing: bool = False
    waiting_certain: float | None = None
    alarm: bool = False
    story: deque[str] = field(default_factory=lambda: deque(maxlen=60))


class Life:
    """One fleet. `run` once."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self._folder = plan, folder
        self._draw = random.Random(f"life {plan.seed}")
        self.now = 0.0
        self.end = plan.days * DAY_SECONDS
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._inspection_at = math.inf
        self.outcome = Outcome(plan)
        policy = FleetPolicySpec(
            health=HealthPolicy(),
            preflight=PreflightPolicy(profile=Profile.STANDARD if plan.validates else Profile.DISABLED),
        )
        self.keeper = Keeper(policy, self._ordered)
        self.nodes: dict[str, _Node] = {}
        self._of_pool: dict[str, list[str]] = {}
        self._build(policy)
        self.oracle = BudgetOracle(
            {pool: len(names) for pool, names in self._of_pool.items()},
            {name: node.pool for name, node in self.nodes.items()},
            {name: node.rack for name, node in self.nodes.items()},
        )
        self._alarmed: Counter[str] = Counter()

    def _build(self, policy: FleetPolicySpec) -> None:
        machines = [(model, tells) for model, size, tells in self.plan.pools for _ in range(size)]
        machines += [(-1, True)] * (self.plan.nodes - len(machines))
        for number, (model, tells) in enumerate(machines):
            name, rack = f"n{number:04}", f"r{number // _RACK:03}"
            label, told, gpus, links, _ = _MODELS[model] if model >= 0 else ("", "", 0, False, 0.0)
            labels = {"topology.muster.dev/block": f"b{number // 256}", "topology.muster.dev/rack": rack}
            resources = {policy.accelerator_resource: gpus} if gpus else {}
            if gpus:
                labels["nvidia.com/gpu.product"] = label
            machine = Machine(name, self._folder / name, told, gpus, links, tells)
            view = NodeView(
                name,
                f"uid-{name}",
                1,
                labels,
                ready=True,
                boot_id=machine.boot_id,
                allocatable=resources,
                capacity=resources,
            )
            pool = pool_of(view, policy.accelerator_resource)
            ahead = self._draw.choice((-200.0, 90.0)) if self._draw.random() < 0.01 else self._draw.uniform(-0.05, 0.05)
            self.nodes[name] = _Node(view, machine, pool, rack, ahead)
            self._of_pool.setdefault(pool, []).append(name)
            self.keeper.put_node(view)

    # Time.

    def _at(self, time: float, act: Callable[[], None]) -> None:
        if time < self.end:
            self._number += 1
            heapq.heappush(self._heap, (max(time, self.now), self._number, act))

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(self.now + seconds, act)

    def run(self) -> Outcome:
        self._draw_everything()
        self._stir()
        while self._heap:
            time, _, act = heapq.heappop(self._heap)
            self.now = time
            self.outcome.events += 1
            act()
        self.now = self.end
        for name in self.nodes:
            self._count(name)
        return self.outcome

    def _stir(self) -> None:
        self._inspect_by(self.now + _GATHER_SECONDS)

    def _inspect_by(self, time: float) -> None:
        if time < self._inspection_at - 1e-6:
            self._inspection_at = time
            self._at(time, self._inspect)

    def _inspect(self) -> None:
        if self.now < self._inspection_at - 1e-6:
            return  # an earlier appointment has moved
        self._inspection_at = math.inf
        pause = self.keeper.look(self.now)
        if self.keeper.dirty:
            self._stir()
        if pause is not None:
            self._inspect_by(self.now + pause)

    # What is drawn.

    def _exponential(self, mean: float) -> float:
        return self._draw.expovariate(1.0) * mean

    def _around(self, median: float, sigma: float = 0.8) -> float:
        return median * math.exp(self._draw.gauss(0.0, sigma))

    def _often(self, per_month: float, act: Callable[[], None]) -> None:
        """An event of the fleet, at random."""
        at = self._exponential(30 * DAY_SECONDS / max(per_month, 1e-9))
        while at < self.end:
            self._at(at, act)
            at += self._exponential(30 * DAY_SECONDS / per_month)

    def _draw_everything(self) -> None:
        busy, failures = self.plan.busy, self.plan.failures
        shares = sum(kind.share for kind in rates.FAULTS.values()) + rates.CRASHES
        kinds = [(name, failures * busy * kind.share / shares) for name, kind in rates.FAULTS.items()]
        for name, node in self.nodes.items():
            weight = len(node.machine.gpus) / 8 if node.machine.gpus else 0.5
            for kind, per_thousand in kinds:
                if kind == "NvLink" and not node.machine.has_links:
                    continue
                if node.machine.gpus or kind in ("Disk", "PortLost", "CardLost"):
                    self._for(per_thousand * weight, partial(self._fault, name, kind))
            self._for(failures * busy * rates.CRASHES / shares, partial(self._crash, name))
            self._for(rates.AGENT_DEATHS * busy, partial(self._agent_dies, name))
            self._for(rates.PLANNED_BOOTS, partial(self._planned, name))
            if node.machine.gpus:
                self._for(rates.PROGRAMS, partial(self._program, name))
                self._for(rates.SLOW_DRIVER * busy, partial(self._slow_driver, name))
                self._for(failures * busy * rates.WRONG_MARK, partial(self._wrong_mark, name))
        for per_month, act in (
            (rates.SOURCE_RELEASE, self._bad_release),
            (rates.LABEL_ON_ALL, self._label_on_all),
            (rates.STORAGE_BLIPS, self._storage_blip),
            (rates.FABRIC_RESTARTS, self._fabric_restarts),
            (rates.BAD_ROLL_OUTS, self._bad_roll_out),
            (rates.SWITCH_REBOOTS, self._switch_reboots),
            (rates.OPERATOR_RESTARTS, self._operator_restarts),
        ):
            self._often(per_month * busy, act)
        self._often(rates.ROLL_OUTS, self._roll_out)

    def _for(self, per_thousand_days: float, act: Callable[[], None]) -> None:
        mean = 1000.0 * DAY_SECONDS / max(per_thousand_days, 1e-9)
        at = self._exponential(mean)
        while at < self.end:
            self._at(at, act)
            at += self._exponential(mean)

    # What happens to one machine.

    def _note(self, name: str, what: str) -> None:
        self.nodes[name].story.append(f"{_clock(self.now)} {what}")

    def _fault(self, name: str, kind: str, *, in_alarm: bool = False) -> None:
        node, machine = self.nodes[name], self.nodes[name].machine
        if not node.is_up or machine.sick:
            return
        self._wake(name)
        part = self._draw.randrange(
            len(machine.ports if kind in ("PortLost", "PortFlaps", "CardLost") else machine.gpus or [0])
        )
        worn = self._draw.random() < rates.FAULTS[kind].worn
        self._count(name)
        node_fault = machine.strike(kind, part, worn, self.now)
        self._note(name, f"TRUTH {kind} of part {part}{', which has to be replaced' if worn else ''}")
        self.outcome.faults[kind] += 1
        if kind in _CERTAIN and (machine.tells_action or kind != "Gsp"):  # of which an old driver gives no second sign
            heard = node.agent is not None and name not in self.keeper.agents.silent
            if node.effect.evacuate is not Evacuate.NO:
                pass  # it is out for something else already
            elif not heard:
                self.outcome.certain_unheard += 1
            else:
                node.waiting_certain, node.alarm = self.now, in_alarm or self._alarmed[node.pool] > 0
                since = self.now
                self._in(CERTAIN_SECONDS + 1.0, lambda: self._is_certain_out(name, since))
        if kind == "Disk":
            self._in(self._exponential(_DISK_SECONDS), lambda: self._disk(name, node_fault))
        if kind == "PortFlaps":
            self._in(5.0, lambda: self._flaps(name, node_fault))
        self._changed(name)

    def _is_certain_out(self, name: str, since: float) -> None:
        node = self.nodes[name]
        if node.waiting_certain == since and node.is_up:
            node.waiting_certain = None
            if not self.oracle.has_room(name, self.now):
                self.outcome.certain_without_room += 1  # never more than the budget, whatever is certain
                return
            (self.outcome.certain_in_alarm if node.alarm else self.outcome.certain).append(math.inf)
            verdict = self.keeper.verdict(name)
            said = ""
            if verdict is not None:
                shown = verdict.conclusion
                said = f"{shown.state} {shown.reason}, certain: {verdict.grounds.certain}"
            self._violated("certain", name, f"a certain fault is not out after {CERTAIN_SECONDS:.0f} s ({said})")

    def _disk(self, name: str, node_fault: NodeFault) -> None:
        """A bad disk fails again when it is used: not on a node that nobody uses."""
        node = self.nodes[name]
        if node_fault not in node.machine.node_faults:
            return
        if node.is_up and not node.effect.avoid:
            node.machine.show_again(self.now)
            self._changed(name, _LINES_SETTLE)
        self._in(self._exponential(_DISK_SECONDS), lambda: self._disk(name, node_fault))

    def _flaps(self, name: str, node_fault: NodeFault) -> None:
        """A bad link comes back, and goes again after hours, until somebody replaces it."""
        node = self.nodes[name]
        if node_fault not in node.machine.node_faults:
            return
        port = node.machine.ports[node_fault.part]
        if node.is_up:
            node.machine.flap(node_fault.part, not port.up, self.now)
            self._note(name, f"TRUTH its port goes {'up' if port.up else 'down'}")
            self._changed(name)
        self._in(5.0 if not port.up else self._exponential(4 * 3600.0), lambda: self._flaps(name, node_fault))

    def _crash(self, name: str) -> None:
        if self.nodes[name].is_up:
            self._note(name, "TRUTH the machine crashes and boots")
            self._boot(name, self._around(300.0, 0.4))

    def _planned(self, name: str) -> None:
        """Somebody drains the node with kubectl, and boots it."""
        if self.nodes[name].is_up and not self.nodes[name].machine.sick:
            self._note(name, "TRUTH a planned boot")
            self._boot(name, self._around(480.0, 0.3))

    def _boot(self, name: str, seconds: float, *, replaces: bool = False) -> None:
        node = self.nodes[name]
        self._wake(name)
        self._count(name)
        node.is_up, node.agent, node.looks = False, None, []
        node.waiting_certain = None
        self._put(name, ready=False)
        number = node.machine.boots
        self._agent_ready(name, ready=False)

        def comes_up() -> None:
            if node.machine.boots != number:
                return
            self._count(name)
            if replaces:
                node.machine.replace()
            short = (
                ""
                if node.machine.sick or self._draw.random() >= rates.SHORT_BOOT or not node.machine.gpus
                else self._draw.choice(("GpuMissing", "PortLost"))
            )
            node.machine.boot(self.now, short)
            if short:
                self.outcome.faults[f"boot: {short}"] += 1
                self._note(name, f"TRUTH it comes up with {short}")
            node.is_up = True
            self._put(name, ready=True)
            self._note(
                name,
                "TRUTH it has booted"
                + (f", still {[a.kind for a in node.machine.node_faults]}" if node.machine.sick else ""),
            )
            self._in(self._around(25.0, 0.3), lambda: self._agent_starts(name, number + 1))
            self._in(self._around(50.0, 0.5), lambda: self._driver_loads(name, number + 1))
            for node_fault in node.machine.node_faults:
                if node_fault.kind == "PortFlaps":
                    self._in(self._exponential(4 * 3600.0), partial(self._flaps, name, node_fault))

        self._in(seconds, comes_up)

    def _driver_loads(self, name: str, boot: int) -> None:
        node = self.nodes[name]
        if node.machine.boots == boot and node.is_up:
            node.machine.has_driver = True
            node.machine.show_again(self.now)
            self._changed(name, _SETTLING if node.machine.sick or node.effect.avoid else _START_SETTLES)

    def _agent_starts(self, name: str, boot: int) -> None:
        node = self.nodes[name]
        if node.machine.boots == boot and node.is_up and node.agent is None:
            node.agent_lives = True
            self._make_agent(name)
            self._changed(name, _SETTLING if node.machine.sick or node.effect.avoid else _START_SETTLES)

    def _agent_dies(self, name: str) -> None:
        node = self.nodes[name]
        if not node.is_up or not node.agent_lives:
            return
        self._wake(name)
        away = (
            self._around(3 * 3600.0) if self._draw.random() < rates.AGENT_STAYS_AWAY else self._draw.uniform(2.0, 40.0)
        )
        self._agent_away(name, away)

    def _agent_away(self, name: str, seconds: float) -> None:
        node, boot = self.nodes[name], self.nodes[name].machine.boots
        self._note(name, f"TRUTH the agent is away for {seconds:.0f} s")
        node.agent, node.agent_lives, node.looks = None, False, []
        self._agent_ready(name, ready=False)
        self._in(seconds, lambda: self._agent_starts(name, boot))

    def _program(self, name: str) -> None:
        node = self.nodes[name]
        if not node.is_up:
            return
        self._wake(name)
        code, index = self._draw.choice((13, 31, 43)), self._draw.randrange(len(node.machine.gpus))
        if node.machine.gpus[index].error or not node.machine.has_driver:
            return
        node.machine.xid(index, code, self.now)
        self._note(name, f"a program causes XID {code}")
        self._changed(name, _LINES_SETTLE)

    def _slow_driver(self, name: str) -> None:
        node = self.nodes[name]
        if not node.is_up or node.machine.hangs:
            return
        self._wake(name)
        seconds, boot = self._draw.uniform(6.0, 40.0), node.machine.boots
        node.machine.hangs = True
        self._note(name, f"the driver answers nothing for {seconds:.0f} s")
        self._changed(name)

        def answers() -> None:
            broken = any(each.kind == "DriverHangs" for each in node.machine.node_faults)
            if node.machine.boots == boot and not broken:
                node.machine.hangs = False
                self._changed(name)

        self._in(seconds, answers)

    def _wrong_mark(self, name: str) -> None:
        self._wake(name)
        mark = self._draw.choice(_FALSE_CONDITIONS)
        self._note(name, f"another system wrongly says {mark[0]}={mark[1]} {mark[2]}")
        self._mark([name], mark)
        self._in(self._around(1800.0), lambda: self._unmark([name], mark))

    # What happens to many at once.

    def _some_pool(self, *, links: bool = False) -> list[str]:
        pools = [
            p
            for p in self._of_pool
            if p != WITHOUT and (not links or self.nodes[self._of_pool[p][0]].machine.has_links)
        ]
        return self._of_pool[self._draw.choice(sorted(pools))] if pools else []

    def _alarm(self, names: Sequence[str], seconds: float) -> None:
        """A false alarm begins. A certain fault that comes with it is beyond the rates: one for each alarm."""
        self.outcome.alarms += 1
        pool = self.nodes[names[0]].pool
        self._alarmed[pool] += 1
        self._in(seconds, lambda: self._alarmed.subtract([pool]))
        victim = self._draw.choice(list(names))
        self._in(self._draw.uniform(0.05, 0.9) * seconds, lambda: self._fault(victim, _ALARM_CERTAIN, in_alarm=True))

    def _bad_release(self) -> None:
        names, mark, seconds = (
            self._some_pool(),
            self._draw.choice(_FALSE_CONDITIONS),
            self._draw.uniform(1, 6) * 3600.0,
        )
        self._alarm(names, seconds)
        step = self._draw.choice((0.0, 1.0, 20.0))
        for number, name in enumerate(names):
            self._in(number * step, partial(self._mark, [name], mark))
        self._in(max(seconds, len(names) * step), lambda: self._unmark(names, mark))

    def _label_on_all(self) -> None:
        names, (key, value), seconds = (
            self._some_pool(),
            self._draw.choice(_FALSE_LABELS),
            self._draw.uniform(0.5, 4) * 3600.0,
        )
        self._alarm(names, seconds)
        self._label(names, key, value)
        self._in(seconds, lambda: self._label(names, key, None))

    def _storage_blip(self) -> None:
        share = self._draw.choice((0.2, 1.0))
        for name in sorted(self.nodes):
            node = self.nodes[name]
            if node.is_up and self._draw.random() < share:
                self._wake(name)
                node.machine.log("INFO: task python:4711 blocked for more than 120 seconds.", self.now)
                node.machine.log(
                    "I/O error, dev rbd0, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2", self.now
                )
                self._changed(name, _LINES_SETTLE)

    def _fabric_restarts(self) -> None:
        """By the rack, as a roll-out does; each is away for half a minute, one in fifty for longer than registration
        takes."""
        names = self._some_pool(links=True)
        for number, name in enumerate(names):
            away = self._draw.uniform(150.0, 200.0) if self._draw.random() < 0.02 else self._draw.uniform(20.0, 60.0)
            self._in(number // _RACK * 60.0, partial(self._fabric_away, name, away))

    def _fabric_away(self, name: str, seconds: float) -> None:
        node, boot = self.nodes[name], self.nodes[name].machine.boots
        if not node.is_up or not node.machine.has_driver:
            return
        self._wake(name)
        node.machine.fabric(False)
        self._note(name, f"the fabric manager is away for {seconds:.0f} s")
        self._changed(name)

        def back() -> None:
            if node.machine.boots == boot:
                node.machine.fabric(True)
                self._changed(name)

        self._in(seconds, back)

    def _roll_out(self) -> None:
        for number, name in enumerate(sorted(self.nodes)):
            if self.nodes[name].agent is not None:
                self._in(number * 6.0, partial(self._agent_replaced, name))

    def _agent_replaced(self, name: str) -> None:
        if self.nodes[name].is_up and self.nodes[name].agent_lives:
            self._agent_away(name, self._draw.uniform(5.0, 30.0))

    def _bad_roll_out(self) -> None:
        names, seconds = self._some_pool(), self._draw.uniform(0.5, 3.0) * 3600.0
        for name in names:
            if self.nodes[name].is_up and self.nodes[name].agent_lives:
                self._wake(name)
                self._agent_away(name, seconds)

    def _switch_reboots(self) -> None:
        rack = self._draw.choice(sorted({node.rack for node in self.nodes.values()}))
        for name in sorted(self.nodes):
            node, boot = self.nodes[name], self.nodes[name].machine.boots
            if node.rack != rack or not node.is_up or any(a.kind == "PortLost" for a in node.machine.node_faults):
                continue
            self._wake(name)
            self._note(name, "the switch of its rack boots")
            node.machine.port(0, False, self.now)
            self._changed(name)

            def up(name: str = name, node: _Node = node, boot: int = boot) -> None:
                if node.machine.boots == boot and not any(
                    a.kind in ("PortLost", "PortFlaps", "CardLost") for a in node.machine.node_faults
                ):
                    node.machine.port(0, True, self.now)
                    self._changed(name)

            self._in(180.0, up)

    def _operator_restarts(self) -> None:
        """What was in force stays until the new one has looked."""
        self.keeper.restart(self.now)
        self._stir()

    # Marks on Node objects.

    def _mark(self, names: Sequence[str], mark: tuple[str, str, str]) -> None:
        kind, status, reason = mark
        for name in names:
            node = self.nodes[name]
            kept = [each for each in node.view.conditions if each.type != kind]
            self._view(
                name, conditions=(*kept, ConditionView(kind, status, reason, "said in error", _moment(self.now)))
            )
        self._stir()

    def _unmark(self, names: Sequence[str], mark: tuple[str, str, str]) -> None:
        kind, status, _ = mark
        well = "True" if status == "False" else "False"
        for name in names:
            kept = [each for each in self.nodes[name].view.conditions if each.type != kind]
            self._view(name, conditions=(*kept, ConditionView(kind, well, "", "", _moment(self.now))))
        self._stir()

    def _label(self, names: Sequence[str], key: str, value: str | None) -> None:
        for name in names:
            labels = {k: v for k, v in self.nodes[name].view.labels.items() if k != key}
            self._view(name, labels=labels if value is None else {**labels, key: value})
        self._stir()

    def _put(self, name: str, *, ready: bool) -> None:
        self._view(name, ready=ready, boot_id=self.nodes[name].machine.boot_id)
        if name in self.keeper.agents.silent:
            self.keeper.agents.note_silent(name, self.now, paused=not ready)
        self._stir()

    def _view(self, name: str, **changes: Any) -> None:
        node = self.nodes[name]
        node.view = replace(node.view, **changes)
        self.keeper.put_node(node.view)

    # Agents.

    def _wake(self, name: str) -> None:
        """An agent that nobody had to think of yet is there, and has been for long."""
        node = self.nodes[name]
        if node.agent is None and node.agent_lives and node.is_up and not node.woken:
            node.machine.lay_ports(node.machine.booted_at)
            node.woken = True
            agent = self._make_agent(name)
            node.machine.ports_changed_at = -math.inf
            then, self.now = self.now, self.now - 40.0
            for seconds in (0.0, 1.1, 32.0, 38.0):
                self.now = then - 40.0 + seconds
                agent.look()
            self.now = then
            agent.look()
            status = agent.wrote.take()
            assert status is not None
            self.keeper.agent_says(name, status)
            self._stir()

    def _make_agent(self, name: str) -> NodeAgent:
        node = self.nodes[name]
        stored = self.keeper.record_of(name).to_json()
        node.agent = NodeAgent(node.machine, stored, lambda: self.now, node.ahead_seconds, self._draw.random)
        return node.agent

    def _changed(self, name: str, settling: tuple[float, ...] = _SETTLING) -> None:
        """Something about a machine, or its agent, is another than it was: the agent looks until all has settled."""
        node = self.nodes[name]
        if node.agent is None:
            return
        agent = node.agent
        agent.surprised = True
        long = _LONG if settling is _SETTLING else ()
        # What was appointed before is kept where these are not as close.
        kept = [each for each in node.looks if each > self.now + settling[-1]]
        added = [
            self.now + each for each in (*settling, *long) if not any(abs(each - (k - self.now)) < 60.0 for k in kept)
        ]
        node.looks = sorted((*kept, *added))
        for time in added:
            self._at(time, partial(self._turned, name, agent, time))

    def _turned(self, name: str, agent: NodeAgent, appointed: float) -> None:
        node = self.nodes[name]
        if node.agent is not agent or (appointed not in node.looks and appointed >= 0):
            return
        if appointed >= 0:
            node.looks.remove(appointed)
        agent.look()
        status = agent.wrote.take()
        if status is not None:
            self._in(_API_SECONDS, lambda: self._written(name, status))
        self._agent_ready(name, ready=not agent.not_ready())
        due = agent.due_seconds
        if due is not None:
            self._in(max(due, 0.02), lambda: self._turned(name, agent, -1.0))

    def _written(self, name: str, status: dict[str, Any]) -> None:
        kinds = sorted({item["kind"] + (str(item["code"]) if item["code"] else "") for item in status["evidence"]})
        self._note(name, f"the agent writes {', '.join(kinds) or 'no evidence'} {status['agent']['problem']}")
        self.keeper.agent_says(name, status)
        self._stir()

    def _agent_ready(self, name: str, *, ready: bool) -> None:
        agents = self.keeper.agents
        if ready and name in agents.silent:
            agents.note_ready(name)
            self._stir()
        elif not ready and name not in agents.silent and name in self.keeper.health:
            agents.note_silent(name, self.now, paused=not self.nodes[name].is_up)
            self._stir()

    # What the rules do.

    def _ordered(self, order: Order, now: float) -> None:
        name, effect, verdict = order.name, order.effect, order.verdict
        node = self.nodes[name]
        before = node.effect
        if order.ruling.charge and order.ruling.act is Act.TAKE:
            self.outcome.taken += 1
            for what in self.oracle.take(Taken(now, name, order.ruling.cause, order.ruling.certain)):
                self._violated("budget", name, what)
        if effect != before:
            self._note(
                name,
                f"RULES {verdict.conclusion.state} {verdict.conclusion.reason}: {order.ruling.act} "
                f"{effect}{' ' + order.ruling.why if order.ruling.why else ''}",
            )
        if order.ruling.act is Act.HOLD:
            self.outcome.held += 1
        self._is_in_force(name, order)
        if verdict.open_incident is None or verdict.open_incident.taken_out_time is None:
            self.oracle.back(name)
        leaves = effect.evacuate is Evacuate.NOW or (effect.evacuate is not Evacuate.NO and verdict.grounds.certain)
        if leaves and node.waiting_certain is not None:
            took = now + _API_SECONDS - node.waiting_certain
            node.waiting_certain = None
            (self.outcome.certain_in_alarm if node.alarm else self.outcome.certain).append(took)
            if took > CERTAIN_SECONDS:
                self._violated("certain", name, f"a certain fault was out only after {took:.1f} s")
        if verdict.conclusion.state is VerdictState.VALIDATING and not node.testing:
            node.testing = True
            self._in(self._around(600.0), lambda: self._tested(name))
        if effect.avoid and not node.person and not verdict.grounds.stays:
            self._calls_technician(name)

    def _is_in_force(self, name: str, order: Order) -> None:
        """Counts the time until now by what was in force, and what changes."""
        self._count(name)
        node, before, effect = self.nodes[name], self.nodes[name].effect, order.effect
        node.effect, node.held = effect, order.ruling.act is Act.HOLD
        node.reason = f"{order.verdict.conclusion.state} {order.verdict.conclusion.reason}"
        if effect.avoid:
            for node_fault in node.machine.node_faults:
                if not node_fault.was_out:
                    node_fault.was_out = True
                    self.outcome.seen[node_fault.kind] += 1
        elif before.avoid:
            node.visits = 0
            for node_fault in node.machine.node_faults:
                if not node_fault.was_out:
                    continue
                self.outcome.returned[node_fault.kind] += 1
                if node_fault.kind not in rates.INTERMITTENT:
                    what = (
                        f"it is given work again with {node_fault.kind}, which is there since "
                        f"{_clock(node_fault.since)}"
                    )
                    self._violated("return", name, what)

    def _count(self, name: str) -> None:
        node, outcome = self.nodes[name], self.outcome
        seconds, node.counted_at = self.now - node.counted_at, self.now
        if not node.is_up or seconds <= 0 or node.machine.sick:
            return
        outcome.healthy_seconds += seconds
        if node.effect.avoid and node.held:
            outcome.healthy_held_seconds += seconds
            outcome.held_for[node.reason] += round(seconds)
        elif node.effect.avoid:
            outcome.healthy_out_seconds += seconds
            outcome.out_for[node.reason] += round(seconds)

    def _tested(self, name: str) -> None:
        node = self.nodes[name]
        node.testing = False
        verdict = self.keeper.verdict(name)
        if verdict is None or verdict.conclusion.state is not VerdictState.VALIDATING:
            return
        if not node.is_up:
            node.testing = True
            self._in(600.0, lambda: self._tested(name))
            return
        fails = "" if not node.machine.sick else "node.gemm"
        self._note(name, f"a burn-in {'fails ' + fails if fails else 'passes'}")
        self.keeper.tested(name, fails, self.now)
        self._stir()

    def _violated(self, goal: str, name: str, what: str) -> None:
        found = Violation(goal, name, self.now, what, [])
        self.outcome.violations.append(found)
        if len(self.outcome.violations) <= 20:
            record = self.keeper.record_of(name).status
            found.story = [
                *self.nodes[name].story,
                f"verdict {record.state} {record.reason}: {record.message}",
                *(f"evidence {e.kind} {e.code} {e.subject} {e.first_seen} count {e.count}" for e in record.evidence),
                *(f"finding {f.source}/{f.reason} {f.subject} {f.severity} since {f.since}" for f in record.findings),
            ]

    # People and machinery that repair.

    def _calls_technician(self, name: str) -> None:
        node = self.nodes[name]
        node.person = True
        fast, slow = rates.FAST_SECONDS, rates.SLOW_SECONDS
        verdict = self.keeper.verdict(name)
        action = verdict.follow_up.recommended_action if verdict is not None else RecommendedAction.NONE
        if action in (RecommendedAction.RESET, RecommendedAction.REBOOT):
            median = fast if self.plan.is_fast else slow
        elif action is RecommendedAction.REPLACE:
            median = rates.REPLACE_SECONDS
        else:
            median = rates.INSPECT_SECONDS
        self._in(self._around(median), lambda: self._repair(name))

    def _repair(self, name: str) -> None:
        """Somebody comes, and does what is recommended; who comes again does more."""
        node, verdict = self.nodes[name], self.keeper.verdict(name)
        node.person = False
        if verdict is None or not node.effect.avoid or not verdict.out:
            return
        if not node.is_up:
            node.person = True
            self._in(1800.0, lambda: self._repair(name))
            return
        action = verdict.follow_up.recommended_action
        node.visits += 1
        if node.visits > 1:
            action = {
                RecommendedAction.RESET: RecommendedAction.REBOOT,
                RecommendedAction.REBOOT: RecommendedAction.REPLACE,
            }.get(action, action)
        in_vain = self._draw.random() < rates.IN_VAIN
        self._note(name, f"somebody does {action}{' in vain' if in_vain else ''}")
        self._count(name)
        if action is RecommendedAction.RESET:
            if not in_vain:
                node.machine.reset()
            self._changed(name)
        elif action is RecommendedAction.REBOOT:
            self._boot(name, self._around(480.0, 0.3))
        elif action is RecommendedAction.REPLACE or (action is RecommendedAction.INSPECT and node.machine.sick):
            self._boot(name, 1800.0, replaces=not in_vain)
        vouches = not in_vain and (action is RecommendedAction.REPLACE or not node.machine.sick)
        if vouches and (
            verdict.conclusion.state is VerdictState.QUARANTINED or "BurnInFailed" in verdict.conclusion.reason
        ):
            self._in(7200.0, lambda: self._release(name))
        # Who has been there looks again whether it has helped.
        node.person = True
        self._in(self._around(2 * 3600.0, 0.4), lambda: self._again(name))

    def _again(self, name: str) -> None:
        node = self.nodes[name]
        node.person = False
        verdict = self.keeper.verdict(name)
        if verdict is not None and verdict.out and node.effect.avoid and not verdict.grounds.stays:
            self._calls_technician(name)

    def _release(self, name: str) -> None:
        node = self.nodes[name]
        if not node.machine.sick and node.is_up:
            self._note(name, "somebody vouches for it: kubectl muster release")
            self.keeper.human_says(name, Decision.RELEASE, "repaired", self.now)
            self._stir()


def live(plan: Plan) -> Outcome:
    """A fleet's month. Everything that it leaves on disk is gone afterwards."""
    room = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="muster-fleet-", dir=room))
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return Life(plan, folder).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    return f"day {days} {hours:02}:{minutes:02}:{rest:06.3f}"


def _moment(seconds: float) -> datetime:
    """A time of an object: whole seconds."""
    return (START + timedelta(seconds=seconds)).replace(microsecond=0)
