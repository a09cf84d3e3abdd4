"""The thresholds of the fleet: from the history of what all checkers have measured (`preflight.baselines`), published
floors and the FleetPolicy's limits.

The history is what the checkers report now: each keeps the newest good figure of its node for each probe. So nothing of
it is stored here, and a new leader has it as soon as it has heard them.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import structlog

from muster.api.preflight import PreflightPolicy
from muster.controller.cluster import Cluster
from muster.controller.slices import in_slices
from muster.coordinator.checkers import CheckerHub, Heard
from muster.preflight import baselines
from muster.preflight.baselines import LEAST_NODES, Key, Sample
from muster.preflight.limits import Best, Tuned, apply_limits
from muster.protocol.checks import CheckReport
from muster.world.checks import ProbeThreshold

# Histories change slowly, but not while a new leader hears one checker after the other.
PAUSE_SECONDS = 60.0
GROWING_SECONDS = 5.0
GROWN = 1.1  # so many times the nodes that were counted last
_NODES_AT_ONCE = 64  # nodes read between two looks at the clock

Reached = dict[tuple[str, str], Best]
"""By probe and transport."""

log = structlog.get_logger()


class NodeKind(NamedTuple):
    """The properties that nodes with comparable figures share; `Key` without the probe."""

    model: str
    library: str
    version: str

    @classmethod
    def from_report(cls, report: CheckReport) -> "NodeKind":
        """The kind of the node whose checker reports."""
        return cls(report.model, report.library, report.version)


class ProbeThresholds:
    """The thresholds of the fleet, which are made anew now and then. `clock` is the hub's, in monotonic seconds."""

    def __init__(
        self,
        hub: CheckerHub,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._wall_clock = wall_clock
        self._history: dict[NodeKind, tuple[ProbeThreshold, ...]] = {}
        self._best: dict[NodeKind, Reached] = {}
        self._nodes = 0  # whose figures are in it
        self._made_at = float("-inf")
        self._changed = asyncio.Event()
        self._subscribers: list[Callable[[], None]] = []
        hub.subscribe_figures(self._changed.set)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the thresholds have been made anew."""
        self._subscribers.append(callback)

    def thresholds_for(self, reports: Iterable[CheckReport], policy: PreflightPolicy) -> tuple[ProbeThreshold, ...]:
        """The thresholds that apply to nodes with these reports. A probe without history, floor and limit has none."""
        kinds = sorted({NodeKind.from_report(report) for report in reports})
        return tuple(threshold for kind in kinds for threshold in self._tuned(kind, policy).thresholds)

    def unused(self, policy: PreflightPolicy) -> str:
        """Which of the policy's limits have no effect, and why; "" if none."""
        return "; ".join(message for kind in sorted(self._best) for message in self._tuned(kind, policy).unused)

    def _tuned(self, kind: NodeKind, policy: PreflightPolicy) -> Tuned:
        history = self._history.get(kind, ())
        covered = {(threshold.probe, threshold.transport) for threshold in history}
        floors = [floor for floor in _floors(kind) if (floor.probe, floor.transport) not in covered]
        best = self._best.get(kind, {})
        return apply_limits(_like(kind), [*history, *floors], best, policy.limits)

    async def run(self) -> None:
        """Make the thresholds anew when figures have changed, until cancelled."""
        while True:
            await self._changed.wait()
            if self.due():
                await self.make()
            await asyncio.sleep(GROWING_SECONDS)

    def due(self) -> bool:
        """Whether it is time to make the thresholds anew."""
        growing = len(self._hub.nodes) > GROWN * self._nodes
        return self._changed.is_set() and (growing or self._clock() - self._made_at >= PAUSE_SECONDS)

    async def make(self) -> None:
        """Make the thresholds from the checkers' reports, in slices, so that other tasks can run meanwhile."""
        self._changed.clear()
        self._made_at, heard = self._clock(), self._hub.heard()
        now, wall = self._clock(), self._wall_clock()
        self._history, self._best = await in_slices(_history(heard, now, wall), self._clock)
        self._nodes = len(heard)
        for callback in self._subscribers:
            callback()


class LimitsKeeper:
    """Reports limits of the FleetPolicy that have no effect, whenever that changes with figures or policy. `report` is
    called with a reason and a message.
    """

    def __init__(self, thresholds: ProbeThresholds, cluster: Cluster, report: Callable[[str, str], object]) -> None:
        self._thresholds = thresholds
        self._cluster = cluster
        self._report = report
        self._reported = ""
        thresholds.subscribe(self.compare)
        cluster.policies.store.subscribe(lambda _old, _new: self.compare())

    def compare(self) -> None:
        """Report the limits that have no effect now, if they are not those reported last."""
        message = self._thresholds.unused(self._cluster.policy().preflight)
        if message != self._reported:
            self._reported = message
            log.warning("limits of the FleetPolicy", unused=message or "none")
            if message:
                self._report("PreflightLimitUnused", message)


def _history(
    heard: list[Heard], now: float, wall: datetime
) -> Generator[None, None, tuple[dict[NodeKind, tuple[ProbeThreshold, ...]], dict[NodeKind, Reached]]]:
    """Make the thresholds and the best figures of each kind of node from the reports, step by step."""
    best: dict[NodeKind, Reached] = defaultdict(dict)
    by_name: dict[tuple[NodeKind, str, str], tuple[Key, list[Sample], Counter[str]]] = {}
    for number, record in enumerate(heard):
        kind = NodeKind.from_report(record.report)
        reached = best[kind]
        for figure in record.report.figures:
            name = (kind, figure.probe, figure.transport)
            if name not in by_name:
                by_name[name] = Key(figure.probe, kind.model, figure.transport, *kind[1:]), [], Counter()
            key, samples, units = by_name[name]
            at = wall - timedelta(seconds=figure.age_seconds + now - record.at)
            samples.append(Sample(key, record.node, figure.namespace, figure.figure, at))
            units[figure.unit] += 1
            if name[1:] not in reached or figure.figure > reached[name[1:]].figure:
                reached[name[1:]] = Best(figure.figure, figure.unit)
        if number % _NODES_AT_ONCE == 0:
            yield
    by_kind: dict[NodeKind, list[ProbeThreshold]] = defaultdict(list)
    for name in sorted(by_name):
        key, samples, units = by_name[name]
        if len(samples) < LEAST_NODES:
            continue
        yield
        baseline = baselines.baseline(key, samples)
        if baseline is None:
            continue
        floor = baselines.floor(key.probe, key.model, key.transport)
        source = f"the history of {baseline.nodes} nodes, whose middle is {baseline.middle:.4g}"
        threshold = ProbeThreshold(
            probe=key.probe,
            model=key.model,
            transport=key.transport,
            library=key.library,
            version=key.version,
            middle=baseline.middle,
            ratio=baseline.ratio,
            floor=floor.floor if floor else 0.0,
            miss_share=baseline.miss_share,
            unit=floor.unit if floor else max(sorted(units), key=units.__getitem__),
            source=f"{source}; not below {floor.floor:.4g}: {floor.source}" if floor else source,
            healthy=baseline.healthy,
        )
        by_kind[name[0]].append(threshold)
    return {kind: tuple(thresholds) for kind, thresholds in by_kind.items()}, dict(best)


def _floors(kind: NodeKind) -> list[ProbeThreshold]:
    """The thresholds from the published figures of a model, where there is no history yet."""
    floors = {}
    for published in baselines.FLOORS:
        floor = baselines.floor(published.probe, kind.model, published.transport)
        if floor is not None:
            floors[published.probe, floor.transport] = floor
    return [replace(floor, model=kind.model, library=kind.library, version=kind.version) for floor in floors.values()]


def _like(kind: NodeKind) -> ProbeThreshold:
    """A threshold for this kind of node that demands nothing."""
    return ProbeThreshold(model=kind.model, library=kind.library, version=kind.version)
