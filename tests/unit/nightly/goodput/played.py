"""Plays a history to the shipped code by its own inputs: lines of programs, launchers' reports, records, the job's
status.

Each launcher has a clock of its own, and so has each leader. What the program prints goes through `StepClock` and
`ProgressFile`, then as a report into the `Hub`; each commit and each status is what the operator makes of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.unit.lifecycle.builders import GPU, Scene, a_job, at
from tests.unit.nightly.goodput.drawn import Plan
from tests.unit.nightly.goodput.reference import KEPT, Attempt, End, History

from muster.answers.reported import JobReport, report
from muster.api.gang import AttemptStart, FaultClass, GangIncident, GangSpec, Level, Member, Resume
from muster.api.goodput import Account, Goodput
from muster.api.trainingjob import CheckpointStatus, Condition, ConditionStatus
from muster.coordinator.auth import Caller
from muster.coordinator.hub import Hub
from muster.decision.accounted import record_with_account
from muster.goodput.account import MILLISECOND, close_account
from muster.goodput.figures import KeptWork, settle_account
from muster.goodput.prices import Prices
from muster.goodput.status_goodput import goodput_of_status
from muster.node.launcher.progress import ProgressFile
from muster.node.launcher.snapshot import RankSnapshot, Snapshot
from muster.node.launcher.stepclock import StepClock
from muster.protocol.checks import CheckAnswer, CheckReport
from muster.protocol.messages import (
    CHECKPOINT_STALL,
    COMMUNICATION,
    IDLE,
    INPUT_WAIT,
    RUNNING,
    CheckpointReport,
    Report,
)
from muster.record.incidents import newest_step
from muster.recovery.failure import Kind
from muster.world.checks import CheckerView
from muster.world.job import JobWorld


@dataclass(frozen=True)
class Outcome:
    """What the shipped code says of a history."""

    account: Account
    goodput: Goodput
    report: JobReport
    incidents: list[GangIncident]


class _Launcher:
    """One worker's launcher, with a monotonic clock that begins anywhere."""

    def __init__(self, index: int, file: Path) -> None:
        self.index = index
        self.base = 1000.0 + 7919.0 * index
        self.file = file
        self.sequence = 0
        self.previous = 0
        self.start(0, 0)

    def start(self, attempt: int, now: int) -> None:
        self.attempt, self.started_at, self.lines = attempt, now, 0
        self.clock = StepClock()
        self.file.write_bytes(b"")
        self.progress = ProgressFile(str(self.file))

    def read(self, attempt: Attempt, now: int) -> None:
        """Take in what its rank has printed until now."""
        while self.lines < len(attempt.lines):
            line = attempt.lines[self.lines]
            if line.finished[self.index] > now:
                return
            document: dict[str, Any] = {"step": line.step}
            if line.waits:
                wait = line.waits[self.index]
                document |= {
                    INPUT_WAIT: wait.input / 1000,
                    COMMUNICATION: wait.communication / 1000,
                    CHECKPOINT_STALL: wait.checkpoint / 1000,
                }
                with self.file.open("ab") as file:
                    file.write(json.dumps(document).encode() + b"\n")
                self.progress.read()
            self.clock.add_step(line.step, self.base + line.finished[self.index] / 1000)
            self.lines += 1

    def snapshot(self, number: int, saves: tuple[CheckpointReport, ...], *, runs: bool) -> Snapshot:
        if not runs:
            return Snapshot(IDLE, number, previous_attempt=self.previous, checkpoints=saves)
        clock, spent = self.clock, self.progress.seconds
        return Snapshot(
            RUNNING,
            number,
            ranks=(RankSnapshot(self.index, 0, alive=True),),
            started_at=self.base + self.started_at / 1000,
            step=clock.step,
            step_at=clock.finished_at,
            step_seconds=clock.step_seconds(),
            step_p90_seconds=clock.step_p90_seconds(),
            first_step=clock.first_step,
            first_step_at=clock.first_step_at,
            step_stride=clock.stride(),
            input_wait_seconds=spent.get(INPUT_WAIT),
            communication_seconds=spent.get(COMMUNICATION),
            checkpoint_stall_seconds=spent.get(CHECKPOINT_STALL),
            checkpoints=saves,
        )

    def report(self, snapshot: Snapshot, now: int) -> Report:
        self.sequence += 1
        return snapshot.report(self.base + now / 1000, self.sequence)


