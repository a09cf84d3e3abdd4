"""Preemption by priority on real nodes: a job leaves for one of higher priority after a save, and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.e2e.faults import ENDLESS, ends_right, every_step_was_made_once, finishes_right, reference_weights

from testbed.bed import Bed
from testbed.jobs import Job

CLASS = "muster-e2e-urgent"

Submit = Callable[..., Job]


@pytest.fixture
def urgent(bed: Bed, namespace: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Has a pod name a class by which jobs of this namespace preempt others at once."""
    priority_class = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}}

    def patch(preemption: dict[str, Any] | None) -> None:
        body = json.dumps({"spec": {"queueing": {"preemption": preemption}}})
        bed.kubectl("patch", "fleetpolicy", "default", "--type=merge", "-p", body)

    bed.kubectl("apply", "-f", "-", stdin=json.dumps({**priority_class, "value": 1000}))
    patch({"priorityClasses": [{"name": CLASS, "namespaces": [namespace]}], "minRunSeconds": 0})
    yield lambda pod: pod.update(priorityClassName=CLASS)
    patch(None)
    bed.kubectl("delete", "priorityclass", CLASS)


def test_a_job_leaves_for_one_of_higher_priority(submit: Submit, urgent: Callable[[dict[str, Any]], None]) -> None:
    seldom = ["--checkpoint-every=1000000", "--leaves=0"]
    job = submit("low", nodes=2, trainer=[*ENDLESS, *seldom])
    job.wait_step(15)
    gang = submit("high", nodes=3, trainer=["--steps=60", "--step-seconds=0.1"], reshape=urgent)
    finishes_right(gang, reference_weights(60, 3))
    job.wait_training_again(1)
    ends_right(job)
    every_step_was_made_once(job, job.step(), 2)
    gang.wait_reasons("WaitingForPreemption")
    job.wait_reasons("EvacuationPlanned", "Preempted")
    notes = " ".join(event.get("note", "") for event in job.events_of())
    assert f"has a lower priority and gives way to {gang.namespace}/{gang.name} (PriorityClass {CLASS})" in notes
    assert len(job.current().spec["preemptions"]) == 1
