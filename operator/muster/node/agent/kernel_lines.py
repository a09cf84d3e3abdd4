"""Lists the lines of the kernel log that are evidence: one row for each message of the kernel or of a driver.

A row's pattern has to match from the first character of a message. The cheap filter searches for `words`, and
`log_lines` tries a pattern only on a message that has one of the row's words. So no pattern can match a line that the
filter drops. Each row has its lines, with their sources and near misses, in tests/data/reports/kernel/<name>.yaml.

A message of several lines has line feeds between them. Some kernels write each of them as a record of its own: `begins`
then matches what has come so far, and `goes_on` the next line.

Only `muster.health.kinds` says how severe each kind is.

Tests: tests/unit/reports/test_kernel_lines.py.
"""

import re
from dataclasses import dataclass

from muster.node.agent import kinds


@dataclass(frozen=True, slots=True)
class KernelLine:
    """The row of one message.

    Attributes:
        name: unique; the file with its lines is called so.
        kind: the kind of the evidence.
        words: one of them is in every line that belongs to the message.
        pattern: its groups `gpu` (a PCI address), `device`, `code` and `value` become those of the fact.
        value: the fact's value where the pattern has no such group.
        begins: matches the incomplete message, where its lines can be records of their own.
        goes_on: matches such a further line.
    """

    name: str
    kind: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    value: str = ""
    begins: re.Pattern[str] | None = None
    goes_on: re.Pattern[str] | None = None


_PCI = r"[0-9a-fA-F:.]{5,32}"
_GPU = rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<gpu>{_PCI}?):?"
# Drivers of 2026 put their own number of the GPU before the name of their function.
_GPU_NUMBER = r"NVRM: (?:GPU\d{1,3} )?"
# A network device stands behind the address by its name, which can be "(unnamed net_device) (uninitialized)".
_NETDEV = r"(?<!:)(?: [^:\n]{1,48})?: "
_DISK = r"(?P<device>[\w.-]{1,64})"
_GPU_DRIVERS = ("nvidia", "amdgpu", "habanalabs")
_NETWORK_DRIVERS = (
    "mlx5_core",
    "efa",
    "bnxt_en",
    "ice",
    "irdma",
    "ionic",
    "idpf",
    "gve",
    "mana",
    "hfi1",
    "cxi_ss1",
    "cxi_core",
)
DRIVERS_OF_JOBS = frozenset({*_GPU_DRIVERS, *_NETWORK_DRIVERS})
"""Drivers of the PCIe devices that jobs use."""
CONTAINED = "contained"
"""Value of an error of a bridge after which the devices below it cannot be reached."""
_GPU_DRIVER, _NETWORK_DRIVER = "|".join(_GPU_DRIVERS), "|".join(_NETWORK_DRIVERS)
# Since Linux 6.8 "Uncorrectable" and "Correctable"; some kernels put "AER: " before it (drivers/pci/pcie/aer.c).
_AER = r"(?:AER: )?PCIe Bus Error: severity="
# Where the firmware has read the error first (pci_print_aer), this line comes only for uncorrected errors.
_AER_OF_FIRMWARE = r"(?:AER: )?aer_uncor_severity: 0x"
_AER_WORDS = ("PCIe Bus Error",)
_UNCORRECTED = r"Uncorrect(?:ed|able)"
# arch/x86/kernel/cpu/mce: bit 61 of the status (UC) says that the error could not be corrected.
_MCE = r"mce: \[Hardware Error\]: CPU \d+: Machine Check(?: Exception)?: [0-9a-f]+ "
# drivers/firmware/efi/cper.c (cper_estatus_print_section): each of these lines is a record of its own.
_GHES = r"\{\d+\}\[Hardware Error\]: {1,6}"
# Before it stand the event's first lines, which tell no fault yet.
_GHES_HEAD = (
    rf"{_GHES}(?:Hardware error from|It has been corrected|event severity: (?:recoverable|corrected|info)\b)"
    r"[^\n]{0,160}"
)
_GHES_BEFORE = rf"(?:{_GHES_HEAD}\n){{0,3}}"
_GHES_UNCORRECTED = rf"{_GHES}Error \d+, type: (?:recoverable|fatal)"
_GHES_CORRECTED = rf"{_GHES}Error \d+, type: corrected"
_GHES_FRU = rf"(?:\n{_GHES}fru_\w{{2,4}}: [^\n]{{0,160}}){{0,2}}"
_GHES_GOES_ON = (
    rf"{_GHES}(?:It has been corrected|event severity: |Error \d+, type: |(?:fru_id|fru_text|section[ _]type): )"
)
_XFS = rf"XFS \({_DISK}\): "
_BTRFS = rf"\(device {_DISK}(?::?\s?state \w{{1,8}})?\)"
_BEYOND = r"(?:[^\n]{1,64}: )?attempt to access beyond end of device"


def _row(name: str, kind: str, words: str | tuple[str, ...], pattern: str, value: str = "") -> KernelLine:
    return KernelLine(name, kind, (words,) if isinstance(words, str) else words, re.compile(pattern), value)


def _lines(
    name: str, kind: str, words: tuple[str, ...], pattern: str, begins: str, goes_on: str, value: str = ""
) -> KernelLine:
    return KernelLine(name, kind, words, re.compile(pattern), value, re.compile(begins), re.compile(goes_on))


