"""The burn-in finds the node that computes wrongly, names it, and the job trains on others."""

from __future__ import annotations

import pytest
from tests.e2e.burn_in import Submit, begun_on

from testbed.bed import Bed
from testbed.burnt import assert_kept, failures, wait_out

pytestmark = pytest.mark.usefixtures("untested_nodes")


def test_a_node_whose_sums_differ_is_replaced_and_the_others_keep_their_pods(bed: Bed, submit: Submit) -> None:
    bed.faults.probe("node-1", "flip")
    job, first = begun_on(bed, submit, "flipped", "node-1", others=1)
    wait_out(job, "node-1")
    assert job.completion(400)["result"] == "Succeeded"
    assert failures(job) == {("node-1", "bit-exact")}
    assert job.current().attempt in (2, 3)  # 3 where the other nodes were still cordoned
    assert_kept(job, first)
    assert not job.current().spec.get("incidents")
    health = bed.kubectl.json("get", "nodehealth", "node-1")["status"]
    assert (health["state"], health["reason"]) == ("Degraded", "BurnInFailed")
    told = bed.muster("status", f"{job.namespace}/{job.name}", "--burn-in")
    assert told.returncode == 0, told.stderr
    assert "node-1" in told.stdout
    assert "bit-exact" in told.stdout
