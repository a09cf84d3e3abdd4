"""Which signs speak against a node, source by source."""

import pytest
from tests.unit.health.builders import NOW, after, evidence, finding, node, recorded, rules, sick, world

from muster.api.nodehealth import Severity
from muster.health.collect import collect
from muster.health.equals import Lack
from muster.health.facts import NodeFacts
from muster.health.node_world import FailedBurnIn, NodeWorld
from muster.health.repairs import RepairStatus, Stage
from muster.health.silence import Silence
from muster.world.jobfailures import JobFailureReport
from muster.world.views import ConditionView

NEBIUS = ConditionView("NebiusGPUError", "True", "Broken", "", after(-60))
FAILED = FailedBurnIn("boot-1", "gemm", "slow", NOW)
LACK = Lack("7 GPUs, its peers have 8", Severity.DEGRADED, lasts=True)
REPORTS = [JobFailureReport(owner, f"{owner}/a", 2, "a rank was killed", NOW, went_on=True) for owner in "ab"]


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        pytest.param(world(), [], id="nothing"),
        pytest.param(world(sick(evidence("Xid", 79))), ["agent/Xid79"], id="evidence"),
        pytest.param(world(sick(evidence("Xid", 79, boot_id="boot-0"))), [], id="evidence of another boot"),
        pytest.param(
            world(sick(evidence("Xid", 79)), rules=rules(sources=[{"name": "agent", "enabled": False}])),
            [],
            id="the agent is switched off",
        ),
        pytest.param(
            world(recorded(finding("agent", "GpuLost", "Fatal"))), ["agent/GpuLost"], id="only a boot ends it"
        ),
        pytest.param(world(recorded(finding("agent", "GpuLost", "Fatal"), boot="boot-0")), [], id="and it was booted"),
        pytest.param(world(None, NEBIUS), ["nebius/Broken"], id="a mark"),
        pytest.param(world(silence=Silence(Severity.DEGRADED, "silent")), ["agent/AgentSilent"], id="silence"),
        pytest.param(world(silence=Silence(None)), [], id="a silence from which nothing follows yet"),
        pytest.param(
            world(recorded(finding("agent", "AgentSilent")), silence=Silence(None)),
            ["agent/AgentSilent"],
            id="a silence on record",
        ),
        pytest.param(world(lack=LACK), ["agent/FewerThanPeers"], id="less than its peers"),
        pytest.param(world(burn_ins=[FAILED]), ["burn-in/BurnInFailed"], id="a failed test"),
        pytest.param(world(burn_ins=[FailedBurnIn("boot-0", "gemm", "slow", NOW)]), [], id="a test of another boot"),
        pytest.param(
            world(recorded(finding("burn-in", "BurnInFailed", subject="gemm"))),
            ["burn-in/BurnInFailed"],
            id="a failed test on record",
        ),
        pytest.param(world(repair=RepairStatus(Stage.FAILED)), ["repair/RepairFailed"], id="a failed repair"),
        pytest.param(world(reports=REPORTS), ["jobs/CheckRequested"], id="jobs of two owners"),
        pytest.param(world(reports=REPORTS, answered=after(1)), [], id="jobs before a test"),
        pytest.param(
            world(facts=NodeFacts(node(labels={"node.coreweave.cloud/state": "triage"}))),
            ["coreweave/CoreWeaveNotInProduction"],
            id="a claim",
        ),
    ],
)
def test_what_speaks_against_a_node(given: NodeWorld, reasons: list[str]) -> None:
    assert [f"{sign.source}/{sign.reason}" for sign in collect(given).all] == reasons


def test_the_strongest_sign_of_a_key_is_kept_and_the_strongest_is_first() -> None:
    found = collect(world(sick(evidence("Xid", 13), evidence("Xid", 79), evidence("RowRemapPending"))))
    assert [sign.weighs for sign in found.all] == sorted((sign.weighs for sign in found.all), reverse=True)
    assert len({sign.key for sign in found.all}) == len(found.all)
