"""FleetPolicy: what the platform team says about the fleet. Without one, no job starts, and the defaults below hold.

Tests: tests/unit/controller/test_policy.py.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.config import JsonDict

from muster.api.base import NAME_LENGTH, ApiModel, ObjectMeta, checks, rule
from muster.api.gang import MAX_PREEMPTIONS
from muster.api.labels import LabelSelector
from muster.api.maintenance import MaintenancePolicy
from muster.api.nodehealth import RecommendedAction, Severity
from muster.api.preflight import PreflightPolicy
from muster.api.prices import PriceList
from muster.api.repairrequest import RepairAction

MAX_LEVELS = 16
MAX_POOLS = 64
MAX_LIMITS = 1024
MAX_BUDGETS = 16
MAX_RULES = 32
MAX_CLASSES = 64
SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})


_NAMESPACE = checks(rule("!format.dns1123Label().validate(self).hasValue()", "write the name of a namespace"))


def _short_name(example: str) -> JsonDict:
    """A name that people write in manifests."""
    return rule(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        f"write a short name of lower-case letters, digits and '-', e.g. {example}",
    )


class Scope(ApiModel):
    """Scope sets which nodes are Muster's. All others are left alone."""

    node_selector: LabelSelector | None = Field(
        None,
        description="nodeSelector selects the nodes that Muster uses, judges and tests, by the labels of the Nodes. "
        "On another node Muster creates no pod, orders no test, writes no taint, condition or NodeHealth and requests "
        "no repair. A gang that has workers there keeps them until they end; new ones come to selected nodes. Absent: "
        "all nodes are selected.",
    )


