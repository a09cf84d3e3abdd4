"""Define what decisions know of pods and nodes: the few fields that matter, flat and frozen, cheap enough for
thousands.

Tests: tests/unit/controller/test_cluster.py, tests/unit/world/test_world.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from muster.protocol.messages import RankReport, Report

# Labels that Muster puts on every worker pod; informers select by the first.
JOB_UID_LABEL = "muster.dev/job-uid"
JOB_NAME_LABEL = "muster.dev/job"
INDEX_LABEL = "muster.dev/index"
INCARNATION_LABEL = "muster.dev/incarnation"
# Where the pod's job saves (muster.checkpoints.location.saves_to): it outlives the job in an ejected pod.
SAVES_TO_ANNOTATION = "muster.dev/saves-to"

# spec.schedulerName of pods that Muster binds itself.
SCHEDULER_NAME = "muster"

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container's state. Exactly one of the three groups is filled: waiting, running, terminated."""

    name: str
    init: bool = False
    running: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    terminated: bool = False
    exit_code: int | None = None
    terminated_reason: str = ""
    terminated_message: str = ""
    image_id: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod that is, or claims to be, a worker of a job."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    owner_uid: str = ""  # uid of the controlling owner
    job_uid: str = ""
    index: int = -1
    incarnation: int = 0
    node: str = ""
    pinned: str = ""  # the only node that it may be bound to, while it is not bound and no gate forbids it
    phase: str = ""
    reason: str = ""  # status.reason, e.g. OutOfnvidia.com/gpu, NodeAffinity, Evicted
    message: str = ""  # status.message of a pod that has ended: a running pod's decides nothing
    pod_ip: str = ""
    host_ip: str = ""
    deleting: bool = False
    created: datetime | None = None
    grace_seconds: int = 0  # of a pod that is being deleted
    scheduler: str = ""  # the scheduler that is to bind it
    gates: tuple[str, ...] = ()  # names of its scheduling gates: it must not be bound while there are any
    requests: Mapping[str, int] = field(default_factory=dict)  # what the scheduler reserves for it
    containers: tuple[ContainerView, ...] = ()
    unschedulable_message: str = ""  # of PodScheduled=False
    device_claim: str = ""  # the name of a ResourceClaim, or of its template, by which it may hold accelerators
    saves_to: str = ""  # where its job saves (`SAVES_TO_ANNOTATION`)

    @property
    def place(self) -> str:
        """Return the node that it is bound to, or the only one that it may be bound to."""
        return self.node or self.pinned

    @property
    def terminal(self) -> bool:
        """Whether the kubelet (or the pod garbage collector) has declared the pod ended."""
        return self.phase in TERMINAL_PHASES

    @property
    def never_began(self) -> bool:
        """Whether the pod was declared ended with none of its containers seen to begin."""
        return self.terminal and not any(container.running or container.terminated for container in self.containers)

    @property
    def failed_before(self) -> bool:
        """Whether an init container had failed when the pod was declared ended, with none of its containers seen to
        begin."""
        inits = [container for container in self.containers if container.init]
        others = [container for container in self.containers if not container.init]
        return (
            self.phase == "Failed"
            and any(container.terminated and container.exit_code for container in inits)
            and not any(container.running or container.terminated for container in others)
        )

    @property
    def containers_dead(self) -> bool:
        """Whether the kubelet reports every container as ended: the proof that no process of it is alive."""
        return self.terminal and all(c.terminated for c in self.containers) and bool(self.containers)


@dataclass(frozen=True, slots=True)
class OccupantView:
    """Any pod that has not ended, with the amounts that it uses on its node."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    node: str
    requests: Mapping[str, int]  # what the scheduler reserves for it, in the units of NodeView.allocatable
    device_claim: str = ""  # the name of a ResourceClaim, or of its template, by which it may hold accelerators

    @property
    def place(self) -> str:
        """Return the node that it takes."""
        return self.node


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


MUSTER_HEALTHY = "MusterHealthy"
"""The condition that Muster itself writes on nodes, and never reads as evidence."""


@dataclass(frozen=True, slots=True)
class ConditionView:
    """One condition of a node.

    Attributes:
        type: e.g. Ready.
        status: True, False or Unknown.
        reason: CamelCase, as its writer chose it.
        message: for people.
        since: lastTransitionTime; None where the condition has none.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


READ_ANNOTATIONS = frozenset(
    {
        "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress",
        "machineconfiguration.openshift.io/desiredDrain",
        "node.machine.sapcloud.io/trigger-deletion-by-mcm",
        "quarantinedNodeUncordonedManually",
    }
)
"""The annotations of nodes that Muster reads; others are not kept."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node."""

    name: str
    uid: str
    resource_version: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = False
    ready_reason: str = ""
    boot_id: str = ""
    # Extended resources, memory (bytes), cpu (thousandths of a core), pods; one that is absent is not accounted for.
    allocatable: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)  # likewise, healthy or not
    conditions: tuple[ConditionView, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)  # of READ_ANNOTATIONS
    deleting: datetime | None = None  # since when the Node, which has finalizers, is to be deleted

    def accelerators(self, resource: str) -> int:
        """Return the number of accelerators of the node, healthy or not.

        Args:
            resource: their extended resource.
        """
        return max(self.capacity.get(resource, 0), self.allocatable.get(resource, 0))


# A launcher's report that is older than this shows too little about now.
FRESH_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class LauncherView(Report):
    """Last report of a worker's launcher, its ages as of now by the coordinator's monotonic clock.

    The silence of its peers does not grow: since the report was sent, it was not measured.
    """

    sequence: int = 0
    heard_age_seconds: float
    attempt_age_seconds: float = 0.0  # since this process first heard from it in this attempt
    talking_age_seconds: float = 0.0  # since its first report, or the first after a silence


@dataclass(frozen=True, kw_only=True)
class RankView(RankReport):
    """State of one rank process that has ended, with its cause.

    Attributes:
        cause: by its last lines as they came: a value of muster.recovery.last_lines.Cause, or the exception before its
            end with code 0; "" = they were not read, or have none.
    """

    cause: str = ""