_NVIDIA = (
    # The driver numbers XIDs from 1; 0 was seen from clock events and says nothing. Of a MIG instance the line names
    # instance and compute instance, too: `(PCI:0000:01:00 GPU-I:05 GPU-CI:00)`.
    _row(
        "nvidia-xid",
        kinds.XID,
        "NVRM: ",
        r"NVRM: Xid \((?:PCI:)?(?P<gpu>[0-9a-fA-F:.]{1,32})(?: GPU-I:\w{1,8})?(?: GPU-CI:\w{1,8})?\): "
        r"(?P<code>0*[1-9]\d{0,5})\b",
    ),
    _row(
        "nvidia-init",
        kinds.GPU_INIT,
        "NVRM: ",
        _GPU + r" (?:RmInitAdapter failed|rm_init_adapter failed)",
    ),
    # Drivers before 418 name no address, but the number of the GPU's device file.
    _row(
        "nvidia-init-by-minor",
        kinds.GPU_INIT,
        "NVRM: ",
        r"NVRM: rm_init_adapter(?: failed for device bearing minor number "
        r"(?P<device>\d{1,3})\b|\((?P<device2>\d{1,3})\) failed)",
    ),
    # kernel_gsp.c. The number is that of the GPU among those that were started, which is its device file's where all
    # are. Its XID 119 has the address, and may be missing while the driver starts. A heartbeat that stood still says
    # less: many come back.
    _row(
        "nvidia-gsp",
        kinds.GPU_INIT,
        "NVRM: ",
        r"NVRM: GPU(?P<device>\d{1,3}) _kgspLog(?:RpcTimeout|Xid119): \*{20,40} GSP Timeout \*",
    ),
    _lines(
        "nvidia-bar",
        kinds.GPU_INIT,
        ("NVRM: ",),
        r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR\d is \d+M @ 0x[0-9a-f]+ "
        rf"\(PCI:(?P<gpu>{_PCI})\)",
        r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\s*$",
        r"NVRM: BAR\d is ",
    ),
    # The driver reports its load in three lines.
    _lines(
        "nvidia-off-the-bus",
        kinds.GPU_LOST,
        ("NVRM: ",),
        _GPU + r"\s[\s\S]{0,400}?fallen off the bus",
        rf"NVRM: The NVIDIA GPU {_PCI}\b",
        r"NVRM: (?:\(PCI ID: [0-9a-fA-F:]{1,16}\) )?(?:installed in this system has|fallen off the bus)",
    ),
    _row(
        "nvidia-uvm-fatal",
        kinds.DRIVER_FATAL,
        ("NVRM: ", "nvidia-uvm: "),
        _GPU_NUMBER + r"(?:nvGpuOpsReportFatalError: )?uvm encountered global fatal error 0x[0-9a-f]+"
        r"|nvidia-uvm: [^\n]{0,160} ?Encountered a global fatal error: ",
    ),
    _row(
        "nvidia-nvlink-discovery",
        kinds.NVLINK_DISCOVERY,
        "NVRM: ",
        _GPU_NUMBER + r"(?:knvlinkDiscoverPostRxDetLinks_\w{1,32}: Getting peer\d+(?:'s)? postRxDetLinkMask failed"
        r"|knvlinkUpdatePostRxDetectLinkMask_\w{1,32}: Failed to update Rx Detect Link mask)",
    ),
    # For one error the driver prints up to four lines with its number; those with "Severity" and "Data" belong to the
    # first.
    _row(
        "nvidia-sxid",
        kinds.SXID,
        "SXid (",
        r"(?P<device>nvidia-nvswitch\d+): SXid \(PCI:[0-9a-fA-F:.]{1,32}\): (?P<code>\d{1,6})\b(?!, (?:Severity "
        r"-?\d|Data \{))"
        r"(?:, (?P<value>Fatal|Non-fatal)\b)?",
    ),
)

# drivers/gpu/drm/amd/amdgpu. A job that hangs, a page fault and a reset that succeeds are a program's doing.
_AMDGPU = rf"amdgpu (?P<gpu>{_PCI}): (?:amdgpu: )?"
_AMD = (
    _row(
        "amdgpu",
        kinds.AMD_GPU,
        "amdgpu ",
        rf"{_AMDGPU}(?:device lost from bus!|Fatal error during GPU init|GPU reset end with ret = -\d"
        r"|GPU reset\(\d+\) failed)",
    ),
    # Of all that have come since the driver was loaded; the counts of a query are those of events. Beyond a number of
    # bad pages the driver asks for another GPU, at each boot (amdgpu_ras_eeprom.c).
    _row(
        "amdgpu-memory",
        kinds.AMD_GPU,
        ("uncorrectable hardware error", "GPU is in BAD status", " exceed threshold:", " reaches threshold value"),
        rf"{_AMDGPU}(?:\{{\d+\}})? ?(?:uncorrectable hardware error ?\(ERREVENT_ATHUB_INTERRUPT\) detected"
        r"|(?:socket: \d+,? (?:die: \d+,? )?)?[1-9]\d{0,8} (?:new )?uncorrectable hardware errors detected in \w+ "
        r"block|This GPU is in BAD status|RAS records:\d+ exceed threshold:\d|Saved bad pages ?\(?\d+\)? reaches "
        r"threshold value)",
    ),
)

_ACCELERATORS = (
    # drivers/accel/habanalabs: after a reset that succeeds the card works on. A card has the name of its device file,
    # or its PCI address. Other causes of a failed start or reset have lines of their own before it.
    _row("habanalabs", kinds.ACCELERATOR, ("habanalabs", "Device is NOT usable"),
         rf"habanalabs (?P<device>{_PCI}): Failed to initialize hl\d+\. Device is NOT usable"
         rf"|habanalabs: Failed to initialize accel\d+\. Device (?P<device2>{_PCI}) is NOT usable"
         rf"|(?:habanalabs|accel) (?P<device3>hl\d+|accel\d+|{_PCI}): (?:(?P<device4>{_PCI}) )?"
         r"(?:Failed to reset! Device is NOT usable|Device heartbeat failed! PCI link is broken)"),
    _row("habanalabs-reset", kinds.ACCELERATOR_RESET, ("habanalabs", "Device heartbeat failed!"),
         rf"(?:habanalabs|accel) (?P<device>hl\d+|accel\d+|{_PCI}): (?:Device heartbeat failed!"
         r"|\w{1,48}: (?:ECC error detected\. [^\n]{1,160} critical 1\.|System Critical Error Interrupt - HBM\()"
         r'|Received H/W interrupt \d+ \["\w{1,40}DERR\w{0,8}"\])'),
    # drivers/gpu/drm: xe/xe_device.c, i915/gt/intel_reset.c. The processor's own GPU is always at this address.
    _row("intel-gpu", kinds.ACCELERATOR, ("as wedged", "Failed to reset chip", "Failed to initialise HW following"),
         rf"(?:xe|i915) (?P<device>(?!0000:00:02\.){_PCI}): \[drm\] \*ERROR\* (?:CRITICAL: Xe has declared device "
         r"\S{1,32} as wedged|(?:Tile\d+: )?(?:GT\d+: )?"
         r"(?:Failed to reset chip|Failed to initialise HW following reset))"),
    # The runtime writes it by the driver, which prints any text for a process that has a device. Such a process can
    # take only its own node out. A hang in a collective is most often another node's fault.
    _row("neuron", kinds.ACCELERATOR, ("NEURON_HW_ERR=", "was initiated, but failed to complete"),
         r"(?:\d{4}-\d\d-\d\dT\S{8,24} )?NEURON_HW_ERR=(?:SRAM_UNCORRECTABLE|NC_UNCORRECTABLE|HBM_UNCORRECTABLE|DMA)"
         r"_ERROR [^\n]{0,160}?(?P<device>nd-id=\d{1,3})\b"
         r"|neuron:\w{1,48}: (?P<device2>nd\d{1,3}): reset request \d+ was initiated, but failed to complete"),
)  # fmt: skip