class TopologyLevel(ApiModel):
    """TopologyLevel is one level of the cluster's network tree, such as rack.

    Nodes with the same value of its label form one domain.
    """

    name: str = Field(
        min_length=1,
        max_length=63,
        description="name is the short name by which TrainingJobs select this level in spec.placement, e.g. rack.",
        json_schema_extra=checks(_short_name("rack")),
    )
    label: str = Field(
        min_length=1,
        max_length=317,
        description="label is the key of a node label; nodes with the same value are in the same domain of this "
        "level. A node without the label is in no domain of the level.",
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
    """Topology describes the cluster's network as a tree of node labels, from the outermost level to the innermost."""

    levels: list[TopologyLevel] = Field(
        [
            TopologyLevel(name="block", label="topology.muster.dev/block"),
            TopologyLevel(name="rack", label="topology.muster.dev/rack"),
        ],
        max_length=MAX_LEVELS,
        description="levels lists the levels from the outermost to the innermost; the node itself is the implied last "
        "level. Empty: no topology is known, and all nodes count as equally near.",
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
        """The node labels of the levels, outermost first."""
        return [level.label for level in self.levels]


class Binding(StrEnum):
    """Binding says what binds the worker pods of a gang to their nodes: the cluster's scheduler, or Muster itself."""

    SCHEDULER = "Scheduler"
    DIRECT = "Direct"


class NamespaceLimit(ApiModel):
    """NamespaceLimit limits how many nodes the jobs of one namespace may hold together."""

    namespace: str = Field(
        min_length=1,
        max_length=63,
        description="namespace is the name of the namespace whose jobs are limited.",
        json_schema_extra=_NAMESPACE,
    )
    nodes: int = Field(
        ge=0,
        le=1_000_000,
        description="nodes is how many nodes the jobs of the namespace may hold together. A job that would exceed the "
        "limit waits with the reason NamespaceLimit. 0: every job of the namespace waits.",
    )


class AcceleratorNodes(StrEnum):
    """AcceleratorNodes says whether jobs without accelerators may be placed on nodes that have accelerators."""

    NEVER = "Never"
    WHEN_FREE = "WhenFree"


class PlacementPolicy(ApiModel):
    """PlacementPolicy restricts which kinds of nodes jobs are placed on."""

    accelerator_nodes_for_other_jobs: AcceleratorNodes = Field(
        AcceleratorNodes.NEVER,
        description="acceleratorNodesForOtherJobs says whether jobs with gpusPerNode 0 may use nodes with "
        "accelerators, which then stay idle. Never: such jobs are placed only on nodes without accelerators. "
        "WhenFree: such jobs may use free accelerator nodes, and prefer other nodes.",
    )


class PreemptingClass(ApiModel):
    """PreemptingClass is a PriorityClass whose waiting jobs may take the nodes of running jobs of lower priority."""

    name: str = Field(
        min_length=1,
        max_length=NAME_LENGTH,
        description="name is the name of the PriorityClass. A class with preemptionPolicy Never preempts no job.",
    )
    namespaces: list[Annotated[str, Field(min_length=1, max_length=63, json_schema_extra=_NAMESPACE)]] = Field(
        min_length=1,
        max_length=64,
        description="namespaces are the names of the namespaces whose jobs preempt by this class. For jobs of other "
        "namespaces the class only orders the queue.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class PriorityPreemption(ApiModel):
    """PriorityPreemption sets which waiting jobs may take the nodes of running jobs of lower priority.

    Those jobs are asked to save first, and wait in the queue again.
    """

    priority_classes: list[PreemptingClass] = Field(
        [],
        max_length=MAX_CLASSES,
        description="priorityClasses lists the PriorityClasses whose jobs may preempt. Empty: priority preempts no "
        "job.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    min_run_seconds: int = Field(
        600,
        ge=0,
        le=604800,
        description="minRunSeconds is for how long a job has its nodes before it may be preempted, each time that it "
        "gets nodes.",
    )
    preemptions_per_day: int = Field(
        3,
        ge=1,
        le=MAX_PREEMPTIONS,
        description="preemptionsPerDay is how many times within 24 hours one job may be asked to leave. Then it keeps "
        "its nodes.",
    )


class Queueing(ApiModel):
    """Queueing sets how jobs wait for nodes.

    A job gets all its nodes at once or none; waiting jobs are ordered by PriorityClass, then by age.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.preemption.priorityClasses.all(c, self.priorityClasses.size() == 0 "
                "? !(c.name in ['system-node-critical', 'system-cluster-critical']) : c.name in self.priorityClasses)",
                "a class that preempts has to count in the queue: add it to spec.queueing.priorityClasses, too, or "
                "take it out of preemption",
                at=".preemption.priorityClasses",
            )
        )
    )

    namespace_selector: LabelSelector | None = Field(
        None,
        description="namespaceSelector selects the namespaces whose jobs may start, by the labels of the Namespaces. "
        "A new job in another namespace is refused; one that is there waits with the reason NotEnabled. A gang that "
        "has nodes keeps them and is repaired. Absent: all namespaces are selected.",
    )
    limits: list[NamespaceLimit] = Field(
        [],
        max_length=MAX_LIMITS,
        description="limits sets how many nodes the jobs of single namespaces may hold together. A namespace that is "
        "not listed has defaultLimit.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["namespace"],
        },
    )
    default_limit: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="defaultLimit is how many nodes the jobs of a namespace may hold together if limits does not list "
        "the namespace. Absent: such a namespace has no limit. 0: every job of such a namespace waits.",
    )
    priority_classes: list[Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]] = Field(
        [],
        max_length=MAX_CLASSES,
        description="priorityClasses lists the PriorityClasses that count in the queue; a job with another class "
        "waits as if it had none. Empty: all classes count, except system-node-critical and system-cluster-critical.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    preemption: PriorityPreemption = PriorityPreemption()
    show_jobs_of_other_namespaces: bool = Field(
        False,
        description="showJobsOfOtherNamespaces lets a waiting job's status name the jobs and pods of other namespaces "
        "that hold nodes it could use. False: the status only counts them.",
    )
    assembly_timeout_seconds: int = Field(
        300,
        ge=10,
        le=86400,
        description="assemblyTimeoutSeconds is how long a gang may hold nodes until all its pods exist there. Then "
        "the gang releases its nodes and waits in the queue, first for one minute and longer each time. Typical "
        "causes are a quota, a webhook, or a node that does not answer. A gang for some of whose workers no node is "
        "free releases the others after that time only if other jobs wait for nodes.",
    )

    def limits_of(self, namespaces: Iterable[str]) -> dict[str, int]:
        """The limits in nodes of those of these namespaces that have one."""
        listed = {limit.namespace: limit.nodes for limit in self.limits}
        limits = ((namespace, listed.get(namespace, self.default_limit)) for namespace in set(namespaces))
        return {namespace: limit for namespace, limit in limits if limit is not None}

    def counts(self, priority_class: str) -> bool:
        """Whether a PriorityClass counts in the queue."""
        if not self.priority_classes:
            return priority_class not in SYSTEM_CLASSES
        return priority_class in self.priority_classes

    def may_preempt(self, priority_class: str, namespace: str) -> bool:
        """Whether jobs of a namespace preempt others by a PriorityClass."""
        listed = (entry for entry in self.preemption.priority_classes if entry.name == priority_class)
        return self.counts(priority_class) and any(namespace in entry.namespaces for entry in listed)


_OBSERVED_REASON = checks(
    rule("self.matches('^[A-Z][A-Za-z0-9]*$')", "write the reason of a finding as NodeHealth shows it, e.g. PcieReplay")
)


class Enforcement(StrEnum):
    """Enforcement says what Muster does about a node that it takes out of use."""

    OBSERVE = "Observe"
    JOBS = "Jobs"
    NODES = "Nodes"


class SourceName(StrEnum):
    """SourceName is the name of a source of evidence about nodes.

    docs/node-health.md lists what Muster reads from each.
    """

    ACK = "ack"
    AGENT = "agent"
    AKS = "aks"
    AKS_NTH = "aks-nth"
    AMD_GPU_OPERATOR = "amd-gpu-operator"
    AUTOPILOT = "autopilot"
    AWS_NTH = "aws-nth"
    BURN_IN = "burn-in"
    CASTAI = "castai"
    CHS = "chs"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    COREWEAVE = "coreweave"
    CRUSOE = "crusoe"
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
    NODEOPS = "nodeops"
    NPD = "npd"
    NVSENTINEL = "nvsentinel"
    OKE = "oke"
    OPENSHIFT = "openshift"
    SOPERATOR = "soperator"


OBSERVE_WORDS = (
    "observeOnly shows the findings without effect: no node is taken out of use, no job moves, and no repair is "
    "requested. NodeHealth and Events say what would follow."
)


class HealthSource(ApiModel):
    """HealthSource sets whether the evidence of one source has an effect. A source without an entry is enabled."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!self.observeOnly || self.enabled",
                "a source that is not enabled cannot be observed: leave enabled out, or observeOnly",
                at=".observeOnly",
            )
        )
    )

    name: SourceName = Field(
        description="name is the source that this entry is about, by its name in docs/node-health.md."
    )
    enabled: bool = Field(
        True,
        description="enabled says whether Muster reads this source. False: nothing that the source reports counts.",
    )
    observe_only: bool = Field(False, description=OBSERVE_WORDS)


