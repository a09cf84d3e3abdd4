"""Nodes with their kubelets, and what of the control plane looks after them: heartbeats, node states, owners."""

from collections.abc import Callable, Mapping
from typing import Any

from muster.api.base import rfc3339
from muster.api.namespaces import NODE_LEASES
from muster.world.views import SCHEDULER_NAME
from simulate.apiserver import Object, Where, owned
from simulate.network import API
from simulate.surroundings import Surroundings
from simulate.training import HostMachine
from simulate.worker import SIDECAR, Container

HEARTBEAT_SECONDS = 10.0
NOT_READY_SECONDS = 40.0
SYNC_SECONDS = 1.0
START_SECONDS = 0.5, 2.0  # from a pod that is bound to a container that runs
NOTICE_SECONDS = 0.01, 0.2  # until a kubelet sees what has changed
GRACE_SECONDS = 30.0
SCHEDULE_SECONDS = 0.02, 0.3
GPUS = 8
MISSING_IMAGE = "missing:1"  # that no registry has


class Machine:
    """A node: its kubelet and its containers.

    Attributes:
        powered: whether anything of it runs.
        kubelet_runs: whether its kubelet does; containers run on without it.
        start_failure: what its kubelet reports of a pod in place of starting it: the pod's status and the state of its
            containers; None: it starts pods.
    """

    def __init__(self, around: Surroundings, name: str, rack: str, block: str, start: "Start") -> None:
        self.around = around
        self.name = name
        self.rack = rack
        self.block = block
        self._start_container = start
        self.powered = True
        self.kubelet_runs = True
        self.frozen = False
        self.start_failure: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.boot = 1
        self.workers: dict[str, Container] = {}  # by uid of the pod
        self._starting: set[str] = set()
        self._terminating: dict[str, float] = {}  # uid -> when it is killed
        self._addresses = 0
        # uid -> exit code and reason that the API server has not been told yet
        self._ended: dict[str, tuple[int, str]] = {}
        self._known: set[str] = set()  # uids of pods of this boot
        self._lone: set[str] = set()  # uids of pods of which only the sidecar runs on
        self._evidence: list[Object] = []  # what its agent sees and a reboot repairs
        self._told_health: Object = {}
        around.server.create(Where("nodes", "", name, ""), self._node())
        around.server.create(Where("leases", NODE_LEASES, name, ""), self._lease())
        around.agenda.after(around.stream("heartbeat", name).uniform(0, HEARTBEAT_SECONDS), self._beat)

    @property
    def runs(self) -> bool:
        """Whether processes on it go on."""
        return self.powered and not self.frozen

    def connects(self, other: HostMachine) -> bool:
        return self.powered and other.powered and self.around.network.connects(self.name, other.name)

    @property
    def in_touch(self) -> bool:
        """Whether its kubelet and the API server talk."""
        return (
            self.runs and self.kubelet_runs and self.around.api_is_up and self.around.network.connects(self.name, API)
        )

    @property
    def is_ready(self) -> bool:
        """Whether Kubernetes takes it for ready, and nobody has closed it."""
        node = self.around.server.peek("nodes", "", self.name)
        return node is not None and _is_ready(node) and not node["spec"].get("unschedulable")

    # Faults.

    def cut_power(self) -> None:
        """Everything ends without a word."""
        if not self.powered:
            return
        self.powered = False
        for worker in list(self.workers.values()):
            worker.vanish()
        self.workers.clear()
        self._starting.clear()
        self._terminating.clear()
        self._ended.clear()
        self._lone.clear()

    def boot_up(self) -> None:
        """It is there again, with nothing of before."""
        if self.powered:
            return
        self.powered, self.frozen, self.kubelet_runs = True, False, True
        self.boot += 1
        self._evidence = []
        self._known.clear()
        self.around.agenda.after(5.0, self._beat)

    def sicken(self, xid: int) -> None:
        """Its driver complains about a GPU until the machine is rebooted, and its agent sees that."""
        now = rfc3339(self.around.wall_clock())
        seen = {"firstSeen": now, "lastSeen": now, "count": 1, "bootId": self._boot_id}
        self._evidence.append({"kind": "Xid", "subject": "GPU-0", "code": xid, "message": f"NVRM: Xid: {xid}", **seen})
        self._report_health()

    def freeze(self) -> None:
        """Nothing on it moves, and nothing is lost."""
        self.frozen = True
        for worker in self.workers.values():
            worker.freeze()

    def thaw(self) -> None:
        self.frozen = False
        for worker in list(self.workers.values()):
            worker.thaw()
        self.notice()

    def notice(self) -> None:
        """Something has changed that its kubelet is about to see."""
        self.around.agenda.after(self.around.stream("notice", self.name).uniform(*NOTICE_SECONDS), self.sync)

    # The kubelet.

    def sync(self) -> None:
        """Do what the API server wants of this node, as far as it can be asked."""
        if not self.in_touch:
            return
        wanted = {pod["metadata"]["uid"]: pod for pod in self.around.pods_on(self.name)}
        for uid, pod in wanted.items():
            self._attend_to(uid, pod)
        for uid in [uid for uid in self.workers if uid not in wanted]:
            self._terminate(uid)
        for uid in [uid for uid in self._ended if uid not in wanted]:
            del self._ended[uid]

    def _attend_to(self, uid: str, pod: Object) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        deleting = "deletionTimestamp" in metadata
        if phase in ("Succeeded", "Failed"):
            if deleting and uid not in self.workers:
                self.around.server.remove("pods", metadata["namespace"], metadata["name"])
            return
        if uid in self._ended:
            self._report_ended(pod, *self._ended.pop(uid))
            return
        if uid in self.workers:
            if deleting:
                self._terminate(uid)
            return
        if uid in self._starting:
            return
        if uid in self._lone and not deleting:
            return
        self._lone.discard(uid)
        if deleting:
            self.around.server.remove("pods", metadata["namespace"], metadata["name"])
        elif uid in self._known or phase == "Running":  # of before a reboot
            self._report_ended(pod, 255)
        else:
            self._starting.add(uid)
            delay = self.around.stream("start", uid).uniform(*START_SECONDS)
            self.around.agenda.after(delay, lambda: self._start(uid))

    def _start(self, uid: str) -> None:
        if uid not in self._starting or not self.runs or not self.kubelet_runs:
            self._starting.discard(uid)
            return
        self._starting.discard(uid)
        pod = next((pod for pod in self.around.pods_on(self.name) if pod["metadata"]["uid"] == uid), None)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        missing = next((c for c in pod["spec"]["containers"] if c["image"] == MISSING_IMAGE), None)
        if missing is not None:
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{MISSING_IMAGE}"'}
            self._report(pod, {"phase": "Pending"}, {"waiting": waiting})
            return
        if self.start_failure is not None:
            self._report(pod, *self.start_failure)
            return
        self._addresses += 1
        block, place = divmod(self._addresses, 250)
        address = f"10.{_number_of(self.name)}.{self.boot + block}.{place}"
        self._known.add(uid)
        pod = {**pod, "status": {**pod["status"], "podIP": address}}
        self.workers[uid] = self._start_container(self, pod)
        started = rfc3339(self.around.wall_clock())
        self._report(pod, {"phase": "Running", "podIP": address}, {"running": {"startedAt": started}})

    def _terminate(self, uid: str) -> None:
        if uid not in self._terminating:
            self._terminating[uid] = self.around.agenda.now + GRACE_SECONDS
            self.workers[uid].terminate()
            self.around.agenda.after(GRACE_SECONDS, lambda: self._kill(uid))

    def _kill(self, uid: str) -> None:
        worker = self.workers.get(uid)
        if worker is None or not self.powered:
            return
        if not self.runs or not self.kubelet_runs or any(rank.unkillable and rank.alive for rank in worker.ranks):
            self.around.agenda.after(SYNC_SECONDS, lambda: self._kill(uid))
            return
        worker.kill()

    def worker_ended(self, worker: Container) -> None:
        if self.workers.pop(worker.uid, None) is None or not self.powered:
            return
        if self._terminating.pop(worker.uid, None) is None and worker.has_sidecar:
            self._lone.add(worker.uid)
        self._ended[worker.uid] = worker.exit_code or 0, worker.end_reason
        self.notice()

    def _report_ended(self, pod: Object, code: int, reason: str = "") -> None:
        usual = "Completed" if code == 0 else "Unknown" if code == 255 else "Error"
        state = {"terminated": {"exitCode": code, "reason": reason or usual}}
        self._report(pod, {"phase": "Failed" if code else "Succeeded"}, state)
        self.notice()

    def _report(self, pod: Object, status: dict[str, Any], state: dict[str, Any]) -> None:
        names = [container["name"] for container in pod["spec"]["containers"]]
        if pod["metadata"]["uid"] in self._lone:
            containers = [{"name": name, "state": {"running": {}} if name == SIDECAR else state} for name in names]
            status = {key: value for key, value in status.items() if key != "phase"}
        else:
            containers = [{"name": name, "state": state} for name in names]
        ready = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        prepared = [{"name": c["name"], "state": ready} for c in pod["spec"].get("initContainers") or ()]
        status = {**status, "containerStatuses": containers, "initContainerStatuses": prepared}
        metadata = pod["metadata"]
        self.around.server.change("pods", metadata["namespace"], metadata["name"], {"status": status})

    def _beat(self) -> None:
        """The heartbeat, and a look at everything in case something was missed."""
        if not self.powered:
            return
        if self.in_touch:
            self.around.server.change("leases", NODE_LEASES, self.name, {"spec": self._lease()["spec"]})
            node = self.around.server.peek("nodes", "", self.name)
            if node is not None and (not _is_ready(node) or node["status"]["nodeInfo"]["bootID"] != self._boot_id):
                self.around.server.change("nodes", "", self.name, {"status": self._status("True", "KubeletReady")})
            self._report_health()
            self.sync()
        self.around.agenda.after(HEARTBEAT_SECONDS, self._beat)

    # The agent.

    def _report_health(self) -> None:
        """Its part of the NodeHealth, where that is not what was told last."""
        agent = {"version": "simulated", "bootId": self._boot_id, "gpus": GPUS, "driver": "simulated"}
        status = {"evidence": list(self._evidence), "agent": agent}
        if not self.in_touch or status == self._told_health:
            return
        at = self.around.health_of(self.name)
        self.around.server.change(at.resource, at.namespace, at.name, {"status": status})
        self._told_health = status

    # Its objects.

    @property
    def _boot_id(self) -> str:
        return f"{self.name}-{self.boot}"

    def _node(self) -> Object:
        labels = {
            "kubernetes.io/hostname": self.name,
            "topology.muster.dev/rack": self.rack,
            "topology.muster.dev/block": self.block,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {},
            "status": self._status("True", "KubeletReady"),
        }

    def _status(self, ready: str, reason: str) -> Object:
        resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
        condition = {"type": "Ready", "status": ready, "reason": reason}
        return {
            "conditions": [{**condition, "lastTransitionTime": rfc3339(self.around.wall_clock())}],
            "allocatable": resources,
            "capacity": resources,
            "nodeInfo": {"bootID": self._boot_id},
        }

    def _lease(self) -> Object:
        spec = {"holderIdentity": self.name, "renewTime": rfc3339(self.around.wall_clock())}
        return {"metadata": {"name": self.name}, "spec": spec}