_PCIE = (
    _row("aer-gpu-fatal", kinds.AER_FATAL, _AER_WORDS,
         rf"(?:{_GPU_DRIVER}) (?P<gpu>{_PCI}): {_AER}{_UNCORRECTED} \(Fatal\)"),
    _row("aer-gpu", kinds.AER_UNCORRECTED, (*_AER_WORDS, "aer_uncor_severity"),
         rf"(?:{_GPU_DRIVER}) (?P<gpu>{_PCI}): (?:{_AER}{_UNCORRECTED}|{_AER_OF_FIRMWARE})"),
    _row("aer-gpu-corrected", kinds.AER_CORRECTED, _AER_WORDS,
         rf"(?:{_GPU_DRIVER}) (?P<gpu>{_PCI}): {_AER}Correct(?:ed|able)\b"),
    _row("aer-nic-fatal", kinds.AER_FATAL, _AER_WORDS,
         rf"(?:{_NETWORK_DRIVER}) (?P<device>{_PCI}): {_AER}{_UNCORRECTED} \(Fatal\)"),
    _row("aer-nic", kinds.AER_UNCORRECTED, (*_AER_WORDS, "aer_uncor_severity"),
         rf"(?:{_NETWORK_DRIVER}) (?P<device>{_PCI}): (?:{_AER}{_UNCORRECTED}|{_AER_OF_FIRMWARE})"),
    _row("aer-nic-corrected", kinds.AER_CORRECTED, _AER_WORDS,
         rf"(?:{_NETWORK_DRIVER}) (?P<device>{_PCI}): {_AER}Correct(?:ed|able)\b"),
    # Disks and bridges correct themselves all the time: only what could not be corrected counts.
    _row("aer-elsewhere", kinds.AER_ELSEWHERE, (*_AER_WORDS, "aer_uncor_severity"),
         rf"(?!(?:{_GPU_DRIVER}|{_NETWORK_DRIVER}) )[\w-]{{1,32}} (?P<device>{_PCI}): (?:{_AER}{_UNCORRECTED}(?: "
         rf"\((?P<value>Fatal|Non-Fatal)\))?|{_AER_OF_FIRMWARE})"),
    _row("dpc", kinds.AER_ELSEWHERE, "DPC: containment event",
         rf"pcieport (?P<device>{_PCI}): DPC: containment event", CONTAINED),
    # drivers/pci/pci.c (pci_dev_wait): a minute after a reset the device does not answer.
    _row("pci-gone-gpu", kinds.GPU_LOST, "; giving up",
         rf"(?:{_GPU_DRIVER}) (?P<gpu>{_PCI}): not ready \d+ms after [\w ]{{1,48}}; giving up"),
    _row("pci-gone", kinds.AER_ELSEWHERE, "; giving up",
         rf"(?!(?:{_GPU_DRIVER}) )[\w-]{{1,32}} (?P<device>{_PCI}): not ready \d+ms after [\w ]{{1,48}}; giving up"),
    # drivers/iommu: amd/iommu.c (with the driver and its device before it, where it has one), intel/dmar.c,
    # arm/arm-smmu-v3 (since Linux 6.15 in one line, with the device) and arm/arm-smmu. Lines that only count the
    # faults, or have their registers, belong to these.
    _row("iommu", kinds.IOMMU_FAULT,
         ("AMD-Vi: Event logged [", "AMD-Vi: Completion-Wait loop", "DMAR: [", "arm-smmu"),
         rf"(?:AMD-Vi: |[\w-]{{1,32}} (?P<device>{_PCI}): AMD-Vi: )Event logged \[[A-Z_]{{1,32}} (?:device=(?P<device2>"
         rf"{_PCI}) )?|AMD-Vi: Completion-Wait loop timed out"
         r"|DMAR: \[[\w -]{1,40}\] Request device \[(?P<device3>[0-9a-fx:.]{7,16})\] "
         rf"|arm-smmu-v3 (?P<device4>[\w.:-]{{1,64}}): (?:event 0x[0-9a-f]{{2}} received:|CMD_SYNC timeout at 0x"
         r"|CMDQ error \(cons 0x|unexpected global error reported )"
         rf"|arm-smmu-v3 [\w.:-]{{1,64}}: event: [A-Z_]{{1,32}} client: (?:(?P<device5>{_PCI})|\S)"
         r"|arm-smmu (?P<device6>[\w.:-]{1,64}): Unhandled context fault: "),
    # The line names no device. Lost devices have lines of their own; a misconfigured display adapter causes this line,
    # too.
    _row("nmi-of-a-bus", kinds.AER_ELSEWHERE, ("NMI: PCI system error", "NMI: IOCK error"),
         r"NMI: (?:PCI system error \(SERR\)|IOCK error \(debug interrupt\?\)) for reason [0-9a-f]{2} on CPU \d"),
)  # fmt: skip

_CXI = rf"cxi_(?:ss1|core) (?P<device>{_PCI}): cxi\d+\[\S{{0,16}}\]:? "

