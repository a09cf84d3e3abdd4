"""What each kind of the agent's evidence means: the agent says what is, this table what follows from it.

The agent measures against thresholds (docs/node-agent.md) and sends only what is beyond them. A kind that is not in the
table, of an agent newer than the operator, warns and does no more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from muster.api.nodehealth import Evidence, Finding, RecommendedAction, Severity
from muster.health.signs import AGENT, Clears, Repetition, Sign
from muster.health.xids import (
    DAY_SECONDS,
    DEGRADED,
    FATAL,
    INFO,
    INSPECT,
    NONE,
    REBOOT,
    REPLACE,
    RESET,
    WARNING,
    ErrorCode,
    recovery_action,
    sxid,
    xid,
)

HOUR_SECONDS = 3600
XID, SXID, RECOVERY_ACTION = "Xid", "SXid", "RecoveryAction"
_NUMBERED = re.compile(r"(?P<kind>Xid|SXid)(?P<code>\d{1,9})")


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table: what one kind of the agent's evidence means.

    Attributes:
        meaning: what has happened, for people.
        severity: what the evidence weighs.
        action: what to do with the machine.
        source: which other systems treat the kind so.
        clears: what ends the sign.
        often: what the evidence weighs when it comes often; None: no more.
        event: whether each occurrence is news, as the kind happens rather than lasts.
        then: the action when the same kind took the node out before; None: the same action.
    """

    meaning: str
    severity: Severity
    action: RecommendedAction
    source: str
    clears: Clears = Clears.EVIDENCE
    often: Repetition | None = None
    event: bool = False
    then: RecommendedAction | None = None


_MUSTER = "Muster's choice"
_BY_CODE = "by its number: see below"
UNKNOWN_KIND = Kind("not in the table: the agent is newer than the operator", WARNING, INSPECT, _MUSTER)

