"""The kinds of evidence that the agent sends: stable names, and which are kept when there are more than fit.

The order says only what an on-call engineer would miss most; what a kind means for the node the operator judges.
"""

XID = "Xid"
SXID = "SXid"
GPU_LOST = "GpuLost"
RESET_REQUIRED = "ResetRequired"
RECOVERY_ACTION = "RecoveryAction"
GPU_COUNT = "GpuCount"
NVML_HANG = "NvmlHang"
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
FABRIC_STATE = "FabricState"
FABRIC_MANAGER = "FabricManager"
PCIE_WIDTH = "PcieWidth"
PCIE_REPLAY = "PcieReplay"
PCIE_FATAL = "PcieFatal"
TEMPERATURE = "Temperature"
THROTTLE = "Throttle"
ENERGY_COUNTER = "EnergyCounter"
DRIVER_DRIFT = "DriverDrift"
IB_PORT_DOWN = "IbPortDown"
IB_PORT_FLAP = "IbPortFlap"
IB_DEVICE_MISSING = "IbDeviceMissing"
IB_COUNTERS = "IbCounters"
NIC_ERROR = "NicError"
DISK_ERROR = "DiskError"
READ_ONLY_FILESYSTEM = "ReadOnlyFilesystem"
KERNEL_HANG = "KernelHang"

STRONGEST_FIRST = (
    GPU_LOST,
    GPU_COUNT,
    RECOVERY_ACTION,
    RESET_REQUIRED,
    NVML_HANG,
    XID,
    ROW_REMAP_FAILED,
    SRAM_THRESHOLD,
    ECC_UNCORRECTED,
    SRAM_UNCORRECTED,
    IB_DEVICE_MISSING,
    IB_PORT_DOWN,
    NVLINK_DOWN,
    FABRIC_STATE,
    FABRIC_MANAGER,
    SXID,
    ROW_REMAP_PENDING,
    REPAIR_PENDING,
    RETIRED_PAGES_PENDING,
    RETIRED_PAGES,
    PCIE_FATAL,
    INFOROM,
    READ_ONLY_FILESYSTEM,
    DISK_ERROR,
    KERNEL_HANG,
    DRIVER_DRIFT,
    IB_PORT_FLAP,
    PCIE_WIDTH,
    THROTTLE,
    TEMPERATURE,
    NVLINK_ERRORS,
    PCIE_REPLAY,
    IB_COUNTERS,
    NIC_ERROR,
    ROW_REMAPS,
    ECC_CORRECTED,
    ENERGY_COUNTER,
)
"""All kinds."""

APPLICATION_XIDS = frozenset({8, 13, 31, 43, 45, 68, 109})
"""XIDs that a program can cause by itself: the first to go when there is no room."""

_RANKS = {kind: rank for rank, kind in enumerate(STRONGEST_FIRST)}


def rank(kind: str, code: int) -> int:
    """0 is the strongest; what programs cause comes last."""
    if kind == XID and code in APPLICATION_XIDS:
        return len(_RANKS)
    return _RANKS[kind]