_NETWORK = (
    # What the drivers do not repair. mlx5: nothing resets a card whose firmware has stopped its counter; a fatal error
    # has a recovery, which ends with a line. bnxt_re gives up a card whose firmware has stopped, and the others say
    # themselves that a start or a reset has failed.
    _row("nic-failed", kinds.NIC_FAILED,
         ("health compromised", "health recovery f", "Driver is in error state", "Firmware reset aborted", "FW STALL",
          "state, aborting", "Firmware not responding", "establish mailbox communications",
          "DISABLING ALL QUEUES", "LIFs restart failed", "Reset attempt failed", "Device reset failed",
          "Rebuild failed, unload", "recovery unsuccessful", "Please REBOOT", "Critical temperature reached! F"),
         rf"mlx5_core (?P<device>{_PCI}?):?(?: \S{{1,32}})? (?:\w{{1,48}}:\d+:(?:\(pid \d+\):)? )?"
         r"(?:device's health compromised|health recovery (?:failed|flow aborted)|Driver is in error state\. Unloading"
         r"|Firmware over \d+ MS in \S+ ?\S* state, aborting)"
         rf"|bnxt_en (?P<device2>{_PCI}){_NETDEV}(?:Firmware (?:reset aborted|not responding, status: )"
         r"|\w{1,48}: FW STALL Detected)"
         rf"|gve (?P<device3>{_PCI}){_NETDEV}[^\n]{{1,80}} !!! DISABLING ALL QUEUES !!!"
         rf"|ionic (?P<device4>{_PCI}){_NETDEV}FW Up: LIFs restart failed"
         rf"|ena (?P<device5>{_PCI}){_NETDEV}(?:Reset attempt failed|Device reset failed)"
         rf"|(?:ice|i40e) (?P<device6>{_PCI})(?: \S{{1,32}})?: (?:tx_timeout recovery unsuccessful|Rebuild failed, "
         r"unload and reload driver)"
         rf"|idpf (?P<device8>{_PCI}){_NETDEV}Failed to establish mailbox communications"
         rf"|hfi1 (?P<device7>{_PCI}): hfi1_\d+: (?:Aborted freeze recovery\. Please REBOOT|Critical temperature "
         r"reached! Forcing device into freeze mode)"),
    # Slingshot; each error has its class in cassini_error_defs.h. The vendor asks for a boot after those that are
    # uncorrected, and after one of the critical ones. Those of the link, of PCIe and of an address that does not fit
    # its port (cabling, the fabric's template) have their cause elsewhere; an aborted read is one that PCIe repeats.
    # The next lines, with registers and counters, belong to the first.
    _row("cxi-failed", kinds.NIC_FAILED, ("C_EC_UNCOR_", "_tbl_", "Disabling device"),
         rf"{_CXI}(?:C_EC_UNCOR_N?S: \w{{1,32}} error: (?!llr_(?!tx_dp_mbe)|pcs_|mac_|pcie_|port_dfa_mismatch )"
         r"|C_EC_CRIT: \w{1,32} error: \w{3}_tbl_(?:de)?alloc |Disabling device)"),
    _row("cxi", kinds.NIC_ERROR,
         ("C_EC_UNCOR_", "C_EC_CRIT", "C_EC_DEGRD_", "serdes fw corruption", "QSFP_EPO_TEMPERATURE"),
         rf"{_CXI}(?:C_EC_(?:UNCOR_N?S|CRIT|DEGRD_NS): \w{{1,32}} error: (?!llr_eopb |ip_cfg_|pri_\w{{4,8}}_abort )"
         r"|\(sbl\): \d+: serdes fw corruption alert|uC: QSFP_EPO_TEMPERATURE)"),
    # A register that a monitor may not read there (ACCESS_REG, "bad resource") is no fault of the card.
    _row(
        "mlx5",
        kinds.NIC_ERROR,
        "mlx5_core",
        r"mlx5_core (?P<device>[0-9a-fA-F:.]{5,32}?):?(?: \S{1,32}:)? (?!(?:AER: )?PCIe Bus Error)[^\n]*?"
        r"(?:health poll failed|handling bad device here|starting health recovery flow"
        r"|Health issue observed, [^\n]{1,64}severity\([0-4]\)|synd 0x(?!0:)[0-9a-f]{1,4}: |unrecoverable"
        r"|firmware internal error|(?<!-)\b[Ff]atal\b(?! reporter| error during resize)"
        r"|timeout\. Will cause a leak of a command resource"
        r"|cmd.{0,40}(?<!recovered after )timeout|PCI slot is unavailable"
        r"|[Ii]nsufficient power|[Hh]igh [Tt]emperature|Port module event\[error\]|TX timeout (?:detected|on queue: )"
        r"|RX timeout on channel: "
        r"|E(?:rror cqe on cqn|RR CQE on )|mlx5_(?:load|init)_one failed with error code)",
    ),
    _row("netdev-watchdog", kinds.NIC_ERROR, "NETDEV WATCHDOG",
         r"NETDEV WATCHDOG: (?P<device>(?!CPU: )\S{1,32}) \(\S{0,32}\): transmit queue \d+ timed out"),
    # Since Linux 6.10 driver, address and name come before it.
    _row("netdev-watchdog-cpu", kinds.NIC_ERROR, "NETDEV WATCHDOG",
         r"(?:[\w-]{1,32} \S{1,40} )?(?P<device>[\w.@-]{1,32}): NETDEV WATCHDOG: CPU: \d+: transmit queue \d+ timed "
         r"out"),
    _row("bnxt", kinds.NIC_ERROR, "bnxt_en",
         rf"bnxt_en (?P<device>{_PCI}){_NETDEV}(?:TX timeout detected, starting reset task|Fatal firmware reset event"
         r"|Firmware fatal reset event|Detected firmware fatal condition"
         r"|Error \(timeout: \d+\) msg |(?:Abandoning msg \{|Resp cmpl intr abandoning msg: )|Resp cmpl intr err msg: "
         r"|Chip temperature has gone above the (?:critical|fatal|shutdown) thermal threshold"
         r"|(?:QPLIB: )?cmdq\[0x[0-9a-f]+\]=0x[0-9a-f]+ timedout "
         # Refused objects of the card's own: a program can have had too many of them. Other commands have its values.
         r"|(?:QPLIB: )?cmdq\[0x[0-9a-f]+\]=0x(?:1|5|9|13|8[0-9a-f]) status )"),
    _row("ena", kinds.NIC_ERROR, "ena ",
         rf"ena (?P<device>{_PCI}){_NETDEV}(?:Keep alive watchdog timeout|The number of lost tx completions is above"
         r"|Lost TX completions are above|Transmit time out|TX q \d+ is paused for too long|Potential MSIX issue on "
         r"|ENA admin queue is not in running state|Wait for completion \(polling\) timeout"
         r"|The ena device (?:didn't send a completion|sent a completion but the driver didn't receive)"
         r"|Reg read(?:32)? timeout occurred|Reset indication didn't turn )"),
    _row("efa", kinds.NIC_ERROR,
         ("for admin cmd", "Wait for completion (polling) timeout", "Reading register timed out", "Reset indication"),
         rf"efa (?P<device>{_PCI})(?: \S{{1,32}})?: (?:The device didn't send any completion for admin cmd"
         r"|The device sent a completion but the driver didn't receive a\w* MSI-X interrupt for admin cmd"
         r"|Wait for completion \(polling\) timeout|Reading register timed out|Reset indication didn't turn )"),
    _row("irdma", kinds.NIC_ERROR,
         ("HMC Error", "critical PE Error", "PE Push Error", "ECC Error, PF reset", "IRDMA hardware init"),
         rf"(?:ice|irdma|i40e) (?P<device>{_PCI})(?: \S{{1,32}})?: (?:HMC Error|critical PE Error, GLPE_CRITERR|PE "
         r"Push Error|ECC Error, PF reset requested|IRDMA hardware initialization FAILED)"),
    _row("ice", kinds.NIC_ERROR,
         ("tx_timeout", " disable timeout"),
         rf"(?:ice|i40e|iavf) (?P<device>{_PCI})(?: \S{{1,32}})?: (?:tx_timeout: VSI_\w{{3,4}}: \d"
         r"|VSI seid \d+ [TR]x ring \d+ disable timeout)"),
    # A card that has hung or gone, by the lines that each maker's drivers have for it.
    _row("ethernet", kinds.NIC_ERROR,
         (" Unit Hang", ": Hardware Error", "PCIe link lost", "Adapter removed", "transmit timed out, resetting",
          "_stop_block timed out", "mlx4_core", "Firmware reports adapter error", " 8051 "),
         rf"(?:e1000e?|igb|igc|ixgbe|ixgbevf|fm10k) (?P<device>{_PCI})(?: \S{{1,32}})?: (?:Detected (?:Tx|Hardware) "
         r"Unit Hang|Hardware Error$|PCIe link lost|Adapter removed)"
         rf"|tg3 (?P<device2>{_PCI})(?: \S{{1,32}})?: (?:transmit timed out, resetting|tg3_stop_block timed out)"
         rf"|mlx4_core (?P<device3>{_PCI}): (?:command 0x[0-9a-f]+ timed out|Internal error detected)"
         rf"|cxgb4 (?P<device4>{_PCI}): Firmware reports adapter error"
         rf"|hfi1 (?P<device5>{_PCI}): hfi1_\d+: (?:Lost 8051 heartbeat|8051 host command \d+ timeout)"),
    # Cards of clouds that do not send, or whose firmware does not answer or has stopped.
    _row("cloud-nic", kinds.NIC_ERROR, ("mana ", "gve ", "ionic ", "idpf "),
         rf"mana (?P<device>{_PCI}){_NETDEV}(?:HWC: Request timed out|EQ \d+: overflow detected|Timeout when setting "
         r"up HWC|test_eq timed out)"
         rf"|gve (?P<device2>{_PCI}){_NETDEV}(?:AQ commands timed out|Timeout on tx queue, \d)"
         rf"|ionic (?P<device3>{_PCI}){_NETDEV}(?:FW Down: Stopping LIFs|FW heartbeat stalled at "
         r"|DEVCMD \S{1,64} \(\d+\) timeout after |IONIC_CMD_\w{1,48} \(\d+\) failed: TIMEOUT|Tx Timeout "
         r"triggered|\w{1,48}: Restarting queues failed)"
         rf"|idpf (?P<device4>{_PCI}){_NETDEV}(?:Detected Tx timeout: |Device reset timeout|Transaction timed-out \(op"
         r"|The driver was unable to contact the device's firmware)"),
)  # fmt: skip

