"""A stage for whole lives of jobs: a make-believe cluster and launchers around the real `decide` and `directive_for`.

Everything is a function of a clock that the test turns. Launchers report through the real hub and fence by the real
rule; kubelets, nodes and training are played. What must hold at every moment is checked at every moment: see
`_check_*`. A broken rule raises `AssertionError` at the tick that breaks it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tests.unit.lifecycle.builders import SETTINGS, a_node, at, in_queue

from muster.api.base import ObjectMeta
from muster.api.gang import Gang, GangSpec
from muster.api.trainingjob import CompletionRecord, LaunchMode, TrainingJob, TrainingJobStatus
from muster.controller.sightings import Sightings
from muster.coordinator.auth import Caller
from muster.coordinator.hub import Hub
from muster.decision.accounted import plan_with_goodput
from muster.fencing.ages import Beats, UnfencedAges
from muster.lifecycle.directive import directive_for
from muster.lifecycle.plan import CheckTemplate, CommitGang, CreatePod, DeleteJob, DeletePod, Plan
from muster.lifecycle.step import decide
from muster.node.launcher.fence_file import FenceFile, FenceState
from muster.node.launcher.moves import GangView, Move, is_alone, next_move, wanted_listing, why_to_fence
from muster.protocol import messages
from muster.protocol.messages import CheckpointReport, Directive, PeerReport, RankReport, Report, StackReport
from muster.status.report import Announcement
from muster.world.fleet import Exclusion, Fleet
from muster.world.job import JobWorld, TemplateVerdict, VerdictKind
from muster.world.names import gang_name
from muster.world.views import INCARNATION_LABEL, INDEX_LABEL, JOB_UID_LABEL, ContainerView, NodeView, PodView

TICK = 0.5
DECISION_SECONDS = 2 * TICK  # the operator decides about each job so often
POD_START_SECONDS = 2.0
RECLAIM_SECONDS = 0.5
ASIDE_SECONDS = 3.0
SCAN_SECONDS = 2.0
VICTIM_SECONDS = 0.5
NOT_READY_SECONDS = 40.0
HEARTBEAT_SECONDS = 10.0
BASE_FENCE_SECONDS = 15.0
VICTIM_TAIL = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"


class OperatorKilledError(Exception):
    """The operator dies between two writes."""


@dataclass
class Script:
    """How a job's trainer behaves. `fails(attempt, step)` -> (worker, exit code, last output) when it shall."""

    total_steps: int = 30
    step_seconds: float = 1.0
    checkpoint_every: int = 5
    fails: Callable[[int, int], tuple[int, int, str] | None] = lambda attempt, step: None
    has_python: bool = True


@dataclass
class Rank:
    """One rank process."""

    rank: int
    alive: bool = True
    exit_code: int | None = None
    signal: int | None = None
    by_launcher: bool = False
    exited_at: float | None = None
    tail: str = ""
    hung: bool = False

    def end(self, now: float, code: int | None = None, signal: int | None = None, tail: str = "") -> None:
        if self.alive:
            self.alive, self.exit_code, self.signal, self.exited_at, self.tail = False, code, signal, now, tail

    def report(self, now: float) -> RankReport:
        age = None if self.exited_at is None else now - self.exited_at
        return RankReport(self.rank, 0, self.alive, self.exit_code, self.signal, self.by_launcher, age, self.tail)


@dataclass
class Machine:
    """A node and its kubelet."""

    name: str
    rack: str
    powered: bool = True
    partitioned: bool = False
    keeps_storage: bool = False  # when it is partitioned
    dark: bool = False  # its kubelet stands still: no heartbeat, no news of pods, none ended or started
    cordoned: bool = False
    rejects: bool = False
    boot: int = 1
    heartbeat_at: float = 0.0

    @property
    def reachable(self) -> bool:
        return self.powered and not self.partitioned

    @property
    def sees_storage(self) -> bool:
        return self.powered and (self.keeps_storage or not self.partitioned)

    def view(self, now: float) -> NodeView:
        ready = now - self.heartbeat_at < NOT_READY_SECONDS
        return view_of_node(self.name, self.rack, ready, self.cordoned, f"{self.name}-{self.boot}")


@functools.cache
def view_of_node(name: str, rack: str, ready: bool, cordoned: bool, boot_id: str) -> NodeView:
    """The same object while nothing of the node changes, as the operator's cache has it."""
    return a_node(name, rack=rack, ready=ready, unschedulable=cordoned, boot_id=boot_id)


@dataclass
class Pod:
    """A pod as the API server has it, with what runs in it."""

    view: PodView
    launcher: Launcher | None = None
    stuck: bool = False
    ending_at: float | None = None

    @property
    def name(self) -> str:
        return self.view.name


class Shelf:
    """The shared checkpoint directory of a job, as one machine reaches it: a look is over at once."""

    path = "/checkpoints/.muster-gang"
    pids: frozenset[int] = frozenset()
    is_busy = False

    def __init__(self, play: Play, machine: Machine) -> None:
        self._play, self._machine = play, machine
        self._found: FenceState | None = None

    def read(self) -> None:
        self.claim(0)

    def claim(self, attempt: int) -> None:
        if self._machine.sees_storage:
            self._play.fence_file = max(self._play.fence_file, attempt)
            self._found = FenceState(self._play.fence_file, "shelf" if self._play.fence_file else "")
        else:
            self._found = FenceState(error="no route")

    def pop_result(self) -> FenceState | None:
        found, self._found = self._found, None
        return found

    def kill(self) -> None:
        pass


