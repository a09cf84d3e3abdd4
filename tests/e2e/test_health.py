"""A GPU that has fallen off the bus takes its node out: the job moves, and the node is used again after its repair."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.e2e.sick_nodes import healths, is_well_again, moves, tainted

from testbed.bed import Bed
from testbed.jobs import Job
from testbed.kube import wait_until

LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]
SHORT = ["--steps=30", "--step-seconds=0.05", "--checkpoint-every=10"]

Submit = Callable[..., Job]

pytestmark = pytest.mark.usefixtures("well_nodes")


def test_xid_79_moves_the_job_and_the_node_is_used_again_after_a_reboot(
    bed: Bed, submit: Submit, training: Job
) -> None:
    sick, again = moves(bed, training, "XID 79", lambda node: bed.faults.xid(node, 79))
    told = healths(bed)[sick]
    assert (told["state"], told["reason"], told["recommendedAction"]) == ("Unhealthy", "Xid79", "Reboot")
    training.wait_reasons("NodeUnhealthy")

    (fourth,) = set(bed.cluster.node_names) - {sick, *again.nodes}
    lone = submit("lone", nodes=1, trainer=LONG)
    lone.wait_step(1)
    assert lone.current().nodes == (fourth,)

    waits = submit("waits", nodes=1, trainer=SHORT)
    waiting = wait_until("it to wait", lambda: waits.status().get("waiting"))
    assert waits.status()["state"] == "Pending"
    assert {"reason": "unhealthy (Xid79)", "nodes": 1} in waiting["blockers"]
    remedy = f"repair {sick}, or release it: unhealthy (Xid79)"
    assert remedy in waiting["remedies"]
    explained = bed.muster("status", waits.name, "-n", waits.namespace)
    assert explained.returncode == 0, explained.stderr
    assert f"-  {remedy}" in explained.stdout.splitlines()

    bed.faults.lose_gpu(sick)
    boot = healths(bed)[sick]["agent"]["bootId"]
    bed.faults.reboot(sick, repaired=False)
    wait_until("a word of the new boot", lambda: healths(bed)[sick]["agent"]["bootId"] != boot)
    wait_until("it to be judged", lambda: healths(bed)[sick]["reason"] == "GpuCount")
    told = healths(bed)[sick]
    assert [finding["reason"] for finding in told["findings"]] == ["GpuCount"]
    assert told["incidents"][-1].get("clearedTime") is None
    assert len(told["incidents"]) == 1, "it has never been back"
    assert tainted(bed) == {sick}

    bed.faults.reboot(sick)
    repaired = time.monotonic()
    wait_until(f"{sick} to be well again", lambda: is_well_again(bed, sick))
    print(f"XID 79: back {time.monotonic() - repaired:.1f} s after the reboot")
    assert waits.completion()["result"] == "Succeeded"
    assert waits.current().nodes == (sick,)
    assert training.current().attempt == again.attempt