KINDS: Mapping[str, Kind] = {
    XID: Kind("the driver reports an error", WARNING, NONE, _BY_CODE, event=True),
    SXID: Kind("an NVSwitch reports an error", WARNING, NONE, _BY_CODE, event=True),
    RECOVERY_ACTION: Kind("the driver says what to do (NVML field 230)", WARNING, NONE, _BY_CODE),
    "GpuLost": Kind(
        "a GPU does not answer any more", FATAL, REBOOT, "gpud, NVSentinel, DCGM", Clears.BOOT, then=REPLACE
    ),
    "GpuReset": Kind("a GPU has been reset: XIDs from before that needed it are over", INFO, NONE, _MUSTER),
    "GpuUnreachable": Kind(
        "a GPU answers nothing but errors", FATAL, REBOOT, "gpud, NVSentinel: as a GPU that is lost", then=REPLACE
    ),
    "GpuInit": Kind("the driver could not start a GPU", FATAL, REBOOT, "gpud: RmInitAdapter failed", then=REPLACE),
    "DriverFatal": Kind(
        "the driver says that only a boot repairs it: no program can start on any GPU",
        FATAL,
        REBOOT,
        "the driver itself, as XID 154",
        Clears.BOOT,
        event=True,
    ),
    "ResetRequired": Kind("a GPU has to be reset", FATAL, RESET, "gpud"),
    "GpuCount": Kind(
        "fewer GPUs than there should be", FATAL, REBOOT, "Azure NHC, gpud, AKS, EKS, NVSentinel", then=REPLACE
    ),
    "NvmlFailed": Kind(
        "the driver's library does not work any more: no new program can use a GPU",
        DEGRADED,
        REBOOT,
        "gpud; training may go on for now",
    ),
    "NvmlHang": Kind("the driver's library hangs; training may go on for now", DEGRADED, REBOOT, "go-nvml #152"),
    "EccUncorrected": Kind("uncorrectable memory errors since the driver was loaded", FATAL, RESET, "DCGM, gcm, CHS"),
    "EccCorrected": Kind("many corrected memory errors", WARNING, NONE, "gcm, Azure NHC"),
    "SramUncorrected": Kind("uncorrectable errors in SRAM", FATAL, RESET, "Azure NHC", then=REPLACE),
    "SramThreshold": Kind("the GPU says that its SRAM is worn", FATAL, REPLACE, "DCGM"),
    "RowRemapPending": Kind(
        "bad memory rows wait for a reset to be replaced", DEGRADED, RESET, "gpud, Azure NHC, DCGM"
    ),
    "RowRemapFailed": Kind("no spare memory rows are left", FATAL, REPLACE, "gpud, Azure NHC, NVSentinel"),
    "RowRemaps": Kind("many memory rows had to be replaced", WARNING, INSPECT, "DCGM"),
    "RetiredPages": Kind("many memory pages are retired", DEGRADED, REPLACE, "gcm, DCGM"),
    "RetiredPagesPending": Kind("memory pages wait for a reset to be retired", DEGRADED, RESET, "DCGM"),
    "RepairPending": Kind("a repair of channels or TPCs waits for a reset", DEGRADED, RESET, _MUSTER),
    "InfoRom": Kind("the GPU's InfoROM is damaged", DEGRADED, INSPECT, "DCGM, Azure NHC, NVSentinel"),
    "NvLinkDown": Kind("an NVLink is down", FATAL, RESET, "NVRx, Azure NHC"),
    "NvLinkErrors": Kind(
        "an NVLink has errors", WARNING, INSPECT, "DCGM, NVRx", often=Repetition(3, DAY_SECONDS, DEGRADED, RESET)
    ),
    "NvLinkDiscovery": Kind(
        "the driver cannot find out which NVLinks are up: what asks it hangs",
        DEGRADED,
        REBOOT,
        "gpud",
        Clears.BOOT,
        event=True,
    ),
    "AmdGpuError": Kind(
        "the driver of an AMD GPU says that it is lost, cannot be started or reset, or has memory errors that could "
        "not be corrected",
        FATAL,
        REBOOT,
        "ROCm's node-scraper",
        Clears.BOOT,
        event=True,
        then=REPLACE,
    ),
    "FabricState": Kind("the GPU has not joined the NVLink fabric: CUDA cannot start", FATAL, INSPECT, "EKS, gpud"),
    "FabricManager": Kind("fabric manager does not run; no new program can use NVLink", DEGRADED, INSPECT, "gpud, EKS"),
    "PcieWidth": Kind("a PCIe link is narrower than it should be", DEGRADED, INSPECT, "DCGM"),
    "PcieGeneration": Kind(
        "a PCIe link is slower under load than card and slot can be", WARNING, INSPECT, "DCGM; virtual slots may lie"
    ),
    "PcieReplay": Kind(
        "a PCIe link repeats transfers", WARNING, INSPECT, "DCGM", often=Repetition(3, DAY_SECONDS, DEGRADED, INSPECT)
    ),
    "PcieFatal": Kind("fatal errors of a PCIe link", DEGRADED, REBOOT, _MUSTER),
    "PcieAerFatal": Kind(
        "a GPU or network card, or a bridge above one, reports a fatal PCIe error",
        FATAL,
        REBOOT,
        "PCIe AER",
        Clears.BOOT,
        event=True,
    ),
    "PcieAerUncorrected": Kind(
        "a GPU or network card reports a PCIe error that could not be corrected",
        DEGRADED,
        INSPECT,
        "PCIe AER",
        Clears.BOOT,
        event=True,
    ),
    "PcieAerCorrected": Kind(
        "a GPU or network card reports PCIe errors that were corrected",
        INFO,
        NONE,
        "PCIe AER",
        often=Repetition(5, DAY_SECONDS, WARNING, INSPECT),
        event=True,
    ),
    "PcieAerElsewhere": Kind(
        "a bridge or another device reports a PCIe error that could not be corrected, and took no GPU or network "
        "card away",
        WARNING,
        INSPECT,
        "PCIe AER, DPC",
        event=True,
    ),
    "Temperature": Kind("too hot for ten minutes", DEGRADED, INSPECT, "NVSentinel, gpud"),
    "Throttle": Kind("the hardware slows itself down most of the time", DEGRADED, INSPECT, "gpud"),
    "EnergyCounter": Kind("the energy counter stands still: figures about power are wrong", INFO, NONE, _MUSTER),
    "DriverDrift": Kind(
        "another driver or firmware than its peers, or than the one loaded", WARNING, INSPECT, "imbue, gcm"
    ),
    "PersistenceMode": Kind(
        "persistence mode is off; the agent itself keeps the GPUs awake", INFO, NONE, "gpud: unhealthy; DCGM: warns"
    ),
    "IbPortDown": Kind("a port of the network is down", FATAL, INSPECT, "NVSentinel, gpud"),
    "IbPortFlap": Kind("a port of the network goes up and down", DEGRADED, INSPECT, "gpud, Azure NHC"),
    "IbDeviceMissing": Kind("a network device is gone", FATAL, REBOOT, "NVSentinel"),
    "IbPortOff": Kind(
        "the interface of a port of the network is switched off: software does that, e.g. when a pod had it, and no "
        "job can use the port meanwhile",
        WARNING,
        INSPECT,
        _MUSTER,
    ),
    "FrontEndDown": Kind(
        "a port of the node's own network, which carries its default route and no training, is down or gone",
        WARNING,
        INSPECT,
        _MUSTER,
    ),
    "IbCounters": Kind(
        "a port of the network counts errors",
        WARNING,
        INSPECT,
        "NVSentinel: three in an hour",
        often=Repetition(3, HOUR_SECONDS, DEGRADED, INSPECT),
    ),
    "EfaUnresponsive": Kind(
        "the firmware of an EFA device does not complete commands any more", DEGRADED, REBOOT, "NVSentinel: fatal"
    ),
    "SysfsHang": Kind(
        "a device of the network cannot be read any more", DEGRADED, REBOOT, "Muster's choice, as NvmlHang"
    ),
    "NicError": Kind("the network driver reports an error", WARNING, INSPECT, "NVSentinel, gpud", event=True),
    "DiskError": Kind("a disk reports errors", DEGRADED, INSPECT, "gpud, NPD", Clears.BOOT, event=True),
    "NetworkDiskError": Kind(
        "a disk behind a network, or a thin volume, reports errors: shared or full storage does that to every node "
        "at once, and it is no node's fault",
        WARNING,
        INSPECT,
        _MUSTER,
        event=True,
    ),
    "ReadOnlyFilesystem": Kind("a file system has become read-only", DEGRADED, REBOOT, "NPD, gpud"),
    "KernelHang": Kind(
        "the kernel reports a core that hangs, or an error of its own",
        WARNING,
        INSPECT,
        "NPD, gpud",
        often=Repetition(3, HOUR_SECONDS, DEGRADED, REBOOT),
        event=True,
    ),
    "TaskHang": Kind(
        "a task does not come to an end, most often for storage: a server that is away does that to every node at "
        "once, however often",
        WARNING,
        INSPECT,
        "NPD, gpud",
        event=True,
    ),
    "HostErrorUncorrected": Kind(
        "the processor or main memory reports an error that could not be corrected",
        DEGRADED,
        INSPECT,
        "machine checks, EDAC: UE",
        Clears.BOOT,
        event=True,
    ),
    "HostErrorCorrected": Kind(
        "the processor or main memory reports errors that were corrected",
        INFO,
        NONE,
        "machine checks, EDAC: CE",
        often=Repetition(5, DAY_SECONDS, WARNING, INSPECT),
        event=True,
    ),
    "HostThermal": Kind(
        "the processor slows down, or is switched off, for heat", WARNING, INSPECT, _MUSTER, event=True
    ),
    "ClockSource": Kind("the clock has fallen back to a slow source", WARNING, INSPECT, "Linux's clock watchdog"),
}


