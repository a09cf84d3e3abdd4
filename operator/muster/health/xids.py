"""What the driver's error numbers mean for a node: XIDs of GPUs, SXids of NVSwitches.

The table follows NVIDIA's catalogue of XIDs and what other systems do with them (`source`). Where these disagree, the
table takes the lighter meaning. To take out a healthy node costs more than to notice an unhealthy one by its next sign.
XID 45, which every crashing program causes, once had 77 healthy nodes flagged in another system. A number that is not
in the table only warns. XID 154 is the driver's own recommendation, which Muster follows.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from muster.api.nodehealth import RecommendedAction, Severity
from muster.health.signs import Clears, Repetition

INFO, WARNING, DEGRADED, FATAL = Severity.INFO, Severity.WARNING, Severity.DEGRADED, Severity.FATAL
NONE, INSPECT, RESET, REBOOT, REPLACE = (
    RecommendedAction.NONE,
    RecommendedAction.INSPECT,
    RecommendedAction.RESET,
    RecommendedAction.REBOOT,
    RecommendedAction.REPLACE,
)

DAY_SECONDS = 86400


class XidClass(StrEnum):
    """The origin of a driver error.

    Application: a program can cause the error by itself. Hardware: no program can. Driver: the driver or a notice of
    it. Unknown: the number is not in the table.
    """

    APPLICATION = "Application"
    HARDWARE = "Hardware"
    DRIVER = "Driver"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row of the table: what one XID or SXid means.

    Attributes:
        meaning: what has happened, as text for users.
        fault: the origin of the error.
        severity: the severity of a single error.
        action: what to do with the machine.
        source: where the meaning and the action come from.
        often: severity and action when the error comes often; None: the same.
        then: the action when the same error took the node out before; None: the same action.
    """

    meaning: str
    fault: XidClass
    severity: Severity
    action: RecommendedAction
    source: str
    often: Repetition | None = None
    then: RecommendedAction | None = None

    @property
    def clears(self) -> Clears:
        """What ends a sign of this error: another boot, or the end of its evidence.

        A machine that needs a reboot, a replacement or an inspection does not become healthy because its log line is
        old. An error that needs a GPU reset ends with its evidence: the agent reports it until it has seen a reset.
        """
        weighs = self.severity in (DEGRADED, FATAL)
        by_hand = self.action is INSPECT and self.fault is XidClass.HARDWARE
        return Clears.BOOT if weighs and (by_hand or self.action in (REBOOT, REPLACE)) else Clears.EVIDENCE


_CATALOGUE = "NVIDIA's XID catalogue"
# A program in a crash loop repeats these errors: many of them call for an inspection, never for a drain.
_OFTEN_INSPECT = Repetition(5, DAY_SECONDS, WARNING, INSPECT)
_TWICE_INSPECT = Repetition(2, DAY_SECONDS, WARNING, INSPECT)


def _application(meaning: str, source: str = _CATALOGUE, often: Repetition | None = _OFTEN_INSPECT) -> ErrorCode:
    return ErrorCode(meaning, XidClass.APPLICATION, INFO, NONE, source, often)


def _notice(meaning: str) -> ErrorCode:
    return ErrorCode(meaning, XidClass.DRIVER, WARNING, NONE, _CATALOGUE)


def _now(
    meaning: str, action: RecommendedAction, source: str = _CATALOGUE, then: RecommendedAction | None = None
) -> ErrorCode:
    return ErrorCode(meaning, XidClass.HARDWARE, FATAL, action, source, None, then)


def _driver_now(meaning: str, action: RecommendedAction, source: str) -> ErrorCode:
    """Return the row of a fatal error of the driver, for which no hardware is blamed."""
    return ErrorCode(meaning, XidClass.DRIVER, FATAL, action, source)


def _later(meaning: str, action: RecommendedAction, source: str = _CATALOGUE) -> ErrorCode:
    return ErrorCode(meaning, XidClass.HARDWARE, DEGRADED, action, source)


