"""One job's life in the simulator (`tools/simulate`), and short names for what happens to it in a scenario.

`simulate.checks` checks what must hold at every moment; a scenario says what becomes of the job.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

from muster.api.base import rfc3339
from muster.api.gang import GangSpec
from muster.api.trainingjob import CompletionRecord, CompletionResult, TrainingJobStatus
from muster.recovery import budgets
from simulate.apiserver import Object, Where
from simulate.life import POLICY, Life
from simulate.machines import Machine
from simulate.network import STORAGE
from simulate.surroundings import NAMESPACE
from simulate.training import RankProcess, Script
from simulate.worker import Worker

JOB = "job"
PLAIN: Mapping[str, Any] = {"launch": {"mode": "Plain"}, "checkpoint": {}}
REPLICAS = [f"replica-{number}" for number in range(1, 99)]  # those that are yet to come, too


def steps(total: int = 12, every: int = 5, seconds: float = 1.0, **script: Any) -> Script:
    """A script of so many steps with a checkpoint after so many each."""
    return Script(total, seconds, every, save_seconds=0.5, **script)


class OneJob(Life):
    """A small fleet with one job, whose two workers run on n0 and n1 if nothing keeps them from there.

    Attributes:
        history: each attempt as it was first committed.
    """

    def __init__(
        self,
        nodes: int = 3,
        workers: int = 2,
        per_rack: int = 2,
        lag: float = 0.0,
        script: Script | None = None,
        **spec: Any,
    ) -> None:
        super().__init__(1, nodes, per_rack)
        self.history: list[GangSpec] = []
        self._writes_left = 0
        self.server.listen(self._written)
        for replica in self.replicas:
            replica.way.watch_lag_seconds["pods"] = lag
        self.uid = self.submit(JOB, workers, script or steps(), **spec)

    # What is there.

    @property
    def attempt(self) -> int:
        return self.attempt_of(self.uid)

    @property
    def record(self) -> GangSpec:
        return GangSpec.model_validate(
            next(g["spec"] for g in self.server.all("gangs") if g["spec"]["jobUid"] == self.uid)
        )

    @property
    def status(self) -> TrainingJobStatus:
        return TrainingJobStatus.model_validate(self.job(JOB).get("status") or {})

    @property
    def levels(self) -> list[str]:
        return [spec.level.value for spec in self.history]

    @property
    def nodes(self) -> list[str]:
        """Those of the members."""
        return [member.node for member in self.record.members]

    @property
    def pods(self) -> list[str]:
        """Names of all pods, whatever their state."""
        return sorted(pod["metadata"]["name"] for pod in self.server.all("pods"))

    @property
    def step(self) -> int:
        """The newest step of the newest attempt."""
        attempt = self.trainers[self.uid].attempts.get(self.attempt)
        return attempt.step if attempt is not None else 0

    @property
    def saved(self) -> int:
        """The step of the newest complete checkpoint."""
        return max((save.step for save in self.directories[self.uid].whole().values()), default=0)

    @property
    def paid(self) -> tuple[int, int]:
        """Restarts that the budgets of the program and of the hardware have paid for, whatever has refunded them."""
        record = self.record.model_copy(update={"checkpoint": None})
        now = record.time + timedelta(seconds=1)
        return budgets.application_restarts(record, now), budgets.hardware_restarts(record, now)

    def machine(self, index: int) -> Machine:
        return self.machines[self.nodes[index]]

    def worker(self, index: int) -> Any:
        """The container of a worker."""
        end = f"-{index}-{self.record.members[index].incarnation}"
        return next(worker for worker in self.machine(index).workers.values() if worker.name.endswith(end))

    def rank(self, index: int) -> RankProcess:
        found: RankProcess = next(rank for rank in self.worker(index).ranks if rank.alive)
        return found

    def notes(self, reason: str) -> list[str]:
        return [event["note"] for event in self.server.all("events") if event["reason"] == reason]

    # Time.

    def until(self, holds: Callable[[], bool], seconds: float = 300.0) -> None:
        assert self.run_until(holds, seconds), f"not within {seconds} s: {self.describe()}"

    def until_step(self, step: int) -> None:
        self.until(lambda: self.step >= step)

    def until_attempt(self, attempt: int, seconds: float = 300.0) -> None:
        self.until(lambda: self.attempt >= attempt, seconds)

    def until_go(self, attempt: int, seconds: float = 300.0) -> None:
        self.until(lambda: self.attempt >= attempt and self.record.start is not None, seconds)

    def ends(self, seconds: float = 900.0) -> CompletionRecord:
        self.until(lambda: self.has_ended(JOB), seconds)
        assert self.status.completion is not None
        return self.status.completion

    def succeeds(self) -> None:
        assert self.ends().result is CompletionResult.SUCCEEDED, self.describe()

    # What happens.

    def delete_pod(self, index: int, *, by_force: bool = False) -> None:
        options = {"gracePeriodSeconds": 0} if by_force else {}
        self.server.delete(Where("pods", NAMESPACE, self.worker(index).name, ""), options)

    def mute(self, index: int, *, on: bool = True) -> None:
        """A launcher neither reports nor hears the operator; it answers its neighbours."""
        worker = self.worker(index)
        assert isinstance(worker, Worker)
        worker.reporter.stand_still(still=on)

    def cut_off(self, node: str, *, keeps_storage: bool = False) -> None:
        """Nothing gets to a node or from it, except to and from the storage if it keeps that."""
        places = {*self.places(), *REPLICAS} - {STORAGE if keeps_storage else ""}
        self.network.cut([node], sorted(places))

    def heal(self, node: str) -> None:
        self.network.heal([node], [*self.places(), *REPLICAS])
        self.machines[node].notice()

    def cordon(self, node: str, *, on: bool = True) -> None:
        self.server.change("nodes", "", node, {"spec": {"unschedulable": on or None}})

    def plan_window(self, node: str, seconds: float | None) -> None:
        """A node is to be kept free for maintenance in so many seconds, or after all not."""
        start = self.wall_clock.at(self.agenda.now + (seconds or 0.0))
        window = {
            "name": "w",
            "startTime": rfc3339(start),
            "endTime": rfc3339(start + timedelta(hours=1)),
            "nodes": {"names": [node]},
            "reason": "new firmware",
        }
        maintenance = {
            "windows": [] if seconds is None else [window],
            "closeBeforeSeconds": 9000,
            "evacuateBeforeSeconds": 9000,
        }
        self.server.patch(POLICY, {"spec": {"maintenance": maintenance}}, "merge")

    def take(self, node: str, seconds: float | None = None, *, final: bool = True) -> None:
        """Another system takes the machine away, in so many seconds if that is known."""
        if seconds is None:
            key = "aws-node-termination-handler/asg-lifecycle-termination" if final else "karpenter.sh/disrupted"
            self.server.change("nodes", "", node, {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})
            return
        found = self.server.peek("nodes", "", node)
        assert found is not None
        at = format_datetime(self.wall_clock.at(self.agenda.now + seconds), usegmt=True)
        event = {"type": "VMEventScheduled", "status": "True", "message": f"Terminate Scheduled: {at}"}
        condition = {**event, "reason": "Event", "lastTransitionTime": rfc3339(self.wall_clock())}
        self.server.change("nodes", "", node, {"status": {"conditions": [*found["status"]["conditions"], condition]}})

    def give_back(self, node: str) -> None:
        found = self.server.peek("nodes", "", node)
        assert found is not None
        conditions = [each for each in found["status"]["conditions"] if each["type"] == "Ready"]
        self.server.change("nodes", "", node, {"spec": {"taints": None}, "status": {"conditions": conditions}})

    def operator_dies(self, away: float = 5.0) -> None:
        """All replicas, and others come after a while."""
        for replica in [replica for replica in self.replicas if replica.alive]:
            replica.kill()
            self.agenda.after(away, self.start_replica)

    def operator_dies_after(self, writes: int) -> None:
        """Of the record, of the status of the job, and of pods."""
        self._writes_left = writes

    def _written(self, resource: str, before: Object | None, after: Object | None) -> None:
        if resource == "gangs" and after is not None and after["spec"]["jobUid"] == self.uid:
            spec = GangSpec.model_validate(after["spec"])
            if before is None or before["spec"]["attempt"] != spec.attempt:
                self.history.append(spec)
        had, has = before or {}, after or {}
        is_own = resource == "gangs" or (resource == "trainingjobs" and had.get("status") != has.get("status"))
        is_pod = resource == "pods" and (
            not before or ("deletionTimestamp" in has.get("metadata", {})) > ("deletionTimestamp" in had["metadata"])
        )
        if self._writes_left and (is_own or is_pod):
            self._writes_left -= 1
            if not self._writes_left:
                self.operator_dies()
