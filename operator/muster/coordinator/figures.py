"""Histograms of how long probes take and what they reach: the process that gave an order counts its answer once.

Labels come from checkers. They are Muster's own, and still they are bounded: a fleet has few models, and there are few
probes.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from prometheus_client import Histogram

from muster.preflight.outcomes import How
from muster.protocol.checks import GANG, NODE, PAIR, CheckAnswer, CheckReport

OTHER = "Other"
MAX_PROBES, MAX_MODELS = 48, 24
"""Beyond so many different ones the others count together."""

_seconds = Histogram(
    "muster_check_probe_seconds",
    "Time that a probe took on one node.",
    ["probe", "model"],
    buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900),
)
# Four for each power of ten: from what gloo reaches over a slow link to what the memory of a GPU does.
_figure = Histogram(
    "muster_check_figure",
    "Result of a probe on one node, in its unit.",
    ["probe", "model", "unit"],
    buckets=(*(float(f"{step}e{power}") for power in range(-2, 4) for step in (1, 1.8, 3.2, 5.6)), 1e4),
)


class _ProbeResult(NamedTuple):
    probe: str
    seconds: float
    figure: float | None
    unit: str


class CheckFigures:
    """Counts the answers of checkers. Only the event loop's thread may touch it."""

    def __init__(self) -> None:
        self._probes: set[tuple[str, str]] = set()
        self._models: set[str] = set()
        self._counted: dict[str, set[str]] = {}  # node -> orders whose answers are counted, or are not ours

    def given(self, node: str, orders: Collection[str], answered: Collection[str]) -> None:
        """Note which orders are in a node's directive now. Answers to orders of an earlier leader are not counted here.

        Args:
            node: the node's name.
            orders: ids of the orders in the directive.
            answered: ids of orders that the node had answered before this process gave them.
        """
        counted = self._counted.get(node, set())
        kept = {order for order in orders if order in counted or order in answered}
        if orders:
            self._counted[node] = kept
        else:
            self._counted.pop(node, None)

    def heard(self, node: str, orders: Collection[str], report: CheckReport) -> None:
        """Count the new answers in a node's report, if to orders of these ids: those of the node's directive."""
        counted = self._counted.get(node, set())
        for answer in report.answers:
            if answer.order in orders and answer.order not in counted:
                counted.add(answer.order)
                self._count(answer, report.model or report.device)

    def _count(self, answer: CheckAnswer, model: str) -> None:
        model = _bounded(model, self._models, MAX_MODELS)
        for result in _probe_results(answer):
            key = (result.probe, result.unit)
            if key not in self._probes and len(self._probes) >= MAX_PROBES:
                key = (OTHER, OTHER)
            else:
                self._probes.add(key)
            _seconds.labels(key[0], model).observe(result.seconds)
            if result.figure is not None:
                _figure.labels(key[0], model, key[1]).observe(result.figure)


def _bounded(name: str, names: set[str], most: int) -> str:
    if name not in names:
        if len(names) >= most:
            return OTHER
        names.add(name)
    return name


def _probe_results(answer: CheckAnswer) -> Iterator[_ProbeResult]:
    """The results of the probes that were run for an answer."""
    if answer.kind == NODE:
        for probe in answer.probes:
            if probe.outcome != How.ENVIRONMENT:
                good = probe.outcome == How.RESULT and not probe.wrong
                yield _ProbeResult(probe.probe, probe.seconds, probe.figure if good else None, probe.unit)
    elif answer.kind in (PAIR, GANG) and answer.outcome != How.ENVIRONMENT:
        figure = answer.gbps if answer.outcome == How.RESULT and answer.gbps > 0.0 else None
        yield _ProbeResult(answer.kind.lower(), answer.seconds, figure, "GB/s")
