"""FleetPolicy: what the platform team says about the fleet. None is needed; without one the defaults below hold."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from muster.api.base import NAME_LENGTH, ApiModel, ObjectMeta, checks, rule
from muster.api.maintenance import MaintenancePolicy
from muster.api.nodehealth import RecommendedAction, Severity
from muster.api.preflight import PreflightPolicy
from muster.api.prices import PriceList
from muster.api.repairrequest import RepairAction

MAX_LEVELS = 16
MAX_POOLS = 64
MAX_LIMITS = 1024
MAX_RULES = 32
MAX_CLASSES = 64
SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})


def _short_name(example: str) -> JsonDict:
    """A name that people write in manifests."""
    return rule(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        f"write a short name of lower-case letters, digits and '-', e.g. {example}",
    )


class TopologyLevel(ApiModel):
    """One level of the network's tree."""

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Short name that jobs use, e.g. rack.",
        json_schema_extra=checks(_short_name("rack")),
    )
    label: str = Field(
        min_length=1,
        max_length=317,
        description="Node label whose value names the domain.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a node label, e.g. topology.muster.dev/rack",
            ),
            rule(
                "self != 'kubernetes.io/hostname'",
                "the node itself is the innermost level already: leave kubernetes.io/hostname out",
            ),
        ),
    )


class Topology(ApiModel):
    """The network's tree, outermost level first; the node itself is the implied innermost one."""

    levels: list[TopologyLevel] = Field(
        [
            TopologyLevel(name="block", label="topology.muster.dev/block"),
            TopologyLevel(name="rack", label="topology.muster.dev/rack"),
        ],
        max_length=MAX_LEVELS,
        description="Levels, outermost first. Empty: no topology, every node is as near as any other.",
        json_schema_extra=checks(
            rule(
                "self.all(a, self.exists_one(b, b.name == a.name))",
                "two levels have the same name: give each level a name of its own",
            ),
            rule(
                "self.all(a, self.exists_one(b, b.label == a.label))",
                "two levels have the same label: give each level a label of its own",
            ),
        ),
    )

    @property
    def labels(self) -> list[str]:
        """The levels' labels, outermost first."""
        return [level.label for level in self.levels]


class Binding(StrEnum):
    """Who binds the workers' pods to their nodes."""

    SCHEDULER = "Scheduler"
    DIRECT = "Direct"


class NodePool(ApiModel):
    """Nodes that are treated alike."""

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Short name for people, e.g. h200.",
        json_schema_extra=checks(_short_name("h200")),
    )
    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {},
        max_length=16,
        description="Labels that a node of this pool has. Empty: every node that is in no pool before it.",
    )
    binding: Binding = Field(
        Binding.SCHEDULER,
        description="Scheduler: the cluster's scheduler binds each pod to the node that it is pinned to. Direct: "
        "Muster itself binds the whole gang once every pod exists; for nodes on which nothing but Muster's jobs and "
        "DaemonSets asks for much.",
    )


class NamespaceLimit(ApiModel):
    """How many nodes the jobs of a namespace may hold together."""

    namespace: str = Field(
        min_length=1,
        max_length=63,
        description="The namespace.",
        json_schema_extra=checks(
            rule("!format.dns1123Label().validate(self).hasValue()", "write the name of a namespace")
        ),
    )
    nodes: int = Field(ge=0, le=1_000_000, description="Nodes at most. A job that would go beyond it waits.")


class AcceleratorNodes(StrEnum):
    """Whether jobs that ask for no accelerators may be placed on nodes that have some."""

    NEVER = "Never"
    WHEN_FREE = "WhenFree"


class PlacementPolicy(ApiModel):
    """Which nodes are whose."""

    accelerator_nodes_for_other_jobs: AcceleratorNodes = Field(
        AcceleratorNodes.NEVER,
        description="Jobs with gpusPerNode 0 on nodes with accelerators, which each worker has to itself. Never: "
        "they keep to other nodes. WhenFree: they take such nodes when these are free, other ones rather.",
    )