class ConditionMatch(ApiModel):
    """ConditionMatch selects a condition of a Node that means that something is wrong with the node."""

    type: str = Field(
        min_length=1,
        max_length=316,
        description="type is the type of the Node's condition, e.g. GpuBad.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the type of a node's condition, e.g. GpuSick",
            ),
            rule(
                "self != 'MusterHealthy'",
                "Muster itself writes MusterHealthy, which would be its own evidence: write another condition",
            ),
        ),
    )
    bad_when_false: bool = Field(
        False,
        description="badWhenFalse makes the status False the bad one, as with Ready; otherwise the condition is bad "
        "when its status is True. The status Unknown never counts.",
    )
    reason: str = Field(
        "",
        max_length=128,
        description="reason is the reason that the condition has to have. Empty: any reason matches.",
    )


class LabelMatch(ApiModel):
    """LabelMatch selects a label of a Node that means that something is wrong with the node."""

    key: str = Field(
        min_length=1,
        max_length=317,
        description="key is the key of the node label, e.g. example.org/gpu-health.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a label, e.g. example.org/gpu-health",
            )
        ),
    )
    value: str = Field(
        "", max_length=63, description="value is the value that the label has to have. Empty: any value matches."
    )


class TaintMatch(ApiModel):
    """TaintMatch selects a taint of a Node that means that something is wrong with the node."""

    key: str = Field(
        min_length=1,
        max_length=317,
        description="key is the key of the node taint, e.g. example.org/repair.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a taint, e.g. example.org/repair",
            ),
            rule(
                "!self.startsWith('muster.dev/')",
                "Muster itself writes taints of muster.dev, which would be their own evidence: write another taint",
            ),
        ),
    )
    value: str = Field(
        "", max_length=63, description="value is the value that the taint has to have. Empty: any value matches."
    )


