"""What the fleet's own history says of healthy figures, and the published floors below which no figure is healthy.

A history is kept for each key, because figures of another library or probe are not comparable. Only figures that
Muster's own checkers measured enter it: a program in a tenant's pod could be made to lie. Frequent tests cannot bend
it: each node counts once, by its own median, and a namespace has a bounded share of the nodes. A tenant may have many
namespaces. So where enough nodes were tested without a job, they outnumber those of all namespaces together. The middle
is then one of their figures, or lies between healthy ones. How samples are stored is not decided here.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from statistics import median

from muster.protocol.profiles import is_for_slot
from muster.world.checks import ProbeThreshold

# A young history says nothing: so many nodes have to be in it.
LEAST_NODES = 8
# The newest figures of a node that count.
PER_NODE = 16
# At most this share of the nodes that count may have been measured for one namespace; idle checks have none and no
# bound.
NAMESPACE_SHARE = 0.25
# A threshold lies so many sigmas of the logarithm below the middle, and within these shares of it. SuperBench calls 5 %
# below its baseline a defect (its rule language, `variance`); here a node is blamed only by several misses, so that the
# single threshold may be where a gang of 2,048 has a handful of healthy misses.
SIGMAS, LEAST_RATIO, MOST_RATIO = 3.5, 0.5, 0.85
# Of a normal distribution: sigma from the median absolute deviation.
_SIGMA_OF_MAD = 1.4826
# Beside the history's own share of misses so many tests at this share are assumed.
_ASSUMED_MISS_SHARE, _ASSUMED_TESTS = 0.01, 50


@dataclass(frozen=True, slots=True)
class Key:
    """What the figures of one history have in common, so that they can be compared.

    Attributes:
        probe: say "gemm-bf16", or "pair".
        model: the GPU's product name.
        transport: "NVLink", "IB", "TCP"; "" for probes that use none.
        library: the library and its version, say "nccl-2.28.9".
        version: of the probe.
    """

    probe: str
    model: str
    transport: str
    library: str
    version: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of a test that the node did not fail.

    Attributes:
        key: of the history.
        node: that was measured; of a pair both ends have one sample each.
        namespace: of the job for which it was tested; "" for idle, repaired and hand-picked nodes.
        figure: the result, in the probe's unit.
        at: when it was measured.
        own: whether Muster's own checker measured it.
    """

    key: Key
    node: str
    namespace: str
    figure: float
    at: datetime
    own: bool = True


