"""Lists the kinds of evidence that the agent sends, by stable names, and which are kept when there are more than fit.

The order says only what an on-call engineer would miss most; the operator decides what a kind means for the node.

Tests: tests/unit/agent/test_resets.py.
"""

import re

XID = "Xid"
SXID = "SXid"
GPU_LOST = "GpuLost"
GPU_UNREACHABLE = "GpuUnreachable"
GPU_INIT = "GpuInit"
DRIVER_FATAL = "DriverFatal"
RESET_REQUIRED = "ResetRequired"
RECOVERY_ACTION = "RecoveryAction"
GPU_COUNT = "GpuCount"
NVML_HANG = "NvmlHang"
NVML_FAILED = "NvmlFailed"
ECC_UNCORRECTED = "EccUncorrected"
ECC_CORRECTED = "EccCorrected"
SRAM_UNCORRECTED = "SramUncorrected"
SRAM_THRESHOLD = "SramThreshold"
ROW_REMAP_PENDING = "RowRemapPending"
ROW_REMAP_FAILED = "RowRemapFailed"
ROW_REMAPS = "RowRemaps"
RETIRED_PAGES = "RetiredPages"
RETIRED_PAGES_PENDING = "RetiredPagesPending"
REPAIR_PENDING = "RepairPending"
INFOROM = "InfoRom"
NVLINK_DOWN = "NvLinkDown"
NVLINK_ERRORS = "NvLinkErrors"
NVLINK_DISCOVERY = "NvLinkDiscovery"
AMD_GPU = "AmdGpuError"
ACCELERATOR = "AcceleratorError"
ACCELERATOR_RESET = "AcceleratorReset"
FABRIC_STATE = "FabricState"
FABRIC_MANAGER = "FabricManager"
PCIE_WIDTH = "PcieWidth"
PCIE_GENERATION = "PcieGeneration"
PCIE_REPLAY = "PcieReplay"
PCIE_FATAL = "PcieFatal"
AER_FATAL = "PcieAerFatal"
AER_UNCORRECTED = "PcieAerUncorrected"
AER_CORRECTED = "PcieAerCorrected"
AER_ELSEWHERE = "PcieAerElsewhere"
IOMMU_FAULT = "IommuFault"
TEMPERATURE = "Temperature"
THROTTLE = "Throttle"
ENERGY_COUNTER = "EnergyCounter"
DRIVER_DRIFT = "DriverDrift"
PERSISTENCE_MODE = "PersistenceMode"
IB_PORT_DOWN = "IbPortDown"
IB_PORT_FLAP = "IbPortFlap"
IB_DEVICE_MISSING = "IbDeviceMissing"
IB_PORT_OFF = "IbPortOff"
FRONT_END_DOWN = "FrontEndDown"
IB_COUNTERS = "IbCounters"
EFA_UNRESPONSIVE = "EfaUnresponsive"
NIC_FAILED = "NicFailed"
NIC_ERROR = "NicError"
SYSFS_HANG = "SysfsHang"
GPU_RESET = "GpuReset"
DISK_ERROR = "DiskError"
NETWORK_DISK_ERROR = "NetworkDiskError"
READ_ONLY_FILESYSTEM = "ReadOnlyFilesystem"
KERNEL_HANG = "KernelHang"
TASK_HANG = "TaskHang"
HOST_UNCORRECTED = "HostErrorUncorrected"
HOST_CORRECTED = "HostErrorCorrected"
HOST_THERMAL = "HostThermal"
CLOCK_SOURCE = "ClockSource"

STRONGEST_FIRST = (
    GPU_LOST,
    GPU_UNREACHABLE,
    GPU_INIT,
    DRIVER_FATAL,
    AMD_GPU,
    ACCELERATOR,
    GPU_COUNT,
    RECOVERY_ACTION,
    RESET_REQUIRED,
    NVML_FAILED,
    NVML_HANG,
    NVLINK_DISCOVERY,
    XID,
    GPU_RESET,
    ROW_REMAP_FAILED,
    SRAM_THRESHOLD,
    ECC_UNCORRECTED,
    SRAM_UNCORRECTED,
    IB_DEVICE_MISSING,
    IB_PORT_DOWN,
    NVLINK_DOWN,
    FABRIC_STATE,
    FABRIC_MANAGER,
    EFA_UNRESPONSIVE,
    NIC_FAILED,
    AER_FATAL,
    SXID,
    ROW_REMAP_PENDING,
    REPAIR_PENDING,
    RETIRED_PAGES_PENDING,
    RETIRED_PAGES,
    PCIE_FATAL,
    AER_UNCORRECTED,
    HOST_UNCORRECTED,
    INFOROM,
    READ_ONLY_FILESYSTEM,
    DISK_ERROR,
    KERNEL_HANG,
    NETWORK_DISK_ERROR,
    SYSFS_HANG,
    DRIVER_DRIFT,
    IB_PORT_FLAP,
    PCIE_WIDTH,
    PCIE_GENERATION,
    THROTTLE,
    TEMPERATURE,
    ACCELERATOR_RESET,
    NVLINK_ERRORS,
    PCIE_REPLAY,
    IB_COUNTERS,
    FRONT_END_DOWN,
    IB_PORT_OFF,
    NIC_ERROR,
    TASK_HANG,
    AER_ELSEWHERE,
    IOMMU_FAULT,
    HOST_THERMAL,
    CLOCK_SOURCE,
    ROW_REMAPS,
    ECC_CORRECTED,
    AER_CORRECTED,
    HOST_CORRECTED,
    PERSISTENCE_MODE,
    ENERGY_COUNTER,
)
"""All kinds, the most important first."""

