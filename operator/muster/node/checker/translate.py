"""Translates the zygote's answers into the coordinator's report: names of limits, the worst device's figure, messages.
Pure.

`how` is a muster.preflight.outcomes.How, which this Python may be too old to import; tests hold the two together.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from muster.node.checker.facts import CPU, CUDA
from muster.node.checker.probes import outcome
from muster.node.checker.probes.bits import ALIKE
from muster.protocol.checks import MAX_WORDS_CHARS, ProbeReport
from muster.protocol.messages import LONGEST_SECONDS
from muster.protocol.profiles import JUDGED_BYTES, is_for_slot

RESULT = "Result"
NO_RESULT = "NoResult"
COULD_NOT_CONNECT = "CouldNotConnect"
OTHER_ENDED = "OtherEnded"
LATE = "Late"
ENVIRONMENT = "Environment"

NVLINK, P2P, IB, ROCE, TCP = "NVLink", "P2P", "IB", "RoCE", "TCP"
"""The transports, by the names in floors and histories."""
ALL_REDUCE_NODE = "all-reduce-node"

# What the parser of numbers accepts (muster.protocol.messages).
_MOST = LONGEST_SECONDS
# Loss shows in small messages; in long ones a healthy queue loses segments, too (probes/reduce.py).
_SMALL_BYTES = 64 * 1024
# A share of a few segments means nothing.
_LEAST_SEGMENTS = 1000
# Another process took the port that was free a moment ago: no hardware fault.
_PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)


class Figure(NamedTuple):
    """One figure of a probe.

    Attributes:
        extract: extracts it from a device's answer.
        worst: selects the worst value of several devices.
    """

    name: str
    unit: str
    extract: Callable[[Mapping[str, Any]], Optional[float]]
    worst: Callable[[Sequence[float]], float] = min


def _at(*path: str) -> Callable[[Mapping[str, Any]], Optional[float]]:
    def find(figures: Mapping[str, Any]) -> Optional[float]:
        value: Any = figures
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None

    return find


def _nothing(_: Mapping[str, Any]) -> Optional[float]:
    return None


def _bus(figures: Mapping[str, Any]) -> Optional[float]:
    """Return the bus bandwidth of an all-reduce, at the most telling size. A single device moves no data."""
    sizes = figures.get("sizes") or ()
    return (
        deciding_bandwidth(sizes, CPU if figures.get("backend") == "gloo" else CUDA)
        if figures.get("world", 0) > 1
        else None
    )


FIGURES: Dict[str, Tuple[Figure, ...]] = {
    "Devices": (Figure("devices", "GPUs", _at("found")),),
    "Context": (Figure("context", "s", _at("context_seconds"), max),),
    "Gemm": (Figure("gemm-bf16", "TFLOP/s", _at("best_tflops")),),
    "Bandwidth": (Figure("memory-bandwidth", "GB/s", _at("best_gb_per_s")),),
    "Pattern": (Figure("memory-pattern", "GB/s", _at("best_gb_per_s")),),
    "Bits": (Figure("bit-exact", "", _nothing),),
    "HostCopies": (
        Figure("host-to-device", "GB/s", _at("to_device", "best_gb_per_s")),
        Figure("device-to-host", "GB/s", _at("from_device", "best_gb_per_s")),
    ),
    "AllReduce": (Figure(ALL_REDUCE_NODE, "GB/s", _bus),),
    "Storage": (
        Figure("storage", "GB/s", _at("write_gb_per_s")),
        Figure("storage-read", "GB/s", _at("read_gb_per_s")),
    ),
}
"""By probe: its figures, by the names in limits and histories. A failure is reported under the first name."""


# Inside one node no other node is waited for: an all-reduce there that exceeds its time is late like any other probe.
_LATE = frozenset({outcome.NO_TIME, outcome.NO_RESULT, outcome.COULD_NOT_CONNECT})


def result_of_probe(name: str) -> str:
    """Return what the outcome of a node's own probe means: a finding about the node, too late, or nothing."""
    if name == outcome.HUNG:
        return NO_RESULT
    if name in _LATE:
        return LATE
    return RESULT if name == outcome.DONE or name in outcome.ABOUT_THE_NODE else ENVIRONMENT