Start = Callable[[Machine, Object], Container]
"""What starts the container of a pod on a machine."""


class ControlPlane:
    """What looks at the API server's objects beside Muster: node states, and what goes with its owner."""

    def __init__(self, around: Surroundings, machines: Mapping[str, Machine]) -> None:
        self._around = around
        self._machines = machines
        self._renewed: dict[str, tuple[str, float]] = {}
        self._gone: set[str] = set()  # uids of TrainingJobs
        around.server.listen(self._changed)
        around.server.listen(self._owned_or_owner_changed)
        around.agenda.after(5.0, self._inspect_nodes)

    def _changed(self, resource: str, before: Object | None, after: Object | None) -> None:
        around = self._around
        if resource == "pods":
            for pod in (before, after):
                node = (pod or {}).get("spec", {}).get("nodeName")
                if node in self._machines:
                    self._machines[node].notice()
                    return
            if after is not None:
                delay = around.stream("schedule", after["metadata"]["uid"]).uniform(*SCHEDULE_SECONDS)
                around.agenda.after(delay, lambda: self._schedule(after))

    def _owned_or_owner_changed(self, resource: str, before: Object | None, after: Object | None) -> None:
        """The garbage collector takes what belongs to a job that is gone, also if it was created later."""
        if resource == "trainingjobs" and after is None and before is not None:
            self._gone.add(before["metadata"]["uid"])
            self._collect_soon(before["metadata"]["uid"])
        elif before is None and after is not None:
            for owner in after["metadata"].get("ownerReferences") or ():
                if owner["uid"] in self._gone:
                    self._collect_soon(owner["uid"])

    def _schedule(self, pod: Object) -> None:
        """The cluster's scheduler: Muster's pods are pinned to a node, and it binds them there while that is well."""
        around, metadata = self._around, pod["metadata"]
        found = around.server.peek("pods", metadata["namespace"], metadata["name"])
        if found is None or found["metadata"]["uid"] != metadata["uid"] or found["spec"].get("nodeName"):
            return
        if found["spec"].get("schedulerName") == SCHEDULER_NAME or "deletionTimestamp" in found["metadata"]:
            return
        node = around.server.peek("nodes", "", _pinned_to(found))
        if not around.api_is_up or node is None or not _is_ready(node) or node["spec"].get("unschedulable"):
            around.agenda.after(5.0, lambda: self._schedule(pod))
            return
        target = {"metadata": {"uid": metadata["uid"]}, "target": {"name": node["metadata"]["name"]}}
        around.server.create(Where("pods", metadata["namespace"], metadata["name"], "binding"), target)

    def _collect_soon(self, uid: str) -> None:
        delay = self._around.stream("collect", uid).uniform(0.05, 1.0)
        self._around.agenda.after(delay, lambda: self._collect(uid))

    def _collect(self, uid: str) -> None:
        for resource in ("gangs", "configmaps", "services", "poddisruptionbudgets", "pods"):
            for value in list(self._around.server.all(resource)):
                if owned(value, uid):
                    metadata = value["metadata"]
                    self._around.server.delete(
                        Where(resource, metadata.get("namespace", ""), metadata["name"], ""), None
                    )

    def _inspect_nodes(self) -> None:
        around = self._around
        if around.api_is_up:
            for lease in around.server.all("leases"):
                metadata = lease["metadata"]
                if metadata.get("namespace") == NODE_LEASES:
                    self._inspect_one(metadata["name"], lease["spec"]["renewTime"])
        around.agenda.after(5.0, self._inspect_nodes)

    def _inspect_one(self, name: str, renewed: str) -> None:
        around = self._around
        seen, since = self._renewed.get(name, ("", 0.0))
        if seen != renewed:
            self._renewed[name] = renewed, around.agenda.now
        elif around.agenda.now - since >= NOT_READY_SECONDS:
            node = around.server.peek("nodes", "", name)
            if node is not None and _is_ready(node):
                condition = {
                    "type": "Ready",
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": rfc3339(around.wall_clock()),
                }
                around.server.change("nodes", "", name, {"status": {"conditions": [condition]}})


def _number_of(node: str) -> int:
    return int(node[1:])


def _pinned_to(pod: Object) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _is_ready(node: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
