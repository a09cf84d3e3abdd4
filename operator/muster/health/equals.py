"""The GPUs and ports that a machine should have, by comparison with its peers. Pure.

The agent remembers how many GPUs and ports a known machine has had. A new machine may lack one from the start, and a
virtual machine has another mainboard after each start. Such machines can be compared only with machines of the same
kind. A difference counts only where nearly all machines of the kind agree. It must also last for a while, because ports
come up one after the other. Fewer GPUs take a machine out of use. Fewer ports only make it Suspect, because cabling may
differ on purpose.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from muster.api.nodehealth import AgentStatus, Severity
from muster.health.pools import pool_of
from muster.world.views import NodeView

FEWER_THAN_EQUALS = "FewerThanPeers"
LASTS_SECONDS = 600.0
"""A lack counts after this long, which is longer than a machine takes to boot with all of its ports."""
LEAST_OTHERS = 3
LEAST_SHARE = 0.75
"""This many machines, and this share of all machines of the kind, must have more."""
KIND_LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.machine")
"""Labels that are equal for machines that were built alike; a node without either is compared with no other."""


@dataclass(frozen=True, slots=True)
class MachineEquipment:
    """The most GPUs and ports that a machine has had, as far as its agent knows."""

    gpus: int
    ports: int | None
    """None: the agent's version does not report ports."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What a machine has less of than machines of the same kind.

    Attributes:
        message: text for users.
        severity: the severity of the lack.
        lasts: whether the lack has lasted for ten minutes; else a finding on record stays, and no new one is made.
    """

    message: str
    severity: Severity
    lasts: bool = False


def kind_of(node: NodeView, agent: AgentStatus | None, accelerator: str) -> str:
    """Return a text that is equal for machines that were built alike; "" where the build is not known.

    Args:
        node: the Node.
        agent: the report of its agent; None: there is none.
        accelerator: the resource by which the fleet's GPUs are counted.
    """
    machine = next((node.labels[label] for label in KIND_LABELS if node.labels.get(label)), "")
    if not machine or agent is None or not agent.gpus_expected:
        return ""
    return "/".join((pool_of(node, accelerator), machine, agent.gpu_model))


class MachineKinds:
    """All machines by their kind, to find those that have less than nearly all others of the kind."""

    def __init__(self) -> None:
        self._machines: dict[str, tuple[str, MachineEquipment]] = {}
        self._kinds: defaultdict[str, dict[str, MachineEquipment]] = defaultdict(dict)
        self._expected: dict[str, MachineEquipment] = {}
        self._changed: set[str] = set()
        self._lacking: dict[str, tuple[float, Lack]] = {}
        self._reported_lasting: set[str] = set()

    def set_machine(self, name: str, kind: str, equipment: MachineEquipment | None) -> None:
        """Replace what is known of a node's machine.

        Args:
            name: of the node.
            kind: from `kind_of`; "": the machine is compared with no other.
            equipment: what the machine has had; None: the machine is compared with no other.
        """
        old = self._machines.get(name)
        new = (kind, equipment) if kind and equipment is not None else None
        if old == new:
            return
        if old is not None:
            del self._machines[name]
            del self._kinds[old[0]][name]
            self._reckon(old[0])
        if new is not None:
            self._machines[name] = new
            self._kinds[new[0]][name] = new[1]
            self._reckon(new[0])
        self._changed.add(name)

    def _reckon(self, kind: str) -> None:
        machines = self._kinds[kind].values()
        ports = [machine.ports for machine in machines if machine.ports is not None]
        expected = MachineEquipment(_number_of_most([machine.gpus for machine in machines]), _number_of_most(ports))
        if self._expected.get(kind) != expected:
            self._expected[kind] = expected
            self._changed |= self._kinds[kind].keys()
        if not machines:
            del self._kinds[kind], self._expected[kind]

    @property
    def has_changes(self) -> bool:
        """Whether a machine has changed since the last call of `changed`."""
        return bool(self._changed)

    def changed(self, now: float) -> set[str]:
        """Return the names of the nodes whose lack has changed since the last call, or has lasted by now.

        Args:
            now: seconds of a monotonic clock.
        """
        changed = set()
        for name in self._changed:
            lack = self._lack_of(name)
            since, previous_lack = self._lacking.get(name, (now, None))
            if lack != previous_lack:
                changed.add(name)
            if lack is None:
                self._lacking.pop(name, None)
                self._reported_lasting.discard(name)
            else:
                self._lacking[name] = (since, lack)
        self._changed.clear()
        lasting = {
            name for name, (since, _) in self._lacking.items() if now - since >= LASTS_SECONDS
        } - self._reported_lasting
        self._reported_lasting |= lasting
        return changed | lasting

    def next_seconds(self, now: float) -> float | None:
        """Return in how many seconds a lack may have lasted, by time alone; None: never.

        Args:
            now: seconds of a monotonic clock.
        """
        if self._changed:
            return 0.0
        moments = [since for name, (since, _) in self._lacking.items() if name not in self._reported_lasting]
        return max(0.0, min(moments) + LASTS_SECONDS - now) if moments else None

    def lack_of_node(self, name: str) -> Lack | None:
        """Return what the node's machine lacks, as of the last call of `changed`; None: nothing."""
        lacking = self._lacking.get(name)
        return replace(lacking[1], lasts=name in self._reported_lasting) if lacking else None

    def _lack_of(self, name: str) -> Lack | None:
        machine = self._machines.get(name)
        if machine is None:
            return None
        kind, has = machine
        expected = self._expected[kind]
        counted = (
            ("GPUs", has.gpus, expected.gpus, Severity.DEGRADED),
            ("ports up", has.ports, expected.ports or 0, Severity.WARNING),
        )
        less = [
            (unit_text, number, more, weighs)
            for unit_text, number, more, weighs in counted
            if number is not None and number < more
        ]
        if not less:
            return None
        parts = (
            f"{number} {unit_text}, but {more} on nearly all machines of its kind"
            for unit_text, number, more, _ in less
        )
        return Lack("; ".join(parts), less[0][-1])


def _number_of_most(numbers: list[int]) -> int:
    """Return the largest number that nearly all machines reach; 0 where too few machines are known.

    Args:
        numbers: one number for each machine of a kind.
    """
    having, seen = Counter(numbers), 0
    for number in sorted(having, reverse=True):
        seen += having[number]
        if seen >= LEAST_OTHERS and seen >= LEAST_SHARE * len(numbers):
            return number
    return 0