def _inspect(meaning: str, source: str) -> ErrorCode:
    """Return the row of an error that only hardware causes, and that takes no node out by itself."""
    return ErrorCode(meaning, XidClass.HARDWARE, WARNING, INSPECT, source)


def _each(codes: Iterable[int], row: ErrorCode) -> dict[int, ErrorCode]:
    return dict.fromkeys(codes, row)


_UNUSED = (
    *range(1, 8),
    *(9, 10, 12),
    *range(14, 25),
    *range(26, 31),
    *range(33, 37),
    *(42, 47),
    *range(49, 54),
    *(55, 56, 57, 58, 59, 61, 65, 73, 81, 87, 90, 91, 108),
    *range(111, 119),
    *(122, 123, 124, 125, 138),
)

UNKNOWN_XID = ErrorCode("not in the table", XidClass.UNKNOWN, WARNING, INSPECT, "Muster: an unknown number warns")

XIDS: Mapping[int, ErrorCode] = {
    **_each(_UNUSED, _notice("unused, or for displays and old GPUs")),
    8: _application("the GPU stopped processing"),
    **_each((11, 25, 32), _application("a bad push buffer")),
    13: _application("graphics engine exception", f"{_CATALOGUE}; the device plugin ignores it", _TWICE_INSPECT),
    31: _application("MMU page fault", f"{_CATALOGUE}; the device plugin ignores it", _TWICE_INSPECT),
    **_each((37, 38, 44, 66, 67), _notice("driver firmware, or an illegal access of the driver")),
    **_each(
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
        _application("copy engine error"),
    ),
    43: _application("a channel was reset after a program's fault", f"{_CATALOGUE}; the device plugin ignores it"),
    45: _application("a channel was ended; follows from something else", "NVSentinel #1629", None),
    46: _now("GPU timeout", RESET, f"{_CATALOGUE}; EKS, gpud"),
    48: _now("double-bit ECC error", RESET, f"{_CATALOGUE}; EKS, Azure NHC, DCGM, gpud"),
    54: _now("auxiliary power is missing", INSPECT, f"{_CATALOGUE}; EKS"),
    **_each(
        (60, 68, 69, 82, 83, 84, 86, 88, 89, *range(96, 106), 139), _application("video, JPEG, OFA or class error")
    ),
    62: _now("PMU halt", RESET, f"{_CATALOGUE}; EKS, Azure NHC, gpud"),
    63: _later(
        "a row remap or page retirement is recorded, for the next reset", RESET, "EKS, Azure NHC; gcm: not critical"
    ),
    64: _now("recording a row remap failed", RESET, f"{_CATALOGUE}; EKS, Azure NHC, DCGM, gpud", REPLACE),
    74: _later("NVLink error", RESET, f"{_CATALOGUE}; EKS, Azure NHC, DCGM, gpud"),
    78: _notice("vGPU start"),
    79: _now("the GPU has fallen off the bus", REBOOT, f"{_CATALOGUE}; all others", REPLACE),
    80: _application("corrupt data sent to the GPU"),
    92: _notice("many single-bit ECC errors"),
    93: _notice("the InfoROM wears out"),
    94: _later("contained ECC error: the program that met it ends", RESET, f"{_CATALOGUE}; reset at leisure"),
    95: _now("uncontained ECC error", RESET, f"{_CATALOGUE}; EKS, DCGM, gpud"),
    **_each((106, 107), ErrorCode("test of the SMBPBI", XidClass.DRIVER, INFO, NONE, _CATALOGUE)),
    109: _later("context switch timeout", RESET, f"{_CATALOGUE}; EKS: fatal; device plugin, gcm: ignored"),
    110: _driver_now("security fault", RESET, f"{_CATALOGUE}; EKS, gpud"),
    119: _driver_now("GSP RPC timeout", RESET, f"{_CATALOGUE}; EKS, Azure NHC, DCGM, gpud"),
    120: _driver_now("GSP error", RESET, f"{_CATALOGUE}; EKS, Azure NHC, DCGM, gpud"),
    121: _notice("corrected C2C error"),
    136: _now("link training failed", RESET, f"{_CATALOGUE}; EKS"),
    137: _application("NVLink privilege error: a remote access that was not allowed"),
    140: _now("unrecovered ECC error", RESET, f"{_CATALOGUE}; EKS, DCGM, gpud"),
    **_each((141, 152, 153, 160, 161), _notice("fast path, DLA or channel retirement")),
    142: _notice("NVENC error"),
    143: _now("the GPU could not be initialised", RESET, f"{_CATALOGUE}; EKS; gpud: hardware", REPLACE),
    **_each(range(144, 151), _notice("NVLink 5 error; its log line has the details")),
    151: _driver_now("key rotation failed", REBOOT, f"{_CATALOGUE}; EKS, gpud"),
    154: ErrorCode("the driver's recovery action has changed", XidClass.DRIVER, WARNING, INSPECT, _CATALOGUE),
    155: _later("an NVLink was taken down by software", RESET, f"{_CATALOGUE}; EKS, gpud"),
    156: _later("a resource was retired", RESET, f"{_CATALOGUE}; EKS, gpud"),
    157: _inspect("retiring a resource failed, since no spare is left", f"{_CATALOGUE}, NVSentinel, gpud: not fatal"),
    158: _now("fatal GPU timeout", RESET, f"{_CATALOGUE}; EKS, gpud"),
    159: _notice("C2C error without data"),
    **_each((162, 163), _notice("power smoothing engaged or disengaged")),
    **_each((164, 165), _notice("power smoothing wears out")),
    **_each((166, 170), _notice("confidential computing: cryptography")),
    **_each((167, 169, 173), _now("fatal PCIe timeout, SEC2 halt or C2C error", RESET, "gpud")),
    168: _inspect(
        "errors in the protected memory, with ECC off: the GPU has less memory", f"{_CATALOGUE}; gpud: no action"
    ),
    **_each((171, 172), _now("detail of a double-bit ECC error", RESET, "with XID 48")),
    174: _application("the driver ended a program after its fault", "the driver's own name for it: as XID 43"),
    175: _now("GSP RPC timeout because the GPU's memory is stuck", RESET, "the driver: in place of XID 119"),
    176: _inspect("a fault for corrected PCIe errors", "the driver's own name for it"),
    177: _later("a remap of a memory bank is recorded, for the next reset", RESET, "the driver's own text: as XID 63"),
}

