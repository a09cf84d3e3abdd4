"""Each row of the table against a Node object as its system writes it: what is bad, and what is not."""

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.health.builders import NOW, after, facts_of, rules

from muster.api.nodehealth import Finding, Severity
from muster.health.facts import NodeFacts
from muster.health.signs import Sign
from muster.health.sources import ROWS, Condition, in_charge

LONG_AGO = "2026-11-20T08:00:00Z"


def condition(type_: str, status: str, reason: str = "", message: str = "", at: str = LONG_AGO) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": "2026-11-20T09:40:00Z",
        "lastTransitionTime": at,
    }


HEALTHY_NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "ip-10-0-3-17.ec2.internal",
        "labels": {
            "kubernetes.io/hostname": "ip-10-0-3-17.ec2.internal",
            "node.kubernetes.io/instance-type": "p5en.48xlarge",
            "nvidia.com/gpu.present": "true",
            "topology.muster.dev/rack": "r7",
        },
    },
    "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "192", "memory": "2097152Mi", "nvidia.com/gpu": "8"},
        "allocatable": {"cpu": "191450m", "memory": "2080000Mi", "nvidia.com/gpu": "8"},
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
    },
}


def with_(
    *conditions: dict[str, Any],
    labels: dict[str, str] | None = None,
    taint: tuple[str, str, str] | None = None,
    allocatable: int = 8,
    cordoned: bool = False,
) -> dict[str, Any]:
    """The healthy node with these marks."""
    manifest = copy.deepcopy(HEALTHY_NODE)
    own = {c["type"] for c in conditions}
    status = manifest["status"]
    status["conditions"] = [c for c in status["conditions"] if c["type"] not in own] + list(conditions)
    status["allocatable"]["nvidia.com/gpu"] = str(allocatable)
    manifest["metadata"]["labels"] |= labels or {}
    if taint:
        manifest["spec"]["taints"].append(dict(zip(("key", "value", "effect"), taint, strict=True)))
    manifest["spec"]["unschedulable"] = cordoned
    return manifest


@dataclass(frozen=True)
class Case:
    """A Node object on which a row applies, what is to be made of it, and objects like it that say nothing of the
    kind."""

    node: dict[str, Any]
    reason: str
    weighs: str
    action: str
    not_these: list[dict[str, Any]] = field(default_factory=list)
    planned: bool = False
    repaired_by: str = ""


_NVS = "dgxc.nvidia.com/nvsentinel-state"
_EKS = "AcceleratedHardwareReady"
_INTERFACE = 'Interface Name: "{}", MAC: "00:00:10:29:fe:80:00:00" is not up'
_SPOT = "aws-node-termination-handler/spot-itn"
_HP = "sagemaker.amazonaws.com/node-health-status"
_HP_CHECK = "sagemaker.amazonaws.com/deep-health-check-status"
_TIME = "Fri, 20 Nov 2026 09:56:07 GMT"
_GPU_MEM = "ErrorCode:DCGM_FR_VOLATILE_DBE_DETECTED GPU:3 PCI:0000:5d:00.0 Recommended Action=COMPONENT_RESET;"

