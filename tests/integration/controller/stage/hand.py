"""The stage hand: plays scheduler and kubelets for the worker pods of one namespace, on nodes that are only objects."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from localcluster.patience import PATIENCE_SECONDS
from muster.api.base import API_VERSION, rfc3339
from muster.kube import paths
from muster.kube.client import MERGE_PATCH, Client
from muster.kube.errors import ApiError, Conflict, NotFound, ServerError, TooManyRequests, Unreachable
from muster.protocol.messages import TOKEN_AUDIENCE
from muster.world.views import INCARNATION_LABEL, INDEX_LABEL, JOB_NAME_LABEL, JOB_UID_LABEL, SCHEDULER_NAME
from stage.launcher import Identity, Launcher, Ledger, Training

Object = dict[str, Any]

KUBELET_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 2.0
FIRST_PAUSE_SECONDS = 0.02


async def patiently(call: Callable[[], Coroutine[Any, Any, bytes]]) -> Object:
    """Make a call again while the API server is away."""
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            answer: Object = msgspec.json.decode(await call())
            return answer
        except (Unreachable, ServerError, TooManyRequests):
            if asyncio.get_running_loop().time() > until:
                raise
            await asyncio.sleep(0.2)


@dataclass
class Worker:
    """A pod as its kubelet sees it."""

    namespace: str
    name: str
    uid: str
    node: str
    manifest: Object
    launcher: Launcher | None = None
    bound: asyncio.Event = field(default_factory=asyncio.Event)
    deleted: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def index(self) -> int:
        return int(self.manifest["metadata"]["labels"][INDEX_LABEL])

    @property
    def incarnation(self) -> int:
        return int(self.manifest["metadata"]["labels"][INCARNATION_LABEL])


class Hand:
    """Runs until its context ends.

    Attributes:
        trainings: by name of the job.
        workers: every worker pod ever seen, by uid.
        starting: while it is not set, bound pods stay Pending.
        pulled: while it is not set, the image cannot be pulled.
        start_error: why the runtime cannot start the container, if it cannot.
        dark: nodes whose kubelet does nothing any more.
    """

    def __init__(self, api: Client, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.trainings: dict[str, Training] = {}
        self.ledger = Ledger()
        self.workers: dict[str, Worker] = {}
        self.starting = asyncio.Event()
        self.starting.set()
        self.pulled = asyncio.Event()
        self.pulled.set()
        self.start_error = ""
        self.dark: set[str] = set()
        self.nodes: dict[str, Object] = {}
        self._silent: set[str] = set()
        self._addresses = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator["Hand"]:
        self._tasks = [asyncio.create_task(work) for work in (self._watch(), self._heartbeats())]
        try:
            yield self
        finally:
            running = [*self._tasks, *(worker.task for worker in self.workers.values() if worker.task)]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await asyncio.gather(*(self.remove_node(name) for name in list(self.nodes)))

    def train(self, job: str, **settings: Any) -> Training:
        """A training for the job of this name; begins by itself when its ranks run."""
        training = self.trainings[job] = Training(**settings)
        self._tasks.append(asyncio.create_task(training.run()))
        return training

    # Nodes

    async def add_node(self, name: str, *, rack: str = "r1", block: str = "b1", gpus: int = 8) -> None:
        """Register a node the way a kubelet does, ready, with its heartbeat."""
        resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "topology.muster.dev/block": block,
                    "topology.muster.dev/rack": rack,
                },
            },
            "status": {"capacity": resources, "allocatable": resources, "conditions": [_condition("Ready", "True")]},
        }
        self.nodes[name] = await patiently(lambda: self.api.post(paths.core("nodes"), node))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": KUBELET_NAMESPACE},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()},
        }
        await patiently(lambda: self.api.post(paths.leases(KUBELET_NAMESPACE), lease))
        # Admission has put the not-ready taint on it, which a controller would take off now.
        await self.patch_node(name, {"spec": {"taints": None}})

    async def patch_node(self, name: str, patch: Mapping[str, Any], subresource: str = "") -> None:
        path = paths.core("nodes", name=name, subresource=subresource)
        await patiently(lambda: self.api.patch(path, patch))

    async def cordon(self, name: str, *, cordoned: bool = True) -> None:
        await self.patch_node(name, {"spec": {"unschedulable": cordoned}})

    async def set_ready(self, name: str, status: str) -> None:
        await self.patch_node(name, {"status": {"conditions": [_condition("Ready", status)]}}, "status")

    async def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        for path in (paths.core("nodes", name=name), paths.leases(KUBELET_NAMESPACE, name)):
            with contextlib.suppress(NotFound):
                await patiently(functools.partial(self.api.delete, path))

    async def shut_down(self, name: str) -> None:
        """The node shuts down: its kubelet ends the pods, whose launchers have no time for a word, and says why."""
        await self.set_ready(name, "False")
        self._kill_launchers(name)
        await asyncio.gather(*(self._ended(worker, 137, reason="Terminated") for worker in self.on(name)))

    def cut_power(self, name: str) -> None:
        """The node is gone at once: its ranks are dead, nobody says a word any more."""
        self._kill_launchers(name)
        self.cut_off(name)

    def cut_off(self, name: str) -> None:
        """Every packet of the node is dropped; what runs there goes on."""
        self.dark.add(name)
        self._silent.add(name)
        for worker in self.on(name):
            if worker.launcher:
                worker.launcher.cut()

    def _kill_launchers(self, node: str) -> None:
        for worker in self.on(node):
            if worker.launcher:
                worker.launcher.end_ranks()
                worker.launcher.cut()

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS)
            for name in [name for name in self.nodes if name not in self._silent]:
                with contextlib.suppress(ApiError):
                    await self.api.patch(paths.leases(KUBELET_NAMESPACE, name), {"spec": {"renewTime": _now()}})

    # Pods

    def on(self, node: str) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.node == node]

    def worker(self, index: int) -> Worker:
        """The newest pod of this index."""
        found = [worker for worker in self.workers.values() if worker.index == index]
        return max(reversed(found), key=lambda worker: worker.incarnation)

    def launchers(self) -> dict[int, Launcher]:
        """The launchers that run and can be reached, by index."""
        return {
            worker.index: worker.launcher
            for worker in self.workers.values()
            if worker.launcher and worker.task and not worker.task.done() and not worker.launcher.is_cut
        }

    async def _watch(self) -> None:
        where = paths.core("pods", namespace=self.namespace)
        while True:
            with contextlib.suppress(ApiError):
                listed = msgspec.json.decode(await self.api.get(where, {"labelSelector": JOB_UID_LABEL}))
                for pod in listed["items"]:
                    self._seen(pod)
                query = {"labelSelector": JOB_UID_LABEL, "resourceVersion": listed["metadata"]["resourceVersion"]}
                async with contextlib.aclosing(self.api.watch(where, query)) as lines:
                    async for line in lines:
                        event = msgspec.json.decode(line)
                        if event["type"] in ("ADDED", "MODIFIED"):
                            self._seen(event["object"])
            await asyncio.sleep(0.1)

    def _seen(self, pod: Object) -> None:
        metadata = pod["metadata"]
        worker = self.workers.get(metadata["uid"])
        if worker is None:
            worker = Worker(metadata["namespace"], metadata["name"], metadata["uid"], _pinned(pod), pod)
            self.workers[worker.uid] = worker
            worker.task = asyncio.create_task(self._work(worker))
        if pod["spec"].get("nodeName"):
            worker.bound.set()
        if "deletionTimestamp" in metadata:
            worker.deleted.set()

    async def _work(self, worker: Worker) -> None:
        """One pod's life on its node."""
        where = {"namespace": worker.namespace, "name": worker.name}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": worker.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": worker.node},
        }
        if worker.manifest["spec"].get("schedulerName") == SCHEDULER_NAME:
            await asyncio.wait(
                {asyncio.create_task(worker.bound.wait()), asyncio.create_task(worker.deleted.wait())},
                return_when=asyncio.FIRST_COMPLETED,
            )
        else:
            with contextlib.suppress(Conflict, NotFound):
                await patiently(lambda: self.api.post(paths.core("pods", **where, subresource="binding"), binding))
        alive, deleted = asyncio.create_task(self._alive(worker)), asyncio.create_task(worker.deleted.wait())
        try:
            await asyncio.wait({alive, deleted}, return_when=asyncio.FIRST_COMPLETED)
            if worker.node in self.dark:
                await asyncio.Event().wait()
            if alive.done():
                await self._ended(worker, alive.result())
            else:
                alive.cancel()
                await asyncio.wait({alive})
                await self._end(worker)
            await worker.deleted.wait()
            with contextlib.suppress(NotFound):
                await patiently(
                    lambda: self.api.delete(
                        paths.core("pods", **where),
                        {"gracePeriodSeconds": 0, "preconditions": {"uid": worker.uid}},
                    )
                )
        except (NotFound, Conflict):
            return  # deleted under our hands
        finally:
            alive.cancel()
            deleted.cancel()
            await asyncio.wait({alive, deleted})

    async def _alive(self, worker: Worker) -> int:
        """Start the container and its launcher; returns the container's exit code."""
        await self.starting.wait()
        trust = await self._trust(worker)
        if not self.pulled.is_set():
            state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}}
            await self._status(worker, {"phase": "Pending", **_containers(worker.manifest, state, ready=False)})
            await self.pulled.wait()
        if self.start_error:
            await self._ended(worker, 128, container={"reason": "StartError", "message": self.start_error})
            await worker.deleted.wait()
        address = f"10.{next(self._addresses) % 250 + 1}.0.{worker.index % 250 + 1}"
        running = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": _now()}
        state = {"running": {"startedAt": _seconds_now()}}
        await self._status(worker, {**running, **_containers(worker.manifest, state, ready=True)})
        labels = worker.manifest["metadata"]["labels"]
        environment = {
            variable["name"]: variable.get("value", "")
            for variable in worker.manifest["spec"]["containers"][0].get("env") or []
        }
        identity = Identity(
            labels[JOB_UID_LABEL],
            worker.name,
            worker.index,
            address,
            environment["MUSTER_COORDINATOR"],
            environment["MUSTER_COORDINATOR_NAME"],
            trust,
            await self._token(worker),
        )
        training = self.trainings[labels[JOB_NAME_LABEL]]
        worker.launcher = Launcher(identity, training, self.ledger)
        return await worker.launcher.run()

    async def _trust(self, worker: Worker) -> str:
        """The mounted authorities; like a kubelet, wait until the ConfigMap is there."""
        volumes = worker.manifest["spec"]["volumes"]
        sources = next(v["projected"]["sources"] for v in volumes if v["name"] == "muster-identity")
        name = next(source["configMap"]["name"] for source in sources if "configMap" in source)
        path = paths.core("configmaps", namespace=worker.namespace, name=name)
        while True:
            with contextlib.suppress(NotFound):
                return str((await patiently(lambda: self.api.get(path)))["data"]["ca.crt"])
            await asyncio.sleep(FIRST_PAUSE_SECONDS)

    async def _token(self, worker: Worker) -> str:
        """The projected token, bound to the pod."""
        account = worker.manifest["spec"]["serviceAccountName"]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [TOKEN_AUDIENCE],
                "expirationSeconds": 3600,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": worker.name, "uid": worker.uid},
            },
        }
        path = paths.core("serviceaccounts", namespace=worker.namespace, name=account, subresource="token")
        return str((await patiently(lambda: self.api.post(path, request)))["status"]["token"])

    async def _end(self, worker: Worker) -> None:
        """SIGTERM, and the kubelet's report."""
        await self._ended(worker, await worker.launcher.leave() if worker.launcher else 143)

    async def _ended(self, worker: Worker, code: int, reason: str = "", container: Object | None = None) -> None:
        how = container or {"reason": "Error" if code else "Completed"}
        state = {"terminated": {"exitCode": code, **how}}
        status: Object = {
            "phase": "Failed" if code else "Succeeded",
            **_containers(worker.manifest, state, ready=False),
        }
        if reason:
            status |= {"reason": reason, "message": "Pod was terminated in response to imminent node shutdown."}
        with contextlib.suppress(NotFound, Conflict):
            await self._status(worker, status)

    async def _status(self, worker: Worker, status: Object) -> None:
        path = paths.core("pods", namespace=worker.namespace, name=worker.name, subresource="status")
        body = {"metadata": {"uid": worker.uid}, "status": status}
        await patiently(lambda: self.api.patch(path, body, MERGE_PATCH))


