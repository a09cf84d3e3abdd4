"""The marks of other systems on Node objects, as a table: what each mark looks like, and its severity.

Only a mark that is there counts. A condition that is absent or Unknown, or a label that is not set, proves neither a
fault nor health. Muster reads these marks and writes none of them. The facts are from the documentation and code of
each system, as of 2026; docs/node-health.md shows the table.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from muster.api.fleetpolicy import (
    DEFAULT_BUDGETS,
    Enforcement,
    FleetPolicySpec,
    HealthPolicy,
    HealthRule,
    PoolHealth,
    Quarantine,
    SourceName,
)
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import SUBJECT_LENGTH, Finding, RecommendedAction, Severity
from muster.api.preflight import Profile
from muster.health.budgets import OF_FLEET, Budgets, budgets_by_entry
from muster.health.equals import FEWER_THAN_EQUALS
from muster.health.facts import NodeFacts
from muster.health.ignored_ports import IgnoredPortFilter
from muster.health.kinds import KINDS, RECOVERY_ACTION, SXID, XID
from muster.health.maintenance import Windows
from muster.health.pools import entry_of
from muster.health.removals import Notice
from muster.health.signs import (
    CHECK_WANTED,
    EFFORT,
    FAILED_BURN_IN,
    FOLLOWED_BY_FAILURES,
    MAINTENANCE,
    REPAIR,
    WEIGHT,
    Sign,
)
from muster.health.silence import AGENT_SILENT
from muster.health.xids import (
    DEGRADED,
    FATAL,
    INFO,
    INSPECT,
    NONE,
    REBOOT,
    RECOVERY_ACTIONS,
    REPLACE,
    RESET,
    WARNING,
    xid,
)
from muster.world.views import ConditionView

UNHEALTHY_TAINT = "muster.dev/unhealthy"
"""The taint that Muster sets. Its only other mark on nodes is a condition, where the policy asks for it."""

REASON_LENGTH = 64
_CAMEL_CASE = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")


@dataclass(frozen=True, slots=True)
class Condition:
    """Node conditions whose type, reason and message match these patterns in full, with one of these statuses."""

    type: str
    statuses: tuple[str, ...] = ("True",)
    reason: str = ".*"
    message: str = ".*"


@dataclass(frozen=True, slots=True)
class Label:
    """Node labels whose key and value match these patterns in full."""

    key: str
    value: str = ".*"


@dataclass(frozen=True, slots=True)
class TaintMark:
    """Node taints of any effect whose key and value match these patterns in full."""

    key: str
    value: str = ".*"


@dataclass(frozen=True, slots=True)
class Annotation:
    """Node annotations with exactly this key, and a value that matches this pattern in full."""

    key: str
    value: str = ".*"


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of the Node object, while finalizers keep it."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Fewer allocatable accelerators than the node has: its device plugin found some of them unhealthy."""


