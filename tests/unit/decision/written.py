"""Decisions of lives, written down; each is made again at once, and must be the same."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from tests.unit.lifecycle.testbed import JOB, PLAIN, OneJob, steps

from muster.controller import reconciler
from muster.decision.accounted import plan_with_goodput
from muster.decision.decided import Decided, replay, write
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.pods.worker_pod import WorkerSettings
from muster.world.job import JobWorld

Fault = Callable[[OneJob], object]


@contextmanager
def written_down() -> Iterator[list[str]]:
    """Lines of the decisions that act, and of one in ten of the others."""
    written: list[str] = []
    idle = itertools.count()

    def checked(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan = decide(world, settings)
        if not plan.actions and next(idle) % 10:
            return plan
        written.append(write(Decided(world, settings, plan_with_goodput(world, plan))))
        replayed = replay(written[-1])
        assert replayed.now == replayed.then
        assert decide(replayed.world, settings) == plan
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconciler, "decide", checked)
        yield written


def power_cut(job: OneJob) -> None:
    job.machine(1).cut_power()


def partition(job: OneJob) -> None:
    node = job.nodes[1]
    job.cut_off(node)
    job.run(120)
    job.heal(node)


def cordon(job: OneJob) -> None:
    job.cordon(job.nodes[0])


def crash_of_the_rank_and_the_operator(job: OneJob) -> None:
    job.operator_dies_after(1)
    job.rank(1).exit(3, "ValueError: loss is NaN \U0001f4a5\n")


def memory(job: OneJob) -> None:
    job.worker(0).run_out_of_memory()


ALL_LIVES = [
    (fault, mode)
    for fault in (power_cut, partition, cordon, crash_of_the_rank_and_the_operator, memory)
    for mode in ("Managed", "Plain")
]
CHIEF_LIVES = [(crash_of_the_rank_and_the_operator, "Managed"), (cordon, "Plain")]


def a_life_is_decided_again_the_same(fault: Fault, mode: str) -> None:
    spec = PLAIN if mode == "Plain" else {}
    with (
        written_down() as lines,
        closing(OneJob(nodes=4, lag=1.0, recovery={"unfencedTimeoutSeconds": 120}, **spec)) as job,
    ):
        job.until_step(7)
        fault(job)
        job.ends()
    assert len(lines) > 10
    actions = [action for line in lines for action in json.loads(line)["plan"]["actions"]]
    assert {"CommitGang", "CheckTemplate", "CreatePod", "ApplySupport"} <= {action["action"] for action in actions}
    assert all(action["spec"]["account"] for action in actions if action["action"] == "CommitGang")


def two_jobs_for_one_place_are_decided_again_the_same(until_the_end: bool) -> None:
    """Until the first one trains; or it fails, too, and both come to their ends."""
    with written_down() as lines, closing(OneJob(nodes=2)) as job:
        job.submit("second", 2, steps(5))
        job.until_step(3)
        if until_the_end:
            job.rank(1).exit(1, "ValueError")
            job.until(lambda: job.has_ended(JOB) and job.has_ended("second"))
            assert len(lines) > 20
    assert any(json.loads(line)["world"]["queue_decision"] for line in lines)