# block/blk-core.c prints its own word for each status. Linux 5.4 to 5.15 put the function's name before it, older ones
# another.
_BLOCK = r"(?:blk_update_request: |print_req_error: )?"
_BLOCK_WORDS = (" error, dev ",)

_BLOCK_DEVICES = (
    # A target that does not know the command refuses it, and nothing is lost.
    _row("block-status", kinds.DISK_ERROR, _BLOCK_WORDS,
         rf"{_BLOCK}(?:I/O|timeout|recoverable transport|device offline|critical medium|protection"
         r"|critical target(?! error, dev [^\n]{0,80}\((?:DISCARD|WRITE_ZEROES|WRITE_SAME|SECURE_ERASE)\)))"
         rf" error, dev {_DISK}, "),
    # A pool that is full, and a disk that another machine has reserved.
    _row("block-of-others", kinds.NETWORK_DISK_ERROR, _BLOCK_WORDS,
         rf"{_BLOCK}(?:critical space allocation|critical nexus|reservation conflict) error, dev {_DISK}, "),
    # A write that waits for a full pool gets no other line for a minute.
    _row("thin-pool", kinds.NETWORK_DISK_ERROR, "switching pool to",
         r"device-mapper: thin: (?P<device>\d+:\d+): switching pool to (?:out-of-data-space|read-only|fail)\b"),
    _row("block-buffer", kinds.DISK_ERROR, "Buffer I/O error on dev", rf"Buffer I/O error on dev(?:ice)? {_DISK}, "),
    _row("scsi-sense", kinds.DISK_ERROR, "Sense Key : ",
         rf"sd [\d:]{{7,32}}: \[{_DISK}\] (?:tag#\d+ )?Sense Key : (?:Medium|Hardware) Error\b"),
    _lines(
        "block-beyond-end",
        kinds.DISK_ERROR,
        ("attempt to access beyond end of device", ": rw="),
        rf"{_BEYOND}\s{{1,3}}{_DISK}: rw=",
        rf"{_BEYOND}\s*$",
        r"[\w.-]{1,64}: rw=\d+, (?:want|sector)=\d+,",
    ),
    # Another driver's interrupt came late ("completion polled"): nothing failed. Where nothing stands behind the word,
    # the disk is a server's (drivers/nvme/host/{tcp,rdma}.c).
    _row("nvme", kinds.DISK_ERROR, "nvme",
         r"nvme (?P<device>nvme\d+): (?:I/O [^\n]{0,120}?timeout, (?!completion polled|aborting req_op:(?:DISCARD"
         r"|WRITE_ZEROES))|controller is down|Device "
         r"not ready|Fw activation timeout, reset controller"
         r"|Disabling device after|Removing after|IO queues (?:lost|not created)|Abort status.{0,16}0x[1-9]"
         r"|resetting controller due to persistent internal error|failure state error detected, request disconnect)"),
    _row("nvme-media", kinds.DISK_ERROR, "nvme",
         r"(?P<device>nvme\d+(?:c\d+)?n\d+): [^\n]{1,60} @ LBA \d+, \d+ blocks, [^\n]{1,80}\(sct 0x2 / sc "
         r"0x[0-9a-f]+\)"),
    _row("nvme-path", kinds.DISK_ERROR, "nvme",
         r"block (?P<device>nvme\d+n\d+): no available path - failing I/O"),
    _row("md", kinds.DISK_ERROR, ("Disk failure on", "unrecoverable I/O", "read error not correctable"),
         rf"md/\S{{1,32}} ?(?:Disk failure on {_DISK}|(?P<device2>[\w.-]{{1,64}}): unrecoverable I/O (?:read )?error"
         r"|read error not correctable \(sector \d+ on (?P<device3>[\w.-]{1,64})\))"),
    # The controller between the processor and its disks has stopped, or tells of a disk (megasas_decode_evt).
    _row("hba", kinds.DISK_ERROR,
         ("FW in FAULT state", "/CRIT) - ", "/FATAL) - ", "/DEAD) - ", ": fault_state(0x",
          "SAS host is non-operational", "ontroller lockup detected", "controller is offline: "),
         rf"megaraid_sas (?P<device>{_PCI}): (?:(?:Found )?FW in FAULT state|\d+ \([^)\n]{{1,40}}/0x00[02][0-3]/"
         r"(?:CRIT|FATAL|DEAD)\) - )"
         r"|(?P<device2>mpt[23]sas_cm\d+): (?:fault_state\(0x[0-9a-f]+\)!|SAS host is non-operational)"
         rf"|hpsa (?P<device3>{_PCI}): Controller lockup detected: 0x"
         rf"|smartpqi (?P<device4>{_PCI}): controller is offline: "),
    _row("dm-verity", kinds.DISK_ERROR, " is corrupted",
         r"device-mapper: verity: (?P<device>\d+:\d+): (?:meta)?data block \d+ is corrupted"),
    _row("bcache", kinds.DISK_ERROR, "io_errors() ",
         rf"bcache: bch_count_(?:backing_)?io_errors\(\) {_DISK}: IO error on "),
    # XFS drops what it cannot map to blocks (fs/xfs/xfs_aops.c, xfs_discard_folio).
    _row("writeback", kinds.DISK_ERROR, ("writeback error on ", "page discard on "),
         rf"(?:XFS \({_DISK}\)|(?P<device2>[\w.-]{{1,64}})): writeback error on "
         r"(?:inode \d+, offset \d+, )?sector \d+"
         r"|XFS \((?P<device3>[\w.-]{1,64})\): page discard on (?:page|inode) "),
)  # fmt: skip

