"""The burn-in on real nodes: real checkers with PyTorch on CPUs, and nodes that are bad in ways that only tests show.

Nodes are made bad outside the product: by what their checkers import, by the processor that they are given, by their
links (testbed/faults.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.burn_in import ANEW, begun_on

from monitoring.live import asked, named
from monitoring.page import registered
from testbed import figures
from testbed.bed import Bed
from testbed.burnt import FOUND_SECONDS, assert_kept, failures, first_workers, wait_out
from testbed.jobs import Job
from testbed.kube import WaitError, wait_until

LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]
SHORT = ["--steps=30", "--step-seconds=0.05", "--checkpoint-every=10"]
Submit = Callable[..., Job]

pytestmark = pytest.mark.usefixtures("untested_nodes")


def test_a_healthy_gang_is_tested_and_trains(bed: Bed, submit: Submit) -> None:
    job = submit("burnt-in", nodes=3, trainer=SHORT)
    assert job.completion(400)["result"] == "Succeeded"
    spec = job.current().spec
    assert spec["attempt"] == 1
    assert not spec["burnIn"].get("failures")
    assert spec["burnIn"]["allReduce"]["message"].startswith("all-reduce over 3 nodes: ")


@pytest.mark.parametrize(
    ("fault", "node"),
    [
        ("slow_link", "node-2"),
        ("lossy_link", "node-3"),  # of ten packets one is lost
    ],
)
def test_a_node_that_is_slow_or_loses_packets_is_replaced(bed: Bed, submit: Submit, fault: str, node: str) -> None:
    getattr(bed.faults, fault)(node)
    job, first = begun_on(bed, submit, fault.replace("_", "-"), node, others=2)
    wait_out(job, node)
    bed.faults.repair()
    assert job.completion(400)["result"] == "Succeeded"
    assert failures(job) == {(node, "pair")}
    assert_kept(job, first)


def test_a_node_whose_processor_is_slow_is_replaced(bed: Bed, submit: Submit) -> None:
    """A probe of the burn-in finds it, or its listing of the checkpoints does not come: that depends on the machine."""
    bed.faults.slow_cpu("node-3")
    job, _ = begun_on(bed, submit, "slow-cpu", "node-3", others=2)
    wait_until(f"{job.name} to leave node-3", lambda: "node-3" not in job.current().nodes, FOUND_SECONDS)
    bed.faults.repair()
    assert job.completion(400)["result"] == "Succeeded"
    blamed = {node for node, _ in failures(job)} | {each["node"] for each in job.status().get("incidents", ())}
    assert blamed == {"node-3"}


def test_a_node_that_dies_in_the_burn_in_is_replaced_and_nobody_is_blamed(bed: Bed, submit: Submit) -> None:
    job = submit("dies", nodes=2, trainer=SHORT, preflight=ANEW)
    first = first_workers(job)
    assert not job.current().going
    victim = min(first)
    bed.cluster.power_off(victim)
    assert job.completion(400)["result"] == "Succeeded"
    assert failures(job) == set()
    assert victim not in job.current().nodes
    assert_kept(job, first)


def test_where_nothing_can_be_tested_the_gang_waits_and_says_why(bed: Bed, submit: Submit) -> None:
    bed.faults.lose_torch("node-1")
    job, first = begun_on(bed, submit, "no-torch", "node-1", others=1)
    wait_until(f"{job.name} to say why it waits", lambda: job.status().get("reason") == "BurnInInconclusive")
    message = next(each["message"] for each in job.status()["conditions"] if each["type"] == "Running")
    assert "node-1" in message
    assert "torch" in message
    bed.faults.repair()
    assert job.completion(400)["result"] == "Succeeded"
    assert failures(job) == set()
    assert job.current().attempt == 1
    assert_kept(job, first)


def test_two_bad_nodes_at_once_are_both_replaced(bed: Bed, submit: Submit) -> None:
    for node in ("node-1", "node-2"):
        bed.faults.probe(node, "flip")
    job, _ = begun_on(bed, submit, "two-bad", "node-1", "node-2")
    wait_out(job, "node-1", "node-2")
    assert job.completion(400)["result"] == "Succeeded"
    assert failures(job) == {("node-1", "bit-exact"), ("node-2", "bit-exact")}
    assert set(job.current().nodes) == {"node-3", "node-4"}


def test_a_node_is_tested_by_hand(bed: Bed) -> None:
    good = bed.muster("check", "node-4", "--output", "json")
    assert good.returncode == 0, good.stderr
    (row,) = json.loads(good.stdout)["nodes"]
    assert row["result"]["outcome"] == "Pass"
    assert {"gemm-bf16", "bit-exact", "memory-pattern"} <= {probe["probe"] for probe in row["result"]["probes"]}
    bed.faults.probe("node-4", "hang")
    bad = bed.muster("check", "node-4")
    assert bad.returncode == 0, bad.stderr
    assert "gemm-bf16 gave no result within its deadline" in " ".join(bad.stdout.split())
    wait_until(
        "node-4 to be out",
        lambda: bed.kubectl.json("get", "nodehealth", "node-4")["status"].get("reason") == "BurnInFailed",
        30,
    )


# What the run below has nothing of, by page and panel, with the query's legend where only one of several is meant.
NOTHING_TO_TELL = {
    ("muster-fleet", "Domains per gang"): "the policy of this test has no levels",
    ("muster-fleet", "Fragmentation of free nodes"): "the policy of this test has no levels",
    ("muster-fleet", "Jobs with concerns about checkpoints"): "saves need no attention",
    ("muster-job", "Firing alerts"): "no alert of the jobs fires",
    ("muster-job", "Concerns"): "saves need no attention",
    ("muster-job", "Tokens per second"): "the job does not declare spec.throughput",
    ("muster-job", "MFU"): "the job does not declare spec.throughput",
    ("muster-job", "Cost per million tokens"): "the job does not declare spec.throughput",
    ("muster-nodes", "Machines that fail repeatedly"): "each fails once",
    ("muster-nodes", "Pools with too many silent agents"): "all agents report",
    ("muster-nodes", "GPUs with memory or PCIe errors"): "the fake NVML's GPUs have none",
    ("muster-operator", "Firing alerts"): "no alert of the operator fires",
    ("muster-operator", "Reconciliations per second", "failed: {{reason}}"): "none has to fail",
    ("muster-operator", "Failed requests in the last hour"): "none has to fail",
    ("muster-operator", "Unreadable objects and lost Events per hour", "{{informer}}"): "all objects can be read",
}


def has_value(prometheus: figures.Prometheus, query: str, value: float) -> bool:
    return [float(row["value"][1]) for row in prometheus.now(query)] == [value]


def test_every_query_of_dashboards_and_rules_finds_what_really_ran(bed: Bed, submit: Submit, tmp_path: Path) -> None:
    """A gang that was tested loses a rank, a job waits, nodes are sick and tested by hand: a real Prometheus sees it
    all."""
    with figures.watched(bed, tmp_path) as prometheus:
        wait_until("a scrape of each operator and agent", prometheus.reaches_all)
        job = submit("figures", nodes=2, trainer=LONG, preflight=ANEW)
        job.wait_step(25)
        sick, well = sorted(set(bed.cluster.node_names) - set(job.current().nodes))
        bed.faults.xid(sick, 79)
        job.signal_rank(1)
        waits = submit("waits", nodes=4, trainer=LONG)
        for _ in range(2):  # a histogram's first observation is no growth
            tested = bed.muster("check", well)
            assert tested.returncode == 0, tested.stderr
        bed.faults.xid(well, 79)  # one more than the budget allows
        job.wait_training_again(1)
        jobs = [{"namespace": job.namespace, "job_name": name} for name in (job.name, waits.name)]
        asks = asked(jobs)
        silent = {(uid, panel.title, query.legend) for uid, panel, query, _ in asks}
        needed = {each for each in silent if not {each, each[:2]} & NOTHING_TO_TELL.keys()}
        assert len(needed) > 80

        def told() -> bool:
            for uid, panel, query, chosen in asks:
                each = (uid, panel.title, query.legend)
                if each in silent and prometheus.answers(panel, query, {"probe": "gemm-bf16", "model": ".*", **chosen}):
                    silent.remove(each)
            return not silent & needed

        try:
            wait_until("every query to find something", told)
        except WaitError:
            pytest.fail(f"no series for {sorted(silent & needed)}")
        assert prometheus.reaches_all()
        rules = prometheus.rules()
        assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
        records = {rule["name"] for rule in rules if rule["type"] == "recording"}
        # A rule over what is told late is evaluated once more before it has a series.
        wait_until("all recording rules", lambda: records <= set(prometheus.values_of("__name__")))
        seen = prometheus.values_of("__name__")
        for name in {name for _, _, query, _ in asks for name in named(query.expr)} | {
            name for rule in rules for name in named(rule["query"])
        }:
            family = re.sub(r"_(bucket|count|sum)$", "", name)
            assert name in seen or family in registered(), f"{name} is on no scrape, and no part of Muster tells it"
        account = job.status()["goodput"]
        of_job = f'{{namespace="{job.namespace}",job_name="{job.name}"}}'
        for metric, value in (("failures_total", account["failures"]), ("lost_steps_total", account["lostSteps"])):
            assert value > 0
            query = f"max(muster_job_{metric}{of_job})"
            # After a scrape that took too long there is no series until the next one.
            wait_until(f"{query} of {value}", partial(has_value, prometheus, query, value))
