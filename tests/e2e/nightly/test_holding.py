"""A failure that is held, on real nodes: the failed worker can be entered, and then the job recovers or fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.e2e.faults import finishes_right, kill_operator, reference_weights

from testbed.bed import Bed
from testbed.jobs import Job
from testbed.kube import wait_until

Submit = Callable[..., Job]

# The container's own disk has what the program leaves when it fails, once.
LEAVES_A_DUMP = (
    'python3 /trainer/steps.py --checkpoint-dir="$RUN_DIR/checkpoints" --run-dir="$RUN_DIR" --steps=60 '
    "--step-seconds=0.1 --checkpoint-every=10 --fail-at=25 --fault-rank=1 && exit; "
    'code=$?; echo "state of node rank $NODE_RANK" > /tmp/dump; exit $code'
)


def held(submit: Submit, **recovery: Any) -> Job:
    job = submit("held", nodes=2, command=["sh", "-c", LEAVES_A_DUMP], recovery={"onFailure": "Hold", **recovery})
    wait_until("the hold", lambda: job.status().get("state") == "Held")
    return job


def dump_of(job: Job, worker: int) -> str:
    result = job.bed.muster("shell", "-n", job.namespace, job.name, "--worker", str(worker), "--", "cat", "/tmp/dump")
    assert result.returncode == 0, result.stderr
    return result.stdout


def containers(job: Job) -> list[tuple[str, int]]:
    return [
        (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]) for pod in job.pods().values()
    ]


def test_a_failed_worker_can_be_entered_until_the_hold_is_ended(bed: Bed, submit: Submit) -> None:
    job = held(submit)
    before = containers(job)
    shown = bed.muster("status", "-n", job.namespace, job.name)
    assert "FailureHeld" in shown.stdout
    assert "--worker 1" in shown.stdout
    assert dump_of(job, 1) == "state of node rank 1\n"
    kill_operator(bed, wait_until("a leader", bed.leader))
    wait_until("another leader", bed.leader)
    wait_until("the other rank to end", lambda: dump_of(job, 0) == "state of node rank 0\n")
    assert (job.status()["state"], job.current().attempt, containers(job)) == ("Held", 1, before)
    spec = json.dumps({"spec": {"recovery": {"onFailure": "Recover"}}})
    bed.kubectl("patch", "tj", "-n", job.namespace, job.name, "--type=merge", "-p", spec)
    job.wait_training_again(1)
    finishes_right(job, reference_weights(60, 2))
    assert containers(job) == before, "the ranks were restarted in their containers"
    status = job.status()
    assert status["incidents"][0]["heldSeconds"] > 0
    assert status["goodput"]["seconds"]["held"] >= status["incidents"][0]["heldSeconds"] - 1
    report = bed.muster("report", "-n", job.namespace, job.name)
    assert " held " in report.stdout


def test_a_job_without_restarts_fails_after_the_hold(submit: Submit) -> None:
    job = held(submit, holdSeconds=20, applicationRestartsPerDay=0)
    assert dump_of(job, 1)
    completion = job.completion()
    assert completion["result"] == "Failed"
    assert "exited with code" in completion["message"]
    (incident,) = job.status()["incidents"]
    assert 20 <= incident["heldSeconds"] < 60
    job.wait_reasons("FailureHeld", "RankFailed")