Mark: TypeAlias = Condition | Label | TaintMark | Annotation | Deletion | Shortage


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: what a mark of another system on a Node means.

    Attributes:
        name: unique, `<source>/<mark>`.
        source: the system that writes the mark.
        mark: the pattern of the mark.
        severity: the severity of the finding.
        action: what should be done with the machine.
        minimum_age_seconds: the mark counts once it has been there for this long.
        reason: as NodeHealth shows it; "": the condition's own reason where it is CamelCase, else its type.
        planned: whether the mark is planned maintenance and no fault.
        repairs: whether the mark itself means that its writer is repairing the node.
        xid_in_reason: whether numbers in the condition's reason are XIDs; the gravest one gives the severity.
        action_in_message: whether the message names NVSentinel's actions; the gravest counts, and NONE alone warns.
        removal: what the mark announces about the removal of the machine; None: nothing.
        only_on: the row counts only on nodes with a label whose `key=value` matches this pattern in full; "": on all.
        over: a mark beside this one by which its writer says that it is over, although it stays; None: there is none.
        note: a remark for docs/node-health.md.
    """

    name: str
    source: str
    mark: Mark
    severity: Severity
    action: RecommendedAction
    minimum_age_seconds: int = 0
    reason: str = ""
    planned: bool = False
    repairs: bool = False
    xid_in_reason: bool = False
    action_in_message: bool = False
    removal: Notice | None = None
    only_on: str = ""
    over: Label | Annotation | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class PlannedRow(Row):
    """The row of a mark that users or systems set before they work on a node, or remove it."""

    severity: Severity = DEGRADED
    action: RecommendedAction = NONE
    planned: bool = True
    repairs: bool = True


_NVSENTINEL_CONDITIONS = (
    r"Gpu(Mem|Thermal|ThermalMargin|Pcie|Power|Inforom|Sm|Nvlink|NvswitchFatal|Mcu|Pmu|Driver|Cpuset)Watch"
    r"|SysLogs(XIDError|SXIDError|GPUFallenOff)|NVSwitch(FatalError|Down)|NvswitchErrorFromKmsgWatch|DCGMError"
    r"|SyslogError"
)
_NVSENTINEL_LIGHT = "NVSwitchNonFatalError|GpuNvswitchNonfatalWatch|GpuDcgmUnresponsive|GpuDcgmConnectivityFailure"
# All that the condition says is that the daemon of memory shared between nodes does not run.
_ONLY_IMEX = r"(ErrorCode:DCGM_FR_IMEX_UNHEALTHY [^;]*(;|\Z))+"
_NVSENTINEL_NETWORK = r"(InfiniBand(State|Degradation|CharDevice)|Ethernet\w*|EFA\w*)Check"

# What EKS's agent has in excludedInterfaceNameRegexps by default.
_OTHER_INTERFACE = (
    r'(Interface Name: "(((ip6)?gre|(ip6)?gretap|erspan|tunl|sit|ip6tnl|ib)\d+|ibp\d+s\d+(f\d+)?)"'
    r"((?!Interface Name:).)*)+"
)

_S = SourceName
_BAD = ("False",)
_VM_EVENT = r"(Preempt|Terminate|Reboot|Redeploy) Scheduled ?:"
_VM_EVENT_TIME = r"Scheduled ?: *([A-Z][a-z]{2}, [0-9]{1,2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} (?:GMT|UTC))"
_HYPERPOD_USES = Label(r"sagemaker\.amazonaws\.com/node-health-status", "Schedulable")

ROWS: tuple[Row, ...] = (
    Row(
        "nvsentinel/conditions",
        _S.NVSENTINEL,
        Condition(_NVSENTINEL_CONDITIONS, message=rf"(?!{_ONLY_IMEX}\Z).*"),
        FATAL,
        INSPECT,
        action_in_message=True,
        note="NVSentinel makes conditions of fatal faults only; a message that recommends NONE alone only warns",
    ),
    Row(
        "nvsentinel/imex",
        _S.NVSENTINEL,
        Condition("GpuNvlinkWatch", message=_ONLY_IMEX),
        FATAL,
        INSPECT,
        only_on=r"nvidia\.com/gpu\.clique=.+",
        note="IMEX shares memory between the nodes of an NVLink domain, so that elsewhere its daemon is not missed",
    ),
    Row(
        "nvsentinel/light",
        _S.NVSENTINEL,
        Condition(_NVSENTINEL_LIGHT),
        WARNING,
        INSPECT,
        note="the problem is in DCGM itself, or is reported as not fatal",
    ),
    Row(
        "nvsentinel/network",
        _S.NVSENTINEL,
        Condition(_NVSENTINEL_NETWORK),
        FATAL,
        INSPECT,
        action_in_message=True,
    ),
    PlannedRow("nvsentinel/maintenance", _S.NVSENTINEL, Condition("CSPMaintenance"), reason="CSPMaintenance"),
    Row(
        "nvsentinel/state",
        _S.NVSENTINEL,
        Label(r"dgxc\.nvidia\.com/nvsentinel-state", ".+"),
        DEGRADED,
        NONE,
        reason="NVSentinelRepairs",
        repairs=True,
        over=Annotation("quarantinedNodeUncordonedManually", "True"),
        note="NVSentinel cordons, drains and repairs the node, and mostly removes the label when the node is healthy. "
        "It does not count where the annotation quarantinedNodeUncordonedManually says that a user has taken the node "
        "back",
    ),
    Row(
        "eks/xid",
        _S.EKS,
        Condition("AcceleratedHardwareReady", _BAD, r"NvidiaXID\d+Error"),
        DEGRADED,
        INSPECT,
        xid_in_reason=True,
        note="the XID gives the severity",
    ),
    Row(
        "eks/hardware",
        _S.EKS,
        Condition(
            "AcceleratedHardwareReady",
            _BAD,
            "NvidiaDoubleBitError|NvidiaNVLinkError|NvidiaDeviceCountMismatch|NvidiaFabricError",
        ),
        FATAL,
        REBOOT,
    ),
    Row(
        "eks/other",
        _S.EKS,
        Condition(
            "AcceleratedHardwareReady",
            _BAD,
            r"(?!NvidiaXID\d+Error|NvidiaDoubleBitError|NvidiaNVLinkError|NvidiaDeviceCountMismatch|NvidiaFabricError"
            r"|DCGMError\Z).*",
        ),
        DEGRADED,
        INSPECT,
        note="EKS has these reasons: FabricManagerNotRunning, DCGMDiagnosticFailure and later additions",
    ),
    Row(
        "eks/dcgm",
        _S.EKS,
        Condition("AcceleratedHardwareReady", _BAD, "DCGMError"),
        WARNING,
        INSPECT,
        note="EKS's agent did not reach DCGM, be it at its start only; it never takes this back",
    ),
    Row(
        "eks/other-interface",
        _S.EKS,
        Condition("NetworkingReady", _BAD, "InterfaceNot(Up|Running)", _OTHER_INTERFACE),
        INFO,
        NONE,
        note="an interface of InfiniBand or a tunnel, neither the node's own nor EFA's: nothing may use it. EKS's "
        "agent leaves them out since August 2026",
    ),
    Row(
        "eks/node",
        _S.EKS,
        Condition("(Kernel|Storage|Networking|ContainerRuntime)Ready", _BAD, message=rf"(?!{_OTHER_INTERFACE}\Z).*"),
        DEGRADED,
        REBOOT,
        minimum_age_seconds=60,
    ),
    PlannedRow(
        "ack/expired",
        _S.ACK,
        Condition("InstanceExpired", reason="InstanceToBeTerminated"),
        reason="SpotExpires",
        removal=Notice(final=True),
        note="Alibaba Cloud ends a spot instance",
    ),
    Row(
        "ack/anomaly",
        _S.ACK,
        TaintMark(r"alibabacloud\.com/node-(anomaly|needrepair)"),
        DEGRADED,
        REPLACE,
        reason="NodeAnomaly",
        repairs=True,
        note="Alibaba Cloud sets anomaly on GPU-HPN nodes, which it repairs once their pods have ended. On all others "
        "it sets needrepair: it drains them, then restarts or repairs them",
    ),
    Row(
        "ack/gpu-replace",
        _S.ACK,
        Condition("NvidiaXID(74|79)Error|Nvidia(RemappingRowsFailed|DeviceLost|InfoRomCorrupted|PowerCableErr)"),
        FATAL,
        REPLACE,
        note="Alibaba Cloud replaces the hardware",
    ),
    Row(
        "ack/gpu-restart",
        _S.ACK,
        Condition(
            "NvidiaXID(44|48|61|62|69|95|119|120|140)Error|Nvidia(PendingRetiredPages|RemappingRowsRequireReset)"
        ),
        DEGRADED,
        REBOOT,
        note="Alibaba Cloud restarts the node",
    ),
    Row("aks/gpu-missing", _S.AKS, Condition("GPUMissing"), FATAL, REBOOT),
    Row("aks/nvlink", _S.AKS, Condition("NVLinkStatusInactive"), FATAL, RESET),
    Row("aks/xid", _S.AKS, Condition("XIDErrors?"), DEGRADED, INSPECT, note="the condition does not name the XID"),
    Row("aks/network", _S.AKS, Condition("IBLinkFlapping"), DEGRADED, INSPECT),
    Row("aks/throttling", _S.AKS, Condition("GPUClockThrottling"), WARNING, INSPECT, minimum_age_seconds=600),
    Row(
        "aks/services",
        _S.AKS,
        Condition("UnhealthyNvidiaDevicePlugin|UnhealthyNvidiaDCGMServices|KubeletProblem|ContainerRuntimeProblem"),
        WARNING,
        INSPECT,
        minimum_age_seconds=60,
        note="the fault is in software, not in the GPU",
    ),
    Row("aks/filesystem", _S.AKS, Condition("FilesystemCorruptionProblem"), DEGRADED, REBOOT, minimum_age_seconds=30),
    PlannedRow(
        "aks/maintenance",
        _S.AKS,
        Condition("VMEventScheduled", message=rf"(?!{_VM_EVENT}|Freeze Scheduled ?:).*"),
        reason="VMEventScheduled",
    ),
    PlannedRow(
        "aks/vm-event",
        _S.AKS,
        Condition("VMEventScheduled", message=_VM_EVENT + ".*"),
        reason="VMEventScheduled",
        removal=Notice(final=True, time=_VM_EVENT_TIME),
        note="the machine is removed at the time in the message",
    ),
    Row(
        "aks/freeze",
        _S.AKS,
        Condition("VMEventScheduled", message="Freeze Scheduled ?:.*"),
        INFO,
        NONE,
        planned=True,
        reason="FreezeScheduled",
        note="the machine pauses for a few seconds, and keeps its memory",
    ),
    PlannedRow(
        "aks/preemption",
        _S.AKS,
        Condition("PreemptionScheduled"),
        reason="PreemptionScheduled",
        removal=Notice(final=True, seconds=30, time=_VM_EVENT_TIME),
        note="the machine is removed at the time in the message, else 30 s after the mark",
    ),
    PlannedRow(
        "aks/drain",
        _S.AKS,
        TaintMark(r"remediator\.(kubernetes\.azure|aks\.microsoft)\.com/unschedulable"),
        reason="AksDrains",
        removal=Notice(),
    ),
    *(
        PlannedRow(
            f"aks-nth/{event}",
            _S.AKS_NTH,
            TaintMark(f"aks-node-termination-handler/{event}"),
            reason=f"{event.capitalize()}Scheduled",
            removal=notice,
            note="" if notice.seconds is None else f"the machine is removed {notice.seconds} s after the mark",
        )
        for event, notice in (
            ("preempt", Notice(final=True, seconds=30)),
            ("terminate", Notice(final=True, seconds=300)),
            ("redeploy", Notice(final=True, seconds=600)),
            ("reboot", Notice(final=True, seconds=900)),
            ("freeze", Notice()),
        )
    ),
    PlannedRow(
        "aws-nth/spot",
        _S.AWS_NTH,
        TaintMark("aws-node-termination-handler/spot-itn"),
        reason="SpotInterruption",
        removal=Notice(final=True, seconds=120),
        note="the machine is removed 120 s after the mark",
    ),
    PlannedRow(
        "aws-nth/maintenance",
        _S.AWS_NTH,
        TaintMark("aws-node-termination-handler/scheduled-maintenance"),
        reason="ScheduledMaintenance",
        removal=Notice(final=True, seconds=120),
        note="the machine is removed 120 s after the mark, by the handler's setting nodeTerminationGracePeriod",
    ),
    PlannedRow(
        "aws-nth/reboot",
        _S.AWS_NTH,
        Label("aws-node-termination-handler/action", "UncordonAfterReboot"),
        reason="ScheduledReboot",
        removal=Notice(final=True, seconds=120),
        note="the machine is removed 120 s after the mark, by the handler's setting nodeTerminationGracePeriod",
    ),
    PlannedRow(
        "aws-nth/scale-in",
        _S.AWS_NTH,
        TaintMark("aws-node-termination-handler/asg-lifecycle-termination"),
        reason="ScaleIn",
        removal=Notice(final=True),
        note="the lifecycle hook of the scaling group sets the time; no mark names it",
    ),
    Row(
        "aws-nth/rebalance",
        _S.AWS_NTH,
        TaintMark("aws-node-termination-handler/rebalance-recommendation"),
        WARNING,
        NONE,
        planned=True,
        reason="RebalanceRecommended",
        note="this announces no removal: the instance may stay",
    ),
    PlannedRow(
        "castai/interruption",
        _S.CASTAI,
        Label(r"autoscaling\.cast\.ai/draining", "spot-interruption"),
        reason="SpotInterruption",
        removal=Notice(final=True),
    ),
    PlannedRow(
        "castai/drain", _S.CASTAI, TaintMark(r"autoscaling\.cast\.ai/draining"), reason="CastAiDrains", removal=Notice()
    ),
    PlannedRow(
        "cluster-autoscaler/removal",
        _S.CLUSTER_AUTOSCALER,
        TaintMark("ToBeDeletedByClusterAutoscaler"),
        reason="ScaleDown",
        removal=Notice(),
        note="the autoscaler gives up where pods do not end within its maxPodEvictionTime",
    ),
    PlannedRow(
        "flatcar/reboot",
        _S.FLATCAR,
        Annotation("flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress", "true"),
        reason="FlatcarReboots",
        removal=Notice(final=True),
    ),
    PlannedRow(
        "gardener/deletion",
        _S.GARDENER,
        Annotation("node.machine.sapcloud.io/trigger-deletion-by-mcm", "true"),
        reason="MachineDeletion",
        removal=Notice(final=True),
        note="a user has requested another machine",
    ),
    PlannedRow(
        "gardener/in-place-update",
        _S.GARDENER,
        Label(r"node\.machine\.sapcloud\.io/selected-for-update", "true"),
        reason="InPlaceUpdate",
        removal=Notice(),
        note="the node is drained, updated and used again",
    ),
    PlannedRow(
        "gardener/terminating",
        _S.GARDENER,
        Condition("Terminating", reason="(?!TerminationRequested$).*"),
        reason="MachineTerminating",
        removal=Notice(final=True),
        note="Gardener's machine-controller-manager writes it",
    ),
    Row(
        "gardener/network",
        _S.GARDENER,
        Condition("(Cluster|Host)NetworkProblem"),
        WARNING,
        INSPECT,
        minimum_age_seconds=60,
        note="Gardener's network-problem-detector writes it; the other end may be the cause",
    ),
    PlannedRow(
        "gpu-operator/driver-upgrade",
        _S.GPU_OPERATOR,
        Label(r"nvidia\.com/(gpu|ofed)-driver-upgrade-state", "(?!upgrade-)[a-z-]+-required"),
        reason="DriverUpgrade",
        removal=Notice(),
        note="the label is one of cordon-required to uncordon-required; a node in upgrade-required still waits",
    ),
    PlannedRow(
        "gpu-operator/mig-reboot",
        _S.GPU_OPERATOR,
        Label(r"nvidia\.com/mig\.config\.state", "rebooting"),
        reason="MigReboot",
        removal=Notice(final=True),
        note="the MIG manager reboots the machine to partition its GPUs differently",
    ),
    PlannedRow(
        "karpenter/disrupted",
        _S.KARPENTER,
        TaintMark(r"karpenter\.sh/disrupted"),
        reason="KarpenterDisrupts",
        removal=Notice(),
        note="Karpenter removes the taint where no replacement comes; kubernetes/deletion follows where the removal "
        "is final",
    ),
    PlannedRow(
        "karpenter/disruption",
        _S.KARPENTER,
        TaintMark(r"karpenter\.sh/disruption", "disrupting"),
        reason="KarpenterDisrupts",
        removal=Notice(),
        note="Karpenter before v1 writes it",
    ),
    PlannedRow(
        "kubevirt/drain",
        _S.KUBEVIRT,
        TaintMark(r"kubevirt\.io/drain"),
        reason="KubeVirtDrains",
        removal=Notice(),
        note="KubeVirt's maintenance operator and Harvester set the taint before they drain a node",
    ),
    PlannedRow(
        "medik8s/drain", _S.MEDIK8S, TaintMark(r"medik8s\.io/drain"), reason="NodeMaintenanceDrains", removal=Notice()
    ),
    PlannedRow(
        "medik8s/remediation",
        _S.MEDIK8S,
        TaintMark(r"medik8s\.io/(?:remediation|fence-agents-remediation)"),
        reason="NodeIsRemediated",
        removal=Notice(final=True),
        note="the node is fenced, and reboots or is switched off",
    ),
    PlannedRow(
        "openshift/drain",
        _S.OPENSHIFT,
        Annotation("machineconfiguration.openshift.io/desiredDrain", "drain-.*"),
        reason="MachineConfigDrains",
        removal=Notice(),
    ),
    PlannedRow(
        "openshift/termination",
        _S.OPENSHIFT,
        Condition("Terminating", reason="TerminationRequested"),
        reason="TerminationRequested",
        removal=Notice(final=True),
        note="the node is a spot instance; the cloud sets the time, and no mark names it",
    ),
    PlannedRow(
        "hyperpod/status",
        _S.HYPERPOD,
        Label(r"sagemaker\.amazonaws\.com/node-health-status", "Unschedulable"),
        reason="HyperPodUnschedulable",
        note="SageMaker sets it during deep health checks, too; the labels fault-types and deep-health-check-status "
        "have their results",
    ),
    PlannedRow(
        "hyperpod/check",
        _S.HYPERPOD,
        Label(r"sagemaker\.amazonaws\.com/deep-health-check-status", "InProgress"),
        reason="HyperPodChecks",
    ),
    Row(
        "hyperpod/check-failed",
        _S.HYPERPOD,
        Label(r"sagemaker\.amazonaws\.com/deep-health-check-status", "Failed"),
        DEGRADED,
        INSPECT,
        reason="HyperPodCheckFailed",
        over=_HYPERPOD_USES,
    ),
    Row(
        "hyperpod/repair",
        _S.HYPERPOD,
        Label(r"sagemaker\.amazonaws\.com/node-health-status", "UnschedulablePending(Reboot|Replacement)"),
        DEGRADED,
        NONE,
        reason="HyperPodRepairs",
        repairs=True,
    ),
    PlannedRow(
        "hyperpod/taint",
        _S.HYPERPOD,
        TaintMark(r"sagemaker\.amazonaws\.com/node-health-status", "Unschedulable"),
        reason="HyperPodUnschedulable",
    ),
    Row(
        "hyperpod/faults",
        _S.HYPERPOD,
        Label(r"sagemaker\.amazonaws\.com/fault-types", ".+"),
        DEGRADED,
        INSPECT,
        reason="HyperPodFault",
        over=_HYPERPOD_USES,
        note="this and hyperpod/check-failed do not count where node-health-status is Schedulable: SageMaker uses the "
        "node again",
    ),
    Row(
        "gke/xid",
        _S.GKE,
        Condition("XidCriticalError", reason=r".*\d.*"),
        DEGRADED,
        INSPECT,
        xid_in_reason=True,
        note="GKE's device plugin keeps it until a reboot; the reason lists XIDs, and the gravest counts",
    ),
    PlannedRow(
        "gke/termination",
        _S.GKE,
        TaintMark(r"cloud\.google\.com/impending-node-termination"),
        reason="ImpendingTermination",
        removal=Notice(final=True),
        note="the machine is removed within 60 min, by the grace periods of its pods; no mark names the time",
    ),
    PlannedRow(
        "gke/preemption",
        _S.GKE,
        TaintMark(r"cloud\.google\.com/impending-node-termination"),
        reason="ImpendingPreemption",
        removal=Notice(final=True, seconds=30),
        only_on=r"cloud\.google\.com/(gke-(spot|preemptible)=true|gke-provisioning=(spot|preemptible))",
        note="a spot or preemptible machine is removed 30 s after the mark",
    ),
    PlannedRow(
        "gke/maintenance",
        _S.GKE,
        Label(r"cloud\.google\.com/active-node-maintenance", "ONGOING|passthrough"),
        reason="MaintenanceOngoing",
        removal=Notice(final=True),
        note="GKE stops the workloads there; machines with GPUs have the value passthrough",
    ),
    PlannedRow(
        "gke/bare-metal-maintenance",
        _S.GKE,
        TaintMark(r"baremetal\.cluster\.gke\.io/maintenance"),
        reason="MaintenanceMode",
        removal=Notice(),
        note="Google Distributed Cloud evicts the pods, and gives up after 20 min",
    ),
    PlannedRow(
        "gke/perform-maintenance",
        _S.GKE,
        Label(r"cloud\.google\.com/perform-maintenance", "true"),
        reason="MaintenanceRequested",
        removal=Notice(),
        note="a user lets the maintenance begin now; GKE removes the label as it begins",
    ),
    PlannedRow(
        "gke/maintenance-window",
        _S.GKE,
        TaintMark(r"(cloud\.google\.com/)?maintenance-window-started"),
        reason="MaintenanceWindow",
    ),
    Row(
        "gke/maintenance-scheduled",
        _S.GKE,
        Label(r"cloud\.google\.com/scheduled-maintenance-time", r"\d+"),
        INFO,
        NONE,
        reason="MaintenanceScheduled",
        planned=True,
        note="the value is in epoch seconds; it is information only",
    ),
    Row(
        "gke/prediction",
        _S.GKE,
        Label(r"gke\.(google\.com|io)/recommended-to-run-large-training-workload", "[Ff]alse"),
        WARNING,
        NONE,
        reason="DegradationPredicted",
        note="a CronJob of Google's sets it every 10 min where a GPU will likely degrade within five hours: no fault "
        "has been seen yet",
    ),
    Row(
        "gke/fault",
        _S.GKE,
        Label(r"cloud\.google\.com/fault-behavior", ".+"),
        DEGRADED,
        REPLACE,
        reason="FaultReported",
        repairs=True,
        note="a user has reported the host; GKE evicts the pods and repairs the host",
    ),
    Row(
        "amd-gpu-operator/condition",
        _S.AMD_GPU_OPERATOR,
        Condition("AMDGPUUnhealthy"),
        DEGRADED,
        INSPECT,
        reason="AMDGPUUnhealthy",
        note="a node-problem-detector that queries AMD's metrics exporter writes it; its reason is free text",
    ),
    Row(
        "amd-gpu-operator/gpu",
        _S.AMD_GPU_OPERATOR,
        Label(r"metricsexporter\.amd\.com\.gpu\..+\.state", "unhealthy"),
        DEGRADED,
        INSPECT,
        reason="AMDGPUUnhealthy",
        note="AMD's metrics exporter sets it for each GPU with uncorrectable ECC errors, a fatal error record or a "
        "critical event, and removes it when the GPU is healthy; its device plugin offers that GPU no more",
    ),
    Row(
        "amd-gpu-operator/nic",
        _S.AMD_GPU_OPERATOR,
        Label(r"metricsexporter\.amd\.com\.nic\..+\.state", "unhealthy"),
        WARNING,
        INSPECT,
        reason="AMDNICDown",
        note="AMD's metrics exporter sets it for each interface of a network card that is switched off",
    ),
    Row(
        "amd-gpu-operator/remediation",
        _S.AMD_GPU_OPERATOR,
        TaintMark("amd-gpu-unhealthy"),
        DEGRADED,
        NONE,
        reason="AmdGpuRemediation",
        repairs=True,
        note="AMD's operator drains the pods with GPUs, reboots the machine and tests it; the taint stays where that "
        "fails",
    ),
    Row("nebius/gpu", _S.NEBIUS, Condition("NebiusGPUError"), DEGRADED, REPLACE),
    Row("nebius/disk", _S.NEBIUS, Condition("NebiusBootDiskIOError"), DEGRADED, REPLACE),
    Row(
        "nebius/runtime",
        _S.NEBIUS,
        Condition("NebiusContainerRuntimeError"),
        WARNING,
        INSPECT,
        minimum_age_seconds=60,
        note="the fault is in software, not in the hardware",
    ),
    Row("nebius/suspected", _S.NEBIUS, Condition("HardwareIssuesSuspected"), DEGRADED, INSPECT),
    PlannedRow(
        "nebius/maintenance", _S.NEBIUS, Condition("NebiusMaintenanceScheduled"), reason="NebiusMaintenanceScheduled"
    ),
    PlannedRow(
        "nodeops/operation",
        _S.NODEOPS,
        TaintMark(r"nodeops\.k8s\.preferred\.jp/operating"),
        reason="NodeOperation",
        removal=Notice(),
        note="node-operation-controller drains the node, runs a job there and returns the node",
    ),
    Row(
        "coreweave/state",
        _S.COREWEAVE,
        Label(r"node\.coreweave\.cloud/state", "(?!production$).+"),
        DEGRADED,
        NONE,
        reason="CoreWeaveNotInProduction",
        repairs=True,
    ),
    Row(
        "coreweave/pending",
        _S.COREWEAVE,
        Label(r"node\.coreweave\.cloud/pending-state", ".+"),
        DEGRADED,
        NONE,
        reason="CoreWeavePending",
        repairs=True,
        note="CoreWeave waits until the node is idle",
    ),
    Row(
        "coreweave/phase",
        _S.COREWEAVE,
        Condition("PendingPhaseState"),
        DEGRADED,
        NONE,
        reason="CoreWeavePending",
        repairs=True,
    ),
    PlannedRow(
        "crusoe/remediation",
        _S.CRUSOE,
        TaintMark(r"crusoe\.ai/remediation\.(draining|maintenance)"),
        reason="CrusoeRemediation",
        removal=Notice(),
        note="Crusoe drains the node, resets it, and uses it again",
    ),
    Row(
        "oke/missing",
        _S.OKE,
        Condition("GpuCount|GpuBus", reason=r"\w+HasIssues"),
        FATAL,
        REBOOT,
        note="the node-problem-detector of Oracle's oci-hpc-oke writes it, and those below",
    ),
    Row(
        "oke/hardware",
        _S.OKE,
        Condition("Gpu(Ecc|RowRemap|BadPages|Pcie|FabricMgr|Imex)|NvlinkSpeed|Rocminfo", reason=r"\w+HasIssues"),
        DEGRADED,
        INSPECT,
    ),
    Row(
        "oke/xid",
        _S.OKE,
        Condition("GpuXid", reason="GpuXidHasIssues"),
        DEGRADED,
        INSPECT,
        note="the condition does not name the XID",
    ),
    Row(
        "oke/network",
        _S.OKE,
        Condition("Rdma(Link|LinkFlapping|WpaAuth|VfRoutes|VfCounters)|IpAddress", reason=r"\w+HasIssues"),
        DEGRADED,
        INSPECT,
        minimum_age_seconds=60,
    ),
    Row(
        "oke/settings",
        _S.OKE,
        Condition("DcgmiHealth|RdmaRttcc|CpuProfile", reason=r"\w+HasIssues"),
        WARNING,
        INSPECT,
    ),
    Row("oke/pcie", _S.OKE, Condition("NodeHasPcieErrors", reason="PcieFatal"), DEGRADED, REBOOT),
    Row(
        "oke/check-failed",
        _S.OKE,
        Label(r"oke\.oraclecloud\.com/active-health-checks-(gpu-fryer|rvs|dcgm-diag)", "fail"),
        DEGRADED,
        INSPECT,
        reason="ActiveHealthCheckFailed",
    ),
    Row(
        "oke/check-of-several",
        _S.OKE,
        Label(r"oke\.oraclecloud\.com/active-health-checks-[nr]ccl-tests", "fail"),
        WARNING,
        INSPECT,
        reason="ActiveHealthCheckFailed",
        note="the other nodes of the test have the mark, too, and may be the reason",
    ),
    Row(
        "oke/host",
        _S.OKE,
        Label(r"oci\.oraclecloud\.com/host\.health", "UNHEALTHY"),
        DEGRADED,
        REPLACE,
        reason="HostUnhealthy",
    ),
    Row(
        "oke/host-fault",
        _S.OKE,
        Label(r"oci\.oraclecloud\.com/host\.fault\.[a-z0-9_.-]+", ".+"),
        DEGRADED,
        INSPECT,
        reason="HostFault",
        note="the label names the component; Oracle's API calls the fault impacting",
    ),
    Row(
        "oke/maintenance",
        _S.OKE,
        Condition(r"oci\.oraclecloud\.com/MaintenanceFault"),
        DEGRADED,
        INSPECT,
        reason="MaintenanceFault",
        note="a maintenance event is scheduled or in progress; the message names the fault that it is for",
    ),
    Row(
        "oke/repair",
        _S.OKE,
        TaintMark(r"oci\.oraclecloud\.com/node-auto-repair-scheduled"),
        DEGRADED,
        REBOOT,
        reason="NodeAutoRepair",
        repairs=True,
        note="OKE cordons, drains and boots the node",
    ),
    Row("soperator/drain", _S.SOPERATOR, Condition("SlurmNode(Drain|Reboot)"), DEGRADED, INSPECT, repairs=True),
    Row("soperator/degraded", _S.SOPERATOR, Condition("SoperatorChecksNodeDegraded"), DEGRADED, INSPECT),
    PlannedRow(
        "soperator/maintenance",
        _S.SOPERATOR,
        Condition("SoperatorChecksNodeMaintenance"),
        reason="SoperatorMaintenance",
    ),
    Row(
        "autopilot/evict",
        _S.AUTOPILOT,
        Label(r"autopilot\.ibm\.com/gpuhealth", "EVICT"),
        DEGRADED,
        INSPECT,
        reason="AutopilotEvict",
    ),
    Row(
        "autopilot/warn",
        _S.AUTOPILOT,
        Label(r"autopilot\.ibm\.com/gpuhealth", "WARN"),
        WARNING,
        INSPECT,
        reason="AutopilotWarn",
    ),
    Row(
        "chs/failed",
        _S.CHS,
        TaintMark(r"aiinfra/[a-z0-9-]+-healthcheck", "failed"),
        DEGRADED,
        INSPECT,
        reason="HealthCheckFailed",
    ),
    Row(
        "chs/suspect",
        _S.CHS,
        TaintMark(r"aiinfra/[a-z0-9-]+-healthcheck", "suspect"),
        WARNING,
        INSPECT,
        reason="HealthCheckSuspect",
    ),
    Row("chs/reboot", _S.CHS, TaintMark("aiinfra/reboot-required", "true"), DEGRADED, REBOOT, reason="RebootRequired"),
    Row(
        "npd/kernel",
        _S.NPD,
        Condition("KernelDeadlock|ReadonlyFilesystem|XfsShutdown|CperHardwareErrorFatal|CorruptDockerOverlay2"),
        DEGRADED,
        REBOOT,
        minimum_age_seconds=30,
    ),
    Row("npd/disk", _S.NPD, Condition("DiskBadBlock"), DEGRADED, INSPECT),
    Row(
        "npd/neuron",
        _S.NPD,
        Condition("NeuronHealth", reason="NeuronHasError_.*"),
        DEGRADED,
        REPLACE,
        reason="NeuronError",
        note="AWS's Neuron devices report an error",
    ),
    Row(
        "npd/services",
        _S.NPD,
        Condition(
            "Frequent((Kubelet|Containerd|Docker|Gcfsd|GcfsSnapshotter)Restart|UnregisterNetDevice)"
            "|(ContainerRuntime|Kubelet|Gcfsd|GcfsSnapshotter)Unhealthy|GcfsSnapshotterMissingLayer|NTPProblem"
        ),
        WARNING,
        INSPECT,
        minimum_age_seconds=60,
        note="the fault is in software, not in the hardware",
    ),
    Row(
        "kubernetes/ready",
        _S.KUBERNETES,
        Condition("Ready", ("False", "Unknown")),
        WARNING,
        INSPECT,
        minimum_age_seconds=60,
        reason="NotReady",
        note="placement and recovery handle it; a failing control plane reports every node as Unknown",
    ),
    PlannedRow("kubernetes/maintenance", _S.KUBERNETES, Condition("Maintenance(Planned|InProgress)"), note="KEP-5683"),
    PlannedRow(
        "kubernetes/drain",
        _S.KUBERNETES,
        Condition("DrainInProgress"),
        reason="DrainInProgress",
        removal=Notice(),
        note="KEP-5683",
    ),
    PlannedRow(
        "kubernetes/shutdown",
        _S.KUBERNETES,
        Condition("GracefulNodeShutdownInProgress"),
        reason="GracefulNodeShutdownInProgress",
        removal=Notice(final=True),
        note="KEP-5683",
    ),
    PlannedRow(
        "kubernetes/deletion",
        _S.KUBERNETES,
        Deletion(),
        reason="NodeDeleted",
        removal=Notice(final=True),
        note="Karpenter or a user deletes the Node; finalizers keep it until its pods have ended",
    ),
    Row(
        "kubernetes/out-of-service",
        _S.KUBERNETES,
        TaintMark(r"node\.kubernetes\.io/out-of-service"),
        FATAL,
        INSPECT,
        reason="OutOfService",
        repairs=True,
        note="a user or a controller has declared the node dead",
    ),
    Row(
        "kubernetes/devices",
        _S.KUBERNETES,
        Shortage(),
        DEGRADED,
        RESET,
        minimum_age_seconds=120,
        reason="DevicesUnhealthy",
        note="the device plugin reports unhealthy devices; after a restart of the kubelet it briefly reports all of "
        "them",
    ),
)

CORDONING_SOURCES = frozenset({_S.EKS, _S.AKS, _S.NEBIUS, _S.NVSENTINEL, _S.HYPERPOD, _S.SOPERATOR})
"""Systems that cordon a node before they repair it. A cordon beside one of their marks shows that they have begun."""

_NVSENTINEL_ACTION = re.compile(r"Recommended\s?Action\s*[:=]\s*([A-Z_]+)")
_NVSENTINEL_ACTIONS = {
    "NONE": NONE,
    "COMPONENT_RESET": RESET,
    "RESTART_VM": REBOOT,
    "RESTART_BM": REBOOT,
    "REPLACE_VM": REPLACE,
    "CONTACT_SUPPORT": INSPECT,
}
_GRAVEST_FIRST = (REPLACE, REBOOT, RESET, INSPECT, NONE)


@dataclass(frozen=True, slots=True)
class _Exact:
    """A row with its compiled patterns, so that a mark is found by its key."""

    row: Row
    key: re.Pattern[str]
    value: re.Pattern[str]
    message: re.Pattern[str] = re.compile("")


@dataclass(frozen=True, slots=True)
class _Match:
    """A mark on a node that has a row.

    Attributes:
        row: of the mark.
        message: the text of the mark.
        since: since when it is there; None: the mark has no time of its own.
        own_reason: the reason that it names itself; "" for all but conditions.
        subject: of its sign; "" for all but conditions.
    """

    row: Row
    message: str
    since: datetime | None = None
    own_reason: str = ""
    subject: str = ""

    def sign(self, findings: Mapping[tuple[str, str, str], Finding], now: datetime) -> Sign:
        """Return the sign of the mark.

        Args:
            findings: the findings on record, by key of the sign.
            now: the time.
        """
        row, reason = self.row, self.row.reason or self.own_reason
        severity, action = row.severity, row.action
        if row.xid_in_reason and (number := re.search(r"\d+", reason)):
            code = xid(int(number.group()[:9]))
            severity, action = code.severity, code.action
        if row.action_in_message and (names := _NVSENTINEL_ACTION.findall(self.message)):
            # One condition lists several faults.
            action = min((_NVSENTINEL_ACTIONS.get(name, row.action) for name in names), key=_GRAVEST_FIRST.index)
            severity = WARNING if action is NONE else severity
        recorded = findings.get((row.source, reason, self.subject))
        since = min(self.since or (recorded.since if recorded else now), now)
        return Sign(
            row.source,
            reason,
            severity,
            since=since,
            newest=since,
            action=action,
            subject=self.subject,
            message=self.message,
            planned=row.planned,
            repairs=row.repairs,
            offence=not row.planned and severity in (DEGRADED, FATAL),
        )


@dataclass(frozen=True)
class Rules:
    """The health part of a FleetPolicy in the form that decisions use; made once, used for every node.

    They are those of the fleet, and `of_pool` returns those of a pool. The attributes that can differ there are
    enforcement, budgets, quarantine and observed_reasons.

    Attributes:
        enforcement: what Muster does about unhealthy nodes.
        budgets: how many nodes the breaker may take out.
        quarantine: when a machine stays out.
        listens: the sources that are switched on.
        validates: whether a node that was taken out has to pass a burn-in before it comes back.
        accelerator: the resource by which the fleet's GPUs are counted.
        problems: contradictions in the policy, as text for users.
        windows: of maintenance.
        observed_sources: sources whose findings are reported and have no effect.
        observed_reasons: findings that are reported and have no effect, whatever their source.
        ignored_ports: the network ports that are left out.
        enforcement_path: the field of the FleetPolicy that sets the enforcement.
        observed_path: the part of the FleetPolicy that sets the observed reasons.
        profile: of the installation, by which the FleetPolicy is bounded.
    """

    enforcement: Enforcement
    budgets: Budgets
    quarantine: Quarantine
    listens: frozenset[str]
    validates: bool
    accelerator: str
    problems: tuple[str, ...]
    _conditions: tuple[_Exact, ...]
    _labels: tuple[_Exact, ...]
    _taints: tuple[_Exact, ...]
    _annotations: tuple[_Exact, ...]
    _deletions: tuple[Row, ...]
    _shortages: tuple[Row, ...]
    windows: Windows = Windows()
    observed_sources: frozenset[str] = frozenset()
    observed_reasons: frozenset[str] = frozenset()
    ignored_ports: IgnoredPortFilter = IgnoredPortFilter()
    enforcement_path: str = "spec.health.enforcement"
    observed_path: str = "spec.health"
    profile: InstallationProfile = InstallationProfile.JOBS
    _of_entries: Mapping[str, "Rules"] = field(default_factory=dict)
    _known: dict[tuple[str, str], tuple[_Exact, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def from_policy(cls, policy: FleetPolicySpec, profile: InstallationProfile = InstallationProfile.JOBS) -> "Rules":
        """Return the rules of a FleetPolicy as far as a profile carries it out; contradictions are in `problems`."""
        health = policy.health
        off = {source.name for source in health.sources if not source.enabled}
        rows = [row for row in ROWS if row.source not in off] + [_row_of(rule) for rule in health.rules]

        def of_kind(kind: type[Condition | Label | TaintMark | Annotation]) -> tuple[_Exact, ...]:
            return tuple(_exact(row) for row in rows if isinstance(row.mark, kind))

        budgets = budgets_by_entry(policy)
        fleet = cls(
            enforcement=health.enforcement,
            budgets=budgets[""],
            quarantine=health.quarantine,
            listens=frozenset(name.value for name in SourceName if name not in off),
            validates=policy.preflight.profile is not Profile.DISABLED,
            accelerator=policy.accelerator_resource,
            problems=problems(policy),
            _conditions=of_kind(Condition),
            _labels=of_kind(Label),
            _taints=of_kind(TaintMark),
            _annotations=of_kind(Annotation),
            _deletions=tuple(row for row in rows if isinstance(row.mark, Deletion)),
            _shortages=tuple(row for row in rows if isinstance(row.mark, Shortage)),
            windows=Windows.from_policy(policy.maintenance),
            observed_sources=frozenset(source.name.value for source in health.sources if source.observe_only)
            | {_source_of(rule) for rule in health.rules if rule.observe_only},
            observed_reasons=frozenset(health.observed_reasons),
            ignored_ports=IgnoredPortFilter.from_policy(health.ignored_ports),
            profile=profile,
        )
        of_entries = {
            pool.name: replace(fleet._with(pool.name, pool.health), budgets=budgets[pool.name])
            for pool in policy.pools
            if pool.health is not None
        }
        idle = _idle_budgets([fleet, *of_entries.values()]) if profile.acts_on_nodes else ()
        return replace(fleet, _of_entries=of_entries, problems=(*idle, *fleet.problems))

    def _with(self, entry: str, health: PoolHealth) -> "Rules":
        """Return these rules with what an entry of `spec.pools` sets, without its budgets."""
        rules, path = self, f"spec.pools[{entry}].health"
        if health.enforcement is not None:
            rules = replace(rules, enforcement=health.enforcement, enforcement_path=f"{path}.enforcement")
        if health.quarantine is not None:
            changed = self.quarantine.model_copy(update={"incidents": health.quarantine.incidents})
            rules = replace(rules, quarantine=changed)
        if health.observed_reasons is not None:
            rules = replace(rules, observed_reasons=frozenset(health.observed_reasons), observed_path=path)
        return rules

    @property
    def why_observed(self) -> str:
        """What has Muster only observe these nodes, where the enforcement is Observe."""
        if not self.profile.acts_on_nodes:
            return f"Muster is installed with profile {self.profile}"
        return f"{self.enforcement_path} of the FleetPolicy is Observe"

    def of_pool(self, pool: str) -> "Rules":
        """Return the rules for the nodes of a pool, by its name as `muster.health.pools.budget_pool_of` returns it."""
        return self._of_entries.get(entry_of(pool), self)

    @property
    def entries(self) -> Collection[str]:
        """The names of the entries of `spec.pools` that have rules of their own."""
        return self._of_entries.keys()

    @property
    def longest_window_seconds(self) -> int:
        """The longest window in which any budget counts removals."""
        return max(rules.budgets.window_seconds for rules in (self, *self._of_entries.values()))

    def window_limit(self, pool: str, nodes: int) -> int:
        """The smallest number of nodes that the windowed budgets for all faults allow, of this pool with so many
        nodes."""
        return self.of_pool(pool).budgets.window_limit(nodes)

    def observes(self, sign: Sign) -> bool:
        """Whether a sign is only reported and has no effect; maintenance windows and repairs always have one."""
        if sign.source in (MAINTENANCE, REPAIR):
            return False
        return sign.source in self.observed_sources or sign.reason in self.observed_reasons

    def is_fault_reported_by_others(self, finding: Finding) -> bool:
        """Whether a finding is a fault that another system reports by a mark, and neither plans nor repairs itself."""
        exact = (*self._conditions, *self._labels, *self._taints, *self._annotations)
        rows = (*(entry.row for entry in exact), *self._deletions, *self._shortages)
        rows = tuple(row for row in rows if row.source == finding.source)
        return bool(rows) and not any((row.planned or row.repairs) and _may_say(row, finding) for row in rows)

    def signs(
        self, facts: NodeFacts, findings: Mapping[tuple[str, str, str], Finding], now: datetime
    ) -> tuple[list[Sign], datetime | None]:
        """Return the signs for the marks on a node, and when the next mark will be old enough to count.

        Args:
            facts: the node.
            findings: the findings on record, by key of the sign; they show since when a mark without a time has been
                there.
            now: the time.

        Returns:
            The signs, and a time; None: no mark waits for its age.
        """
        strongest = {sign.key: sign for sign in self._unknown_now(facts, findings, now)}
        ripe: list[datetime] = []
        for match in self._matches(facts):
            row = match.row
            if (row.only_on and not _has_label(facts, row.only_on)) or _is_over(row, facts):
                continue
            sign = _removing(match.sign(findings, now), row.removal)
            counts_from = sign.since + timedelta(seconds=row.minimum_age_seconds)
            if counts_from > now:
                ripe.append(counts_from)
                if match.since is not None:
                    continue
                # The age of a mark without a time is known only once it is recorded as a finding.
                sign = replace(sign, severity=INFO, action=NONE, repairs=False, offence=False)
            if sign.key not in strongest or sign.strength < strongest[sign.key].strength:
                strongest[sign.key] = sign
        return list(strongest.values()), min(ripe, default=None)

    def _unknown_now(
        self, facts: NodeFacts, findings: Mapping[tuple[str, str, str], Finding], now: datetime
    ) -> Iterator[Sign]:
        """Yield the recorded signs of conditions whose status is Unknown now: a silent writer proves no repair."""
        silent = {condition.type[:SUBJECT_LENGTH] for condition in facts.conditions if condition.status == "Unknown"}
        for finding in findings.values() if silent else ():
            if finding.subject in silent:
                rows = [
                    exact.row
                    for exact in self._conditions
                    if exact.row.source == finding.source
                    and exact.key.fullmatch(finding.subject)
                    and exact.row.reason in ("", finding.reason)
                ]
                if rows:
                    row = rows[0]
                    match = _Match(row, finding.message, finding.since, finding.reason, finding.subject)
                    sign = match.sign(findings, now)
                    if row.removal is not None:
                        sign = replace(sign, removal=row.removal.removal(row.source, finding.since, finding.message))
                    yield replace(sign, reason=finding.reason, severity=finding.severity)

    def _matches(self, facts: NodeFacts) -> Iterator[_Match]:
        """Yield each mark on the node that has a row."""
        yield from self._condition_matches(facts)
        yield from self._label_matches(facts)
        yield from self._taint_matches(facts)
        yield from self._annotation_matches(facts)
        if facts.node.deleting is not None:
            for row in self._deletions:
                yield _Match(row, "the Node object is being deleted", facts.node.deleting)
        has, may_use = facts.capacity.get(self.accelerator), facts.node.allocatable.get(self.accelerator)
        if has is not None and may_use is not None and may_use < has:
            for row in self._shortages:
                yield _Match(row, f"{may_use} of {has} {self.accelerator} are allocatable")

    def _condition_matches(self, facts: NodeFacts) -> Iterator[_Match]:
        for condition in facts.conditions:
            for exact in self._with_key("condition", condition.type, self._conditions):
                row, mark = exact.row, exact.row.mark
                if (
                    isinstance(mark, Condition)
                    and condition.status in mark.statuses
                    and exact.value.fullmatch(condition.reason)
                    and exact.message.fullmatch(condition.message)
                ):
                    subject = condition.type[:SUBJECT_LENGTH]
                    yield _Match(row, condition.message, condition.since, _condition_reason(row, condition), subject)

    def _label_matches(self, facts: NodeFacts) -> Iterator[_Match]:
        for key, value in facts.node.labels.items():
            for exact in self._with_key("label", key, self._labels):
                if exact.value.fullmatch(value):
                    command = _removal_command(exact.row, facts, "label", key)
                    yield _Match(exact.row, f"label {key}={value}{command}")

    def _taint_matches(self, facts: NodeFacts) -> Iterator[_Match]:
        for taint in facts.node.taints:
            for exact in self._with_key("taint", taint.key, self._taints):
                if exact.value.fullmatch(taint.value):
                    command = _removal_command(exact.row, facts, "taint", taint.key)
                    yield _Match(exact.row, f"taint {taint.key}={taint.value}:{taint.effect}{command}")

    def _annotation_matches(self, facts: NodeFacts) -> Iterator[_Match]:
        for key, value in facts.node.annotations.items():
            for exact in self._with_key("annotation", key, self._annotations):
                if exact.value.fullmatch(value):
                    command = _removal_command(exact.row, facts, "annotate", key)
                    yield _Match(exact.row, f"annotation {key}={value}{command}")

    def _with_key(self, kind: str, key: str, candidates: Sequence[_Exact]) -> tuple[_Exact, ...]:
        """Return the rows whose pattern matches this key; answers are cached, because fleets have few different keys.

        Args:
            kind: of the mark: condition, label, taint or annotation.
            key: of the mark.
            candidates: all rows of that kind.
        """
        rows = self._known.get((kind, key))
        if rows is None:
            rows = tuple(exact for exact in candidates if exact.key.fullmatch(key))
            if len(self._known) < 4096:
                self._known[kind, key] = rows
        return rows


def _may_say(row: Row, finding: Finding) -> bool:
    """Whether a finding may come from this row."""
    if row.reason or not isinstance(row.mark, Condition):
        return row.reason == finding.reason
    return re.fullmatch(row.mark.type, finding.subject) is not None


def problems(policy: FleetPolicySpec) -> tuple[str, ...]:
    """Return what in a policy's health contradicts itself, apart from budgets that have no effect, with what to do
    about it, as messages for users."""
    return (*_problems(policy.health), *_unknown_reasons_of_pools(policy))


def _idle_budgets(every: Sequence[Rules]) -> Iterator[str]:
    """Yield the budgets that have no effect, because Muster only observes where they would count.

    Args:
        every: the rules of the fleet, and those of the pools.
    """
    for path in dict.fromkeys(rules.budgets.path for rules in every):
        using = [rules for rules in every if rules.budgets.path == path]
        is_idle = all(rules.enforcement is Enforcement.OBSERVE for rules in using)
        if is_idle and using[0].budgets != Budgets.from_policy(DEFAULT_BUDGETS, OF_FLEET):
            yield (
                f"{path} has no effect while {using[0].enforcement_path} is Observe: set enforcement to Jobs or Nodes, "
                "or remove the budgets"
            )


def _unknown_reasons_of_pools(policy: FleetPolicySpec) -> Iterator[str]:
    for pool in policy.pools:
        if pool.health is not None:
            path = f"spec.pools[{pool.name}].health.observedReasons"
            yield from _unknown_reasons(pool.health.observed_reasons or (), path)


def _problems(policy: HealthPolicy) -> Iterator[str]:
    off = {source.name.value for source in policy.sources if not source.enabled}
    if off >= {name.value for name in SourceName} and not policy.rules:
        yield "spec.health.sources switches off every source, and there are no rules: Muster finds no node unhealthy"
    for rule in policy.rules:
        for row in _contradicted(rule, off):
            yield (
                f"spec.health.rules: {rule.name} ({rule.severity.value}) matches marks that {row.name} "
                f"({row.severity.value}) matches, too. The stronger counts: switch source {row.source} off, or remove "
                "the rule"
            )
    yield from _unknown_reasons(policy.observed_reasons, "spec.health.observedReasons")
    for first_rule, second_rule in _overlaps(policy.rules):
        yield (
            f"spec.health.rules: {first_rule.name} ({first_rule.severity.value}) and {second_rule.name} "
            f"({second_rule.severity.value}) can match the same mark. "
            "The stronger counts: give both a reason or value, or keep one"
        )


_OWN_REASONS = frozenset({AGENT_SILENT, CHECK_WANTED, FAILED_BURN_IN, FEWER_THAN_EQUALS, FOLLOWED_BY_FAILURES})
_NUMBERED = re.compile(r"(Xid|SXid)(0|[1-9]\d{0,8})|RecoveryActionValue[1-9]\d{0,8}")


def _named_reasons() -> Iterator[str]:
    """Yield all reasons of findings that have a fixed name."""
    yield from _OWN_REASONS
    yield from (kind for kind in KINDS if kind not in (XID, SXID, RECOVERY_ACTION))
    yield from (f"{RECOVERY_ACTION}{name}" for name, _, _ in RECOVERY_ACTIONS.values())
    yield f"{RECOVERY_ACTION}Unreadable"
    for row in ROWS:
        if row.reason:
            yield row.reason
        elif isinstance(row.mark, Condition):
            yield from filter(_CAMEL_CASE.fullmatch, (*row.mark.type.split("|"), *row.mark.reason.split("|")))


def _unknown_reasons(reasons: Iterable[str], path: str) -> Iterator[str]:
    for reason in reasons:
        if _NUMBERED.fullmatch(reason) or reason in _REASONS or _may_be_of_condition(reason):
            continue
        near = difflib.get_close_matches(reason, sorted(_REASONS), n=1)
        advice = f"did you mean {near[0]}?" if near else "docs/node-health.md lists the reasons"
        yield f"{path}: Muster makes no finding with the reason {reason}: {advice}"


def _may_be_of_condition(reason: str) -> bool:
    """Whether a reason may be the type or the reason of a condition that the table matches by a pattern."""
    marks = (row.mark for row in ROWS if not row.reason and isinstance(row.mark, Condition))
    return any(
        re.fullmatch(mark.type, reason) or (not mark.reason.endswith(".*") and re.fullmatch(mark.reason, reason))
        for mark in marks
    )


_REASONS = frozenset(_named_reasons())


def _contradicted(rule: HealthRule, off: set[str]) -> Iterator[Row]:
    """Yield the rows of other severity that can match a mark that the rule matches; `off` are sources switched off."""
    for row in ROWS:
        if row.source in off or row.severity is rule.severity:
            continue
        if _is_same_condition(rule, row.mark) or _is_same_label_or_taint(rule, row.mark):
            yield row


def _is_same_condition(rule: HealthRule, mark: Mark) -> bool:
    if rule.condition is None or not isinstance(mark, Condition):
        return False
    is_same_type = re.fullmatch(mark.type, rule.condition.type) is not None
    is_same_status = ("False" if rule.condition.bad_when_false else "True") in mark.statuses
    may_have_reason = not rule.condition.reason or re.fullmatch(mark.reason, rule.condition.reason) is not None
    return is_same_type and is_same_status and may_have_reason


def _is_same_label_or_taint(rule: HealthRule, mark: Mark) -> bool:
    if rule.label is not None and isinstance(mark, Label):
        return _same_mark(mark, rule.label.key, rule.label.value)
    if rule.taint is not None and isinstance(mark, TaintMark):
        return _same_mark(mark, rule.taint.key, rule.taint.value)
    return False


def _same_mark(mark: Label | TaintMark, key: str, value: str) -> bool:
    return bool(re.fullmatch(mark.key, key)) and (not value or bool(re.fullmatch(mark.value, value)))


def _overlaps(rules: Sequence[HealthRule]) -> Iterator[tuple[HealthRule, HealthRule]]:
    """Yield the pairs of rules with different severities that can match the same mark."""
    for index, first_rule in enumerate(rules):
        for second_rule in rules[index + 1 :]:
            if first_rule.severity is not second_rule.severity and _covers_some(first_rule, second_rule):
                yield first_rule, second_rule


def _covers_some(rule: HealthRule, other_rule: HealthRule) -> bool:
    if rule.condition and other_rule.condition:
        return (rule.condition.type, rule.condition.bad_when_false) == (
            other_rule.condition.type,
            other_rule.condition.bad_when_false,
        ) and _can_be_equal(rule.condition.reason, other_rule.condition.reason)
    if rule.label and other_rule.label:
        return rule.label.key == other_rule.label.key and _can_be_equal(rule.label.value, other_rule.label.value)
    if rule.taint and other_rule.taint:
        return rule.taint.key == other_rule.taint.key and _can_be_equal(rule.taint.value, other_rule.taint.value)
    return False


def _can_be_equal(text: str, other_text: str) -> bool:
    return not text or not other_text or text == other_text


def _source_of(rule: HealthRule) -> str:
    return f"rule/{rule.name}"[:REASON_LENGTH]


def _row_of(rule: HealthRule) -> Row:
    """Return a rule of the policy as a row like those of the table."""
    mark: Mark
    if rule.condition:
        statuses = ("False",) if rule.condition.bad_when_false else ("True",)
        mark = Condition(re.escape(rule.condition.type), statuses, re.escape(rule.condition.reason) or ".*")
    elif rule.label:
        mark = Label(re.escape(rule.label.key), re.escape(rule.label.value) or ".*")
    elif rule.taint:
        mark = TaintMark(re.escape(rule.taint.key), re.escape(rule.taint.value) or ".*")
    else:  # the API server refuses such a rule; an older object with one matches nothing
        mark = Label("(?!)")
    return Row(
        f"rule/{rule.name}",
        _source_of(rule),
        mark,
        rule.severity,
        rule.action,
        minimum_age_seconds=rule.minimum_age_seconds,
        reason="" if rule.condition else "MarkedByRule",
        planned=rule.planned,
    )


def _exact(row: Row) -> _Exact:
    mark = row.mark
    if isinstance(mark, Condition):
        reason, message = (re.compile(pattern, re.DOTALL) for pattern in (mark.reason, mark.message))
        return _Exact(row, re.compile(mark.type), reason, message)
    if isinstance(mark, Label | TaintMark):
        return _Exact(row, re.compile(mark.key), re.compile(mark.value))
    if isinstance(mark, Annotation):
        return _Exact(row, re.compile(re.escape(mark.key)), re.compile(mark.value))
    raise TypeError(f"{row.name} has no key")


def _has_label(facts: NodeFacts, pattern: str) -> bool:
    return any(re.fullmatch(pattern, f"{key}={value}") for key, value in facts.node.labels.items())


def _is_over(row: Row, facts: NodeFacts) -> bool:
    """Whether another mark on the node says that the row's mark is over."""
    if isinstance(row.over, Label):
        return _has_label(facts, f"{row.over.key}={row.over.value}")
    return row.over is not None and row.over.value == facts.node.annotations.get(row.over.key)


