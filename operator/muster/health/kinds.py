"""What each kind of the agent's evidence means: the agent reports facts, this table gives their severity and action.

The agent measures against thresholds (docs/node-agent.md) and sends only what exceeds them. A kind that is not in the
table comes from an agent that is newer than the operator, and only warns.
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
from muster.protocol.messages import readable

HOUR_SECONDS = 3600
XID, SXID, RECOVERY_ACTION = "Xid", "SXid", "RecoveryAction"
_NUMBERED = re.compile(r"(?P<kind>Xid|SXid)(?P<code>\d{1,9})")


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table: what one kind of the agent's evidence means.

    Attributes:
        meaning: what has happened, as text for users.
        severity: the severity of the finding.
        action: what to do with the machine.
        source: other systems that treat the kind in the same way.
        clears: what ends the sign.
        often: severity and action when the evidence comes often; None: the same.
        event: whether the kind is an event, of which each occurrence is new, and not a state that lasts.
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
_BY_CODE = "by its code: see below"
UNKNOWN_KIND = Kind("unknown kind: the agent is newer than the operator", WARNING, INSPECT, _MUSTER)

KINDS: Mapping[str, Kind] = {
    XID: Kind("the driver reports an error", WARNING, NONE, _BY_CODE, event=True),
    SXID: Kind("an NVSwitch reports an error", WARNING, NONE, _BY_CODE, event=True),
    RECOVERY_ACTION: Kind("the driver recommends an action (NVML field 230)", WARNING, NONE, _BY_CODE),
    "GpuLost": Kind("a GPU no longer answers", FATAL, REBOOT, "gpud, NVSentinel, DCGM", Clears.BOOT, then=REPLACE),
    "GpuReset": Kind("a GPU was reset, which ends earlier XIDs that needed a reset", INFO, NONE, _MUSTER),
    "GpuUnreachable": Kind(
        "a GPU answers with errors only", FATAL, REBOOT, "gpud, NVSentinel: as a GPU that is lost", then=REPLACE
    ),
    "GpuInit": Kind("the driver could not start a GPU", FATAL, REBOOT, "gpud: RmInitAdapter failed", then=REPLACE),
    "DriverFatal": Kind(
        "the driver reports that it needs a reboot: no program can start on any GPU",
        FATAL,
        REBOOT,
        "the driver itself, as XID 154",
        Clears.BOOT,
        event=True,
    ),
    "ResetRequired": Kind("a GPU has to be reset", FATAL, RESET, "gpud"),
    "GpuCount": Kind("fewer GPUs than expected", FATAL, REBOOT, "Azure NHC, gpud, AKS, EKS, NVSentinel", then=REPLACE),
    "NvmlFailed": Kind(
        "the driver's library no longer works: no new program can use a GPU",
        DEGRADED,
        REBOOT,
        "gpud; training may continue for now",
    ),
    "NvmlHang": Kind("the driver's library hangs; training may continue for now", DEGRADED, REBOOT, "go-nvml #152"),
    "EccUncorrected": Kind("uncorrectable memory errors since the driver was loaded", FATAL, RESET, "DCGM, gcm, CHS"),
    "EccCorrected": Kind("many corrected memory errors", WARNING, NONE, "gcm, Azure NHC"),
    "SramUncorrected": Kind("uncorrectable errors in SRAM", FATAL, RESET, "Azure NHC", then=REPLACE),
    "SramThreshold": Kind("the GPU reports that its SRAM is worn out", FATAL, REPLACE, "DCGM"),
    "RowRemapPending": Kind(
        "bad memory rows wait for a reset, which replaces them", DEGRADED, RESET, "gpud, Azure NHC, DCGM"
    ),
    "RowRemapFailed": Kind("no spare memory rows are left", FATAL, REPLACE, "gpud, Azure NHC, NVSentinel"),
    "RowRemaps": Kind("the GPU has replaced many memory rows", WARNING, INSPECT, "DCGM"),
    "RetiredPages": Kind("many memory pages are retired", DEGRADED, REPLACE, "gcm, DCGM"),
    "RetiredPagesPending": Kind("memory pages wait for a reset, which retires them", DEGRADED, RESET, "DCGM"),
    "RepairPending": Kind("a repair of channels or TPCs waits for a reset", DEGRADED, RESET, _MUSTER),
    "InfoRom": Kind("the GPU's InfoROM is damaged", DEGRADED, INSPECT, "DCGM, Azure NHC, NVSentinel"),
    "NvLinkDown": Kind("an NVLink is down", FATAL, RESET, "NVRx, Azure NHC"),
    "NvLinkErrors": Kind(
        "an NVLink has errors", WARNING, INSPECT, "DCGM, NVRx", often=Repetition(3, DAY_SECONDS, DEGRADED, RESET)
    ),
    "NvLinkDiscovery": Kind(
        "the driver cannot determine which NVLinks are up: programs that query it hang",
        DEGRADED,
        REBOOT,
        "gpud",
        Clears.BOOT,
        event=True,
    ),
    "AmdGpuError": Kind(
        "the driver reports that an AMD GPU is lost, cannot be started or reset, or has uncorrectable memory errors",
        FATAL,
        REBOOT,
        "ROCm's node-scraper",
        Clears.BOOT,
        event=True,
        then=REPLACE,
    ),
    "AcceleratorError": Kind(
        "the driver reports that an accelerator of Intel or AWS is lost, cannot be started or reset, or has "
        "uncorrectable memory errors",
        FATAL,
        REBOOT,
        "EKS: replace; otherwise as AmdGpuError",
        Clears.BOOT,
        event=True,
        then=REPLACE,
    ),
    "AcceleratorReset": Kind(
        "the driver resets an accelerator that no longer answers, or that has an uncorrectable memory error",
        WARNING,
        INSPECT,
        _MUSTER,
        often=Repetition(3, DAY_SECONDS, DEGRADED, REBOOT),
        event=True,
    ),
    "FabricState": Kind("the GPU has not joined the NVLink fabric: CUDA cannot start", FATAL, INSPECT, "EKS, gpud"),
    "FabricManager": Kind("fabric manager does not run; no new program can use NVLink", DEGRADED, INSPECT, "gpud, EKS"),
    "PcieWidth": Kind("a PCIe link is narrower than it should be", DEGRADED, INSPECT, "DCGM"),
    "PcieGeneration": Kind(
        "a PCIe link under load is slower than card and slot allow",
        WARNING,
        INSPECT,
        "DCGM; virtual slots may report wrong speeds",
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
        "a bridge or another device reports a PCIe error that could not be corrected; no GPU or network card was lost",
        WARNING,
        INSPECT,
        "PCIe AER, DPC",
        event=True,
    ),
    "Temperature": Kind("the temperature has been too high for ten minutes", DEGRADED, INSPECT, "NVSentinel, gpud"),
    "Throttle": Kind("the hardware throttles most of the time", DEGRADED, INSPECT, "gpud"),
    "EnergyCounter": Kind("the energy counter does not advance: figures about power are wrong", INFO, NONE, _MUSTER),
    "DriverDrift": Kind(
        "driver or firmware differs from that of its peers, or from the loaded one", WARNING, INSPECT, "imbue, gcm"
    ),
    "PersistenceMode": Kind(
        "persistence mode is off; the agent itself keeps the GPUs awake", INFO, NONE, "gpud: unhealthy; DCGM: warns"
    ),
    "IbPortDown": Kind("a network port is down", FATAL, INSPECT, "NVSentinel, gpud"),
    "IbPortFlap": Kind("a network port goes up and down", DEGRADED, INSPECT, "gpud, Azure NHC"),
    "IbDeviceMissing": Kind("a network device is missing", FATAL, REBOOT, "NVSentinel"),
    "IbPortOff": Kind(
        "the interface of a network port is switched off by software, for example by a pod that had it: no job can "
        "use the port",
        WARNING,
        INSPECT,
        _MUSTER,
    ),
    "FrontEndDown": Kind(
        "a port of the front-end network (default route, no training traffic) is down or missing",
        WARNING,
        INSPECT,
        _MUSTER,
    ),
    "IbCounters": Kind(
        "a network port counts errors",
        WARNING,
        INSPECT,
        "NVSentinel: three in an hour",
        often=Repetition(3, HOUR_SECONDS, DEGRADED, INSPECT),
    ),
    "EfaUnresponsive": Kind(
        "the firmware of an EFA device no longer completes commands", DEGRADED, REBOOT, "NVSentinel: fatal"
    ),
    "SysfsHang": Kind("a network device can no longer be read", DEGRADED, REBOOT, "Muster's choice, as NvmlHang"),
    "NicFailed": Kind(
        "a network card has failed, and its driver does not repair it: the firmware has stopped, a reset has failed, "
        "or its memory has an uncorrectable error",
        DEGRADED,
        REBOOT,
        "HPE; otherwise as EfaUnresponsive",
        Clears.BOOT,
        event=True,
    ),
    "NicError": Kind("the network driver reports an error", WARNING, INSPECT, "NVSentinel, gpud", event=True),
    "DiskError": Kind("a disk reports errors", DEGRADED, INSPECT, "gpud, NPD", Clears.BOOT, event=True),
    "NetworkDiskError": Kind(
        "a network disk or a thin volume reports errors: shared or full storage causes that on all nodes at once",
        WARNING,
        INSPECT,
        _MUSTER,
        event=True,
    ),
    "ReadOnlyFilesystem": Kind("a file system has become read-only", DEGRADED, REBOOT, "NPD, gpud"),
    "KernelHang": Kind(
        "the kernel reports a hanging core, or an error in its own code",
        WARNING,
        INSPECT,
        "NPD, gpud",
        often=Repetition(3, HOUR_SECONDS, DEGRADED, REBOOT),
        event=True,
    ),
    "TaskHang": Kind(
        "a task hangs in the kernel, most often on storage: an absent server causes that on all nodes at once",
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
    "IommuFault": Kind(
        "the IOMMU has refused an access of a device, or does not answer", WARNING, INSPECT, _MUSTER, event=True
    ),
    "HostThermal": Kind(
        "the processor slows down or is switched off because of heat", WARNING, INSPECT, _MUSTER, event=True
    ),
    "ClockSource": Kind("the clock has fallen back to a slow source", WARNING, INSPECT, "Linux's clock watchdog"),
}


def _clears(kind: Kind, subject: str) -> Clears:
    """Return what ends a sign of this kind.

    The agent sees when a read-only file system that is known by its mount is writable again. A file system that only
    the log names, by its device, stays a finding until another boot.

    Args:
        kind: of the evidence.
        subject: of the evidence: a mount point or a device.
    """
    only_logged = kind is KINDS["ReadOnlyFilesystem"] and not subject.startswith("/")
    return Clears.BOOT if only_logged else kind.clears


def sign_of(evidence: Evidence, now: datetime) -> Sign:
    """Return the sign for one entry of the agent's evidence; a time in the future counts as now.

    Its texts have no terminal controls, since they go into the statuses of all jobs on the node.
    """
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
        readable(reason),
        severity,
        since=first,
        newest=last if kind.event else first,
        action=action,
        subject=readable(evidence.subject),
        message=readable(_message(meaning, evidence)),
        clears=clears,
        then=then,
        dated=max(evidence.first_seen, evidence.last_seen) if kind.event else evidence.first_seen,
    )


def latched(finding: Finding, now: datetime) -> Sign | None:
    """Return the sign of an agent's finding that lasts for the whole boot, though the agent no longer reports it.

    None: the finding ends when the agent no longer reports it.

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