class Queueing(ApiModel):
    """How jobs wait for nodes: by priority of their PriorityClass, then by age, all or nothing."""

    limits: list[NamespaceLimit] = Field(
        [],
        max_length=MAX_LIMITS,
        description="Limits by namespace, in place of defaultLimit.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["namespace"],
        },
    )
    default_limit: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description=(
            "Nodes that the jobs of a namespace may hold together that is not in limits. Absent: the whole fleet."
        ),
    )
    priority_classes: list[Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]] = Field(
        [],
        max_length=MAX_CLASSES,
        description="PriorityClasses that count in the queue; a job that names another one waits as one that names "
        "none. Empty: all but those of Kubernetes itself, system-node-critical and system-cluster-critical.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    show_jobs_of_other_namespaces: bool = Field(
        False,
        description="Whether a waiting job's status names the jobs and pods of other namespaces that are in its way; "
        "without it they are counted, not named.",
    )
    assembly_timeout_seconds: int = Field(
        300,
        ge=10,
        le=86400,
        description="A gang whose pods do not all exist on their nodes within this time (a quota, a webhook, a node "
        "that never comes) gives its nodes back and waits again, at first for a minute, then longer each time.",
    )

    def limits_of(self, namespaces: Iterable[str]) -> dict[str, int]:
        """The limits of these namespaces, those that have one, in nodes."""
        listed = {limit.namespace: limit.nodes for limit in self.limits}
        found = ((namespace, listed.get(namespace, self.default_limit)) for namespace in set(namespaces))
        return {namespace: limit for namespace, limit in found if limit is not None}

    def counts(self, priority_class: str) -> bool:
        """Whether a PriorityClass counts in the queue."""
        if not self.priority_classes:
            return priority_class not in SYSTEM_CLASSES
        return priority_class in self.priority_classes


_OBSERVED_REASON = checks(
    rule("self.matches('^[A-Z][A-Za-z0-9]*$')", "write the reason of a finding as NodeHealth shows it, e.g. PcieReplay")
)


class Enforcement(StrEnum):
    """What Muster does about a sick node."""

    OBSERVE = "Observe"
    JOBS = "Jobs"
    NODES = "Nodes"


class SourceName(StrEnum):
    """The systems whose word about nodes Muster knows how to read; docs/node-health.md has what of them it reads."""

    AGENT = "agent"
    AKS = "aks"
    AKS_NTH = "aks-nth"
    AUTOPILOT = "autopilot"
    AWS_NTH = "aws-nth"
    BURN_IN = "burn-in"
    CASTAI = "castai"
    CHS = "chs"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    COREWEAVE = "coreweave"
    EKS = "eks"
    FLATCAR = "flatcar"
    GARDENER = "gardener"
    GKE = "gke"
    GPU_OPERATOR = "gpu-operator"
    HYPERPOD = "hyperpod"
    JOBS = "jobs"
    KARPENTER = "karpenter"
    KUBERNETES = "kubernetes"
    KUBEVIRT = "kubevirt"
    MEDIK8S = "medik8s"
    NEBIUS = "nebius"
    NPD = "npd"
    NVSENTINEL = "nvsentinel"
    OPENSHIFT = "openshift"
    SOPERATOR = "soperator"


OBSERVE_WORDS = (
    "True: what it says is judged and told, with what would follow; it excludes no node, moves no job, asks for no "
    "repair, and takes no budget."
)


