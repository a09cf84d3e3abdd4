"""Faults of test nodes that their agents see, switched while all runs.

The nodes of the local cluster share a kernel and have no GPU. So each node's agent looks at files of its own instead:
the kernel log and the identity that the cluster gives to every node, and beside them a boot id, InfiniBand ports and
the control file of a fake NVML (tests/fakes/nvml). Whatever judges or acts on what the agent sees is the real thing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from localcluster.cluster import Cluster
from localcluster.layout import IDENTITY_IN_NODE
from testbed.kube import Kubectl

AGENT_NAMESPACE = "muster-agent"
CHECKER_NAMESPACE = "muster-check"
GPUS = 8
PORTS = ("mlx5_0", "mlx5_1")
ISCSI_DISK, EBS_VOLUME = "sdb", "nvme1"

HOOK = Path(__file__).with_name("sitecustomize.py")
"""Makes probes bad, see there; `fault` beside it says how."""
_FOLDER = "faults"
_IN_POD = "/node"
_LIBRARY = "libnvidia-ml.so.1"
_NO_LIBC = "libc.so.6"
_FIRST_BUS = 0x10
"""Of the fake NVML's first GPU."""
_FIRST_SERIAL = 1650000000001
_OURS = "set by the test bed"
_THRESHOLDS = {
    # How soon a fault is seen is left as it is in production, but for a driver that hangs: it is told when its start
    # hangs, too.
    "nvml.start_deadline": 30,
    # These say how long a repaired node has to wait.
    "gpu.clear": 1,
    "nvml.clear": 1,
    "infiniband.clear": 1,
    "clear.growth": 1,
    "machine.period": 1,
    "nvml.retry_period": 2,
    "write.check": 2,
    "write.counts": 2,
}


def agent_patch() -> dict[str, Any]:
    """What makes the installed agents look at their node's files; it needs no privilege for them."""
    faults = f"{_IN_POD}/{_FOLDER}"
    environment = {
        "MUSTER_KERNEL_LOG": f"{_IN_POD}/kmsg",
        "MUSTER_SYSTEM_UUID_FILE": f"{_IN_POD}/machine_id",
        "MUSTER_BOOT_ID_FILE": f"{faults}/boot_id",
        "MUSTER_SYSFS": f"{faults}/sys",
        "MUSTER_THRESHOLDS": f"{faults}/thresholds.json",
        "FAKE_NVML_CONTROL": f"{faults}/nvml",
        "LD_LIBRARY_PATH": f"{faults}/lib",
    }
    container = {
        "name": "agent",
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "node", "mountPath": _IN_POD, "readOnly": True}],
    }
    # Agents that run already take other thresholds for a reason to start anew.
    metadata = {"annotations": {"thresholds": json.dumps(_THRESHOLDS)}}
    volume = {"name": "node", "hostPath": {"path": IDENTITY_IN_NODE, "type": "Directory"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "muster-agent", "namespace": AGENT_NAMESPACE},
        "spec": {"template": {"metadata": metadata, "spec": {"containers": [container], "volumes": [volume]}}},
    }


def checker_patch() -> dict[str, Any]:
    """What makes the installed checkers' probes as bad as their node's files say; the product knows nothing of it."""
    container = {
        "name": "checker",
        "env": [
            {"name": "PYTHONPATH", "value": f"{_IN_POD}/{_FOLDER}/probes:/muster"},
            {"name": "MUSTER_BOOT_ID_FILE", "value": f"{_IN_POD}/{_FOLDER}/boot_id"},
        ],
        "volumeMounts": [{"name": "node", "mountPath": _IN_POD, "readOnly": True}],
    }
    volume = {"name": "node", "hostPath": {"path": IDENTITY_IN_NODE, "type": "Directory"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "muster-check", "namespace": CHECKER_NAMESPACE},
        "spec": {"template": {"spec": {"containers": [container], "volumes": [volume]}}},
    }