_FILE_SYSTEMS = (
    # "read-only compatible features" and the like refuse a mount, and a shutdown by a user's own call is no fault.
    _row("xfs-shutdown", kinds.READ_ONLY_FILESYSTEM,
         "XFS (",
         rf"{_XFS}(?!User initiated)(?:[^\n]{{0,240}}[Ss]hutting down filesystem|Filesystem has been shut down due to"
         r"|log I/O error -?\d+|xfs_do_force_shutdown\((?!0x0*4\))0x[0-9a-f]+\) called)"),
    _row("xfs-error", kinds.DISK_ERROR, "XFS (",
         rf"{_XFS}(?:metadata I/O error(?![^\n]{{1,200}} error 28\b)"
         r"|Metadata (?:CRC error|corruption) detected at|Internal error \S"
         r"|Corruption detected(?:\. Unmount and run xfs_repair|! Free inode )|AGF corruption\. "
         r"|Uncorrected metadata errors detected|log recovery (?:read|write) I/O error at daddr "
         r"|(?:Failed to read root inode 0x[0-9a-f]+,|log mount/recovery failed:) error -?(?:5|74|117)\b)"),
    _row("ext4-read-only", kinds.READ_ONLY_FILESYSTEM,
         ("Remounting filesystem read-only", "Aborting journal on device"),
         rf"(?:EXT[234]|F2FS)-fs \({_DISK}\): Remounting filesystem read-only"
         r"|Aborting journal on device (?P<device2>[\w.-]{1,64}?)(?:-\d+)?\.\s*$"),
    _row("ext4-error", kinds.DISK_ERROR, "EXT4-fs",
         rf"EXT4-fs error \(device {_DISK}\)(?! in \w{{1,64}}:\d+: Out of memory)"),
    # fs/ext4/{namei,mballoc,mmp}.c: other numbers than that of I/O errors have a line of ext4-error, or are no fault.
    _row("ext4-read", kinds.DISK_ERROR, ("rror -5 reading", "rror -5 while reading", "rror -5 loading"),
         rf"EXT4-fs warning \(device {_DISK}\): \w{{1,64}}:\d+: (?:inode #\d+: [^\n]{{1,80}}: )?[Ee]rror -5 (?:reading "
         r"directory (?:index )?block|while reading MMP block|loading buddy information)"),
    _row("ext4-write", kinds.DISK_ERROR, "EXT4-fs",
         rf"EXT4-fs warning \(device {_DISK}\): ext4_end_bio:\d+: I/O error (?!(?:3|-28) )-?\d+ writing to inode"
         r"|EXT4-fs \((?P<device2>[\w.-]{1,64})\): (?:previous )?(?:I/O error while writing superblock|I/O error to "
         r"superblock detected"
         r"|failed to convert unwritten extents to written extents -- potential data loss!"
         r"|Delayed block allocation failed for inode [^\n]{1,120} with error (?!28\b|30\b)\d+)"),
    _row("jbd2", kinds.DISK_ERROR, "JBD2: ",
         r"JBD2: (?:Detected IO errors while flushing file data on (?P<device>[\w.-]{1,64}?)(?:-\d+)?\s*$"
         r"|(?:Error -\d+ detected when updating journal superblock|I/O error when updating journal "
         r"superblock|previous I/O error is detected for journal superblock update) for "
         r"(?P<device2>[\w.-]{1,64}?)(?:-\d+)?\.?\s*$)"),
    _row("btrfs-read-only", kinds.READ_ONLY_FILESYSTEM, "BTRFS",
         rf"BTRFS:? \w{{0,8}} ?{_BTRFS}: (?:forced readonly|Remounting filesystem read-only)"),
    _row("btrfs-error", kinds.DISK_ERROR, "BTRFS",
         rf"BTRFS:? \w{{1,8}} {_BTRFS}:? (?:in \S{{1,64}}:\d+: errno=-(?!28\b|30\b)\d+|csum failed root |error "
         r"writing primary super block"
         r"|checksum (?:verify failed on |error at logical )|i/o error at logical |unable to fixup \(regular\) error "
         r"|lost page write due to IO error on |bad tree block (?:start|level)|parent transid verify failed on "
         r"|corrupt (?:leaf|node): |tree (?:first key|level) mismatch detected|level verify failed on "
         r"|lost super block write due to IO error on |csum error at logical |bad fsid on logical "
         r"|(?:block=\d+ )?read time tree block corruption detected"
         r"|direct IO failed ino [^\n]{1,120} err no (?:[24578]|10)$|super block at physical \d+ devid \d+ has bad csum"
         r"|failed to read (?:the system array|chunk tree|block groups|fs tree): -5$)"
         r"|BTRFS error \(device (?P<device2>[\w.-]{1,64})(?::? state \w{1,8})?\): bdev \S+ errs: wr "),
    # All I/O of the pool waits from then on, until an administrator clears it (zpool clear).
    _row("zfs", kinds.DISK_ERROR, ("has encountered an uncorrectable I/O failure", "; suspending pool"),
         r"WARNING: (?:Pool '(?P<device>[\w.: -]{1,64})' has encountered an uncorrectable I/O failure and has been "
         r"suspended|MMP writes to pool '(?P<device2>[\w.: -]{1,64})' have not succeeded in over \d+ ms; suspending "
         r"pool)"),
    _row("f2fs", kinds.READ_ONLY_FILESYSTEM, "Stopped filesystem due to reason",
         rf"F2FS-fs \({_DISK}\): Stopped filesystem due to reason"),
    # fs/nfs/nfs4state.c: open files on the server cannot be kept, or are lost.
    _row("nfs", kinds.NETWORK_DISK_ERROR,
         ("not responding", "failed on NFSv4 server", ": lost ", "migration recovery failed"),
         r"(?:nfs|lockd|NFS): server (?P<device>\S{1,120}) not responding, (?:still trying|timed out)"
         r"|NFS: state manager(?:: [\w ]{1,48})? failed on NFSv4 server (?P<device2>\S{1,120}) with error \d"
         r"|NFS: (?P<device3>\S{1,120}): lost [1-9]\d* locks"
         r"|NFS: migration recovery failed \(server (?P<device4>[^\s)]{1,120})\)"),
    # fs/smb/client/connect.c; /dev/kmsg writes a backslash as \\x5c.
    _row("cifs", kinds.NETWORK_DISK_ERROR, " has not responded in ",
         r"CIFS:? VFS: (?:Server |(?:\\(?:x5c)?){2})(?P<device>\S{1,120}) has not responded in \d+ seconds"),
    # fs/ceph/mds_client.c, since Linux 6.8 with the cluster and the client before it.
    _row("ceph", kinds.NETWORK_DISK_ERROR, "ceph: ",
         r"ceph: (?:\[[0-9a-f-]{36} \d+\]: )?(?P<device>mds\d+) (?:hung\b|rejected session|reconnect denied)"),
    _row("lustre", kinds.NETWORK_DISK_ERROR,
         ("was lost; in progress operations", "This client was evicted by", "Timed out RDMA with", "ration from log "),
         r"Lustre(?:Error)?: (?:[\da-f:-]{1,24}: )?(?:\S{1,120}: Connection to (?P<device>\S{1,64}) \(at \S{1,64}\) "
         r"was lost; in progress operations"
         r"|\S{1,120}: This client was evicted by (?P<device2>[\w.-]{1,64}); in progress operations"
         # A mount. Error 2: there is no such file system, which is a matter of the mount's own words.
         r"|MGC\S{1,64}: (?:Confi?guration|The configuration) from log '?(?P<device4>[\w.-]{1,64})-client'? failed "
         r"(?:from (?:the )?MGS )?\(?-(?!2\b)\d)"
         r"|LNet(?:Error)?: [^\n]{1,120}\(\)\) Timed out RDMA with (?P<device3>[\w.:-]{1,64}@\w{1,16}) "),
)  # fmt: skip