_IMEX = (
    "ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 IMEX daemon status is -3 (not READY) Recommended Action=CONTACT_SUPPORT;"
)
CASES: dict[str, Case] = {
    "nvsentinel/conditions": Case(
        with_(condition("GpuMemWatch", "True", "GpuMemWatchIsNotHealthy", _GPU_MEM)),
        "GpuMemWatchIsNotHealthy",
        "Fatal",
        "Reset",
        [
            with_(condition("GpuMemWatch", "False", "GpuMemWatchIsHealthy", "No Health Failures")),
            with_(condition("GpuMemWatch", "Unknown", "GpuMemWatchIsNotHealthy", _GPU_MEM)),
            with_(condition("GpuMemWatcher", "True", "SomebodyElse")),
        ],
    ),
    "nvsentinel/imex": Case(
        with_(
            condition("GpuNvlinkWatch", "True", "GpuNvlinkWatchIsNotHealthy", _IMEX),
            labels={"nvidia.com/gpu.clique": "4b968ade-7ba8-4a51-a3a2-2fb1b0f5d0a2.1"},
        ),
        "GpuNvlinkWatchIsNotHealthy",
        "Fatal",
        "Inspect",
        [with_(condition("GpuNvlinkWatch", "True", "GpuNvlinkWatchIsNotHealthy", _IMEX))],
    ),
    "nvsentinel/light": Case(
        with_(condition("GpuDcgmUnresponsive", "True", "GpuDcgmUnresponsiveIsNotHealthy")),
        "GpuDcgmUnresponsiveIsNotHealthy",
        "Warning",
        "Inspect",
        [with_(condition("GpuDcgmUnresponsive", "False", "GpuDcgmUnresponsiveIsHealthy"))],
    ),
    "nvsentinel/network": Case(
        with_(
            condition(
                "InfiniBandStateCheck", "True", "InfiniBandStateCheckIsNotHealthy", "RecommendedAction: REPLACE_VM"
            )
        ),
        "InfiniBandStateCheckIsNotHealthy",
        "Fatal",
        "Replace",
        [with_(condition("InfiniBandStateCheck", "False"))],
    ),
    "nvsentinel/maintenance": Case(
        with_(condition("CSPMaintenance", "True", "CSPMaintenanceIsNotHealthy")),
        "CSPMaintenance",
        "Degraded",
        "None",
        [with_(condition("CSPMaintenance", "False"))],
        planned=True,
        repaired_by="nvsentinel",
    ),
    "nvsentinel/state": Case(
        with_(labels={_NVS: "draining"}, cordoned=True),
        "NVSentinelRepairs",
        "Degraded",
        "None",
        [with_(labels={_NVS: ""})],
        repaired_by="nvsentinel",
    ),
    "eks/xid": Case(
        with_(condition(_EKS, "False", "NvidiaXID79Error", "XID 79 on GPU 3")),
        "NvidiaXID79Error",
        "Fatal",
        "Reboot",
        [
            with_(condition(_EKS, "True", "NvidiaAcceleratedHardwareIsReady")),
            with_(condition(_EKS, "Unknown", "NvidiaXID79Error")),
        ],
    ),
    "eks/hardware": Case(
        with_(condition(_EKS, "False", "NvidiaDeviceCountMismatch", "7 of 8")),
        "NvidiaDeviceCountMismatch",
        "Fatal",
        "Reboot",
        [with_(condition(_EKS, "True", "NvidiaDeviceCountMismatch"))],
    ),
    "eks/other": Case(
        with_(condition(_EKS, "False", "DCGMDiagnosticFailure")),
        "DCGMDiagnosticFailure",
        "Degraded",
        "Inspect",
        [with_(condition(_EKS, "True", "DCGMDiagnosticFailure"))],
    ),
    "eks/dcgm": Case(
        with_(condition(_EKS, "False", "DCGMError", "failed to initialize DCGM: Error connecting to nv-hostengine")),
        "DCGMError",
        "Warning",
        "Inspect",
        [with_(condition(_EKS, "True", "DCGMError"))],
    ),
    "eks/other-interface": Case(
        with_(condition("NetworkingReady", "False", "InterfaceNotUp", _INTERFACE.format("ibp115s0f0"))),
        "InterfaceNotUp",
        "Info",
        "None",
        [with_(condition("NetworkingReady", "True", "InterfaceNotUp", _INTERFACE.format("ibp115s0f0")))],
    ),
    "eks/node": Case(
        with_(condition("KernelReady", "False", "ForkFailedOutOfPIDs")),
        "ForkFailedOutOfPIDs",
        "Degraded",
        "Reboot",
        [
            with_(condition("KernelReady", "True", "KernelIsReady")),
            with_(condition("KernelReady", "False", "ForkFailedOutOfPIDs", at="2026-11-20T09:40:30Z")),
            with_(condition("NetworkingReady", "False", "InterfaceNotRunning", _INTERFACE.format("ib0"))),
        ],
    ),
    "aks/gpu-missing": Case(
        with_(condition("GPUMissing", "True", "GPUMissing")),
        "GPUMissing",
        "Fatal",
        "Reboot",
        [with_(condition("GPUMissing", "False", "NoGPUMissing"))],
    ),
    "aks/nvlink": Case(
        with_(condition("NVLinkStatusInactive", "True", "NVLinkStatusInactive")),
        "NVLinkStatusInactive",
        "Fatal",
        "Reset",
        [with_(condition("NVLinkStatusInactive", "False", "NVLinkStatusActive"))],
    ),
    "aks/xid": Case(
        with_(condition("XIDErrors", "True", "XIDErrorsPresent")),
        "XIDErrorsPresent",
        "Degraded",
        "Inspect",
        [with_(condition("XIDErrors", "False", "NoXIDErrors"))],
    ),
    "aks/network": Case(
        with_(condition("IBLinkFlapping", "True", "IBLinkFlapping")),
        "IBLinkFlapping",
        "Degraded",
        "Inspect",
        [with_(condition("IBLinkFlapping", "False", "NoIBLinkFlapping"))],
    ),
    "aks/throttling": Case(
        with_(condition("GPUClockThrottling", "True", "GPUClockThrottling")),
        "GPUClockThrottling",
        "Warning",
        "Inspect",
        [with_(condition("GPUClockThrottling", "True", "GPUClockThrottling", at="2026-11-20T09:35:00Z"))],
    ),
    "aks/services": Case(
        with_(condition("ContainerRuntimeProblem", "True", "ContainerRuntimeIsDown")),
        "ContainerRuntimeIsDown",
        "Warning",
        "Inspect",
        [
            with_(condition("UnhealthyNvidiaDevicePlugin", "False", "DevicePluginUp")),
            with_(condition("KubeletProblem", "False", "KubeletIsUp", "kubelet service is up")),
            with_(condition("KubeletProblem", "True", "KubeletIsDown", at="2026-11-20T09:41:00Z")),
        ],
    ),
    "aks/filesystem": Case(
        with_(condition("FilesystemCorruptionProblem", "True", "FilesystemCorruptionDetected")),
        "FilesystemCorruptionDetected",
        "Degraded",
        "Reboot",
        [with_(condition("FilesystemCorruptionProblem", "False", "FilesystemIsOK", "Filesystem is healthy"))],
    ),
    "aks/maintenance": Case(
        with_(condition("VMEventScheduled", "True", "RebootScheduled")),
        "VMEventScheduled",
        "Degraded",
        "None",
        [with_(condition("VMEventScheduled", "False", "NoVMEventScheduled"))],
        planned=True,
        repaired_by="aks",
    ),
    "aks/freeze": Case(
        with_(condition("VMEventScheduled", "True", "VMEventScheduled", f"Freeze Scheduled: {_TIME}")),
        "FreezeScheduled",
        "Info",
        "None",
        [with_(condition("VMEventScheduled", "True", "VMEventScheduled", f"Redeploy Scheduled: {_TIME}"))],
        planned=True,
    ),
    "aws-nth/rebalance": Case(
        with_(taint=("aws-node-termination-handler/rebalance-recommendation", "rebalance-4cd0", "NoSchedule")),
        "RebalanceRecommended",
        "Warning",
        "None",
        [with_(taint=("aws-node-termination-handler/spot-itn", "spot-itn-0f1e", "NoSchedule"))],
        planned=True,
    ),
    "hyperpod/status": Case(
        with_(labels={_HP: "Unschedulable"}),
        "HyperPodUnschedulable",
        "Degraded",
        "None",
        [with_(labels={_HP: "Schedulable"})],
        planned=True,
        repaired_by="hyperpod",
    ),
    "hyperpod/check": Case(
        with_(labels={_HP_CHECK: "InProgress"}),
        "HyperPodChecks",
        "Degraded",
        "None",
        [with_(labels={_HP_CHECK: "Passed"})],
        planned=True,
        repaired_by="hyperpod",
    ),
    "hyperpod/check-failed": Case(
        with_(labels={_HP_CHECK: "Failed"}),
        "HyperPodCheckFailed",
        "Degraded",
        "Inspect",
        [with_(labels={_HP_CHECK: "Passed"})],
    ),
    "hyperpod/repair": Case(
        with_(labels={_HP: "UnschedulablePendingReplacement"}),
        "HyperPodRepairs",
        "Degraded",
        "None",
        [with_(labels={_HP: "Schedulable"})],
        repaired_by="hyperpod",
    ),
    "hyperpod/taint": Case(
        with_(taint=(_HP, "Unschedulable", "NoSchedule")),
        "HyperPodUnschedulable",
        "Degraded",
        "None",
        [with_(taint=(_HP, "Other", "NoSchedule"))],
        planned=True,
        repaired_by="hyperpod",
    ),
    "hyperpod/faults": Case(
        with_(labels={"sagemaker.amazonaws.com/fault-types": "NvidiaErrorReboot"}),
        "HyperPodFault",
        "Degraded",
        "Inspect",
        [with_(labels={"sagemaker.amazonaws.com/fault-types": ""})],
    ),
    "gke/xid": Case(
        with_(condition("XidCriticalError", "True", '{"63":true,"79":true}', "6e43a052-93f1-4b2f-8a37-a0f3a7c5e1d2")),
        "Xid79",
        "Fatal",
        "Reboot",
        [with_(condition("XidCriticalError", "False", '{"79":true}')), with_(condition("XidCriticalError", "True"))],
    ),
    "gke/maintenance-window": Case(
        with_(taint=("maintenance-window-started", "true", "NoSchedule")),
        "MaintenanceWindow",
        "Degraded",
        "None",
        [with_(taint=("maintenance-window", "true", "NoSchedule"))],
        planned=True,
        repaired_by="gke",
    ),
    "gke/maintenance-scheduled": Case(
        with_(labels={"cloud.google.com/scheduled-maintenance-time": "1796083200"}),
        "MaintenanceScheduled",
        "Info",
        "None",
        [with_(labels={"cloud.google.com/scheduled-maintenance-time": "soon"})],
        planned=True,
    ),
    "gke/prediction": Case(
        with_(labels={"gke.google.com/recommended-to-run-large-training-workload": "False"}),
        "DegradationPredicted",
        "Warning",
        "None",
        [
            with_(labels={"gke.google.com/recommended-to-run-large-training-workload": "True"}),
            with_(labels={"gke.google.com/recommended-to-run-large-training-workload": ""}),
        ],
    ),
    "ack/anomaly": Case(
        with_(taint=("alibabacloud.com/node-anomaly", "", "NoSchedule")),
        "NodeAnomaly",
        "Degraded",
        "Replace",
        [with_(labels={"alibabacloud.com/node-anomaly": "true"})],
        repaired_by="ack",
    ),
    "ack/gpu-replace": Case(
        with_(condition("NvidiaXID79Error", "True", "NvidiaXID79Error")),
        "NvidiaXID79Error",
        "Fatal",
        "Replace",
        [with_(condition("NvidiaXID79Error", "False")), with_(condition("NvidiaXID31Error", "True"))],
    ),
    "ack/gpu-restart": Case(
        with_(condition("NvidiaRemappingRowsRequireReset", "True")),
        "NvidiaRemappingRowsRequireReset",
        "Degraded",
        "Reboot",
        [with_(condition("NvidiaXID48Error", "False"))],
    ),
    "oke/missing": Case(
        with_(condition("GpuCount", "True", "GpuCountHasIssues", "Healthcheck:: GPU Count Error")),
        "GpuCountHasIssues",
        "Fatal",
        "Reboot",
        [
            with_(condition("GpuCount", "False", "GpuCountHasNoIssues", "Node has the expected number of GPUs")),
            with_(condition("GpuCount", "True", "AsExpected")),
        ],
    ),
    "oke/hardware": Case(
        with_(condition("GpuEcc", "True", "GpuEccHasIssues", "Healthcheck:: GPU ECC Error")),
        "GpuEccHasIssues",
        "Degraded",
        "Inspect",
        [with_(condition("GpuEcc", "Unknown", "GpuEccHasNoIssues", "ECC check failed: amd-smi returned invalid JSON"))],
    ),
    "oke/xid": Case(
        with_(condition("GpuXid", "True", "GpuXidHasIssues")),
        "GpuXidHasIssues",
        "Degraded",
        "Inspect",
        [with_(condition("GpuXid", "False", "GpuXidHasNoIssues", "No GPU Xid errors detected"))],
    ),
    "oke/network": Case(
        with_(condition("RdmaLink", "True", "RdmaLinkHasIssues", "Healthcheck:: RDMA Link Error")),
        "RdmaLinkHasIssues",
        "Degraded",
        "Inspect",
        [with_(condition("RdmaLink", "True", "RdmaLinkHasIssues", at="2026-11-20T09:41:00Z"))],
    ),
    "oke/settings": Case(
        with_(condition("CpuProfile", "True", "CpuProfileHasIssues")),
        "CpuProfileHasIssues",
        "Warning",
        "Inspect",
        [with_(condition("OcaVersion", "False", "OcaVersionHasNoIssues", "OCA version is up to date"))],
    ),
    "oke/pcie": Case(
        with_(condition("NodeHasPcieErrors", "True", "PcieFatal")),
        "PcieFatal",
        "Degraded",
        "Reboot",
        [with_(condition("NodeHasPcieErrors", "True", "PcieCorrectable"))],
    ),
    "oke/check-failed": Case(
        with_(labels={"oke.oraclecloud.com/active-health-checks-dcgm-diag": "fail"}),
        "ActiveHealthCheckFailed",
        "Degraded",
        "Inspect",
        [
            with_(labels={"oke.oraclecloud.com/active-health-checks-dcgm-diag": "pass"}),
            with_(labels={"oke.oraclecloud.com/active-health-checks-dcgm-diag-last-run": "2026-11-20T04-30-00Z"}),
        ],
    ),
    "oke/check-of-several": Case(
        with_(labels={"oke.oraclecloud.com/active-health-checks-nccl-tests": "fail"}),
        "ActiveHealthCheckFailed",
        "Warning",
        "Inspect",
        [with_(labels={"oke.oraclecloud.com/active-health-checks-nccl-tests": "pass"})],
    ),
    "oke/host": Case(
        with_(labels={"oci.oraclecloud.com/host.health": "UNHEALTHY"}),
        "HostUnhealthy",
        "Degraded",
        "Replace",
        [with_(labels={"oci.oraclecloud.com/host.health": "HEALTHY"})],
    ),
    "oke/host-fault": Case(
        with_(labels={"oci.oraclecloud.com/host.fault.ssd": "SPENV-8000-9M"}),
        "HostFault",
        "Degraded",
        "Inspect",
        [with_(labels={"oci.oraclecloud.com/host.health": "HEALTHY"})],
    ),
    "oke/maintenance": Case(
        with_(
            condition(
                "oci.oraclecloud.com/MaintenanceFault",
                "True",
                "HPCGPU-0002-02",
                "The GPU has exceeded the maximum number of ECC defective row remaps.",
            ),
            labels={"oci.oraclecloud.com/host.maintenance.state": "SCHEDULED"},
        ),
        "MaintenanceFault",
        "Degraded",
        "Inspect",
        [with_(condition("oci.oraclecloud.com/MaintenanceFault", "False", "Resolved", "No active maintenance events"))],
    ),
    "oke/repair": Case(
        with_(taint=("oci.oraclecloud.com/node-auto-repair-scheduled", "", "NoSchedule")),
        "NodeAutoRepair",
        "Degraded",
        "Reboot",
        [with_(labels={"oci.oraclecloud.com/node-auto-repair-disabled": "true"})],
        repaired_by="oke",
    ),
    "gke/fault": Case(
        with_(labels={"cloud.google.com/fault-behavior": "SDC"}),
        "FaultReported",
        "Degraded",
        "Replace",
        [with_(labels={"cloud.google.com/fault-behavior": ""})],
        repaired_by="gke",
    ),
    "gardener/network": Case(
        with_(condition("ClusterNetworkProblem", "True", "FailedNetworkChecks")),
        "FailedNetworkChecks",
        "Warning",
        "Inspect",
        [with_(condition("HostNetworkProblem", "False", "NoNetworkProblems"))],
    ),
    "amd-gpu-operator/condition": Case(
        with_(condition("AMDGPUUnhealthy", "True", "Temperature Threshold Exceeded")),
        "AMDGPUUnhealthy",
        "Degraded",
        "Inspect",
        [with_(condition("AMDGPUUnhealthy", "False", "NoProblem"))],
    ),
    "amd-gpu-operator/gpu": Case(
        with_(labels={"metricsexporter.amd.com.gpu.0.state": "unhealthy"}),
        "AMDGPUUnhealthy",
        "Degraded",
        "Inspect",
        [
            with_(labels={"metricsexporter.amd.com.gpu.0.state": "healthy"}),
            with_(labels={"metricsexporter.amd.com.gpu.0.model": "unhealthy"}),
        ],
    ),
    "amd-gpu-operator/nic": Case(
        with_(labels={"metricsexporter.amd.com.nic.0000_84_00_0.state": "unhealthy"}),
        "AMDNICDown",
        "Warning",
        "Inspect",
        [with_(labels={"metricsexporter.amd.com.nic.0000_84_00_0.state": "healthy"})],
    ),
    "amd-gpu-operator/remediation": Case(
        with_(taint=("amd-gpu-unhealthy", "AMDGPUUnhealthy", "NoSchedule")),
        "AmdGpuRemediation",
        "Degraded",
        "None",
        [with_(taint=("amd-gpu-unhealthy-tests", "true", "NoSchedule"))],
        repaired_by="amd-gpu-operator",
    ),
    "nebius/gpu": Case(
        with_(condition("NebiusGPUError", "True", "GpuXidErrors")),
        "GpuXidErrors",
        "Degraded",
        "Replace",
        [with_(condition("NebiusGPUError", "False", "NoGpuErrors"))],
    ),
    "nebius/disk": Case(
        with_(condition("NebiusBootDiskIOError", "True", "BootDiskIOError")),
        "BootDiskIOError",
        "Degraded",
        "Replace",
        [with_(condition("NebiusBootDiskIOError", "False", "BootDiskOk"))],
    ),
    "nebius/runtime": Case(
        with_(condition("NebiusContainerRuntimeError", "True", "ContainerRuntimeUnhealthy")),
        "ContainerRuntimeUnhealthy",
        "Warning",
        "Inspect",
        [
            with_(condition("NebiusContainerRuntimeError", "False", "ContainerRuntimeHealthy")),
            with_(condition("NebiusContainerRuntimeError", "True", at="2026-11-20T09:41:00Z")),
        ],
    ),
    "nebius/suspected": Case(
        with_(condition("HardwareIssuesSuspected", "True", "GpuHealthCheck")),
        "GpuHealthCheck",
        "Degraded",
        "Inspect",
        [with_(condition("HardwareIssuesSuspected", "False"))],
    ),
    "nebius/maintenance": Case(
        with_(condition("NebiusMaintenanceScheduled", "True", "MaintenanceScheduled")),
        "NebiusMaintenanceScheduled",
        "Degraded",
        "None",
        [with_(condition("NebiusMaintenanceScheduled", "False"))],
        planned=True,
        repaired_by="nebius",
    ),
    "coreweave/state": Case(
        with_(labels={"node.coreweave.cloud/state": "triage"}),
        "CoreWeaveNotInProduction",
        "Degraded",
        "None",
        [with_(labels={"node.coreweave.cloud/state": "production"}), with_(labels={"node.coreweave.cloud/state": ""})],
        repaired_by="coreweave",
    ),
    "coreweave/pending": Case(
        with_(
            labels={
                "node.coreweave.cloud/state": "production",
                "node.coreweave.cloud/pending-state": "production-powerreset",
            }
        ),
        "CoreWeavePending",
        "Degraded",
        "None",
        [with_(labels={"node.coreweave.cloud/pending-state": ""})],
        repaired_by="coreweave",
    ),
    "coreweave/phase": Case(
        with_(condition("PendingPhaseState", "True", "production-powerreset")),
        "CoreWeavePending",
        "Degraded",
        "None",
        [with_(condition("PendingPhaseState", "False"))],
        repaired_by="coreweave",
    ),
    "soperator/drain": Case(
        with_(condition("SlurmNodeDrain", "True", "SlurmNodeDrain", "[node_problem]")),
        "SlurmNodeDrain",
        "Degraded",
        "Inspect",
        [with_(condition("SlurmNodeDrain", "False"))],
        repaired_by="soperator",
    ),
    "soperator/degraded": Case(
        with_(condition("SoperatorChecksNodeDegraded", "True", "NodeDegraded")),
        "NodeDegraded",
        "Degraded",
        "Inspect",
        [with_(condition("SoperatorChecksNodeDegraded", "False"))],
    ),
    "soperator/maintenance": Case(
        with_(condition("SoperatorChecksNodeMaintenance", "True", "NodeMaintenance")),
        "SoperatorMaintenance",
        "Degraded",
        "None",
        [with_(condition("SoperatorChecksNodeMaintenance", "False"))],
        planned=True,
        repaired_by="soperator",
    ),
    "autopilot/evict": Case(
        with_(labels={"autopilot.ibm.com/gpuhealth": "EVICT"}),
        "AutopilotEvict",
        "Degraded",
        "Inspect",
        [
            with_(labels={"autopilot.ibm.com/gpuhealth": "PASS"}),
            with_(labels={"autopilot.ibm.com/gpuhealth": "TESTING"}),
        ],
    ),
    "autopilot/warn": Case(
        with_(labels={"autopilot.ibm.com/gpuhealth": "WARN"}),
        "AutopilotWarn",
        "Warning",
        "Inspect",
        [with_(labels={"autopilot.ibm.com/gpuhealth": "PASS"})],
    ),
    "chs/failed": Case(
        with_(taint=("aiinfra/nccl-healthcheck", "failed", "NoSchedule")),
        "HealthCheckFailed",
        "Degraded",
        "Inspect",
        [with_(taint=("aiinfra/nccl-healthcheck", "passed", "NoSchedule"))],
    ),
    "chs/suspect": Case(
        with_(taint=("aiinfra/nccl-healthcheck", "suspect", "PreferNoSchedule")),
        "HealthCheckSuspect",
        "Warning",
        "Inspect",
        [with_(taint=("aiinfra/healthcheck", "suspect", "PreferNoSchedule"))],
    ),
    "chs/reboot": Case(
        with_(taint=("aiinfra/reboot-required", "true", "NoSchedule")),
        "RebootRequired",
        "Degraded",
        "Reboot",
        [with_(taint=("aiinfra/reboot-required", "false", "NoSchedule"))],
    ),
    "npd/kernel": Case(
        with_(condition("ReadonlyFilesystem", "True", "FilesystemIsReadOnly", "Remounting filesystem read-only")),
        "FilesystemIsReadOnly",
        "Degraded",
        "Reboot",
        [
            with_(condition("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly")),
            with_(condition("KernelDeadlock", "True", "DockerHung", at="2026-11-20T09:41:00Z")),
        ],
    ),
    "npd/disk": Case(
        with_(condition("DiskBadBlock", "True", "DiskBadBlock", "Buffer I/O error on device sdb, logical block 10")),
        "DiskBadBlock",
        "Degraded",
        "Inspect",
        [with_(condition("DiskBadBlock", "False", "DiskBadBlock"))],
    ),
    "npd/neuron": Case(
        with_(condition("NeuronHealth", "True", "NeuronHasError_SRAM_UNCORRECTABLE_ERROR")),
        "NeuronError",
        "Degraded",
        "Replace",
        [
            with_(condition("NeuronHealth", "False", "NeuronHasNoError")),
            with_(condition("NeuronHealth", "True", "NeuronHasNoError")),
        ],
    ),
    "npd/services": Case(
        with_(condition("FrequentUnregisterNetDevice", "True", "UnregisterNetDevice")),
        "UnregisterNetDevice",
        "Warning",
        "Inspect",
        [with_(condition("FrequentKubeletRestart", "False", "NoFrequentKubeletRestart"))],
    ),
    "kubernetes/ready": Case(
        with_(condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")),
        "NotReady",
        "Warning",
        "Inspect",
        [with_(condition("Ready", "False", "KubeletNotReady", at="2026-11-20T09:40:30Z"))],
    ),
    "kubernetes/maintenance": Case(
        with_(condition("MaintenancePlanned", "True", "FirmwareUpdate")),
        "FirmwareUpdate",
        "Degraded",
        "None",
        [with_(condition("MaintenancePlanned", "False"))],
        planned=True,
        repaired_by="kubernetes",
    ),
    "kubernetes/out-of-service": Case(
        with_(taint=("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")),
        "OutOfService",
        "Fatal",
        "Inspect",
        [with_(taint=("node.kubernetes.io/disk-pressure", "", "NoSchedule"))],
        repaired_by="kubernetes",
    ),
    "kubernetes/devices": Case(
        with_(allocatable=7),
        "DevicesUnhealthy",
        "Degraded",
        "Reset",
        [with_(allocatable=8)],
    ),
}


def signs(facts: NodeFacts, known: list[Finding] | None = None, **health: Any) -> list[Sign]:
    found = {(f.source, f.reason, f.subject): f for f in known or []}
    return rules(**health).signs(facts, found, NOW)[0]


def seen_before(source: str, reason: str) -> Finding:
    """A mark without a time of its own was seen an hour ago."""
    return Finding(source=source, reason=reason, since=after(-3600))


OF_CASES = [row for row in ROWS if row.removal is None]


def test_every_row_has_a_case() -> None:
    """Those of removals are files of the corpus: tests/unit/reports/test_marks.py."""
    assert set(CASES) == {row.name for row in ROWS if row.removal is None}, "each needs a Case here"
    assert len(ROWS) == len({row.name for row in ROWS})


@pytest.mark.parametrize("row", OF_CASES, ids=lambda row: row.name)
def test_a_row_is_read_from_the_node_as_its_system_writes_it(row: Any) -> None:
    case = CASES[row.name]
    facts = facts_of(json.loads(json.dumps(case.node)))
    (sign,) = [s for s in signs(facts, [seen_before(row.source, case.reason)]) if s.source == row.source]
    assert (sign.reason, sign.severity, sign.action) == (case.reason, case.weighs, case.action)
    assert sign.planned is case.planned
    assert sign.offence is (not case.planned and case.weighs in ("Degraded", "Fatal"))
    assert in_charge([sign], cordoned=False) == case.repaired_by
    assert sign.since <= after(-3600)


@pytest.mark.parametrize("row", OF_CASES, ids=lambda row: row.name)
def test_the_opposite_of_a_row_is_nothing(row: Any) -> None:
    for manifest in CASES[row.name].not_these:
        weighing = [
            s for s in signs(facts_of(manifest)) if s.source == row.source and s.reason == CASES[row.name].reason
        ]
        assert weighing == []


@pytest.mark.parametrize("row", OF_CASES, ids=lambda row: row.name)
def test_a_source_that_is_switched_off_says_nothing(row: Any) -> None:
    off = [{"name": row.source, "enabled": False}]
    assert [s for s in signs(facts_of(CASES[row.name].node), sources=off) if s.source == row.source] == []


def test_a_healthy_node_shows_no_sign() -> None:
    assert signs(facts_of(HEALTHY_NODE)) == []


def test_absence_is_nothing_known() -> None:
    bare = {"metadata": {"name": "n"}}
    assert rules().signs(facts_of(bare), {}, NOW) == ([], None)


def test_a_condition_that_is_too_young_counts_later() -> None:
    young = facts_of(with_(condition("KernelDeadlock", "True", "DockerHung", at="2026-11-20T09:41:00Z")))
    found, ripe = rules().signs(young, {}, NOW)
    assert (found, ripe) == ([], after(-7 + 30))
    assert [s.severity for s in rules().signs(young, {}, after(23))[0]] == [Severity.DEGRADED]


def test_a_mark_without_a_time_counts_from_when_it_was_first_seen() -> None:
    short = facts_of(with_(allocatable=0))
    (first,), ripe = rules().signs(short, {}, NOW)
    assert (first.severity, first.since, ripe) == (Severity.INFO, NOW, after(120))
    (later,), _ = rules().signs(short, {first.key: first.finding()}, after(120))
    assert (later.severity, later.since) == (Severity.DEGRADED, NOW)


def test_a_condition_that_is_dated_ahead_is_not_old() -> None:
    ahead = with_(condition("KernelDeadlock", "True", "DockerHung", at="2027-01-01T00:00:00Z"))
    assert rules().signs(facts_of(ahead), {}, NOW) == ([], after(30))


def test_what_a_silent_writer_said_stands() -> None:
    said = with_(condition(_EKS, "False", "NvidiaXID79Error"))
    (sign,) = signs(facts_of(said))
    silent = facts_of(with_(condition(_EKS, "Unknown", "NodeMonitoringAgentGone")))
    (still,) = signs(silent, [sign.finding()])
    assert (still.reason, still.severity, still.source) == ("NvidiaXID79Error", Severity.FATAL, "eks")
    assert signs(silent) == []


@pytest.mark.parametrize(
    ("code", "severity"), [(13, "Info"), (31, "Info"), (63, "Degraded"), (109, "Degraded"), (95, "Fatal")]
)
def test_an_xid_weighs_what_it_weighs_whoever_reports_it(code: int, severity: str) -> None:
    (sign,) = signs(facts_of(with_(condition(_EKS, "False", f"NvidiaXID{code}Error"))))
    assert sign.severity == severity


@pytest.mark.parametrize(
    ("message", "severity", "action"),
    [
        ("ErrorCode:31 PCI:0002:00:00 GPU_UUID:GPU-2 kernel: NVRM: Xid (PCI:0002:00:00): 31 Recommended Action=NONE;",
         "Warning", "None"),
        ("ErrorCode:DCGM_FR_XID_ERROR GPU:4 PCI:0000:c4:00.0 Detected XID 31 for GPU 4 .Recommended Action=NONE;",
         "Warning", "None"),
        ("ErrorCode:45 GPU:0 Recommended Action=NONE;ErrorCode:79 GPU:3 Recommended Action=RESTART_BM;", "Fatal",
         "Reboot"),
        ("ErrorCode:79 GPU:3 Recommended Action=RESTART_BM;ErrorCode:45 GPU:0 Recommended Action=NONE;", "Fatal",
         "Reboot"),
        ("ErrorCode:48 GPU:3 Recommended Action=COMPONENT_RESET;ErrorCode:64 GPU:3 Recommended Action=REPLACE_VM;",
         "Fatal", "Replace"),
        ("ErrorCode:44 GPU:0 Recommended Action=REPORT_ISSUE;ErrorCode:45 GPU:0 Recommended Action=NONE;", "Fatal",
         "Inspect"),
    ],
)  # fmt: skip
def test_of_several_faults_in_a_message_of_nvsentinel_the_gravest_counts(
    message: str, severity: str, action: str
) -> None:
    node = with_(condition("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy", message))
    (sign,) = signs(facts_of(node))
    assert (sign.severity, sign.action, sign.offence) == (severity, action, severity == "Fatal")


@pytest.mark.parametrize(
    ("source", "cordoned", "repaired_by"),
    [("eks", True, "eks"), ("eks", False, ""), ("autopilot", True, "")],
)
def test_a_cordon_says_that_those_who_cordon_have_begun(source: str, cordoned: bool, repaired_by: str) -> None:
    name = {"eks": "eks/hardware", "autopilot": "autopilot/evict"}[source]
    assert in_charge(signs(facts_of(CASES[name].node)), cordoned) == repaired_by


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("nvsentinel/state", "kubectl label node ip-10-0-3-17.ec2.internal dgxc.nvidia.com/nvsentinel-state-"),
        (
            "kubernetes/out-of-service",
            "kubectl taint node ip-10-0-3-17.ec2.internal node.kubernetes.io/out-of-service-",
        ),
        ("aws-nth/spot", ""),
        ("eks/hardware", ""),
    ],
)
def test_a_mark_that_may_be_left_behind_names_the_command_that_removes_it(name: str, command: str) -> None:
    node = CASES[name].node if name != "aws-nth/spot" else with_(taint=(_SPOT, "event", "NoSchedule"))
    [message] = {sign.message for sign in signs(facts_of(node)) if sign.source == name.partition("/")[0]}
    assert f"`{command}`" in message if command else "kubectl" not in message


