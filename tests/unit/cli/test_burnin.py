"""What people are told of a job's burn-in, and of tests of single nodes."""

import json
from collections.abc import Callable
from typing import Any

from tests.unit.cli.test_commands import failed
from tests.unit.cli.test_decide import patches, put_nodes
from tests.unit.cli.test_status import with_job
from tests.unit.lifecycle.builders import Scene, a_job, at
from typer.testing import Result

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import BurnIn, BurnInAllReduce, BurnInFailure, Corruption, CorruptionStatus
from muster.api.nodehealth import CheckedProbe, CheckOutcome, CheckResult
from muster.api.preflight import Profile
from muster.api.trainingjob import TrainingJobStatus
from muster.cli import burnin, check, show

QUICK = FleetPolicySpec.model_validate({"preflight": {"profile": "Quick"}})
FAILURE = BurnInFailure(node="n9", time=at(40), probe="pair", message="reached 0.1 GB/s at best", partners=["n0", "n1"])


def test_a_gang_in_its_burn_in_names_who_is_tested_and_who_has_failed() -> None:
    failed = BurnIn(profile="Quick", time=at(40), tries=1, failures=[FAILURE])
    record = Scene(a_job(nodes=2)).fleet(2).gang(attempt=2, go=False, burn_in=failed).record
    it = burnin.burn_in_report(a_job(nodes=2), record, QUICK, [])
    assert (it.profile, it.attempt, it.tries) == (Profile.QUICK, 2, 1)
    assert [(node.name, node.worker, node.state) for node in it.nodes] == [
        ("n0", 0, burnin.NodeState.TESTING),
        ("n1", 1, burnin.NodeState.TESTING),
        ("n9", None, burnin.NodeState.FAILED),
    ]
    text = show.as_text(lambda console: burnin.render(console, it, at(100)))
    assert "Quick, 1 try so far" in text
    (line,) = [line for line in text.splitlines() if line.startswith("n9")]
    assert line.split()[1:] == ["Failed", "pair", "1m", "reached", "0.1", "GB/s", "at", "best", "(beside", "n0,", "n1)"]


def test_results_of_another_profile_than_the_present_one_name_theirs() -> None:
    """The FleetPolicy was deleted after the nodes were tested."""
    failed = BurnIn(profile="Quick", time=at(40), failures=[FAILURE])
    record = Scene(a_job(nodes=2)).fleet(2).gang(attempt=2, burn_in=failed).record

    def told(policy: FleetPolicySpec) -> str:
        it = burnin.burn_in_report(a_job(nodes=2), record, policy, [])
        assert it.tested_profile == "Quick"
        return show.as_text(lambda console: burnin.render(console, it, at(100)))

    assert "Disabled (the results shown are from a burn-in with Quick)" in told(FleetPolicySpec())
    assert "results shown" not in told(QUICK)


def test_results_that_were_found_wrong_are_told_and_raise_the_profile() -> None:
    found = Corruption(
        attempt=1, time=at(0), reason="NonFiniteLoss", found_at=24, suspect_beyond_step=23, message="rank 1 found it"
    )
    record = Scene(a_job(nodes=2)).fleet(2).gang(attempt=2, go=False, corruption=found).record
    told = CorruptionStatus(attempt=1, time=at(0), reason="NonFiniteLoss", found_at=24, message="rank 1 found it")
    job = a_job(nodes=2).model_copy(update={"status": TrainingJobStatus(corruption=told)})
    it = burnin.burn_in_report(job, record, QUICK, [])
    assert it.profile is Profile.STANDARD
    text = show.as_text(lambda console: burnin.render(console, it, at(60)))
    assert "rank 1 found it (1m ago)" in text
    assert burnin.burn_in_report(job, None, FleetPolicySpec(), []).profile is Profile.DISABLED
    assert burnin.burn_in_report(job, record, None, []).profile is Profile.STANDARD, "though the policy may not be read"
    assert burnin.burn_in_report(job, None, None, []).profile is None


