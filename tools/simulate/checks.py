"""What must hold at every moment of a life, whatever happens in it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from muster.checkpoints.unloadable import FAILED_STARTS
from muster.queueing.limits import NAMESPACE_LIMIT
from muster.world.views import JOB_UID_LABEL
from simulate.accounts import Accounts
from simulate.apiserver import Object
from simulate.machines import Machine
from simulate.storage import Save
from simulate.surroundings import Surroundings
from simulate.trail import Trail
from simulate.training import Attempt, RankProcess, Trainer
from simulate.violation import ViolationError
from simulate.waits import Waits
from simulate.worker import PlainWorker

# What storage shows late may be shown just after the last listing, which is made every other second while a start
# waits.
LISTED_SECONDS = 10.0
# A checkpoint that was found complete may be gone by the go: who has listed it waits for those who do not see it yet.
FOUND_SECONDS = 120.0
# One that is made just before a rank fails may not be heard of.
UNSEEN_STEPS = 1
# A plan is made every 15 s at the latest, and a pod that ends has its grace of 30 s to be seen so.
LIMIT_SEEN_SECONDS = 60.0
# Many that thaw at one moment do so one after the other, and a launcher needs a turn to end its ranks.
WAKES_SECONDS = 1.0


class Checks:
    """Looks at what ranks do and at what is written, at the moment at which it happens."""

    def __init__(self, around: Surroundings, machines: Mapping[str, Machine], trainers: Mapping[str, Trainer]) -> None:
        self._around = around
        self._machines = machines
        self._trainers = trainers
        self.made: Counter[str] = Counter()  # how often each was looked at
        self._reported_paths: dict[str, set[str]] = {}  # uid of a job -> paths of checkpoints that its status has named
        # uid of a job -> what its record says not to count since starts from it failed: saves, by their paths
        self._left_behind: dict[str, dict[str, Save]] = {}
        self._given: dict[str, int] = {}  # uid -> the highest attempt with a go that its record has to know
        self._limits: Mapping[str, int] = {}  # nodes that the jobs of a namespace may hold together
        self._excused_until = 0.0
        self._unlimited: dict[str, float] = {}  # jobs that are told to wait for the limit and need not -> since when
        self.trail = Trail(around, self._hold)
        self.waits = Waits(around, machines, self._hold)
        self._accounts = Accounts(around, trainers, self._hold)
        around.server.listen(self._written)

    def rank_starts(self, trainer: Trainer, process: RankProcess, step: int) -> None:
        number = process.attempt.number
        # One that is frozen does nothing, and its launcher wakes with it: whether it then does is looked at below.
        awake = self._around.agenda.now - WAKES_SECONDS
        if number < trainer.newest_started and process.worker.thawed_at >= awake:
            return  # its program was coming up when it froze, and its launcher, which wakes with it, ends it
        others = [
            rank
            for rank in trainer.alive
            if rank.attempt.number != number
            and not rank.worker.is_frozen
            and rank.worker.thawed_at < awake
            and not self._is_given_up(rank, process)
        ]
        there = ", ".join(f"rank {r.rank} of attempt {r.attempt.number} on {r.worker.machine.name}" for r in others)
        self._hold(
            "no rank starts while one of another attempt is alive",
            not others,
            f"attempt {number} of {trainer.job} starts rank {process.rank} on {process.worker.machine.name} beside "
            f"{there}",
        )
        node = process.worker.machine
        ranks = (rank for worker in node.workers.values() for rank in worker.ranks)
        jobs = {rank.worker.trainer.job for rank in ranks if rank.alive and not self._is_given_up(rank, process)}
        self._hold("one gang per node", jobs <= {trainer.job}, f"{node.name} trains for {sorted(jobs | {trainer.job})}")
        if isinstance(process.worker, PlainWorker):  # it chooses by itself
            return
        newest = max(self._newest_shown(trainer), self._newest_reported(trainer))
        self._hold(
            "never behind the newest complete checkpoint without a word",
            step >= newest,
            f"attempt {number} of {trainer.job} goes on from step {step}, and there is a checkpoint of step {newest}",
        )

    def _is_given_up(self, rank: RankProcess, successor: RankProcess) -> bool:
        """Whether all that it can do is hold its GPU, and its successor does not need that GPU.

        A rank that got SIGKILL and hangs in the kernel runs no code again: the fence of its launcher has done what it
        promises. On the node of its successor it is in the way, unless people have said, by force, that its pod is no
        more.
        """
        return rank.is_doomed and (
            rank.worker.machine is not successor.worker.machine
            or all(pod["metadata"]["uid"] != rank.worker.uid for pod in self._around.server.all("pods"))
        )

    def _newest_shown(self, trainer: Trainer) -> int:
        """The newest complete checkpoint that some worker could have listed before the start; 0 for none."""
        directory, now = self._around.directories[trainer.job], self._around.agenda.now
        # Where nothing is late the listing has all that ranks have ever saved: it begins when none is alive any more.
        then = now - LISTED_SECONDS if directory.lags(now - LISTED_SECONDS) else now
        nodes = [
            machine.name
            for machine in self._machines.values()
            if any(worker.trainer is trainer and worker.reaches_storage for worker in machine.workers.values())
        ]
        left = self._left_behind.get(trainer.job, {})
        return max((directory.newest_shown(node, then, left) for node in nodes), default=0)

    def _newest_reported(self, trainer: Trainer) -> int:
        """The newest complete checkpoint that people have ever been told of and that is still there."""
        directory = self._around.directories[trainer.job]
        left = self._left_behind.get(trainer.job, {})
        told = ((path, directory.saved_last(path)) for path in self._reported_paths.get(trainer.job, ()))
        return max((save.step for path, save in told if save is not None and save is not left.get(path)), default=0)

    def makes_step(self, trainer: Trainer, attempt: Attempt) -> None:
        """All ranks of an attempt have finished a step."""
        self._only_newest(trainer, attempt, "makes a step")

    def writes(self, trainer: Trainer, attempt: Attempt, step: int) -> None:
        """A rank of an attempt is about to write its part of a checkpoint."""
        self._only_newest(trainer, attempt, f"writes a part of checkpoint {step}")

    def publishes(self, trainer: Trainer, attempt: Attempt, step: int) -> None:
        """A checkpoint of an attempt is about to be complete."""
        self._only_newest(trainer, attempt, f"publishes checkpoint {step}")
        self.trail.published(trainer.job, step)

    def moves_incomplete(self, trainer: Trainer) -> None:
        """A launcher has what is incomplete moved aside: no rank may be alive that could write there."""
        there = [rank for rank in trainer.alive if not rank.is_doomed and not rank.worker.is_frozen]
        self._hold(
            "nothing is moved aside under ranks",
            not there,
            f"beside ranks {[(rank.attempt.number, rank.rank) for rank in there]} of {trainer.job}",
        )

    def _only_newest(self, trainer: Trainer, attempt: Attempt, what: str) -> None:
        newest = trainer.newest_started
        self._hold(
            "ranks of one attempt only may publish",
            attempt.number == newest,
            f"attempt {attempt.number} of {trainer.job} {what} after attempt {newest} has started",
        )

    def watch_limits(self, nodes: Mapping[str, int]) -> None:
        """From now on no job is told for long that its namespace's limit keeps it from nodes when it does not."""
        self._limits, self._excused_until = nodes, 0.0
        self._check_limits()

    def excuse(self, seconds: float) -> None:
        """For so long the operator may be behind."""
        self._excused_until = max(self._excused_until, self._around.agenda.now + seconds)
        self.waits.excuse(seconds)
        self.trail.excuse(seconds)

    def calm(self) -> None:
        """Trouble is over; whatever was an excuse is none any more."""
        self.waits.calm()
        self.trail.calm()

    def _check_limits(self) -> None:
        if self._around.agenda.now < self._excused_until:
            self._unlimited.clear()
            return
        jobs = list(self._around.server.all("trainingjobs"))
        for namespace, limit in self._limits.items():
            self._check_limit(namespace, limit, [job for job in jobs if _namespace_of(job) == namespace])

    def _check_limit(self, namespace: str, limit: int, jobs: Iterable[Object]) -> None:
        worker_views = self._nodes_of_members(namespace)
        left = limit - len(set().union(self._nodes_of_pods(namespace), *worker_views.values()))
        lacking = self._lacking_nodes(namespace)
        for job in jobs:
            name, uid = f"{namespace}/{job['metadata']['name']}", job["metadata"]["uid"]
            needs = job["spec"]["nodes"] - len(worker_views.get(uid, ()))
            # A gang counts with its size, also while some of its workers have no node.
            free = left - (lacking.total() - lacking[uid])
            if (job.get("status") or {}).get("reason") != NAMESPACE_LIMIT or needs > free:
                self._unlimited.pop(name, None)
            elif name not in self._unlimited:
                self._unlimited[name] = self._around.agenda.now
                self._around.agenda.after(LIMIT_SEEN_SECONDS, self._check_limits)
            else:
                seconds = self._around.agenda.now - self._unlimited[name]
                self._hold(
                    "who waits for the limit is kept by it",
                    seconds < LIMIT_SEEN_SECONDS,
                    f"{name} needs {needs} more, and {free} have been left of the limit of {limit} for {seconds:.0f} s",
                )

    def _nodes_of_members(self, namespace: str) -> dict[str, set[str]]:
        """By uid of the job."""
        return {
            gang["spec"]["jobUid"]: {member["node"] for member in gang["spec"]["members"] if member.get("node")}
            for gang in self._around.server.all("gangs")
            if _namespace_of(gang) == namespace
        }

    def _lacking_nodes(self, namespace: str) -> Counter[str]:
        """How many members have no node, by uid of the job."""
        gangs = (gang["spec"] for gang in self._around.server.all("gangs") if _namespace_of(gang) == namespace)
        return Counter({gang["jobUid"]: sum(not member.get("node") for member in gang["members"]) for gang in gangs})

    def _nodes_of_pods(self, namespace: str) -> set[str]:
        """Where workers are that have not ended, whether or not they are members still."""
        return {
            pod["spec"]["nodeName"]
            for pod in self._around.server.all("pods")
            if _job_of(pod) and pod["spec"].get("nodeName") and not _has_ended(pod) and _namespace_of(pod) == namespace
        }

    def _written(self, resource: str, before: Object | None, after: Object | None) -> None:
        if resource == "gangs":
            if after is not None:
                self._gang(before, after)
                self.trail.written(before, after)
                self._accounts.record_written(before, after)
            self.waits.record_written(before, after)
        elif resource == "trainingjobs" and before is not None and after is not None:
            told = (after.get("status") or {}).get("checkpoint") or {}
            if told.get("path"):
                self._reported_paths.setdefault(after["metadata"]["uid"], set()).add(told["path"])
            had, has = _completion(before), _completion(after)
            self._hold("the end is written once", not had or had == has, f"{had} has become {has}")
            if has and not had and has["result"] == "Succeeded":
                trained = self._trainers[after["metadata"]["uid"]].has_finished
                name = after["metadata"]["name"]
                self._hold("a job that has succeeded has saved its last step", trained, f"{name}: {has}")
            elif has and not had:
                self.trail.ended(after)
        elif resource == "pods" and after is not None and not (before or {}).get("spec", {}).get("nodeName"):
            self._bound(after)
        if resource == "trainingjobs":
            self.waits.job_written(before, after)
            if after is not None:
                self._accounts.job_written(before, after)
        if self._limits and resource in ("gangs", "trainingjobs", "pods"):
            self._check_limits()

    def _gang(self, before: Object | None, after: Object) -> None:
        name, spec = after["metadata"]["name"], after["spec"]
        nodes = [member["node"] for member in spec["members"] if member.get("node")]
        self._hold("a member has its node to itself", len(set(nodes)) == len(nodes), f"{name}: {nodes}")
        uid, new = spec["jobUid"], spec["attempt"]
        old = before["spec"]["attempt"] if before is not None else 0
        self._hold("attempts grow", new >= old, f"{name}: attempt {old} is followed by {new}")
        if before is None:  # nothing else is left that is certain to know a number
            self._given[uid] = min(self._given.get(uid, 0), self._named_attempt(uid))
        # A record that comes again may begin with a number of before: that is noticed before the go.
        if spec.get("start") and not (before is not None and before["spec"].get("start") and old == new):
            most = self._given.get(uid, 0)
            self._hold("attempts grow", new > most, f"{name}: attempt {new} gets its go after attempt {most}")
            self._given[uid] = new
        self._leaves_behind(name, uid, (before or {"spec": {}})["spec"].get("suspectCheckpoint"), spec)
        self._goes_on(name, uid, (before or {"spec": {}})["spec"].get("start"), spec.get("start"))
        if before is not None and old == new and before["spec"].get("start"):
            same = before["spec"]["start"] == spec.get("start")
            self._hold("a go is given once", same, f"{name}: the go of attempt {new} has changed")

    def _named_attempt(self, uid: str) -> int:
        """The attempt in the status of a job; 0 for none."""
        jobs = self._around.server.all("trainingjobs")
        job = next((job for job in jobs if job["metadata"]["uid"] == uid), {})
        return int((job.get("status") or {}).get("attempt", 0))

    def _leaves_behind(self, name: str, uid: str, had: Object | None, spec: Object) -> None:
        """A record that falls back from a checkpoint does so after two starts from it, and for one start."""
        has = spec.get("suspectCheckpoint") or {}
        if has.get("excludedCheckpoints") and not (had or {}).get("excludedCheckpoints"):
            step, older = has["checkpoint"]["step"], has["fallback"]["step"]
            attempts = self._trainers[uid].attempts.values() if uid in self._trainers else ()
            died = [one.number for one in attempts if one.resume_step == step and one.made <= UNSEEN_STEPS]
            self._hold(
                "a checkpoint is left behind only after two starts from it that failed before a step",
                len(died) >= FAILED_STARTS,
                f"{name} goes on from step {older} instead of {step}, from which only attempts {died} started in vain",
            )
            whole = self._around.directories[uid].whole()
            self._left_behind[uid] = {path: save for path, save in whole.items() if save.step > older}
        elif has.get("fallbackAttempts") and not has.get("excludedCheckpoints"):
            self._left_behind.pop(uid, None)

    def _goes_on(self, name: str, uid: str, had: Object | None, go: Object | None) -> None:
        """A go names nothing to go on from, or what somebody can have found complete."""
        resume = (go or {}).get("resume")
        if go == had or not resume:
            return
        directory = self._around.directories[uid]
        lag_seconds = max(directory.lag_seconds.values(), default=0.0)
        since = self._around.agenda.now - FOUND_SECONDS - lag_seconds
        self._hold(
            "what is gone on from is complete",
            directory.was_complete(resume["step"], since) and resume["path"] == directory.path_of(resume["step"]),
            f"{name} is to go on from {resume['path']} of step {resume['step']}",
        )

    def _bound(self, pod: Object) -> None:
        node, job = pod["spec"].get("nodeName"), _job_of(pod)
        if not node or not job:
            return
        others = {_job_of(other) for other in self._around.pods_on(node) if not _has_ended(other)}
        self._hold(
            "a node is given to one job",
            others <= {job, None},
            f"{node} is given to {job} while {others - {job}} is there",
        )

    def _hold(self, rule: str, holds: bool, text: str) -> None:
        self.made[rule] += 1
        if not holds:
            violation = ViolationError(f"{rule}: {text}")
            self._around.fail(violation)  # whatever its writer makes of it
            raise violation


def _job_of(pod: Object) -> str | None:
    """The uid of the job whose worker it says to be."""
    return (pod["metadata"].get("labels") or {}).get(JOB_UID_LABEL)


def _namespace_of(value: Object) -> str:
    return str(value["metadata"].get("namespace", ""))


def _has_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _completion(job: Object) -> Any:
    return (job.get("status") or {}).get("completion")
