"""The loop over nodes: what it asks of the API server, in which order, and how much it looks at."""

import asyncio
import copy
import itertools
import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.unit.controller.health_stage import (
    EVERYTHING,
    NOW,
    OTHER,
    Stage,
    clocked_stage,
    comes_and_goes_ten_times_an_hour,
    mark,
    running,
    stage_with_a_policy,
    what_another_system_says_is_few_writes,
)
from tests.unit.health.builders import budgets
from tests.unit.waiting import until

from localcluster.patience import PATIENCE_SECONDS
from muster.api.fleetpolicy import FleetPolicy
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import Evacuate, NodeHealthStatus
from muster.controller import nodeperform, nodeworlds, slices
from muster.controller import nodereconciler as module
from muster.controller.forgetting import Forgetting
from muster.controller.nodefigures import MAX_REASONS, publish_by_reason
from muster.controller.nodeperform import TAINT_KEY
from muster.controller.pace import MAX_WRITES_PER_HOUR
from muster.health import node_plan
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.pools import WITHOUT
from muster.health.verdict import Verdict
from muster.kube import decode
from muster.kube.decode import Undecodable
from muster.kube.errors import (
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    LeadershipLost,
    NotFound,
    ServerError,
)


@pytest.fixture
def stage() -> Stage:
    return stage_with_a_policy()


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that were judged."""
    names: list[str] = []
    assess = module.assess

    def counted(world: NodeWorld) -> Verdict:
        names.append(world.facts.node.name)
        return assess(world)

    monkeypatch.setattr(module, "assess", counted)
    return names


async def test_a_sick_node_costs_one_write_of_its_record_and_one_of_its_taint(stage: Stage) -> None:
    stage.add("a", "b")
    stage.say("a", 79)
    await stage.look()
    assert [call[:2] for call in stage.api.calls] == [("PATCH", "nodehealths"), ("PATCH", "nodes")]
    assert stage.api.objects["nodes", "a"]["spec"]["taints"] == [
        OTHER,
        {"key": TAINT_KEY, "value": "Xid79", "effect": "NoSchedule"},
    ]
    assert (stage.status("a")["state"], stage.status("a")["reason"]) == ("Unhealthy", "Xid79")
    assert stage.told.reasons == [("a", "NodeUnhealthy")]


@pytest.fixture
def clocked() -> Stage:
    return clocked_stage()


async def test_what_comes_and_goes_and_changes_nothing_is_written_ten_times_an_hour(clocked: Stage) -> None:
    """By the agent: tests/unit/nightly/controller/test_health.py."""
    await comes_and_goes_ten_times_an_hour(clocked, "another system")


async def test_what_a_node_is_used_for_never_waits_for_its_turn(clocked: Stage) -> None:
    stage = clocked
    stage.add("a")
    stage.say("a")
    for turn in range(60):
        stage.now += timedelta(seconds=30)
        mark(stage, "a", "WARN" if turn % 2 else "")
        await stage.look()
    stage.say("a", 79)
    await stage.look()
    assert (stage.status("a")["state"], stage.tainted()) == ("Unhealthy", {"a"})


async def test_what_had_to_wait_is_written_in_its_turn(clocked: Stage) -> None:
    stage = clocked
    stage.add("a")
    stage.say("a")
    for turn in range(61):
        mark(stage, "a", "" if turn % 2 else "WARN")
        await stage.look()
    before, writes = stage.status("a")["state"], stage.api.count("PATCH", "nodehealths")
    true = {"Healthy": "Suspect", "Suspect": "Healthy"}[before]
    mark(stage, "a", "WARN" if true == "Suspect" else "")
    await stage.look()
    assert (stage.status("a")["state"], stage.api.count("PATCH", "nodehealths")) == (before, writes)
    stage.now += timedelta(hours=1)
    stage.nodes.performer._due("a")
    await stage.look()
    assert (stage.status("a")["state"], stage.api.count("PATCH", "nodehealths")) == (true, writes + 1)


@pytest.mark.parametrize(
    ("held", "minutes"), [(False, 60), (True, 10)], ids=["while it holds none", "while the breaker holds nodes"]
)
async def test_what_another_system_says_and_takes_back_all_the_time_is_few_writes(
    stage: Stage, held: bool, minutes: int
) -> None:
    """An hour while the breaker holds nodes: tests/unit/nightly/controller/test_health.py."""
    await what_another_system_says_is_few_writes(stage, held=held, minutes=minutes)


async def test_writes_that_had_no_time_leave_their_turns_to_others(clocked: Stage) -> None:
    stage = clocked
    stage.add("a")
    for turn in range(3 * MAX_WRITES_PER_HOUR):
        stage.say("a", *([79] if turn % 2 else []), boot=f"boot-{turn}")
        await stage.look()
    for codes in ((), (13,)):
        stage.say("a", *codes, boot="boot-last")
        await stage.look()
    assert "Xid13" in {each["reason"] for each in stage.status("a")["findings"]}


async def test_a_clock_that_has_jumped_ends_no_quarantine_before_it_has_held_for_an_hour(stage: Stage) -> None:
    stage.add("a")
    for hour in range(3):
        stage.say("a", 79, boot=f"boot-{hour}")
        await stage.look()
        stage.say("a", boot=f"boot-{hour}-again")
        await stage.look()
        stage.now += timedelta(hours=1)
    assert stage.status("a")["reason"] == "RepeatOffender"
    right = stage.now
    stage.now += timedelta(days=30)
    for later_seconds in (0, nodeworlds.SURE_SECONDS - 60):
        stage.later_seconds = later_seconds
        stage.nodes.reconciler.mark_all_nodes()
        await stage.look()
        assert stage.status("a")["state"] == "Quarantined"
    stage.now = right
    stage.nodes.reconciler.mark_all_nodes()
    await stage.look()
    stage.now, stage.later_seconds = right + timedelta(days=30), 2 * nodeworlds.SURE_SECONDS
    stage.nodes.reconciler.mark_all_nodes()
    await stage.look()
    assert stage.status("a")["state"] == "Quarantined", "the right time has put an end to it in between"
    stage.later_seconds += nodeworlds.SURE_SECONDS + 1
    stage.now += timedelta(seconds=nodeworlds.SURE_SECONDS + 1)
    await stage.look()
    assert stage.status("a")["state"] == "Healthy", "it wakes by itself"


async def test_what_a_leader_whose_clock_was_ahead_has_taken_counts_for_the_next_one(stage: Stage) -> None:
    stage.policy(budgets=budgets(window=20))
    stage.add(*(f"n{number}" for number in range(10)))
    stage.now = NOW + timedelta(hours=3)
    for number in range(10):
        stage.say(f"n{number}", 79)
    await stage.look()
    assert len(stage.tainted()) == 1
    new = Stage(stage.api)
    new.policy(budgets=budgets(window=20))
    for (kind, _), value in sorted(stage.api.objects.items()):
        new._show(kind, json.dumps(value).encode())
    new.nodes.reconciler.mark_all_nodes()
    for later_seconds in (0.0, 590.0):
        new.later_seconds, new.now = later_seconds, NOW + timedelta(seconds=later_seconds)
        await new.look()
        assert len(new.tainted()) == 1
    new.later_seconds, new.now = 610.0, NOW + timedelta(seconds=610)
    await new.look()
    assert len(new.tainted()) == 2


async def test_the_record_is_written_before_the_taint(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    stage.api.fails["a"] = [ServerError(500, "", "the record is not written")]
    await stage.nodes.reconciler.reconcile()
    await stage.nodes.reconciler.settled()
    assert stage.tainted() == set()
    assert ("PATCH", "nodes", "a") not in stage.api.calls


async def test_what_was_decided_is_announced_though_the_taint_is_not_set_yet(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    stage.api.refuses["PATCH", "nodes"] = ServerError(503, "", "not now")
    await stage.look()
    assert (stage.told.reasons, stage.tainted()) == ([("a", "NodeUnhealthy")], set())
    assert not stage.nodes.performer.refused, "its record is written"
    del stage.api.refuses["PATCH", "nodes"]
    stage.rested("a")
    await stage.look()
    assert (stage.told.reasons, stage.tainted()) == ([("a", "NodeUnhealthy")], {"a"})


async def test_a_charged_node_unreadable_before_its_write_gives_up_its_place(stage: Stage) -> None:
    stage.policy(budgets=budgets(window=0, out=10))
    stage.add("a", "b")
    await stage.look()
    stage.api.gates["a"] = asyncio.Event()
    stage.say("a", 79)
    await stage.nodes.reconciler.reconcile()
    stage.api.version += 1
    stage.cluster.healths.store.assume(Undecodable("", "a", "health-a", stage.api.version, 1, "wrong"))
    stage.api.fails["a"] = [ServerError(500, "", "not written")]
    stage.api.gates.pop("a").set()
    await stage.look()
    stage.now += timedelta(seconds=700)
    stage.say("b", 79)
    await stage.look()
    assert stage.tainted() == {"b"}


async def test_a_taint_that_is_refused_holds_up_nothing_and_names_its_component(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    # The record is written, then the taint.
    refused = Forbidden(403, "Forbidden", "cannot patch nodes")
    stage.api.refuses["PATCH", "nodes"] = refused
    await stage.look()
    assert stage.tainted() == set()
    assert stage.cluster.fleet.exclusion("a") is not None
    assert stage.told.reasons == [("a", "NodeUnhealthy")]
    assert stage.told.policies.count("NodeTaintRefused") == 1
    assert stage.status("a")["effect"].endswith("; not tainted: refused by the API server (403 Forbidden)")
    del stage.api.refuses["PATCH", "nodes"]
    stage.nodes.reconciler.mark_nodes(["a"])  # as it is after a pause
    await stage.look()
    assert stage.tainted() == {"a"}
    assert stage.status("a")["effect"].startswith("tainted; ")


async def test_a_taint_that_a_policy_denies_names_no_component(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    message = "ValidatingAdmissionPolicy 'no-taints' with binding 'no-taints' denied request: not here"
    stage.api.refuses["PATCH", "nodes"] = Denied(422, "Invalid", message)
    await stage.look()
    assert (stage.tainted(), stage.told.policies) == (set(), [])
    refused = "; not tainted: refused by ValidatingAdmissionPolicy no-taints"
    assert stage.status("a")["effect"].endswith(refused)
    assert f"{refused}. To do: " in stage.status("a")["message"]
    writes = [call[:2] for call in stage.api.calls].count(("PATCH", "nodehealths"))
    assert writes == 2, "it says what was wanted, then what came of it"
    del stage.api.refuses["PATCH", "nodes"]
    stage.nodes.reconciler.mark_nodes(["a"])  # as it is after a pause
    await stage.look()
    assert stage.tainted() == {"a"}


async def test_a_taint_that_may_not_be_removed_any_more_is_said_with_the_command(stage: Stage) -> None:
    """After an upgrade without the component that may write Nodes; also where there is nothing against the node."""
    stage.add("a", "b")
    stage.say("a", 79)
    await stage.look()
    assert stage.tainted() == {"a"}
    health = ("nodehealths", "a")
    assert health in stage.api.objects
    del stage.api.objects[health]
    new = Stage(stage.api)
    for (kind, _), value in sorted(stage.api.objects.items()):
        new._show(kind, json.dumps(value).encode())
    refused = Forbidden(403, "Forbidden", "cannot get nodes")
    stage.api.refuses["GET", "nodes"] = refused
    new.nodes.reconciler.mark_all_nodes()
    await new.look()
    await new.look()
    assert new.tainted() == {"a"}
    assert new.told.reasons.count(("a", "NodeTaintLeft")) == 1
    (text,) = [text for name, text in new.told.texts if "taint" in text]
    assert "`kubectl taint node a muster.dev/unhealthy-`" in text
    del stage.api.refuses["GET", "nodes"]
    new.nodes.reconciler.mark_nodes(["a"])  # as it is after a pause
    await new.look()
    assert new.tainted() == set()


async def test_who_only_observes_takes_its_taints_off_and_says_what_it_leaves_out(stage: Stage) -> None:
    stage.add("a", "b")
    stage.say("a", 79)
    await stage.look()
    assert stage.tainted() == {"a"}
    assert stage.told.policies == []
    observer = stage.successor(InstallationProfile.OBSERVE)
    observer.say("b", 79)
    await observer.look()
    assert observer.tainted() == set()
    assert [observer.status(name)["state"] for name in ("a", "b")] == ["Unhealthy", "Unhealthy"]
    assert "exclusion" not in observer.status("b")
    await observer.look()
    assert observer.told.policies == ["PartNotInstalled"]


@pytest.mark.parametrize(
    ("profile", "state"), [("burn-in", "Validating"), ("health", "Healthy"), ("observe", "Healthy")]
)
async def test_without_tests_no_node_waits_for_one(stage: Stage, profile: str, state: str) -> None:
    testing = {"preflight": {"profile": "Quick"}}
    stage.policy_of(**testing)
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    stage.say("a", boot="boot-2")
    await stage.look()
    assert stage.status("a")["state"] == "Validating"
    new = stage.successor(InstallationProfile(profile))
    new.policy_of(**testing)
    await new.look()
    assert new.status("a")["state"] == state
    assert new.tainted() == (set() if state == "Healthy" else {"a"})


@pytest.mark.parametrize("taints", [[], [OTHER]], ids=["none", "one"])
async def test_taints_that_came_meanwhile_stay(stage: Stage, taints: list[dict[str, str]]) -> None:
    stage.add("a", taints=taints)
    stage.say("a", 79)
    new = {"key": "example.org/new", "effect": "NoExecute"}
    node = copy.deepcopy(stage.api.objects["nodes", "a"])
    node["spec"]["taints"] = [new]
    stage.api.put("nodes", node, show=False)  # the watch has not brought it
    await stage.nodes.reconciler.reconcile()
    await stage.nodes.reconciler.settled()
    found = stage.api.objects["nodes", "a"]["spec"]["taints"]
    assert [taint["key"] for taint in found] == [new["key"], TAINT_KEY]


async def test_a_taint_that_is_there_already_is_no_error(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    node = copy.deepcopy(stage.api.objects["nodes", "a"])
    node["spec"]["taints"].append({"key": TAINT_KEY, "value": "Old", "effect": "NoSchedule"})
    stage.api.put("nodes", node, show=False)
    await stage.look()
    assert [taint.get("value") for taint in stage.api.objects["nodes", "a"]["spec"]["taints"]] == [None, "Xid79"]


async def test_a_node_that_is_well_again_loses_the_taint_and_nothing_else(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    stage.say("a", boot="boot-2")
    await stage.look()
    assert stage.api.objects["nodes", "a"]["spec"]["taints"] == [OTHER]
    assert stage.status("a")["state"] == "Healthy"


async def test_the_taints_of_a_node_that_cannot_be_read_stay_as_they_are(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    node = stage.api.objects["nodes", "a"]
    node["spec"]["taints"] = ["none"]
    node["metadata"]["resourceVersion"] = "5000"
    stage.cluster.nodes.store.assume(decode.bare_node(json.dumps(node).encode()))
    await stage.look()
    assert stage.status("a")["state"] == "Unhealthy"
    assert stage.api.objects["nodes", "a"]["spec"]["taints"] == ["none"]
    assert (stage.api.count("PATCH", "nodes"), stage.api.count("GET", "nodes")) == (0, 0)


async def test_a_write_that_hangs_holds_up_no_other_node(stage: Stage) -> None:
    stage.add("a", "b")
    await stage.look()
    stage.api.gates["a"] = asyncio.Event()
    stage.say("a", 79)
    await stage.nodes.reconciler.reconcile()
    stage.say("b", 79)
    await stage.nodes.reconciler.reconcile()
    await until(lambda: stage.tainted() == {"b"})
    stage.api.gates.pop("a").set()
    await stage.look()
    assert stage.tainted() == {"a", "b"}


async def test_what_changes_while_a_node_is_dealt_with_is_looked_at_afterwards(stage: Stage) -> None:
    stage.add("a")
    stage.api.gates["a"] = asyncio.Event()
    stage.say("a", 79)
    await stage.nodes.reconciler.reconcile()
    await asyncio.sleep(0.01)
    stage.say("a", boot="boot-2")
    await stage.nodes.reconciler.reconcile()
    assert stage.api.count("PATCH", "nodehealths") == 1
    stage.api.gates.pop("a").set()
    await stage.look()
    assert stage.tainted() == set()
    assert stage.status("a")["state"] == "Healthy"


async def test_a_look_judges_what_has_changed_and_no_more(stage: Stage, judged: list[str]) -> None:
    stage.add(*(f"n{number}" for number in range(50)))
    await stage.look()
    assert sorted(set(judged)) == sorted(f"n{number}" for number in range(50))
    judged.clear()
    stage.say("n7", 79)
    await stage.look()
    assert set(judged) == {"n7"}
    judged.clear()
    calls = len(stage.api.calls)
    await stage.look()
    assert judged == []
    assert len(stage.api.calls) == calls


async def test_a_taint_that_somebody_takes_away_comes_back(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    node = copy.deepcopy(stage.api.objects["nodes", "a"])
    node["spec"]["taints"] = [OTHER]
    stage.api.put("nodes", node)
    await stage.look()
    assert stage.tainted() == {"a"}


async def test_a_record_that_somebody_rewrites_is_put_right(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    stage.say("a", 79, message="all is well, says somebody")
    await stage.look()
    assert stage.status("a")["message"].startswith("Xid79")


async def test_what_is_being_taken_counts_before_it_is_written(stage: Stage) -> None:
    stage.policy(budgets=budgets(window=40))
    stage.add(*(f"n{number}" for number in range(10)))
    await stage.look()
    for number in range(10):
        stage.api.gates[f"n{number}"] = asyncio.Event()
    for number in range(0, 10, 2):
        stage.say(f"n{number}", 79)
        await stage.nodes.reconciler.reconcile()
        await asyncio.sleep(0)
    for gate in stage.api.gates.values():
        gate.set()
    await stage.look()
    assert len(stage.tainted()) == 3
    held = [f"n{n}" for n in range(0, 10, 2) if "running jobs stay" in stage.status(f"n{n}")["effect"]]
    assert len(held) == 2
    assert all(stage.cluster.fleet.exclusion(f"n{n}") for n in range(0, 10, 2))


async def test_a_domain_is_as_large_as_all_its_nodes(stage: Stage) -> None:
    stage.policy(budgets=budgets(domain=25))
    stage.add(*(f"a{number}" for number in range(8)), rack="r1")
    stage.add(*(f"b{number}" for number in range(4)), rack="r2")
    for name in ("a0", "a1", "a2", "b0", "b1"):
        stage.say(name, 79)
    await stage.look()
    assert sorted(name[0] for name in stage.tainted()) == ["a", "b"]  # and one each is kept for what is certain


async def test_domains_follow_the_policy(stage: Stage) -> None:
    stage.add("a", "b", rack="r1")
    stage.add("c", "d", rack="r2")
    stage.policy(budgets=budgets(domain=50))
    await stage.look()
    assert stage.nodes.engine.node_index.sizes == {(WITHOUT, ("b0", "r1")): 2, (WITHOUT, ("b0", "r2")): 2}
    stage.api.version += 1
    meta = {"name": "default", "uid": "policy", "resourceVersion": str(stage.api.version)}
    spec = {"topology": {"levels": [{"name": "block", "label": "topology.muster.dev/block"}]}}
    stage.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))
    await stage.look()
    assert stage.nodes.engine.node_index.sizes == {(WITHOUT, ("b0",)): 4}


async def test_the_third_offence_puts_the_machine_into_quarantine_at_once(stage: Stage) -> None:
    stage.add("a")
    offences = {"hardware": "", "score": "2", "asOf": NOW.isoformat()}
    stage.say("a", 79, offences=offences)
    await stage.look()
    assert stage.status("a")["state"] == "Quarantined"


async def test_what_is_held_against_a_machine_is_found_under_its_new_name(stage: Stage) -> None:
    stage.add("old")
    stage.say("old", 79)
    await stage.look()
    owed = stage.status("old")["offences"]
    assert owed["score"] == "1"
    stage.add("new")
    stage.say("new", boot="boot-3")
    record = copy.deepcopy(stage.api.objects["nodehealths", "new"])
    record["status"]["agent"]["systemUuid"] = "board of old"
    stage.api.put("nodehealths", record)
    await stage.look()
    assert stage.status("new")["offences"]["hardware"] == owed["hardware"]
    assert float(stage.status("new")["offences"]["score"]) == 1.0


@pytest.mark.parametrize("dies", [False, True], ids=["one leader", "a leader for each event"])
async def test_a_machine_keeps_its_account_in_whatever_order_machines_change_their_names(dies: bool) -> None:
    """board-1 of n-0 comes back as m-0 and fails again; n-0 is given to board-2."""

    def comes_back(stage: Stage) -> None:
        stage.add("m-0")
        stage.say("m-0", 79, board="board-1")

    events: list[Callable[[Stage], None]] = [
        lambda stage: stage.remove_node("n-0"),
        lambda stage: stage.add("n-0", uid="another"),
        comes_back,
        lambda stage: stage.say("n-0", boot="boot-9", board="board-2"),
    ]
    for order in itertools.permutations(range(len(events))):
        if order.index(0) > order.index(1):
            continue  # the API server has one Node of a name at a time
        stage = stage_with_a_policy()
        stage.add("n-0")
        stage.say("n-0", 79, board="board-1")
        await stage.look()
        assert stage.status("n-0")["offences"]["score"] == "1"
        for number in order:
            stage.now += timedelta(minutes=1)
            stage = stage.successor() if dies else stage
            events[number](stage)
            await stage.look()
        assert 1.9 < float(stage.status("m-0")["offences"]["score"]) <= 2, order
        assert stage.status("n-0")["offences"].get("score", "0") == "0", order


async def test_machines_that_exchange_their_names_exchange_their_accounts(stage: Stage) -> None:
    stage.add("a", "b")
    stage.say("a", 79, board="board-1")
    await stage.look()
    for boards in (("board-2", "board-1"), ("board-1", "board-2")):
        for name, board in zip(("a", "b"), boards, strict=True):
            stage.now += timedelta(minutes=1)
            stage.say(name, board=board)
            await stage.look()
        scores = [float(stage.status(name)["offences"].get("score", "0")) for name in ("a", "b")]
        assert [score > 0.9 for score in scores] == [board == "board-1" for board in boards]


async def test_an_account_is_found_once_the_gpus_of_a_machine_with_a_new_board_answer(stage: Stage) -> None:
    stage.add("old", "new")
    serials = {"gpuSerials": ["1", "2"]}

    def report(name: str, board: str, *codes: int, **more: Any) -> None:
        stage.say(name, *codes, board=board)
        record = copy.deepcopy(stage.api.objects["nodehealths", name])
        record["status"]["agent"] |= more
        stage.api.put("nodehealths", record)

    report("old", "board-1", 79, **serials)
    await stage.look()
    report("new", "board-2")
    await stage.look()
    report("new", "board-2", **serials)
    await stage.look()
    assert float(stage.status("new")["offences"].get("score", "0")) > 0.9


async def test_what_failed_is_tried_again_and_reported_once_it_is_on_record(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.add("a")
    stage.say("a", 79)
    stage.api.fails["a"] = [ServerError(500, "", "no"), ApiError(0, "", "no")]
    async with running(stage, monkeypatch):
        await until(lambda: stage.tainted() == {"a"})
    assert len(stage.status("a")["incidents"]) == 1
    assert stage.told.reasons == [("a", "NodeUnhealthy")]


async def test_what_fails_is_left_alone_for_a_while_and_the_others_are_not(stage: Stage) -> None:
    stage.add("a", "b")
    await stage.look()
    stage.say("a", 79)
    stage.api.fails["a"] = [Conflict(409, "Conflict", "no") for _ in range(10)]
    await stage.look()
    stage.say("b", 79)
    await stage.look()
    assert len([name for _, _, name in stage.api.calls if name == "a"]) == 1
    assert stage.tainted() == {"b"}


async def test_news_of_a_node_whose_write_was_refused_do_not_wait_until_it_has_rested(stage: Stage) -> None:
    stage.add("a")
    await stage.look()
    stage.say("a", 94)
    stage.api.fails["a"] = [Forbidden(403, "Forbidden", "no") for _ in range(10)]
    await stage.look()
    assert stage.cluster.fleet.node_fault("a").startswith("Xid94")
    stage.say("a", 94, 79)
    await stage.nodes.reconciler.reconcile()
    assert stage.cluster.fleet.node_fault("a").startswith("Xid79"), "jobs see what could not be recorded"


async def test_a_decision_that_fails_leaves_no_node_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.add("a")
    await stage.look()
    decide = stage.nodes.engine.decide

    def fails_once(*arguments: Any) -> list[Order]:
        monkeypatch.setattr(stage.nodes.engine, "decide", decide)
        raise OverflowError("date value out of range")

    monkeypatch.setattr(stage.nodes.engine, "decide", fails_once)
    stage.say("a", 79)
    async with running(stage, monkeypatch):
        await until(lambda: stage.tainted() == {"a"})


async def test_a_node_whose_record_alone_is_refused_leaves_its_place_to_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.policy(budgets=budgets(window=10))
    stage.add("n0", "n1")
    stage.api.fails["n0"] = [Invalid(422, "Invalid", "no") for _ in range(10_000)]
    stage.say("n0", 79)
    stage.say("n1", 79)
    async with running(stage, monkeypatch):
        await until(lambda: stage.tainted() == {"n1"})
        stage.api.fails["n0"].clear()
        await until(lambda: bool(stage.status("n0").get("exclusion")))
    assert not stage.nodes.performer.refused


@pytest.mark.parametrize("verb", ["POST", "PATCH"])
@pytest.mark.parametrize("is_new", [True, False], ids=["there is none yet", "it has just been deleted"])
async def test_a_record_that_is_refused_while_there_is_none_counts_as_refused(
    stage: Stage, verb: str, is_new: bool
) -> None:
    stage.add("a")
    if is_new:
        mark(stage, "a", "EVICT")
    else:
        stage.say("a", 79)
        stage.api.fails["a"] = [NotFound(404, "NotFound", "it has just been deleted")]
    stage.api.refuses[verb, "nodehealths"] = Forbidden(403, "Forbidden", "no")
    await stage.look()
    assert stage.nodes.performer.refused == {"a"}
    stage.api.refuses.clear()
    stage.rested("a")
    await stage.look()
    assert not stage.nodes.performer.refused
    assert stage.status("a")["exclusion"]


@pytest.mark.parametrize("error", [NotFound(404, "NotFound", "no such kind"), Conflict(409, "Conflict", "changed")])
async def test_a_record_whose_kind_is_away_or_that_changed_meanwhile_is_not_refused(
    stage: Stage, error: ApiError
) -> None:
    stage.add("a")
    mark(stage, "a", "EVICT")
    stage.api.refuses["POST", "nodehealths"] = error
    await stage.look()
    assert not stage.nodes.performer.refused
    assert stage.api.count("POST", "nodehealths") == 1


async def test_a_node_whose_record_cannot_be_read_leaves_its_place_to_another(stage: Stage) -> None:
    stage.policy(budgets=budgets(window=10))
    stage.add("n0", "n1", "n2")
    for name in ("n2", "n0", "n1"):
        stage.say(name, 79)
        await stage.look()
    stage.api.version += 1
    stage.cluster.healths.store.assume(Undecodable("", "n0", "health-n0", stage.api.version, 1, "wrong"))
    stage.now += timedelta(seconds=601)
    await stage.look()
    assert stage.tainted() == {"n1", "n2"}


async def test_orders_that_waited_for_room_are_left_out_if_they_are_outdated_by_then(stage: Stage) -> None:
    names = [f"n{number:02}" for number in range(nodeperform.NODES_AT_ONCE + 2)]
    stage.add(*names)
    await stage.look()
    for name in names:
        stage.say(name, 79)
        stage.api.gates[name] = asyncio.Event()
    await stage.nodes.reconciler.reconcile()
    await until(lambda: len(stage.api.calls) == nodeperform.NODES_AT_ONCE)
    stage.policy(enforcement="Observe")
    for gate in stage.api.gates.values():
        gate.set()
    await stage.look()
    late = set(names) - {name for _, _, name in stage.api.calls[: nodeperform.NODES_AT_ONCE]}
    assert len(late) == 2
    assert all("takenOutTime" not in stage.status(name)["incidents"][0] for name in late)


async def test_records_that_cannot_be_read_again_hold_up_no_other_node(stage: Stage) -> None:
    broken = [f"n{number:02}" for number in range(nodeperform.NODES_AT_ONCE)]
    stage.add(*broken, "z")
    await stage.look()
    for name in broken:
        stage.api.fails[name] = [ServerError(500, "", "no") for _ in range(100)]
        stage.say(name, 79)
    await stage.nodes.reconciler.reconcile()
    await until(lambda: stage.api.count("GET", "nodehealths") == len(broken))
    stage.say("z", 79)
    await stage.nodes.reconciler.reconcile()
    await until(lambda: stage.tainted() == {"z"})


async def test_a_node_that_cannot_be_judged_leaves_its_place_to_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.policy(budgets=budgets(window=0, out=10))
    stage.add("a", "b", "c")
    stage.say("c", 79)
    await stage.look()
    stage.say("a", 79)
    stage.say("b", 79)
    await stage.look()
    assert stage.tainted() == {"c"}
    assess = module.assess

    def fails(world: NodeWorld) -> Verdict:
        if world.facts.node.name == "a":
            raise OverflowError("date value out of range")
        return assess(world)

    monkeypatch.setattr(module, "assess", fails)
    stage.say("a", 79, 48)
    stage.now += timedelta(seconds=700)
    stage.say("c", boot="boot-2")
    await stage.look()
    assert stage.tainted() == {"b"}


async def test_a_new_leader_judges_again_before_it_decides_about_jobs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    stage.add("a")
    stage.say("a", 79)
    changed = stage.nodes.worlds.changed

    def fails_once() -> set[str]:
        monkeypatch.setattr(stage.nodes.worlds, "changed", changed)
        raise OverflowError("date value out of range")

    monkeypatch.setattr(stage.nodes.worlds, "changed", fails_once)
    await stage.nodes.reconciler.begin()
    assert stage.cluster.fleet.exclusion("a") is not None


async def test_a_later_look_does_not_put_off_a_sooner_one(stage: Stage) -> None:
    stage.nodes.performer._later("a", 3600.0)
    stage.nodes.performer._later("a", 0.0)
    stage.nodes.performer._later("a", 3600.0)
    await until(lambda: stage.nodes.queue.next_keys() == [("", "a")])


async def test_who_may_not_write_any_more_stops(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.add("a")
    stage.say("a", 79)
    stage.api.fails["a"] = [LeadershipLost("the lease is over")]
    async with running(stage, monkeypatch) as task:
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(asyncio.shield(task), PATIENCE_SECONDS)


async def test_who_stops_leaves_no_write_behind(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.add("a")
    stage.say("a", 79)
    stage.api.gates["a"] = asyncio.Event()
    async with running(stage, monkeypatch):
        await until(lambda: bool(stage.api.calls))
    stage.api.gates["a"].set()
    await asyncio.sleep(0.01)
    assert "state" not in stage.status("a")
    assert stage.tainted() == set()


async def test_nodes_are_counted_by_what_is_held_against_them(stage: Stage) -> None:
    stage.add("a", "b", "c")
    stage.say("a", 79)
    stage.say("b")
    await stage.look()
    books = stage.nodes.engine.verdict_index
    assert {state: n for state, n in books.states.items() if n} == {"Unhealthy": 1, "Healthy": 1, "Unknown": 1}
    stage.say("a", boot="boot-2")
    await stage.look()
    assert {state: n for state, n in books.states.items() if n} == {"Healthy": 2, "Unknown": 1}
    assert sum(books.reasons.values()) == 0


async def test_a_record_that_cannot_be_read_is_told_and_the_others_are_judged(stage: Stage) -> None:
    stage.add("n0", "n1")
    stage.say("n0", 79)
    await stage.look()
    assert stage.tainted() == {"n0"}
    stage.api.version += 1
    wrong = "status.evidence.0.firstSeen: a time between 1970 and 2200 is needed"
    stage.cluster.healths.store.assume(Undecodable("", "n0", "health-n0", stage.api.version, 1, wrong))
    stage.say("n1", 79)
    await stage.look()
    assert stage.tainted() == {"n0", "n1"}
    assert stage.told.reasons.count(("n0", "RecordUnreadable")) == 1


async def test_a_node_that_breaks_its_judgement_stays_as_it_was_and_harms_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.add("n0", "n1")
    stage.say("n0", 79)
    await stage.look()
    assess = module.assess

    def fails(world: NodeWorld) -> Verdict:
        if world.facts.node.name == "n0":
            raise OverflowError("date value out of range")
        return assess(world)

    monkeypatch.setattr(module, "assess", fails)
    stage.say("n0")
    stage.say("n1", 79)
    await stage.look()
    assert stage.tainted() == {"n0", "n1"}
    assert ("n0", "InternalError") in stage.told.reasons


async def test_a_node_that_breaks_what_is_done_about_it_harms_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.add("n0", "n1")
    record = node_plan.recorded_status

    def fails(order: Order, *arguments: Any) -> NodeHealthStatus:
        if order.name == "n0":
            raise OverflowError("date value out of range")
        return record(order, *arguments)

    monkeypatch.setattr(node_plan, "recorded_status", fails)
    stage.say("n0", 79)
    stage.say("n1", 79)
    await stage.look()
    assert stage.tainted() == {"n1"}
    assert stage.nodes.reconciler._failure is None
    assert ("n0", "InternalError") in stage.told.reasons


@pytest.mark.parametrize("held", [False, True])
async def test_what_ails_a_node_is_known_though_the_breaker_holds_it(stage: Stage, held: bool) -> None:
    stage.policy(budgets=budgets(window=0, out=0, domain=0) if held else EVERYTHING)
    stage.add("n0", "n1", "n2")
    stage.say("n0", 79)  # one is always allowed
    await stage.look()
    stage.say("n1", 79)
    stage.say("n2")
    await stage.look()
    fleet = stage.cluster.fleet
    exclusion = fleet.exclusion("n1")
    assert exclusion is not None
    assert exclusion.evacuate is (Evacuate.NO if held else Evacuate.NOW)
    assert exclusion.last_choice is held
    assert fleet.node_fault("n1").startswith("Xid79: ")
    assert fleet.node_fault("n2") == ""
    stage.api.put("nodehealths", {"metadata": {"name": "n1", "uid": "health-n1"}})
    await stage.look()
    assert fleet.node_fault("n1") == ""


@pytest.mark.parametrize(
    ("arrange", "evacuate", "ails"),
    [
        pytest.param(lambda s: s.say("n0", 94), Evacuate.AFTER_CHECKPOINT, True, id="degraded"),
        pytest.param(
            lambda s: s.api.put(
                "nodes",
                {
                    "metadata": {"name": "n0", "uid": "n0", "labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"}},
                    "spec": {},
                },
            ),
            Evacuate.AFTER_CHECKPOINT,
            True,
            id="yielded to another system",
        ),
        pytest.param(lambda s: s.say("n0", 92), None, False, id="only a warning"),
    ],
)
async def test_what_ails_a_node_is_known_whatever_is_done_about_it(
    stage: Stage, arrange: Callable[[Stage], Any], evacuate: Evacuate | None, ails: bool
) -> None:
    stage.add("n0", "n1", "n2", "n3")
    arrange(stage)
    await stage.look()
    fleet = stage.cluster.fleet
    exclusion = fleet.exclusion("n0")
    assert (exclusion and exclusion.evacuate, bool(fleet.node_fault("n0"))) == (evacuate, ails)


async def test_a_cordon_is_no_node_fault(stage: Stage) -> None:
    stage.add("n0")
    human = {"decision": "Cordon", "reason": "rack work", "time": NOW.isoformat()}
    stage.api.put("nodehealths", {"metadata": {"name": "n0", "uid": "h"}, "spec": {"override": human}})
    await stage.look()
    assert "n0" in stage.cluster.fleet.excluded
    assert not stage.cluster.fleet._node_faults


async def test_with_a_policy_that_was_never_read_nodes_stay_as_they_are() -> None:
    fresh = Stage()
    unread = Undecodable("", "default", "policy", 50, 1, "spec.topology: bad")
    fresh.cluster.policies.store.assume(unread)
    ours = {"key": TAINT_KEY, "value": "Xid79", "effect": "NoSchedule"}
    fresh.add("n0")
    fresh.add("n1", taints=[ours])
    fresh.say("n0", 79)
    await fresh.look()
    assert (fresh.api.calls, fresh.tainted()) == ([], {"n1"})
    assert fresh.told.policies == ["PolicyUnreadable"]
    fresh.policy()
    await fresh.look()
    assert fresh.tainted() == {"n0"}


async def test_a_policy_that_becomes_unreadable_goes_on_to_hold(stage: Stage) -> None:
    stage.add("n0")
    await stage.look()
    stage.api.version += 1
    unread = Undecodable("", "default", "policy", stage.api.version, 2, "spec.topology: bad")
    stage.cluster.policies.store.assume(unread)
    stage.say("n0", 79)
    await stage.look()
    assert stage.tainted() == {"n0"}
    assert stage.told.policies == ["PolicyUnreadable"]


async def test_a_lost_node_that_gives_a_sign_of_life_is_told_once(stage: Stage) -> None:
    stage.add("n0")
    lost = {"time": NOW.isoformat(), "reason": "dark", "bootId": "boot-0"}
    stage.api.put("nodehealths", {"metadata": {"name": "n0", "uid": "h"}, "spec": {"lost": lost}})
    await stage.look()
    assert ("n0", "NotLost") not in stage.told.reasons
    node = stage.api.objects["nodes", "n0"]
    stage.api.put("nodes", {**node, "status": {"nodeInfo": {"bootID": "boot-1"}}})
    await stage.look()
    await stage.look()
    assert stage.told.reasons.count(("n0", "NotLost")) == 1


async def test_many_nodes_are_judged_in_parts(stage: Stage, judged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    stage.add(*(f"n{number}" for number in range(50)))
    seen: list[int] = []

    async def others() -> None:
        while True:
            seen.append(len(judged))
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await stage.nodes.reconciler.reconcile()
    beside.cancel()
    assert len(judged) == 50
    assert max(after - before for before, after in itertools.pairwise(seen)) == 1


async def test_nodes_that_are_held_are_told_of_once_and_when_it_is_over(stage: Stage) -> None:
    stage.policy(budgets=budgets(window=10))
    stage.add(*(f"n{number}" for number in range(5)))
    for number in range(5):
        stage.say(f"n{number}", 79)
    await stage.look()
    await stage.look()
    assert stage.told.policies == ["BudgetExhausted"]
    for number in range(5):
        stage.say(f"n{number}", boot="boot-2")
    await stage.look()
    await stage.look()
    assert stage.told.policies == ["BudgetExhausted", "BudgetAvailable"]


async def test_records_of_machines_that_are_gone_are_deleted_in_time_a_few_at_a_turn(stage: Stage) -> None:
    stage.add("there")
    stage.say("there")
    created = (NOW - timedelta(days=40)).isoformat()
    for number in range(20):
        metadata = {"name": f"gone{number}", "uid": f"h{number}", "creationTimestamp": created}
        stage.api.put("nodehealths", {"metadata": metadata})
    ticks = [0.0]
    forgetting = Forgetting(stage.api, stage.cluster, lambda: ticks[0])  # type: ignore[arg-type]
    names = [name for kind, name in stage.api.objects if kind == "nodehealths"]
    for name in names:
        forgetting.note(name)
    rules = stage.nodes.worlds.rules
    await forgetting.forget_some(rules, NOW)
    assert stage.api.count("DELETE", "nodehealths") == 0, "it may be a reboot"
    ticks[0] = 3601.0
    await forgetting.forget_some(rules, NOW)
    assert stage.api.count("DELETE", "nodehealths") == 8
    assert ("nodehealths", "there") in stage.api.objects


async def test_a_record_that_somebody_has_just_written_to_is_kept(stage: Stage) -> None:
    created = (NOW - timedelta(days=40)).isoformat()
    stage.api.put("nodehealths", {"metadata": {"name": "gone", "uid": "h", "creationTimestamp": created}})
    ticks = [0.0]
    forgetting = Forgetting(stage.api, stage.cluster, lambda: ticks[0])  # type: ignore[arg-type]
    forgetting.note("gone")
    ticks[0] = 3601.0
    stage.api.put("nodehealths", stage.api.objects["nodehealths", "gone"], show=False)
    await forgetting.forget_some(stage.nodes.worlds.rules, NOW)
    assert ("nodehealths", "gone") in stage.api.objects


def test_reasons_that_are_over_make_room_for_those_of_other_nodes() -> None:
    registry, shown = CollectorRegistry(), set[str]()
    gauge = Gauge("nodes", "Nodes by reason.", ["reason"], registry=registry)
    counts = Counter[str]()
    for number in range(MAX_REASONS + 20):
        counts.update({f"Made{number:03}": 1})
        publish_by_reason(gauge, shown, counts)
        counts.subtract({f"Made{number:03}": 1})
    counts["Xid79"] = 2
    publish_by_reason(gauge, shown, counts)
    assert registry.get_sample_value("nodes", {"reason": "Xid79"}) == 2
    (metric,) = registry.collect()
    assert len(metric.samples) == len(shown) == MAX_REASONS
