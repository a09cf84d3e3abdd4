"""Counts what the accelerators of the fleet do: held, free, reserved, out of use, by hours that outlive this process.

All of it is in one ConfigMap (docs/decisions/0038). It is read when this process begins to lead and written every five
minutes. What was not written is not lost but counts as notObserved with the next leader. Hours that cannot be read,
e.g. of a later version, are never written over.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

import structlog
from prometheus_client import Gauge

from muster.api.fleethours import CONFIG_MAP, KEY, FleetHours, GpuState
from muster.controller.cluster import Cluster
from muster.controller.historyreports import HistoryReports
from muster.controller.slices import Slices
from muster.goodput.fleethours import state_of, with_counted_hours
from muster.kube import paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.errors import ApiError, LeadershipLost, NotFound

SAMPLE_SECONDS = 30.0
WRITE_SECONDS = 300.0
FIELD_MANAGER = "muster-fleet-hours"

log = structlog.get_logger()
_gpus = Gauge("muster_gpus", "Accelerators of the fleet, by their present use.", ["state"])


class FleetHoursKeeper:
    """Counts the fleet's hours while `run` is running. `reserved` returns the names of the nodes that are reserved for
    gangs without all of their nodes. `namespace` is Muster's own. `report` is called with a reason and a message for
    the operators of the cluster.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        reserved: Callable[[], Collection[str]],
        namespace: str,
        report: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._reserved = reserved
        self._path = paths.core("configmaps", namespace=namespace, name=CONFIG_MAP)
        self._namespace = namespace
        self._reports = HistoryReports(namespace, report, clock)
        self._clock = clock
        self._wall_clock = wall_clock
        self._hours: FleetHours | None = None
        self._is_read = False
        self._counted: tuple[float, Counter[GpuState]] | None = None  # when, and what was found
        self._written_at = float("-inf")

    async def run(self) -> None:
        """Count until cancelled.

        Raises:
            LeadershipLost: this process must not write any more.
        """
        while True:
            try:
                if not self._is_read:
                    await self._read()
                await self._add_hours()
            except LeadershipLost:
                raise
            except Exception:
                log.exception("what the fleet's accelerators do was not counted")
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _add_hours(self) -> None:
        """Add the time since the last turn to what each node was found doing then."""
        counts, now = await self._count(), self._clock()
        at, gpus = self._counted or (now, counts)
        lived = timedelta(seconds=now - at)
        self._counted = now, counts
        for state in GpuState:
            _gpus.labels(state).set(counts[state])
        if not self._is_read:
            return
        self._hours = with_counted_hours(
            self._hours, self._wall_clock(), lived, gpus, self._cluster.policy().history.max_age_days
        ).model_copy(update={"gpus": counts.total()})
        if now - self._written_at >= WRITE_SECONDS and self._cluster.policy().history.max_jobs:
            await self._write(self._hours)

    async def _count(self) -> Counter[GpuState]:
        counts, slices, reserved = Counter[GpuState](), Slices(self._clock), self._reserved()
        fleet, resource = self._cluster.fleet, self._cluster.policy().accelerator_resource
        for node in fleet.in_scope():
            gpus = node.accelerators(resource)
            if gpus > 0:
                counts[state_of(fleet, node, reserved)] += gpus
            await slices.pause()
        return counts

    async def _read(self) -> None:
        """Read the hours that were counted before; until that succeeds, nothing is written."""
        try:
            answer = await self._client.get(self._path)
            self._hours = FleetHours.model_validate_json(json.loads(answer)["data"][KEY])
        except NotFound:
            self._hours = None
        except LeadershipLost:
            raise
        except ApiError as error:
            log.warning("the hours of the fleet cannot be read", error=str(error)[:500])
            return
        except (ValueError, KeyError, TypeError) as error:  # it was edited, or is of another version
            self._reports.unreadable(
                CONFIG_MAP,
                str(error)[:300],
                "Muster does not write over it, and counts no hours of the fleet meanwhile. Run the version of Muster "
                "that wrote it, or delete the ConfigMap: the hours are then counted from zero.",
            )
            return
        self._is_read = True
        self._reports.readable(CONFIG_MAP)

    async def _write(self, hours: FleetHours) -> None:
        self._written_at = self._clock()
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": self._namespace},
            "data": {KEY: json.dumps(hours.to_json(), separators=(",", ":"))},
        }
        try:
            await self._client.patch(self._path, body, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": "true"})
        except ApiError as error:
            log.warning("the hours of the fleet not written", error=str(error)[:500])
