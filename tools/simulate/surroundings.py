"""What everything in a life has around it: time, chance, the network, the API server with its objects, and the
storage."""

import asyncio
import itertools
from collections import Counter
from typing import Any

from muster.api.base import API_VERSION
from muster.world.names import pod_name_in
from simulate.apiserver import ApiServer, Key, Object, Where
from simulate.clocks import WallClock
from simulate.journal import Journal
from simulate.loop import SimulatedLoop
from simulate.network import Network
from simulate.storage import Directory
from simulate.streams import Streams

NAMESPACE = "team"


def key_of(name: str) -> Key:
    """Namespace and name of a job: `lab/a` is `a` in the namespace `lab`, and `a` is one in that of most."""
    namespace, _, short = name.rpartition("/")
    return namespace or NAMESPACE, short


class Surroundings:
    """What machines, workers, replicas and checks share; nothing here knows any of them.

    Attributes:
        stream: random numbers, see `Streams`.
        api_is_up: whether the API server answers anybody.
        slow_starts: share of the ranks whose program has to be read over a network first.
        is_large: that this is a part of a large fleet, whose checkpoints have many files: launchers report and look
            more seldom.
        directories: of checkpoints, by uid of the job.
        asked: what the operator's replicas asked the API server, see `Way`.
        defect: what this life has shown first that must not be.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.stream = Streams(seed).stream
        self.loop = SimulatedLoop()
        self.loop.set_exception_handler(self._failed)
        self.agenda = self.loop.agenda
        self._begun = self.loop.time()
        self.wall_clock = WallClock(self.loop.time)
        self.journal = Journal(self.loop.time)
        self.network = Network()
        self.api_is_up = True
        self.slow_starts = 0.0
        self.is_large = False
        self.clock_has_stepped = False
        self.pids = itertools.count(1000)
        self.directories: dict[str, Directory] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        self.defect: BaseException | None = None
        self._pods: dict[str, dict[str, Object]] = {}  # node -> name -> its pods
        self._worker_views: dict[
            tuple[str, str], int
        ] = {}  # (namespace, name) of a pod -> the last attempt that has it
        self.server = ApiServer(self.agenda, WallClock(self.loop.time))
        self.server.listen(self._index_pods)
        self.server.listen(self._index_worker_views)

    @property
    def age_seconds(self) -> float:
        return self.loop.time() - self._begun

    def job(self, name: str) -> Object:
        found = self.server.peek("trainingjobs", *key_of(name))
        assert found is not None, name
        return found

    def pods_on(self, node: str) -> list[Object]:
        return list(self._pods.get(node, {}).values())

    def attempt_of_pod(self, namespace: str, name: str) -> int:
        """The last attempt whose record has this pod; the record itself may be further by now. 0 where none ever had
        it."""
        return self._worker_views.get((namespace, name), 0)

    def health_of(self, node: str) -> Where:
        """Where its NodeHealth is; the first writer about a node creates it."""
        at = Where("nodehealths", "", node, "")
        if self.server.peek(at.resource, at.namespace, at.name) is None:
            self.server.create(at, {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": node}})
        return at

    def fail(self, error: BaseException) -> None:
        """This life has shown a defect."""
        if self.defect is None:
            self.defect = error

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.fail(context.get("exception") or RuntimeError(str(context.get("message"))))

    def _index_pods(self, resource: str, before: Object | None, after: Object | None) -> None:
        if resource != "pods":
            return
        for pod, here in ((before, False), (after, True)):
            node = (pod or {}).get("spec", {}).get("nodeName")
            if pod is not None and node:
                name = pod["metadata"]["name"]
                if here:
                    self._pods.setdefault(node, {})[name] = pod
                elif after is None:
                    self._pods.get(node, {}).pop(name, None)

    def _index_worker_views(self, resource: str, _before: Object | None, after: Object | None) -> None:
        if resource != "gangs" or after is None:
            return
        metadata, spec = after["metadata"], after["spec"]
        for place, member in enumerate(spec.get("members") or ()):
            pod = pod_name_in(metadata["name"], member.get("index", place), member.get("incarnation", 1))
            self._worker_views[metadata["namespace"], pod] = spec["attempt"]
