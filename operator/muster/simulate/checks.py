"""What must hold at every moment of a life, whatever happens in it."""

from collections import Counter
from typing import TYPE_CHECKING

from muster.queueing.limits import NAMESPACE_LIMIT
from muster.simulate.apiserver import Object
from muster.simulate.worker import PlainWorker
from muster.world.views import JOB_UID_LABEL

if TYPE_CHECKING:
    from muster.simulate.life import Life
    from muster.simulate.training import Attempt, RankProcess, Trainer


# Listings are made every other second while a start waits.
LISTED_SECONDS = 10.0
# A plan is made every 15 s at the latest, and a pod that ends has its grace of 30 s to be seen so.
LIMIT_SEEN_SECONDS = 60.0


class ViolationError(AssertionError):
    """Something that must never be has been."""


class Checks:
    """Looks at what ranks do and at what is written, at the moment at which it happens."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self.made: Counter[str] = Counter()  # how often each was looked at
        self._told: dict[str, set[str]] = {}  # uid of a job -> paths of checkpoints that its status has named
        self._limit: int | None = None  # nodes that the jobs may hold together
        self._excused_until = 0.0
        self._unlimited: dict[str, float] = {}  # jobs that are told to wait for the limit and need not -> since when
        life.server.listen(self._written)

    def rank_starts(self, trainer: "Trainer", process: "RankProcess", step: int) -> None:
        """A rank is about to run."""
        number = process.attempt.number
        # One that is frozen does nothing, and its launcher wakes with it: whether it then does is looked at below.
        others = [rank for rank in trainer.alive if rank.attempt.number != number and not rank.worker.is_frozen]
        there = ", ".join(f"rank {r.rank} of attempt {r.attempt.number} on {r.worker.machine.name}" for r in others)
        self._hold(
            "no rank starts while one of another attempt is alive",
            not others,
            f"attempt {number} of {trainer.job} starts rank {process.rank} on {process.worker.machine.name} beside {there}",
        )
        node = process.worker.machine
        jobs = {worker.trainer.job for worker in node.workers.values() if any(rank.alive for rank in worker.ranks)}
        self._hold("one gang per node", jobs <= {trainer.job}, f"{node.name} trains for {sorted(jobs | {trainer.job})}")
        if isinstance(process.worker, PlainWorker):  # it chooses by itself
            return
        newest = max(self._newest_shown(trainer), self._newest_told(trainer))
        self._hold(
            "never behind the newest complete checkpoint without a word",
            step >= newest,
            f"attempt {number} of {trainer.job} goes on from step {step}, and there is a checkpoint of step {newest}",
        )

    def _newest_shown(self, trainer: "Trainer") -> int:
        """The newest complete checkpoint that some worker could have listed before the start; 0 for none."""
        directory, then = self._life.directories[trainer.job], self._life.agenda.now - LISTED_SECONDS
        nodes = [
            machine.name
            for machine in self._life.machines.values()
            if any(worker.trainer is trainer and worker.reaches_storage for worker in machine.workers.values())
        ]
        shown = (saved for node in nodes for saved in directory.seen_from(node, then) if saved.path in directory.saved)
        return max((saved.step for saved in shown if not saved.torn), default=0)

    def _newest_told(self, trainer: "Trainer") -> int:
        """The newest complete checkpoint that people have ever been told of and that is still there."""
        directory = self._life.directories[trainer.job]
        told = (directory.saved.get(path) for path in self._told.get(trainer.job, ()))
        return max((saved.step for saved in told if saved is not None and not saved.torn), default=0)

    def makes_step(self, trainer: "Trainer", attempt: "Attempt") -> None:
        """All ranks of an attempt have finished a step."""
        self._only_newest(trainer, attempt, "makes a step")

    def publishes(self, trainer: "Trainer", attempt: "Attempt", step: int) -> None:
        """A checkpoint of an attempt is about to be complete."""
        self._only_newest(trainer, attempt, f"publishes checkpoint {step}")

    def _only_newest(self, trainer: "Trainer", attempt: "Attempt", what: str) -> None:
        newest = trainer.newest_started
        self._hold(
            "ranks of one attempt only may publish",
            attempt.number == newest,
            f"attempt {attempt.number} of {trainer.job} {what} after attempt {newest} has started",
        )

    def watch_limit(self, nodes: int) -> None:
        """From now on nobody is told for long that the namespace's limit keeps him from nodes when it does not."""
        self._limit, self._excused_until = nodes, 0.0
        self._look_at_limit()

    def excuse(self, seconds: float) -> None:
        """For so long the operator may be behind."""
        self._excused_until = max(self._excused_until, self._life.agenda.now + seconds)

    def _look_at_limit(self) -> None:
        if self._life.agenda.now < self._excused_until:
            self._unlimited.clear()
            return
        seats = self._nodes_of_members()
        free = (self._limit or 0) - len(set().union(self._nodes_of_pods(), *seats.values()))
        for job in self._life.server.all("trainingjobs"):
            name = job["metadata"]["name"]
            needs = job["spec"]["nodes"] - len(seats.get(job["metadata"]["uid"], ()))
            if (job.get("status") or {}).get("reason") != NAMESPACE_LIMIT or needs > free:
                self._unlimited.pop(name, None)
            elif name not in self._unlimited:
                self._unlimited[name] = self._life.agenda.now
                self._life.agenda.after(LIMIT_SEEN_SECONDS, self._look_at_limit)
            else:
                seconds = self._life.agenda.now - self._unlimited[name]
                self._hold(
                    "who waits for the limit is kept by it",
                    seconds < LIMIT_SEEN_SECONDS,
                    f"{name} needs {needs} more, and {free} have been left of the limit of {self._limit} for {seconds:.0f} s",
                )

    def _nodes_of_members(self) -> dict[str, set[str]]:
        """By uid of the job."""
        return {
            gang["spec"]["jobUid"]: {member["node"] for member in gang["spec"]["members"] if member.get("node")}
            for gang in self._life.server.all("gangs")
        }

    def _nodes_of_pods(self) -> set[str]:
        """Where workers are that have not ended, whether or not they are members still."""
        return {
            pod["spec"]["nodeName"]
            for pod in self._life.server.all("pods")
            if _job_of(pod) and pod["spec"].get("nodeName") and not _has_ended(pod)
        }

    def _written(self, resource: str, before: Object | None, after: Object | None) -> None:
        if resource == "gangs" and after is not None:
            self._gang(before, after)
        elif resource == "trainingjobs" and before is not None and after is not None:
            told = (after.get("status") or {}).get("checkpoint") or {}
            if told.get("path"):
                self._told.setdefault(after["metadata"]["uid"], set()).add(told["path"])
            had, has = _completion(before), _completion(after)
            self._hold("the end is written once", not had or had == has, f"{had} has become {has}")
        elif resource == "pods" and after is not None and not (before or {}).get("spec", {}).get("nodeName"):
            self._bound(after)
        if self._limit is not None and resource in ("gangs", "trainingjobs", "pods"):
            self._look_at_limit()

    def _gang(self, before: Object | None, after: Object) -> None:
        name, spec = after["metadata"]["name"], after["spec"]
        nodes = [member["node"] for member in spec["members"] if member.get("node")]
        self._hold("a member has its node to itself", len(set(nodes)) == len(nodes), f"{name}: {nodes}")
        if before is None:
            return
        old, new = before["spec"]["attempt"], spec["attempt"]
        self._hold("attempts grow", new >= old, f"{name}: attempt {old} is followed by {new}")
        if old == new and before["spec"].get("go"):
            same = before["spec"]["go"] == spec.get("go")
            self._hold("a go is given once", same, f"{name}: the go of attempt {new} has changed")

    def _bound(self, pod: Object) -> None:
        node, job = pod["spec"].get("nodeName"), _job_of(pod)
        if not node or not job:
            return
        others = {_job_of(other) for other in self._life.pods_on(node) if not _has_ended(other)}
        self._hold(
            "a node is given to one job",
            others <= {job, None},
            f"{node} is given to {job} while {others - {job}} is there",
        )

    def _hold(self, rule: str, holds: bool, text: str) -> None:
        self.made[rule] += 1
        if not holds:
            violation = ViolationError(f"{rule}: {text}")
            self._life.fail(violation)  # whatever is made of it by whoever did it
            raise violation


def _job_of(pod: Object) -> str | None:
    """The uid of the job whose worker it says to be."""
    return (pod["metadata"].get("labels") or {}).get(JOB_UID_LABEL)


def _has_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _completion(job: Object) -> object:
    return (job.get("status") or {}).get("completion")