def probe_reports(answer: Mapping[str, Any], taken_names: Collection[str] = ()) -> List[ProbeReport]:
    """Return the reports on one probe of a node order.

    Args:
        answer: the zygote's.
        taken_names: names that earlier probes of the order have: a second matrix product, of another size, is not the
            first one.
    """
    figures = FIGURES.get(str(answer.get("probe")), (Figure(str(answer.get("probe")).lower(), "", _nothing),))
    name, seconds = answer["outcome"], _number(answer.get("seconds"))
    parts = answer.get("parts") or []
    if name != outcome.DONE:
        wrong = name in outcome.ABOUT_THE_NODE and name != outcome.HUNG
        first = _free(figures[0].name, parts, taken_names)
        words = failure_text(answer)
        return [ProbeReport(first, result_of_probe(name), None, figures[0].unit, wrong, words, seconds)]
    reports = []
    for figure in figures:
        by_device = [
            (value, part) for part in parts for value in [figure.extract(part.get("figures", {}))] if value is not None
        ]
        worst = figure.worst([value for value, _ in by_device]) if by_device else None
        words = _figure_text(figure, by_device, worst, str(answer.get("device")))
        reported = None if worst is None else min(max(worst, 0.0), _MOST)
        name = _free(figure.name, parts, taken_names)
        reports.append(
            ProbeReport(name, RESULT, reported, figure.unit, False, words, seconds, fingerprint=fingerprint_of(parts))
        )
    return reports


def _free(name: str, parts: Sequence[Mapping[str, Any]], taken_names: Collection[str]) -> str:
    if name not in taken_names:
        return name
    size = next((part["figures"]["size"] for part in parts if part.get("figures", {}).get("size")), "")
    more = "%s-%s" % (name, size) if size else name
    return (
        more if more not in taken_names else "%s-%d" % (name, 1 + sum(other.startswith(name) for other in taken_names))
    )


def failure_text(answer: Mapping[str, Any]) -> str:
    """Return what went wrong, device by device, first the devices that decided the outcome."""
    parts = [part for part in answer.get("parts") or () if part.get("outcome") != outcome.DONE and part.get("message")]
    parts.sort(key=lambda part: part.get("outcome") != answer["outcome"])
    words = [_of_device(part, str(answer.get("device")), str(part["message"])) for part in parts]
    return cut("; ".join(words) or str(answer.get("message") or answer["outcome"]))


def _figure_text(
    figure: Figure, by_device: "List[Tuple[float, Mapping[str, Any]]]", worst: Optional[float], device: str
) -> str:
    """Return a text with the device of the worst figure, that value and the best one; "" where there is one device."""
    if device != CUDA or len(by_device) < 2 or worst is None:
        return ""
    part = next(part for value, part in by_device if value == worst)
    best = (max if figure.worst is min else min)(value for value, _ in by_device)
    return "GPU %d: %.4g %s; the best: %.4g %s" % (part["device"], worst, figure.unit, best, figure.unit)


def _of_device(part: Mapping[str, Any], device: str, message: str) -> str:
    if device != CUDA:
        return message
    uuid = part.get("mark", {}).get("uuid")
    return "GPU %d%s: %s" % (part.get("device", 0), " (%s)" % uuid if uuid else "", message)