class HealthRule(ApiModel):
    """HealthRule says what a mark of another system on a Node means.

    A rule matches one condition, one label or one taint.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "[has(self.condition), has(self.label), has(self.taint)].filter(x, x).size() == 1",
                "a rule matches exactly one mark: write either condition, label or taint",
            ),
            rule(
                "!self.planned || self.severity == 'Degraded'",
                "jobs leave planned maintenance after a checkpoint: use severity Degraded, or leave planned out",
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
        description="name is the short name of the rule. NodeHealth shows findings of the rule with the source "
        "rule/<name>.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
                "write a short name of lower-case letters, digits and '-', e.g. burn-in",
            )
        ),
    )
    condition: ConditionMatch | None = Field(
        None,
        description="condition selects the Node condition that the rule is about. A rule has exactly one of "
        "condition, label and taint.",
    )
    label: LabelMatch | None = Field(
        None,
        description="label selects the Node label that the rule is about. A rule has exactly one of condition, label "
        "and taint.",
    )
    taint: TaintMatch | None = Field(
        None,
        description="taint selects the Node taint that the rule is about. A rule has exactly one of condition, label "
        "and taint.",
    )
    minimum_age_seconds: int = Field(
        0,
        ge=0,
        le=86400,
        description="minimumAgeSeconds is how long a mark has to stand before the rule's severity applies. Until then "
        "the finding has severity Info. 0: the severity applies at once.",
    )
    severity: Severity = Field(
        description="severity is how grave the finding is. Info is only listed, and Warning makes the node Suspect. "
        "Degraded makes jobs leave the node after their next checkpoint; Fatal makes them leave at once."
    )
    action: RecommendedAction = Field(
        RecommendedAction.NONE,
        description="action is the repair of the machine that NodeHealth recommends. None: no repair is recommended.",
    )
    planned: bool = Field(
        False,
        description="planned says that the mark announces maintenance and no fault. True: the finding does not count "
        "towards quarantine, and severity has to be Degraded.",
    )
    observe_only: bool = Field(False, description=OBSERVE_WORDS)


class BudgetScope(StrEnum):
    """BudgetScope is the group of nodes within which a budget counts: a pool, a topology domain, or one cause of
    faults.
    """

    POOL = "Pool"
    DOMAIN = "Domain"
    CAUSE = "Cause"


class BudgetReason(StrEnum):
    """BudgetReason is a kind of reason for which Muster takes a node out of use."""

    UNCERTAIN_FAULT = "UncertainFault"
    REPAIR_BY_OTHERS = "RepairByOthers"


_SHARE = "^((100|[1-9]?[0-9])%|0|[1-9][0-9]{0,4})$"


def _share(nodes: str) -> str:
    """Return a budget that is a number or a percentage; an object that was stored without the rule may have another."""
    if not re.fullmatch(_SHARE, nodes):
        raise ValueError("not a number of nodes or a percentage of them")
    return nodes


class DisruptionBudget(ApiModel):
    """DisruptionBudget limits how many nodes of each pool Muster takes out of use by itself.

    A pool is all nodes with the same accelerator resource and GPU model; nodes without accelerators form one pool. The
    nodes of each entry of spec.pools with health form pools apart. Nodes that people cordon are not counted.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.per != 'Cause' || size(self.reasons) == 0",
                "a budget per Cause counts uncertain faults alone: leave reasons out",
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
                "a budget for RepairByOthers counts the nodes of a pool that others repair at the same time: "
                "leave per, windowSeconds and other reasons out",
                at=".reasons",
            ),
        )
    )

    nodes: Annotated[str, AfterValidator(_share)] = Field(
        max_length=6,
        description='nodes is how many nodes may be out of use: a number, e.g. "4", or a percentage, e.g. "10%", '
        'which is rounded up. At least one node is always allowed, and "100%" is no limit.',
        json_schema_extra=checks(
            rule(
                f"self.matches('{_SHARE}')",
                'write a number of nodes or a percentage of them, in quotes, e.g. "4" or "10%"',
            ),
            rule(
                "self != '0' && self != '0%'",
                "a budget allows at least one node: to have no node taken out of use, set spec.health.enforcement to "
                "Observe, or the enforcement in the pool's health",
            ),
        ),
    )
    window_seconds: int | None = Field(
        None,
        ge=10,
        le=86400,
        description="windowSeconds makes the budget count the nodes taken out within this time; all budgets with a "
        "window need the same value. Absent: the nodes that are out at the same time count. When a budget is "
        "exhausted, one more node is taken out after one window, and each further pause is twice as long.",
    )
    per: BudgetScope = Field(
        BudgetScope.POOL,
        description="per is the group of a pool's nodes that the budget counts. Pool: all of them. Domain: those in "
        "one innermost topology domain. Cause: those with uncertain faults of one cause, which is another system, or "
        "one reason of Muster's own sources.",
    )
    reasons: list[BudgetReason] = Field(
        [],
        max_length=len(BudgetReason),
        description="reasons restricts the budget to nodes that are taken out for these reasons; empty: for any "
        "fault. UncertainFault: a fault that only one source of evidence reports. RepairByOthers: another system says "
        "that it repairs the node.",
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
    """Quarantine sets when a machine that fails repeatedly stays out of use, until a user releases it or enough time
    has passed.
    """

    incidents: int = Field(
        3,
        ge=1,
        le=32,
        description="incidents is how many incidents in short order put a machine into quarantine. Each one adds 1 to "
        "the machine's score, which halves every halfLifeSeconds.",
    )
    half_life_seconds: int = Field(
        604800,
        ge=60,
        le=31536000,
        description="halfLifeSeconds is the time in which the weight of a machine's past incidents halves. A longer "
        "time makes quarantine likelier, and makes it last longer.",
    )


class RepairPolicy(ApiModel):
    """RepairPolicy sets which repairs Muster requests from other systems or people, by one RepairRequest object for
    each node. Muster itself repairs no machine.
    """

    actions: list[RepairAction] = Field(
        [],
        max_length=len(RepairAction),
        description="actions lists the recommended actions for which Muster creates a RepairRequest, once no job is "
        "on the node. Empty: Muster requests no repair.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    max_concurrent: int = Field(
        10,
        ge=1,
        le=1000,
        description="maxConcurrent is how many nodes may have a repair requested or in progress at the same time. "
        "Further nodes wait.",
    )


_PORT_PATTERN = checks(
    rule(
        "self.matches('^[A-Za-z0-9_.:/*?-]+$')",
        "write the name of a device, port or interface, or a PCI address, with * and ? for any characters and any one. "
        "Examples: mlx5_8, eth*",
    )
)


class IgnoredPorts(ApiModel):
    """IgnoredPorts names network ports that no training uses, on all nodes or on some.

    Faults of these ports do not count against a node.
    """

    names: list[Annotated[str, Field(min_length=1, max_length=100, json_schema_extra=_PORT_PATTERN)]] = Field(
        min_length=1,
        max_length=64,
        description="names lists devices (mlx5_8), ports (mlx5_8/1), interfaces or PCI addresses, as the node's "
        "evidence names them. * stands for any characters and ? for any one character. A device stands for all its "
        "ports.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {},
        max_length=16,
        description="nodeSelector lists labels of the nodes that have these ports; all of them have to match. Empty: "
        "the ports are ignored on every node.",
    )


_BUDGETS: JsonDict = {
    "x-kubernetes-list-type": "atomic",
    **checks(
        rule(
            "self.all(a, !has(a.windowSeconds) || self.all(b, !has(b.windowSeconds) || a.windowSeconds == "
            "b.windowSeconds))",
            "all budgets with windowSeconds need the same value: write one number of seconds into all of them",
        )
    ),
}


class HealthPolicy(ApiModel):
    """HealthPolicy sets what counts against a node, and what Muster does about unhealthy nodes."""

    enforcement: Enforcement = Field(
        Enforcement.JOBS,
        description="enforcement is what Muster does about unhealthy nodes. With Observe Muster only reports; with "
        "Jobs its jobs avoid and leave such nodes. Nodes also adds the taint muster.dev/unhealthy:NoSchedule, which "
        "keeps all other new pods away; pods that run there stay. Cordons by kubectl muster cordon, maintenance "
        "windows and marks of nodes that are taken away count in any case.",
    )
    node_condition: bool = Field(
        False,
        description="nodeCondition makes Muster write what it has seen itself as the condition MusterHealthy on Nodes, "
        "for other systems to read. It needs the permissions of manifests/components/node-condition (in the chart: "
        "nodeMarks.enabled; in a release: install-jobs.yaml). False: Muster removes the condition from all Nodes.",
    )
    budgets: list[DisruptionBudget] = Field(
        list(DEFAULT_BUDGETS),
        max_length=MAX_BUDGETS,
        description="budgets limits how many nodes Muster takes out of use by itself; of several budgets for the same "
        "nodes the smallest counts. A list that is given replaces the default as a whole: what it does not name has "
        "no limit.",
        json_schema_extra=_BUDGETS,
    )
    quarantine: Quarantine = Quarantine()
    repair: RepairPolicy = RepairPolicy()
    sources: list[HealthSource] = Field(
        [],
        max_length=32,
        description="sources switches single sources of evidence off, or shows their findings without effect. A "
        "source that is not listed is enabled.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    observed_reasons: list[Annotated[str, Field(min_length=1, max_length=64, json_schema_extra=_OBSERVED_REASON)]] = (
        Field(
            [],
            max_length=64,
            description="observedReasons lists reasons of findings, e.g. PcieReplay or Xid79, that are shown without "
            "effect, whatever source they come from. NodeHealth and Events say what would follow.",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        )
    )
    ignored_ports: list[IgnoredPorts] = Field(
        [],
        max_length=32,
        description="ignoredPorts lists network ports that no training uses, e.g. those of storage and management. "
        "Their faults do not count, but NodeHealth still lists what agents report of them.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    rules: list[HealthRule] = Field(
        [],
        max_length=MAX_RULES,
        description="rules lists conditions, labels and taints on Nodes by which your own systems mark unhealthy "
        "nodes. Rules add to the marks that Muster knows; where two apply, the graver one counts.",
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


class PoolQuarantine(ApiModel):
    """PoolQuarantine sets for the nodes of one pool when a machine that fails repeatedly stays out of use."""

    incidents: int = Field(
        ge=1,
        le=32,
        description="incidents is how many incidents in short order put a machine of this pool into quarantine. How "
        "soon they fade is set by spec.health.quarantine.halfLifeSeconds for the whole fleet.",
    )


class PoolHealth(ApiModel):
    """PoolHealth sets what differs from spec.health on the nodes of one pool. An absent field has the value of
    spec.health.

    Budgets count the nodes of a pool with health apart from all other nodes.
    """

    enforcement: Enforcement | None = Field(
        None,
        description="enforcement is what Muster does about unhealthy nodes of this pool, in place of "
        "spec.health.enforcement. Observe: it only reports. Jobs: its jobs avoid and leave such nodes. Nodes: it also "
        "taints them.",
    )
    budgets: list[DisruptionBudget] | None = Field(
        None,
        max_length=MAX_BUDGETS,
        description="budgets limits how many nodes of this pool Muster takes out of use by itself; nodes with "
        "different accelerators are counted apart, as with spec.health.budgets. The list replaces spec.health.budgets "
        "as a whole: what it does not name has no limit.",
        json_schema_extra=_BUDGETS,
    )
    quarantine: PoolQuarantine | None = Field(
        None,
        description="quarantine sets when a machine of this pool that fails repeatedly stays out of use, in place of "
        "spec.health.quarantine.incidents.",
    )
    observed_reasons: (
        list[Annotated[str, Field(min_length=1, max_length=64, json_schema_extra=_OBSERVED_REASON)]] | None
    ) = Field(
        None,
        max_length=64,
        description="observedReasons lists reasons of findings that are shown without effect on the nodes of this "
        "pool. The list replaces spec.health.observedReasons as a whole: with an empty list all reasons count.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class NodePool(ApiModel):
    """NodePool is a group of nodes that are treated alike."""

    name: str = Field(
        min_length=1,
        max_length=63,
        description="name is the short name of the pool, unique in the list, e.g. h200.",
        json_schema_extra=checks(_short_name("h200")),
    )
    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {},
        max_length=16,
        description="nodeSelector lists labels that a node of this pool has; all of them have to match. Empty: all "
        "nodes match that no earlier pool has.",
    )
    binding: Binding = Field(
        Binding.SCHEDULER,
        description="binding selects what binds worker pods to nodes of this pool. Scheduler: the cluster's scheduler "
        "binds each pod to the node that Muster has chosen. Direct: Muster binds all pods of a gang at once; use it "
        "only for nodes of Muster's jobs and small DaemonSets.",
    )
    health: PoolHealth | None = Field(
        None,
        description="health sets what differs from spec.health on the nodes of this pool. Absent: spec.health "
        "applies, and budgets count the nodes together with those of other pools without health.",
    )

    def has_node(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels has all labels of this pool."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())


class History(ApiModel):
    """History sets how many accounts of ended jobs are kept, and for how long.

    An account is an EndedJob object in Muster's namespace.
    """

    max_jobs: int = Field(
        10000,
        ge=0,
        le=50000,
        description="maxJobs is how many accounts of ended jobs are kept, a few KB each. When the history is full, the "
        "namespace with the most accounts loses its oldest one. With 0 no new account is written, and existing ones "
        "stay until maxAgeDays.",
    )
    max_age_days: int = Field(
        400,
        ge=1,
        le=3650,
        description="maxAgeDays is how many days the account of an ended job is kept after the job has ended. Reports "
        "do not contain older jobs.",
    )


class JobLimits(ApiModel):
    """JobLimits sets the largest values that one job may use, whatever its own spec asks for."""

    nodes: int = Field(
        4096,
        ge=1,
        le=4096,
        description="nodes is the largest spec.nodes of a TrainingJob. A job with more nodes is not placed and is "
        "Stalled with the reason TooManyNodes.",
    )
    save_timeout_seconds: int = Field(
        3600,
        ge=0,
        le=86400,
        description="saveTimeoutSeconds is the largest spec.checkpoint.saveTimeoutSeconds that takes effect: how long "
        "a job may hold up a drain to save. A larger value in a job counts as this value.",
    )
    application_restarts_per_day: int = Field(
        100,
        ge=0,
        le=100,
        description="applicationRestartsPerDay is the largest spec.recovery.applicationRestartsPerDay that takes "
        "effect. A larger value in a job counts as this value.",
    )
    hardware_restarts_per_day: int = Field(
        100,
        ge=0,
        le=100,
        description="hardwareRestartsPerDay is the largest spec.recovery.hardwareRestartsPerDay that takes effect. A "
        "larger value in a job counts as this value.",
    )
    hold_seconds: int = Field(
        14400,
        ge=0,
        le=86400,
        description="holdSeconds is the largest spec.recovery.holdSeconds that takes effect: how long a job with "
        "spec.recovery.onFailure Hold may keep its nodes after a failure. A larger value in a job counts as this "
        "value. 0: no failure is held.",
    )


class FleetPolicySpec(ApiModel):
    """FleetPolicySpec is what the platform team sets for the whole cluster. All fields are optional."""

    scope: Scope = Scope()
    topology: Topology = Topology()
    pools: list[NodePool] = Field(
        [],
        max_length=MAX_POOLS,
        description="pools lists groups of nodes that are treated alike; a node belongs to the first pool whose labels "
        "it has. For nodes in no pool, the cluster's scheduler binds the pods, and spec.health applies as it is.",
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
        description="acceleratorResource is the extended resource that a TrainingJob's gpusPerNode counts, e.g. "
        "nvidia.com/gpu.",
        json_schema_extra=checks(
            rule(
                "self.contains('/') && !format.qualifiedName().validate(self).hasValue()",
                "write the name of an extended resource with its domain, e.g. nvidia.com/gpu",
            )
        ),
    )

    def pool_of(self, labels: Mapping[str, str]) -> NodePool | None:
        """The pool of a node with these labels: the first whose labels the node has; None: the node is in no pool."""
        return next((pool for pool in self.pools if pool.has_node(labels)), None)

    def enforcement_of(self, labels: Mapping[str, str]) -> Enforcement:
        """What Muster does about a node with these labels if it is unhealthy."""
        pool = self.pool_of(labels)
        own = pool.health.enforcement if pool is not None and pool.health is not None else None
        return self.health.enforcement if own is None else own


class FleetPolicy(ApiModel):
    """FleetPolicy holds the platform team's settings for the whole cluster.

    Only an object named default is accepted. Without it no job starts, and the defaults of all fields apply.
    """

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