class Player:
    """One job, its leader and its launchers."""

    def __init__(self, plan: Plan, history: History, folder: Path) -> None:
        self.plan, self.history = plan, history
        throughput = {"tokensPerStep": 4096, "flopsPerToken": 6 * 10**9, "peakTflopsPerGpu": 1000}
        spec: dict[str, Any] = {"gpusPerNode": plan.asked, "throughput": throughput}
        spec["checkpoint"] = {"directory": "/checkpoints"} if history.has_directory else {}
        job = a_job(nodes=plan.nodes, **spec)
        created = job.metadata.model_copy(update={"creation_timestamp": at(0), "generation": 2})
        self.job = job.model_copy(update={"metadata": created})
        self.record: GangSpec | None = None
        self.launchers = [_Launcher(index, folder / f"rank-{index}") for index in range(plan.nodes)]
        self.now = 0
        self.leader_since, self.attempt_since, self.ahead = -(10**6), 0, plan.ahead
        self.hub = Hub(clock=lambda: 50_000.0 + self.now / 1000)
        self.changes = [(share * history.ended // 1000, plan.ahead + more) for share, more in plan.leaders]
        self.tested = 0
        self.number = 0

    # The surroundings.

    def clock(self) -> datetime:
        """What the leader's wall clock shows."""
        return at((self.now + self.ahead) / 1000)

    def world(self) -> JobWorld:
        scene = Scene(self.job, seconds=(self.now + self.ahead) / 1000).fleet(self.plan.nodes)
        for name in list(scene.nodes):
            scene.node(name, allocatable={GPU: self.plan.gpus_of_node})
        scene.record = self.record
        if self.record is not None and self.record.members:
            scene.pods()
            views = self.hub.views_of([scene.uid(index) for index in range(self.plan.nodes)])
            scene.launchers.update(views)
        if self.tested:
            answer = CheckAnswer("o1", "Node", "Ended", seconds=self.tested / 1000)
            shorter = replace(answer, seconds=self.tested / 2000)
            checkers = {
                f"n{n}": CheckerView(0.5, CheckReport(1, answers=(answer if n == 0 else shorter,)))
                for n in range(self.plan.nodes)
            }
            scene.but(checkers=checkers)
        scene.but(
            queue_decision=None,
            now=self.clock(),
            ahead_seconds=self.ahead / 1000,
            leader_age_seconds=(self.now - self.leader_since) / 1000,
            attempt_age_seconds=(self.now - max(self.attempt_since, self.leader_since)) / 1000,
        )
        return scene.world()

    def commit(self, spec: GangSpec) -> None:
        kept = GangSpec.model_validate(record_with_account(self.world(), spec).to_json())
        if self.record is None or self.record.attempt != kept.attempt:
            self.attempt_since = self.now
        self.record = kept
        account = kept.account
        assert account is not None
        assert sum(account.milliseconds.values()) == (account.counted_until - account.creation_time) // MILLISECOND, (
            "the sum of a record"
        )

    def write_status(self, saved: int | None, *, ended: bool = False, succeeded: bool = False) -> Goodput | None:
        world = self.world()
        step = max((view.step for view in world.views.values() if view.step is not None), default=self.job.status.step)
        suspended = any(c.status is ConditionStatus.TRUE for c in self.job.status.conditions)
        found = goodput_of_status(world, step=step, saved=saved, ended=ended, succeeded=succeeded, suspended=suspended)
        if found is not None:
            found = Goodput.model_validate(found.to_json())
            assert found.wall_seconds == (found.counted_until - found.creation_time).total_seconds() // 1, (
                "the sum of a status"
            )
        changes: dict[str, Any] = {"goodput": found, "step": step}
        changes["attempt"] = self.record.attempt if self.record else 0
        if saved is not None:
            changes["checkpoint"] = CheckpointStatus(step=saved, path=f"/checkpoints/{saved}", time=self.clock())
        if ended:
            changes["state"] = "Succeeded" if succeeded else "Failed"
        self.update(**changes)
        return found

    def update(self, **changes: Any) -> None:
        self.job = self.job.model_copy(update={"status": self.job.status.model_copy(update=changes)})

    def condition(self, *, suspended: bool, moment: int) -> None:
        """The condition Suspended as the leader writes it."""
        status = ConditionStatus.TRUE if suspended else ConditionStatus.FALSE
        reason = "Suspended" if suspended else "Resumed"
        when = at((moment + self.ahead) / 1000)
        found = Condition(type="Suspended", status=status, reason=reason, last_transition_time=when)
        spec = self.job.spec.model_copy(update={"suspend": suspended})
        self.job = self.job.model_copy(update={"spec": spec})
        self.update(conditions=[found])

    def hear(self, attempt: Attempt | None, number: int, *, runs: bool) -> None:
        known = [save for each in self.known_attempts(attempt) for save in each.saves if save.known <= self.now]
        saves = tuple(CheckpointReport(save.step, f"/checkpoints/{save.step}") for save in known[-KEPT:])
        for launcher in self.launchers:
            if runs and attempt is not None:
                launcher.read(attempt, self.now)
            found = launcher.report(launcher.snapshot(number, saves, runs=runs), self.now)
            index = launcher.index
            caller = Caller("default", f"job-{index}-1", f"pod-{index}-1", f"n{index}", "")
            self.hub.record(caller, found)

    def known_attempts(self, attempt: Attempt | None) -> list[Attempt]:
        """Those whose saves may lie in the directory."""
        every = list(self.history.attempts)
        return every[: every.index(attempt) + 1] if attempt is not None else every

    def go_to(self, moment: int, attempt: Attempt | None, *, runs: bool) -> None:
        """Time passes; leaders change in it."""
        while self.changes and self.changes[0][0] <= moment:
            when, ahead = self.changes.pop(0)
            self.now = max(self.now, when)
            self.ahead, self.leader_since = ahead, self.now
            self.hub = Hub(clock=lambda: 50_000.0 + self.now / 1000)
            if self.record is not None and self.record.members:
                self.hear(attempt, self.record.attempt if not runs else self.number, runs=runs)
        self.now = max(self.now, moment)

    # What happens.

    def play(self) -> Outcome:
        for place, attempt in enumerate(self.history.attempts):
            before = self.history.attempts[place - 1] if place else None
            self.place(attempt, before)
            if attempt.ran:
                self.start(attempt)
                self.train(attempt)
            self.go_to(attempt.seen, attempt, runs=attempt.ran)
            if attempt.ran:
                self.hear(attempt, self.number, runs=True)
            if attempt is not self.history.attempts[-1]:
                self.end(attempt, self.history.attempts[place + 1])
        return self.finish(self.history.attempts[-1])

    def place(self, attempt: Attempt, before: Attempt | None) -> None:
        """The attempt gets its nodes, after suspensions and waits."""
        since = before.seen if before is not None else 0
        for begin, until in self.history.suspended:
            if since <= begin < attempt.placed:
                self.go_to(begin, before, runs=False)
                self.condition(suspended=True, moment=begin)
                self.write_status(self.saved())
                self.go_to(until, before, runs=False)
                self.condition(suspended=False, moment=until)
                self.write_status(self.saved())
        members = [
            Member(
                index=n, rank=n, node=f"n{n}", incarnation=1, pod_uid=f"pod-{n}-1", is_replacement=attempt.tested > 0
            )
            for n in range(self.plan.nodes)
        ]
        if self.record is not None and self.record.members and all(member.node for member in self.record.members):
            self.tested = attempt.tested  # the record that ended the attempt before has placed this one, too
        else:
            self.go_to(attempt.placed, before, runs=False)
            self.tested = 0
            number = self.record.attempt + 1 if self.record else 1
            spec = self.record or GangSpec(
                job_uid=self.job.metadata.uid, attempt=1, time=at(0), level=Level.START, reason="Started", members=[]
            )
            changes = {"attempt": number, "time": self.clock(), "members": members, "start": None, "reason": "Started"}
            self.commit(spec.model_copy(update=changes))
            self.tested = attempt.tested
            self.hear(before, number, runs=False)
        if attempt.tested and self.record is not None:
            self.record = self.record.model_copy(
                update={"members": [m.model_copy(update={"is_replacement": True}) for m in self.record.members]}
            )

    def saved(self) -> int | None:
        """The newest complete checkpoint that is known."""
        known = [save for attempt in self.history.attempts for save in attempt.saves if save.known <= self.now]
        # What lies beyond the step of a later start does not count, and there is none: a start goes on from the newest
        # one.
        return max((save.step for save in known), default=None)

    def start(self, attempt: Attempt) -> None:
        assert self.record is not None
        self.go_to(attempt.started, attempt, runs=False)
        number = self.record.attempt
        self.hear(None if attempt is self.history.attempts[0] else attempt, number, runs=False)
        has_one = attempt.resumed and self.history.has_directory
        resume = Resume(step=attempt.resumed, path=f"/checkpoints/{attempt.resumed}") if has_one else None
        incidents = [
            each if each.resumed_step is not None else each.model_copy(update={"resumed_step": attempt.resumed})
            for each in self.record.incidents
        ]
        go = AttemptStart(time=self.clock(), master_address="10.0.0.1", master_port=20001, resume=resume)
        self.commit(self.record.model_copy(update={"start": go, "incidents": incidents}))
        self.tested, self.number = 0, number
        for launcher in self.launchers:
            launcher.start(number, self.now)
        self.hear(attempt, number, runs=True)

    def train(self, attempt: Attempt) -> None:
        """It makes its steps; the status is written when a checkpoint is known, and now and then."""
        known = sorted(save.known for save in attempt.saves if save.known < attempt.seen)
        moments = {*known[:1], *known[1 :: max(len(known) // 3, 1)], *known[-1:]}
        moments |= {
            attempt.started + (attempt.seen - attempt.started) * n // (self.plan.reads + 1)
            for n in range(1, self.plan.reads + 1)
        }
        changes = {when for when, _ in self.changes if attempt.started <= when < attempt.seen}
        for moment in sorted(moments | changes):
            self.go_to(moment, attempt, runs=True)
            self.hear(attempt, self.number, runs=True)
            self.write_status(self.saved())

    def end(self, attempt: Attempt, then: Attempt) -> None:
        """The attempt ends, and another one follows."""
        assert self.record is not None
        incidents = list(self.record.incidents)
        if attempt.end in (End.FAILURE, End.HANG):
            incidents.append(self.incident(attempt))
        reason, members = "RankFailed", self.record.members
        members = [member.model_copy(update={"is_replacement": False}) for member in members]
        if attempt.end is End.PLANNED:
            reason, members = "Suspended", []
        elif then.placed > attempt.seen:
            members[-1] = members[-1].model_copy(update={"node": "", "gpus": None})
        changes: dict[str, Any] = {"attempt": self.record.attempt + 1, "start": None, "members": members}
        changes |= {"incidents": incidents, "reason": reason, "time": self.clock()}
        self.commit(self.record.model_copy(update=changes))
        self.tested = 0
        for launcher in self.launchers:
            launcher.previous = self.number
        if attempt.end is not End.PLANNED:
            self.write_status(self.saved())
            gone = attempt.gone if attempt.gone is not None else attempt.seen
            self.go_to(gone, attempt, runs=False)
            self.hear(attempt, self.record.attempt, runs=False)

    def incident(self, attempt: Attempt) -> GangIncident:
        assert self.record is not None
        return GangIncident(
            attempt=self.record.attempt,
            time=self.clock(),
            fault_time=at((attempt.fault + self.ahead) / 1000),
            level=Level.IN_PLACE,
            fault_class=FaultClass(attempt.fault_class),
            reason=Kind.HANG if attempt.end is End.HANG else Kind.RANK_FAILED,
            trained=newest_step(self.world(), self.record) is not None,
        )

    def finish(self, attempt: Attempt) -> Outcome:
        assert self.record is not None
        succeeded = attempt.end is End.SUCCESS
        if attempt.end in (End.FAILURE, End.HANG):
            changes: dict[str, Any] = {"attempt": self.record.attempt + 1, "start": None, "time": self.clock()}
            changes["incidents"] = [*self.record.incidents, self.incident(attempt)]
            self.commit(self.record.model_copy(update=changes))
        saved = self.saved()
        world = self.world()
        kept = KeptWork(self.history.has_directory, saved, ended=True, succeeded=succeeded)
        account = settle_account(close_account(world, ended=succeeded)[0], kept)[0]
        goodput = self.write_status(saved, ended=True, succeeded=succeeded)
        assert goodput is not None
        made = report(self.job, goodput, Prices(flat=2.5))
        return Outcome(account, goodput, made, self.record.incidents)