class Faults:
    """Breaks and repairs nodes of the local cluster."""

    def __init__(self, cluster: Cluster, kubectl: Kubectl) -> None:
        self._cluster = cluster
        self._kubectl = kubectl
        described = cluster.describe()["nodes"]
        self._logs = {node["name"]: Path(node["kernel_log"]["host"]) for node in described}

    def prepare(self, nvml: Path | None) -> None:
        """Give every node what its agent looks at, all of it well.

        Args:
            nvml: folder with the fake NVML's library; None: the nodes have no driver.
        """
        for node in self._logs:
            folder = self._folder(node)
            (folder / "lib").mkdir(parents=True, exist_ok=True)
            (folder / "lib" / _NO_LIBC).unlink(missing_ok=True)
            if nvml is None:
                (folder / "lib" / _LIBRARY).unlink(missing_ok=True)
            else:
                _replace(folder / "lib" / _LIBRARY, nvml / _LIBRARY)
            _write(folder / "thresholds.json", json.dumps(_THRESHOLDS))
            (folder / "probes").mkdir(exist_ok=True)
            _write(folder / "probes" / HOOK.name, HOOK.read_text())
            self.clear(node)
            self._boot_is_the_kubelets(node)

    # --- faults -------------------------------------------------------------------------------------------------------

    def xid(self, node: str, code: int, gpu: int = 0) -> None:
        """The driver reports an error of a GPU in the node's kernel log."""
        address = f"PCI:0000:{_FIRST_BUS + gpu:02x}:00"
        self._log(node, f"NVRM: Xid ({address}): {code}, pid=4242, name=python3")

    def storage_blip(self, node: str) -> None:
        """The storage behind the network is away for a moment: a Ceph image, an iSCSI disk and an EBS volume have
        errors.

        What the kernel writes is as of drivers/block/rbd.c, block/blk-core.c and fs/buffer.c, with the names of
        operations of Linux 6.
        """
        self._network_disks(node)
        lines = (
            "rbd: rbd0: write at objno 512 0~4194304 result -108",
            "I/O error, dev rbd0, sector 4194304 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2",
            "Buffer I/O error on dev rbd0, logical block 524288, lost async page write",
            f"I/O error, dev {ISCSI_DISK}, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
            f"I/O error, dev {EBS_VOLUME}n1, sector 8192 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2",
        )
        for line in lines:
            self._log(node, line)

    def recovery_action(self, node: str, action: int, gpu: int = 0) -> None:
        """The driver says what to do about a GPU: NVML's field 230."""
        self._nvml(node, f"recovery_action={action}@gpu{gpu}")

    def hang(self, node: str, seconds: int) -> None:
        """Every call of NVML takes so long."""
        self._nvml(node, f"hang_seconds={seconds}")

    def lose_gpu(self, node: str) -> None:
        self._nvml(node, f"count={GPUS - 1}")

    def probe(self, node: str, fault: str) -> None:
        """The node's probes are as bad as this from now on (testbed/sitecustomize.py): "flip", "hang", "no-torch", or
        "" for well."""
        _write(self._folder(node) / "probes" / "fault", fault)

    def lose_torch(self, node: str) -> None:
        """The node's checker finds no torch any more, from the next process on that looks for it."""
        self.probe(node, "no-torch")
        for pod in self._pods_on(node, CHECKER_NAMESPACE):
            for process in self._cluster.pids_of(node, CHECKER_NAMESPACE, pod):
                if "muster.node.checker.probes.zygote" in process.command:
                    os.kill(process.pid, signal.SIGKILL)

    def slow_cpu(self, node: str, processors: float = 0.1) -> None:
        """All containers of the node together have so much of a processor."""
        self._cluster.slow_cpu(node, processors)

    def slow_link(self, node: str, megabits: int = 200) -> None:
        """No more than so many megabits a second leave the node."""
        self._cluster.slow_link(node, megabits)

    def lossy_link(self, node: str, percent: int = 10) -> None:
        """Of the packets that come to the node or go from it, so many are lost at random; of two in a hundred TCP
        repairs most."""
        at_random = [f"numgen random mod 100 < {percent}"]
        self._cluster.lose(node, at_random, at_random)

    def port_down(self, node: str, device: str = PORTS[0]) -> None:
        self._port(node, device, "1: DOWN", "3: Disabled")

    def kill_agent(self, node: str) -> None:
        """The node's agent ends, and whatever is started in its place: it finds a C library that is none."""
        _write(self._folder(node) / "lib" / _NO_LIBC, "")
        for pod in self._pods_on(node, AGENT_NAMESPACE):
            for process in self._cluster.pids_of(node, AGENT_NAMESPACE, pod):
                with suppress(ProcessLookupError):  # its children end with it
                    os.kill(process.pid, signal.SIGKILL)

    def condition(self, node: str, kind: str, status: str, reason: str = "") -> None:
        """Somebody else sets a condition of the Node."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"lastTransitionTime": now, "lastHeartbeatTime": now}
        self._patch_conditions(
            node, [{"type": kind, "status": status, "reason": reason or kind, "message": _OURS, **times}]
        )

    # --- repairs ------------------------------------------------------------------------------------------------------

    def clear(self, node: str) -> None:
        """Repair what can be repaired while the node runs; its kernel log stays."""
        self._nvml(node)
        self.probe(node, "")
        for device in PORTS:
            self._port(node, device, "4: ACTIVE", "5: LinkUp")
        conditions = self._kubectl.json("get", "node", node)["status"]["conditions"]
        ours = [{"type": c["type"], "$patch": "delete"} for c in conditions if c.get("message") == _OURS]
        if ours:
            self._patch_conditions(node, ours)

    def revive_agent(self, node: str) -> None:
        """Let the node have an agent again, without the kubelet's pause after so many that have ended."""
        (self._folder(node) / "lib" / _NO_LIBC).unlink()
        for pod in self._pods_on(node, AGENT_NAMESPACE):
            self._kubectl("delete", "pod", "-n", AGENT_NAMESPACE, pod, "--wait=false")

    def reboot(self, node: str, *, repaired: bool = True) -> None:
        """Have another boot id and a new kernel log, and repair everything else, too, or not.

        No process ends: of a boot the agent sees nothing else.
        """
        if repaired:
            self.clear(node)
        self._logs[node].write_text("")
        _write(self._folder(node) / "boot_id", f"{uuid.uuid4()}\n")

    def power_cycle(self, node: str) -> None:
        """The machine really boots, every process of it ends, and all its hardware is well after that."""
        self._cluster.power_off(node)
        self.clear(node)
        self._logs[node].write_text("")
        self._boot_is_the_kubelets(node)
        self._cluster.power_on(node)

    def repair(self) -> None:
        """Make every node well again, for whatever it was bad; links and processors of those that are off are."""
        for node, log in self._logs.items():
            if self._cluster.is_on(node):
                self._cluster.heal(node)
            if (self._folder(node) / "lib" / _NO_LIBC).exists():
                self.revive_agent(node)
            if log.read_text():
                self.reboot(node)
            else:
                self.clear(node)

    def _pods_on(self, node: str, namespace: str) -> list[str]:
        listed = self._kubectl.json("get", "pods", "-n", namespace, "--field-selector", f"spec.nodeName={node}")
        return [pod["metadata"]["name"] for pod in listed["items"]]

    # --- files --------------------------------------------------------------------------------------------------------

    def _folder(self, node: str) -> Path:
        return self._logs[node].parent / _FOLDER

    def _boot_is_the_kubelets(self, node: str) -> None:
        """The agent reads the id that the kubelet tells, too, until the node is only said to boot."""
        file = self._folder(node) / "boot_id"
        file.unlink(missing_ok=True)
        file.symlink_to("../boot_id")

    def _nvml(self, node: str, *lines: str) -> None:
        number = sorted(self._logs).index(node)
        well = (f"gpus={GPUS}", f"serial={_FIRST_SERIAL + number * GPUS}")
        _write(self._folder(node) / "nvml", "".join(f"{line}\n" for line in (*well, *lines)))

    def _log(self, node: str, message: str) -> None:
        with self._logs[node].open("a") as log:
            log.write(f"4,1,{time.monotonic() * 1e6:.0f},-;{message}\n")

    def _network_disks(self, node: str) -> None:
        """In the node's sysfs: an iSCSI disk and a volume of Amazon's EBS, as the kernel documents their places."""
        sys = self._folder(node) / "sys"
        disk = sys / "devices" / "platform" / "host7" / "session3" / "target7:0:0" / "7:0:0:0" / "block" / ISCSI_DISK
        controller = sys / "class" / "nvme" / EBS_VOLUME
        for folder in (disk / "device", controller, sys / "class" / "block"):
            folder.mkdir(parents=True, exist_ok=True)
        link = sys / "class" / "block" / ISCSI_DISK
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(disk, link.parent))
        _write(controller / "model", "Amazon Elastic Block Store\n")
        _write(controller / "transport", "pcie\n")

    def _port(self, node: str, device: str, state: str, physical: str) -> None:
        folder = self._folder(node) / "sys" / "class" / "infiniband" / device / "ports" / "1"
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "state", f"{state}\n")
        _write(folder / "phys_state", f"{physical}\n")

    def _patch_conditions(self, node: str, conditions: list[dict[str, str]]) -> None:
        patch = json.dumps({"status": {"conditions": conditions}})
        self._kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "-p", patch)


def _write(path: Path, text: str) -> None:
    """At once, so that nobody reads half of it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.rename(path)


def _replace(path: Path, source: Path) -> None:
    """A running program keeps the old file."""
    new = path.with_name(f".{path.name}.new")
    shutil.copy(source, new)
    new.rename(path)
