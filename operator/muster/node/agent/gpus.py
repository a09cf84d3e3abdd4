"""Interprets NVML's answers about the GPUs: pure except for the memory of counters and of what was seen in this
boot.

Tests: tests/unit/agent/test_dead_gpus.py, tests/unit/agent/test_faults.py.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.node.agent import kinds
from muster.node.agent.facts import FaultEvent, Signal, clean, pci_address
from muster.node.agent.rates import Windows
from muster.node.agent.thresholds import Thresholds

_LOST, _RESET_REQUIRED = 15, 16
_NO_PERMISSION = 4
_LIB_RM_MISMATCH = 18
_NO_DRIVER = {12: "the NVIDIA library is not installed", 9: "the NVIDIA kernel module is not loaded"}
_ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain, then reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
_THROTTLES = {0x8: "hardware slowdown", 0x40: "hardware thermal slowdown", 0x80: "hardware power brake"}
_FABRIC_STATES = {1: "not started", 2: "in progress"}
_FABRIC_COMPLETED = 3
# Two bits each; 1 is "true".
_FABRIC_HEALTH = {0: "degraded bandwidth", 2: "route recovery", 4: "unhealthy route", 6: "access timeout recovery"}
_FABRIC_CONFIGURATION_SHIFT, _FABRIC_CONFIGURATION_MASK = 8, 0xF
_SAMPLE, _MINUTE, _HOUR = 0.01, 60.0, 3600.0
_IDLE_MILLIWATTS = 1000
_GPU_IDLE = 0x1
_LINKS_OF_MODEL = (
    ("A100-SXM4", 12),
    ("A800-SXM4", 8),
    ("H100 80GB HBM3", 18),
    ("H200", 18),
    ("B200", 18),
    ("B300", 18),
)
"""NVLinks of models on boards that use them all (NVIDIA's data sheets); `H200 NVL` and others may be bridged in any
way."""
_BRIDGED = ("NVL", "PCIe")
_MOST_SAID = 256


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML describes it at the start."""

    uuid: str
    pci: str
    serial: str
    model: str
    vbios: str


class Gpus:
    """All that has to be remembered about this node's GPUs between two answers."""

    def __init__(self, thresholds: Thresholds, expected: int | None) -> None:
        self._thresholds = thresholds
        self._configured = expected
        self._windows = Windows()
        self._by_index: dict[int, Gpu] = {}
        self._kernel_said: dict[str, tuple[str, str]] = {}
        self._links_at_best: dict[str, int] = {}
        self._slow_link_since: dict[str, float] = {}
        self.names: dict[str, str] = {}
        """UUIDs by `PCI:<address>`, of all GPUs seen in this boot, and by `GPU <index>` of those that answer now."""
        self.at_driver: frozenset[str] = frozenset()
        """PCI addresses of the GPUs that the kernel module has taken."""
        self.unreachable = False
        """Whether NVML shows GPUs of which it has no handle: these have to be tried again."""
        self.left_out: frozenset[int] = frozenset()
        """Numbers of the GPUs that are not queried, because the query does not return."""
        self.seen = 0
        """The largest number of GPUs that the machine has had, as far as is known."""
        self.answering = 0
        self.driver = ""
        self.problem = ""
        self.figures: dict[str, Mapping[str, float]] = {}
        """By GPU: the values that are published as metrics."""

    @property
    def serials(self) -> list[str]:
        """Return the serial numbers of the GPUs, sorted."""
        return sorted({gpu.serial[:64] for gpu in self._by_index.values() if gpu.serial})

    @property
    def model(self) -> str:
        """Return the model name of the GPUs; the first one if they differ."""
        return next((clean(gpu.model, 128) for gpu in self._by_index.values()), "")

    @property
    def expected(self) -> int:
        """Return how many GPUs the node should have."""
        return self.seen if self._configured is None else self._configured

    def name_at(self, index: int) -> str:
        """Return the UUID of the GPU with this NVML number, or the number while the UUID is unknown."""
        gpu = self._by_index.get(index)
        return gpu.uuid if gpu is not None else f"GPU {index}"

    def restart(self) -> None:
        """Forget what belongs to the last boot: the node has booted."""
        self._windows.clear()
        self._by_index.clear()
        self.names.clear()
        self.figures.clear()
        self._kernel_said.clear()
        self._links_at_best.clear()
        self._slow_link_since.clear()
        self.seen = self.answering = 0

    def name_of(self, pci: str) -> str:
        """Return the UUID of the GPU at an address, or the address while the UUID is unknown."""
        return self.names.get(f"PCI:{pci}", f"PCI:{pci}")

    def note_kernel_line(self, kind: str, pci: str, message: str) -> None:
        """Note a line of the log that accuses a GPU, perhaps an old one: it counts until NVML sees the GPU answer."""
        if pci in self._kernel_said or len(self._kernel_said) < _MOST_SAID:
            self._kernel_said[pci] = kind, message

    def had_links(self, uuid: str, links: int) -> None:
        """Note how many NVLinks an earlier agent has seen up in this boot."""
        self._links_at_best[uuid] = max(links, self._links_at_best.get(uuid, 0))

    def started(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Yield the signals of a `start` answer."""
        error = answer.get("init_error")
        mismatch = error == _LIB_RM_MISMATCH
        if error is None or mismatch:
            message = "the driver's library and its kernel module have different versions: reboot the node or reload"
            yield Signal(kinds.DRIVER_DRIFT, "", mismatch, _LIB_RM_MISMATCH, message=message)
        if error is not None:
            self.driver = ""
            self.answering = 0
            self._by_index.clear()
            text = clean(str(answer.get("text", "")), 128)
            self.problem = f"no driver: {_NO_DRIVER[error]}" if error in _NO_DRIVER else f"NVML does not start: {text}"
            if not mismatch:  # DriverDrift reports that: what runs goes on
                row = "nvml.unloaded" if error in _NO_DRIVER else "nvml.failed"
                yield from self._failed(int(error), self._thresholds[row], self.problem)
                if error not in _NO_DRIVER:
                    yield from self._said(())
            return
        self.problem = ""
        self.driver = clean(str(answer.get("driver", "")), 64)
        # With one GPU fewer the others may have other numbers. A GPU that no longer answers keeps the name that it had.
        previous_by_index, self._by_index = self._by_index, {}
        self.names = {name: uuid for name, uuid in self.names.items() if name.startswith("PCI:")}
        named = {gpu.get("uuid") for gpu in answer.get("gpus", ())}
        self._by_index = {
            index: gpu for index, gpu in previous_by_index.items() if index in self.left_out and gpu.uuid not in named
        }
        for gpu in answer.get("gpus", ()):
            missed = previous_by_index.get(int(gpu["index"]))
            if not self._introduced(gpu) and missed is not None and missed.uuid not in named:
                self._by_index[int(gpu["index"])] = missed
        yield from self._sick(answer)
        yield from self._drift()

    def reached(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Yield the signals of a `reach` answer: about GPUs of which NVML had no handle before."""
        introduced = [self._introduced(gpu) for gpu in answer["gpus"]]
        if any(introduced):
            yield from self._drift()

    def _introduced(self, gpu: Mapping[str, Any]) -> bool:
        if not gpu.get("uuid"):
            return False
        index = int(gpu["index"])
        made = Gpu(gpu["uuid"], pci_address(gpu["pci"]) or "", gpu["serial"], gpu["model"], gpu["vbios"])
        self._by_index[index] = made
        self.names[f"GPU {index}"] = made.uuid
        if made.pci:
            self.names[f"PCI:{made.pci}"] = made.uuid
        return True

    def _failed(self, error: int | None, sustain: float, message: str) -> Iterator[Signal]:
        """Yield whether NVML as a whole works; `error` says that it does not. Without GPUs there is nothing to
        signal."""
        if self.expected > 0:
            yield Signal(
                kinds.NVML_FAILED,
                "",
                error is not None,
                error or 0,
                value="" if error is None else f"0 GPUs, NVML error {error}",
                threshold=f"{self.expected} GPUs",
                message=message,
                sustain_seconds=sustain,
                clear_seconds=self._thresholds["gpu.clear"],
            )

    def _drift(self) -> Iterator[Signal]:
        versions = [gpu.vbios for gpu in self._by_index.values() if gpu.vbios]
        usual = max(sorted(set(versions)), key=versions.count, default="")
        for gpu in self._by_index.values():
            odd = bool(gpu.vbios) and versions.count(gpu.vbios) < versions.count(usual)
            text = "its VBIOS differs from the other GPUs' of this node"
            yield Signal(kinds.DRIVER_DRIFT, gpu.uuid, odd, 0, clean(gpu.vbios, 64), clean(usual, 64), text)

    def fast(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Yield the signals of a `fast` answer."""
        clear = self._thresholds["gpu.clear"]
        sick = {int(gpu["index"]) for gpu in answer["gpus"] if "error" in gpu}
        count = answer.get("count")
        if count is not None:
            self.seen = max(self.seen, int(count))
            self.answering = max(0, int(count) - len(sick | self.left_out))
            few = int(count) < self.expected
            source = "the machine" if self._configured is None else "the configuration"
            yield Signal(
                kinds.GPU_COUNT,
                "",
                few,
                value=f"{count} GPUs",
                threshold=f"{self.expected} GPUs",
                message=f"NVML shows {count} GPUs, {source} has {self.expected}",
                clear_seconds=clear,
            )
        self.unreachable = any("tries" in gpu for gpu in answer["gpus"])
        yield from self._answers(answer)
        yield from self._sick(answer)
        silent = sick | self.left_out
        yield from self._said([gpu.pci for index, gpu in self._by_index.items() if index not in silent])
        for subject, gpu in self._named(answer):
            action = gpu.get("action")
            if action is not None:
                text = f"the driver recommends: {_ACTIONS.get(action, 'unknown action')}"
                shown = f"{action}" if action else ""
                yield Signal(kinds.RECOVERY_ACTION, subject, action != 0, action, shown, "0", text, clear_seconds=clear)

    def has_no_driver(self, started: Mapping[str, Any]) -> bool:
        """Whether a `start` has found nothing to monitor: no driver, or a library that fails where there never was a
        GPU."""
        error = started.get("init_error")
        return error in _NO_DRIVER or (error is not None and self.expected == 0)

    def have_answered(self, answer: Mapping[str, Any]) -> bool:
        """Whether a `fast` or `normal` answer says something: the state of at least one GPU, or that there is none."""
        errors = [gpu.get("error") for gpu in answer["gpus"]]
        return not errors or any(error in (None, _LOST, _RESET_REQUIRED) for error in errors)

    def _answers(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Yield whether any GPU answers at all. A lost GPU, or one that needs a reset, has signals of its own."""
        errors = [gpu.get("error") for gpu in answer["gpus"]]
        refused = [error for error in errors if error not in (None, _LOST, _RESET_REQUIRED, _NO_PERMISSION)]
        nothing = not errors and answer.get("count") is None
        if nothing or (refused and len(refused) == len(errors)):
            code = int((refused or list((answer.get("errors") or {}).values()) or [0])[0])
            text = f"every call of NVML returns error {code}"
            yield from self._failed(code, self._thresholds["nvml.failed"], text)
        elif None in errors or not errors:
            yield from self._failed(None, 0.0, "")

    def _said(self, answering: Collection[str]) -> Iterator[Signal]:
        """Yield what the kernel log has said about GPUs that do not answer."""
        for pci, (kind, message) in list(self._kernel_said.items()):
            if pci in answering:
                del self._kernel_said[pci]
            else:
                yield Signal(kind, self.name_of(pci), bad=True, message=message)

    def _unnamed(self, index: int, answer: Mapping[str, Any]) -> str:
        """Return the name of a GPU without a description: the only one that the kernel has and NVML cannot name, or its
        number."""
        unknown = [gpu for gpu in answer["gpus"] if int(gpu["index"]) not in self._by_index]
        nameless = sorted(self.at_driver - {gpu.pci for gpu in self._by_index.values()})
        return self.name_of(nameless[0]) if len(unknown) == len(nameless) == 1 else f"GPU {index}"

    def _sick(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        clear = self._thresholds["gpu.clear"]
        others = any("error" not in gpu for gpu in answer["gpus"])
        for gpu in answer["gpus"]:
            index, error = int(gpu["index"]), gpu.get("error")
            known_gpu = self._by_index.get(index)
            subject = known_gpu.uuid if known_gpu is not None else self._unnamed(index, answer)
            if error not in (None, _LOST, _RESET_REQUIRED):
                # Once proves nothing, and where no GPU answers it is not the fault of this one.
                if others and error != _NO_PERMISSION and gpu.get("tries", 2) > 1:
                    yield Signal(
                        kinds.GPU_UNREACHABLE,
                        subject,
                        bad=True,
                        value=f"NVML error {error}",
                        message=(f"NVML returns error {error} for every call about GPU {index}, but not about others"),
                        sustain_seconds=self._thresholds["gpu.unreachable"],
                    )
                continue
            if error is None and known_gpu is None:
                continue
            if error is None:
                for kind in (kinds.GPU_UNREACHABLE, kinds.GPU_INIT, kinds.NVML_HANG):
                    yield Signal(kind, subject, bad=False, clear_seconds=clear)
            lost, reset = error == _LOST, error == _RESET_REQUIRED
            yield Signal(kinds.GPU_LOST, subject, lost, message="NVML: GPU is lost", clear_seconds=clear)
            if not lost:
                text = "NVML: the GPU requires a reset"
                yield Signal(kinds.RESET_REQUIRED, subject, reset, message=text, clear_seconds=clear)

    def slow(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Yield the signals of a `slow` answer."""
        for subject, gpu in self._named(answer):
            if "inforom" in gpu:
                yield Signal(kinds.INFOROM, subject, not gpu["inforom"], message="NVML: the InfoROM is corrupted")

    def normal(self, answer: Mapping[str, Any], mono: float) -> Iterator[Signal]:
        """Yield the signals of a `normal` answer."""
        for subject, gpu in self._named(answer):
            self.had_links(subject, _active_links(gpu))
        yield from self._persistence(answer)
        for subject, gpu in self._named(answer):
            self._note(subject, gpu)
            yield from self._memory(subject, gpu)
            yield from self._links(subject, gpu, answer)
            yield from self._link_errors(subject, gpu, mono)
            yield from self._fabric(subject, gpu)
            yield from self._pcie(subject, gpu, mono)
            yield from self._heat(subject, gpu, mono)

    def events(self, event: Mapping[str, Any]) -> Iterator[FaultEvent]:
        """Yield the fault events of an event of NVML."""
        code = event.get("xid")
        if isinstance(code, int) and code > 0:
            text = f"NVML reports XID {code}"
            expires = self._thresholds["xid.expires"]
            yield FaultEvent(kinds.XID, clean(str(event.get("uuid", "")), 128), expires, code, message=text, brief=True)

    def _named(self, answer: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for gpu in answer["gpus"]:
            known_gpu = self._by_index.get(int(gpu["index"]))
            if known_gpu is not None and "error" not in gpu:
                yield known_gpu.uuid, gpu

    def _note(self, subject: str, gpu: Mapping[str, Any]) -> None:
        names = ("power_mw", "energy_mj", "margin", "clock_reasons", "pcie_replays", "ecc_corrected", "ecc_uncorrected")
        self.figures[subject] = {name: float(gpu[name]) for name in names if name in gpu}

    def _limit(self, kind: str, subject: str, row: str, value: float, unit: str) -> Signal:
        most = self._thresholds[row]
        text = f"{value:g} {unit}"
        return Signal(
            kind,
            subject,
            value > most,
            value=text,
            threshold=f"{most:g} {unit}",
            message=text,
            counter=value,
            clear_seconds=self._thresholds["gpu.clear"],
        )

    def _flag(self, kind: str, subject: str, value: float, text: str) -> Signal:
        clear = self._thresholds["gpu.clear"]
        return Signal(kind, subject, value != 0, value=f"{value:g}", threshold="0", message=text, clear_seconds=clear)

    def _memory(self, subject: str, gpu: Mapping[str, Any]) -> Iterator[Signal]:
        limits = (
            ("ecc_corrected", kinds.ECC_CORRECTED, "ecc.corrected", "corrected ECC errors"),
            ("ecc_uncorrected", kinds.ECC_UNCORRECTED, "ecc.uncorrected", "uncorrected ECC errors"),
            ("sram_uncorrected", kinds.SRAM_UNCORRECTED, "sram.uncorrected", "uncorrected SRAM errors"),
            ("remap_uncorrectable", kinds.ROW_REMAPS, "remap.uncorrectable", "rows remapped for uncorrectable errors"),
        )
        for name, kind, row, unit in limits:
            if name in gpu:
                yield self._limit(kind, subject, row, gpu[name], unit)
        flags = (
            ("sram_threshold", kinds.SRAM_THRESHOLD, "the SRAM error threshold is exceeded"),
            ("remap_pending", kinds.ROW_REMAP_PENDING, "a row remap waits for a reset of the GPU"),
            ("remap_failed", kinds.ROW_REMAP_FAILED, "a row could not be remapped"),
            ("retired_pending", kinds.RETIRED_PAGES_PENDING, "page retirement waits for a reset of the GPU"),
        )
        for name, kind, text in flags:
            if name in gpu:
                yield self._flag(kind, subject, gpu[name], text)
        if "retired_sbe" in gpu or "retired_dbe" in gpu:
            pages = gpu.get("retired_sbe", 0) + gpu.get("retired_dbe", 0)
            yield self._limit(kinds.RETIRED_PAGES, subject, "retired.pages", pages, "retired pages")
        if "repair" in gpu:
            channel, tpc = gpu["repair"]
            part = "channel" if channel else "TPC"
            yield self._flag(kinds.REPAIR_PENDING, subject, bool(channel or tpc), f"a {part} repair waits for a reset")

    def _links(self, subject: str, gpu: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Yield whether fewer NVLinks are up than before in this boot, on this or another GPU of the node, or than the
        model has."""
        links, unreadable = gpu.get("links", {}), gpu.get("links_unreadable", 0)
        mig = gpu.get("mig") or (0,)
        if mig[0]:  # Ampere's links are down on purpose then, and jobs do not use them
            return
        active = _active_links(gpu)
        usual = self._links_at_best.get(subject, 0)
        if links:
            usual = max(usual, max(self._links_at_best.values(), default=0))
            # Where all are down from the start, a single GPU, as of a virtual machine, has nothing to link.
            is_linked = usual or len(self._by_index) > 1
            usual = max(usual, _links_of(self._model_of(subject)) if is_linked else 0)
        if not usual or (unreadable and active + unreadable >= usual):
            return
        down = ", ".join(link for link, state in links.items() if not state)
        everywhere = all(_active_links(named_gpu) < usual for _, named_gpu in self._named(answer))
        yield Signal(
            kinds.NVLINK_DOWN,
            subject,
            active < usual,
            value=f"{active} links",
            threshold=f"{usual} links",
            message=f"NVLinks that are down: {down}" if down else "NVLinks that were up before are missing",
            # The fabric manager takes all of them down and up when it starts again.
            sustain_seconds=self._thresholds["fabric.sustain"] if everywhere else 0.0,
            clear_seconds=self._thresholds["gpu.clear"],
        )

    def _model_of(self, uuid: str) -> str:
        return next((gpu.model for gpu in self._by_index.values() if gpu.uuid == uuid), "")

    def _link_errors(self, subject: str, gpu: Mapping[str, Any], mono: float) -> Iterator[Signal]:
        counted = [gpu[name] for name in ("nvlink_replays", "nvlink_recoveries") if name in gpu]
        by_link = gpu.get("link_recoveries", {})
        if not counted and not by_link:
            return
        bad, value, allowed = False, "", ""
        total: float | None = None
        if counted:
            total = float(sum(counted))
            grown, _ = self._windows.increase(f"{subject} recoveries", total, mono, _HOUR)
            most = self._thresholds["nvlink.recoveries"]
            bad, value, allowed = grown > most, f"{grown:g} recoveries in an hour", f"{most:g} in an hour"
        if not bad and "nvlink_crc" in gpu:
            errors, seconds = self._windows.increase(f"{subject} crc", float(gpu["nvlink_crc"]), mono, _MINUTE)
            rate = errors / seconds if seconds else 0.0
            most = self._thresholds["nvlink.crc"]
            if rate > most:
                bad, value, allowed, total = True, f"{rate:.0f} CRC errors/s", f"{most:g}/s", None
        # NVLink 5 recovers now and then: only a link that keeps doing so is bad.
        shares = {link: self._recovering(f"{subject} link {link}", float(by_link[link]), mono) for link in by_link}
        link = max(shares, key=lambda candidate: shares[candidate], default="")
        most = self._thresholds["nvlink.recovering"]
        if not bad and link and shares[link] > most:
            value, allowed = f"link {link} recovers in {shares[link]:.0%} of the samples", f"{most:.0%}"
            bad, total = True, None
        yield self._rate(kinds.NVLINK_ERRORS, subject, bad, value, allowed, f"NVLink: {value}", total)

    def _recovering(self, name: str, recoveries: float, mono: float) -> float:
        """Return the share of recent samples in which this link had recovered since the sample before."""
        grown, _ = self._windows.increase(f"{name} recoveries", recoveries, mono, _SAMPLE)
        return self._windows.share(f"{name} recovering", grown > 0, mono, self._thresholds["nvlink.window"]) or 0.0

    def _rate(
        self,
        kind: str,
        subject: str,
        bad: bool,
        value: str,
        allowed: str,
        message: str,
        counter: float | None = None,
    ) -> Signal:
        return Signal(
            kind,
            subject,
            bad,
            value=value,
            threshold=allowed,
            message=message,
            counter=counter,
            clear_seconds=self._thresholds["rates.clear"],
            episode_seconds=self._thresholds["rates.episode"],
        )

    def _fabric(self, subject: str, gpu: Mapping[str, Any]) -> Iterator[Signal]:
        state, status, mask = gpu.get("fabric", (0, 0, 0))
        if state == 0:  # not supported: no NVSwitch
            return
        wrong = [name for shift, name in _FABRIC_HEALTH.items() if (mask >> shift) & 3 == 1]
        if (mask >> _FABRIC_CONFIGURATION_SHIFT) & _FABRIC_CONFIGURATION_MASK > 1:
            wrong.append("incorrect configuration")
        if state in _FABRIC_STATES:
            wrong = [f"registration {_FABRIC_STATES[state]}"]
        elif status != 0:
            wrong = [f"registration failed with status {status}"]
        sustain = self._thresholds["fabric.sustain"] if state != _FABRIC_COMPLETED else 0.0
        text = f"NVLink fabric: {', '.join(wrong)}"
        clear = self._thresholds["gpu.clear"]
        yield Signal(kinds.FABRIC_STATE, subject, bool(wrong), status, text, "registered", text, None, sustain, clear)

    def _persistence(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        modes = [gpu["persistence"] for _, gpu in self._named(answer) if "persistence" in gpu]
        if modes:
            off = sum(not mode for mode in modes)
            value = f"off on {off} of {len(modes)} GPUs" if off else ""
            text = "the next program initialises an unused GPU again, which loses its settings"
            sustain, clear = self._thresholds["persistence.sustain"], self._thresholds["gpu.clear"]
            yield Signal(kinds.PERSISTENCE_MODE, "", off > 0, 0, value, "on", text, None, sustain, clear)

    def _pcie(self, subject: str, gpu: Mapping[str, Any], mono: float) -> Iterator[Signal]:
        clear = self._thresholds["pcie.clear"]
        yield from self._generation(subject, gpu, mono)
        width, most = gpu.get("pcie_width", 0), gpu.get("pcie_width_most", 0)
        if width and most:
            yield Signal(
                kinds.PCIE_WIDTH,
                subject,
                width < most,
                value=f"x{width}",
                threshold=f"x{most}",
                message=f"the PCIe link has {width} of {most} lanes",
                sustain_seconds=self._thresholds["pcie.width_sustain"],
                clear_seconds=clear,
            )
        if "pcie_replays" in gpu and most:
            generation = min(max(int(gpu.get("pcie_generation", 1)), 1), 6)
            allowed = math.ceil(self._thresholds[f"pcie.replays_gen{generation}"] * most)
            grown, seconds = self._windows.increase(f"{subject} replays", float(gpu["pcie_replays"]), mono, _MINUTE)
            rate = grown * _MINUTE / max(seconds, _MINUTE)
            value = f"{rate:.0f} replays/min"
            yield self._rate(kinds.PCIE_REPLAY, subject, rate > allowed, value, f"{allowed}/min", f"PCIe: {value}")
        if "pcie_fatal" in gpu:
            yield self._limit(kinds.PCIE_FATAL, subject, "pcie.fatal", gpu["pcie_fatal"], "fatal PCIe errors")

    def _generation(self, subject: str, gpu: Mapping[str, Any], mono: float) -> Iterator[Signal]:
        """Yield whether the PCIe link is slower than card and slot allow. An idle GPU lowers it to save power: only
        busy ones count."""
        now, most = gpu.get("pcie_generation_now", 0), gpu.get("pcie_generation", 0)
        idle = int(gpu.get("clock_reasons", _GPU_IDLE)) & _GPU_IDLE or gpu.get("performance_state", 1) != 0
        if idle or not now or not most:
            self._slow_link_since.pop(subject, None)
            return
        if now >= most:
            self._slow_link_since.pop(subject, None)
            slow_for = 0.0
        else:
            slow_for = mono - self._slow_link_since.setdefault(subject, mono)
        if now >= most or slow_for >= self._thresholds["pcie.generation_sustain"]:
            yield Signal(
                kinds.PCIE_GENERATION,
                subject,
                now < most,
                value=f"generation {now}",
                threshold=f"generation {most}",
                message=f"the PCIe link runs at generation {now} under load; card and slot allow {most}",
                clear_seconds=self._thresholds["pcie.clear"],
            )

    def _heat(self, subject: str, gpu: Mapping[str, Any], mono: float) -> Iterator[Signal]:
        if "margin" in gpu:
            margin, least = gpu["margin"], gpu.get("slowdown_margin", self._thresholds["temperature.margin"])
            yield Signal(
                kinds.TEMPERATURE,
                subject,
                margin < least,
                value=f"{margin:g} °C below the limit",
                threshold=f"{least:g} °C",
                message=f"thermal margin {margin:g} °C, the driver slows down at {least:g} °C",
                sustain_seconds=self._thresholds["temperature.sustain"],
                clear_seconds=self._thresholds["heat.clear"],
            )
        if "clock_reasons" in gpu:
            bits = [bit for bit in _THROTTLES if int(gpu["clock_reasons"]) & bit]
            window = self._thresholds["throttle.window"]
            share = self._windows.share(f"{subject} throttled", bool(bits), mono, window)
            if share is not None:
                text = ", ".join(_THROTTLES[bit] for bit in bits) or "hardware slowdown"
                most = self._thresholds["throttle.share"]
                value = f"in {share:.0%} of {window:.0f} s"
                yield Signal(
                    kinds.THROTTLE,
                    subject,
                    share >= most,
                    value=value,
                    threshold=f"{most:.0%}",
                    message=f"clocks reduced by {text}",
                    clear_seconds=self._thresholds["heat.clear"],
                )
        if "energy_mj" in gpu and gpu.get("power_mw", 0) > _IDLE_MILLIWATTS:
            grown, seconds = self._windows.increase(f"{subject} energy", float(gpu["energy_mj"]), mono, _MINUTE)
            yield Signal(
                kinds.ENERGY_COUNTER,
                subject,
                seconds > 0 and grown <= 0,
                message=f"the energy counter does not advance at {gpu['power_mw'] / 1000:.0f} W",
                sustain_seconds=self._thresholds["energy.sustain"],
            )


def _active_links(gpu: Mapping[str, Any]) -> int:
    return sum(1 for state in gpu.get("links", {}).values() if state)


def _links_of(model: str) -> int:
    """Return the NVLinks of a model whose links are all wired; 0: unknown."""
    words = set(model.split())
    if words & set(_BRIDGED):
        return 0
    return next((links for name, links in _LINKS_OF_MODEL if name in model and "G" + name not in words), 0)
