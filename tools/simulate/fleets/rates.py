"""How often what happens in a fleet, as data with sources. What nobody has published is called an assumption.

Rates are for each 1,000 days of a node with eight GPUs; a node with fewer fails in proportion.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FAILURES = (1.13, 2.13, 2.3, 2.34, 3.79, 6.50)
"""Nebius, CoreWeave 2025, Meta FT-HSDP, Meta RSC-2, Llama 3, Meta RSC-1: failures in 1,000 node-days; a fleet has one
of them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault that stays until somebody repairs the machine.

    Attributes:
        share: of a fleet's failures, in any unit.
        worn: the chance that what usually repairs it does not, and the part has to be replaced.
        source: where the share comes from.
    """

    share: float
    worn: float
    source: str


FAULTS: Mapping[str, Kind] = {
    "OffTheBus": Kind(18.0, 0.2, "FT-HSDP: PCIe; Meta RSC: about half of them with XID 79"),
    "Uncontained": Kind(7.4 + 1.2, 0.1, "FT-HSDP: GPU compute and SRAM"),
    "DoubleBit": Kind(22.9 * 0.3, 0.1, "FT-HSDP: HBM; how it divides is an assumption"),
    "RowRemap": Kind(22.9 * 0.6, 0.05, "FT-HSDP: HBM; how it divides is an assumption"),
    "RemapFailed": Kind(22.9 * 0.1, 1.0, "FT-HSDP: HBM; how it divides is an assumption"),
    "Gsp": Kind(4.1, 0.05, "Llama 3: GPU system processor"),
    "NvLink": Kind(4.5, 0.3, "Unicron: NVLink"),
    "PortLost": Kind(5.3, 1.0, "FT-HSDP: switch and cable"),
    "PortFlaps": Kind(3.9, 1.0, "Unicron: link flap"),
    "CardLost": Kind(1.7, 0.3, "Llama 3: NIC"),
    "Disk": Kind(4.4, 1.0, "FT-HSDP: SSD"),
    "Hot": Kind(1.4, 1.0, "Llama 3: thermal interface and sensor"),
    "DriverHangs": Kind(1.0, 0.0, "go-nvml #152; how often is an assumption"),
}
CRASHES = 5.6 + 6.2 + 5.8
"""Likewise a share: reboots, host maintenance and kernels (FT-HSDP). The machine boots and is well."""

INTERMITTENT = frozenset({"PortFlaps"})
"""Faults that show only now and then: between two times such a node looks well to everybody."""

PROGRAMS = 20.0
"""XIDs 13, 31 and 43 that a program causes: an assumption."""
SLOW_DRIVER = 2.0
"""NVML needs 6 to 40 s for an answer and is well afterwards: an assumption."""
AGENT_DEATHS = 10.0
"""An agent ends, and is started again within a minute: an assumption."""
AGENT_STAYS_AWAY = 0.05
"""Of these it does not come back for hours: an assumption."""
PLANNED_BOOTS = 33.0
"""Once a month, for kernel and driver: an assumption."""
SHORT_BOOT = 0.003
"""Of all boots the machine comes up with a GPU less or a port down: an assumption."""
WRONG_MARK = 0.1
"""Marks of other monitors on one healthy node, for each failure of the fleet: Minder's precision is 0.904."""

# In a fleet and a month.
SOURCE_RELEASE = 0.5
"""A release of another monitor marks a whole pool (NVSentinel #1629: 77 healthy nodes after one crash): how often is an
assumption."""
LABEL_ON_ALL = 0.2
"""Somebody labels a whole pool: an assumption."""
STORAGE_BLIPS = 2.0
"""Shared storage is away for minutes (Meta RSC: mounts are a top cause): how often is an assumption."""
FABRIC_RESTARTS = 1.0
"""Fabric managers of a pool are started again: an assumption."""
ROLL_OUTS = 2.0
"""Of the agent, ten nodes a minute: an assumption."""
BAD_ROLL_OUTS = 0.2
"""All agents of a pool are away until somebody rolls them back: an assumption."""
SWITCH_REBOOTS = 0.5
"""All ports of a rack are down for three minutes: an assumption."""
OPERATOR_RESTARTS = 6.0
"""Roll-outs, evictions, leader changes: an assumption."""

FAST_SECONDS, SLOW_SECONDS = 12 * 60.0, 2.2 * 3600.0
"""Until somebody has reset or rebooted a node, half of them sooner: by Nebius's machinery, and "Story of two GPUs"
(SC'25)."""
INSPECT_SECONDS, REPLACE_SECONDS = 4 * 3600.0, 24 * 3600.0
"""Likewise for who looks and who brings a part: assumptions."""
IN_VAIN = 0.05
"""Of the repairs nothing has been done although somebody says so: an assumption."""