_HOST = (
    _row("mce-uncorrected", kinds.HOST_UNCORRECTED, "[Hardware Error]: ",
         rf"{_MCE}(?P<device>Bank \d+): [2367abef][0-9a-f]{{14,15}}\b"),
    # The collector of corrected errors gives up a page that has had too many of them (drivers/ras/cec.c).
    _row("mce-corrected", kinds.HOST_CORRECTED, ("[Hardware Error]: ", "RAS: Soft-offlining pfn"),
         rf"{_MCE}Bank \d+: [014589cd][0-9a-f]{{14,15}}\b|mce: \[Hardware Error\]: Machine check events logged"
         r"|RAS: Soft-offlining pfn: 0x[0-9a-f]"),
    _row("memory-failure", kinds.HOST_UNCORRECTED,
         ("Memory failure: 0x", "Uncorrected hardware memory error", "MCE: Killing ",
          "Uncorrected memory error in page", "Kernel accessed poison"),
         r"Memory failure: 0x[0-9a-f]+: (?:recovery action for |(?:Sending SIGBUS to|Killing) [^\n]{1,40} due to "
         r"hardware memory corruption)"
         r"|mce: (?:Uncorrected hardware memory error|Uncorrected memory error in page 0x|Kernel accessed poison in "
         r"user space)|MCE: Killing [^\n]{1,40} due to hardware memory corruption "
         r"fault at "),
    _row("amd-uncorrected", kinds.HOST_UNCORRECTED, "[Hardware Error]: ",
         r"\[Hardware Error\]: (?:Uncorrected, software (?:restartable|containable) error|System Fatal "
         r"error|Deferred error, no action"
         r"|CPU:\d+ \([0-9a-f:]+\) MC\d+_STATUS\[(?:Over|-)\|UE\|)"),
    _row("amd-corrected", kinds.HOST_CORRECTED, "[Hardware Error]: ",
         r"\[Hardware Error\]: (?:Corrected error, no action required|CPU:\d+ \([0-9a-f:]+\) "
         r"MC\d+_STATUS\[(?:Over|-)\|CE\|)"),
    # Memory controllers, and caches of processors (drivers/edac/edac_device.c).
    _row("edac-uncorrected", kinds.HOST_UNCORRECTED, ("EDAC MC", "EDAC DEVICE"),
         r"EDAC (?:(?P<device>MC\d+): \d+ UE [^\n]{0,200}? ?on \S|(?P<device2>DEVICE\d+): UE: \S)"),
    _row("edac-corrected", kinds.HOST_CORRECTED, ("EDAC MC", "EDAC DEVICE"),
         r"EDAC (?:(?P<device>MC\d+): \d+ CE [^\n]{0,200}? ?on \S|(?P<device2>DEVICE\d+): CE: \S)"),
    # A line without the number in braces is a record of the last boot, kept by the firmware (drivers/acpi/apei/bert.c).
    _row("ghes-fatal", kinds.HOST_UNCORRECTED, "[Hardware Error]: ",
         _GHES_BEFORE + r"\{\d+\}\[Hardware Error\]: ? ?event severity: fatal"),
    # The system survives a recoverable error, but it was not corrected. A PCIe error has a line of its own device, also
    # one that was corrected.
    _lines(
        "ghes-uncorrected",
        kinds.HOST_UNCORRECTED,
        ("[Hardware Error]: ",),
        rf"{_GHES_BEFORE}{_GHES_UNCORRECTED}{_GHES_FRU}"
        rf"\n{_GHES}section_type: (?:memory|general processor|ARM processor|IA32/X64 processor) error",
        rf"{_GHES_BEFORE}(?:{_GHES_UNCORRECTED}|{_GHES_HEAD}$)",
        _GHES_GOES_ON,
    ),
    _lines(
        "ghes-corrected",
        kinds.HOST_CORRECTED,
        ("[Hardware Error]: ",),
        rf"{_GHES_BEFORE}{_GHES_CORRECTED}{_GHES_FRU}\n{_GHES}section[ _]type: (?!PCIe error)",
        rf"{_GHES_BEFORE}(?:{_GHES_CORRECTED}|{_GHES_HEAD}$)",
        _GHES_GOES_ON,
    ),
    _row("arm64-serror", kinds.HOST_UNCORRECTED, "SError Interrupt on CPU",
         r"SError Interrupt on CPU\d+, code 0x[0-9a-f]+"),
    _row("panic-of-hardware", kinds.HOST_UNCORRECTED, "Kernel panic - not syncing",
         r"Kernel panic - not syncing: (?:(?:Fatal (?:local )?|Uncorrected |Unrecoverable )?[Mm]achine "
         r"[Cc]heck|Fatal hardware error"
         r"|Asynchronous SError Interrupt|Timeout synchronizing machine check over CPUs"
         r"|Timeout: (?:Not all CPUs entered broadcast exception handler|(?:Subject|Monarch) CPUs? "
         r"[^\n]{1,40}machine check)"
         r"|Too many (?:consecutive )?machine checks |Failed kernel mode recovery|CPU context corrupt|NMI IOCK "
         r"error: Not continuing"
         r"|UE [^\n]{0,200}? ?on \S)"),
    _row("thermal", kinds.HOST_THERMAL,
         ("above threshold, cpu clock", "critical temperature reached", "HARDWARE PROTECTION"),
         r"(?:mce: )?CPU\d+: (?:Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled"
         r"|thermal thermal_zone\d+: (?:\S{1,32}: )?critical temperature reached|reboot: HARDWARE PROTECTION shutdown"),
    # An administrator may choose another clock, and Hyper-V has a quick one of its own.
    _row("clock", kinds.CLOCK_SOURCE, "Marking ",
         r"clocksource: [^\n]{0,120}Marking clocksource '?tsc\S*'? as unstable"
         r"|tsc: Marking TSC unstable due to (?!boot parameter|running on Hyper-V)"),
)  # fmt: skip

