"""What a job that has no place is told: wording that people and runbooks rely on."""

from dataclasses import replace

import pytest
from tests.unit.lifecycle.builders import RACK, a_fleet, a_node
from tests.unit.placement.test_space import ask, tree

from muster.api.fleetpolicy import FleetPolicySpec
from muster.placement.eligibility import IN_USE, Requirements
from muster.placement.names import reserved_refusal
from muster.placement.parts import at_once
from muster.placement.request import Broken, Request
from muster.placement.space import Space
from muster.world.fleet import Exclusion, Fleet, KnownAges
from muster.world.queuedecision import DomainCount, Nearest, NotPlaced, Refusal, RefusalKind, RefusedNodes, Shortfall

FAILED = Refusal(RefusalKind.AVOIDED_AFTER_FAILURE, "avoided after a failure there")


def held(text: str, **holders: str) -> Fleet:
    """A fleet with nodes held by jobs of the namespace `default`."""
    fleet = tree(text)
    for name, nodes in holders.items():
        fleet.occupy(name, name, frozenset(nodes.split()))
        fleet.names[name] = f"default/{name}"
    return fleet


def scoped(text: str, rack: str) -> Fleet:
    """A fleet with a scope of one rack, in which one node outside gives no heartbeat."""
    fleet = tree(text)
    fleet.heartbeats = KnownAges({"b1-r1-0": 60.0})
    policy = {"scope": {"nodeSelector": {"matchLabels": {RACK: rack}}}}
    fleet.set_policy(FleetPolicySpec.model_validate(policy))
    return fleet


BUSY = held("b1/r1:4 b1/r2:4", llama="b1-r1-0 b1-r2-1", small="b1-r1-2")
TWO_USED = held("b1/r1:4 b1/r2:4", llama="b1-r1-0 b1-r2-1")
SIDE_BY_SIDE = "2 at a time in one domain of the innermost level"


def answer(fleet: Fleet, request: Request, taken: tuple[str, ...] = ()) -> NotPlaced:
    space = Space(fleet)
    space.reserve_nodes(taken, reserved_refusal("default/big"))
    found = at_once(space.solve(request))
    assert isinstance(found, NotPlaced), found
    return found


@pytest.mark.parametrize(
    ("fleet", "request_", "reason", "message"),
    [
        pytest.param(
            held("b1/r1:3", llama="b1-r1-0"),
            ask(3),
            "InsufficientNodes",
            "needs 3 nodes: 2 of the fleet's 3 are free and suitable (1 in use by default/llama)",
            id="in use",
        ),
        pytest.param(
            BUSY,
            ask(4, required="rack"),
            "TopologyUnsatisfied",
            "needs 4 free nodes in one rack: best is b1/r2 with 3 of 4; 5 of the fleet's 8 are free and suitable (2 "
            "in use by default/llama, 1 in use by default/small). To start now, delete the job and create it without "
            "spec.placement.required, or with 3 nodes.",
            id="not in one rack",
        ),
        pytest.param(
            TWO_USED,
            ask(6, segment_size=2),
            "TopologyUnsatisfied",
            f"needs 6 free nodes, {SIDE_BY_SIDE}: there is room for 2 of 3 such segments; 6 of the fleet's 8 are "
            "free and suitable (2 in use by default/llama). To start now, delete the job and create it without "
            "spec.placement.segmentSize, or with 4 nodes.",
            id="not in segments",
        ),
        pytest.param(
            held("b1/r1:4 b1/r2:2", llama="b1-r1-0"),
            ask(4, segment_size=4),
            "TopologyUnsatisfied",
            "needs 4 free nodes, 4 at a time in one domain of the innermost level: there is room for 0 of 1 such "
            "segments; 5 of the fleet's 6 are free and suitable (1 in use by default/llama). To start now, delete the "
            "job and create it without spec.placement.segmentSize.",
            id="not one segment: fewer nodes would not help",
        ),
        pytest.param(
            held("b1/r1:8 b2/r1:3", llama="b1-r1-0 b1-r1-1 b1-r1-2 b1-r1-3 b1-r1-4 b1-r1-5"),
            ask(5, required="block"),
            "TopologyUnsatisfied",
            "needs 5 free nodes in one block: best is b1 with 2 of 8; 5 of the fleet's 11 are free and suitable (6 in "
            "use by default/llama). To start now, delete the job and create it without spec.placement.required, or "
            "with 3 nodes.",
            id="the best domain is one that could hold it",
        ),
        pytest.param(
            scoped("b1/r1:3", "nowhere"),
            ask(2),
            "NeverFits",
            "needs 2 nodes: only 0 of the fleet's 3 nodes are suitable, whatever else runs (3 outside spec.scope of "
            "FleetPolicy default)",
            id="a scope that selects no node",
        ),
        pytest.param(
            scoped("b1/r1:2 b1/r2:2", "r2"),
            ask(3),
            "NeverFits",
            "needs 3 nodes: only 2 of the fleet's 4 nodes are suitable, whatever else runs (2 outside spec.scope of "
            "FleetPolicy default)",
            id="some nodes are outside the scope",
        ),
        pytest.param(
            tree("b1/r1:2+1"),
            ask(3),
            "NeverFits",
            "needs 3 nodes: only 2 of the fleet's 3 nodes are suitable, whatever else runs (1 not ready)",
            id="too small a fleet",
        ),
        pytest.param(
            held("b1/r1:2 b1/r2:2", llama="b1-r1-0"),
            ask(3, required="rack"),
            "NeverFits",
            "needs 3 nodes in one rack: even b1/r2 has only 2 suitable, whatever else runs; 4 of the fleet's 4 nodes "
            "are suitable",
            id="too small racks",
        ),
        pytest.param(
            tree("b1/r1:3 b1/r2:3"),
            ask(6, segment_size=6),
            "NeverFits",
            "needs 6 nodes, 6 at a time in one domain of the innermost level: too few of the fleet's 6 suitable "
            "nodes are side by side, whatever else runs",
            id="too small racks for a segment",
        ),
        pytest.param(
            tree("b1/r1:6"),
            ask(5, segment_size=2),
            "NeverFits",
            "needs 5 nodes, which cannot be divided into segments of 2",
            id="segments that do not divide the nodes",
        ),
        pytest.param(
            tree("b1/r1:3 b1/r2:3"),
            ask(5, spares=2),
            "NeverFits",
            "needs 5 nodes and 2 spares: only 6 of the fleet's 6 nodes are suitable, whatever else runs",
            id="spares count",
        ),
        pytest.param(
            a_fleet([a_node(f"n{i}", labels={}) for i in range(3)]),
            ask(2, required="rack"),
            "NeverFits",
            "needs 2 nodes in one rack: no suitable node is in one, whatever else runs; 3 of the fleet's 3 nodes are "
            "suitable",
            id="no labels",
        ),
        pytest.param(
            tree("b1/r1:2 b2/r2:3"),
            ask(1, required="block", kept=("b1-r1-0", "b1-r1-1")),
            "TopologyUnsatisfied",
            "needs 1 more free node in one block: there is none in the block of its other nodes; 3 of the fleet's 5 "
            "are free and suitable (2 already used by this job)",
            id="the block of the others is full",
        ),
        pytest.param(
            tree("b1/r1:2 b2/r2:3"),
            ask(1, segment_size=2, kept=("b1-r1-0", "b1-r1-1"), broken=(Broken(1, ("b1-r1-0",)),)),
            "TopologyUnsatisfied",
            f"needs 1 more free node, {SIDE_BY_SIDE}: a broken segment cannot be completed beside the nodes that it "
            "keeps; 3 of the fleet's 5 are free and suitable (2 already used by this job)",
            id="a segment that cannot be completed",
        ),
        pytest.param(
            tree("b1/r1:2"),
            ask(1, kept=("b1-r1-0", "b1-r1-1")),
            "InsufficientNodes",
            "needs 1 more node: 0 of the fleet's 2 are free and suitable (2 already used by this job)",
            id="no node for a replacement",
        ),
        pytest.param(
            tree("b1/r1:1"),
            ask(1, required="pod"),
            "UnknownTopologyLevel",
            "'pod' is no longer a level of this fleet's FleetPolicy",
            id="a level that is gone",
        ),
    ],
)
def test_message(fleet: Fleet, request_: Request, reason: str, message: str) -> None:
    found = answer(fleet, request_)
    assert (found.reason, found.message) == (reason, message)