def _clears(kind: Kind, subject: str) -> Clears:
    """Return what ends a sign of this kind.

    A read-only file system that is known by its mount is seen to be writable again. One that only the log names, by its
    device, is not: only another boot ends it.

    Args:
        kind: of the evidence.
        subject: of the evidence: a mount point or a device.
    """
    only_logged = kind is KINDS["ReadOnlyFilesystem"] and not subject.startswith("/")
    return Clears.BOOT if only_logged else kind.clears


def sign_of(evidence: Evidence, now: datetime) -> Sign:
    """Return the sign for one entry of the agent's evidence; a time that lies ahead counts as now."""
    first, last = min(evidence.first_seen, now), min(max(evidence.first_seen, evidence.last_seen), now)
    kind = KINDS.get(evidence.kind, UNKNOWN_KIND)
    reason, meaning, severity, action = evidence.kind, kind.meaning, kind.severity, kind.action
    clears, often, then = _clears(kind, evidence.subject), kind.often, kind.then
    if evidence.kind in (XID, SXID):
        row = _row(evidence)
        reason, meaning, severity, action = f"{evidence.kind}{evidence.code}", row.meaning, row.severity, row.action
        clears, often, then = row.clears, row.often, row.then
    elif evidence.kind == RECOVERY_ACTION:
        name, severity, action = recovery_action(evidence.code)
        reason = f"{RECOVERY_ACTION}{name}"
    if often and often.reached(evidence.count, first, last):
        severity, action = often.severity, often.action
    return Sign(
        AGENT,
        reason,
        severity,
        since=first,
        newest=last if kind.event else first,
        action=action,
        subject=evidence.subject,
        message=_message(meaning, evidence),
        clears=clears,
        then=then,
        dated=max(evidence.first_seen, evidence.last_seen) if kind.event else evidence.first_seen,
    )


def latched(finding: Finding, now: datetime) -> Sign | None:
    """Return the sign of an agent's finding that stands for the whole boot, though it is not reported any more.

    None: the finding ends when it is not reported.

    Args:
        finding: on record, from the agent.
        now: the time.
    """
    number = _NUMBERED.fullmatch(finding.reason)
    if number:
        row = (xid if number["kind"] == XID else sxid)(int(number["code"]), finding.message)
        action, clears, then = row.action, row.clears, row.then
    else:
        kind = KINDS.get(finding.reason, UNKNOWN_KIND)
        action, clears, then = kind.action, _clears(kind, finding.subject), kind.then
    if clears is not Clears.BOOT or finding.severity not in (DEGRADED, FATAL):
        return None
    return Sign(
        AGENT,
        finding.reason,
        finding.severity,
        since=finding.since,
        newest=min(finding.since, now),
        action=action,
        subject=finding.subject,
        message=finding.message,
        clears=clears,
        then=then,
    )


def _row(evidence: Evidence) -> ErrorCode:
    return (xid if evidence.kind == XID else sxid)(evidence.code, evidence.message)


def _message(meaning: str, evidence: Evidence) -> str:
    measured = f"{evidence.value}, allowed {evidence.threshold}" if evidence.threshold else evidence.value
    return ": ".join(part for part in (meaning, measured, evidence.message) if part)
