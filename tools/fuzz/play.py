"""Plays a round: a healthy job alone, then with all that comes beside it, then alone again."""

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuzz import wire
from fuzz.inputs import RESOURCES, Input, Round
from fuzz.mutate import MOST_BYTES
from fuzz.visitors import Visitors
from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.namespaces import NODE_LEASES
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.controller.operator import Operator
from muster.kube import decode
from muster.lifecycle.step import decide
from simulate.apiserver import Object
from simulate.life import DEFECTS, Life
from simulate.surroundings import NAMESPACE
from simulate.training import Script

JOB = "healthy"
NODES = 4
START_SECONDS = 300.0
# Simulated: usual are a tenth of a second and some ten seconds.
DECIDED_SECONDS = 10.0
RECOVERED_SECONDS = 180.0
LONGEST_STEP_SECONDS = 5.0  # of CPU: usual are milliseconds
LOOK_EVERY_SECONDS = 5.0
AFTERMATH_SECONDS = 60.0  # those who wait for an answer have it by then
# Nothing is wrong with the API server here: a part that stops reading from it has failed on what it sent.
DEFECTS_HERE = DEFECTS | {"informer interrupted"}


class FuzzError(AssertionError):
    """What must hold beside any input has not held."""


@dataclass
class Times:
    """What was measured in one part of a round, in seconds: `decided` simulated, the others of CPU."""

    decided: list[float] = field(default_factory=list)
    deciding: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


@dataclass
class Outcome:
    """What has become of a round.

    Attributes:
        failure: the rule that did not hold, and how; "" where all held.
        inputs: mutated ones that came, by kind.
        understood: of these, those that fitted the operator's model of the kind.
        alone: without, `beside`: with what came.
    """

    told: Round
    failure: str = ""
    inputs: Counter[str] = field(default_factory=Counter)
    understood: Counter[str] = field(default_factory=Counter)
    alone: Times = field(default_factory=Times)
    beside: Times = field(default_factory=Times)
    tail: list[str] = field(default_factory=list)


def play(told: Round) -> Outcome:
    outcome = Outcome(told)
    life = Life(told.seed, NODES, defects=DEFECTS_HERE)
    try:
        _Play(life, told, outcome).run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what this round has shown
        outcome.failure = f"{rule_of(error)}: {error}"
        outcome.tail = life.journal.lines()
    finally:
        life.close()
    return outcome


def rule_of(error: BaseException) -> str:
    """What has failed, without what differs from one input to another: where in the code, if that is told."""
    text = str(error)
    frames = re.findall(r'File "[^"]*?operator/(muster/[^"]*)", line \d+, in (\w+)', text)
    raised = re.findall(r"^(\w[\w.]*(?:Error|Exception|Conflict))\b", text, re.MULTILINE)
    if frames and raised:
        return f"{raised[-1]} in {frames[-1][0]} {frames[-1][1]}"
    trace, where = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "muster/" in file and not isinstance(error, FuzzError | RuntimeError):
            where = f" in {file.rpartition('muster/')[2]} {trace.tb_frame.f_code.co_name}"
        trace = trace.tb_next
    plain = re.sub(r"\S*\d\S*", "N", text.partition(":")[0])
    return f"{type(error).__name__}{where}: {plain[:80]}"