_MAMF = "stas00/ml-engineering, compute/accelerator: MAMF bf16, seven tenths of it"
_AZURE = "Azure/azurehpc-health-checks, conf: host to device"
_AZURE_16_GIB = "Azure/azurehpc-health-checks, conf: all-reduce of 16 GiB in the node, seven tenths of it"
_WITHOUT_SHARP = "NVIDIA/nccl-tests#212: 370 GB/s without NVLink SHARP, seven tenths of it"
# Seven tenths of what is published where that is a peak, or was measured with longer messages; as published where it is
# a floor already. Pairs have none: what they reach hangs on how many network cards a node has.
FLOORS = (  # of each the model is the start of the product's name
    ProbeThreshold("gemm-bf16", "NVIDIA A100-SXM4-80GB", "", floor=190.0, unit="TFLOP/s", source=_MAMF),
    ProbeThreshold("gemm-bf16", "NVIDIA H100 80GB", "", floor=556.0, unit="TFLOP/s", source=_MAMF),
    ProbeThreshold("gemm-bf16", "NVIDIA H200", "", floor=556.0, unit="TFLOP/s", source=_MAMF),
    ProbeThreshold("gemm-bf16", "NVIDIA B200", "", floor=1221.0, unit="TFLOP/s", source=_MAMF),
    ProbeThreshold("gemm-bf16", "NVIDIA GB200", "", floor=1275.0, unit="TFLOP/s", source=_MAMF),
    ProbeThreshold("gemm-bf16", "NVIDIA B300", "", floor=1238.0, unit="TFLOP/s", source=_MAMF),
    ProbeThreshold("host-to-device", "NVIDIA A100", "", floor=21.0, unit="GB/s", source=_AZURE),
    ProbeThreshold("host-to-device", "NVIDIA H100", "", floor=48.0, unit="GB/s", source=_AZURE),
    ProbeThreshold("host-to-device", "NVIDIA H200", "", floor=48.0, unit="GB/s", source=_AZURE),
    ProbeThreshold("all-reduce-node", "NVIDIA A100", "NVLink", floor=160.0, unit="GB/s", source=_AZURE_16_GIB),
    ProbeThreshold("all-reduce-node", "NVIDIA H100", "NVLink", floor=259.0, unit="GB/s", source=_WITHOUT_SHARP),
    ProbeThreshold("all-reduce-node", "NVIDIA H200", "NVLink", floor=259.0, unit="GB/s", source=_WITHOUT_SHARP),
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the history of one key says about healthy figures.

    Attributes:
        middle: the median over nodes of each node's median, in the probe's unit.
        sigma: the standard deviation of the logarithm of single figures around it.
        nodes: the number of nodes in the history.
        miss_share: the share of single figures below `ratio`, for healthy nodes.
    """

    middle: float
    sigma: float
    nodes: int
    miss_share: float

    @property
    def ratio(self) -> float:
        """The share of the middle below which a figure is a miss."""
        return ratio_of(self.sigma)

    @property
    def healthy(self) -> float:
        """The share of the middle below which hardly any healthy figure lies."""
        return math.exp(-SIGMAS * self.sigma)


def ratio_of(sigma: float) -> float:
    """Return the share of the middle below which a figure is a miss; it lies between 0.5 and 0.85.

    Args:
        sigma: the standard deviation of the figures' logarithm.
    """
    return min(MOST_RATIO, max(LEAST_RATIO, math.exp(-SIGMAS * sigma)))


def baseline(key: Key, samples: Iterable[Sample]) -> Baseline | None:
    """Return the baseline of a key; None while fewer than LEAST_NODES nodes are in its history."""
    by_node: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if (
            (sample.key is key or sample.key == key)
            and sample.own
            and math.isfinite(sample.figure)
            and sample.figure > 0.0
        ):
            by_node[sample.node].append(sample)
    newest = {
        node: sorted(node_samples, key=lambda sample: (sample.at, sample.figure, sample.namespace))[-PER_NODE:]
        for node, node_samples in by_node.items()
    }
    counting = _bounded(newest)
    if len(counting) < LEAST_NODES:
        return None
    middles = {node: median(sample.figure for sample in node_samples) for node, node_samples in counting.items()}
    middle = median(middles.values())
    # Each node counts once here, too: the median of its own deviations.
    deviations = [
        median(abs(math.log(sample.figure / middle)) for sample in node_samples) for node_samples in counting.values()
    ]
    sigma = _SIGMA_OF_MAD * median(deviations)
    least = middle * ratio_of(sigma)
    shares = [
        sum(sample.figure < least for sample in node_samples) / len(node_samples) for node_samples in counting.values()
    ]
    # A node that is bad all the time has no say in how often healthy ones miss.
    healthy = [share for share in shares if share < 0.5]
    assumed = _ASSUMED_MISS_SHARE * _ASSUMED_TESTS
    return Baseline(middle, sigma, len(counting), (sum(healthy) + assumed) / (len(healthy) + _ASSUMED_TESTS))


def _bounded(newest: dict[str, list[Sample]]) -> dict[str, list[Sample]]:
    """Return the nodes that count, with their samples: of each namespace no more than its share.

    All namespaces together have fewer nodes than were tested without a job, where those suffice for a history. A node
    belongs to the namespace for which most of its figures were measured. Which nodes of a namespace stay is drawn by
    their names, so that the tenant cannot choose them.

    Args:
        newest: by node, its newest samples.
    """
    owners: dict[str, list[str]] = defaultdict(list)
    for node, node_samples in newest.items():
        names = [sample.namespace for sample in node_samples]
        owners[max(sorted(set(names)), key=names.count)].append(node)
    # With k namespaces that are all at their bound nothing would be left to bound by: the largest are cut to the share
    # that they would have of what the others bring, or to an equal part.
    own = owners.pop("", [])
    most = _most([len(nodes) for nodes in owners.values()], len(own))
    others = _drawn(node for nodes in owners.values() for node in _drawn(nodes)[:most])
    if len(own) >= LEAST_NODES:
        others = others[: len(own) - 1]
    kept = {*own, *others}
    return {node: node_samples for node, node_samples in newest.items() if node in kept}


def _drawn(nodes: Iterable[str]) -> list[str]:
    return sorted(nodes, key=lambda node: blake2b(node.encode(), digest_size=8).digest())


def _most(counts: list[int], free: int) -> int:
    """Return the largest number of nodes per namespace for which none has more than its share of all.

    Args:
        counts: for each namespace, its number of nodes.
        free: the number of nodes that were tested without a job.
    """
    fewest_that_share = math.ceil(1 / NAMESPACE_SHARE)
    for most in range(max(counts, default=0), 0, -1):
        if most <= NAMESPACE_SHARE * (free + sum(min(count, most) for count in counts)):
            return most
    # Too few namespaces for that: an equal part for each, so that the cold start ends in a fleet of one tenant, too.
    return max(1, min(counts, default=1)) if 1 < len(counts) < fewest_that_share else max(counts, default=0)


def floor(probe: str, model: str, transport: str = "") -> ProbeThreshold | None:
    """Return the floor of a probe on a model, the one with the longest model name that fits; None: none is published.

    The floors for NVLink do not hold for boards in PCIe slots.
    """
    fitting = [
        threshold
        for threshold in FLOORS
        if threshold.probe == probe
        and model.startswith(threshold.model)
        and threshold.transport in ("", transport)
        and not (threshold.transport == "NVLink" and is_for_slot(model))
    ]
    return max(fitting, key=lambda threshold: len(threshold.model), default=None)