def test_what_a_plan_has_given_away_says_why() -> None:
    found = answer(held("b1/r1:3", llama="b1-r1-0"), ask(3), ("b1-r1-1",))
    assert found.message.endswith("(1 in use by default/llama, 1 reserved for default/big)")


def test_long_lists_are_cut() -> None:
    fleet = held("b1/r1:20", **{f"job{n:02}": f"b1-r1-{n}" for n in range(12)})
    found = answer(fleet, ask(20))
    assert found.message == (
        "needs 20 nodes: 8 of the fleet's 20 are free and suitable (4 in use by others, 1 in use by default/job00, 1 "
        "in use by default/job01, 1 in use by default/job02, 1 in use by default/job03, 1 in use by default/job04, 3 "
        "for 3 more reasons)"
    )
    assert found.shortfall is not None
    assert len(found.shortfall.holders) == 8


def test_the_numbers() -> None:
    assert answer(BUSY, ask(4, required="rack", spares=0)).shortfall == Shortfall(
        needs=4,
        inside="rack",
        segment_size=1,
        fleet=8,
        suitable=8,
        free=5,
        refused=(RefusedNodes(IN_USE, 3),),
        holders={"default/llama": 2, "default/small": 1},
        domains=(DomainCount("b1/r2", 3, 4), DomainCount("b1/r1", 2, 4)),
        nearest=Nearest(DomainCount("b1/r2", 3, 4), (RefusedNodes(IN_USE, 1),), {"default/llama": 1}, 0, 0),
        ever=True,
        fewer=3,
    )


def test_sick_nodes_are_named() -> None:
    fleet = tree("b1/r1:12")
    for number in (10, 9, 2, 1):
        fleet.exclude(f"b1-r1-{number}", Exclusion("Xid79"))
    fleet.exclude("b1-r1-0", Exclusion("IbPortDown"))
    fleet.exclude("b1-r1-5", Exclusion("IbPortDown"))
    fleet.exclude("not-a-node-any-more", Exclusion("Xid79"))
    avoiding = Requirements(8, {}, {"b1-r1-5": FAILED})
    found = answer(fleet, replace(ask(8), needs=avoiding)).shortfall
    assert found is not None
    sick, port = (Refusal(RefusalKind.UNHEALTHY, f"unhealthy ({what})") for what in ("Xid79", "IbPortDown"))
    assert found.refused == (
        RefusedNodes(sick, 4, ("b1-r1-1", "b1-r1-2", "b1-r1-9")),
        RefusedNodes(FAILED, 1),
        RefusedNodes(port, 1, ("b1-r1-0",)),
    )
    fleet.exclude("b1-r1-0", None)
    well = answer(fleet, ask(8)).shortfall
    assert well is not None
    assert RefusedNodes(port, 1, ("b1-r1-5",)) in well.refused
