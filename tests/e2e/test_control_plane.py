"""The control plane goes away and comes back: training does not notice, and no good node pays for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tests.e2e.faults import assert_every_rank_started_once, finishes_right, pids_of_operator, reference_weights

from testbed.bed import Bed
from testbed.jobs import Job
from testbed.kube import KubectlError, wait_until

STEPS = 400
AWAY_SECONDS = 60.0
TRAINER = [f"--steps={STEPS}", "--step-seconds=0.1", "--checkpoint-every=10", "--keep=5"]


def test_a_fault_while_the_api_server_is_away_costs_no_node(bed: Bed, submit: Callable[..., Job]) -> None:
    """It is away for longer than leases last, and the leader dies meanwhile: another one leads, and kubelets are
    behind."""
    quiet = submit("quiet", nodes=1, trainer=["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"])
    job = submit("away-fault", nodes=2, trainer=TRAINER)
    job.wait_step(15)
    quiet.wait_step(15)
    nodes = sorted(pod["spec"]["nodeName"] for pod in job.pods().values())
    pids, leader = job.rank_pids(1), bed.leader()
    assert leader is not None
    leaders_pids = pids_of_operator(bed, leader)
    bed.cluster.stop_apiserver()
    try:
        step, since = quiet.step(), time.monotonic()
        job.kill(pids[0])
        for pid in leaders_pids:
            os.kill(pid, signal.SIGKILL)
        wait_until("the API server to be missed", lambda: time.monotonic() - since > AWAY_SECONDS, AWAY_SECONDS + 30)
        assert quiet.step() > step + AWAY_SECONDS, "training goes on without it"
    finally:
        bed.cluster.start_apiserver()
    back = time.monotonic()
    wait_until("steps of every rank in a later attempt", lambda: job.ranks_of_a_later_attempt(1) == {0, 1})
    print(f"training again {time.monotonic() - back:.1f} s after the API server is back")
    wait_until("the API server to answer", lambda: _answers(bed))
    assert sorted(pod["spec"]["nodeName"] for pod in job.pods().values()) == nodes
    incidents = job.status()["incidents"]
    assert [incident["level"] for incident in incidents] == ["R0"], incidents
    assert quiet.status()["attempt"] == 1
    assert_every_rank_started_once(quiet)
    finishes_right(job, reference_weights(STEPS, 2))


def _answers(bed: Bed) -> bool:
    try:
        return bed.kubectl("get", "--raw", "/readyz") == "ok"
    except KubectlError:
        return False