QUIET = frozenset(
    {
        NVLINK_ERRORS,
        PCIE_REPLAY,
        PCIE_GENERATION,
        IB_COUNTERS,
        IB_PORT_OFF,
        AER_CORRECTED,
        AER_ELSEWHERE,
        IOMMU_FAULT,
        HOST_CORRECTED,
        HOST_THERMAL,
        TASK_HANG,
        CLOCK_SOURCE,
        ECC_CORRECTED,
        PERSISTENCE_MODE,
        ENERGY_COUNTER,
    }
)
"""Rates, and kinds that only warn: their coming and going is written like a count, at most a few times an hour."""

APPLICATION_XIDS = frozenset({8, 13, 31, 43, 45, 68})
"""XIDs that a program can cause by itself: the first to go when there is no room."""

RECOVERY_XID = 154
"""The XID with the driver's own recommendation; the newest one counts."""

RESET_XIDS = frozenset(
    {46, 48, 62, 63, 64, 94, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 167, 169, 171, 172, 173, 175, 177}
)
"""XIDs after which the GPU has to be reset, whatever their line says. They stand until the reset."""

NVLINK_XID, NVLINK5_XIDS, NVLINK5_LINK_XID = 74, range(144, 151), 149
"""XIDs of NVLink: their lines say what they need, see `log_lines`."""

LIGHT_REGISTERS = (0x68900003, 0, 0xF0000, 0x30000, 0x24900000, 0, 0)
"""For XID 74: bits of its seven registers that are notices, follow from other errors, or matter only when repeated."""
CAUSE_ELSEWHERE = (0b100110, 0b101000)
"""For XID 149: reasons for a link that is down whose cause is elsewhere."""

_REGISTER = re.compile(r"0x[0-9a-f]{1,8}", re.IGNORECASE)
_UNTIL_RESET = RESET_XIDS | {RECOVERY_XID}

RESET_ACTIONS = frozenset({1, 2, 4, 6, 7})
"""Values of the driver's recovery action that only a reset or a boot clears."""

_PROVES_RESET = frozenset(
    {RESET_REQUIRED, ECC_UNCORRECTED, SRAM_UNCORRECTED, ROW_REMAP_PENDING, RETIRED_PAGES_PENDING, REPAIR_PENDING}
)


def stands_until_reset(kind: str, code: int, value: str) -> bool:
    """Whether only a reset of the GPU ends the evidence. `value`: for an XID of NVLink the content of its line."""
    if kind != XID:
        return False
    if code == NVLINK_XID:
        registers = [int(part, 16) for part in _REGISTER.findall(value)]
        light = any(registers) and len(registers) == len(LIGHT_REGISTERS)
        return not light or any(register & ~bits for register, bits in zip(registers, LIGHT_REGISTERS, strict=True))
    if code in NVLINK5_XIDS:
        reason = value.removeprefix("Fatal, reason ")
        return value.startswith("Fatal") and reason not in map(str, CAUSE_ELSEWHERE)
    return code in _UNTIL_RESET


def proves_reset(kind: str, code: int) -> bool:
    """Whether the end of this evidence proves that the GPU was reset, or its driver loaded again."""
    return kind in _PROVES_RESET or (kind == RECOVERY_ACTION and code in RESET_ACTIONS)


_RANKS = {kind: rank for rank, kind in enumerate(STRONGEST_FIRST)}


def rank(kind: str, code: int) -> int:
    """Return the rank of a piece of evidence: 0 is the most important; kinds that programs cause, and those that only
    a later agent knows, come last."""
    if kind == XID and code in APPLICATION_XIDS:
        return len(_RANKS)
    return _RANKS.get(kind, len(_RANKS))
