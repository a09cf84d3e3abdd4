"""Which worker of which job calls, and what its launcher is to do.

Tests: tests/unit/controller/test_operator.py.
"""

from collections.abc import Callable, Collection

from muster.api.gang import Gang
from muster.api.trainingjob import TrainingJob
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.coordinator.auth import Caller
from muster.coordinator.hub import MAX_LAUNCHERS, Hub, Membership
from muster.coordinator.server import CoordinatorServer
from muster.kube.decode import Undecodable
from muster.lifecycle.directive import directive_for
from muster.protocol.messages import RUN, Directive, Report
from muster.serve import plain_address
from muster.world.views import FRESH_SECONDS, PodView

_Basis = tuple[object, ...]
"""What the directive of a worker that trains is made of: versions of objects and numbers."""


class Workers:
    """The workers' pods as the coordinator sees them.

    Args:
        cluster: has their pods.
        hub: what their launchers report.
        bus: where jobs are named of which a launcher has news.
        least_launchers: returns how many launchers are to be expected at least, whatever the hub has heard.
    """

    def __init__(self, cluster: Cluster, hub: Hub, bus: Bus, least_launchers: Callable[[], int] = lambda: 0) -> None:
        self._cluster = cluster
        self._hub = hub
        self._bus = bus
        self._least_launchers = least_launchers
        self._running: dict[str, tuple[_Basis, Directive]] = {}  # by pod uid: the directive of one that trains
        hub.subscribe(self._heard)

    def directive_for(self, caller: Caller) -> Directive | None:
        """What the caller's launcher is to do; None for a pod of no job, or where an object cannot be read.

        Most reports change nothing, and one that trains is given the object that it was given before.
        """
        objects = self._job_of(caller)
        if objects is None:
            return None
        pod, job, gang = objects
        launchers = max(self._hub.expected_launchers(), self._least_launchers())
        basis = (pod.resource_version, _version(job), _version(gang), launchers, self._hub.addresses_version)
        last_basis, last = self._running.get(pod.uid, (None, None))
        if basis == last_basis:
            return last
        directive = self._make_directive(pod, job, gang, launchers)
        if directive.kind == RUN:  # the others also depend on the time and on other jobs
            if len(self._running) >= MAX_LAUNCHERS:
                self._running.clear()
            self._running[pod.uid] = basis, directive
        return directive

    def _make_directive(self, pod: PodView, job: TrainingJob | None, gang: Gang | None, launchers: int) -> Directive:

        def launcher_of(index: int) -> Report | None:
            return self._hub.last(gang.spec.members[index].pod_uid) if gang else None

        def heard_lately(index: int) -> Report | None:
            uid = self._cluster.uid_of(gang, gang.spec.members[index]) if gang else ""
            return self._hub.last(uid, FRESH_SECONDS)

        other = self._cluster.other_job(job) if job is not None else None
        return directive_for(
            job=job,
            gang=gang,
            pod=pod.name,
            pod_uid=pod.uid,
            launcher_of=launcher_of,
            launcher_count=launchers,
            heard_lately=heard_lately,
            other=other,
        )

    def is_worker(self, caller: Caller) -> bool:
        """Whether the caller is a pod of a job, and the job can be read."""
        return self._job_of(caller) is not None

    def addresses_of(self, caller: Caller) -> Collection[str]:
        """The addresses of a present worker's pod and of its node, in whose name a cluster may masquerade pods."""
        pod = self._pod(caller)
        if pod is None or self._cluster.membership(caller) is not Membership.MEMBER:
            return ()
        return {plain_address(address) for address in (pod.pod_ip, pod.host_ip) if address}

    def _pod(self, caller: Caller) -> PodView | None:
        return self._cluster.pods.store.get((caller.namespace, caller.pod_name))

    def _job_of(self, caller: Caller) -> tuple[PodView, TrainingJob | None, Gang | None] | None:
        """The pod that calls, its job and its record; None for a pod of no job, or where an object cannot be read."""
        pod = self._pod(caller)
        if pod is None or pod.uid != caller.pod_uid or pod.owner_uid != pod.job_uid:
            return None
        job, gang = self._cluster.job_of(pod), self._cluster.gang_of(pod.job_uid)
        # A job or a record that cannot be read is not a job or a record that is gone: the launcher goes on as it is.
        if isinstance(job, Undecodable):
            return None
        if isinstance(gang, Undecodable):
            if job is not None and self._cluster.unreadable_record_of(job) is not None:
                return None
            gang = None  # the job has ended or is gone, and that is enough to know
        return pod, job, gang

    def _heard(self, caller: Caller, _: Report) -> None:
        pod = self._pod(caller)
        job = self._cluster.job_of(pod) if pod else None
        if isinstance(job, TrainingJob):
            self._bus.job_changed.publish((job.metadata.namespace, job.metadata.name))


def _version(obj: TrainingJob | Gang | None) -> str | None:
    return obj.metadata.resource_version if obj is not None else None


def notify_launchers(cluster: Cluster, server: CoordinatorServer, job: TrainingJob) -> None:
    """Answer the launchers of a job whose directives may have changed."""
    server.notify([pod.uid for pod in cluster.pods_of(job.metadata.namespace, job.metadata.uid)])