class HealthSource(ApiModel):
    """Whether one source of evidence is listened to. One that is not listed is."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!self.observeOnly || self.enabled",
                "what is switched off cannot be observed: leave enabled out, or observeOnly",
                at=".observeOnly",
            )
        )
    )

    name: SourceName = Field(description="The source.")
    enabled: bool = Field(True, description="False: what it says counts for nothing.")
    observe_only: bool = Field(False, description=OBSERVE_WORDS)


class ConditionMatch(ApiModel):
    """A condition of a node that means that something is wrong."""

    type: str = Field(
        min_length=1,
        max_length=316,
        description="Type of the condition.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the type of a node's condition, e.g. GpuSick",
            ),
            rule(
                "self != 'MusterHealthy'",
                "this condition is Muster's own, and it would be its own reason: leave it out",
            ),
        ),
    )
    bad_when_false: bool = Field(
        False, description="Bad when its status is False, as with Ready; else when it is True. Unknown is no evidence."
    )
    reason: str = Field("", max_length=128, description="Only with this reason; empty: with any.")


class LabelMatch(ApiModel):
    """A label of a node that means that something is wrong."""

    key: str = Field(
        min_length=1,
        max_length=317,
        description="Key of the label.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a label, e.g. example.org/gpu-health",
            )
        ),
    )
    value: str = Field("", max_length=63, description="Only with this value; empty: with any.")


class TaintMatch(ApiModel):
    """A taint of a node that means that something is wrong."""

    key: str = Field(
        min_length=1,
        max_length=317,
        description="Key of the taint.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a taint, e.g. example.org/repair",
            ),
            rule(
                "!self.startsWith('muster.dev/')",
                "this taint is Muster's own, and it would be its own reason: leave it out",
            ),
        ),
    )
    value: str = Field("", max_length=63, description="Only with this value; empty: with any.")


class HealthRule(ApiModel):
    """What something that others write on nodes means: one condition, label or taint."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "[has(self.condition), has(self.label), has(self.taint)].filter(x, x).size() == 1",
                "a rule looks at one thing: write either condition, label or taint",
            ),
            rule(
                "!self.planned || self.severity == 'Degraded'",
                "what is planned waits for a checkpoint: use severity Degraded, or leave planned out",
                at=".planned",
            ),
            rule(
                "self.severity != 'Info' || self.action == 'None'",
                "severity Info asks for nothing: leave action out, or use Warning",
                at=".action",
            ),
        )
    )

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Short name; it is the source in NodeHealth, as `rule/<name>`.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
                "write a short name of lower-case letters, digits and '-', e.g. burn-in",
            )
        ),
    )
    condition: ConditionMatch | None = Field(None, description="A condition that is bad.")
    label: LabelMatch | None = Field(None, description="A label that is bad.")
    taint: TaintMatch | None = Field(None, description="A taint that is bad.")
    minimum_age_seconds: int = Field(0, ge=0, le=86400, description="It counts only when it has been so for so long.")
    severity: Severity = Field(description="What it weighs.")
    action: RecommendedAction = Field(RecommendedAction.NONE, description="What somebody should do with the machine.")
    planned: bool = Field(False, description="Maintenance, no fault: it does not count as an offence.")
    observe_only: bool = Field(False, description=OBSERVE_WORDS)


class BudgetScope(StrEnum):
    """Of what a budget counts nodes."""

    POOL = "Pool"
    DOMAIN = "Domain"
    CAUSE = "Cause"


class BudgetReason(StrEnum):
    """For which a node is taken out of use."""

    UNCERTAIN_FAULT = "UncertainFault"
    REPAIR_BY_OTHERS = "RepairByOthers"


