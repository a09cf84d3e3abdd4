"""The cluster as its users handle it: start, images, faults, volumes, and removal without a trace."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from localcluster import cgroups, images, inotify, kernel
from localcluster.api import Api, ApiError, api_of_kubeconfig, wait_for
from localcluster.build import Say, binaries, say
from localcluster.cache import digest_of_file, locked
from localcluster.controlplane import free_port
from localcluster.errors import LocalClusterError
from localcluster.layout import (
    CLONE,
    DEFAULT_NAME,
    IDENTITY_IN_NODE,
    MARK,
    MAXIMUM_NODES,
    SHARED_IN_NODE,
    Layout,
    Node,
    clone_id,
    cluster_id,
    clusters_folder,
    known_ids,
    load_layout,
    output_folder,
    state_folder,
)
from localcluster.machine import install_missing, require_root
from localcluster.node import CONTAINERD_SOCKET, LINK
from localcluster.patience import PATIENCE_SECONDS
from localcluster.processes import log_tail
from localcluster.supervisor import UNSHARE

GPU_RESOURCE = "nvidia.com/gpu"
GPUS_PER_NODE = 8
STORAGE_CLASS = "shared"
_READY_MADE_VOLUMES = 16
_VOLUME_SIZE = "100Gi"
_POLL_SECONDS = 0.02
_TOOLS = Path(__file__).resolve().parents[1]
_FAULT_TABLE = "localcluster_fault"
# Declaring it first makes deleting what is not there no error.
_NO_FAULT = f"table inet {_FAULT_TABLE} {{}}\ndelete table inet {_FAULT_TABLE}\n"
# What tbf lets through at once, and how long packets wait in it.
_BURST, _QUEUE = "64kb", "50ms"
_TAINTS_OF_AN_ABSENT_NODE = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}

# What this process started itself: collected when it ends, so that no zombie is left in a process that calls both.
_STARTED: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class ContainerProcess:
    """A process of a container; `pid` is the host's."""

    pid: int
    command: tuple[str, ...]


@dataclass(frozen=True)
class SharedVolume:
    """A ReadWriteMany volume; `folder` is its content on the host."""

    name: str
    folder: Path


