"""Faults on real nodes: each time the shortest way back is taken, and the weights are those of an undisturbed run."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.faults import finishes_right, reference_weights, victim_node

from testbed.bed import Bed
from testbed.jobs import Job
from testbed.kube import wait_until

Submit = Callable[..., Job]


def test_a_gang_loses_rank_pod_and_node_and_ends_with_the_right_weights(submit: Submit) -> None:
    """It loses them one after the other."""
    # On a busy machine a fault may be slower than the training: each attempt but the last holds until it is hit.
    trainer = ["--steps=160", "--step-seconds=0.1", "--checkpoint-every=10", "--hold-at=150", "--hold-until-attempt=4"]
    job = submit("in-a-row", trainer=trainer)

    job.wait_step(25)
    uids = {pod["metadata"]["uid"] for pod in job.pods().values()}
    job.signal_rank(1)
    again = job.wait_training_again(1)
    assert again.level == "R0"
    assert again.resumed_step is not None
    assert again.resumed_step >= 20
    assert {pod["metadata"]["uid"] for pod in job.pods().values()} == uids

    job.wait_step(again.resumed_step + 15, again.attempt)
    old = job.pods()[2]
    job.bed.kubectl("delete", "pod", "-n", job.namespace, old["metadata"]["name"], "--wait=false")
    again = job.wait_training_again(again.attempt)
    assert again.level == "R0b"
    new = job.pods()[2]
    assert new["spec"]["nodeName"] == old["spec"]["nodeName"]
    assert new["metadata"]["name"] != old["metadata"]["name"]

    assert again.resumed_step is not None
    job.wait_step(again.resumed_step + 15, again.attempt)
    node = victim_node(job)
    job.bed.cluster.power_off(node)
    again = job.wait_training_again(again.attempt)
    assert again.level == "R2"
    assert node not in again.nodes

    finishes_right(job, reference_weights(160, 3))
    job.wait_reasons("RankFailed", "NodeUnreachable", "Started", "Placed", "Completed")


def test_a_drained_node_is_left_after_a_new_checkpoint(submit: Submit) -> None:
    # On a busy machine the drain may come after the last save before the hold: then the time for a save ends the wait.
    trainer = ["--steps=160", "--step-seconds=0.1", "--checkpoint-every=10", "--hold-at=150"]
    job = submit("drained", trainer=trainer, save_timeout=60)
    job.wait_step(25)
    node = victim_node(job)
    saved = job.newest_checkpoint()
    with job.bed.kubectl.stream(
        "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector", f"muster.dev/job={job.name}"
    ) as drain:
        again = job.wait_training_again(1)
        wait_until("the drain to end", lambda: drain.poll() is not None)
        assert drain.returncode == 0
    assert again.reason == "NodeCordoned"
    assert node not in again.nodes
    assert again.resumed_step is not None
    # What was saved shortly before may be heard of only then, and is new to the operator.
    assert again.resumed_step >= saved
    finishes_right(job, reference_weights(160, 3))


def test_a_plain_job_is_rebuilt_after_any_failure(bed: Bed, submit: Submit) -> None:
    program = (
        "import os, time; print(os.environ['NODE_RANK'], os.environ['NNODES'], os.environ['MASTER_ADDR'], "
        "flush=True); time.sleep(3600)"
    )
    job = submit(
        "plain",
        nodes=2,
        command=["python3", "-c", program],
        launch={"mode": "Plain"},
        checkpoint={"saveTimeoutSeconds": 300},
        reshape=lambda pod: pod.update(terminationGracePeriodSeconds=1),  # a first process does not end on SIGTERM
    )
    wait_until("it to run", lambda: job.status().get("state") == "Running")
    before = {pod["metadata"]["uid"] for pod in job.pods().values()}
    name = job.pods()[1]["metadata"]["name"]
    text = wait_until("its output", lambda: bed.kubectl("logs", "-n", job.namespace, name, check=False))
    assert text.split()[:2] == ["1", "2"]
    bed.kubectl("delete", "pod", "-n", job.namespace, name, "--wait=false", "--grace-period=1")
    again = wait_until(
        "the rebuilt gang", lambda: next((s for s in job.watch.seen if s.attempt == 2 and s.going), None), 150
    )
    assert again.level == "R4"
    assert not before & {pod["metadata"]["uid"] for pod in job.pods().values()}