_KERNEL = (
    _row("soft-lockup", kinds.KERNEL_HANG, "BUG: ", r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#"),
    _row("hard-lockup", kinds.KERNEL_HANG, "hard LOCKUP", r"(?:NMI )?watchdog: [^\n]{0,40}hard LOCKUP on cpu "),
    _row("workqueue-lockup", kinds.KERNEL_HANG, "BUG: ", r"BUG: workqueue lockup - pool "),
    _row("rcu-stall", kinds.KERNEL_HANG, "INFO: ",
         r"(?:rcu: )?INFO: rcu\w* .{0,40}detected (?:expedited )?stall"),
    _row("oops", kinds.KERNEL_HANG, "[#",
         r"(?:Internal error: |general protection fault.{0,40})?Oops(?: -)?:? [^\n]{1,160}\[#\d"
         r"|(?:general protection fault|double fault|invalid opcode|divide error|stack segment|int3|alignment "
         r"check)\b[^\n]{0,120}"
         r": [0-9a-f]{4} \[#\d|Internal error: [^\n]{0,120}: [0-9a-f]{8,16} \[#\d"),
    _row("bad-access", kinds.KERNEL_HANG, ("BUG: ", "Unable to handle kernel"),
         r"BUG: unable to handle (?:page fault for address|kernel )|BUG: kernel NULL pointer dereference"
         r"|Unable to handle kernel [^\n]{1,60} at virtual address [0-9a-f]{8}"),
    _row("kernel-bug", kinds.KERNEL_HANG, ("kernel BUG at", "BUG: ", "LBUG"),
         r"kernel BUG at \S{1,200}:\d|LustreError: [\d:]{3,24}\([^)\n]{1,120}\(\)\) LBUG|BUG: (?:Bad (?:page "
         r"(?:state|map|cache) in process|rss-counter state)|non-zero pgtables_bytes on freeing mm|scheduling while "
         r"atomic: "
         r"|(?:TASK )?stack guard page was hit|KASAN: \S{1,40} in |spinlock bad magic on)"),
    _row("unregister-netdevice", kinds.KERNEL_HANG, "unregister_netdevice", r"unregister_netdevice: waiting for "),
    _row("panic", kinds.KERNEL_HANG, "Kernel panic - not syncing", "Kernel panic - not syncing: "),
    # Such a task usually waits for storage, and that can be a tenant's own server.
    _row("hung-task", kinds.TASK_HANG, "INFO: ",
         r"INFO: task [^\n]{1,80}blocked (?:in I/O wait )?for more than \d+ seconds"),
)  # fmt: skip

KERNEL_LINES: tuple[KernelLine, ...] = (
    *_NVIDIA, *_AMD, *_ACCELERATORS, *_PCIE, *_NETWORK, *_BLOCK_DEVICES, *_FILE_SYSTEMS, *_HOST, *_KERNEL,
)  # fmt: skip
"""All rows: the first that matches counts."""

SCSI_HOST = "ScsiHost"
SCSI_DISK = "ScsiDisk"
FAILED_PATH = "FailedPath"
# drivers/scsi/hosts.c (scsi_add_host_with_dma) prints the name of the host's driver, drivers/scsi/sd.c (sd_probe) the
# disk, whose address begins with the number of its host. drivers/md/dm-mpath.c (fail_path) names a map and one of its
# paths by their numbers.
DISK_PATHS = (
    _row("scsi-host", SCSI_HOST, "scsi host", r"scsi host(?P<device>\d{1,7}): (?P<value>[^\n]{1,80})"),
    _row("scsi-disk", SCSI_DISK, "] Attached SCSI ",
         rf"sd (?P<value>\d{{1,7}}):[\d:]{{5,32}}: \[{_DISK}\] Attached SCSI (?:removable )?disk$"),
    _row("failed-path", FAILED_PATH, "Failing path ",
         r"device-mapper: multipath: (?P<device>\d{1,4}:\d{1,7}): Failing path (?P<value>\d{1,4}:\d{1,7})\.?$"),
)  # fmt: skip
"""Lines that are no evidence: they name the way to a disk, which sysfs forgets once the disk has vanished."""
