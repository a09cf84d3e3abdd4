"""Lists every probe by its name."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Optional

from muster.node.checker.probes import bits, compute, device_probes, pattern, reduce, storage
from muster.node.checker.probes.worker import Worker


@dataclasses.dataclass(frozen=True)
class Probe:
    """How a probe is run.

    Attributes:
        needs: parameters that an order must have, beside the common ones.
        on_devices: whether the probe runs on each device, or once for the node.
        members: whether other nodes take part, so that this node alone need not be the cause of a missing result.
        conclude: compares the answers of all devices.
    """

    run: Callable[[Worker], Dict[str, Any]]
    needs: "tuple[str, ...]" = ()
    on_devices: bool = True
    members: bool = False
    conclude: Optional[Callable[[List[Dict[str, Any]]], None]] = None


PROBES: Dict[str, Probe] = {
    "Devices": Probe(device_probes.count_devices, on_devices=False),
    "Context": Probe(device_probes.open_context),
    "Gemm": Probe(compute.gemm, ("size", "seconds", "burst_seconds")),
    "Bandwidth": Probe(compute.bandwidth, ("bytes", "seconds", "burst_seconds")),
    "Pattern": Probe(pattern.pattern, ("bytes", "reserve_bytes", "chunk_bytes", "patterns", "rounds")),
    "Bits": Probe(bits.bits, ("shapes", "seeds", "seconds"), conclude=bits.conclude),
    "HostCopies": Probe(compute.host_copies, ("bytes", "seconds", "burst_seconds")),
    "AllReduce": Probe(reduce.all_reduce, ("nodes", "node_rank", "sizes", "wait_seconds"), members=True),
    "Storage": Probe(storage.storage, ("directory", "bytes"), on_devices=False),
}