def test_rules_of_the_policy_are_rows_too() -> None:
    own = [
        {"name": "a", "condition": {"type": "GpuSick", "reason": "Burnt"}, "severity": "Fatal", "action": "Replace"},
        {"name": "b", "condition": {"type": "example.org/Fit", "badWhenFalse": True}, "severity": "Warning"},
        {"name": "c", "label": {"key": "example.org/gpu.health"}, "severity": "Degraded", "planned": True},
        {"name": "d", "taint": {"key": "example.org/repair", "value": "yes"}, "severity": "Degraded"},
    ]
    node = with_(
        condition("GpuSick", "True", "Burnt"),
        condition("example.org/Fit", "False", "Tired"),
        labels={"example.org/gpu.health": "bad"},
        taint=("example.org/repair", "yes", "NoSchedule"),
    )
    found = {s.source: (s.reason, s.severity, s.action, s.planned) for s in signs(facts_of(node), rules=own)}
    assert found == {
        "rule/a": ("Burnt", "Fatal", "Replace", False),
        "rule/b": ("Tired", "Warning", "None", False),
        "rule/c": ("MarkedByRule", "Degraded", "None", True),
        "rule/d": ("MarkedByRule", "Degraded", "None", False),
    }
    others = with_(
        condition("GpuSick", "True", "Dusty"),
        condition("example.org/Fit", "True", "Rested"),
        labels={"example.org/gpuXhealth": "bad"},
        taint=("example.org/repair", "no", "NoSchedule"),
    )
    assert signs(facts_of(others), rules=own) == []


