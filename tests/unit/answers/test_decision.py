"""What a cordon or a release comes to, in sentences."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lifecycle.builders import at

from muster.answers.decision import DecidedNode, Known, NodeDecisions, consequence_of, groups, next_steps
from muster.answers.health import HealthRow
from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import Decision, HumanDecision, VerdictState
from muster.placement.eligibility import OUTSIDE_SCOPE
from muster.world.queuedecision import Refusal, RefusalKind

CORDON, RELEASE = Decision.CORDON, Decision.RELEASE
BY_ANN = HumanDecision(decision=CORDON, reason="liquid", user="ann", time=at(0))
NO_WORKER = "it takes no new worker of a training job"
OTHERS_COME = "new pods of other systems still come: kubectl cordon keeps them away, too"
XID = HealthRow(state=VerdictState.UNHEALTHY, reason="Xid79")
FORGIVEN = "earlier findings no longer count (unhealthy: Xid79); new ones do"


@pytest.mark.parametrize(
    ("decision", "known", "sentences"),
    [
        (CORDON, Known(used_by=(), enforcement=Enforcement.JOBS), [NO_WORKER, OTHERS_COME]),
        (
            CORDON,
            Known(used_by=("pod b/notebook", "a/llama"), enforcement=Enforcement.NODES),
            [
                NO_WORKER,
                "a/llama is evacuated after the next checkpoint",
                "pod b/notebook stays: Muster moves only its own jobs",
                "the taint muster.dev/unhealthy keeps new pods of other systems away, too",
            ],
        ),
        (
            CORDON,
            Known(used_by=("a/one", "a/two", "b/three", "pod b/x", "pod b/y"), enforcement=Enforcement.OBSERVE),
            [
                NO_WORKER,
                "a/one, a/two and b/three are evacuated after the next checkpoint",
                "pod b/x and pod b/y stay: Muster moves only its own jobs",
                OTHERS_COME,
            ],
        ),
        (
            CORDON,
            Known(health=HealthRow(state=VerdictState.QUARANTINED, reason="Cordoned", override=BY_ANN)),
            [
                NO_WORKER,
                "jobs that have workers here are evacuated after their next checkpoint",
                "it was cordoned already, by ann: liquid",
            ],
        ),
        (
            CORDON,
            Known(used_by=("a/llama",), refused=OUTSIDE_SCOPE),
            [
                "it is outside spec.scope of FleetPolicy default, where Muster does nothing: the cordon takes effect "
                "once the node is selected"
            ],
        ),
        (RELEASE, Known(), ["no finding counted against it"]),
        (RELEASE, Known(health=HealthRow(state=VerdictState.HEALTHY)), ["no finding counted against it"]),
        (RELEASE, Known(health=XID), [FORGIVEN]),
        (
            RELEASE,
            Known(health=HealthRow(state=VerdictState.QUARANTINED, reason="Cordoned", override=BY_ANN)),
            ["the cordon by ann ends: liquid"],
        ),
        (
            RELEASE,
            Known(
                health=XID.model_copy(update={"override": BY_ANN.model_copy(update={"user": ""})}),
                refused=Refusal(RefusalKind.CORDONED, "cordoned"),
            ),
            [
                "the cordon by a user ends: liquid",
                FORGIVEN,
                "it takes no worker yet, because it is cordoned for every pod: run kubectl uncordon",
            ],
        ),
        (
            RELEASE,
            Known(refused=Refusal(RefusalKind.TAINTED, "taint example.org/repair")),
            ["no finding counted against it", "it takes no worker yet: taint example.org/repair"],
        ),
    ],
    ids=[
        "idle",
        "held, tainted",
        "held by several",
        "again, and holders unknown",
        "outside the scope",
        "unknown",
        "well",
        "sick",
        "cordoned",
        "cordoned twice, before the operator looked",
        "tainted by others",
    ],
)
def test_what_follows_is_said(decision: Decision, known: Known, sentences: list[str]) -> None:
    assert consequence_of(decision, known) == sentences


def test_how_to_take_it_back_names_the_nodes_while_they_are_few() -> None:
    assert next_steps(CORDON, ["n2", "n1"]) == ["to end the cordon: kubectl muster release n2 n1 --reason TEXT"]
    many = [f"n{i}" for i in range(9)]
    assert next_steps(CORDON, many) == ["to end the cordon: kubectl muster release NODE... --reason TEXT"]
    assert next_steps(RELEASE, many) == ["to see findings on nodes: kubectl muster nodes --unhealthy"]


def some_decisions(**of_node: Any) -> NodeDecisions:
    nodes = [DecidedNode(name=name, consequences=[f"{name[0]} follows"], **of_node) for name in ("a1", "b1", "a2")]
    return NodeDecisions(decision=CORDON, reason="liquid", user="ann", time=at(0), nodes=nodes)


def test_nodes_for_which_the_same_follows_are_told_together() -> None:
    assert groups(some_decisions()) == {("a follows",): ["a1", "a2"], ("b follows",): ["b1"]}


def test_the_shape_for_programs_is_what_the_page_says() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text().partition("## NodeDecisions")[2]
    told = [set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) for part in page.split("\nOf each ")]
    found = some_decisions(health_before=XID, used_by=[]).to_json()
    assert told == [set(found), set(found["nodes"][0])]