def _removal_command(row: Row, facts: NodeFacts, verb: str, key: str) -> str:
    """Return the end of a message with the command that removes a mark whose writer has left it behind.

    It is "" where the mark announces that the machine is removed: the mark goes with it.
    """
    if row.removal is not None:
        return ""
    return f"; if its writer has left it behind, `kubectl {verb} node {facts.node.name} {key}-` removes it"


def _condition_reason(row: Row, condition: ConditionView) -> str:
    own = condition.reason
    if row.xid_in_reason and not _CAMEL_CASE.fullmatch(own):  # a list of them, as JSON
        codes = {int(code): xid(int(code)) for code in re.findall(r"(?<!\d)\d{1,4}(?!\d)", own)}
        if codes:
            worst = min(codes, key=lambda code: (-WEIGHT[codes[code].severity], -EFFORT[codes[code].action], code))
            return f"Xid{worst}"
    return own if _CAMEL_CASE.fullmatch(own) and own not in _EMPTY_REASONS else condition.type[:REASON_LENGTH]


# Reasons that are less specific than the condition's type.
_EMPTY_REASONS = frozenset({"True", "False", "Unknown", "Error", "Unhealthy"})


def _removing(sign: Sign, notice: Notice | None) -> Sign:
    """Return the sign with the removal that its mark announces; None as notice: the sign as it is."""
    if notice is None:
        return sign
    removal = notice.removal(sign.source, sign.since, sign.message)
    until = f" by {removal.gone_by:%Y-%m-%d %H:%M:%S} UTC" if removal.gone_by is not None else ""
    return replace(sign, removal=removal, message=f"{sign.message}: {sign.source} removes the machine{until}")


def in_charge(signs: Iterable[Sign], cordoned: bool) -> str:
    """Return the other system that is repairing the node; "" if none is.

    Args:
        signs: the node's signs that count, strongest first.
        cordoned: whether the Node is cordoned in Kubernetes.
    """
    for sign in signs:
        if sign.repairs or (cordoned and sign.source in CORDONING_SOURCES and sign.weighs >= 2):
            return sign.source
    return ""