class DisruptionBudget(ApiModel):
    """A limit of the nodes that Muster takes out of use by itself, in each pool of like nodes.

    A pool is the nodes with the same accelerator and model; nodes without an accelerator are one. What people cordon is
    not counted. Karpenter's NodePools have budgets of the same form.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.per != 'Cause' || size(self.reasons) == 0",
                "a budget per Cause is for faults that are not certain: leave reasons out",
                at=".reasons",
            ),
            rule(
                "self.per != 'Domain' || !has(self.windowSeconds)",
                "a budget per Domain counts the nodes that are out at the same time: leave windowSeconds out",
                at=".windowSeconds",
            ),
            rule(
                "!('RepairByOthers' in self.reasons) || (self.per == 'Pool' && !has(self.windowSeconds) && "
                "size(self.reasons) == 1)",
                "a budget for RepairByOthers counts the nodes of a pool that are left at the same time: "
                "leave per, windowSeconds and other reasons out",
                at=".reasons",
            ),
        )
    )

    nodes: str = Field(
        max_length=6,
        description='A number of nodes ("4"), or a percentage ("10%") that is rounded up. "100%" is no limit.',
        json_schema_extra=checks(
            rule(
                "self.matches('^((100|[1-9]?[0-9])%|0|[1-9][0-9]{0,4})$')",
                'write a number of nodes or a percentage of them, in quotes, e.g. "4" or "10%"',
            ),
            rule(
                "self != '0' && self != '0%'",
                "a budget of no node: to have no node taken out of use, set spec.health.enforcement to Observe",
            ),
        ),
    )
    window_seconds: int | None = Field(
        None,
        ge=10,
        le=86400,
        description="Count the nodes that were taken out within this time; absent: those that are out at the same "
        "time. It is also the breaker's first pause, which doubles. All budgets of the list that have a window have "
        "the same.",
    )
    per: BudgetScope = Field(
        BudgetScope.POOL,
        description="Pool: of all nodes of a pool. Domain: of a pool's nodes in one innermost topology domain. "
        "Cause: of a pool's nodes, for one cause of faults that are not certain: a source, or a reason of the agent.",
    )
    reasons: list[BudgetReason] = Field(
        [],
        max_length=len(BudgetReason),
        description="Empty: for all faults. UncertainFault: for faults that one witness alone reports; what the "
        "other budgets allow beyond it is kept for certain ones. RepairByOthers: for nodes that are left because "
        "another system says that it repairs them.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


DEFAULT_BUDGETS: tuple[DisruptionBudget, ...] = (
    DisruptionBudget(nodes="30%"),
    DisruptionBudget(nodes="24%", reasons=[BudgetReason.UNCERTAIN_FAULT]),
    DisruptionBudget(nodes="18%", per=BudgetScope.CAUSE),
    DisruptionBudget(nodes="10%", window_seconds=600),
    DisruptionBudget(nodes="8%", window_seconds=600, reasons=[BudgetReason.UNCERTAIN_FAULT]),
    DisruptionBudget(nodes="6%", window_seconds=600, per=BudgetScope.CAUSE),
    DisruptionBudget(nodes="25%", per=BudgetScope.DOMAIN),
    DisruptionBudget(nodes="20%", per=BudgetScope.DOMAIN, reasons=[BudgetReason.UNCERTAIN_FAULT]),
    DisruptionBudget(nodes="30%", reasons=[BudgetReason.REPAIR_BY_OTHERS]),
)


class Quarantine(ApiModel):
    """When a machine that keeps failing stays out until somebody releases it or time has passed."""

    incidents: int = Field(3, ge=1, le=32, description="So many incidents in short order put it into quarantine.")
    half_life_seconds: int = Field(
        604800, ge=60, le=31536000, description="Time in which what is remembered against a machine halves."
    )


class RepairPolicy(ApiModel):
    """What is handed over to those who repair machines, by a RepairRequest for each node. Muster itself repairs
    nothing."""

    actions: list[RepairAction] = Field(
        [],
        max_length=len(RepairAction),
        description="Actions that are asked for, once no job is on the node any more. Empty: none.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    max_concurrent: int = Field(
        10, ge=1, le=1000, description="Nodes at most whose repair is asked for or under way at the same time."
    )


_PORT_PATTERN = checks(
    rule(
        "self.matches('^[A-Za-z0-9_.:/*?-]+$')",
        "write the name of a device, port or interface, or a PCI address, with * and ? for any characters and any "
        "one, e.g. mlx5_8 or eth*",
    )
)


class IgnoredPorts(ApiModel):
    """Ports of the network that no training uses, of some nodes: nothing about them counts against a node."""

    names: list[Annotated[str, Field(min_length=1, max_length=100, json_schema_extra=_PORT_PATTERN)]] = Field(
        min_length=1,
        max_length=64,
        description="Devices (`mlx5_8`), ports (`mlx5_8/1`), interfaces or PCI addresses, as the node's evidence "
        "names them. `*` stands for any characters, `?` for any one; a device stands for all of its ports.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {}, max_length=16, description="Labels that the nodes have whose ports these are. Empty: every node."
    )


class HealthPolicy(ApiModel):
    """What counts against a node, and what Muster does about it."""

    enforcement: Enforcement = Field(
        Enforcement.JOBS,
        description="Observe: tell, do nothing. Jobs: Muster's jobs avoid and leave sick nodes. Nodes: the taint "
        "muster.dev/unhealthy:NoSchedule keeps everybody's new pods off them, too. What people cordon by "
        "`kubectl muster cordon` is avoided in any case.",
    )
    node_condition: bool = Field(
        False,
        description="Whether Muster writes the condition MusterHealthy on Nodes, for others to read; it needs the "
        "right of manifests/components/node-condition. Switched off it is taken away.",
    )
    budgets: list[DisruptionBudget] = Field(
        list(DEFAULT_BUDGETS),
        max_length=16,
        description="How many nodes Muster takes out of use by itself. Of the budgets for the same thing the "
        "smallest counts. A list that is given replaces the default as a whole: what it does not name has no limit.",
        json_schema_extra={
            "x-kubernetes-list-type": "atomic",
            **checks(
                rule(
                    "self.all(a, !has(a.windowSeconds) || self.all(b, !has(b.windowSeconds) || a.windowSeconds == "
                    "b.windowSeconds))",
                    "all budgets with windowSeconds need the same one",
                )
            ),
        },
    )
    quarantine: Quarantine = Quarantine()
    repair: RepairPolicy = RepairPolicy()
    sources: list[HealthSource] = Field(
        [],
        max_length=32,
        description="Sources that are switched off or on; all that Muster knows are on.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    observed_reasons: list[Annotated[str, Field(min_length=1, max_length=64, json_schema_extra=_OBSERVED_REASON)]] = (
        Field(
            [],
            max_length=64,
            description=(
                "Reasons of findings, e.g. PcieReplay or Xid79, that are only observed, whichever source they are of."
            ),
            json_schema_extra={"x-kubernetes-list-type": "set"},
        )
    )
    ignored_ports: list[IgnoredPorts] = Field(
        [],
        max_length=32,
        description=(
            "Ports of the network that are left out, e.g. those of storage and management. The agents go on to "
            "report them."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    rules: list[HealthRule] = Field(
        [],
        max_length=MAX_RULES,
        description="What else on a node means that something is wrong with it.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            **checks(
                rule(
                    "self.all(a, !has(a.condition) || self.exists_one(b, has(b.condition) && "
                    "b.condition.type == a.condition.type && b.condition.reason == a.condition.reason && "
                    "b.condition.badWhenFalse == a.condition.badWhenFalse))",
                    "two rules say something about the same condition: keep one of them",
                ),
                rule(
                    "self.all(a, !has(a.label) || self.exists_one(b, has(b.label) && b.label.key == a.label.key && "
                    "b.label.value == a.label.value))",
                    "two rules say something about the same label: keep one of them",
                ),
                rule(
                    "self.all(a, !has(a.taint) || self.exists_one(b, has(b.taint) && b.taint.key == a.taint.key && "
                    "b.taint.value == a.taint.value))",
                    "two rules say something about the same taint: keep one of them",
                ),
            ),
        },
    )


class History(ApiModel):
    """What is kept of jobs that have ended (EndedJob), in Muster's namespace."""

    max_jobs: int = Field(
        10000,
        ge=0,
        le=50000,
        description="So many, a few KB each. Where there is no room, the oldest one of the namespace of which most "
        "are kept goes. 0: nothing is written any more.",
    )
    max_age_days: int = Field(400, ge=1, le=3650, description="For so long after their end.")


