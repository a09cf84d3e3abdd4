"""Each fault once, on real nodes: the shortest way back is taken, and the weights are those of an undisturbed run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.faults import (
    assert_every_rank_started_once,
    finishes_right,
    kill_operator,
    leader_node,
    move_leader,
    node_condition,
    reference_weights,
)

from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

STEPS = 80
# On a busy machine a fault may be slower than the training: the first attempt does not end without one.
TRAINER = [f"--steps={STEPS}", "--step-seconds=0.1", "--checkpoint-every=10", "--hold-at=70"]
LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]

Submit = Callable[..., Job]


@pytest.fixture(scope="module")
def right_weights(bed: Bed, namespace: str) -> str:
    """The weights of a run in which nothing happens; three ranks, computed by the trainer itself without a cluster."""
    return reference_weights(STEPS, 3)


def test_a_stopped_rank_is_a_hang(submit: Submit, right_weights: str) -> None:
    job = submit("stopped", trainer=TRAINER, progress={"stepTimeoutSeconds": 6})
    job.wait_step(25)
    job.signal_rank(1, signal.SIGSTOP)
    again = job.wait_training_again(1)
    assert again.reason == "StepTimeout"
    finishes_right(job, right_weights)


def test_a_node_whose_packets_are_lost_is_replaced_and_its_ranks_publish_nothing(
    submit: Submit, right_weights: str
) -> None:
    job = submit("partition", trainer=TRAINER, recovery={"unreachableTimeoutSeconds": 10})
    job.wait_step(25)
    node = job.pods()[0]["spec"]["nodeName"]  # rank 0: the one that saves
    old_pids = job.rank_pids(0)
    if node == leader_node(job.bed):
        move_leader(job.bed, node)
    job.bed.cluster.drop_packets(node)
    again = job.wait_training_again(1)
    assert again.level == "R2"
    assert node not in again.nodes
    started = min(line["monotonic"] for line in job.events("start", again.attempt))
    assert not any(Path(f"/proc/{pid}").exists() for pid in old_pids), "the cut-off ranks are still alive"
    stale = [
        line for line in job.events("checkpoint") if line["attempt"] < again.attempt and line["monotonic"] > started
    ]
    assert stale == []
    job.bed.cluster.heal(node)
    finishes_right(job, right_weights)
    late = [line for line in job.lines() if line["attempt"] < again.attempt and line["monotonic"] > started]
    assert late == []


def test_a_rank_that_ignores_sigterm_holds_nobody_up(submit: Submit, right_weights: str) -> None:
    job = submit("stubborn", trainer=[*TRAINER, "--ignore-sigterm"])
    job.wait_step(25)
    pids = job.rank_pids(2)
    pod = job.pods()[2]["metadata"]["name"]
    job.bed.kubectl("delete", "pod", "-n", job.namespace, pod, "--wait=false")
    wait_until("the stubborn rank to end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert job.wait_training_again(1).level == "R0b"
    finishes_right(job, right_weights)


def test_an_orphaned_data_loader_is_ended_before_the_next_start(submit: Submit, right_weights: str) -> None:
    job = submit("orphans", trainer=[*TRAINER, "--orphan-loader"])
    job.wait_step(25)
    old = [pid for index in range(3) for pid in job.rank_pids(index)]
    assert len(old) == 6, "three ranks and three loaders are expected"
    job.signal_rank(0)
    again = job.wait_training_again(1)
    assert again.level == "R0"
    assert not any(Path(f"/proc/{pid}").exists() for pid in old)
    finishes_right(job, right_weights)


def test_local_checkpoints_are_resumed_while_every_node_has_its_share(submit: Submit) -> None:
    local, held_at = "/local", 45
    job = submit(
        "local",
        nodes=2,
        trainer=[
            *("--steps=150", "--step-seconds=0.1", "--checkpoint-every=40", f"--hold-at={held_at}"),
            *(f"--local-dir={local}", "--local-every=4"),
        ],
        local=local,
    )
    job.wait_step(held_at)
    job.signal_rank(1)
    assert job.wait_training_again(1).resumed_step == 44
    assert {line["path"] for line in job.events("resumed", 2)} == {f"{local}/step-44"}
    # What a pod keeps in a volume of its own is gone with it.
    job.wait_step(56, 2)
    job.bed.kubectl("delete", "pod", "-n", job.namespace, job.pods()[1]["metadata"]["name"], "--grace-period=1")
    again = job.wait_training_again(2)
    assert again.resumed_step in (40, 80, 120)  # of those in the shared directory the newest
    assert {line["path"].rpartition("/")[0] for line in job.events("resumed", again.attempt)} == {
        f"/shared/{job.name}/checkpoints"
    }
    told = [event["note"] for event in job.events_of() if event["reason"] == "Started"]
    assert any("on the nodes' own disks" in note and "are not used: worker 1" in note for note in told), told
    finishes_right(job, reference_weights(150, 2))


def test_a_job_without_checkpoints_waits_until_its_node_is_declared_lost(submit: Submit) -> None:
    """It waits for proof that its rank has ended, and a node without power gives none."""
    job = submit("nobody-knows", nodes=1, trainer=LONG, checkpoint={}, recovery={"unfencedTimeoutSeconds": 604800})
    job.wait_step(15)
    node = job.pods()[0]["spec"]["nodeName"]
    if node == leader_node(job.bed):
        move_leader(job.bed, node)
    job.bed.cluster.power_off(node)
    wait_until("silence", lambda: job.status().get("reason") == "WorkersSilent")
    wait_until("Kubernetes to see it", lambda: node_condition(job.bed, node) == "Unknown")
    assert job.current().attempt == 1
    told = job.bed.muster("lost", node, "--yes", "--reason", "its power supply burnt")
    assert told.returncode == 0, told.stderr
    again = job.wait_training_again(1)
    assert (again.level, again.reason) == ("R2", "NodeLost")
    assert node not in again.nodes


def test_a_kubelet_that_is_away_for_a_minute_ends_no_plain_job(bed: Bed, submit: Submit) -> None:
    program = "import time; time.sleep(3600)"
    job = submit(
        "plain-away",
        nodes=2,
        command=["python3", "-c", program],
        launch={"mode": "Plain"},
        checkpoint={"saveTimeoutSeconds": 300},
    )
    wait_until("it to run", lambda: job.status().get("state") == "Running")
    node = job.pods()[0]["spec"]["nodeName"]
    pods = {pod["metadata"]["uid"] for pod in job.pods().values()}
    with bed.cluster.frozen_kubelet(node):
        wait_until("the node to be taken for lost", lambda: node_condition(bed, node) == "Unknown")
        since = time.monotonic()
        wait_until("a minute more", lambda: time.monotonic() - since > 60)
        assert job.status()["state"] == "Running"
    wait_until("the node to be back", lambda: node_condition(bed, node) == "True")
    assert job.current().attempt == 1
    assert {pod["metadata"]["uid"] for pod in job.pods().values()} == pods


def test_an_operator_that_dies_in_the_middle_of_a_recovery_changes_nothing(submit: Submit, right_weights: str) -> None:
    job = submit("operator-dies", trainer=TRAINER)
    job.wait_step(25)
    leader = job.bed.leader()
    assert leader is not None
    job.signal_rank(1)
    job.watch.wait_attempt(1)
    kill_operator(job.bed, leader)
    again = job.wait_training_again(1)
    assert again.level == "R0"
    finishes_right(job, right_weights)
    assert_every_rank_started_once(job)


def test_the_leaders_node_and_a_workers_node_lose_power_together(bed: Bed, submit: Submit) -> None:
    operators = bed.kubectl.json("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=muster")["items"]
    leaders_node = leader_node(bed)
    standbys = [pod["spec"]["nodeName"] for pod in operators if pod["spec"]["nodeName"] != leaders_node]
    # Both operators' nodes are left out at first: one worker must be heard from afterwards, and the standby must live.
    job = submit(
        "double-cut",
        nodes=2,
        trainer=LONG,
        placement={"avoidNodes": [leaders_node, *standbys]},
        recovery={"unreachableTimeoutSeconds": 10},
    )
    job.wait_step(25)
    everywhere = '{"spec":{"placement":{"avoidNodes":[]}}}'
    bed.kubectl("patch", "tj", "-n", job.namespace, job.name, "--type=merge", "-p", everywhere)
    workers = sorted(pod["spec"]["nodeName"] for pod in job.pods().values())
    doomed = [leaders_node, workers[0]]
    for node in doomed:
        bed.cluster.power_off(node)
    again = job.wait_training_again(1)
    assert again.level == "R2"
    assert not set(doomed) & set(again.nodes)


def test_a_rolling_update_of_the_operator_restarts_no_rank(submit: Submit) -> None:
    job = submit("rollout", trainer=LONG)
    job.wait_step(15)
    job.bed.kubectl("rollout", "restart", "deployment/muster", "-n", SYSTEM_NAMESPACE)
    job.bed.rolled_out("deployment/muster", SYSTEM_NAMESPACE)
    wait_until("a leader", job.bed.leader)
    step = job.step()
    job.wait_step(step + 30)
    assert job.current().attempt == 1
    assert_every_rank_started_once(job)


def test_training_goes_on_while_the_operator_is_away(submit: Submit) -> None:
    job = submit("away", trainer=LONG)
    job.wait_step(15)
    job.bed.kubectl("scale", "deployment/muster", "-n", SYSTEM_NAMESPACE, "--replicas=0")
    wait_until(
        "the operators to go",
        lambda: (
            not job.bed.kubectl.json("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=muster")[
                "items"
            ]
        ),
    )
    step, since = job.step(), time.monotonic()
    wait_until("a minute of training alone", lambda: time.monotonic() - since > 60 and job.step() > step + 100)
    job.bed.kubectl("scale", "deployment/muster", "-n", SYSTEM_NAMESPACE, "--replicas=2")
    wait_until("a leader", job.bed.leader)
    job.wait_step(job.step() + 30)
    assert job.current().attempt == 1
    assert_every_rank_started_once(job)
