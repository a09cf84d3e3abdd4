"""Reads from the host its boot ID, and whether its InfiniBand devices are Ethernet ports.

Tests: tests/unit/checker/test_keeping.py.
"""

from __future__ import annotations

import glob


def boot_id(path: str) -> str:
    """Return the boot ID; "" where the file cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def infiniband_is_ethernet(sysfs: str) -> bool:
    """Whether NCCL's transport IB is RoCE here: there are active ports, and all of them are Ethernet ports."""
    layers = []
    for port in glob.glob(sysfs + "/class/infiniband/*/ports/*"):
        try:
            with open(port + "/state", encoding="ascii", errors="replace") as file:
                active = "ACTIVE" in file.read()
            with open(port + "/link_layer", encoding="ascii", errors="replace") as file:
                layer = file.read().strip()
        except OSError:
            continue
        if active:
            layers.append(layer)
    return bool(layers) and all(layer == "Ethernet" for layer in layers)