def fingerprint_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the fingerprint that all of the node's devices computed, behind what other nodes must share to owe the
    same bits.

    "" where there is none, or where the devices are of several kinds.
    """
    fingerprints = {
        (json.dumps([part.get("mark", {}).get(name) for name in ALIKE]), json.dumps(prints, sort_keys=True))
        for part in parts
        for prints in [part.get("figures", {}).get("fingerprints")]
        if prints
    }
    if len(fingerprints) != 1:
        return ""
    return ":".join(hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for text in fingerprints.pop())


class Reduced(NamedTuple):
    """The result of an all-reduce over several nodes.

    Attributes:
        gbps: bus bandwidth in GB/s of the slowest device here; only with RESULT.
        retransmits: segments sent again per 1,000; 0 where the transport counts none.
    """

    how: str
    gbps: float
    retransmits: float
    transport: str
    message: str


_OF_NETWORK = {
    outcome.DONE: RESULT,
    outcome.COULD_NOT_CONNECT: COULD_NOT_CONNECT,
    outcome.OTHER_ENDED: OTHER_ENDED,
    outcome.NO_RESULT: NO_RESULT,
    outcome.HUNG: NO_RESULT,
    outcome.CRASHED: NO_RESULT,
    outcome.FAILED: NO_RESULT,
    # A sum that is wrong is worth nothing, however fast it came.
    outcome.WRONG: RESULT,
}


def reduced(answer: Mapping[str, Any], model: str, ethernet: bool) -> Reduced:
    """Return the result of the all-reduce of a pair or a gang.

    Args:
        answer: the zygote's.
        model: the GPUs' product name.
        ethernet: whether what NCCL calls IB here are Ethernet ports.
    """
    name = answer["outcome"]
    how = _OF_NETWORK.get(name, ENVIRONMENT)
    transport = transport_of(answer.get("transports") or (), model, ethernet, across=True)
    parts = answer.get("parts") or []
    words = "" if name == outcome.DONE else failure_text(answer)
    if how == COULD_NOT_CONNECT and _PORT_TAKEN.search(words):
        how = ENVIRONMENT
    bandwidths = [value for part in parts for value in [_bus(part.get("figures", {}))] if value is not None]
    gbps = min(bandwidths) if bandwidths and name == outcome.DONE else 0.0
    retransmits = max((_again(part.get("figures", {}).get("sizes") or ()) for part in parts), default=0.0)
    return Reduced(how, min(max(gbps, 0.0), _MOST), retransmits if transport == TCP else 0.0, transport, words)


def deciding_bandwidth(sizes: Sequence[Mapping[str, Any]], device: str) -> Optional[float]:
    """Return the bus bandwidth in GB/s at the size that decides; where that was not measured, at the largest size."""
    if not sizes:
        return None
    largest = max(sizes, key=lambda size: float(size["bytes"]))
    wanted = next((size for size in sizes if size["bytes"] == JUDGED_BYTES[device]), largest)
    return float(wanted["best_bus_gb_per_s"])


def _again(sizes: Sequence[Mapping[str, Any]]) -> float:
    small = [size for size in sizes if size["bytes"] <= _SMALL_BYTES]
    sent, sent_again = (sum(int(size.get(name, 0)) for size in small) for name in ("segments", "segments_again"))
    return min(1000.0 * max(sent_again, 0) / max(sent, _LEAST_SEGMENTS), 1000.0)


def transport_of(transports: Collection[str], model: str, ethernet: bool, across: bool) -> str:
    """Return the transport of the sums: of several the slowest, because it decides.

    Args:
        transports: as NCCL names them ("NET/IB/GDRDMA", "P2P/CUMEM"), or "TCP".
        model: NCCL calls it P2P over NVLink and over PCIe; boards for PCIe slots are known by their name.
        ethernet: whether what NCCL calls IB here are Ethernet ports.
        across: whether it went between nodes, so that what it did inside them does not count.
    """
    if not transports:
        return ""
    networks = [name for name in transports if name == TCP or name.startswith("NET/")]
    if networks and across:
        kinds = [_network(name, ethernet) for name in networks]
        return TCP if TCP in kinds else min(kinds)
    inside = sorted(name.split("/")[0] for name in transports if name not in networks)
    if "SHM" in inside:
        return "SHM"
    if any(name in ("P2P", "NVLS") for name in inside):
        return P2P if is_for_slot(model) else NVLINK
    return _network(networks[0], ethernet) if networks else inside[0]


def _network(name: str, ethernet: bool) -> str:
    kind = name.split("/")[1] if "/" in name else name
    if kind in (TCP, "Socket"):
        return TCP
    if kind.startswith("IB"):
        return ROCE if ethernet else IB
    if "TCPX" in kind:
        return "TCPX"
    return ("EFA" if "Libfabric" in kind else kind)[:64]


def overall(probes: Sequence[ProbeReport]) -> str:
    """Return the outcome of a whole node order: the hang, else what was found, else that it was late, else what
    prevented the test."""
    hows = {probe.outcome for probe in probes}
    if NO_RESULT in hows:
        return NO_RESULT
    if any(probe.wrong for probe in probes):
        return RESULT
    if LATE in hows:
        return LATE
    return ENVIRONMENT if ENVIRONMENT in hows or not probes else RESULT


def cut(words: str) -> str:
    """Return the beginning of a text, as long as the coordinator accepts it."""
    return words if len(words) <= MAX_WORDS_CHARS else words[: MAX_WORDS_CHARS - 3] + "..."


def _number(value: Any) -> float:
    return min(max(float(value or 0.0), 0.0), _MOST)
