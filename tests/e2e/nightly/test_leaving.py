"""Programs that are asked to save and leave, on real nodes: not one step is lost, and an end of theirs is no end of the
job."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.e2e.faults import ENDLESS, ends_right, every_step_was_made_once, kill_operator, victim_node
from tests.e2e.torch_ddp import torch_command, torch_weights, wait_torch_step

from testbed.bed import Bed
from testbed.jobs import Job
from testbed.kube import wait_until

SELDOM = "--checkpoint-every=100000"

Submit = Callable[..., Job]


def suspend(job: Job, on: bool) -> None:
    spec = json.dumps({"spec": {"suspend": on}})
    job.bed.kubectl("patch", "tj", "-n", job.namespace, job.name, "--type=merge", "-p", spec)


def stops_and_goes_on(job: Job) -> None:
    suspend(job, True)
    wait_until("the suspension", lambda: job.status().get("state") == "Suspended")
    wait_until("the pods to go", lambda: not job.pods())
    suspend(job, False)


def leaves_by_suspension(job: Job) -> None:
    stops_and_goes_on(job)
    job.wait_training_again(1)


def leaves_by_cordon(job: Job) -> None:
    node = victim_node(job)
    job.bed.kubectl("cordon", node)
    again = job.wait_training_again(1)
    assert node not in again.nodes
    assert again.reason == "NodeCordoned"
    job.bed.kubectl("uncordon", node)


def leaves_while_the_operator_dies(job: Job) -> None:
    suspend(job, True)
    leader = wait_until("a leader", job.bed.leader)
    kill_operator(job.bed, leader)
    wait_until("the suspension", lambda: job.status().get("state") == "Suspended")
    suspend(job, False)
    job.wait_training_again(1)


@pytest.mark.parametrize(
    ("ends", "leaves"),
    [
        ("0", leaves_by_suspension),
        ("3", leaves_by_cordon),
        ("wait", leaves_by_cordon),
        ("0", leaves_while_the_operator_dies),
    ],
)
def test_no_step_is_lost(submit: Submit, ends: str, leaves: Callable[[Job], None]) -> None:
    job = submit("leaves", nodes=2, trainer=[*ENDLESS, SELDOM, f"--leaves={ends}"])
    job.wait_step(15)
    leaves(job)
    ends_right(job)
    every_step_was_made_once(job, job.step(), 2)
    assert len({line["step"] for line in job.events("left")}) == 1


def test_the_example_of_pytorch_leaves(submit: Submit) -> None:
    undisturbed = torch_weights(submit("undisturbed", nodes=2, command=torch_command(60)), 60)
    asked = submit("asked", nodes=2, command=torch_command(60))
    wait_torch_step(asked, 10)
    stops_and_goes_on(asked)
    assert torch_weights(asked, 60) == undisturbed


def test_a_user_has_a_job_save_and_then_leave_a_node(bed: Bed, submit: Submit) -> None:
    """By the command line: it saves and goes on, and later moves without a step lost."""
    job = submit("moves", nodes=2, trainer=[*ENDLESS, SELDOM, "--leaves=0"])
    job.wait_step(15)
    result = bed.muster("save", "-n", job.namespace, job.name)
    assert result.returncode == 0, result.stderr
    saved = job.newest_checkpoint()
    assert f"has saved step {saved}" in result.stdout
    job.wait_step(saved + 1)
    assert job.current().attempt == 1
    node = victim_node(job)
    result = bed.muster("move", "-n", job.namespace, job.name, "--node", node)
    assert result.returncode == 0, result.stderr
    assert f"{job.namespace}/{job.name} has left {node}" in result.stdout
    ends_right(job)
    every_step_was_made_once(job, job.step(), 2)
    assert len({line["step"] for line in job.events("checkpoint")}) == 3, "asked for twice, and the last one"
