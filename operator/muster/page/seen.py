"""Keep live copies of four kinds of objects, which the page watches as the operator does.

Tests: tests/unit/page/test_server.py.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from muster.api.fleetpolicy import FleetPolicy, History, TopologyLevel
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.goodput.prices import NO_PRICES, Prices, listed
from muster.kube import informer
from muster.kube.client import Client
from muster.kube.decode import Undecodable, object_key
from muster.world.views import NodeView


class Seen:
    """The live copies. Nothing is served before `synced`."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = informer.training_jobs(client, clock, may_be_absent=True)
        self._nodes = informer.nodes(client, clock)
        self._healths = informer.node_healths(client, clock)
        self._policies = informer.fleet_policies(client, clock)

    @property
    def _all(self) -> tuple[informer.Informer[object], ...]:
        several: tuple[informer.Informer[object], ...] = (
            self._jobs,  # type: ignore[assignment]
            self._nodes,
            self._healths,
            self._policies,
        )
        return several

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the copies up to date inside the context."""
        tasks = [asyncio.create_task(kind_informer.run()) for kind_informer in self._all]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def synced(self) -> bool:
        """Whether all kinds have been listed once."""
        return all(kind_informer.synced.is_set() for kind_informer in self._all)

    @property
    def age_seconds(self) -> float:
        """Return the longest time without an event from a watch; a healthy one has an event each minute."""
        return max(kind_informer.last_contact_age_seconds() for kind_informer in self._all)

    @property
    def is_without_jobs(self) -> bool:
        """Whether the cluster has no definition of TrainingJobs."""
        return self._jobs.is_absent

    def namespaces(self) -> set[str]:
        """Return the namespaces that have jobs."""
        return {object_key(job)[0] for job in self._jobs.store.values()}

    def jobs(self, namespaces: frozenset[str] | None) -> list[TrainingJob | Undecodable]:
        """Return the jobs of these namespaces; None: of all."""
        jobs = self._jobs.store.values()
        return jobs if namespaces is None else [job for job in jobs if object_key(job)[0] in namespaces]

    def job(self, namespace: str, name: str) -> TrainingJob | Undecodable | None:
        """Return one job; None: there is none."""
        return self._jobs.store.get((namespace, name))

    def nodes(self) -> list[NodeView]:
        """Return all nodes."""
        return self._nodes.store.values()

    def healths(self) -> list[NodeHealth]:
        """Return the health of nodes, as far as it can be read."""
        return [health for health in self._healths.store.values() if isinstance(health, NodeHealth)]

    def prices(self) -> Prices:
        """Return the policy's prices of a GPU-hour."""
        policy = self._policies.store.get(("", "default"))
        return listed(policy.spec.prices) if isinstance(policy, FleetPolicy) else NO_PRICES

    def history(self) -> History | None:
        """Return how many accounts of ended jobs are kept, and for how long; None: the policy cannot be read."""
        policy = self._policies.store.get(("", "default"))
        if policy is None:
            return History()
        return policy.spec.history if isinstance(policy, FleetPolicy) else None

    def levels(self) -> list[TopologyLevel]:
        """Return the network's levels, by the policy in force."""
        policy = self._policies.store.get(("", "default"))
        spec = policy.spec if isinstance(policy, FleetPolicy) else FleetPolicy.model_validate(_DEFAULT).spec
        return spec.topology.levels


_DEFAULT = {"metadata": {"name": "default"}, "spec": {}}
