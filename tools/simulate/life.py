"""One life: a fleet with its operators, jobs and people, from a seed and a list of faults. The same seed is the same
life."""

import asyncio
import itertools
import json
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Any

import structlog

from muster.api.base import API_VERSION, GROUP, VERSION, ApiModel
from muster.api.installation import InstallationProfile
from muster.api.namespaces import NODE_LEASES
from muster.api.nodehealth import Decision, HumanDecision, LostNode, VerdictState
from muster.kube import jitter
from muster.world.names import gang_name
from muster.world.views import JOB_UID_LABEL
from simulate import replica as replicas
from simulate.apiserver import Object, Where, training_job
from simulate.checks import Checks
from simulate.machines import ControlPlane, Machine
from simulate.network import API, STORAGE
from simulate.replica import Replica
from simulate.storage import Directory
from simulate.surroundings import Surroundings, key_of
from simulate.training import Script, Trainer
from simulate.worker import SIDECAR, Addresses, Container, container_of

RESTART_SECONDS = 3.0
KINDS = ("trainingjobs", "gangs", "endedjobs", "fleetpolicies", "nodehealths", "repairrequests")
POLICY = Where("fleetpolicies", "", "default", "")  # by which every namespace trains, if nothing else is said
# Lines of the operator's log that tell of a defect of its own.
DEFECTS = frozenset(
    {"pass failed unexpectedly", "no answer for a job", "no plan", "change not taken in", "task failed"}
)


