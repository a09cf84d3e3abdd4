"""Gangs in their burn-in, and what becomes of them over many leaders or where tests give no answer."""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, idle
from tests.unit.lifecycle.checkers import Play

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import GangSpec
from muster.burnin.state import INCONCLUSIVE
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide


def policy(**preflight: Any) -> FleetPolicySpec:
    """A policy with a Quick burn-in for all."""
    return FleetPolicySpec.model_validate({"preflight": {"profile": "Quick", **preflight}})


def play(nodes: int = 4, fleet: int = 6, rules: FleetPolicySpec | None = None, **faults: Any) -> Play:
    """A gang whose pods are bound and whose launchers are idle in attempt 1."""
    scene = Scene(a_job(nodes=nodes)).fleet(fleet).gang(go=False)
    scene.fleet_changes["policy"] = rules or policy()
    scene.pods()
    for index in range(nodes):
        scene.launcher(index, idle(1, index))
    return Play.of(scene, **faults)


def spec_of(plan: Plan) -> GangSpec:
    """What the plan commits."""
    (commit,) = [action for action in plan.actions if isinstance(action, CommitGang)]
    return commit.spec


def told(plan: Plan) -> tuple[str, str]:
    """Reason and message of the job's state."""
    assert plan.status is not None
    (message,) = [c.message for c in plan.status.conditions if c.type == "Running"]
    return plan.status.reason, message


def told_pending(found: Play) -> tuple[str, str]:
    """Reason and message of a job that has no nodes."""
    plan = decide(found.world(), SETTINGS)
    assert plan.status is not None
    (message,) = [c.message for c in plan.status.conditions if c.type == "Running"]
    return plan.status.reason, message


def wait_in_vain(found: Play, turns: int) -> tuple[str, str]:
    """Reason and message after so many decisions of which none commits anything."""
    for _ in range(turns):
        plan = found.decide()
        assert not plan.actions
        if not found.answer():
            found.pass_time(5.0)
    return told(plan)


def ends_with_another_node(pace: float) -> None:
    """A node that gives no answer for half an hour, of which time passes at this pace."""
    found = play(rules=policy(onInconclusive="Wait"), n1={"environment": "GPU 0 is in use: process 7"})
    reason, message = wait_in_vain(found, 40)
    assert reason == INCONCLUSIVE
    assert "repeats the tests every 120 s, for 31 min at most" in message
    plan = found.until_commit(1000, pace)
    spec = spec_of(plan)
    assert [member.node for member in spec.members] == ["n0", "n4", "n2", "n3"]
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.tries) == ([], 1)  # nothing is held against the node
    assert found.scene.seconds <= 31 * 60 + 200.0
    (event,) = plan.announcements
    assert event.reason == INCONCLUSIVE
    assert "the burn-in of 1 of 4 nodes gave no result within 31 min" in event.note
    assert "GPU 0 is in use: process 7" in event.note
    found.take(plan)
    assert spec_of(found.until_commit()).start is not None


def all_are_given_back(left: str, pace: float) -> None:
    """Three times for half an hour, of which time passes at this pace, no node that could be tested is found."""
    bad = range(4) if left == "all are so" else (1,)
    faults = {f"n{index}": {"environment": "the torch of this image has no CUDA"} for index in bad}
    found = play(fleet=8 if left == "all are so" else 4, rules=policy(onInconclusive="Wait"), **faults)
    pauses = []
    for _ in range(3):
        plan = found.until_commit(1000, pace)
        spec = spec_of(plan)
        assert spec.members == []
        assert spec.reason == INCONCLUSIVE
        assert "has no CUDA" in plan.announcements[0].note
        assert spec.hold_until is not None
        pauses.append((spec.hold_until - found.world().now).total_seconds())
        members = found.scene.record.members  # type: ignore[union-attr]
        found.scene.record = spec
        reason, message = told_pending(found)
        assert reason == INCONCLUSIVE
        assert "has no CUDA" in message
        (given_back,) = [action for action in plan.actions if isinstance(action, CommitGang)]
        found.pass_time(3600.0)
        placed = spec.model_copy(update={"members": members, "time": found.world().now})
        found.take(Plan((replace(given_back, spec=placed),)))
    assert pauses == [60.0, 120.0, 240.0]
    assert not (spec.burn_in and spec.burn_in.failures)


@dataclass(frozen=True)
class Succession:
    """A gang with bad nodes, and the turns in which there is a new leader."""

    nodes: int
    bad: set[int]
    how: str
    changes: list[int]


successions = st.builds(
    Succession,
    nodes=st.integers(2, 10),
    bad=st.sets(st.integers(0, 9), max_size=2),
    how=st.sampled_from(["wrong", "bad_pairs"]),
    changes=st.lists(st.integers(0, 30), max_size=3),
)


def the_culprits_leave_and_nobody_else(chain: Succession) -> None:
    # Where both nodes of a rack are bad, the rack is to blame.
    culprits = {i for i in chain.bad if i < chain.nodes and chain.nodes >= 8 and i ^ 1 not in chain.bad}
    faults = {f"n{i}": {chain.how: True} for i in culprits}
    found = play(nodes=chain.nodes, fleet=chain.nodes + 4, **faults)
    gone: set[str] = set()
    for turn in range(400):
        if turn in chain.changes:
            for checker in found.checkers.values():
                checker.given = {}
        plan = found.decide()
        if any(isinstance(action, CommitGang) for action in plan.actions):
            spec = spec_of(plan)
            if spec.start is not None:
                break
            gone |= {failure.node for failure in spec.burn_in.failures} if spec.burn_in else set()
            found.take(plan)
        elif not found.answer():
            found.pass_time(5.0)
    assert spec_of(plan).start is not None
    assert gone == set(faults)
    for checker in found.checkers.values():
        assert len(set(checker.runs)) == len(checker.runs)
