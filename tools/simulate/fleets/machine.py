"""A machine as it truly is, and what its driver, its kernel and its ports answer to the node's agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOST, RESET_REQUIRED, NO_DRIVER = 15, 16, 9
_RESET, _DRAIN_AND_RESET = 1, 4
_LINKS = 18

LINES = {
    13: "13, pid=4711, name=python, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Out Of Range Address",
    31: "31, pid=4711, name=python, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f12_80000000",
    43: "43, pid=4711, name=python, Ch 00000008",
    48: (
        "48, pid=4711, name=python, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
    ),
    63: "63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "64, pid='<unknown>', name=<unknown>, Row Remapper: Error initializing row remapper: no spare rows",
    74: (
        "74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3(0x0, 0x0, 0x10000, 0x0, 0x0, "
        "0x0, 0x0)"
    ),
    79: "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    94: "94, pid=4711, name=python, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    95: "95, pid=4711, name=python, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    119: "119, pid=4711, name=python, Timeout after 6s of waiting for RPC response from GPU1 GSP! Expected function 76",
}
"""XIDs as the driver writes them."""


@dataclass(slots=True)
class Gpu:
    """One GPU.

    Attributes:
        serial: of the board; a replaced one has another.
        there: whether the machine finds it when it boots; seen by the driver since the last boot as `counted`.
        error: every call about it is answered by this NVML error; 0: it answers.
        action: NVML field 230.
        values: what else NVML says that is not as of a healthy one.
        links: NVLinks that are up.
    """

    serial: str
    there: bool = True
    counted: bool = True
    error: int = 0
    action: int = 0
    values: dict[str, float] = field(default_factory=dict)
    links: int = _LINKS


@dataclass(slots=True)
class Port:
    """A port of the network."""

    up: bool = True
    there: bool = True
    downs: int = 0


@dataclass(slots=True)
class NodeFault:
    """A fault that is there until somebody repairs it: the truth, which no rule is told.

    Attributes:
        kind: of `rates.FAULTS`, or how a short boot came about.
        part: number of the GPU or port.
        worn: only another part ends it.
        since: seconds.
        was_out: the rules have kept new work off the node since.
    """

    kind: str
    part: int
    worn: bool
    since: float
    was_out: bool = False


class Machine:
    """The hardware of a node in its present boot. Times are seconds of the simulation.

    Args:
        folder: for what the agent reads as files.
        has_links: an NVSwitch connects its GPUs.
        tells_action: its driver has NVML's field 230 (r570).
    """

    def __init__(self, name: str, folder: Path, model: str, gpus: int, has_links: bool, tells_action: bool) -> None:
        self.name, self.folder, self.model = name, folder, model
        self.has_links, self.tells_action = has_links, tells_action
        self.gpus = [Gpu(f"{name}-{index}") for index in range(gpus)]
        self.ports = [Port(), Port()]
        self.node_faults: list[NodeFault] = []
        self.boots = 1
        self.booted_at = -30 * 86400.0
        self.hangs = False
        self.has_driver = True
        self.fabric_is_up = True
        self.lines: list[tuple[float, str]] = []
        self.events: list[dict[str, Any]] = []
        self.ports_changed_at = float("-inf")
        self._arranged = False
        self._replaced = 0
        self._normal: dict[int, dict[str, Any]] = {}

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    @property
    def sick(self) -> bool:
        return bool(self.node_faults)

    def log(self, message: str, now: float) -> None:
        self.lines.append((now - self.booted_at, message))

    def xid(self, index: int, code: int, now: float) -> None:
        """The driver reports an error, in the log and as an event."""
        self.log(f"NVRM: Xid (PCI:{self._pci(index)[4:-2]}): {LINES[code]}", now)
        self.events.append({"xid": code, "uuid": self._uuid(index)})

    def strike(self, kind: str, part: int, worn: bool, now: float) -> NodeFault:
        self.node_faults.append(NodeFault(kind, part, worn, now))
        self._show(kind, part, now)
        return self.node_faults[-1]

    def _show(self, kind: str, part: int, now: float) -> None:
        if kind in ("PortLost", "PortFlaps"):
            self.port(part, False, now)
            return
        if kind == "CardLost":
            self.ports[part].there = False
            self.lay_ports(now)
            return
        if kind == "Disk":
            self.log("I/O error, dev nvme3n1, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2", now)
            return
        if kind == "DriverHangs":
            self.hangs = True
            return
        gpu = self.gpus[part]
        match kind:
            case "OffTheBus":
                self.xid(part, 79, now)
                gpu.error = LOST
            case "Uncontained":
                self.xid(part, 95, now)
                gpu.action, gpu.values["ecc_uncorrected"] = _RESET, 3.0
            case "DoubleBit":
                self.xid(part, 48, now)
                gpu.action, gpu.values["ecc_uncorrected"], gpu.values["remap_pending"] = _RESET, 1.0, 1.0
            case "RowRemap":
                self.xid(part, 94, now)
                self.xid(part, 63, now)
                gpu.action, gpu.values["remap_pending"] = _DRAIN_AND_RESET, 1.0
            case "RemapFailed":
                self.xid(part, 64, now)
                gpu.values["remap_failed"] = 1.0
            case "Gsp":
                self.xid(part, 119, now)
                gpu.action = _RESET
            case "NvLink":
                self.xid(part, 74, now)
                gpu.links = _LINKS - 1
            case "Hot":
                gpu.values["margin"] = -5.0
            case "GpuMissing":
                gpu.there = gpu.counted = False
            case _:
                raise ValueError(kind)
        self._normal.clear()

    def flap(self, part: int, up: bool, now: float) -> None:
        """A bad link goes or comes."""
        self.port(part, up, now)

    def port(self, part: int, up: bool, now: float) -> None:
        """A port goes up or down, for any cause."""
        port = self.ports[part]
        port.downs += port.up and not up
        port.up = up
        self.lay_ports(now)

    def reset(self) -> None:
        """Somebody resets the GPUs, which nobody uses."""
        for index, gpu in enumerate(self.gpus):
            if gpu.error == LOST or not gpu.counted:
                continue  # there is nothing that could be reset
            kept = [
                a for a in self.node_faults if a.part == index and a.worn and a.kind in ("RemapFailed", "NvLink", "Hot")
            ]
            gpu.error = gpu.action = 0
            gpu.values = {name: value for name, value in gpu.values.items() if name in ("remap_failed", "margin")}
            gpu.links = _LINKS - 1 if any(a.kind == "NvLink" for a in kept) else _LINKS
            needs_boot = ("PortLost", "PortFlaps", "CardLost", "Disk", "DriverHangs")
            self.node_faults = [a for a in self.node_faults if a.part != index or a.kind in needs_boot or a in kept]
        self._normal.clear()

    def boot(self, now: float, shorts: str = "") -> None:
        """The machine has started again: what only memory held is gone.

        Args:
            shorts: a fault of `strike` with which it comes up.
        """
        self.boots += 1
        self.booted_at = now
        self.lines.clear()
        self.events.clear()
        self.hangs, self.has_driver, self.fabric_is_up = False, False, True
        left: list[NodeFault] = []
        for gpu in self.gpus:
            gpu.error = gpu.action = 0
            gpu.values = {name: value for name, value in gpu.values.items() if name in ("remap_failed", "margin")}
            gpu.links, gpu.counted = _LINKS, gpu.there
        for port in self.ports:
            port.there, port.up, port.downs = True, True, 0
        for node_fault in self.node_faults:
            if not node_fault.worn:
                continue
            part = node_fault.part
            match node_fault.kind:
                case "OffTheBus" | "Uncontained" | "DoubleBit" | "Gsp":
                    node_fault.kind = "GpuMissing"  # its memory or bus does not come up again
                    self.gpus[part].there = self.gpus[part].counted = False
                case "RowRemap" | "DriverHangs":
                    continue  # it comes again, as a fault of its own
                case "NvLink":
                    self.gpus[part].links = _LINKS - 1
                case "CardLost":
                    self.ports[part].there = False
                case "PortLost" | "PortFlaps":
                    self.ports[part].up = node_fault.kind == "PortFlaps"
            left.append(node_fault)
        self.node_faults = left
        if shorts:
            part = (len(self.gpus) if shorts == "GpuMissing" else len(self.ports)) - 1
            if not any(a.part == part for a in left):
                self.node_faults.append(NodeFault(shorts, part, True, now))
                self._show(shorts, part, now)
        self._normal.clear()
        self.lay_ports(now)
        if all(port.up and port.there for port in self.ports):
            self.ports_changed_at = float(
                "-inf"
            )  # the first look of the agent finds them well, and so does each after it

    def show_again(self, now: float) -> None:
        """What a broken disk writes at each boot."""
        for node_fault in self.node_faults:
            if node_fault.kind == "Disk":
                self._show("Disk", node_fault.part, now)

    def replace(self) -> None:
        """Somebody replaces what is broken, with the machine switched off."""
        for node_fault in self.node_faults:
            if node_fault.kind not in ("PortLost", "PortFlaps", "CardLost", "Disk", "DriverHangs"):
                self._replaced += 1
                self.gpus[node_fault.part] = Gpu(f"{self.name}-new-{self._replaced}")
        self.node_faults.clear()
        self._normal.clear()

    # What it answers.

    def lay_ports(self, now: float) -> None:
        self.ports_changed_at = now
        for number, port in enumerate(self.ports):
            folder = self.folder / f"sys/class/infiniband/mlx5_{number}"
            hidden = self.folder / f"sys/gone/mlx5_{number}"
            if not self._arranged:
                (folder / "ports/1/counters").mkdir(parents=True)
                hidden.parent.mkdir(exist_ok=True)
            if port.there and not folder.exists():
                hidden.rename(folder)
            here = folder if folder.exists() else hidden
            (here / "ports/1/state").write_text("4: ACTIVE\n" if port.up else "1: DOWN\n")
            (here / "ports/1/phys_state").write_text("5: LinkUp\n" if port.up else "3: Disabled\n")
            (here / "ports/1/counters/link_downed").write_text(f"{port.downs}\n")
            if not port.there and folder.exists():
                folder.rename(hidden)
        self._arranged = True

    def answer(self, batch: str) -> dict[str, Any]:
        if not self.gpus:
            return {"init_error": 12, "text": "NVML Shared Library Not Found"}
        if not self.has_driver:
            return {"init_error": NO_DRIVER, "text": "Driver Not Loaded"}
        counted = [(index, gpu) for index, gpu in enumerate(self.gpus) if gpu.counted]
        if batch == "start":
            driver = "570.148.08" if self.tells_action else "535.183.01"
            return {"driver": driver, "gpus": [self._identity(n, *one) for n, one in enumerate(counted)]}
        if batch == "fast":
            gpus = [self._fast(number, gpu) for number, (_, gpu) in enumerate(counted)]
            return {"count": len(counted), "gpus": gpus}
        if batch == "reach":
            return {"gpus": []}
        if batch == "slow":
            answers = [
                {"index": n, "error": g.error} if g.error else {"index": n, "inforom": True}
                for n, (_, g) in enumerate(counted)
            ]
            return {"gpus": answers}
        return {"gpus": [self._usual(number, gpu) for number, (_, gpu) in enumerate(counted)]}

    def _identity(self, number: int, index: int, gpu: Gpu) -> dict[str, Any]:
        if gpu.error:
            return {"index": number, "error": gpu.error, "tries": 2}
        values = {"uuid": self._uuid(index), "pci": self._pci(index), "serial": gpu.serial}
        return {"index": number, **values, "model": self.model, "vbios": "96.00.74.00.1A"}

    def _fast(self, number: int, gpu: Gpu) -> dict[str, Any]:
        if gpu.error:
            return {"index": number, "error": gpu.error}
        return {"index": number, "action": gpu.action} if self.tells_action else {"index": number}

    def _usual(self, number: int, gpu: Gpu) -> dict[str, Any]:
        if gpu.error:
            return {"index": number, "error": gpu.error}
        known = self._normal.get(number)
        if known is None:
            known = self._normal[number] = {"index": number, **self._values(gpu)}
        return known

    def _values(self, gpu: Gpu) -> Mapping[str, Any]:
        values: dict[str, Any] = dict.fromkeys(("ecc_corrected", "ecc_uncorrected", "sram_uncorrected"), 0.0)
        values |= dict.fromkeys(("remap_uncorrectable", "remap_pending", "remap_failed", "sram_threshold"), 0.0)
        values |= {"pcie_width": 16, "pcie_width_most": 16, "pcie_generation": 5, "pcie_generation_now": 5}
        values |= {"margin": 30.0, "slowdown_margin": -2.0, "persistence": 1, "mig": [0, 0], "links_unreadable": 0}
        values |= gpu.values
        if self.has_links:
            up = gpu.links if self.fabric_is_up else 0
            values["links"] = {str(link): int(link < up) for link in range(_LINKS)}
            values["fabric"] = [3, 0, 0] if self.fabric_is_up else [2, 0, 0]
        return values

    def fabric(self, is_up: bool) -> None:
        """The fabric manager has ended, or has begun again."""
        self.fabric_is_up = is_up
        self._normal.clear()

    def _uuid(self, index: int) -> str:
        return f"GPU-{self.gpus[index].serial}"

    def _pci(self, index: int) -> str:
        return f"00000000:{0x10 + index:02X}:00.0"