class Life(Surroundings):
    """A fleet in simulated time.

    Args:
        defects: lines of the operator's log that end it.
        profile: of the installation, with the definitions of all.
    """

    def __init__(
        self,
        seed: int,
        nodes: int = 8,
        per_rack: int = 4,
        defects: Collection[str] = DEFECTS,
        profile: InstallationProfile = InstallationProfile.JOBS,
    ) -> None:
        super().__init__(seed)
        self._defects = defects
        self._profile = profile
        jitter.generator.set(self.stream("jitter"))
        self.loop.set_task_factory(replicas.task_factory)  # type: ignore[arg-type]
        self.trainers: dict[str, Trainer] = {}
        self._submitted: dict[str, tuple[Mapping[str, Any], Script]] = {}
        self.machines: dict[str, Machine] = {}
        self.checks = Checks(self, self.machines, self.trainers)
        self._addresses = Addresses(self.replica_at)
        for number in range(nodes):
            name = f"n{number}"
            self.machines[name] = Machine(self, name, f"r{number // per_rack}", "b0", self._start)
        self.control_plane = ControlPlane(self, self.machines)
        self._numbers = itertools.count(1)
        self.replicas: list[Replica] = []
        self._log_from_now()
        served = {"resources": [{"name": kind} for kind in KINDS]}
        self.server.documents[f"/apis/{GROUP}/{VERSION}"] = json.dumps(served).encode()
        policy = {"apiVersion": API_VERSION, "kind": "FleetPolicy", "metadata": {"name": "default"}}
        self.server.create(POLICY, policy)
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
        self.trainers[uid] = Trainer(self, self.checks, uid, script)
        return uid

    def govern(
        self,
        limits: Mapping[str, int],
        counted: Collection[str] | None = None,
        preempting: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """An administrator says how many nodes namespaces may hold, which PriorityClasses count (None: all), and which
        preempt for which namespaces."""
        queueing: dict[str, Any] = {
            "limits": [{"namespace": namespace, "nodes": nodes} for namespace, nodes in limits.items()]
        }
        if counted is not None:
            queueing["priorityClasses"] = sorted(counted)
        if preempting:
            classes = [{"name": name, "namespaces": sorted(allowed)} for name, allowed in preempting.items()]
            queueing["preemption"] = {"priorityClasses": classes, "minRunSeconds": 30}
        self.server.patch(POLICY, {"spec": {"queueing": queueing}}, "merge")

    def add_priority(self, name: str, value: int, **fields: Any) -> None:
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        self.server.create(Where("priorityclasses", "", name, ""), {**body, "value": value, **fields})

    def replace(self, name: str) -> None:
        """A user deletes a job and creates it again at once, as `kubectl replace --force` does: what it has saved is
        there."""
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
        namespace, short = key_of(name)
        self.server.patch(Where("trainingjobs", namespace, short, ""), {"spec": dict(spec)}, "merge")

    def knows(self, name: str) -> bool:
        return name in self._submitted

    def was_reported(self, name: str, reason: str) -> bool:
        """Whether there is an Event about a job with this reason."""
        events, (namespace, short) = self.server.all("events"), key_of(name)
        return any(
            reason in event.get("reason", "")
            and (event["metadata"].get("namespace"), event["regarding"]["name"]) == (namespace, short)
            for event in events
        )

    def trainer_of(self, name: str) -> Trainer:
        return self.trainers[self.job(name)["metadata"]["uid"]]

    def directory_of(self, name: str) -> Directory:
        return self.directories[self.job(name)["metadata"]["uid"]]

    def places(self) -> list[str]:
        """All that there are in the network."""
        return [*self.machines, *(one.place for one in self.replicas), API, STORAGE]

    def say_lost(self, node: str) -> None:
        """A person says that a machine is dead, as `kubectl muster lost` does."""
        found = self.server.peek("nodes", "", node)
        boot = found["status"]["nodeInfo"]["bootID"] if found else ""
        lease = self.server.peek("leases", NODE_LEASES, node)
        word = LostNode(
            time=self.server.clock(),
            reason="somebody has pulled the plug",
            user="ops",
            boot_id=boot,
            last_renewal=lease["spec"]["renewTime"] if lease else "",
        )
        self._say_of(node, "lost", word)

    def decide(self, node: str, decision: Decision) -> None:
        """A person says whether a node may be used, as `kubectl muster cordon` and `release` do."""
        self._say_of(
            node, "override", HumanDecision(decision=decision, reason="as I say", user="ops", time=self.server.clock())
        )

    def _say_of(self, node: str, what: str, word: ApiModel) -> None:
        self.journal.note("person", f"{node}: {what} {word.to_json()}")
        self.server.patch(self.health_of(node), {"spec": {what: word.to_json()}}, "merge")

    def calm_down(self, besides: Collection[str] = ()) -> None:
        """What people and machines repair by themselves, on all nodes but a few."""
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

    def step_clock(self, seconds: float) -> None:
        """The wall clocks of all processes but the API server's are set."""
        self.wall_clock.ahead_seconds += seconds
        self.clock_has_stepped = True

    def has_ended(self, name: str) -> bool:
        return bool((self.job(name).get("status") or {}).get("completion"))

    def state_of(self, name: str) -> str:
        """What its status says; "" for one that is yet to come."""
        if not self.knows(name):
            return ""
        return str((self.job(name).get("status") or {}).get("state", ""))

    # Time.

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
        if tasks:  # there are none while all operators are away
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()
        structlog.configure(**self._logging_before)

    # The operator.

    def start_replica(self) -> None:
        self.replicas = [one for one in self.replicas if one.alive]
        self.replicas.append(Replica(self, next(self._numbers), self.replica_ended, self._profile))

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

    def _start(self, machine: Machine, pod: Object) -> Container:
        """What a pod runs on a machine."""
        trainer = self.trainers[pod["metadata"]["labels"][JOB_UID_LABEL]]
        return container_of(self, self._addresses, machine, pod, trainer)

    def describe(self) -> str:
        states = ", ".join(
            f"{job['metadata']['name']} {(job.get('status') or {}).get('state')}"
            for job in self.server.all("trainingjobs")
        )
        return "\n".join([*self.journal.lines(60), f"seed {self.seed} at {self.loop.time():.1f}: {states}"])

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