RECOVERY_ACTIONS: Mapping[int, tuple[str, Severity, RecommendedAction]] = {
    # NVML field 230: its name in a reason, its severity, the action.
    0: ("None", INFO, NONE),
    1: ("Reset", FATAL, RESET),
    2: ("Reboot", FATAL, REBOOT),
    3: ("DrainP2p", FATAL, INSPECT),
    4: ("DrainAndReset", DEGRADED, RESET),
    5: ("RecoverImexDomain", DEGRADED, INSPECT),
    6: ("BusReset", FATAL, RESET),
    7: ("SystemReboot", FATAL, REBOOT),
}

# The text of XID 154 in the kernel log: the value of field 230, and its name.
_XID_154 = re.compile(r"\bto 0x([0-9a-f]{1,2})\b", re.IGNORECASE)

# The text of XID 74 on A100 and H100: seven registers. NVIDIA explains bits of the first, third, fourth and fifth.
_XID_74 = re.compile(r"link \d+ ?\((0x[0-9a-f]+(?:, ?0x[0-9a-f]+){6})\)", re.IGNORECASE)


def _bits(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


_NOTHING = ErrorCode("NVLink: a notice, or a threshold of corrected errors", XidClass.DRIVER, INFO, NONE, _CATALOGUE)
_SYMPATHETIC = ErrorCode("NVLink: follows from another error", XidClass.DRIVER, WARNING, INSPECT, _CATALOGUE)
_REPEATED = ErrorCode(
    "NVLink: an error that counts when it is repeated",
    XidClass.HARDWARE,
    WARNING,
    INSPECT,
    _CATALOGUE,
    Repetition(3, DAY_SECONDS, DEGRADED, RESET),
)
_XID_74_BITS: tuple[tuple[ErrorCode, tuple[int, ...]], ...] = (
    # Registers one to seven. A row stands if no bit is set beyond its own and those of the rows before it.
    (_NOTHING, (_bits(0, 23, 30), 0, 0, 0, _bits(20, 23, 26, 29), 0, 0)),
    (_SYMPATHETIC, (_bits(1, 20), 0, 0, _bits(16, 17), 0, 0, 0)),
    (_REPEATED, (_bits(27, 29), 0, _bits(16, 17, 18, 19), 0, 0, 0, 0)),
)

# The text of XIDs 144 to 150: (PCI:...): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (intrInfo errorStatus ...).
_NVLINK5 = range(144, 151)
_XID_NVLINK5 = re.compile(
    r"\b(?P<unit>MSE Degraded|[A-Z][\w/]*) +(?P<severity>Fatal|Nonfatal) +XC ?\d.{0,8}? Link +-?\d+ +"
    r"[(\[](?P<info>0x[0-9a-f]+)",
    re.IGNORECASE,
)
_REASON_SHIFT, _REASON_MASK = 20, 0x3F
# IntrInfo[25:20] of a link that is down. NVIDIA advises to ignore the first two, because the cause is elsewhere.
_CAUSE_ELSEWHERE = frozenset({0b100110, 0b101000})
_PEER = frozenset({0b010101, *range(0b100000, 0b100110)})
_SIGNAL = frozenset({0b000010, 0b000100, 0b001010, 0b101010, 0b101011})
_LINK5_SOURCE = "NVIDIA's decode table of XIDs 144 to 150"

_GPUD = "gpud's list of SXids"
UNKNOWN_SXID = ErrorCode("not in the table", XidClass.UNKNOWN, WARNING, INSPECT, "Muster: an unknown number warns")

SXIDS: Mapping[int, ErrorCode] = {
    **_each((12020, 22003, 22011, *range(23001, 23018)), _now("always fatal to the switch", REBOOT, _GPUD)),
    **_each(
        (
            *(11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12022, 12024, 12025, 12026, 12027, 12031, 12032),
            *(14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063),
            *(19064, 19066, 19067, 19069, 19070, 20034, 22012, 24004, 24005, 24006, 24007),
        ),
        _later("fatal to the programs on one link", REBOOT, _GPUD),  # no agent sees that a switch was reset
    ),
    **_each(
        (
            *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068),
            *(19071, 20001, 20009, 20012, 22013, 24001, 24002, 24003),
        ),
        ErrorCode("not fatal", XidClass.HARDWARE, INFO, NONE, _GPUD),
    ),
    **_each(
        (*range(10001, 10006), 12030), ErrorCode("a warning about the host", XidClass.DRIVER, WARNING, NONE, _GPUD)
    ),
    **_each((11004, 12028, 19084), _later("needs a reboot first", REBOOT, _GPUD)),
}
_NON_FATAL = re.compile(r"\bnon-?fatal\b", re.IGNORECASE)
# The driver writes it after the number and before the error's own text, which may contain "fatal", too.
_FATAL = re.compile(r"(?:^|\d, )Fatal\b")
_UNKNOWN_FATAL_SXID = _later("not in the table; the driver reports it as fatal", REBOOT, "the driver's own severity")