class _Play:
    def __init__(self, life: Life, told: Round, outcome: Outcome) -> None:
        self._life = life
        self._told = told
        self._outcome = outcome
        self._edits = 0
        self._step_begun: float | None = None
        self._times = Times()
        self._come: set[tuple[str, str, str]] = set()

    def run(self) -> None:
        life, outcome = self._life, self._outcome
        life.server.encode = wire.encode
        life.server.concerns = self._concerns
        life.loop.between_steps = self._between_steps
        self._visitors = Visitors(life)
        script = Script(total_steps=10**6, step_seconds=1.0, checkpoint_every=5)
        life.submit(JOB, 2, script, recovery={"applicationRestartsPerDay": 100})
        self._holds("the healthy job trains", lambda: self._step() >= 10, START_SECONDS)
        leader = life.leader
        self._operator = self._life.leader.operator  # type: ignore[union-attr]
        self._recovers()
        self._times = outcome.alone
        self._inspect(4)
        self._times = outcome.beside
        for one in self._told.inputs:
            life.agenda.after(one.at, lambda one=one: self._comes(one))  # type: ignore[misc]
        last = max((one.at for one in self._told.inputs), default=0.0)
        self._inspect(int(last / LOOK_EVERY_SECONDS) + 1)
        for_all = any(one.kind == "FleetPolicy" for one in self._told.inputs)
        if not for_all:  # a policy may have the healthy job leave its nodes
            self._recovers()
        self._times = Times()
        life.run(AFTERMATH_SECONDS)
        for resource, namespace, name in sorted(self._come):
            life.server.remove(resource, namespace, name)
        self._inspect(2)
        if not for_all:
            self._recovers()
        if life.leader is not leader:
            raise FuzzError("the operator goes on: another replica leads")
        problem = self._operator.readiness.not_healthy()
        if problem:
            raise FuzzError(f"the operator is healthy: {problem}")

    # The healthy job.

    def _inspect(self, times: int) -> None:
        """Change the job each time, and see how soon that is decided."""
        for _ in range(times):
            self._edits += 1
            self._life.edit(JOB, {"recovery": {"hardwareRestartsPerDay": 1 + self._edits % 100}})
            wanted, begun = self._life.job(JOB)["metadata"]["generation"], self._life.loop.time()
            while self._life.job(JOB)["status"].get("observedGeneration") != wanted:
                if self._life.loop.time() - begun > DECIDED_SECONDS:
                    raise FuzzError(f"the healthy job is decided: it was not in {DECIDED_SECONDS:.0f} s")
                self._life.run(0.02)
            self._times.decided.append(self._life.loop.time() - begun)
            self._times.deciding.append(_deciding_seconds(self._operator))
            self._life.run(LOOK_EVERY_SECONDS)

    def _recovers(self) -> None:
        """A rank fails, and the job goes on in a new attempt."""
        attempt, trainer = self._attempt(), self._life.trainer_of(JOB)
        trainer.alive[0].exit(1, "RuntimeError: something")
        self._holds("the healthy job recovers", lambda: self._attempt() > attempt and self._trains(), RECOVERED_SECONDS)

    def _attempt(self) -> int:
        return self._life.attempt_of(self._life.job(JOB)["metadata"]["uid"])

    def _step(self) -> int:
        attempts = self._life.trainer_of(JOB).attempts
        return max((attempt.step for attempt in attempts.values()), default=0)

    def _trains(self) -> bool:
        attempt = self._life.trainer_of(JOB).attempts.get(self._attempt())
        return attempt is not None and attempt.made > 0

    def _holds(self, rule: str, holds: Callable[[], bool], seconds: float) -> None:
        if not self._life.run_until(holds, seconds):
            status = self._life.job(JOB).get("status") or {}
            raise FuzzError(f"{rule}: not within {seconds:.0f} s; it is {status.get('state')}, {status.get('reason')}")

    # What comes beside it.

    def _comes(self, one: Input) -> None:
        if one.kind in RESOURCES:
            data = wire.encode(one.document)
            if len(data) > MOST_BYTES:
                return
            resource, metadata = RESOURCES[one.kind], one.document["metadata"]
            self._come.add((resource, metadata.get("namespace", ""), metadata["name"]))
            self._count(one, lambda: _is_understood(resource, one.document))
            self._life.server.restore(resource, one.document)
        else:
            self._count(one, lambda: False)
            self._visitors.come(one)

    def _count(self, one: Input, understood: Callable[[], bool]) -> None:
        if one.mutated:
            self._outcome.inputs[one.kind] += 1
            self._outcome.understood[one.kind] += understood()

    def _concerns(self, value: Object) -> bool:
        """Kubelets, the scheduler and the checks look after the healthy job only."""
        metadata = value["metadata"]
        of_fleet = metadata.get("namespace", "") in ("", NODE_LEASES) and metadata["name"] in self._life.machines
        return of_fleet or metadata.get("namespace") == NAMESPACE

    def _between_steps(self, begins: bool) -> None:
        now = time.thread_time()
        if begins:
            self._step_begun = now
        elif self._step_begun is not None:
            seconds, self._step_begun = now - self._step_begun, None
            self._times.steps.append(seconds)
            if seconds > LONGEST_STEP_SECONDS:
                raise FuzzError(f"nothing takes long: a step of the loop has taken {seconds:.1f} s")


def _deciding_seconds(operator: Operator) -> float:
    """Time to look at the healthy job's world and decide, at best of five times."""
    job = operator.cluster.job((NAMESPACE, JOB))
    assert job is not None
    assert not isinstance(job, decode.Undecodable)
    found: list[float] = []
    for _ in range(5):
        begun = time.thread_time()
        world = operator.cluster.world(job)
        decide(replace(world, queue_decision=operator.queue.decision_of(job.metadata.uid)), operator.worker_settings())
        found.append(time.thread_time() - begun)
    return min(found)


def _is_understood(resource: str, document: Object) -> bool:
    """Whether the operator's decoder of the kind takes it."""
    complete = {**document, "metadata": {**document["metadata"], "resourceVersion": "1"}}
    try:
        return not isinstance(_DECODERS[resource](wire.encode(complete)), decode.Undecodable)
    except Exception:  # noqa: BLE001 - whatever it says
        return False


_DECODERS: dict[str, Callable[[decode.Raw], object]] = {
    "trainingjobs": decode.custom(TrainingJob),
    "gangs": decode.custom(Gang),
    "nodehealths": decode.custom(NodeHealth),
    "fleetpolicies": decode.custom(FleetPolicy),
    "nodes": decode.node,
    "pods": decode.pod,
    "leases": decode.node_lease,
    "priorityclasses": decode.priority_class,
}


def median_ratio(several: list[tuple[float, float]]) -> float:
    """The median of quotients, each of a pair measured in one round."""
    return round(statistics.median(beside / alone for alone, beside in several if alone > 0), 3) if several else 0.0