def test_what_started_untested_says_why() -> None:
    left = BurnIn(profile="Quick", time=at(40), untested=["n1"], message="no checker on n1 reports")
    record = Scene(a_job(nodes=2)).fleet(2).gang(burn_in=left).record
    it = burnin.burn_in_report(
        a_job(nodes=2, preflight={"profile": "Deep"}), record, None, ["the FleetPolicy may not be read"]
    )
    assert it.profile is Profile.DEEP
    assert [(node.state, node.message) for node in it.nodes] == [
        (burnin.NodeState.TRAINING, ""),
        (burnin.NodeState.UNTESTED, "no checker on n1 reports"),
    ]


def test_what_the_whole_gang_has_reached_is_told_with_its_age() -> None:
    whole = BurnInAllReduce(time=at(40), message="all-reduce over 4 nodes: 1.2 GB/s (TCP)")
    record = Scene(a_job(nodes=4)).fleet(4).gang(burn_in=BurnIn(time=at(40), all_reduce=whole)).record
    it = burnin.burn_in_report(a_job(nodes=4), record, QUICK, [])
    assert (it.all_reduce, it.all_reduce_time) == (whole.message, at(40))
    text = show.as_text(lambda console: burnin.render(console, it, at(100)))
    assert "all-reduce over 4 nodes: 1.2 GB/s (TCP) (1m ago)" in text


def test_a_job_that_has_no_nodes_yet_has_no_table() -> None:
    it = burnin.burn_in_report(a_job(), None, QUICK, [])
    assert (it.state, it.nodes) == ("New", [])
    assert "NODE" not in show.as_text(lambda console: burnin.render(console, it, at(0)))


def test_status_shows_the_burn_in_when_it_is_asked_for(api: Any, command: Callable[..., Result]) -> None:
    with_job(api)
    policy = {"metadata": {"name": "default"}, "spec": {"preflight": {"profile": "Quick"}}}
    api.put("/apis/muster.dev/v1alpha1/fleetpolicies/default", policy)
    found = json.loads(command("status", "llama", "--burn-in", "-o", "json").stdout)
    assert (found["kind"], found["profile"]) == ("JobBurnIn", "Quick")
    assert [node["name"] for node in found["nodes"]] == ["gpu-0", "gpu-1"]
    assert "Burn-in" in command("status", "team-a/llama", "--burn-in").stdout
    assert json.loads(command("status", "llama", "-o", "json").stdout)["kind"] == "JobStatus"


def test_a_node_outside_the_scope_is_not_asked_for_a_test(api: Any, command: Callable[..., Result]) -> None:
    put_nodes(api, "gpu-1")
    policy = "/apis/muster.dev/v1alpha1/fleetpolicies/default"
    del api.errors[policy]
    scope = {"nodeSelector": {"matchLabels": {"cell": "a"}}}
    api.put(policy, {"metadata": {"name": "default"}, "spec": {"scope": scope}})
    text = "gpu-1: outside spec.scope of FleetPolicy default, where Muster tests nothing. Nothing was changed"
    assert failed(command("check", "gpu-1")) == text
    assert patches(api) == []


def test_figures_of_a_tested_node_stand_below_its_name() -> None:
    slow = CheckedProbe(
        probe="gemm-bf16",
        outcome=CheckOutcome.FAIL,
        value="400 TFLOP/s",
        threshold="561 TFLOP/s (the fleet's history)",
        message="GPU 3",
    )
    result = CheckResult(
        id="w1", profile=Profile.QUICK, outcome=CheckOutcome.FAIL, time=at(0), seconds=21, device="H200", probes=[slow]
    )
    nodes = [check.TestedNode(name="n1", result=result), check.TestedNode(name="n2", used_by=["ml/llm"])]
    it = check.NodeChecks(
        id="w1", profile=Profile.QUICK, nodes=nodes, notes=["n2: in use: the test runs as soon as the node is idle"]
    )
    words = show.as_text(lambda console: check.render(console, it)).split()
    at_node = words.index("n1")
    assert words[at_node : at_node + 3] == ["n1", "Fail", "Quick"]
    assert {"gemm-bf16", "400", "561", "GPU"} <= set(words)
    assert words[words.index("n2") : words.index("n2") + 3] == ["n2", "waiting", "ml/llm"]
    assert " ".join(words).endswith("note: n2: in use: the test runs as soon as the node is idle")
