"""The burn-in: who is tested, who has to go, who keeps his place, and what a new leader makes of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, a_node, an_incident, an_unfenced_worker, at, idle
from tests.unit.lifecycle.burning_in import (
    Succession,
    all_are_given_back,
    ends_with_another_node,
    play,
    policy,
    spec_of,
    successions,
    the_culprits_leave_and_nobody_else,
    told,
    wait_in_vain,
)
from tests.unit.lifecycle.checkers import Checker, Play

from muster.api.fleetpolicy import FleetPolicySpec, Scope
from muster.api.gang import BurnIn, Corruption, Examination, FaultClass
from muster.api.trainingjob import CompletionRecord, CompletionResult
from muster.burnin.nodes import AGAIN_SECONDS
from muster.burnin.orders import ANSWER_SECONDS
from muster.burnin.state import BURNING_IN, CHECKERS_MISSING, INCONCLUSIVE
from muster.lifecycle.plan import CommitGang, CreatePod, Plan
from muster.lifecycle.step import checks_of, decide
from muster.protocol.checks import READY, STARTING, UNFIT, CheckAnswer, PassReport
from muster.protocol.profiles import PROFILES
from muster.recovery import holds
from muster.status.report import State, StatusReport
from muster.world.checks import NodeChecks, ProbeThreshold
from muster.world.fleet import Suspicion


def ends(run: str) -> set[int]:
    """Indices of the members that an order was for; none for one of a single node."""
    names = run.rpartition("/")[2]
    return {int(end) for end in names.split("+")} if "+" in names else set()


def doubted(found: Play) -> Play:
    """The same after the trainer has found its results wrong."""
    assert found.scene.record is not None
    word = Corruption(attempt=0, time=at(0), reason="ReplayMismatch", found_at=5, suspect_beyond_step=0)
    found.scene.record = found.scene.record.model_copy(update={"corruption": word})
    return found


def test_without_a_profile_nobody_is_tested() -> None:
    scene = play(rules=FleetPolicySpec()).scene
    plan = decide(scene.world(), SETTINGS)
    assert spec_of(plan).start is not None
    assert plan.checks is None


def test_a_healthy_gang_is_tested_and_starts() -> None:
    found = play()
    plan = found.until_commit()
    spec = spec_of(plan)
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], [])
    for node in ("n0", "n1", "n2", "n3"):
        assert found.checkers[node].runs[0] == "uid-of-job.q/1/node"
        assert len(found.checkers[node].runs) >= 3
        assert [each.granted for each in found.checkers[node].passes.values()] == ["uid-of-job.q/1"]
    assert not found.checkers["n4"].runs
    reasons = [told(each)[0] for each in found.plans if each.status is not None]
    assert set(reasons[:-1]) == {BURNING_IN}


def test_words_change_with_rounds_and_not_with_every_answer() -> None:
    found = play(nodes=4)
    found.until_commit()
    words = [told(each)[1] for each in found.plans if each.status is not None]
    assert len(set(words)) <= 6
    assert "burn-in Quick: 4 nodes are tested, each alone" in words
    assert "burn-in Quick: nodes in pairs, round 1" in words


def test_a_node_that_the_scope_leaves_out_is_not_tested() -> None:
    found = play()
    scope = {"nodeSelector": {"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]}}
    rules = found.scene.fleet_changes["policy"]
    found.scene.fleet_changes["policy"] = rules.model_copy(update={"scope": Scope.model_validate(scope)})
    for worker in (1, 2):
        found.scene.pod(worker)
    found.scene.node("n1", labels={**found.scene.nodes["n1"].labels, "other": "yes"})
    assert spec_of(found.until_commit()).start is not None
    assert found.checkers["n0"].runs
    assert not found.checkers["n1"].runs


def test_one_node_alone_is_tested_by_itself() -> None:
    found = play(nodes=1)
    assert spec_of(found.until_commit()).start is not None
    assert found.checkers["n0"].runs == ["uid-of-job.q/1/node"]


@pytest.mark.parametrize(
    ("fault", "probe", "words"),
    [
        ({"wrong": True}, "bit-exact", "bit-exact found what must not be (GPU 3: bits differ)"),
        ({"bad_pairs": True}, "pair", "reached 0.1 GB/s at best"),
    ],
)
def test_who_fails_leaves_and_the_others_keep_their_pods(fault: dict[str, Any], probe: str, words: str) -> None:
    found = play(nodes=4, n2=fault)
    plan = found.until_commit()
    spec = spec_of(plan)
    assert spec.start is None
    assert [member.node for member in spec.members] == ["n0", "n1", "n4", "n3"]
    assert [member.incarnation for member in spec.members] == [1, 1, 2, 1]
    assert (spec.reason, spec.attempt) == ("BurnInFailed", 2)
    assert spec.burn_in is not None
    (failure,) = spec.burn_in.failures
    assert (failure.node, failure.boot, failure.probe) == ("n2", "boot-1", probe)
    assert words in failure.message
    assert spec.burn_in.tries == 1
    assert not spec.incidents
    (event,) = plan.announcements
    assert event.reason == "BurnInFailed"
    assert event.note.startswith("failed the burn-in: n2: ")
    # The replacement is tested beside the others, who have passed.
    before = {node: len(checker.runs) for node, checker in found.checkers.items()}
    found.take(plan)
    plan = found.until_commit()
    assert spec_of(plan).start is not None
    assert found.checkers["n4"].runs[0] == "uid-of-job.q/2/node"
    again = {run for node in ("n0", "n1", "n3") for run in found.checkers[node].runs[before[node] :]}
    beside = {run for run in again if 2 in ends(run)}
    assert beside
    # No history says what a healthy pair reaches: in each round one pair of those who have passed shows it.
    rounds = [run.split("/")[2] for run in again - beside if not run.endswith("/gang")]
    assert len(rounds) == len(set(rounds)) <= 2, again
    for node in ("n0", "n1", "n3"):
        assert [each.granted for each in found.checkers[node].passes.values()] == [
            "uid-of-job.q/1"
        ]  # not tested, no new pass


def test_a_pass_beside_a_failed_node_stands_however_fresh_it_has_to_be() -> None:
    found = play(nodes=4, n2={"wrong": True})
    found.scene.job = a_job(nodes=4, preflight={"maxAgeSeconds": 0})
    found.take(found.until_commit())
    assert spec_of(found.until_commit()).start is not None
    alone = [run for node in ("n0", "n1", "n3") for run in found.checkers[node].runs if run.endswith("/node")]
    assert alone == ["uid-of-job.q/1/node"] * 3


def test_they_stand_while_the_gang_waits_for_another_node_too() -> None:
    found = play(nodes=4, fleet=4, n2={"wrong": True})
    found.scene.job = a_job(nodes=4, preflight={"maxAgeSeconds": 0})
    found.take(found.until_commit())
    found.scene.node("n4")
    found.checkers["n4"] = Checker("n4")
    plan = found.decide()
    assert spec_of(plan).attempt == 3
    found.take(plan)
    assert spec_of(found.until_commit()).start is not None
    alone = [run for node in ("n0", "n1", "n3") for run in found.checkers[node].runs if run.endswith("/node")]
    assert alone == ["uid-of-job.q/1/node"] * 3


def test_two_that_fail_at_once_are_both_replaced() -> None:
    found = play(nodes=6, fleet=9, n1={"wrong": True}, n4={"bad_pairs": True})
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert {failure.node for failure in spec.burn_in.failures} == {"n1", "n4"}
    assert {member.node for member in spec.members}.isdisjoint({"n1", "n4"})


def test_without_another_node_the_others_wait_and_who_failed_is_not_taken_again() -> None:
    found = play(nodes=4, fleet=4, n2={"wrong": True})
    found.take(found.until_commit())
    plan = found.decide()
    record = found.scene.record
    assert record is not None
    assert [member.node for member in record.members] == ["n0", "n1", "", "n3"]
    assert not plan.actions
    found.pass_time(3600.0)
    assert not found.decide().actions
    found.scene.node("n2", boot_id="boot-2")
    assert [member.node for member in spec_of(found.decide()).members] == ["n0", "n1", "n2", "n3"]


def test_after_so_many_tries_the_nodes_are_given_back() -> None:
    found = play(nodes=2, fleet=8, rules=policy(maxReplacements=2), **{f"n{i}": {"wrong": True} for i in range(1, 8)})
    tries = []
    for _ in range(3):
        plan = found.until_commit()
        found.take(plan)
        tries.append(spec_of(plan))
    assert [len(spec.members) for spec in tries] == [2, 2, 0]
    last = tries[-1]
    assert last.burn_in is not None
    assert (last.burn_in.tries, len(last.burn_in.failures)) == (0, 3)
    assert last.hold_until is not None
    assert holds.held_seconds(found.world(), last) > 0
    assert "failed the burn-in 3 times in a row" in plan.announcements[0].note


def test_passes_that_hold_are_not_repeated() -> None:
    found = play()
    for checker in found.checkers.values():
        checker.passes["old"] = PassReport("Standard", 3600.0, "old", gpus=8)
    assert spec_of(found.until_commit()).start is not None
    assert not any(checker.runs for checker in found.checkers.values())


@pytest.mark.parametrize(
    ("profile", "age", "incident", "again"),
    [
        ("Quick", 3600.0, None, False),
        ("Quick", 90000.0, None, True),
        ("Quick", 50.0, 60.0, False),
        ("Quick", 3600.0, 60.0, True),
    ],
)
def test_a_pass_counts_while_it_is_fresh_and_nothing_has_happened_since(
    profile: str, age: float, incident: float | None, again: bool
) -> None:
    found = play()
    for checker in found.checkers.values():
        checker.passes["old"] = PassReport(profile, age, "old", gpus=8)
    if incident is not None:
        happened = an_incident(
            1, FaultClass.HARDWARE, node="n1", time=at(found.scene.seconds - incident), settled=True, resumed_step=0
        )
        found.scene.record = found.scene.record.model_copy(update={"incidents": [happened]})  # type: ignore[union-attr]
    found.until_commit()
    assert bool(found.checkers["n1"].runs) is again


@pytest.mark.parametrize(
    ("doubt", "again"),
    [
        pytest.param(Suspicion(at(0), True), True, id="of several owners"),
        pytest.param(Suspicion(at(0)), False, id="of one"),
        pytest.param(Suspicion(at(-7200.0), True), False, id="before it passed"),
    ],
)
def test_a_pass_from_before_jobs_failed_there_counts_for_nothing(doubt: Suspicion, again: bool) -> None:
    found = play()
    for checker in found.checkers.values():
        checker.passes["old"] = PassReport("Quick", 3600.0, "old", gpus=8)
    found.scene.fleet_changes["suspicions"] = {"n1": doubt}
    assert spec_of(found.until_commit()).start is not None
    assert bool(found.checkers["n1"].runs) is again
    assert not found.checkers["n3"].runs or again


def test_who_has_trained_there_is_not_tested_again_for_what_other_jobs_say() -> None:
    found = play()
    record = found.scene.record
    assert record is not None
    worker_views = [member.model_copy(update={"pod_uid": found.scene.uid(member.index)}) for member in record.members]
    found.scene.record = record.model_copy(update={"members": worker_views})
    found.scene.fleet_changes["suspicions"] = {"n1": Suspicion(at(0), True)}
    assert spec_of(found.until_commit()).start is not None
    assert not any(checker.runs for checker in found.checkers.values())


def test_a_lower_pass_is_not_enough_and_the_owner_sets_a_floor() -> None:
    found = play(rules=policy(profile="Standard", minimumProfile="Standard"))
    found.scene.job = a_job(nodes=4, preflight={"profile": "Disabled"})
    for checker in found.checkers.values():
        checker.passes["old"] = PassReport("Quick", 10.0, "old", gpus=8)
    found.until_commit()
    assert all(found.checkers[f"n{i}"].runs for i in range(4))


def test_who_has_trained_in_his_pod_is_not_tested_again() -> None:
    found = play()
    record = found.scene.record
    assert record is not None
    members = [m.model_copy(update={"pod_uid": found.scene.uid(m.index)}) for m in record.members]
    found.scene.record = record.model_copy(update={"members": members})
    assert spec_of(found.until_commit(3)).start is not None


def test_nobody_is_tested_while_his_ranks_may_run() -> None:
    found = play()
    found.scene.launcher(1, idle(0, 1).__class__(heard_age_seconds=0.5, attempt=1, state="Reclaiming"))
    for _ in range(5):
        found.decide()
        found.answer()
    assert not found.checkers["n1"].runs
    assert told(found.plans[-1])[1] == "burn-in: waiting for worker 1 on n1 to end its old ranks"


@pytest.mark.parametrize(
    ("state", "problem", "words", "seconds"),
    [
        (None, "", "no checker on n1 reports: check that a pod of DaemonSet muster-check runs there", 60.0),
        (STARTING, "", "the checker on n1 is still starting", 300.0),
        (UNFIT, "torch cannot be imported", "the checker on n1 cannot test: torch cannot be imported", 0.0),
    ],
)
def test_a_node_without_a_usable_checker_is_waited_for_and_then_left_untested(
    state: str | None, problem: str, words: str, seconds: float
) -> None:
    found = play()
    found.scene.seconds = 45.0
    if state is None:
        del found.checkers["n1"]
    else:
        found.checkers["n1"] = Checker("n1", state=state, problem=problem)
    if seconds:
        plan = found.decide()
        assert told(plan) == (CHECKERS_MISSING, words)
        found.answer()
    found.pass_time(seconds + 60)
    plan = found.until_commit()
    spec = spec_of(plan)
    assert spec.start is not None
    assert spec.burn_in is not None
    assert spec.burn_in.untested == ["n1"]
    assert words in spec.burn_in.message
    assert [event.reason for event in plan.announcements] == ["Started", INCONCLUSIVE]
    assert not any(1 in ends(run) for checker in found.checkers.values() for run in checker.runs)


def test_a_checker_that_falls_silent_late_is_waited_for_like_any_other() -> None:
    found = play()
    found.scene.seconds = 1000.0
    found.checkers["n1"].silent_seconds = 30.0
    assert told(found.decide())[0] == CHECKERS_MISSING
    found.checkers["n1"].silent_seconds = 61.0
    found.answer()
    assert told(found.decide())[0] == BURNING_IN


def test_nodes_with_long_names_are_tested_in_pairs() -> None:
    scene = Scene(a_job(nodes=2)).gang(go=False)
    names = [f"{'x' * 240}-{i}" for i in range(2)]
    members = [m.model_copy(update={("node"): name}) for m, name in zip(scene.record.members, names, strict=True)]  # type: ignore[union-attr]
    scene.record = scene.record.model_copy(update={"members": members})  # type: ignore[union-attr]
    for name in names:
        scene.node(name)
    scene.fleet_changes["policy"] = policy()
    scene.pods()
    for index in range(2):
        scene.launcher(index, idle(1, index))
    found = Play.of(scene)
    assert spec_of(found.until_commit()).start is not None
    runs = {run for checker in found.checkers.values() for run in checker.runs}
    assert any(ends(run) for run in runs)
    assert max(map(len, runs)) <= 128


def test_a_job_without_gpus_asks_for_none() -> None:
    found = play()
    found.scene.job = a_job(nodes=4, gpusPerNode=0)
    orders = [order for checks in (found.decide().checks or {}).values() for order in checks.orders]
    assert {order.gpus for order in orders} == {0}


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_job_without_gpus_has_no_node_tested_that_has_some(nodes: int) -> None:
    found = play(nodes=nodes)
    found.scene.job = a_job(nodes=nodes, gpusPerNode=0)
    for name in ("n0", "n1"):
        found.checkers[name].gpus = 8
    plan = found.until_commit()
    spec = spec_of(plan)
    assert spec.start is not None
    assert spec.burn_in is None
    assert [event.reason for event in plan.announcements] == ["Started"]
    assert [bool(found.checkers[name].runs) for name in ("n0", "n1", "n2", "n3")] == [False, False, *[nodes > 2] * 2]


def test_where_results_are_wrong_such_nodes_are_told_of() -> None:
    found = play(nodes=2)
    found.scene.job = a_job(nodes=2, gpusPerNode=0)
    found.checkers["n1"].gpus = 8
    spec = spec_of(doubted(found).until_commit())
    assert spec.burn_in is not None
    assert spec.burn_in.untested == ["n1"]
    assert spec.corruption is not None
    assert spec.corruption.examination is Examination.INCONCLUSIVE


def test_whose_sums_with_others_are_wrong_is_the_culprit_of_wrong_results() -> None:
    plan = doubted(play(4, n1={"wrong_pairs": True})).until_commit()
    spec = spec_of(plan)
    assert [member.node for member in spec.members] == ["n0", "n4", "n2", "n3"]
    assert "failed the burn-in: n1: gave wrong sums " in plan.announcements[0].note
    assert spec.corruption is not None
    assert (spec.corruption.culprits, spec.corruption.examination) == (["n1"], Examination.CULPRIT_FOUND)


def test_wrong_sums_of_a_pair_leave_the_examination_inconclusive() -> None:
    """Nobody knows which of the two nodes made them wrong."""
    spec = spec_of(doubted(play(2, n1={"wrong_pairs": True})).until_commit())
    assert spec.start is not None
    assert spec.corruption is not None
    assert spec.corruption.examination is Examination.INCONCLUSIVE


@pytest.mark.parametrize(("gpus", "again"), [(0, True), (4, True), (8, False)])
def test_a_pass_counts_for_jobs_that_ask_for_no_more_gpus_than_it_was_tested_with(gpus: int, again: bool) -> None:
    found = play(nodes=2)
    for checker in found.checkers.values():
        checker.passes["old"] = PassReport("Standard", 60.0, "old", gpus=gpus)
    assert spec_of(found.until_commit()).start is not None
    assert bool(found.checkers["n0"].runs) is again
    assert found.checkers["n0"].passes.get("uid-of-job.q/1", PassReport("", 0.0, gpus=8)).gpus == 8


@pytest.mark.parametrize("nodes", [2, 4])
def test_pairs_of_one_rack_have_to_run_over_what_is_expected_too(nodes: int) -> None:
    found = play(nodes, rules=policy(transport="IB"))
    for name in found.scene.nodes:
        found.scene.node(name, labels={"topology.muster.dev/block": "b1", "topology.muster.dev/rack": "r1"})
    plan = found.until_commit()
    spec = spec_of(plan)
    assert spec.burn_in is not None
    assert len(spec.burn_in.untested) == nodes
    assert "the pairs run over TCP, where IB is expected" in plan.announcements[-1].note
    assert not any(checker.passes for checker in found.checkers.values())


@pytest.mark.parametrize("racks", [("r1", "r1", "r1"), ("r1", "r1", "r2"), ("r1", "r2", "r2")])
def test_of_three_the_bad_one_is_found_wherever_they_stand(racks: tuple[str, ...]) -> None:
    found = play(3, n1={"bad_pairs": True})
    for name, rack in zip(found.scene.nodes, racks, strict=False):
        found.scene.node(name, labels={"topology.muster.dev/block": "b1", "topology.muster.dev/rack": rack})
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [failure.node for failure in spec.burn_in.failures] == ["n1"]


def test_a_bad_link_within_a_rack_of_two_blames_neither() -> None:
    found = play(3)
    for name, rack in zip(found.scene.nodes, ("r1", "r1", "r2"), strict=False):
        found.scene.node(name, labels={"topology.muster.dev/block": "b1", "topology.muster.dev/rack": rack})
    found.bad_links = {frozenset(("n0", "n1"))}
    assert spec_of(found.until_commit()).start is not None


HISTORY = ProbeThreshold("pair", "", "TCP", "", "", 4.0, 0.85, 0.0, 0.01, "GB/s", "history")
PUBLISHED = replace(HISTORY, transport="RoCE", middle=None, floor=250.0, source="published")


@pytest.mark.parametrize(
    ("thresholds", "proven"),
    [
        pytest.param((PUBLISHED,), True, id="published for another transport"),
        pytest.param((HISTORY,), False, id="all are slow for what history says"),
        pytest.param((HISTORY, PUBLISHED), False, id="and what is published beside it changes nothing"),
        pytest.param((replace(PUBLISHED, transport="TCP"),), False, id="published for this one"),
        pytest.param((replace(HISTORY, transport="IB"),), False, id="all have fallen back to a slower one"),
        pytest.param((HISTORY, replace(HISTORY, transport="IB", middle=1.0)), False, id="each transport has its own"),
    ],
)
def test_pairs_are_measured_by_what_they_run_over(thresholds: tuple[ProbeThreshold, ...], proven: bool) -> None:
    found = play(8, fleet=10)
    found.scene.but(thresholds=thresholds)
    spec = spec_of(found.until_commit())
    assert [bool(found.checkers[f"n{index}"].passes) for index in range(8)] == [proven] * 8
    assert len(spec.burn_in.untested if spec.burn_in else ()) == (0 if proven else 8)


def test_where_a_gang_waits_what_could_not_be_tested_is_tried_again() -> None:
    found = play(rules=policy(onInconclusive="Wait"), n1={"environment": "GPU 0 is in use: process 7"})
    for _ in range(10):
        found.decide()
        found.answer()
    found.checkers["n1"].environment = ""
    found.pass_time(AGAIN_SECONDS + 1)
    assert spec_of(found.until_commit()).start is not None


@pytest.mark.parametrize("later", [False, True], ids=["one leader", "a new leader meanwhile"])
def test_pairs_without_a_result_are_tried_again_while_the_gang_waits(later: bool) -> None:
    """They are tried until they have a result."""
    found = play(3, rules=policy(onInconclusive="Wait"))
    found.broken_ends = {"n2"}  # its port is taken, or a network policy is in the way
    assert wait_in_vain(found, 60)[0] == INCONCLUSIVE
    found.broken_ends = set()
    if later:
        for checker in found.checkers.values():
            checker.given = {}
    plan = found.until_commit()
    assert spec_of(plan).start is not None
    assert all(found.checkers[name].passes for name in ("n0", "n1", "n2"))
    # Whoever was well by himself is not tested by himself again.
    assert [run for run in found.checkers["n2"].runs if run.endswith("/node")] == ["uid-of-job.q/1/node"]


def test_a_transport_that_is_put_right_is_seen_in_the_next_turn() -> None:
    found = play(4, rules=policy(onInconclusive="Wait", transport="IB"))
    reason, message = wait_in_vain(found, 60)
    assert (reason, "run over TCP, where IB is expected" in message) == (INCONCLUSIVE, True)
    first = {run for checker in found.checkers.values() for run in checker.runs}
    wait_in_vain(found, 60)
    assert len({run for checker in found.checkers.values() for run in checker.runs} - first) > 4
    found.transport = "IB"
    assert spec_of(found.until_commit()).start is not None


def test_pairs_are_not_tried_again_for_who_cannot_be_tested_at_all() -> None:
    found = play(3, rules=policy(onInconclusive="Wait"), n1={"environment": "GPU 0 is in use: process 7"})
    wait_in_vain(found, 40)
    pairs = {run for checker in found.checkers.values() for run in checker.runs if ends(run)}
    wait_in_vain(found, 60)
    assert {run for checker in found.checkers.values() for run in checker.runs if ends(run)} == pairs


def test_a_probe_without_result_on_a_whole_small_gang_blames_no_node() -> None:
    """The probe is tried again."""
    everybody = {name: {"starved": True} for name in ("n0", "n1", "n2")}
    found = play(3, rules=policy(onInconclusive="Wait"), **everybody)
    for _ in range(10):
        plan = found.decide()
        assert not plan.actions
        found.answer()
    reason, message = told(plan)
    assert reason == INCONCLUSIVE
    assert "memory-pattern fails on 3 of 3 nodes alike: not so many are bad" in message
    for checker in found.checkers.values():
        checker.starved = False
    # They were not given it at the same moment, and one of them misses the word that it is forgotten.
    found.checkers["n0"].given = dict.fromkeys(found.checkers["n0"].given, 5.0)
    found.pass_time(AGAIN_SECONDS - 3)
    deaf = found.checkers["n2"].answers
    found.decide()
    found.checkers["n2"].answers = deaf
    found.checkers["n2"].given = dict.fromkeys(deaf, AGAIN_SECONDS)
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.attempt == 1


def test_a_probe_too_slow_on_a_whole_small_gang_is_tried_again() -> None:
    """The policy waits where tests are inconclusive."""
    everybody = {name: {"tflops": 300.0} for name in ("n0", "n1", "n2")}
    found = play(3, rules=policy(onInconclusive="Wait"), **everybody)
    found.scene.but(thresholds=(replace(HISTORY, probe="gemm-bf16", transport="", middle=600.0, floor=500.0),))
    reason, message = wait_in_vain(found, 10)
    assert (reason, "gemm-bf16 fails on 3 of 3 nodes alike" in message) == (INCONCLUSIVE, True)
    for checker in found.checkers.values():
        checker.tflops = 600.0  # their power limit is lifted
    found.pass_time(AGAIN_SECONDS + 1)
    assert spec_of(found.until_commit()).start is not None


def test_the_owner_may_have_gangs_wait_where_nothing_can_be_said() -> None:
    found = play(rules=policy(onInconclusive="Wait"), n1={"environment": "GPU 0 is in use: process 7"})
    for _ in range(40):
        plan = found.decide()
        assert not plan.actions
        found.answer()
    reason, message = told(plan)
    assert reason == INCONCLUSIVE
    assert "n1: GPU 0 is in use: process 7" in message


def test_what_started_untested_is_not_waited_for_again() -> None:
    found = play()
    del found.checkers["n1"]
    record = found.scene.record
    assert record is not None
    known = BurnIn(profile="Quick", time=at(0), untested=["n1"], message="no checker")
    members = [member.model_copy(update={"pod_uid": f"pod-{member.index}-1"}) for member in record.members]
    found.scene.record = record.model_copy(update={"burn_in": known, "members": members})
    plan = found.until_commit()
    assert spec_of(plan).start is not None


def test_the_successor_of_a_worker_that_started_untested_is_tested() -> None:
    found = play()
    record = found.scene.record
    assert record is not None
    known = BurnIn(profile="Quick", time=at(0), untested=["n1"], message="no checker")
    found.scene.record = record.model_copy(update={"burn_in": known})
    assert spec_of(found.until_commit()).start is not None
    assert "uid-of-job.q/1/node" in found.checkers["n1"].runs


def test_a_broken_environment_blames_nobody() -> None:
    found = play(nodes=8, fleet=8, **{f"n{i}": {"wrong": True} for i in range(5)})
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert not spec.burn_in.failures
    assert "bit-exact fails on 5 of 8 nodes alike" in spec.burn_in.message


def test_a_bad_link_is_told_and_blames_nobody() -> None:
    found = play(nodes=8, fleet=8)
    found.bad_links.add(frozenset(("n0", "n1")))
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert not (spec.burn_in and spec.burn_in.failures)


@pytest.mark.parametrize("nodes", [3, 4, 8])
def test_two_that_miss_with_each_other_only_and_are_alone_in_their_rack_are_named(nodes: int) -> None:
    found = play(nodes=nodes, fleet=nodes)
    found.bad_links.add(frozenset(("n0", "n1")))
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], ["n0", "n1"])
    assert spec.burn_in.message.count("the link between n0 and n1 is slow: 0.1 GB/s") == 1
    assert "both pass with others, and no other node in their rack can show which end it is" in spec.burn_in.message


def test_a_bad_node_beside_its_only_mate_is_not_taken_for_a_link() -> None:
    found = play(nodes=4, fleet=8, n1={"bad_pairs": True})
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [failure.node for failure in spec.burn_in.failures] == ["n1"]
    assert not any("the link between" in event.note for plan in found.plans for event in plan.announcements)


def test_a_node_whose_checker_never_answers_while_others_do_is_replaced() -> None:
    found = play(n3={"hangs": True})
    began = found.scene.seconds
    spec = spec_of(found.until_commit(400))
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [("n3", "profile")]
    assert "n0, n1 were in time" in spec.burn_in.failures[0].message
    limit = PROFILES["Quick"].limit_seconds + ANSWER_SECONDS
    assert found.scene.seconds - began <= 2 * (limit + 10.0)


@pytest.mark.parametrize("policy_says", ["Start", "Wait"])
@pytest.mark.parametrize("nodes", [2, 3, 4, 8])
def test_a_node_that_is_late_twice_beside_partners_that_are_in_time_is_replaced(nodes: int, policy_says: str) -> None:
    found = play(nodes=nodes, fleet=10, rules=policy(onInconclusive=policy_says), n1={"late_tests": 2})
    plan = found.until_commit()
    spec = spec_of(plan)
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [("n1", "profile")]
    assert "memory-pattern: the profile's 30 s are over" in spec.burn_in.failures[0].message
    assert found.checkers["n1"].runs == [NODE, AGAIN]
    beside = [node for node, checker in found.checkers.items() if node != "n1" and AGAIN in checker.runs]
    assert beside == ["n0", "n2"][: nodes - 1]
    assert all(found.checkers[f"n{index}"].passes for index in range(nodes) if index != 1)
    found.take(plan)
    plan = found.until_commit()
    assert spec_of(plan).start is not None
    assert spec_of(plan).members[0].incarnation == 1


def test_a_node_that_is_late_once_is_not_blamed() -> None:
    found = play(n1={"late_tests": 1})
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is None or (spec.burn_in.failures, spec.burn_in.untested) == ([], [])


def test_a_late_replacement_is_tested_again_beside_those_that_have_passed() -> None:
    found = play(n2={"wrong": True}, n4={"late_tests": 2})
    found.take(found.until_commit())
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [
        ("n2", "bit-exact"),
        ("n4", "profile"),
    ]
    again = "uid-of-job.q/2/node/again"
    assert [node for node, checker in found.checkers.items() if again in checker.runs] == ["n0", "n1", "n4"]
    assert all("uid-of-job.q/2/node" not in found.checkers[node].runs for node in ("n0", "n1", "n3"))


@pytest.mark.parametrize(
    "late",
    [
        pytest.param({"n0": 9, "n1": 9, "n2": 9}, id="all"),
        pytest.param({"n0": 9}, id="the only one"),
        pytest.param({"n0": 9, "n1": 9, "n2": 1}, id="all, one of them only at first"),
    ],
)
def test_where_no_partner_was_in_time_either_nobody_is_blamed(late: dict[str, int]) -> None:
    found = play(nodes=len(late), **{node: {"late_tests": times} for node, times in late.items()})
    # The partner is in time for its own test, and not when the others repeat theirs.
    if late.get("n2") == 1:
        found = play(nodes=3, n0={"late_tests": 9}, n1={"late_tests": 9}, n2={"late_again": True})
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert not spec.burn_in.failures
    assert spec.burn_in.untested == [node for node in late if late[node] == 9]
    assert "no other node that could be compared with it was in time" in spec.burn_in.message


def test_storage_that_is_slow_for_many_makes_none_of_them_late() -> None:
    found = play(
        nodes=4, fleet=8, n0={"storage": "late"}, n1={"storage": "late"}, n2={"storage": "fine"}, n3={"storage": "fine"}
    )
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], ["n0", "n1"])


def test_an_answer_that_never_comes_to_a_conclusion_ends_with_another_node() -> None:
    ends_with_another_node(pace=60.0)


def test_where_no_other_nodes_help_all_are_given_back_and_the_job_says_why() -> None:
    all_are_given_back("no other node", pace=60.0)


def test_a_new_leader_hears_the_checkers_first_and_continues_their_tests() -> None:
    """It gives no orders before that."""
    found = play(nodes=6, fleet=8)
    for _ in range(4):
        found.decide()
        found.answer()
    assert any(len(checker.runs) > 1 for checker in found.checkers.values())
    away, ran = found.checkers.pop("n5"), {n: list(c.runs) for n, c in found.checkers.items()}
    for checker in [*found.checkers.values(), away]:
        checker.given = {}
    found.scene.but(leader_age_seconds=1.0)
    kept = found.decide().checks
    assert kept is not None
    assert {one.known for one in kept.values()} == {False}
    found.checkers["n5"] = away
    assert spec_of(found.until_commit()).start is not None
    for node, checker in found.checkers.items():
        assert len(set(checker.runs)) == len(checker.runs), f"{node} ran an order twice"
        assert checker.runs[: len(ran.get(node, []))] == ran.get(node, [])


def test_a_new_leader_hears_the_partners_too_before_he_says_anything() -> None:
    found = play()
    found.checkers["n3"].passes["old"] = PassReport("Quick", 60.0, "another/1", gpus=8)
    until_it_begins(found)
    away = found.checkers.pop("n3")
    for checker in [*found.checkers.values(), away]:
        checker.given = {}
    found.scene.but(leader_age_seconds=1.0)
    kept = found.decide().checks
    assert kept is not None
    assert {node: one.known for node, one in kept.items()} == dict.fromkeys(["n0", "n1", "n2", "n3"], False)
    found.checkers["n3"] = away
    plan = found.until_commit()
    assert plan.announcements[0].note.endswith("; all-reduce over 4 nodes: 0.8 GB/s (TCP)")
    assert all(len(set(checker.runs)) == len(checker.runs) for checker in found.checkers.values())


def test_a_node_that_learns_first_that_it_has_passed_changes_nothing_for_the_others() -> None:
    found = play(nodes=8, fleet=8)
    for checker in found.checkers.values():
        checker.slow_to_learn = int(checker.node[1:])
    assert spec_of(found.until_commit()).start is not None
    for checker in found.checkers.values():
        assert len(checker.runs) == len(set(checker.runs))
    rounds = {run.split("/")[2] for checker in found.checkers.values() for run in checker.runs}
    assert rounds <= {"node", "1", "2", "3", "gang"}
    known = sum(len(checker.runs) for checker in found.checkers.values())
    at_once = play(nodes=8, fleet=8)
    at_once.until_commit()
    assert known == sum(len(checker.runs) for checker in at_once.checkers.values())


@settings(max_examples=6)
@given(successors=successions)
def test_whatever_leaders_come_the_culprits_leave_and_nobody_else(successors: Succession) -> None:
    the_culprits_leave_and_nobody_else(successors)


def test_partners_that_pass_with_nobody_condemn_nobody() -> None:
    """Two that have passed before are bad now; the others are new, and well."""
    found = play(nodes=5, fleet=8, n1={"bad_pairs": True}, n2={"bad_pairs": True})
    for node in ("n1", "n2"):
        found.checkers[node].passes["old"] = PassReport("Quick", 60.0, "another/1", gpus=8)
    spec = spec_of(found.until_commit())
    blamed = {failure.node for failure in spec.burn_in.failures} if spec.burn_in else set()
    assert blamed <= {"n1", "n2"}


def test_who_could_not_test_is_not_blamed_for_a_partner_that_waited_in_vain() -> None:
    found = play(nodes=5, fleet=8)
    found.broken_ends.add("n1")
    spec = spec_of(found.until_commit(400))
    assert spec.start is not None
    assert not (spec.burn_in and spec.burn_in.failures)


def test_a_pass_of_a_node_alone_does_not_spare_it_the_pairs() -> None:
    found = play(n2={"bad_pairs": True})
    for checker in found.checkers.values():
        checker.passes["idle"] = PassReport("Quick", 10.0, "new/Quick/boot/this/", gpus=8)
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert {failure.node for failure in spec.burn_in.failures} == {"n2"}


def test_answers_of_another_profile_are_none() -> None:
    found = play()
    for _ in range(2):
        found.decide()
        found.answer()
    found.scene.fleet_changes["policy"] = policy(profile="Deep")
    assert spec_of(found.until_commit()).start is not None
    assert {run.split("/")[0] for run in found.checkers["n0"].runs} == {"uid-of-job.q", "uid-of-job.d"}
    assert {each.profile for each in found.checkers["n0"].passes.values()} == {"Deep"}


def test_what_fails_on_one_replacement_after_the_other_is_not_the_nodes() -> None:
    found = play(nodes=2, fleet=9, **{f"n{i}": {"wrong": True} for i in range(9)})
    blamed: set[str] = set()
    for _ in range(6):
        plan = found.until_commit()
        spec = spec_of(plan)
        if spec.start is not None:
            break
        assert spec.burn_in is not None
        blamed |= {failure.node for failure in spec.burn_in.failures}
        found.take(plan)
    assert spec_of(plan).start is not None
    assert len(blamed) <= 3


def test_nobody_can_have_others_tested_without_end() -> None:
    found = play()
    for number in range(1, 300):
        told = f"uid-of-job.q/1/{number}/0+1"
        found.checkers["n3"].answers[told] = CheckAnswer(told, "Pair", "Result", number, "n1", 1.0)
    assert spec_of(found.until_commit()).start is not None
    assert len(found.checkers["n0"].runs) < 20


def test_in_plain_mode_nobody_is_tested_where_old_ranks_may_run() -> None:
    scene = Scene(a_job(nodes=2, launch={"mode": "Plain"}, checkpoint={})).fleet(3).gang(2, go=False)
    scene.fleet_changes["policy"] = policy()
    scene.record = scene.record.model_copy(update={("unfenced_workers"): [an_unfenced_worker("old", 60.0)]})  # type: ignore[union-attr]
    found = Play.of(scene)
    orders = {node: checks.orders for node, checks in (found.decide().checks or {}).items()}
    assert not orders.get("n0")


GANG_RUN = "uid-of-job.q/1/gang"


def gang_runs(found: Play) -> dict[str, int]:
    """How often each node has taken part in an all-reduce of the whole gang."""
    runs = {node: sum(run.endswith("/gang") for run in checker.runs) for node, checker in found.checkers.items()}
    return {node: count for node, count in runs.items() if count}


@pytest.mark.parametrize("how", ["ends", "has ended", "is deleted"])
def test_a_job_that_is_over_gives_no_orders_whatever_its_record_says(how: str) -> None:
    found = play()
    assert found.decide().checks
    job = found.scene.job
    if how == "is deleted":
        metadata = job.metadata.model_copy(update={"deletion_timestamp": at(100)})
        found.scene.job = job.model_copy(update={"metadata": metadata})
    elif how == "has ended":
        over = CompletionRecord(result=CompletionResult.FAILED, reason="X", attempt=1, time=at(100))
        found.scene.job = job.model_copy(update={"status": job.status.model_copy(update={"completion": over})})
    else:
        over = CompletionRecord(result=CompletionResult.FAILED, reason="X", attempt=1, time=at(100))
        ends = Plan((), StatusReport(State.COMPLETED, completion=over))
        assert checks_of(found.world(), ends) is None
        return
    assert not found.decide().checks


@pytest.mark.parametrize(("attempt", "has_tasks"), [(1, True), (2, False)])
def test_checkers_lose_their_tasks_in_the_step_that_commits_another_attempt(attempt: int, has_tasks: bool) -> None:
    found = play()
    assert found.decide().checks
    assert found.scene.record is not None
    commits = Plan((CommitGang(found.scene.record.model_copy(update={"attempt": attempt}), "7"),))
    assert (checks_of(found.world(), commits) is not None) is has_tasks


def until_answered(found: Play, node: str) -> None:
    for _ in range(20):
        found.decide()
        if found.checkers[node].answers:
            break
        found.answer()


@pytest.mark.parametrize("state", [UNFIT, STARTING])
def test_what_a_checker_has_answered_stands_whatever_becomes_of_it(state: str) -> None:
    found = play(n2={"wrong": True})
    until_answered(found, "n2")
    found.checkers["n2"].state = state
    plan = found.until_commit()
    assert spec_of(plan).reason == "BurnInFailed"
    assert spec_of(plan).burn_in is not None
    assert [failure.node for failure in spec_of(plan).burn_in.failures] == ["n2"]  # type: ignore[union-attr]


@pytest.mark.parametrize("wrong", ["by itself", "beside the others"])
@pytest.mark.parametrize("returns", [False, True], ids=["silent for good", "comes back"])
def test_a_wrong_result_stands_though_the_checker_falls_silent(wrong: str, returns: bool) -> None:
    found = play(4, n2={"wrong": wrong == "by itself"})
    for node, checker in found.checkers.items():
        checker.fingerprint = "kind:other" if node == "n2" else "kind:bits"
    found.decide()
    found.answer()
    bad = found.checkers["n2"]
    bad.silent_seconds = 30.0
    assert told(found.decide())[0] == CHECKERS_MISSING
    assert [order.id for order in bad.orders] == list(bad.answers), "what is not listed would be forgotten"
    bad.silent_seconds = 0.5 if returns else 70.0
    spec = spec_of(found.until_commit())
    assert spec.reason == "BurnInFailed"
    assert spec.burn_in is not None
    assert [failure.node for failure in spec.burn_in.failures] == ["n2"]
    assert len(bad.runs) == 1


def test_a_zygote_that_dies_in_each_test_is_an_answer_and_no_endless_wait() -> None:
    found = play(n1={"environment": "the zygote has ended", "state": READY})
    until_answered(found, "n1")
    found.checkers["n1"].state = STARTING
    plan = found.until_commit()
    assert spec_of(plan).start is not None
    assert spec_of(plan).burn_in is not None
    assert spec_of(plan).burn_in.untested == ["n1"]  # type: ignore[union-attr]
    assert found.checkers["n1"].runs.count("uid-of-job.q/1/node") == 1


def until_it_begins(found: Play) -> None:
    """Up to the moment at which all have the order for the whole gang."""
    for _ in range(100):
        found.decide()
        if all(found.checkers[(f"n{i}")].next and found.checkers[f"n{i}"].next.id == GANG_RUN for i in range(4)):  # type: ignore[union-attr]
            return
        found.answer()
    raise AssertionError("no all-reduce of the whole gang")


def test_at_the_end_the_whole_gang_is_measured_once() -> None:
    found = play()
    plan = found.until_commit()
    assert gang_runs(found) == {"n0": 1, "n1": 1, "n2": 1, "n3": 1}
    assert all(found.checkers[f"n{i}"].runs[-1] == GANG_RUN for i in range(4))
    (event,) = plan.announcements
    assert event.note == "attempt 1 starts without a checkpoint from Muster; all-reduce over 4 nodes: 0.8 GB/s (TCP)"
    assert not event.warning
    burn_in = spec_of(plan).burn_in
    assert burn_in is not None
    assert burn_in.all_reduce is not None
    assert burn_in.all_reduce.message == "all-reduce over 4 nodes: 0.8 GB/s (TCP)"
    assert "burn-in Quick: all-reduce of the whole gang" in {told(each)[1] for each in found.plans if each.status}


def test_the_first_member_listens_and_all_are_told_the_same() -> None:
    found = play()
    until_it_begins(found)
    orders = [found.checkers[f"n{i}"].next for i in range(4)]
    assert [order.node_rank for order in orders if order] == [0, 1, 2, 3]
    assert {(order.kind, order.nodes, order.master_address) for order in orders if order} == {("Gang", 4, "10.1.0.0")}
    assert len({order.master_port for order in orders if order}) == 1


def test_two_are_a_pair_and_no_more() -> None:
    found = play(nodes=2)
    assert spec_of(found.until_commit()).burn_in is None
    assert not gang_runs(found)


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        (0.0, "the all-reduce of the whole gang gave no result: n1: all-reduce: it hung"),
        (0.1, "all-reduce over 4 nodes: 0.1 GB/s (TCP), where pairs of them reach 1 GB/s"),
    ],
)
def test_a_gang_that_does_badly_as_a_whole_starts_and_blames_nobody(reached: float, words: str) -> None:
    found = play()
    found.whole_gbps = reached
    plan = found.until_commit()
    spec = spec_of(plan)
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], [])
    assert [(event.reason, event.warning) for event in plan.announcements] == [
        ("Started", False),
        ("BurnInWarning", True),
    ]
    assert plan.announcements[1].note == words
    assert spec.burn_in.all_reduce is not None
    assert spec.burn_in.all_reduce.message == words
    assert all(found.checkers[f"n{i}"].passes for i in range(4))


def test_a_node_silent_in_the_gang_test_is_awaited_but_not_blamed() -> None:
    """The wait ends with the deadline of the test."""
    found = play()
    until_it_begins(found)
    found.checkers["n2"].hangs = True
    began = found.scene.seconds
    plan = found.until_commit()
    spec = spec_of(plan)
    limit = PROFILES["Quick"].deadline_seconds["cpu"] + ANSWER_SECONDS
    assert found.scene.seconds - began <= limit + 10.0  # and what steps of 5 s add
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], [])
    assert plan.announcements[1].note.endswith("gave no result: no node answered in time")


def test_while_one_is_not_heard_the_others_go_on_with_what_has_begun() -> None:
    found = play()
    until_it_begins(found)
    found.checkers["n2"].silent_seconds = 30.0
    plan = found.decide()
    assert told(plan)[0] == CHECKERS_MISSING
    assert plan.checks is not None
    assert all(GANG_RUN in [order.id for order in plan.checks[node].orders] for node in ("n0", "n1", "n3"))


def test_a_new_leader_takes_the_answers_of_the_whole_gang_as_they_stand() -> None:
    found = play()
    until_it_begins(found)
    found.answer()
    for node in ("n1", "n3"):  # these were not heard yet
        del found.checkers[node].answers[GANG_RUN]
    for checker in found.checkers.values():
        checker.given = {}
    found.scene.but(leader_age_seconds=20.0)
    plan = found.decide()
    assert told(plan)[1] == "burn-in Quick: all-reduce of the whole gang"
    assert plan.checks is not None
    assert all(GANG_RUN in [order.id for order in plan.checks[f"n{i}"].orders] for i in range(4))
    for node in ("n1", "n3"):
        found.checkers[node].answers[GANG_RUN] = CheckAnswer(GANG_RUN, "Gang", "Result", gbps=0.7, transport="TCP")
    plan = found.until_commit()
    assert plan.announcements[0].note.endswith("; all-reduce over 4 nodes: 0.7 GB/s (TCP)")
    assert gang_runs(found) == {"n0": 1, "n1": 1, "n2": 1, "n3": 1}


def test_with_a_replacement_the_gang_is_measured_anew_beside_those_who_wait() -> None:
    found = play(nodes=4, n2={"wrong": True})
    found.take(found.until_commit())
    assert not gang_runs(found), "somebody has failed"
    plan = found.until_commit()
    assert gang_runs(found) == {"n0": 1, "n1": 1, "n3": 1, "n4": 1}
    burn_in = spec_of(plan).burn_in
    assert burn_in is not None
    assert burn_in.all_reduce is not None
    assert [failure.node for failure in burn_in.failures] == ["n2"]


def test_a_restart_in_place_measures_nothing_and_keeps_the_figure() -> None:
    found = play()
    spec = spec_of(found.until_commit())
    members = [m.model_copy(update={"pod_uid": found.scene.uid(m.index)}) for m in spec.members]
    found.scene.record = spec.model_copy(update={"members": members, "attempt": 2, "start": None})
    for index in range(4):
        found.scene.launcher(index, idle(2, index))
    for checker in found.checkers.values():
        checker.told(NodeChecks())
    plan = found.until_commit(3)
    after = spec_of(plan).burn_in
    assert after is not None
    assert spec.burn_in is not None
    assert after.all_reduce == spec.burn_in.all_reduce
    assert gang_runs(found) == {"n0": 1, "n1": 1, "n2": 1, "n3": 1}


def test_a_gang_of_which_somebody_is_not_free_or_was_left_untested_is_not_measured() -> None:
    found = play()
    del found.checkers["n1"]
    record = found.scene.record
    assert record is not None
    known = BurnIn(profile="Quick", time=at(0), untested=["n1"], message="no checker")
    found.scene.record = record.model_copy(update={"burn_in": known})
    assert spec_of(found.until_commit()).start is not None
    assert not gang_runs(found)
    found = play()
    record = found.scene.record
    assert record is not None
    busy = record.members[3].model_copy(update={"pod_uid": found.scene.uid(3)})
    found.scene.record = record.model_copy(update={"members": [*record.members[:3], busy]})
    found.scene.launcher(3, idle(0, 3).__class__(heard_age_seconds=0.5, attempt=1, state="Reclaiming"))
    for _ in range(60):
        found.decide()
        if not found.answer():
            found.pass_time(5.0)
    assert all(found.checkers[f"n{i}"].passes for i in range(3))
    assert not gang_runs(found)


def test_what_was_noticed_is_told_although_all_know_that_they_have_passed() -> None:
    found = play(nodes=4)
    found.bad_links.add(frozenset(("n0", "n2")))
    plan = found.until_commit()
    assert all(found.checkers[f"n{i}"].passes for i in range(4))
    assert [event.note for event in plan.announcements if event.reason == "BurnInWarning"] == [
        "the link between n0 and n2 is slow: 0.1 GB/s where 0.75 is the least; both pass with others"
    ]


def test_without_a_barrier_the_gang_is_measured_before_its_pods_are_made() -> None:
    scene = Scene(a_job(nodes=3, launch={"mode": "Plain"}, checkpoint={})).fleet(4).gang(go=False)
    scene.fleet_changes["policy"] = policy()
    found = Play.of(scene)
    for _ in range(60):
        plan = found.decide()
        if any(isinstance(action, CreatePod) for action in plan.actions):
            break
        found.answer()
    assert gang_runs(found) == {"n0": 1, "n1": 1, "n2": 1}
    found.scene.pods()
    plan = found.until_commit(5)
    if spec_of(plan).start is None:
        found.scene.record = spec_of(plan)
        plan = found.until_commit(5)
    assert plan.announcements[0].note == "attempt 1 runs; all-reduce over 3 nodes: 0.8 GB/s (TCP)"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"library": "torch-2.9/cuda-12.8/nccl-2.27.5"}, "has torch-2.9/cuda-12.8/nccl-2.27.5, those of most others"),
        ({"version": "2"}, "another version of the probes"),
        ({"gpus": 4}, "its checker sees 4 GPUs, those of most others 8"),
    ],
)
def test_who_cannot_meet_the_others_is_not_blamed_for_it(fault: dict[str, Any], words: str) -> None:
    """While checkers are updated, or where nodes have other numbers of GPUs, an all-reduce between them hangs."""
    found = play(nodes=8, fleet=10, n1=fault, n2=fault)
    for node, checker in found.checkers.items():
        checker.gpus = checker.gpus or 8
        checker.library = checker.library or "torch-2.8/cuda-12.8/nccl-2.27.3"
        found.bad_links |= {frozenset((node, odd)) for odd in ("n1", "n2") if node not in ("n1", "n2")}
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], ["n1", "n2"])
    assert words in spec.burn_in.message
    assert not any(ends(run) for node in ("n1", "n2") for run in found.checkers[node].runs)
    assert [run for run in found.checkers["n0"].runs if ends(run)]


def test_a_survivor_that_cannot_meet_the_others_is_no_partner() -> None:
    """The gang is not measured."""
    found = play(nodes=5, n2={"wrong": True})
    found.take(found.until_commit())
    found.checkers["n4"].library = "another"
    found.bad_links = {frozenset((node, "n4")) for node in found.checkers if node != "n4"}
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (len(spec.burn_in.failures), spec.burn_in.untested) == (1, [])
    assert not [run for run in found.checkers["n4"].runs if run.startswith("uid-of-job.q/2/") and ends(run)]
    assert not [run for run in found.checkers["n0"].runs if run == "uid-of-job.q/2/gang"]


def test_a_replacement_is_not_blamed_for_an_uplink_that_fails_for_all() -> None:
    """Its neighbours do not get through the uplink either."""
    found = play(nodes=8, fleet=12, n2={"wrong": True})
    for index in range(12):
        found.scene.nodes[f"n{index}"] = a_node(f"n{index}", rack=f"r{index % 2}")
    plan = found.until_commit()
    found.take(plan)
    new = next(member.node for member in spec_of(plan).members if member.incarnation > 1)
    across = {frozenset((a, b)) for a in found.checkers for b in found.checkers if int(a[1:]) % 2 != int(b[1:]) % 2}
    found.bad_links = across  # since the others have passed
    found.scene.but(thresholds=(ProbeThreshold("pair", "", "TCP", "", "", 1.0, 0.8, 0.0, 0.01, "GB/s", "history"),))
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert [failure.node for failure in spec.burn_in.failures] == ["n2"]
    assert new not in [failure.node for failure in spec.burn_in.failures]


GEMM = replace(HISTORY, probe="gemm-bf16", transport="", middle=600.0)
NODE, AGAIN = "uid-of-job.q/1/node", "uid-of-job.q/1/node/again"


@pytest.mark.parametrize("nodes", [1, 2, 8])
@pytest.mark.parametrize("fault", ["hung_tests", "slow_tests"])
def test_one_bad_moment_of_a_node_by_itself_does_not_blame_it(nodes: int, fault: str) -> None:
    found = play(nodes=nodes, fleet=12, n0={fault: 1})
    found.scene.but(thresholds=(GEMM,))
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is None or (spec.burn_in.failures, spec.burn_in.untested) == ([], [])
    assert found.checkers["n0"].runs[:2] == [NODE, AGAIN]
    # Those beside which it is tested again: two at most, and never of another gang.
    beside = [node for node, checker in found.checkers.items() if node != "n0" and AGAIN in checker.runs]
    assert beside == ["n1", "n2"][: nodes - 1]
    words = [told(each)[1] for each in found.plans if each.status is not None]
    more = f"; for comparison also {', '.join(beside)}" if beside else ""
    assert f"burn-in Quick: n0 was slow, late or hung, and is tested alone once more{more}" in words
    alone = "1 node is tested alone" if nodes == 1 else f"{nodes} nodes are tested, each alone"
    assert f"burn-in Quick: {alone}" in words


@pytest.mark.parametrize(
    ("fault", "probe"),
    [
        ({"hung_tests": 2}, "memory-pattern"),
        ({"slow_tests": 2}, "gemm-bf16"),
        ({"slow_tests": 1, "wrong": True}, "bit-exact"),
    ],
    ids=str,
)
def test_who_is_bad_twice_is_blamed_and_who_is_wrong_at_once(fault: dict[str, Any], probe: str) -> None:
    found = play(nodes=4, n2=fault)
    found.scene.but(thresholds=(GEMM,))
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert probe in [failure.probe for failure in spec.burn_in.failures]
    assert {failure.node for failure in spec.burn_in.failures} == {"n2"}
    assert found.checkers["n2"].runs.count(AGAIN) == (0 if fault.get("wrong") else 1)


def test_the_second_answer_counts() -> None:
    found = play(nodes=4, n2={"hung_tests": 1})
    found.decide()
    found.answer()
    found.checkers["n2"].environment = "GPU 0 is in use: process 7"
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], ["n2"])


def asked_once_more(**fault: Any) -> Play:
    """A gang in which n2 has just been told to test itself once more."""
    found = play(nodes=4, n2=fault)
    found.scene.but(thresholds=(GEMM,))
    found.decide()
    found.answer()
    found.decide()
    assert [order.id for order in found.checkers["n2"].orders] == [NODE, AGAIN]
    return found


def test_a_new_leader_with_another_history_goes_on_with_it() -> None:
    found = asked_once_more(slow_tests=2)
    found.scene.but(thresholds=())
    found.decide()
    assert [order.id for order in found.checkers["n2"].orders] == [NODE, AGAIN]
    found.answer()
    for checker in found.checkers.values():
        checker.given = {}
    found.decide()
    assert [order.id for order in found.checkers["n2"].orders][:2] == [NODE, AGAIN]


def test_who_never_answers_for_the_second_time_is_judged_by_the_first() -> None:
    found = asked_once_more(slow_tests=1)
    found.checkers["n2"].hangs = True
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [("n2", "gemm-bf16")]
    assert found.scene.seconds > PROFILES["Quick"].limit_seconds + ANSWER_SECONDS


def test_a_node_whose_pod_goes_meanwhile_is_not_condemned_for_the_first_time() -> None:
    found = asked_once_more(slow_tests=1)
    found.scene.pod_views.pop("train-2-1", None) or found.scene.pod_views.clear()
    for _ in range(4):
        assert not any(isinstance(action, CommitGang) for action in found.decide().actions)
        found.answer()
    assert AGAIN not in found.checkers["n2"].runs
    found.scene.pods()
    assert spec_of(found.until_commit()).start is not None


@pytest.mark.parametrize(("state", "waits"), [(STARTING, True), (UNFIT, False)])
def test_a_hung_node_may_try_again_and_an_unfit_one_fails_by_its_hang(state: str, *, waits: bool) -> None:
    """It may import torch anew before it tries again."""
    found = play(nodes=4, n2={"hung_tests": 1})
    found.decide()
    found.answer()
    found.checkers["n2"].state = state
    for _ in range(3):
        found.decide()
        found.answer()
        found.pass_time(1.0)
    found.checkers["n2"].state = READY if waits else UNFIT
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [failure.node for failure in spec.burn_in.failures] == ([] if waits else ["n2"])


@pytest.mark.parametrize("how", ["full", "hangs"])
@pytest.mark.parametrize(("nodes", "bad"), [(1, 1), (2, 1), (2, 2), (3, 3), (8, 3), (8, 8)])
def test_storage_that_is_away_blames_no_node(how: str, nodes: int, bad: int) -> None:
    """Many share it: it has failed them, or those that looked at it in a bad moment."""
    faults = {f"n{index}": {"storage": how if index < bad else "fine"} for index in range(12)}
    found = play(nodes=nodes, fleet=12, **faults)
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], [f"n{index}" for index in range(bad)])
    assert "storage" in spec.burn_in.message


@pytest.mark.parametrize("how", ["full", "hangs"])
def test_one_node_that_does_not_reach_the_storage_is_blamed_where_others_do(how: str) -> None:
    found = play(nodes=8, fleet=12, **{f"n{index}": {"storage": how if index == 3 else "fine"} for index in range(12)})
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [("n3", "storage")]


def test_a_replacement_is_not_blamed_for_storage_that_has_gone_away_since() -> None:
    found = play(nodes=4, n2={"wrong": True})
    found.take(found.until_commit())
    found.checkers["n4"].storage = "hangs"
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert ([failure.node for failure in spec.burn_in.failures], spec.burn_in.untested) == (["n2"], ["n4"])


@pytest.mark.parametrize(("fault", "probe"), [({"wrong": True}, "bit-exact"), ({"bad_pairs": True}, "pair")])
@pytest.mark.parametrize("many", [{"tflops": 100.0}, {"storage": "full"}], ids=str)
def test_what_many_have_in_common_hides_no_culprit(fault: dict[str, Any], probe: str, many: dict[str, Any]) -> None:
    found = play(nodes=12, fleet=16, n7=fault, **{f"n{index}": many for index in range(4)})
    found.scene.but(thresholds=(replace(HISTORY, probe="gemm-bf16", transport="", middle=600.0, floor=0.0),))
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [("n7", probe)]


@pytest.mark.parametrize(
    "many", [{"tflops": 100.0}, {"wrong": True}, {"storage": "full"}, {"storage": "hangs"}], ids=str
)
def test_who_fails_what_many_fail_is_paired_all_the_same(many: dict[str, Any]) -> None:
    faults: dict[str, dict[str, Any]] = {f"n{index}": dict(many) for index in range(4)}
    faults["n2"]["bad_pairs"] = True
    found = play(nodes=12, fleet=16, **faults)
    found.scene.but(thresholds=(GEMM,))
    spec = spec_of(found.until_commit(400))
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [("n2", "pair")]
    passed = {node for node, checker in found.checkers.items() if checker.passes}
    assert passed == {f"n{index}" for index in range(4, 12)}


def test_what_hung_on_many_is_not_paired_it_may_hang_again() -> None:
    found = play(nodes=12, fleet=16, **{f"n{index}": {"starved": True} for index in range(4)})
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert not any(ends(run) for index in range(4) for run in found.checkers[f"n{index}"].runs)


def test_pairs_that_have_passed_are_not_repeated_while_the_gang_waits() -> None:
    """The gang waits for a probe that many nodes fail."""
    rules = policy(onInconclusive="Wait")
    found = play(nodes=12, fleet=12, rules=rules, **{f"n{index}": {"tflops": 100.0} for index in range(4)})
    found.scene.but(thresholds=(GEMM,))
    reason, _ = wait_in_vain(found, 60)
    assert reason == INCONCLUSIVE
    runs = [run for checker in found.checkers.values() for run in checker.runs if ends(run)]
    assert found.checkers["n0"].runs.count(NODE) > 1
    assert any(ends(run) for run in found.checkers["n0"].runs)
    assert max(map(runs.count, runs)) == 2  # once at each end
    assert all(int(run.split("/")[2]) < 10 for run in runs), "another turn"
    for checker in found.checkers.values():
        checker.tflops = 600.0
    found.pass_time(AGAIN_SECONDS + 1)
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert spec.burn_in.untested == []


def test_a_culprit_that_shares_what_many_have_leaves_for_its_own() -> None:
    found = play(nodes=12, fleet=16, **{f"n{index}": {"storage": "full", "wrong": index == 2} for index in range(4)})
    spec = spec_of(found.until_commit())
    assert spec.burn_in is not None
    assert [(failure.node, failure.probe) for failure in spec.burn_in.failures] == [("n2", "bit-exact")]


@pytest.mark.parametrize(
    "others", [{"environment": "GPU 0 by pid 7"}, {"state": UNFIT, "problem": "no torch"}], ids=str
)
def test_slow_on_all_that_could_be_tested_blames_nobody(others: dict[str, Any]) -> None:
    """In a small gang nobody is left who could show that it is not what they have in common."""
    found = play(nodes=3, fleet=8, n0=others, **{f"n{index}": {"tflops": 100.0} for index in range(1, 8)})
    found.scene.but(thresholds=(replace(HISTORY, probe="gemm-bf16", transport="", middle=600.0, floor=0.0),))
    spec = spec_of(found.until_commit())
    assert spec.start is not None
    assert spec.burn_in is not None
    assert (spec.burn_in.failures, spec.burn_in.untested) == ([], ["n0", "n1", "n2"])