class TestProblems:
    @pytest.mark.parametrize(
        ("health", "says"),
        [
            pytest.param(
                {"enforcement": "Observe", "budgets": [{"nodes": "5%"}]}, "health.budgets has no effect", id="observe"
            ),
            pytest.param(
                {"rules": [{"name": "eks", "condition": {"type": _EKS, "badWhenFalse": True}, "severity": "Warning"}]},
                "matches marks that eks/hardware (Fatal) matches, too",
                id="against a row of the table",
            ),
            pytest.param(
                {
                    "rules": [
                        {"name": "a", "label": {"key": "x/y"}, "severity": "Warning"},
                        {"name": "b", "label": {"key": "x/y", "value": "z"}, "severity": "Fatal"},
                    ]
                },
                "a (Warning) and b (Fatal) can match the same mark",
                id="two rules that overlap",
            ),
            pytest.param(
                {
                    "rules": [
                        {"name": "a", "condition": {"type": "T"}, "severity": "Warning"},
                        {"name": "b", "condition": {"type": "T", "reason": "R"}, "severity": "Fatal"},
                    ]
                },
                "The stronger counts",
                id="two conditions that overlap",
            ),
            pytest.param(
                {
                    "rules": [
                        {"name": "a", "taint": {"key": "x/t"}, "severity": "Warning"},
                        {"name": "b", "taint": {"key": "x/t", "value": "v"}, "severity": "Fatal"},
                    ]
                },
                "The stronger counts",
                id="two taints that overlap",
            ),
            pytest.param(
                {
                    "sources": [
                        {"name": name, "enabled": False}
                        for name in [*{row.source for row in ROWS}, "agent", "burn-in", "jobs"]
                    ]
                },
                "switches off every source",
                id="nothing is listened to",
            ),
        ],
    )
    def test_a_contradiction_is_told_with_what_to_do(self, health: dict[str, Any], says: str) -> None:
        assert any(says in problem for problem in rules(**health).problems)

    @pytest.mark.parametrize(
        "health",
        [
            {},
            {"enforcement": "Observe"},
            {"budgets": [{"nodes": "30%"}]},
            {
                "sources": [{"name": "eks", "enabled": False}],
                "rules": [{"name": "eks", "condition": {"type": _EKS, "badWhenFalse": True}, "severity": "Warning"}],
            },
            {
                "rules": [
                    {"name": "a", "label": {"key": "x/y", "value": "1"}, "severity": "Warning"},
                    {"name": "b", "label": {"key": "x/y", "value": "2"}, "severity": "Fatal"},
                ]
            },
        ],
    )
    def test_what_makes_sense_is_no_problem(self, health: dict[str, Any]) -> None:
        assert rules(**health).problems == ()


def test_the_patterns_of_conditions_do_not_overlap_within_a_source() -> None:
    for case_name, case in CASES.items():
        row = next(row for row in ROWS if row.name == case_name)
        if isinstance(row.mark, Condition):
            assert len([s for s in signs(facts_of(case.node)) if s.source == row.source]) == 1