class Cluster:
    """The cluster `name` of a clone, running or not."""

    def __init__(self, name: str = DEFAULT_NAME, clone: Path = CLONE) -> None:
        self.name = name
        self.clone = clone
        self.id = cluster_id(name, clone)
        self.state = state_folder(self.id)
        self.output = output_folder(name, clone)

    # --- life -------------------------------------------------------------------------------------------------------

    def up(self, nodes: int = 4, archives: Sequence[Path] = (), progress: Say = say) -> None:
        """Bring the cluster to `nodes` Ready nodes; what runs already stays. `archives` are loaded at the start.

        Without `archives` the nodes start with what was loaded last time.
        """
        if not 1 <= nodes <= MAXIMUM_NODES:
            raise LocalClusterError(f"--nodes must be from 1 to {MAXIMUM_NODES}")
        require_root()
        install_missing(progress)
        programs = binaries(progress)
        with self._command():
            if not self._runs_with(nodes, programs):
                self._remove(progress)
                inotify.make_room(nodes, progress)
                self._start(nodes, programs, list(archives) or self._remembered_archives(), progress)
            elif archives:
                self._load(archives, progress)
            self._settle(progress)

    def down(self, progress: Say = say) -> None:
        """End the cluster and remove all that belongs to it, in whatever state it is."""
        require_root()
        with self._command():
            self._remove(progress)

    def load(self, archives: Sequence[Path], progress: Say = say) -> None:
        """Make the images of the archives available on every node."""
        require_root()
        with self._command():
            self._layout()
            self._load(archives, progress)

    def runs(self) -> bool:
        """Whether the cluster is up and answers."""
        try:
            self._ask("running_nodes")
        except (LocalClusterError, OSError):
            return False
        return True

    # --- what a user of the cluster needs -----------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        return self.output / "kubeconfig"

    @property
    def kubectl(self) -> Path:
        """The kubectl program of the cluster's version."""
        return self._layout().programs / "kubectl"

    @property
    def api(self) -> Api:
        """The API server as the administrator sees it."""
        return api_of_kubeconfig(self.state / "kubeconfig", self._layout().control_plane / "pki" / "ca.crt")

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self._layout().nodes)

    def describe(self) -> dict[str, Any]:
        """What is written to cluster.json."""
        layout = self._layout()
        pids = self._node_pids()
        return {
            "id": self.id,
            "name": self.name,
            "kubeconfig": str(self.kubeconfig),
            "kubectl": str(layout.programs / "kubectl"),
            "server": self.api.server,
            "state": str(layout.state),
            "logs": str(layout.logs),
            "supervisor_pid": self._supervisor_pid(),
            "storage_class": STORAGE_CLASS,
            "shared_volumes": {"host": str(layout.shared), "node": SHARED_IN_NODE},
            "nodes": [self._describe_node(node, pids.get(node.name)) for node in layout.nodes],
        }

    @staticmethod
    def _describe_node(node: Node, pid: int | None) -> dict[str, Any]:
        return {
            "name": node.name,
            "address": node.address,
            "pod_network": node.pod_network,
            "labels": node.labels,
            "pid": pid,
            "containerd_socket": None if pid is None else f"/proc/{pid}/root{CONTAINERD_SOCKET}",
            "logs": str(node.state / "log"),
            "boot_id_file": {"host": str(node.identity / "boot_id"), "node": f"{IDENTITY_IN_NODE}/boot_id"},
            "machine_id_file": {"host": str(node.identity / "machine_id"), "node": f"{IDENTITY_IN_NODE}/machine_id"},
            "kernel_log": {"host": str(node.identity / "kmsg"), "node": f"{IDENTITY_IN_NODE}/kmsg"},
        }

    def make_shared_volume(self, name: str, claim_namespace: str | None = None) -> SharedVolume:
        """Make an empty ReadWriteMany volume `name` of class `shared`.

        With `claim_namespace` only the claim `name` of that namespace can bind it; otherwise any claim may.
        """
        layout = self._layout()
        folder = layout.shared / name
        if not self._is_gone(f"/api/v1/persistentvolumes/{name}"):
            self._forget_volume(name)
        folder.mkdir(exist_ok=True)
        # Pods of any user share it, as they would a cluster filesystem with their own directories.
        folder.chmod(0o777)
        claim = {} if claim_namespace is None else {"claimRef": {"namespace": claim_namespace, "name": name}}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "capacity": {"storage": _VOLUME_SIZE},
                "hostPath": {"path": f"{SHARED_IN_NODE}/{name}", "type": "Directory"},
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": STORAGE_CLASS,
                **claim,
            },
        }
        self.api.apply(f"/api/v1/persistentvolumes/{name}", volume)
        return SharedVolume(name, folder)

    def recycle_shared_volumes(self) -> None:
        """Empty the ready-made volumes whose claims were deleted, and offer them again."""
        volumes = {item["metadata"]["name"]: item for item in self.api.get("/api/v1/persistentvolumes")["items"]}
        for number in range(1, _READY_MADE_VOLUMES + 1):
            name = f"shared-{number}"
            if name not in volumes or volumes[name]["status"].get("phase") == "Released":
                self.make_shared_volume(name)

    def folder_of_claim(self, namespace: str, claim: str) -> Path:
        """The host's folder with the content of a claim; waits until it is bound."""

        def volume() -> str:
            found = self.api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
            return str(found["spec"].get("volumeName", ""))

        wait_for(lambda: volume() != "", f"claim {namespace}/{claim} bound", PATIENCE_SECONDS)
        return self._layout().shared / volume()

    def node_exec(self, node: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program of the host inside a node, as its root would."""
        return subprocess.run(self._enter(node, argv), capture_output=True, text=True, check=False)

    def networks_of(self, node: str) -> tuple[str, str]:
        """The node's own address, and the network of its pods."""
        self._check_node(node)
        found = self._layout().node(node)
        return found.address, found.pod_network

    def pids_of(
        self, node: str, pod_namespace: str, pod_name: str, container: str | None = None
    ) -> tuple[ContainerProcess, ...]:
        """The running processes of a pod's container (of all its containers without `container`), parents first."""
        pod = self.api.get(f"/api/v1/namespaces/{pod_namespace}/pods/{pod_name}")
        statuses = [
            status
            for kind in ("initContainerStatuses", "containerStatuses")
            for status in pod.get("status", {}).get(kind, [])
            if container in (None, status["name"]) and "containerID" in status
        ]
        groups = [str(status["containerID"]).rpartition("/")[2] for status in statuses]
        pids = [pid for group in groups for pid in cgroups.pids_below(self.id, node, group)]
        found = [process for process in map(kernel.read_process, pids) if process is not None]
        # The host's ids begin anew after 32,768; in its own namespace a container's first process is 1.
        found.sort(key=lambda process: process.namespace_pids[-1])
        return tuple(ContainerProcess(process.pid, process.command) for process in found)

    # --- faults -------------------------------------------------------------------------------------------------------

    def power_off(self, node: str) -> None:
        """Cut the power: no packet leaves any more, then every process of the node is gone."""
        self._check_node(node)
        self._ask("power_off", node)
        self._write_description()

    def power_on(self, node: str) -> None:
        """Boot the node (new boot id, same machine id, same images) and wait until it is Ready again."""
        self._check_node(node)
        self._ask("power_on", node)
        self._wait_until_ready([node])
        self._write_description()

    def boot(self, node: str) -> None:
        """Like `power_on`, without waiting until it is Ready."""
        self._check_node(node)
        self._ask("power_on", node)

    def is_on(self, node: str) -> bool:
        self._check_node(node)
        return node in self._node_pids()

    def drop_packets(self, node: str) -> None:
        """Lose every packet that leaves or reaches the node, silently, until `heal`."""
        self._check_node(node)
        self._lose(node, f"iifname {LINK} drop;", f"oifname {LINK} drop;")

    def cut_off(self, nodes: Sequence[str]) -> None:
        """Lose every packet between these nodes and all others, as if their rack's uplink failed, until `heal` of each.

        What they send each other arrives.
        """
        for node in nodes:
            self._check_node(node)
        networks = ", ".join(network for node in nodes for network in self.networks_of(node))
        for node in nodes:
            self._lose(
                node,
                f"iifname {LINK} ip saddr != {{ {networks} }} drop;",
                f"oifname {LINK} ip daddr != {{ {networks} }} drop;",
            )

    def lose(self, node: str, arriving: Sequence[str], leaving: Sequence[str]) -> None:
        """Lose the packets over the node's cable that match, until `heal` or the next such call.

        Args:
            node: which.
            arriving: of those that come to it, nftables expressions ("ip saddr 10.90.0.1"); "" for every packet.
            leaving: of those that go from it.
        """
        self._check_node(node)
        comes = " ".join(f"iifname {LINK} {match} drop;" for match in arriving)
        goes = " ".join(f"oifname {LINK} {match} drop;" for match in leaving)
        self._lose(node, comes, goes)

    def _lose(self, node: str, arriving: str, leaving: str) -> None:
        rules = "".join(
            f"chain {hook} {{ type filter hook {hook} priority -400; policy accept; {matches} }}\n"
            for hook, matches in (("input", arriving), ("output", leaving), ("forward", arriving + leaving))
        )
        self._nft(node, f"{_NO_FAULT}table inet {_FAULT_TABLE} {{\n{rules}}}\n")

    def slow_link(self, node: str, megabits: int) -> None:
        """Let so many megabits a second leave the node over its cable, until `heal`."""
        shape = ["tbf", "rate", f"{megabits}mbit", "burst", _BURST, "latency", _QUEUE]
        done = self.node_exec(node, ["tc", "qdisc", "replace", "dev", LINK, "root", *shape])
        if done.returncode != 0:
            raise LocalClusterError(f"tc failed on {node}: {done.stderr.strip()}")

    def slow_cpu(self, node: str, processors: float) -> None:
        """Let all containers of the node together have so much of a processor, until `heal`."""
        self._check_node(node)
        cgroups.limit_cpu(self.id, node, processors)

    def heal(self, node: str) -> None:
        """End `drop_packets`, `cut_off`, `lose`, `slow_link` and `slow_cpu`."""
        self._check_node(node)
        self._nft(node, _NO_FAULT)
        self.node_exec(node, ["tc", "qdisc", "delete", "dev", LINK, "root"])  # fails where there is none
        cgroups.limit_cpu(self.id, node, None)

    @contextmanager
    def frozen_kubelet(self, node: str) -> Iterator[None]:
        """The node's kubelet does nothing, heartbeats included; what runs there goes on."""
        self.freeze_kubelet(node)
        try:
            yield
        finally:
            self.thaw_kubelet(node)

    def freeze_kubelet(self, node: str) -> None:
        """The same, until `thaw_kubelet`."""
        self._signal_kubelet(node, "STOP")

    def thaw_kubelet(self, node: str) -> None:
        self._signal_kubelet(node, "CONT")

    def freeze_node(self, node: str) -> None:
        """Nothing on the node runs, containers or services; its packets are another matter (`lose`)."""
        self._check_node(node)
        cgroups.freeze_below(self.id, node)
        self._signal_services(node, "STOP")

    def thaw_node(self, node: str) -> None:
        """Let everything run again that was frozen on the node, whether alone or all together; nothing when it is
        off."""
        self._check_node(node)
        cgroups.thaw_below(self.id, node)
        if node in self._node_pids():
            self._signal_services(node, "CONT")

    def _signal_services(self, node: str, name: str) -> None:
        self.node_exec(node, ["pkill", f"-{name}", "^(containerd|kubelet|kube-proxy)$"])

    def _signal_kubelet(self, node: str, name: str) -> None:
        done = self.node_exec(node, ["pkill", f"-{name}", "-x", "kubelet"])
        if done.returncode != 0:
            raise LocalClusterError(f"no kubelet on {node}: {done.stderr.strip()}")

    def restart_apiserver(self) -> None:
        """Kill and start the API server; returns when it serves."""
        self._ask("restart_apiserver")

    def stop_apiserver(self) -> None:
        """Kill the API server until `start_apiserver`."""
        self._ask("stop_apiserver")

    def start_apiserver(self) -> None:
        self._ask("start_apiserver")

    def pause_control_plane(self) -> None:
        """Freeze etcd, API server, controller manager and scheduler: connections stay open and get no answer."""
        self._ask("pause_control_plane")

    def resume_control_plane(self) -> None:
        self._ask("resume_control_plane")

    # --- starting -----------------------------------------------------------------------------------------------------

    def _start(self, nodes: int, programs: Path, archives: Sequence[Path], progress: Say) -> None:
        started = time.monotonic()
        layout = Layout(self.name, self.clone, self.state, nodes, programs)
        loaded = {archive.name: digest_of_file(archive) for archive in archives}
        store = images.store(archives, loaded, programs, progress)
        for folder in (layout.state, layout.logs, layout.shared):
            folder.mkdir(parents=True, exist_ok=True)
        layout.save()
        with ThreadPoolExecutor(nodes) as pool:
            list(pool.map(lambda node: self._fill_store(node, store, loaded), layout.nodes))
        self._remember(archives)
        progress(f"image stores of {nodes} nodes: {time.monotonic() - started:.1f} s")
        self._start_supervisor(layout)
        progress(f"control plane ready: {time.monotonic() - started:.1f} s")

    def _start_supervisor(self, layout: Layout) -> None:
        log = layout.logs / "supervisor.log"
        with socket.socket() as listener, self._alive_lock.open("a") as alive, log.open("ab") as output:
            # Held by the supervisor for as long as it lives, and inherited before it can be found by its mark.
            fcntl.flock(alive, fcntl.LOCK_EX)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", free_port()))
            listener.listen(128)
            process = subprocess.Popen(
                [*UNSHARE, sys.executable, "-m", "localcluster.supervisor", str(layout.state), str(listener.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(listener.fileno(), alive.fileno()),
                env=_environment_without_proxies() | {MARK: self.id, "PYTHONPATH": str(_TOOLS)},
            )
        _STARTED.append(process)
        end = time.monotonic() + PATIENCE_SECONDS
        while not layout.control_socket.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise LocalClusterError(f"the cluster did not start; {log} says:\n{log_tail(log)}")
            time.sleep(_POLL_SECONDS)

    def _settle(self, progress: Say) -> None:
        """Everything that a start and a repeated `up` have in common."""
        started = time.monotonic()
        layout = self._layout()
        self._ask("resume_control_plane")
        self._ask("start_apiserver")
        with ThreadPoolExecutor(layout.node_count) as pool:
            list(pool.map(lambda node: self._ask("power_on", node.name), layout.nodes))
        for node in layout.nodes:
            self.heal(node.name)
        self._make_storage()
        self._wait_until_ready([node.name for node in layout.nodes])
        self._write_kubeconfig()
        self._write_description()
        progress(f"{layout.node_count} nodes Ready: {time.monotonic() - started:.1f} s after the control plane")
        progress(f"export KUBECONFIG={self.kubeconfig}")

    def _wait_until_ready(self, names: Sequence[str]) -> None:
        for name in names:
            wait_for(partial(self._is_ready, name), f"{name} Ready", PATIENCE_SECONDS)

    def _is_ready(self, name: str) -> bool:
        path = f"/api/v1/nodes/{name}"
        node = self.api.get(path)
        status = node["status"]
        boot_id = (self._layout().node(name).identity / "boot_id").read_text().strip()
        if status.get("nodeInfo", {}).get("bootID") != boot_id:
            return False
        gpus = str(GPUS_PER_NODE)
        if any(status.get(field, {}).get(GPU_RESOURCE) != gpus for field in ("capacity", "allocatable")):
            # A device plugin would report them; the kubelet keeps what it does not manage until the next boot.
            amounts = {GPU_RESOURCE: gpus}
            self.api.merge(f"{path}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
            return False
        taints = {taint["key"] for taint in node["spec"].get("taints", [])}
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
        return ready and not taints & _TAINTS_OF_AN_ABSENT_NODE

    def _make_storage(self) -> None:
        self.api.apply(
            f"/apis/storage.k8s.io/v1/storageclasses/{STORAGE_CLASS}",
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": STORAGE_CLASS},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "Immediate",
            },
        )
        self.recycle_shared_volumes()

    def _forget_volume(self, name: str) -> None:
        self.api.delete(f"/api/v1/persistentvolumes/{name}")
        wait_for(lambda: self._is_gone(f"/api/v1/persistentvolumes/{name}"), f"volume {name} removed", PATIENCE_SECONDS)
        shutil.rmtree(self._layout().shared / name, ignore_errors=True)

    def _is_gone(self, path: str) -> bool:
        try:
            self.api.get(path)
        except ApiError as error:
            if error.code == 404:
                return True
            raise
        return False

    def _write_kubeconfig(self) -> None:
        """Write it when the cluster comes up alone: later it is the user's, whose namespace may stand in it."""
        self.output.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.state / "kubeconfig", self._replacing(self.kubeconfig))
        self._replacing(self.kubeconfig).replace(self.kubeconfig)

    def _write_description(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        for name, target in (("kubectl", self.kubectl), ("logs", self._layout().logs)):
            (self.output / name).unlink(missing_ok=True)
            (self.output / name).symlink_to(target)
        description = self.output / "cluster.json"
        self._replacing(description).write_text(json.dumps(self.describe(), indent=2) + "\n")
        self._replacing(description).replace(description)

    @staticmethod
    def _replacing(path: Path) -> Path:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.touch(mode=0o600)
        return temporary

    # --- images -------------------------------------------------------------------------------------------------------

    def _load(self, archives: Sequence[Path], progress: Say) -> None:
        layout = self._layout()
        wanted = {archive.name: digest_of_file(archive) for archive in archives}
        lacking = [node for node in layout.nodes if wanted.items() - self._loaded(node).items()]
        if lacking:
            started = time.monotonic()
            # An empty node is rebooted around a new store: seconds, instead of unpacking again for every node.
            empty = [node for node in lacking if self._loaded(node).keys() <= wanted.keys() and self._is_idle(node)]
            store = images.store(archives, wanted, layout.programs, progress) if empty else None
            with ThreadPoolExecutor(len(lacking)) as pool:
                tasks = [
                    pool.submit(self._replace_store, node, store, wanted)
                    if store is not None and node in empty
                    else pool.submit(self._import_missing, node, archives, wanted)
                    for node in lacking
                ]
                for task in tasks:
                    task.result()
            self._wait_until_ready([node.name for node in lacking])
            self._write_description()
            progress(f"images on {len(lacking)} nodes: {time.monotonic() - started:.1f} s")
        self._remember(archives)

    def _replace_store(self, node: Node, store: Path, loaded: dict[str, str]) -> None:
        self._ask("power_off", node.name)
        self._fill_store(node, store, loaded)
        self._ask("power_on", node.name)

    def _import_missing(self, node: Node, archives: Sequence[Path], wanted: dict[str, str]) -> None:
        loaded = self._loaded(node)
        socket_path = Path(f"/proc/{self._require_node_pid(node.name)}/root{CONTAINERD_SOCKET}")
        for archive in archives:
            if loaded.get(archive.name) != wanted[archive.name]:
                images.import_into(socket_path, archive)
                loaded[archive.name] = wanted[archive.name]
                self._loaded_file(node).write_text(json.dumps(loaded))

    def _is_idle(self, node: Node) -> bool:
        return not self.api.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node.name}")["items"]

    def _fill_store(self, node: Node, store: Path, loaded: dict[str, str]) -> None:
        shutil.rmtree(node.containerd, ignore_errors=True)
        node.containerd.mkdir(parents=True)
        images.clone(store, node.containerd)
        self._loaded_file(node).write_text(json.dumps(loaded))

    @staticmethod
    def _loaded_file(node: Node) -> Path:
        return node.state / "loaded.json"

    def _loaded(self, node: Node) -> dict[str, str]:
        file = self._loaded_file(node)
        loaded: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        return loaded

    @property
    def _memory(self) -> Path:
        return clusters_folder() / f"{self.id}.images.json"

    def _remember(self, archives: Sequence[Path]) -> None:
        """Note what is loaded, outside the state folder, so that the next start has it at once."""
        known = {path.name: str(path) for path in self._remembered_archives()}
        known |= {archive.name: str(archive.absolute()) for archive in archives}
        self._memory.write_text(json.dumps(list(known.values())))

    def _remembered_archives(self) -> list[Path]:
        paths = json.loads(self._memory.read_text()) if self._memory.exists() else []
        return [Path(path) for path in paths if Path(path).exists()]

    # --- ending -------------------------------------------------------------------------------------------------------

    def _remove(self, progress: Say) -> None:
        started = time.monotonic()
        existed = self.state.exists()
        self._end_processes()
        cgroups.remove(self.id)
        if existed:
            shutil.rmtree(self.state)
        shutil.rmtree(self.output, ignore_errors=True)
        if not kernel.environment_values(MARK):
            inotify.give_back()
        if existed:
            progress(f"cluster {self.name} removed: {time.monotonic() - started:.1f} s")

    def _end_processes(self) -> None:
        """SIGKILL the cluster's first process, then whatever carries its mark, until nothing holds its lock."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            left = list(kernel.processes_with_environment(MARK, self.id))
            # The first process of the PID namespace takes all others with it, and `unshare` waits for that.
            first = [process for process in left if len(process.namespace_pids) > 1]
            for process in first or left:
                _send_kill(process.pid)
            for process_of_ours in _STARTED:
                process_of_ours.poll()
            if not left and self._is_lock_free():
                return
            if time.monotonic() > end:
                raise LocalClusterError(
                    f"processes {[p.pid for p in left]} of the cluster do not end: end them and run again"
                )
            time.sleep(_POLL_SECONDS)

    def _is_lock_free(self) -> bool:
        self._alive_lock.parent.mkdir(parents=True, exist_ok=True)
        with self._alive_lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    # --- plumbing -----------------------------------------------------------------------------------------------------

    @property
    def _command_lock(self) -> Path:
        return clusters_folder() / f"{self.id}.command.lock"

    @property
    def _alive_lock(self) -> Path:
        return clusters_folder() / f"{self.id}.alive.lock"

    @contextmanager
    def _command(self) -> Iterator[None]:
        """One command that changes the cluster at a time."""
        with locked(self._command_lock):
            yield

    def _layout(self) -> Layout:
        try:
            return load_layout(self.state)
        except FileNotFoundError as error:
            raise LocalClusterError(f"the cluster {self.name!r} is not up: run `make cluster-up` first") from error

    def _runs_with(self, nodes: int, programs: Path) -> bool:
        if not self.runs():
            return False
        layout = self._layout()
        return layout.node_count == nodes and layout.programs == programs

    def _ask(self, operation: str, argument: str = "") -> Any:
        """Have the supervisor do something and wait for its answer."""
        # Through the folder's descriptor: the length of a socket's path is limited.
        try:
            folder = os.open(self.state, os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError as error:
            raise LocalClusterError(f"the cluster {self.name!r} is not up: run `make cluster-up` first") from error
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PATIENCE_SECONDS)
                connection.connect(f"/proc/self/fd/{folder}/control.sock")
                with connection.makefile("rw") as stream:
                    stream.write(json.dumps({"operation": operation, "argument": argument}) + "\n")
                    stream.flush()
                    answer = json.loads(stream.readline())
        finally:
            os.close(folder)
        if "error" in answer:
            raise LocalClusterError(f"{operation} {argument}: {answer['error']}")
        return answer["result"]

    def _supervisor_pid(self) -> int | None:
        processes = kernel.processes_with_environment(MARK, self.id)
        return next((p.pid for p in processes if len(p.namespace_pids) == 2 and p.namespace_pids[-1] == 1), None)

    def _node_pids(self) -> dict[str, int]:
        """The host's ids of the process 1 of every node that is on, by node name."""
        return {
            process.command[-1]: process.pid
            for process in kernel.processes_with_environment(MARK, self.id)
            if process.namespace_pids[-1] == 1 and "localcluster.node" in process.command
        }

    def _require_node_pid(self, name: str) -> int:
        pid = self._node_pids().get(name)
        if pid is None:
            raise LocalClusterError(f"{name} is off: switch it on first")
        return pid

    def _check_node(self, name: str) -> None:
        if name not in self.node_names:
            raise LocalClusterError(f"there is no node {name!r}; the nodes are {', '.join(self.node_names)}")

    def _enter(self, node: str, argv: Sequence[str]) -> list[str]:
        self._check_node(node)
        target = ["--target", str(self._require_node_pid(node))]
        return ["nsenter", *target, "--net", "--mount", "--uts", "--ipc", "--pid", "--", *argv]

    def _nft(self, node: str, rules: str) -> None:
        command = self._enter(node, ["nft", "--file", "-"])
        answer = subprocess.run(command, input=rules, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise LocalClusterError(f"nft failed on {node}: {answer.stderr.strip()}")


def names_of_this_clone(clone: Path = CLONE) -> list[str]:
    """Names of all clusters of the clone that left anything on the machine."""
    prefix = f"{clone_id(clone)}-"
    found = {*known_ids(clone), *cgroups.known(prefix), *kernel.environment_values(MARK)}
    return sorted(identifier.removeprefix(prefix) for identifier in found if identifier.startswith(prefix))


def _environment_without_proxies() -> dict[str, str]:
    """Nothing in the cluster's network namespaces can reach a proxy, so nothing may try."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def _send_kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