def xid(code: int, message: str = "") -> ErrorCode:
    """Return what an XID means.

    Args:
        code: the XID.
        message: of the kernel log; it decides about the XIDs 74, 144 to 150 and 154.
    """
    row = XIDS.get(code, UNKNOWN_XID)
    if code == 74:
        return _nvlink(row, message)
    if code in _NVLINK5:
        return _nvlink5(row, code, message)
    if code != 154:
        return row
    asked = _XID_154.search(message)  # "changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    if asked is None:
        return row
    name, severity, action = recovery_action(int(asked[1], 16))
    return replace(row, meaning=f"the driver recommends {name}", severity=severity, action=action)


def _nvlink(row: ErrorCode, message: str) -> ErrorCode:
    """Return what an XID 74 means by the registers in its message: a lighter row where they allow it, else `row`."""
    match = _XID_74.search(message)
    if match is None:
        return row
    registers = [int(value, 16) for value in re.split(r", ?", match[1])]
    if not any(registers):
        return row
    masks = [0] * len(registers)
    for lighter, bits in _XID_74_BITS:
        masks = [mask | more for mask, more in zip(masks, bits, strict=True)]
        if not any(value & ~allowed for value, allowed in zip(registers, masks, strict=True)):
            return lighter
    return row


def _nvlink5(row: ErrorCode, code: int, message: str) -> ErrorCode:
    """Return what an XID 144 to 150 means by its message; `row`, a warning, where the message cannot be read.

    NVIDIA ignores errors that are not fatal, or leaves them to XID 154. An error that is fatal to the GPU needs a
    reset. An error that is fatal to a link needs a reset once the jobs have ended.

    Args:
        row: of the XID in the table.
        code: the XID.
        message: of the kernel log.
    """
    match = _XID_NVLINK5.search(message)
    if match is None:
        return row
    unit, reason = match["unit"], int(match["info"], 16) >> _REASON_SHIFT & _REASON_MASK
    if match["severity"].lower() == "nonfatal":
        meaning = f"NVLink 5, {unit}: not fatal"
        return replace(row, meaning=meaning, severity=INFO, often=_OFTEN_INSPECT, source=_LINK5_SOURCE)
    if code != 149 or "MFDE" in unit:
        meaning = f"NVLink 5, {unit}: fatal to the GPU"
        return replace(
            row, meaning=meaning, fault=XidClass.HARDWARE, severity=FATAL, action=RESET, source=_LINK5_SOURCE
        )
    if reason in _CAUSE_ELSEWHERE:
        meaning = f"NVLink 5, {unit}: a link is down, and the cause is elsewhere"
        return replace(row, meaning=meaning, action=INSPECT, source=_LINK5_SOURCE)
    why = (
        "by its other end" if reason in _PEER else "by its signal or cable" if reason in _SIGNAL else f"reason {reason}"
    )
    return replace(
        row,
        meaning=f"NVLink 5, {unit}: a link is down, {why}",
        fault=XidClass.HARDWARE,
        severity=DEGRADED,
        action=RESET,
        source=_LINK5_SOURCE,
    )


def sxid(code: int, message: str = "") -> ErrorCode:
    """Return what an SXid means.

    An error that may be fatal to a link only warns where its message reports it as not fatal. For a number that is not
    in the table, the driver's own severity counts, because newer switches have hundreds of them.

    Args:
        code: the SXid.
        message: of the kernel log.
    """
    row = SXIDS.get(code) or (_UNKNOWN_FATAL_SXID if _FATAL.search(message) else UNKNOWN_SXID)
    if row.severity is DEGRADED and _NON_FATAL.search(message):
        return replace(row, severity=WARNING, action=INSPECT)
    return row


def recovery_action(value: int) -> tuple[str, Severity, RecommendedAction]:
    """Return name, severity and action of the driver's recovery action; a value that the table does not have warns.

    Args:
        value: of NVML field 230.
    """
    return RECOVERY_ACTIONS.get(value, (f"Value{value}" if value >= 0 else "Unreadable", WARNING, INSPECT))