class JobLimits(ApiModel):
    """What one job may ask for at most, whatever its own spec says."""

    nodes: int = Field(
        4096, ge=1, le=4096, description="spec.nodes. A job that asks for more is not placed (TooManyNodes)."
    )
    save_timeout_seconds: int = Field(
        3600,
        ge=0,
        le=86400,
        description="spec.checkpoint.saveTimeoutSeconds: so long a job holds up a drain. More counts as this.",
    )
    application_restarts_per_day: int = Field(
        100, ge=0, le=100, description="spec.recovery.applicationRestartsPerDay. More counts as this."
    )
    hardware_restarts_per_day: int = Field(
        100, ge=0, le=100, description="spec.recovery.hardwareRestartsPerDay. More counts as this."
    )


class FleetPolicySpec(ApiModel):
    """What the platform team says about the fleet."""

    topology: Topology = Topology()
    pools: list[NodePool] = Field(
        [],
        max_length=MAX_POOLS,
        description="Pools of nodes; the first whose labels a node has is the node's. A node of no pool is bound by "
        "the scheduler.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    placement: PlacementPolicy = PlacementPolicy()
    queueing: Queueing = Queueing()
    health: HealthPolicy = HealthPolicy()
    maintenance: MaintenancePolicy = MaintenancePolicy()
    preflight: PreflightPolicy = PreflightPolicy()
    history: History = History()
    job_limits: JobLimits = JobLimits()
    prices: PriceList = PriceList()
    accelerator_resource: str = Field(
        "nvidia.com/gpu",
        min_length=3,
        max_length=317,
        description="Extended resource that gpusPerNode counts.",
        json_schema_extra=checks(
            rule(
                "self.contains('/') && !format.qualifiedName().validate(self).hasValue()",
                "write the name of an extended resource with its domain, e.g. nvidia.com/gpu",
            )
        ),
    )


class FleetPolicy(ApiModel):
    """The policy of the fleet; the one named `default` is used."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.metadata.name == 'default'",
                "the fleet has one policy, and it is called default: use this name",
                at=".metadata.name",
            )
        )
    )

    metadata: ObjectMeta
    spec: FleetPolicySpec = FleetPolicySpec()
