"""What NVML's answers say about the GPUs: pure but for the memory of counters and of what has been seen in this boot."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.agent import kinds
from muster.agent.facts import Incident, Signal, clean, pci_address
from muster.agent.rates import Windows
from muster.agent.thresholds import Thresholds

_LOST, _RESET_REQUIRED = 15, 16
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
_MINUTE, _HOUR = 60.0, 3600.0
_IDLE_MILLIWATTS = 1000


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML introduces it."""

    uuid: str
    pci: str
    serial: str
    model: str
    vbios: str


class Gpus:
    """Everything about this node's GPUs that has to be remembered between two answers."""

    def __init__(self, thresholds: Thresholds, expected: int | None) -> None:
        self._thresholds = thresholds
        self._configured = expected
        self._windows = Windows()
        self._by_index: dict[int, Gpu] = {}
        self.names: dict[str, str] = {}
        """UUIDs by `PCI:<address>`, of all GPUs seen in this boot."""
        self.seen = 0
        """Most GPUs seen in this boot."""
        self.answering = 0
        self.driver = ""
        self.problem = ""
        self.figures: dict[str, Mapping[str, float]] = {}
        """Per GPU: what is worth a metric."""

    @property
    def serials(self) -> list[str]:
        """Serial numbers of the GPUs, sorted."""
        return sorted({gpu.serial[:64] for gpu in self._by_index.values() if gpu.serial})

    @property
    def model(self) -> str:
        """What they call themselves; the first if they differ."""
        return next((clean(gpu.model, 128) for gpu in self._by_index.values()), "")

    @property
    def expected(self) -> int:
        """As many as there should be."""
        return self.seen if self._configured is None else self._configured

    def restart(self) -> None:
        """The node has booted."""
        self._windows.clear()
        self._by_index.clear()
        self.names.clear()
        self.figures.clear()
        self.seen = self.answering = 0

    def name_of(self, pci: str) -> str:
        """The UUID of the GPU at an address, or the address while that is not known."""
        return self.names.get(f"PCI:{pci}", f"PCI:{pci}")

    def started(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Of a `start`."""
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
            return
        self.problem = ""
        self.driver = clean(str(answer.get("driver", "")), 64)
        # With a GPU less the others may have other numbers; one that answers no more keeps the name that it had.
        before, self._by_index = self._by_index, {}
        named = {gpu.get("uuid") for gpu in answer.get("gpus", ())}
        for gpu in answer.get("gpus", ()):
            if "uuid" not in gpu:
                missed = before.get(int(gpu["index"]))
                if missed is not None and missed.uuid not in named:
                    self._by_index[int(gpu["index"])] = missed
                continue
            made = Gpu(gpu["uuid"], pci_address(gpu["pci"]) or "", gpu["serial"], gpu["model"], gpu["vbios"])
            self._by_index[int(gpu["index"])] = made
            if made.pci:
                self.names[f"PCI:{made.pci}"] = made.uuid
        yield from self._sick(answer)
        yield from self._drift()

    def _drift(self) -> Iterator[Signal]:
        versions = [gpu.vbios for gpu in self._by_index.values() if gpu.vbios]
        usual = max(sorted(set(versions)), key=versions.count, default="")
        for gpu in self._by_index.values():
            odd = bool(gpu.vbios) and versions.count(gpu.vbios) < versions.count(usual)
            text = "its VBIOS differs from the other GPUs' of this node"
            yield Signal(kinds.DRIVER_DRIFT, gpu.uuid, odd, 0, clean(gpu.vbios, 64), clean(usual, 64), text)

    def fast(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Of a `fast`."""
        clear = self._thresholds["gpu.clear"]
        sick = {int(gpu["index"]) for gpu in answer["gpus"] if "error" in gpu}
        count = answer.get("count")
        if count is not None:
            self.seen = max(self.seen, int(count))
            self.answering = max(0, int(count) - len(sick))
            few = int(count) < self.expected
            source = "this boot" if self._configured is None else "the configuration"
            yield Signal(
                kinds.GPU_COUNT,
                "",
                few,
                value=f"{count} GPUs",
                threshold=f"{self.expected} GPUs",
                message=f"NVML shows {count} GPUs, {source} has {self.expected}",
                clear_seconds=clear,
            )
        yield from self._sick(answer)
        for subject, gpu in self._named(answer):
            action = gpu.get("action")
            if action is not None:
                text = f"the driver says: {_ACTIONS.get(action, 'unknown action')}"
                shown = f"{action}" if action else ""
                yield Signal(kinds.RECOVERY_ACTION, subject, action != 0, action, shown, "0", text, clear_seconds=clear)

    def _sick(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        clear = self._thresholds["gpu.clear"]
        for gpu in answer["gpus"]:
            index, error = int(gpu["index"]), gpu.get("error")
            known = self._by_index.get(index)
            subject = known.uuid if known is not None else f"GPU {index}"
            if error not in (None, _LOST, _RESET_REQUIRED):
                continue
            if error is None and known is None:
                continue
            lost, reset = error == _LOST, error == _RESET_REQUIRED
            yield Signal(kinds.GPU_LOST, subject, lost, message="NVML: GPU is lost", clear_seconds=clear)
            if not lost:
                text = "NVML: the GPU requires a reset"
                yield Signal(kinds.RESET_REQUIRED, subject, reset, message=text, clear_seconds=clear)

    def slow(self, answer: Mapping[str, Any]) -> Iterator[Signal]:
        """Of a `slow`."""
        for subject, gpu in self._named(answer):
            if "inforom" in gpu:
                yield Signal(kinds.INFOROM, subject, not gpu["inforom"], message="NVML: the InfoROM is corrupted")

    def normal(self, answer: Mapping[str, Any], mono: float) -> Iterator[Signal]:
        """Of a `normal`."""
        usual_links = max((_active_links(gpu) for gpu in answer["gpus"]), default=0)
        for subject, gpu in self._named(answer):
            self._note(subject, gpu)
            yield from self._memory(subject, gpu)
            yield from self._nvlink(subject, gpu, usual_links, mono)
            yield from self._fabric(subject, gpu)
            yield from self._pcie(subject, gpu, mono)
            yield from self._heat(subject, gpu, mono)

    def events(self, event: Mapping[str, Any]) -> Iterator[Incident]:
        """Of an event."""
        code = event.get("xid")
        if isinstance(code, int) and code > 0:
            text = f"NVML reports XID {code}"
            expires = self._thresholds["xid.expires"]
            yield Incident(kinds.XID, clean(str(event.get("uuid", "")), 128), expires, code, message=text, brief=True)

    def _named(self, answer: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for gpu in answer["gpus"]:
            known = self._by_index.get(int(gpu["index"]))
            if known is not None and "error" not in gpu:
                yield known.uuid, gpu

    def _note(self, subject: str, gpu: Mapping[str, Any]) -> None:
        names = ("power_mw", "energy_mj", "margin", "clock_reasons", "pcie_replays", "ecc_corrected", "ecc_uncorrected")
        self.figures[subject] = {name: float(gpu[name]) for name in names if name in gpu}

    def _limit(self, kind: str, subject: str, row: str, value: float, what: str) -> Signal:
        most = self._thresholds[row]
        text = f"{value:g} {what}"
        return Signal(
            kind,
            subject,
            value > most,
            value=text,
            threshold=f"{most:g} {what}",
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
        for name, kind, row, what in limits:
            if name in gpu:
                yield self._limit(kind, subject, row, gpu[name], what)
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
            what = "channel" if channel else "TPC"
            yield self._flag(kinds.REPAIR_PENDING, subject, bool(channel or tpc), f"a {what} repair waits for a reset")

    def _nvlink(self, subject: str, gpu: Mapping[str, Any], usual: int, mono: float) -> Iterator[Signal]:
        links = gpu.get("links", {})
        if links and usual:
            down = [link for link, state in links.items() if not state]
            active = len(links) - len(down)
            yield Signal(
                kinds.NVLINK_DOWN,
                subject,
                active < usual,
                value=f"{active} links",
                threshold=f"{usual} links",
                message=f"NVLinks that are down: {', '.join(down)}",
                clear_seconds=self._thresholds["gpu.clear"],
            )
        recoveries = [gpu[name] for name in ("nvlink_replays", "nvlink_recoveries") if name in gpu]
        recoveries += gpu.get("link_recoveries", {}).values()
        if recoveries:
            grown, _ = self._windows.increase(f"{subject} recoveries", float(sum(recoveries)), mono, _HOUR)
            most = self._thresholds["nvlink.recoveries"]
            bad, value, allowed = grown > most, f"{grown:g} recoveries in an hour", f"{most:g} in an hour"
            if not bad and "nvlink_crc" in gpu:
                errors, seconds = self._windows.increase(f"{subject} crc", float(gpu["nvlink_crc"]), mono, _MINUTE)
                rate = errors / seconds if seconds else 0.0
                most = self._thresholds["nvlink.crc"]
                bad, value, allowed = rate > most, f"{rate:.0f} CRC errors/s", f"{most:g}/s"
            yield Signal(kinds.NVLINK_ERRORS, subject, bad, 0, value, allowed, f"NVLink: {value}")

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

    def _pcie(self, subject: str, gpu: Mapping[str, Any], mono: float) -> Iterator[Signal]:
        clear = self._thresholds["gpu.clear"]
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
            yield Signal(kinds.PCIE_REPLAY, subject, rate > allowed, 0, value, f"{allowed}/min", f"PCIe: {value}")
        if "pcie_fatal" in gpu:
            yield self._limit(kinds.PCIE_FATAL, subject, "pcie.fatal", gpu["pcie_fatal"], "fatal PCIe errors")

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
                    kinds.THROTTLE, subject, share >= most, 0, value, f"{most:.0%}", f"clocks held back by {text}"
                )
        if "energy_mj" in gpu and gpu.get("power_mw", 0) > _IDLE_MILLIWATTS:
            grown, seconds = self._windows.increase(f"{subject} energy", float(gpu["energy_mj"]), mono, _MINUTE)
            yield Signal(
                kinds.ENERGY_COUNTER,
                subject,
                seconds > 0 and grown <= 0,
                message=f"the energy counter stands still at {gpu['power_mw'] / 1000:.0f} W",
                sustain_seconds=self._thresholds["energy.sustain"],
            )


def _active_links(gpu: Mapping[str, Any]) -> int:
    return sum(1 for state in gpu.get("links", {}).values() if state)
