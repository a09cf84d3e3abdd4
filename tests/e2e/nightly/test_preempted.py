"""Preemptible jobs on real nodes: one gives way to a gang after a save and comes back, one runs on a reserved node."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.faults import (
    ENDLESS,
    ends_right,
    every_step_was_made_once,
    finishes_right,
    kill_operator,
    reference_weights,
)
from tests.e2e.torch_ddp import torch_command, torch_weights, wait_torch_step

from testbed.bed import Bed
from testbed.jobs import Job
from testbed.kube import wait_until

PREEMPTIBLE = {"preemptible": True}
SHORT = ["--steps=60", "--step-seconds=0.1"]

Submit = Callable[..., Job]


def wait_reason(job: Job, reason: str) -> None:
    wait_until(f"{reason} of {job.name}", lambda: job.status().get("reason") == reason)


def shown(job: Job) -> str:
    result = job.bed.muster("status", "-n", job.namespace, job.name)
    assert result.returncode == 0, result.stderr
    return " ".join(result.stdout.split())


def test_a_job_of_pytorch_gives_way_and_returns(submit: Submit) -> None:
    undisturbed = torch_weights(submit("undisturbed", nodes=2, command=torch_command(100)), 100)
    job = submit("gives-way", nodes=2, command=torch_command(100), queueing=PREEMPTIBLE)
    wait_torch_step(job, 10)
    gang = submit("gang", nodes=3, trainer=SHORT)
    wait_reason(job, "InsufficientNodes")
    assert gang.name in shown(job)
    finishes_right(gang, reference_weights(60, 3))
    assert torch_weights(job, 100) == undisturbed


def test_the_operator_dies_while_the_job_saves(bed: Bed, submit: Submit) -> None:
    trainer = [*ENDLESS, "--checkpoint-every=100000", "--leaves=0", "--asynchronous-seconds=10"]
    job = submit("gives-way", nodes=2, trainer=trainer, queueing=PREEMPTIBLE)
    job.wait_step(15)
    gang = submit("gang", nodes=3, trainer=SHORT)
    wait_reason(gang, "WaitingForPreemption")
    wait_until("the ranks to save", lambda: job.events("asked"))
    assert f"It is preemptible and gives way to {job.namespace}/{gang.name}." in shown(job)
    kill_operator(bed, wait_until("a leader", bed.leader))
    finishes_right(gang, reference_weights(60, 3))
    job.wait_training_again(1)
    ends_right(job)
    every_step_was_made_once(job, job.step(), 2)
    assert len({line["attempt"] for line in job.events("start")}) == 2
    job.wait_reasons("EvacuationPlanned", "Preempted")


def test_a_preemptible_job_runs_on_a_reserved_node(submit: Submit) -> None:
    holder = submit("holder", nodes=3, trainer=["--steps=100000", "--step-seconds=0.1"])
    holder.wait_step(5)
    gang = submit("gang", nodes=2, trainer=SHORT)
    wait_reason(gang, "InsufficientNodes")
    small = submit("small", nodes=1, trainer=SHORT)
    wait_reason(small, "BehindInQueue")
    preemptible = submit("preemptible", nodes=1, trainer=SHORT, queueing=PREEMPTIBLE)
    finishes_right(preemptible, reference_weights(60, 1))
    assert not any(job.pods() for job in (gang, small))
    holder.delete()
    for job in (gang, small):
        assert job.completion()["result"] == "Succeeded"
