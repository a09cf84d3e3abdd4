"""Prometheus figures of machines that fail again and again, made when Prometheus asks.

Names of nodes are a label nowhere else: 16,384 of them would be as many series. Here only the worst have a row. A fleet
in which more nodes than these fail again has another trouble than one machine.
"""

import heapq
from collections.abc import Callable, Iterable
from datetime import datetime

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric

from muster.api.nodehealth import NodeHealth, Offences
from muster.health.memory import score
from muster.kube.decode import Undecodable, object_key

MAX_NODES = 100
LEAST_SCORE = 1.5
"""Two incidents within one half-life."""

_NAME = "muster_node_offence_score"
_TEXT = "Offence score of a node: 1 for each incident, which fades with time; only the worst nodes from 1.5 on."


class Offenders:
    """The accounts of nodes. Only the event loop's thread may change them; a scrape may read from another one.

    The newest instance is the one that is scraped: a process has one.
    """

    def __init__(self, half_life_seconds: Callable[[], int], wall_clock: Callable[[], datetime]) -> None:
        self._half_life_seconds = half_life_seconds
        self._wall_clock = wall_clock
        self._accounts: dict[str, Offences] = {}
        _collector.offenders = self

    def record_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        """Take in a change of a node's record. An account that cannot be read is not one that is settled."""
        if isinstance(new, NodeHealth):
            self.set_account(new.metadata.name, new.status.offences)
        elif new is None and old is not None:
            self.set_account(object_key(old)[1], None)

    def set_account(self, node: str, account: Offences | None) -> None:
        """Set the account of a node; None removes it."""
        if account is None or account.as_of is None:
            self._accounts.pop(node, None)
        else:
            self._accounts[node] = account

    def worst(self) -> list[tuple[float, str]]:
        """The scores and names of the worst nodes, the worst first."""
        now, half_life = self._wall_clock(), self._half_life_seconds()
        scores = ((float(score(account, now, half_life)), node) for node, account in self._accounts.copy().items())
        return heapq.nlargest(MAX_NODES, (entry for entry in scores if entry[0] >= LEAST_SCORE))


class _Collector:
    """The entry in Prometheus's registry that reads the newest Offenders."""

    offenders: Offenders | None = None

    def describe(self) -> Iterable[Metric]:
        """The metrics that there can be, without rows."""
        yield GaugeMetricFamily(_NAME, _TEXT, labels=["node"])

    def collect(self) -> Iterable[Metric]:
        """The metrics with their present rows."""
        family = GaugeMetricFamily(_NAME, _TEXT, labels=["node"])
        for value, node in self.offenders.worst() if self.offenders is not None else ():
            family.add_metric([node], value)
        yield family


_collector = _Collector()
REGISTRY.register(_collector)
