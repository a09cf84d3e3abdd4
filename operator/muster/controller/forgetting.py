"""Deletes the records of machines that are gone, when nothing in them could matter any more: a few at a time, and
guarded.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

from collections.abc import Callable
from datetime import datetime
from itertools import islice

import structlog

from muster.api.nodehealth import NodeHealth
from muster.controller.cluster import Cluster
from muster.health.forget import GONE_SECONDS, may_be_forgotten
from muster.health.sources import Rules
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.decode import Undecodable, object_key
from muster.kube.errors import ApiError, LeadershipLost
from muster.world.views import NodeView

LOOKED_AT = 64
DELETED = 8
PERIOD_SECONDS = 30.0

log = structlog.get_logger()


class Forgetting:
    """Goes through the records whose node does not exist, some at each turn, and deletes those that are old enough.

    This process counts since when a node is gone: a new leader begins anew, and forgets later.
    """

    def __init__(self, client: Client, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._gone: dict[str, float] = {}  # since when, those looked at last at the end

    def node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        """Take in a change of a node."""
        if old is None or new is None:
            self.note((new or old).name)  # type: ignore[union-attr] # one of them is there

    def record_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        """Take in a change of a node's record."""
        value = new or old
        assert value is not None
        if old is None or new is None:
            self.note(object_key(value)[1])

    def note(self, name: str) -> None:
        """Take in that the node or the record of this name has come or is gone."""
        record = self._cluster.healths.store.get(("", name))
        if record is None or name in self._cluster.fleet.nodes:
            self._gone.pop(name, None)
        elif name not in self._gone:
            self._gone[name] = self._clock()

    async def forget_some(self, rules: Rules, now: datetime) -> None:
        """Look at some of the records, and delete those that may be forgotten."""
        deleted = 0
        if self._cluster.policy_unknown:  # how long an account lasts the policy says
            return
        for name in list(islice(self._gone, LOOKED_AT)):
            if deleted >= DELETED:
                return
            since = self._gone.pop(name, None)
            if since is None:
                continue
            self._gone[name] = since
            if await self._forgotten(name, rules, now):
                deleted += 1

    async def _forgotten(self, name: str, rules: Rules, now: datetime) -> bool:
        health = self._cluster.healths.store.get(("", name))
        if health is None or isinstance(health, Undecodable) or name in self._cluster.fleet.nodes:
            return False  # what cannot be read may hold a cordon
        if self._clock() - self._gone[name] < GONE_SECONDS:
            return False
        if not may_be_forgotten(health, rules.quarantine.half_life_seconds, rules.longest_window_seconds, now):
            return False
        seen = {"uid": health.metadata.uid, "resourceVersion": health.metadata.resource_version}
        try:
            await self._client.delete(paths.muster("nodehealths", name=name), {"preconditions": seen})
        except LeadershipLost:
            raise
        except ApiError as error:  # it was written to, or is gone: the next round sees
            log.info("health record kept", node=name, error=str(error))
            return False
        log.info("health record of a machine that is gone deleted", node=name)
        return True
