"""One life: a fleet with its operators, jobs and people, from a seed and a list of faults. The same seed is the same life."""

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Any

import structlog

from muster.api.base import API_VERSION, ApiModel
from muster.api.nodehealth import Decision, HumanDecision, LostNode, VerdictState
from muster.kube import jitter, paths
from muster.world.names import gang_name, pod_name_in
from simulate import replica as replicas
from simulate.apiserver import ApiServer, Key, Object, Where, training_job
from simulate.checks import Checks
from simulate.clocks import WallClock
from simulate.journal import Journal
from simulate.loop import SimulatedLoop
from simulate.machines import ControlPlane, Machine
from simulate.network import API, STORAGE, Network
from simulate.replica import Replica
from simulate.storage import Directory
from simulate.streams import Streams
from simulate.training import Script, Trainer
from simulate.worker import SIDECAR, Worker

RESTART_SECONDS = 3.0
# Lines of the operator's log that tell of a defect of its own.
DEFECTS = frozenset(
    {"pass failed unexpectedly", "no answer for a job", "no plan", "change not taken in", "task failed"}
)
NAMESPACE = "team"


def key_of(name: str) -> Key:
    """Namespace and name of a job: `lab/a` is `a` in the namespace `lab`, and `a` is one in that of most."""
    namespace, _, short = name.rpartition("/")
    return namespace or NAMESPACE, short