def _containers(pod: Object, state: Object, *, ready: bool) -> Object:
    def status(container: Object, state: Object) -> Object:
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }

    installed = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    return {
        "initContainerStatuses": [status(c, installed) for c in pod["spec"].get("initContainers") or []],
        "containerStatuses": [status(c, state) for c in pod["spec"]["containers"]],
    }


def _pinned(pod: Object) -> str:
    """The node that the pod's affinity names."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields = affinity["nodeSelectorTerms"][0]["matchFields"]
    return str(next(field["values"][0] for field in fields if field["key"] == "metadata.name"))


def _condition(kind: str, status: str) -> Object:
    now = _seconds_now()
    return {
        "type": kind,
        "status": status,
        "reason": "KubeletReady" if status == "True" else "NodeStatusUnknown",
        "message": "",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def _now() -> str:
    return rfc3339(datetime.now(UTC))


def _seconds_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job_manifest(name: str, nodes: int, **spec: Any) -> Object:
    """A TrainingJob whose checkpoints are looked for."""
    mount = {"name": "checkpoints", "mountPath": "/checkpoints"}
    container = {"name": "trainer", "image": "example.org/trainer:1", "command": ["python3", "train.py"]}
    volume = {"name": "checkpoints", "hostPath": {"path": "/mnt/checkpoints"}}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "nodes": nodes,
            "template": {"spec": {"containers": [{**container, "volumeMounts": [mount]}], "volumes": [volume]}},
            "checkpoint": {"directory": "/checkpoints"},
            **spec,
        },
    }
