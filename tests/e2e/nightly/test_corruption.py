"""A trainer that finds its own results wrong, on a node that gives wrong results: the node leaves, the training goes on
from before, and its weights are those of a run in which nothing happened.

The policy has no burn-in: that results were found wrong is reason enough to test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.e2e.faults import reference_weights

from testbed import checkers
from testbed.bed import Bed
from testbed.jobs import Job

STEPS, CORRUPT_AT, FOUND_AT = 60, 15, 34
TRAINER = [f"--steps={STEPS}", "--step-seconds=0.1", "--checkpoint-every=10"]
WRONG = ["--fault-rank=0", f"--corrupt-at={CORRUPT_AT}", f"--find-corruption-at={FOUND_AT}"]
Submit = Callable[..., Job]


@pytest.fixture(scope="module")
def tested(bed: Bed) -> Iterator[None]:
    """Checkers on all nodes, and a policy by which no gang is tested."""
    with checkers.installed(bed, profile="Disabled"):
        yield


@pytest.fixture(autouse=True)
def fresh(bed: Bed, tested: None) -> Iterator[None]:
    """Nodes that are well, and checkers that can test."""
    with checkers.fresh(bed):
        yield


def submitted(bed: Bed, submit: Submit, name: str) -> Job:
    """A job of two workers that saves wrong weights from step 15 on and finds that at step 34."""
    return submit(name, nodes=2, trainer=[*TRAINER, *WRONG])


def goes_on_from_before(job: Job) -> None:
    """Whatever was saved after step 14 is not gone on from, and is written anew."""
    assert job.completion(900)["result"] == "Succeeded"
    assert [line["step"] for line in job.events("resumed") if line["rank"] == 0] == [10]
    assert job.weights() == {reference_weights(STEPS, 2)}
    told = job.status()["corruption"]
    assert (told["reason"], told["foundAt"], told["resumedStep"]) == ("NonFiniteLoss", FOUND_AT, 10)
    assert told["suspectSteps"] == [30, 20]


def test_the_node_that_gives_wrong_results_leaves_and_training_goes_back(bed: Bed, submit: Submit) -> None:
    """Training resumes from a checkpoint of before the wrong results."""
    job = submitted(bed, submit, "corrupt")
    bad = job.current().nodes[1]
    bed.faults.probe(bad, "flip")
    goes_on_from_before(job)
    spec = job.current().spec
    assert bad not in [member["node"] for member in spec["members"]]
    (incident,) = spec["incidents"]
    assert (incident["reason"], incident["faultClass"], incident["node"]) == ("CorruptionFound", "Hardware", bad)
    assert job.status()["corruption"]["culprits"] == [bad]
    health = bed.kubectl.json("get", "nodehealth", bad)["status"]
    assert (health["state"], health["reason"]) == ("Degraded", "BurnInFailed")
    job.wait_reasons("CorruptionFound", "BurnInFailed", "CorruptionExamined")
    told = bed.muster("status", f"{job.namespace}/{job.name}", "--burn-in")
    assert "gave wrong results in the burn-in and left the gang" in " ".join(told.stdout.split())


def test_where_all_nodes_pass_it_goes_on_with_them_and_blames_nobody(bed: Bed, submit: Submit) -> None:
    job = submitted(bed, submit, "corrupt-alone")
    nodes = list(job.current().nodes)
    goes_on_from_before(job)
    spec = job.current().spec
    assert [member["node"] for member in spec["members"]] == nodes
    assert {member["incarnation"] for member in spec["members"]} == {1}
    assert spec["incidents"][0]["faultClass"] == "Application"
    assert job.status()["corruption"]["examination"] == "NothingFound"
    assert "burnIn" not in spec