class Life:
    """A fleet in simulated time.

    Attributes:
        stream: random numbers, see `Streams`.
        api_is_up: whether the API server answers anybody.
        slow_starts: share of the ranks whose program has to be read over a network first.
        is_large: that this is a part of a large fleet, whose checkpoints have many files: launchers report and look more seldom.

    Args:
        defects: lines of the operator's log that end it.
    """

    def __init__(self, seed: int, nodes: int = 8, per_rack: int = 4, defects: Collection[str] = DEFECTS) -> None:
        self.seed = seed
        self._defects = defects
        self.stream = Streams(seed).stream
        jitter.generator.set(self.stream("jitter"))
        self.loop = SimulatedLoop()
        self.loop.set_task_factory(replicas.task_factory)  # type: ignore[arg-type]
        self.loop.set_exception_handler(self._failed)
        self.agenda = self.loop.agenda
        self._begun = self.loop.time()
        self.wall_clock = WallClock(self.loop.time)
        self.journal = Journal(self.loop.time)
        self.network = Network()
        self.api_is_up = True
        self.slow_starts = 0.0
        self.is_large = False
        self.clock_has_stepped = False
        self.pids = itertools.count(1000)
        self.addresses: dict[str, Worker] = {}
        self.directories: dict[str, Directory] = {}
        self.trainers: dict[str, Trainer] = {}
        self._submitted: dict[str, tuple[Mapping[str, Any], Script]] = {}
        self.defect: BaseException | None = None
        self._pods: dict[str, dict[str, Object]] = {}  # node -> name -> its pods
        self._seats: dict[tuple[str, str], int] = {}  # (namespace, name) of a pod -> the last attempt that has it
        self.server = ApiServer(self.agenda, WallClock(self.loop.time))
        self.server.listen(self._index_pods)
        self.server.listen(self._index_seats)
        self.checks = Checks(self)
        self.machines: dict[str, Machine] = {}
        for number in range(nodes):
            name = f"n{number}"
            self.machines[name] = Machine(self, name, f"r{number // per_rack}", "b0")
        self.control_plane = ControlPlane(self)
        self._numbers = itertools.count(1)
        self.replicas: list[Replica] = []
        self._log_from_now()
        for _ in range(2):
            self.start_replica()

    # What people do.

    def submit(
        self,
        name: str,
        nodes: int,
        script: Script | None = None,
        *,
        has_sidecar: bool = False,
        image: str = "trainer:1",
        priority_class: str = "",
        **spec: Any,
    ) -> str:
        """A user creates a job, see `key_of`; returns its uid."""
        containers = [{"name": "main", "image": image, "command": ["train"]}]
        if has_sidecar:
            containers.append({"name": SIDECAR, "image": "logs:1", "command": ["tail"]})
        pod = {"containers": containers, **({"priorityClassName": priority_class} if priority_class else {})}
        body = {"nodes": nodes, "template": {"spec": pod}, "checkpoint": {"directory": f"/ckpt/{name}"}, **spec}
        self._submitted[name] = (body, script or Script())
        return self._create(name, Directory(f"/ckpt/{name}", self.wall_clock, self.seed))

    def _create(self, name: str, directory: Directory) -> str:
        body, script = self._submitted[name]
        namespace, short = key_of(name)
        self.server.create(Where("trainingjobs", namespace, short, ""), training_job(short, namespace, body))
        uid: str = self.job(name)["metadata"]["uid"]
        self.directories[uid] = directory
        self.trainers[uid] = Trainer(self, uid, script)
        return uid

    def govern(self, limits: Mapping[str, int], counted: Collection[str] | None = None) -> None:
        """An administrator says how many nodes namespaces may hold, and which PriorityClasses count; None: all."""
        queueing: dict[str, Any] = {
            "limits": [{"namespace": namespace, "nodes": nodes} for namespace, nodes in limits.items()]
        }
        if counted is not None:
            queueing["priorityClasses"] = sorted(counted)
        spec = {"queueing": queueing}
        body = {"apiVersion": API_VERSION, "kind": "FleetPolicy", "metadata": {"name": "default"}, "spec": spec}
        self.server.create(Where("fleetpolicies", "", "default", ""), body)

    def add_priority(self, name: str, value: int) -> None:
        """An administrator makes a PriorityClass."""
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        self.server.create(Where("priorityclasses", "", name, ""), {**body, "value": value})

    def replace(self, name: str) -> None:
        """A user deletes a job and creates it again at once, as `kubectl replace --force` does: what it has saved is there."""
        directory, (namespace, short) = self.directory_of(name), key_of(name)
        self.server.delete(Where("trainingjobs", namespace, short, ""), {"propagationPolicy": "Background"})
        self._create(name, directory)

    def delete_record(self, name: str) -> bool:
        """A user deletes the Gang of a job; whether there was one."""
        namespace, short = key_of(name)
        record = gang_name(short, self.job(name)["metadata"]["uid"])
        if self.server.peek("gangs", namespace, record) is None:
            return False
        self.server.delete(Where("gangs", namespace, record, ""), None)
        return True

    def edit(self, name: str, spec: Mapping[str, Any]) -> None:
        """A user changes a job's spec."""
        namespace, short = key_of(name)
        self.server.patch(Where("trainingjobs", namespace, short, ""), {"spec": dict(spec)}, "merge")

    def knows(self, name: str) -> bool:
        """Whether it was submitted."""
        return name in self._submitted

    def job(self, name: str) -> Object:
        """A job as it stands."""
        found = self.server.peek("trainingjobs", *key_of(name))
        assert found is not None, name
        return found

    def was_told(self, name: str, reason: str) -> bool:
        """Whether there is an Event about a job with this reason."""
        events, (namespace, short) = self.server.all("events"), key_of(name)
        return any(
            reason in event.get("reason", "")
            and (event["metadata"].get("namespace"), event["regarding"]["name"]) == (namespace, short)
            for event in events
        )

    def trainer_of(self, name: str) -> Trainer:
        """The training of a job."""
        return self.trainers[self.job(name)["metadata"]["uid"]]

    def directory_of(self, name: str) -> Directory:
        """The checkpoints of a job."""
        return self.directories[self.job(name)["metadata"]["uid"]]

    def places(self) -> list[str]:
        """All that there are in the network."""
        return [*self.machines, *(one.place for one in self.replicas), API, STORAGE]

    def say_lost(self, node: str) -> None:
        """A person says that a machine is dead, as `kubectl muster lost` does."""
        found = self.server.peek("nodes", "", node)
        boot = found["status"]["nodeInfo"]["bootID"] if found else ""
        lease = self.server.peek("leases", paths.NODE_LEASES, node)
        word = LostNode(
            time=self.server.clock(),
            reason="somebody has pulled the plug",
            by="ops",
            boot_id=boot,
            last_renewal=lease["spec"]["renewTime"] if lease else "",
        )
        self._say_of(node, "lost", word)

    def decide(self, node: str, decision: Decision) -> None:
        """A person says whether a node may be used, as `kubectl muster cordon` and `release` do."""
        self._say_of(
            node, "human", HumanDecision(decision=decision, reason="as I say", by="ops", time=self.server.clock())
        )

    def _say_of(self, node: str, what: str, word: ApiModel) -> None:
        self.journal.note("person", f"{node}: {what} {word.to_json()}")
        self.server.patch(self.health_of(node), {"spec": {what: word.to_json()}}, "merge")

    def health_of(self, node: str) -> Where:
        """Where its NodeHealth is; whoever has something to say of a node creates it."""
        at = Where("nodehealths", "", node, "")
        if self.server.peek(at.resource, at.namespace, at.name) is None:
            self.server.create(at, {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": node}})
        return at

    def calm_down(self, besides: Collection[str] = ()) -> None:
        """What people and machines mend by themselves, on all nodes but a few."""
        self.network.cuts.clear()
        self.network.lost = 0.0
        self.server.silent.clear()
        self.server.end_watches(lambda watch: watch.is_silent)
        self.wall_clock.ahead_seconds = 0.0
        self.api_is_up = True
        for machine in [machine for machine in self.machines.values() if machine.name not in besides]:
            machine.boot_up()
            if machine.frozen:
                machine.thaw()
            machine.kubelet_runs = True
            for worker in list(machine.workers.values()):
                if worker.is_frozen:
                    worker.thaw()
            machine.notice()
        for health in list(self.server.all("nodehealths")):
            # It has been sick again and again: nobody but a person lets it back.
            if (health.get("status") or {}).get("state") == VerdictState.QUARANTINED:
                self.decide(health["metadata"]["name"], Decision.RELEASE)

    def attempt_of(self, job_uid: str) -> int:
        """The attempt that a job's record is at; 0 without a record."""
        found = (gang["spec"]["attempt"] for gang in self.server.all("gangs") if gang["spec"]["jobUid"] == job_uid)
        return next(found, 0)

    def attempt_of_pod(self, namespace: str, name: str) -> int:
        """The last attempt whose record has this pod; the record itself may be further by now. 0 where none ever had it."""
        return self._seats.get((namespace, name), 0)

    def step_clock(self, seconds: float) -> None:
        """The wall clocks of all processes but the API server's are set."""
        self.wall_clock.ahead_seconds += seconds
        self.clock_has_stepped = True

    def has_ended(self, name: str) -> bool:
        """Whether a job is over."""
        return bool((self.job(name).get("status") or {}).get("completion"))

    def state_of(self, name: str) -> str:
        """What its status says; "" for one that is yet to come."""
        if not self.knows(name):
            return ""
        return str((self.job(name).get("status") or {}).get("state", ""))

    # Time.

    @property
    def age_seconds(self) -> float:
        """For how long it has lasted."""
        return self.loop.time() - self._begun

    def run(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ViolationError: something must not be.
            Exception: a defect of what is shipped, or of the simulator.
        """
        self.run_until(lambda: False, seconds)

    def run_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until something holds, looked at each second; returns whether it does."""
        end = self.loop.time() + seconds

        async def wait() -> bool:
            while not holds():
                if self.defect is not None or self.loop.time() >= end:
                    return False
                await asyncio.sleep(min(1.0, max(0.001, end - self.loop.time())))
            return True

        found = self.loop.run_until_complete(wait())
        if self.defect is not None:
            raise self.defect
        return found

    def close(self) -> None:
        """Forget everything."""
        for one in self.replicas:
            one.kill()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.set_exception_handler(lambda *_: None)
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()
        structlog.configure(**self._logging_before)

    # The operator.

    def start_replica(self) -> None:
        """Another replica starts."""
        self.replicas = [one for one in self.replicas if one.alive]
        self.replicas.append(Replica(self, next(self._numbers)))

    def replica_ended(self) -> None:
        """Its kubelet starts it anew."""
        self.agenda.after(RESTART_SECONDS, self.start_replica)

    def kill_replica(self, one: Replica) -> None:
        """SIGKILL, and its kubelet starts another."""
        if one.alive:
            one.kill()
            self.replica_ended()

    @property
    def leader(self) -> Replica | None:
        """Who leads, if anybody does; one that stands still may believe to."""
        leading = (one for one in self.replicas if one.leads)
        return min(leading, key=lambda one: one.parked is not None, default=None)

    def replica_at(self, target: tuple[str, int] | None, caller: str) -> Replica | None:
        """The replica that answers a caller at an address; without one the Service picks any that listens."""
        listening = [one for one in self.replicas if one.listens]
        if target is None:
            return self.stream("service", caller).choice(listening) if listening else None
        return next((one for one in listening if one.address == target[0]), None)

    # Within.

    def pods_on(self, node: str) -> list[Object]:
        """Pods that are bound to a node."""
        return list(self._pods.get(node, {}).values())

    def number_of(self, node: str) -> int:
        """Of a node."""
        return int(node[1:])

    def describe(self) -> str:
        """The last that has happened."""
        states = ", ".join(
            f"{job['metadata']['name']} {(job.get('status') or {}).get('state')}"
            for job in self.server.all("trainingjobs")
        )
        return "\n".join([*self.journal.lines(60), f"seed {self.seed} at {self.loop.time():.1f}: {states}"])

    def _index_pods(self, resource: str, before: Object | None, after: Object | None) -> None:
        if resource != "pods":
            return
        for pod, here in ((before, False), (after, True)):
            node = (pod or {}).get("spec", {}).get("nodeName")
            if pod is not None and node:
                name = pod["metadata"]["name"]
                if here:
                    self._pods.setdefault(node, {})[name] = pod
                elif after is None:
                    self._pods.get(node, {}).pop(name, None)

    def _index_seats(self, resource: str, _before: Object | None, after: Object | None) -> None:
        if resource != "gangs" or after is None:
            return
        metadata, spec = after["metadata"], after["spec"]
        for place, member in enumerate(spec.get("members") or ()):
            pod = pod_name_in(metadata["name"], member.get("index", place), member.get("incarnation", 1))
            self._seats[metadata["namespace"], pod] = spec["attempt"]

    def fail(self, error: BaseException) -> None:
        """This life has shown a defect."""
        if self.defect is None:
            self.defect = error

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.fail(context.get("exception") or RuntimeError(str(context.get("message"))))

    def _log_from_now(self) -> None:
        def to_journal(_logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
            what = str(event.pop("event"))
            text = " ".join([what, *(f"{key}={value}" for key, value in event.items())])
            self.journal.note(method, text[:400])
            if what in self._defects or (method == "error" and "exception" in event):
                self.fail(RuntimeError(text))
            raise structlog.DropEvent

        self._logging_before = structlog.get_config()
        structlog.configure(processors=[structlog.processors.format_exc_info, to_journal])