@dataclass
class Launcher:
    """Plays muster-run: converges to its directive, reports, fences."""

    pod: PodView
    fence_file: FenceFile
    obeys_fence_file: bool = False
    sequence: itertools.count[int] = field(default_factory=itertools.count)
    asked_for: tuple[int, int] = (0, 0)  # attempt and listing
    scanned_for: tuple[int, int] = (0, 0)
    scans_at: float = 0.0
    attempt: int = 0
    ranks: list[Rank] = field(default_factory=list)
    previous: tuple[int, list[Rank]] = (0, [])  # the attempt before, and its ranks
    directive: Directive | None = None
    reclaim_until: float | None = None
    stacks_attempt: int = 0  # the attempt whose ranks print their stacks, or have printed them
    stubborn: bool = False  # its ranks cannot be killed
    mute: bool = False  # it neither reports nor hears directives, though its node is well and it answers its neighbours
    fenced: bool = False
    step: int | None = None
    step_at: float | None = None
    first_step: int | None = None
    first_step_at: float | None = None
    started_at: float = 0.0
    answered_at: float = 0.0
    peers_heard_at: dict[int, float] = field(default_factory=dict)
    checkpoints: tuple[CheckpointReport, ...] = ()
    exited: int | None = None
    step_seconds: float = 1.0
    aside_attempt: int = 0
    aside_until: float | None = None

    @property
    def fence(self) -> float:
        """The fence that it was told last."""
        served = self.directive is not None and self.directive.kind == messages.RUN
        return self.directive.fence_seconds if served and self.directive else BASE_FENCE_SECONDS

    @property
    def due_at(self) -> float:
        """When the operator's next answer is due."""
        return self.answered_at + (self.directive.poll_seconds if self.directive is not None else 0.0)

    def gang_at(self, now: float) -> GangView:
        """What it knows when it decides whether to end its ranks."""
        return GangView(
            attempt=self.attempt,
            started_at=self.started_at,
            stepped_at=max(self.started_at, self.step_at or 0.0),
            answered_at=self.answered_at,
            due_at=self.due_at,
            fence_seconds=self.fence,
            peer_seconds=[now - heard for heard in self.peers_heard_at.values()],
            obeys_fence_file=self.obeys_fence_file,
        )

    @property
    def idle_attempt(self) -> int:
        return self.asked_for[0]

    @property
    def alive_ranks(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.alive]

    @property
    def state(self) -> str:
        if self.reclaim_until is not None:
            return messages.RECLAIMING
        if not self.ranks:
            return messages.IDLE
        return messages.RUNNING if self.alive_ranks else messages.EXITED

    def kill_ranks(self, now: float) -> None:
        for rank in self.alive_ranks:
            rank.end(now, signal=9)
            rank.by_launcher = True

    def report(self, now: float, state: str) -> Report:
        idle = state == messages.IDLE
        return Report(
            sequence=next(self.sequence),
            state=state,
            attempt=self.idle_attempt if idle else self.attempt,
            ranks=tuple(rank.report(now) for rank in self.ranks),
            previous_attempt=self.previous[0],
            previous_ranks=tuple(rank.report(now) for rank in self.previous[1]),
            step=None if idle else self.step,
            step_age_seconds=None if idle or self.step_at is None else now - self.step_at,
            started_age_seconds=None if idle else now - self.started_at,
            first_step=None if idle or self.first_step_at is None else self.first_step,
            first_step_age_seconds=None if idle or self.first_step_at is None else now - self.first_step_at,
            fence_seconds=self.fence,
            step_seconds=self.step_seconds if self.step else None,
            fenced=self.fenced,
            peer_port=9000,
            peers=tuple(PeerReport(index, now - heard) for index, heard in sorted(self.peers_heard_at.items())),
            checkpoints=self.checkpoints,
            checkpoints_scanned_for_attempt=self.scanned_for[0] if self.fence_file.has_looked else 0,
            listing_round=self.scanned_for[1],
            address=self.pod.pod_ip,
            reads_fence_file=self.fence_file.is_readable,
            fence_file_attempt=self.fence_file.standing.attempt,
            fence_file_age_seconds=None if self.fence_file.claimed_at is None else now - self.fence_file.claimed_at,
            fence_file_id=self.fence_file.standing.identity,
            fence_file_error=self.fence_file.standing.error,
            moved_attempt=self.aside_attempt,
            stacks_attempt=0 if self.reclaim_until is not None else self.stacks_attempt,
            stacks=() if self.ranks else tuple(StackReport(rank.rank, "/train.py:1 in f") for rank in self.previous[1]),
        )


