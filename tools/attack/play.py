"""Plays a story on the stage: trouble, then everything is repaired, and every job has to come to its right end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from attack import journal
from attack.checks import Violation, check_job, check_nodes
from attack.faults import MAKERS, ON_THE_WAY, make
from attack.stage import NAMESPACE, NotMadeError, Stage
from localcluster.errors import LocalClusterError
from simulate.fault import FOR_EVER, Fault, Undo
from simulate.faults import KINDS, draw
from simulate.play import AIMED
from testbed.kube import KubectlError, WaitError, wait_until

Say = Callable[[str], None]

# Back-off, exclusion of nodes after failures, and fences that wait for a proof come one after the other at the worst.
QUIET_SECONDS = 900.0
RIPE_SECONDS = 75.0
RECOVERING_SECONDS = 30.0
LONGEST_SECONDS = 45.0
# What the last fault has for itself before everything is repaired.
LAST_SECONDS = 10.0
_STATES_OF_RECOVERY = ("Recovering", "Starting", "Pending", "Placing")


@dataclass(frozen=True)
class Made:
    """A fault that was made, or could not be.

    Attributes:
        at: when, on the machine's monotonic clock.
        state: of job `a` or the fault's own just before.
        why_not: "" if it was made.
    """

    fault: Fault
    at: float
    state: str
    why_not: str = ""


@dataclass
class Player:
    """Makes faults, and ends them when their time is over."""

    stage: Stage
    say: Say
    begun: float = field(default_factory=time.monotonic)
    made: list[Made] = field(default_factory=list)
    _undos: dict[int, Undo] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, fault: Fault) -> bool:
        """Make one now; says whether there was anything to hit."""
        state = self.stage.state_of(fault.job or "a")
        at, why_not, undo = time.monotonic(), "", None
        if fault.kind not in MAKERS:
            why_not = "cannot be made on this cluster"
        else:
            try:
                undo = make(self.stage, fault)
            except NotMadeError as error:
                why_not = str(error)
        self.made.append(Made(replace(fault, at=round(at - self.begun, 2)), at, state, why_not))
        self.say(
            f"{at - self.begun:7.1f} s  {_fault_text(fault)} in {state or '?'}"
            f"{': not made, ' if why_not else ''}{why_not}"
        )
        if undo is not None:
            number = len(self.made)
            self._undos[number] = undo
            if fault.seconds < FOR_EVER:
                timer = threading.Timer(fault.seconds, self._end, (number,))
                timer.daemon = True
                timer.start()
        return not why_not

    def _end(self, number: int) -> None:
        with self._lock:
            undo = self._undos.pop(number, None)
        if undo is None:
            return
        try:
            undo()
        except (NotMadeError, LocalClusterError, OSError) as error:
            self.say(f"{time.monotonic() - self.begun:7.1f} s  {self.made[number - 1].fault.kind} not ended: {error}")

    def end_all(self) -> None:
        # The API server first: people need it to undo what they did.
        for number in sorted(self._undos, key=lambda number: self.made[number - 1].fault.kind != "ApiAway"):
            self._end(number)

    def repair(self) -> None:
        """End all that lasts, and wait until the cluster is whole."""
        cluster = self.stage.bed.cluster
        self.end_all()
        wait_until("the API server to answer", self._api_answers, 120)
        for node in self.stage.nodes:
            cluster.thaw_node(node)
            cluster.power_on(node)
        self.stage.bed.repair()

    def _api_answers(self) -> bool:
        with suppress(KubectlError):
            return self.stage.bed.kubectl("get", "--raw", "/readyz", "--request-timeout=5s") == "ok"
        return False


def play_list(player: Player, faults: Sequence[Fault]) -> None:
    """Every fault at its time, and as long as it lasts."""
    for fault in sorted(faults, key=lambda fault: fault.at):
        time.sleep(max(0.0, player.begun + fault.at - time.monotonic()))
        player.begin(fault)
    ends = [fault.at + (fault.seconds if fault.seconds < FOR_EVER else 0.0) for fault in faults]
    time.sleep(max(LAST_SECONDS, player.begun + max(ends, default=0.0) - time.monotonic()))


def play_seed(player: Player, seed: int, seconds: float) -> None:
    """Faults at random for so long: alone, in pairs, and a second one in the recovery from the first.

    The next one comes when the job trains again and has saved something since. Where that takes too long, there may be
    too few nodes left: what lasts is ended.
    """
    dice, until = random.Random(seed), player.begun + seconds
    while time.monotonic() < until:
        if not _ripe(player):
            player.say(f"{time.monotonic() - player.begun:7.1f} s  nothing trains: all that lasts is ended")
            player.end_all()
            continue
        time.sleep(dice.uniform(0, 2))
        how = dice.choice(("alone", "pair", "recovery"))
        hit = player.begin(_drawn(dice, player))
        if how == "pair":
            time.sleep(dice.choice((0.0, 0.0, 0.5, 2.0)))
            player.begin(_drawn(dice, player))
        elif how == "recovery":
            if hit:
                _wait_recovering(player)
            time.sleep(dice.uniform(0, 3))
            player.begin(_drawn(dice, player))
    time.sleep(LAST_SECONDS)


def _drawn(dice: random.Random, player: Player) -> Fault:
    jobs, without = list(player.stage.jobs), set() if player.stage.way else ON_THE_WAY
    kinds = sorted(name for name, kind in KINDS.items() if kind.on_cluster and name not in without)
    fault = draw(dice, time.monotonic() - player.begun, jobs, kinds, AIMED)
    # Nobody waits for the timers of a sparse life here.
    return fault if fault.seconds >= FOR_EVER else replace(fault, seconds=min(fault.seconds, LONGEST_SECONDS))


def _ripe(player: Player) -> bool:
    job = player.stage.jobs["a"]
    before = journal.newest_checkpoint(job.lines())

    def ripe() -> bool:
        lines = job.lines()
        return bool(journal.training(lines, job.nodes)) and journal.newest_checkpoint(lines) > before

    with suppress(WaitError):
        return wait_until("a checkpoint", ripe, RIPE_SECONDS, 0.5)
    return False


def _wait_recovering(player: Player) -> None:
    """Until some job recovers: a fault may cost none anything, or be noticed late."""

    def recovers() -> bool:
        return any(player.stage.state_of(name) in _STATES_OF_RECOVERY for name in player.stage.jobs)

    with suppress(WaitError):
        wait_until("a recovery", recovers, RECOVERING_SECONDS, 0.3)


@dataclass(frozen=True)
class Outcome:
    """What has become of it.

    Attributes:
        violations: what was violated, and which fault was made last before it.
        attempts: by job.
        quiet_seconds: from the repaired cluster to the end of all jobs.
    """

    made: list[Made]
    violations: list[str]
    attempts: dict[str, int]
    seconds: float
    quiet_seconds: float
    steps: int
    checkpoints: int

    @property
    def cells(self) -> Counter[str]:
        """How often each kind met each state of its job."""
        return Counter(f"{made.state or '?'} x {made.fault.kind}" for made in self.made if not made.why_not)

    def to_json(self) -> dict[str, Any]:
        return {
            "faults_made": sum(not made.why_not for made in self.made),
            "not_made": [f"{made.fault.kind}: {made.why_not}" for made in self.made if made.why_not],
            "violations": self.violations,
            "attempts": self.attempts,
            "steps": self.steps,
            "checkpoints": self.checkpoints,
            "seconds": round(self.seconds, 1),
            "quiet_seconds": round(self.quiet_seconds, 1),
            "cells": dict(sorted(self.cells.items())),
        }


def finish(player: Player, quiet_seconds: float = QUIET_SECONDS) -> Outcome:
    """Repair everything, wait for the end of all jobs, and judge by their journals."""
    stage, begun = player.stage, player.begun
    player.repair()
    repaired = time.monotonic()
    player.say(f"{repaired - begun:7.1f} s  repaired; every job has {quiet_seconds:.0f} s to come to its end")
    for job in stage.jobs.values():
        job.finish_soon()
    violations: list[Violation] = []
    try:
        wait_until("the end of every job", lambda: all(job.ended() for job in stage.jobs.values()), quiet_seconds, 0.5)
        wait_until("Succeeded", lambda: all(stage.state_of(name) == "Succeeded" for name in stage.jobs), 120, 0.5)
    except WaitError:
        states = {name: _status(stage, name) for name in stage.jobs}
        text = f"{quiet_seconds:.0f} quiet seconds after the last fault not every job has ended: {states}"
        violations.append(Violation("every job ends as it should", text, time.monotonic()))
    quiet = time.monotonic() - repaired
    journals = {name: job.lines() for name, job in stage.jobs.items()}
    for name, job in stage.jobs.items():
        weights = journal.reference(job.nodes, max((line.step for line in journals[name]), default=0))
        violations += check_job(name, journals[name], weights, job.removals, stage.thaws)
    violations += check_nodes(journals)
    lines = [line for those in journals.values() for line in those]
    return Outcome(
        made=player.made,
        violations=[_sentence(player, it) for it in sorted(violations, key=lambda it: it.at)],
        attempts={name: max((line.attempt for line in those), default=0) for name, those in journals.items()},
        seconds=time.monotonic() - begun,
        quiet_seconds=quiet,
        steps=sum(line.event == "step" for line in lines),
        checkpoints=sum(line.event == "checkpoint" for line in lines),
    )


def _status(stage: Stage, name: str) -> str:
    return stage.bed.kubectl(
        *("get", "tj", "-n", NAMESPACE, stage.jobs[name].full_name, "-o"),
        "jsonpath={.status.state} {.status.reason} {.status.attempt} {.status.message}",
    )


def _sentence(player: Player, violation: Violation) -> str:
    before = [made for made in player.made if made.at <= violation.at and not made.why_not]
    after = f"; the fault before: {_fault_text(before[-1].fault)} at {before[-1].fault.at} s" if before else ""
    return f"{violation.at - player.begun:.2f} s: {violation.rule}: {violation.text}{after}"


def _fault_text(fault: Fault) -> str:
    whom = f" of {fault.job}" if fault.job else ""
    span = "" if not fault.seconds else " to the end" if fault.seconds >= FOR_EVER else f" for {fault.seconds:.0f} s"
    return f"{fault.kind}{whom} number {fault.number} count {fault.count}{span}"