@dataclass
class Play:
    """One job on the stage."""

    job: TrainingJob
    script: Script
    gang: Gang | None = None
    checkpoints: dict[int, int] = field(default_factory=dict)  # step -> attempt that published it
    fence_file: int = 0  # the attempt that stands beside them
    asides: list[int] = field(default_factory=list)  # attempts before which directories were moved aside
    history: list[GangSpec] = field(default_factory=list)  # each attempt as first committed
    events: list[Announcement] = field(default_factory=list)
    progress: dict[int, tuple[int, float]] = field(default_factory=dict)  # attempt -> step, seconds into the next
    deleted: bool = False

    @property
    def uid(self) -> str:
        return self.job.metadata.uid

    @property
    def record(self) -> GangSpec:
        assert self.gang is not None
        return self.gang.spec

    @property
    def completion(self) -> CompletionRecord | None:
        return self.job.status.completion

    @property
    def step(self) -> int:
        """Newest step of the current attempt."""
        return self.progress.get(self.record.attempt, (0, 0.0))[0] if self.gang else 0

    @property
    def levels(self) -> list[str]:
        return [spec.level.value for spec in self.history]


class Theatre:
    """The stage. `lag_seconds`: how late the operator sees what others do to pods."""

    def __init__(self, nodes: int = 4, per_rack: int = 2, lag_seconds: float = 0.0) -> None:
        self.now = 0.0
        self.lag_seconds = lag_seconds
        self.excluded: dict[str, Exclusion] = {}
        self.machines = {f"n{i}": Machine(f"n{i}", f"r{i // per_rack}") for i in range(nodes)}
        self.plays: dict[str, Play] = {}
        self.pods: dict[str, Pod] = {}
        self.orphans: list[Pod] = []  # force-deleted, and their kubelets have not heard of it
        self.lost: set[str] = set()  # pods of machines of which a person has said that they are lost
        self._versions = itertools.count(100)
        self._uids = itertools.count(1)
        self._up_at: float | None = 0.0
        self._kill_after_writes: int | None = None
        self._wakes: dict[str, float] = {}
        self._start_operator()

    # What tests call.

    def submit(self, job: TrainingJob, **script: object) -> Play:
        play = Play(job, Script(**script))  # type: ignore[arg-type]
        self.plays[play.uid] = play
        return play

    def until(self, holds: Callable[[], bool], limit_seconds: float = 300.0) -> None:
        end = self.now + limit_seconds
        while not holds():
            assert self.now < end, f"not within {limit_seconds} s: {self.describe()}"
            self.tick()

    def play_on(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.tick()

    def finish(self, play: Play, limit_seconds: float = 900.0) -> CompletionRecord:
        """Play on until the job has ended."""
        self.until(lambda: play.completion is not None, limit_seconds)
        assert play.completion is not None
        return play.completion

    def pod_of(self, play: Play, index: int) -> Pod:
        """The pod of a worker of the current attempt."""
        incarnation = play.record.members[index].incarnation
        name = f"{gang_name(play.job.metadata.name, play.uid)}-{index}-{incarnation}"
        return self.pods[name]

    def launcher_of(self, play: Play, index: int) -> Launcher:
        launcher = self.pod_of(play, index).launcher
        assert launcher is not None
        return launcher

    def node_of(self, play: Play, index: int) -> Machine:
        return self.machines[play.record.members[index].node]

    def end_rank(self, play: Play, index: int, code: int | None = None, signal: int | None = 9, tail: str = "") -> None:
        """A rank ends by itself or by a stranger's signal."""
        for rank in self.launcher_of(play, index).alive_ranks:
            rank.end(self.now, code, None if code is not None else signal, tail)

    def delete_pod(self, play: Play, index: int) -> None:
        self.delete(self.pod_of(play, index))

    def force_delete_pod(self, play: Play, index: int) -> None:
        """The object vanishes at once; its processes end once its kubelet hears of that."""
        pod = self.pod_of(play, index)
        self._gone(pod)
        self.orphans.append(pod)
        self._end_orphans()

    def out_of_memory(self, play: Play, index: int) -> None:
        """The kernel kills the whole container."""
        pod = self.pod_of(play, index)
        assert pod.launcher is not None
        pod.launcher.kill_ranks(self.now)
        self._terminate(pod, "Failed", 137, "OOMKilled")

    def power_cut(self, node: str) -> None:
        """Silence: nobody's connection is reset."""
        self.machines[node].powered = False
        for pod in [*self._pods_on(node), *(pod for pod in self.orphans if pod.view.node == node)]:
            if pod.launcher:
                pod.launcher.kill_ranks(self.now)
                pod.launcher = None
                pod.ending_at = None

    def power_on(self, node: str) -> None:
        """The node boots; what ran on it has ended."""
        machine = self.machines[node]
        machine.powered, machine.partitioned, machine.dark, machine.heartbeat_at = True, False, False, self.now
        machine.boot += 1
        for pod in self._pods_on(node):
            if pod.view.phase == "Running":
                self._terminate(pod, "Failed", 255, "Unknown")

    def partition(self, node: str, on: bool = True, keeps_storage: bool = False) -> None:
        """Nothing gets into the node or out of it, but to and from storage where it keeps that; what runs there goes
        on."""
        self.machines[node].partitioned, self.machines[node].keeps_storage = on, keeps_storage

    def darken(self, node: str, on: bool = True) -> None:
        """The kubelet stands still; what runs on the node goes on, and its launchers are heard."""
        self.machines[node].dark = on

    def lose(self, node: str) -> None:
        """A machine is gone for good, and a person says so."""
        self.power_cut(node)
        self.lost |= {pod.view.uid for pod in self._pods_on(node)}

    def set_spec(self, play: Play, **changes: object) -> None:
        spec = play.job.spec.model_copy(update=changes)
        metadata = play.job.metadata.model_copy(update={"generation": play.job.metadata.generation + 1})
        play.job = play.job.model_copy(update={"spec": spec, "metadata": metadata})

    def kill_operator(self, down_seconds: float = 5.0) -> None:
        """The operator loses its memory and is away for a while."""
        self._up_at = self.now + down_seconds

    def kill_operator_after_writes(self, count: int) -> None:
        """The operator dies as soon as it has done so many more writes."""
        self._kill_after_writes = count

    def describe(self) -> str:
        """For a failing test."""
        lines = [f"at {self.now} s"]
        for play in self.plays.values():
            status = play.job.status
            lines.append(f"  {play.job.metadata.name}: {status.state} {status.reason} step {play.step}")
            lines += [f"    {c.type}={c.status} {c.reason}: {c.message}" for c in status.conditions if c.message]
            for spec in play.history:
                where = ",".join(f"{m.node}/{m.incarnation}" for m in spec.members)
                lines.append(f"    {spec.attempt}: {spec.level} {spec.reason} {where} at {spec.time:%H:%M:%S}")
            if play.gang:
                lines += [
                    f"    unfenced worker {g.pod} until {g.fenced_time:%H:%M:%S}" for g in play.record.unfenced_workers
                ]
        for pod in self.pods.values():
            state = pod.launcher.state if pod.launcher else "no launcher"
            lines.append(f"  {pod.name} on {pod.view.node}: {pod.view.phase} deleting={pod.view.deleting} {state}")
        return "\n".join(lines)

    # The clock.

    def tick(self) -> None:
        self.now = round(self.now + TICK, 3)
        for machine in self.machines.values():
            if machine.reachable and not machine.dark and self.now - machine.heartbeat_at >= HEARTBEAT_SECONDS:
                machine.heartbeat_at = self.now
                self._beats.renewed(machine.name, self.now, self.now)
        for pod in list(self.pods.values()):
            self._kubelet(pod)
        self._end_orphans()
        for pod in [*self.pods.values(), *self.orphans]:
            if pod.launcher and self.machines[pod.view.node].powered:
                self._launcher(pod, pod.launcher)
        for play in self.plays.values():
            self._train(play)
        self._operator()
        self._check_one_gang_per_node()

    # Kubelets.

    def _kubelet(self, pod: Pod) -> None:
        machine, view = self.machines[pod.view.node], pod.view
        if not machine.reachable or machine.dark:
            return
        if view.terminal:
            if view.deleting:
                self._gone(pod)
            return
        if view.deleting:
            self._end_gracefully(pod)
        elif view.phase == "Pending":
            old = [other for other in self._pods_on(machine.name) if other is not pod and not other.view.terminal]
            assert view.created
            if not old and (at(self.now) - view.created).total_seconds() >= POD_START_SECONDS:
                self._start_pod(pod, machine)
        elif pod.launcher and pod.launcher.exited is not None:
            code = pod.launcher.exited
            self._terminate(pod, "Failed" if code else "Succeeded", code, "Error" if code else "Completed")

    def _end_orphans(self) -> None:
        for pod in self.orphans:
            if pod.launcher and self.machines[pod.view.node].reachable:
                pod.launcher.kill_ranks(self.now)
                pod.launcher = None
        self.orphans = [pod for pod in self.orphans if pod.launcher]

    def _start_pod(self, pod: Pod, machine: Machine) -> None:
        play = self.plays[pod.view.job_uid]
        if machine.rejects:
            self._set(pod, replace(pod.view, phase="Failed", reason="UnexpectedAdmissionError", message="device lost"))
        elif not play.script.has_python and play.job.spec.launch.mode is LaunchMode.MANAGED:
            text = 'exec: "python3": executable file not found in $PATH'
            self._terminate(pod, "Failed", 128, "StartError", text)
        else:
            number = int(machine.name[1:])
            main = ContainerView("main", running=True)
            self._set(pod, replace(pod.view, phase="Running", pod_ip=f"10.0.{number}.{pod.view.incarnation}"))
            self._set(pod, replace(pod.view, containers=(main,)))
            fence_file = FenceFile(Shelf(play, machine))  # type: ignore[arg-type]
            seconds = play.script.step_seconds
            pod.launcher = Launcher(pod.view, fence_file, answered_at=self.now, step_seconds=seconds)
            if play.job.spec.launch.mode is LaunchMode.PLAIN:
                self._start_ranks(play, pod.launcher, Directive(messages.RUN, attempt=play.record.attempt))

    def _end_gracefully(self, pod: Pod) -> None:
        if pod.ending_at is None:
            pod.ending_at = self.now
            launcher = pod.launcher
            if launcher and not launcher.stubborn and launcher.exited is None:
                launcher.kill_ranks(self.now)
                launcher.reclaim_until = None
                self._send(launcher, messages.TERMINATING)
                launcher.exited = 143
            return
        if pod.stuck or (pod.launcher and pod.launcher.stubborn and self.now - pod.ending_at < 30):
            return
        if self.now - pod.ending_at >= 1.0:
            if pod.launcher:
                pod.launcher.kill_ranks(self.now)
            self._terminate(pod, "Failed", 143, "Error")

    def _terminate(self, pod: Pod, phase: str, code: int, reason: str, message: str = "") -> None:
        dead = ContainerView(
            "main", terminated=True, exit_code=code, terminated_reason=reason, terminated_message=message
        )
        pod.launcher = None
        self._set(pod, replace(pod.view, phase=phase, containers=(dead,)))

    # Launchers.

    def _launcher(self, pod: Pod, launcher: Launcher) -> None:
        if launcher.exited is not None or self.plays[pod.view.job_uid].job.spec.launch.mode is (LaunchMode.PLAIN):
            return
        self._ping(pod, launcher)
        self._look_at_fence_file(launcher)
        self._converge(pod, launcher)
        if launcher.exited is not None:
            return
        directive = self._send(launcher, launcher.state)
        if directive is not None:
            launcher.directive = directive

    def _send(self, launcher: Launcher, state: str) -> Directive | None:
        """Report to the operator, if it can be reached; its directive."""
        if self._up_at is not None or launcher.mute or not self.machines[launcher.pod.node].reachable:
            return None
        launcher.answered_at = self.now
        view = launcher.pod
        self.hub.record(
            Caller("default", view.name, view.uid, view.node, f"uid-of-{view.node}"), launcher.report(self.now, state)
        )
        self._wakes[view.job_uid] = self.now
        play = self.plays.get(view.job_uid)
        gang = play.gang if play else None

        def launcher_of(index: int) -> object:
            member = gang.spec.members[index] if gang else None
            return self.hub.last(member.pod_uid) if member and member.pod_uid else None

        job = play.job if play and not play.deleted else None
        return directive_for(job, gang, view.name, view.uid, launcher_of)  # type: ignore[arg-type]

    def _ping(self, pod: Pod, launcher: Launcher) -> None:
        directive = launcher.directive
        if directive is None or directive.kind != messages.RUN or not launcher.ranks:
            return
        watched = {peer.index: peer.address for peer in directive.peers}
        launcher.peers_heard_at = {
            index: launcher.peers_heard_at.get(index, launcher.started_at) for index in sorted(watched)
        }
        here = self.machines[pod.view.node]
        for index, address in watched.items():
            other = next((p for p in self.pods.values() if p.view.pod_ip == address and p.launcher), None)
            there = self.machines[other.view.node] if other else None
            if here.reachable and there and there.reachable:
                launcher.peers_heard_at[index] = self.now

    def _converge(self, pod: Pod, launcher: Launcher) -> None:
        if launcher.reclaim_until is not None:
            if self.now < launcher.reclaim_until or launcher.stubborn:
                return
            self._reclaimed(launcher)
        directive = launcher.directive
        if launcher.alive_ranks and not launcher.fenced and self._has_to_fence(launcher):
            launcher.kill_ranks(self.now)
            launcher.fenced = True
        elif directive is None:
            return
        else:
            self._follow(pod, launcher, directive)
        self._set_aside(pod, launcher)
        self._scan(pod, launcher)

    def _has_to_fence(self, launcher: Launcher) -> bool:
        return why_to_fence(launcher.gang_at(self.now), launcher.fence_file, self.now) != ""

    def _follow(self, pod: Pod, launcher: Launcher, directive: Directive) -> None:
        move = next_move(directive, launcher.attempt if launcher.ranks else None, launcher.asked_for)
        if move is Move.EXIT:
            self._send(launcher, messages.TERMINATING)
            launcher.exited = directive.exit_code
        elif move is Move.START:
            self._start_ranks(self.plays[pod.view.job_uid], launcher, directive)
        elif move is Move.END:
            launcher.reclaim_until = self.now + RECLAIM_SECONDS
            if directive.stacks_of_attempt == launcher.attempt:
                launcher.stacks_attempt = launcher.attempt
        elif move is Move.LIST:
            launcher.asked_for, launcher.scans_at = wanted_listing(directive), self.now

    def _set_aside(self, pod: Pod, launcher: Launcher) -> None:
        """Move directories aside by order, which takes a while; no rank may be alive meanwhile, wherever it is."""
        directive = launcher.directive
        is_asked = (
            directive is not None
            and directive.kind == messages.WAIT
            and directive.move_incomplete_beyond
            and not launcher.ranks
        )
        if directive is None or not is_asked or launcher.aside_attempt >= directive.attempt:
            launcher.aside_until = None
            return
        pods = [*self.pods.values(), *self.orphans]
        others = [other for other in pods if other.view.job_uid == pod.view.job_uid and other.launcher]
        assert not any(other.launcher.alive_ranks for other in others if other.launcher), "moved under ranks"
        if launcher.aside_until is None:
            launcher.aside_until = self.now + ASIDE_SECONDS
        elif self.now >= launcher.aside_until:
            launcher.aside_attempt = directive.attempt
            self.plays[pod.view.job_uid].asides.append(directive.attempt)

    def _reclaimed(self, launcher: Launcher) -> None:
        launcher.kill_ranks(self.now)
        if launcher.ranks:
            launcher.previous = launcher.attempt, launcher.ranks
        launcher.ranks, launcher.reclaim_until, launcher.fenced = [], None, False
        launcher.step, launcher.step_at, launcher.peers_heard_at = None, None, {}

    def _look_at_fence_file(self, launcher: Launcher) -> None:
        attempt = None if not launcher.ranks else 0 if launcher.fenced else launcher.attempt
        alone = is_alone(launcher.answered_at, launcher.due_at, self.now)
        fence_file = launcher.fence_file
        fence_file.follow(self.now, launcher.directive, attempt, launcher.idle_attempt, is_alone=alone)
        launcher.obeys_fence_file |= fence_file.standing.attempt >= launcher.attempt

    def _scan(self, pod: Pod, launcher: Launcher) -> None:
        if not self.machines[pod.view.node].sees_storage or self.now < launcher.scans_at:
            return
        launcher.scans_at = self.now + SCAN_SECONDS
        seen = sorted(self.plays[pod.view.job_uid].checkpoints, reverse=True)[:8]
        launcher.checkpoints = tuple(CheckpointReport(step, f"/checkpoints/{step}") for step in seen)
        if not launcher.ranks:
            launcher.scanned_for = launcher.asked_for

    # Training.

    def _start_ranks(self, play: Play, launcher: Launcher, directive: Directive) -> None:
        attempt = directive.attempt
        for pod in (*self.pods.values(), *self.orphans):
            other = pod.launcher
            if other and pod.view.job_uid == play.uid and other.attempt != attempt:
                assert not other.alive_ranks, (
                    f"attempt {attempt} starts while {pod.name} runs attempt {other.attempt}\n{self.describe()}"
                )
        launcher.attempt, launcher.ranks = attempt, [Rank(launcher.pod.index)]
        launcher.started_at, launcher.step, launcher.step_at, launcher.fenced = self.now, None, None, False
        launcher.first_step = launcher.first_step_at = None
        launcher.peers_heard_at, launcher.obeys_fence_file = {}, launcher.fence_file.is_readable
        resume = directive.resume_step or 0
        assert resume in play.checkpoints or directive.resume_step is None
        # In mode Plain the program finds by itself where to go on.
        newest = max(play.checkpoints, default=0) if play.job.spec.launch.mode is LaunchMode.MANAGED else 0
        assert resume >= newest, f"attempt {attempt} starts at {resume}, behind checkpoint {newest}\n{self.describe()}"
        known = play.progress.setdefault(attempt, (resume, 0.0))
        assert known[0] >= resume

    def _train(self, play: Play) -> None:
        crew: dict[int, list[Pod]] = {}
        for pod in self.pods.values():
            if pod.view.job_uid == play.uid and pod.launcher and pod.launcher.ranks:
                crew.setdefault(pod.launcher.attempt, []).append(pod)
        for attempt, pods in crew.items():
            self._victims(pods, play)
            able = [pod for pod in pods if pod.launcher and pod.launcher.alive_ranks and not self._stands(pod)]
            if len(able) == play.job.spec.nodes and len({self.machines[p.view.node].partitioned for p in able}) == 1:
                self._advance(play, attempt, [pod.launcher for pod in able if pod.launcher])

    def _stands(self, pod: Pod) -> bool:
        alone = self.machines[pod.view.node].partitioned and self.plays[pod.view.job_uid].job.spec.nodes > 1
        return alone or any(rank.hung for rank in pod.launcher.ranks if pod.launcher)  # type: ignore[union-attr]

    def _advance(self, play: Play, attempt: int, launchers: list[Launcher]) -> None:
        step, elapsed = play.progress[attempt]
        elapsed += TICK
        if elapsed < play.script.step_seconds:
            play.progress[attempt] = (step, elapsed)
            return
        failure = play.script.fails(attempt, step + 1)
        if failure:
            index, code, tail = failure
            for launcher in launchers:
                if launcher.pod.index == index:
                    launcher.ranks[0].end(self.now, code=code, tail=tail)
            return
        step += 1
        play.progress[attempt] = (step, 0.0)
        for launcher in launchers:
            launcher.step, launcher.step_at = step, self.now
            if launcher.first_step_at is None:
                launcher.first_step, launcher.first_step_at = step, self.now
        if step % play.script.checkpoint_every == 0:
            play.checkpoints[step] = attempt
        if step >= play.script.total_steps:
            for launcher in launchers:
                launcher.ranks[0].end(self.now, code=0)
            if play.job.spec.launch.mode is LaunchMode.PLAIN:
                for launcher in launchers:
                    launcher.exited = 0

    def _victims(self, pods: list[Pod], play: Play) -> None:
        """Connections to processes that died on living nodes are closed, and their peers fail of it."""
        seen = [pod.launcher for pod in pods if pod.launcher and self.machines[pod.view.node].reachable]
        bad = [rank for launcher in seen for rank in launcher.ranks if rank.exit_code or rank.signal]
        short = len(pods) < play.job.spec.nodes and self._lost_visibly(pods, play)
        if short or any(self.now - (rank.exited_at or 0.0) >= VICTIM_SECONDS for rank in bad):
            for pod in pods:
                reach = self.machines[pod.view.node].reachable
                for rank in pod.launcher.alive_ranks if pod.launcher and reach else []:
                    if not rank.hung:
                        rank.end(self.now, code=1, tail=VICTIM_TAIL)
        if play.job.spec.launch.mode is LaunchMode.PLAIN:
            for pod in pods:
                if pod.launcher and not pod.launcher.alive_ranks and pod.launcher.exited is None:
                    code = pod.launcher.ranks[0].exit_code
                    pod.launcher.exited = 1 if code is None else code

    def _lost_visibly(self, pods: list[Pod], play: Play) -> bool:
        attempt = pods[0].launcher.attempt if pods[0].launcher else 0
        started = next((s for s in play.history if s.attempt == attempt), None)
        if started is None or (play.record.attempt == attempt and play.record.start is None):
            return False
        since = max(pod.launcher.started_at for pod in pods if pod.launcher)
        here = {pod.view.index for pod in pods}
        lost = [m.node for i, m in enumerate(started.members) if i not in here]
        return self.now - since > 5.0 and all(self.machines[node].reachable for node in lost if node)

    # The operator.

    def _start_operator(self) -> None:
        self.hub = Hub(clock=lambda: self.now)
        self.hub.start_serving()
        self._leader_since = self.now
        self._up_at = None
        self._cache = {pod.name: pod.view for pod in self.pods.values()}
        self._coming: list[tuple[float, str, PodView | None, int]] = []
        self._dead = {view.uid for view in self._cache.values() if view.containers_dead}
        self._verdicts: dict[str, TemplateVerdict] = {}
        self._wakes = {}
        self._beats = Beats()
        self._sightings = Sightings(lambda: self.now)
        for view in self._cache.values():
            self._sightings.note(None, view)
        self._ages: dict[str, UnfencedAges] = {}

    def _operator(self) -> None:
        if self._up_at is not None:
            if self.now < self._up_at:
                return
            self._start_operator()
        self._deliver()
        if self.now % DECISION_SECONDS:
            return
        try:
            for play in list(self.plays.values()):
                self._passes(play)
        except OperatorKilledError:
            self._kill_after_writes = None
            self.kill_operator()

    def _passes(self, play: Play) -> None:
        for _ in range(20):
            if play.deleted:
                return
            world = self.world(play)
            plan = plan_with_goodput(world, decide(world, SETTINGS))
            self._perform(play, plan)
            if plan.wake_in_seconds != 0.0 and not any(isinstance(a, CheckTemplate) for a in plan.actions):
                return
        raise AssertionError(f"the same job is decided again and again: {plan.actions}\n{self.describe()}")

    def world(self, play: Play) -> JobWorld:
        mine = self._alone(play)
        others = [self._alone(other) for other in self.plays.values() if other is not play and not other.deleted]
        return in_queue(mine, *others)[0]

    def _alone(self, play: Play) -> JobWorld:
        pods = {name: view for name, view in self._cache.items() if view.job_uid == play.uid}
        uids = {pod.uid for pod in pods.values()}
        if play.gang:
            uids |= {member.pod_uid for member in play.record.members} | {
                g.pod_uid for g in play.record.unfenced_workers
            }
        dead = {uid for uid in uids if uid in self._dead or self.hub.proved_dead(uid)}
        timeout = float(play.job.spec.recovery.unreachable_timeout_seconds)
        fleet, seen = self._fleet(), self._ages.setdefault(play.uid, UnfencedAges())
        seen.update(
            play.gang,
            {pod.uid for pod in pods.values() if not pod.terminal},
            fleet.nodes,
            self._beats,
            self.now,
            self.now,
        )
        return JobWorld(
            now=at(self.now),
            job=play.job,
            gang=play.gang,
            pods=pods,
            launchers=self.hub.views_of(uids),
            proved_dead=frozenset(dead),
            lost=frozenset(self.lost),
            fleet=fleet,
            silence=self.hub.silence(timeout, "default"),
            leader_age_seconds=self.now - self._leader_since,
            attempt_age_seconds=seen.attempt_age_seconds,
            listing_age_seconds=seen.listing_age_seconds,
            start_age_seconds=seen.start_age_seconds,
            pod_ages=self._sightings.ages(uids),
            unfenced_ages=seen.ages,
            removed_seconds=seen.removed_seconds,
            template_verdict=self._verdicts.get(play.uid),
        )

    def _fleet(self) -> Fleet:
        holders: dict[str, set[str]] = {}
        for play in self.plays.values():
            if play.gang and not play.completion and not play.deleted:
                for member in play.record.members:
                    holders.setdefault(member.node, set()).add(play.uid)
        for view in self._cache.values():
            if not view.terminal:
                holders.setdefault(view.node, set()).add(view.job_uid)
        return Fleet.from_parts(
            nodes={name: machine.view(self.now) for name, machine in self.machines.items()},
            holders={node: frozenset(uids) for node, uids in holders.items()},
            lease_age_seconds={
                name: self.now - max(machine.heartbeat_at, self._leader_since)
                for name, machine in self.machines.items()
            },
            excluded=self.excluded,
        )

    def _perform(self, play: Play, plan: Plan) -> None:
        for action in plan.actions:
            match action:
                case CommitGang(spec, version):
                    self._commit(play, spec, version)
                case CheckTemplate(_, generation):
                    self._verdicts[play.uid] = TemplateVerdict(VerdictKind.ACCEPTED, generation)
                    continue
                case CreatePod(manifest):
                    self._create(play, manifest)
                case DeletePod(name, uid):
                    pod = self.pods.get(name)
                    if pod and pod.view.uid == uid:
                        self.delete(pod, own=True)
                case DeleteJob():
                    play.deleted = True
                case _:
                    continue
            self._count_write()
        if plan.status is not None and not play.deleted and plan.status != play.job.status:
            self._write_status(play, plan.status)
            self._count_write()
        play.events += plan.announcements

    def _count_write(self) -> None:
        if self._kill_after_writes is not None:
            self._kill_after_writes -= 1
            if self._kill_after_writes <= 0:
                raise OperatorKilledError

    def _commit(self, play: Play, spec: GangSpec, version: str) -> None:
        before = play.gang
        assert (before.metadata.resource_version if before else "") == version
        spec = GangSpec.model_validate(spec.to_json())  # what the API server gives back
        if before is None or spec.attempt != before.spec.attempt:
            assert before is None or spec.attempt == before.spec.attempt + 1, "attempts grow one by one"
            play.history.append(spec)
        else:
            old = [(m.node, m.incarnation) for m in before.spec.members]
            assert old == [(m.node, m.incarnation) for m in spec.members], "members never change within an attempt"
            assert before.spec.start is None or spec.start == before.spec.start, "a go is given once"
        self._check_account(before.spec if before else None, spec)
        name = gang_name(play.job.metadata.name, play.uid)
        play.gang = Gang(metadata=ObjectMeta(name=name, resource_version=str(next(self._versions))), spec=spec)

    def _check_account(self, before: GangSpec | None, spec: GangSpec) -> None:
        account, earlier = spec.account, before.account if before else None
        assert account is not None, "every record has its account"
        total = timedelta(milliseconds=sum(account.milliseconds.values()))
        assert total == account.counted_until - account.creation_time, "every second is in one bucket"
        assert account.counted_until <= at(self.now), "nothing is counted before it has passed"
        assert earlier is None or earlier.counted_until <= account.counted_until, (
            "nothing that was counted is taken back"
        )

    def _write_status(self, play: Play, status: TrainingJobStatus) -> None:
        before = play.completion
        assert before is None or status.completion == before, "the end is written once"
        status = TrainingJobStatus.model_validate(status.to_json())
        play.job = play.job.model_copy(update={"status": status})

    def _create(self, play: Play, manifest: dict[str, object]) -> None:
        metadata: dict[str, object] = manifest["metadata"]  # type: ignore[assignment]
        labels: dict[str, str] = metadata["labels"]  # type: ignore[assignment]
        name, index = str(metadata["name"]), int(labels[INDEX_LABEL])
        if name in self.pods:
            return
        member = play.record.members[index]
        assert int(labels[INCARNATION_LABEL]) == member.incarnation
        view = PodView(
            "default",
            name,
            f"{name}-uid{next(self._uids)}",
            next(self._versions),
            owner_uid=play.uid,
            job_uid=labels[JOB_UID_LABEL],
            index=index,
            incarnation=member.incarnation,
            node=member.node,
            phase="Pending",
            created=at(self.now),
        )
        self.pods[name] = Pod(view)
        self._sightings.note(self._cache.get(name), view)
        self._cache[name] = view

    def delete(self, pod: Pod, own: bool = False) -> None:
        """Somebody deletes a pod; `own`: the operator does, and sees it at once."""
        if pod.view.deleting:
            return
        self._set(pod, replace(pod.view, deleting=True, grace_seconds=30))
        if own:
            self._sightings.note(self._cache.get(pod.name), pod.view)
            self._cache[pod.name] = pod.view

    def _set(self, pod: Pod, view: PodView) -> None:
        pod.view = replace(view, resource_version=next(self._versions))
        if pod.launcher:
            pod.launcher.pod = pod.view
        self._coming.append((self.now + self.lag_seconds, pod.name, pod.view, pod.view.resource_version))

    def _gone(self, pod: Pod) -> None:
        self.pods.pop(pod.name, None)
        self._coming.append((self.now + self.lag_seconds, pod.name, None, next(self._versions)))

    def _deliver(self) -> None:
        due = [item for item in self._coming if item[0] <= self.now]
        self._coming = [item for item in self._coming if item[0] > self.now]
        for _, name, view, version in due:
            known = self._cache.get(name)
            if view is None:
                if known and known.resource_version < version:
                    del self._cache[name]
                    self._sightings.note(known, None)
                    if known.uid in self._dead:
                        self.hub.forget(known.uid)
            elif known is None or known.resource_version < version:
                self._cache[name] = view
                self._sightings.note(known, view)
                if view.containers_dead:
                    self._dead.add(view.uid)

    def _pods_on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.view.node == node]

    # What must never be.

    def _check_one_gang_per_node(self) -> None:
        for node in self.machines:
            jobs = {pod.view.job_uid for pod in self._pods_on(node) if pod.launcher and pod.launcher.alive_ranks}
            assert len(jobs) <= 1, f"{node} trains for {jobs}\n{self.describe()}"
