"""What jobs see of nodes whose records cannot be written or read, or were forged or deleted."""

import asyncio
import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.controller.health_stage import Stage, mark, stage_with_a_policy
from tests.unit.health.builders import budgets

from muster.api.nodehealth import Evacuate, NodeHealth
from muster.controller import nodeperform
from muster.health.fitness import UNREADABLE, fitness_of
from muster.kube.decode import Undecodable
from muster.kube.errors import ApiError, Forbidden, Invalid, LeadershipLost, NotFound, ServerError, Unreachable
from muster.world.fleet import Exclusion, Fleet, Suspicion


@pytest.fixture
def stage() -> Stage:
    return stage_with_a_policy()


def excluded(stage: Stage, name: str = "a") -> Exclusion | None:
    return stage.cluster.fleet.exclusion(name)


def forge(stage: Stage, name: str, **status: Any) -> None:
    """A user writes into a record; None takes a field away."""
    record = copy.deepcopy(stage.api.objects["nodehealths", name])
    record["status"] = {key: value for key, value in {**record["status"], **status}.items() if value is not None}
    stage.api.put("nodehealths", record)


def delete(stage: Stage, name: str) -> None:
    """A user deletes a record."""
    gone = stage.api.objects.pop(("nodehealths", name))
    stage.api.version += 1
    gone["metadata"]["resourceVersion"] = str(stage.api.version)
    stage.cluster.healths.store.apply("DELETED", NodeHealth.model_validate(gone))


async def test_jobs_act_on_what_is_on_record(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    found, recorded = excluded(stage), stage.status("a")["exclusion"]
    assert found is not None
    assert (found.reason, found.evacuate) == ("Xid79", Evacuate.NOW)
    assert (recorded["reason"], recorded["evacuate"]) == ("Xid79", "Now")
    assert stage.cluster.fleet.node_fault("a") == stage.status("a")["fault"] != ""


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", "cannot patch nodehealths"),
        ServerError(500, "", "the API server is away"),
        Invalid(422, "Invalid", "the definition is older"),
        NotFound(404, "NotFound", "the definition is not installed"),
    ],
    ids=["forbidden", "away", "an older definition", "no definition"],
)
async def test_no_worker_comes_to_a_node_whose_fault_cannot_be_recorded_and_none_leaves_it(
    stage: Stage, error: ApiError
) -> None:
    stage.add("a")
    stage.say("a", 79)
    stage.api.refuses["PATCH", "nodehealths"] = error
    await stage.look()
    found = excluded(stage)
    assert found is not None
    assert (found.evacuate, found.last_choice) == (Evacuate.NO, False)
    assert stage.tainted() == set()
    assert "Xid79" in stage.cluster.fleet.node_fault("a")  # a failure there is not the program's
    stage.api.refuses.clear()
    stage.rested("a")
    await stage.look()
    recorded = excluded(stage)
    assert recorded is not None
    assert recorded.evacuate is Evacuate.NOW


async def test_a_node_is_not_free_before_its_record_says_so(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    stage.api.refuses["PATCH", "nodehealths"] = Forbidden(403, "Forbidden", "cannot patch nodehealths")
    stage.say("a", boot="boot-2")
    await stage.look()
    assert excluded(stage) is not None
    stage.api.refuses.clear()
    stage.rested("a")
    await stage.look()
    assert excluded(stage) is None


async def test_a_record_that_a_user_deletes_frees_no_node(stage: Stage) -> None:
    stage.add("a")
    mark(stage, "a", "EVICT")
    await stage.look()
    assert excluded(stage) is not None
    delete(stage, "a")
    found = excluded(stage)  # nothing was looked at since
    assert found is not None
    assert found.evacuate is Evacuate.NO
    await stage.look()
    again = excluded(stage)
    assert again is not None
    assert again.evacuate is Evacuate.AFTER_CHECKPOINT


async def test_what_a_user_writes_into_a_record_holds_until_the_node_is_looked_at(stage: Stage) -> None:
    stage.add("a", "b")
    stage.say("a", 79)
    stage.say("b")
    await stage.look()
    forge(stage, "a", exclusion=None)
    forge(stage, "b", exclusion={"reason": "Mine", "evacuate": "Now"})
    kept, forged = excluded(stage, "a"), excluded(stage, "b")
    assert kept is not None
    assert kept.evacuate is Evacuate.NO
    assert forged is not None
    await stage.look()
    assert excluded(stage, "b") is None
    assert excluded(stage, "a") == Exclusion("Xid79", kept.message, Evacuate.NOW)


async def test_a_record_that_cannot_be_read_makes_its_node_the_last_choice(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    heir = stage.successor()
    for each in (stage, heir):
        each.cluster.healths.store.assume(Undecodable("", "a", "health-a", 10_000, 1, "status.state: Peaky"))
        await each.look()
    assert excluded(heir) == UNREADABLE.exclusion
    assert excluded(stage) == replace(UNREADABLE.exclusion, last_choice=False)  # it knows more


async def test_a_node_that_is_gone_is_nothing_to_jobs_and_comes_back_as_it_was(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    stage.remove_node("a")
    assert excluded(stage) is None
    assert not stage.cluster.fleet.node_fault("a")
    await stage.look()
    stage.add("a", uid="another")
    assert excluded(stage) is not None


async def test_jobs_are_woken_by_what_is_on_record(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    woken = list[tuple[str, Evacuate]]()

    def ring(uid: str) -> None:
        found = excluded(stage)
        woken.append((uid, found.evacuate if found is not None else Evacuate.NO))

    monkeypatch.setattr(stage.cluster, "mark_job", ring)
    monkeypatch.setattr(stage.cluster, "jobs_on", lambda _node: ["uid"])
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    assert woken[-1] == ("uid", Evacuate.NOW)


def _afflicted() -> Stage:
    """Nodes of each kind: to leave at once, after a checkpoint, suspect, cordoned, taken away by others."""
    stage = stage_with_a_policy()
    stage.add("well", "fatal", "degraded", "suspect", "cordoned", "spot")
    stage.say("fatal", 79)
    stage.say("degraded", 63)
    stage.say("suspect", 13)
    stage.say("cordoned")
    cordon = {"decision": "Cordon", "reason": "leak", "user": "ann", "time": "2026-01-31T11:00:00Z"}
    stage.api.put("nodehealths", {**stage.api.objects["nodehealths", "cordoned"], "spec": {"override": cordon}})
    spot = {"key": "aws-node-termination-handler/spot-itn", "value": "x", "effect": "NoSchedule"}
    stage.api.put("nodes", {**stage.api.objects["nodes", "spot"], "spec": {"taints": [spot]}})
    return stage


def _seen(fleet: Fleet) -> dict[str, tuple[Exclusion | None, str, Suspicion | None]]:
    return {name: (fleet.exclusion(name), fleet.node_fault(name), fleet.suspicion_of(name)) for name in fleet.nodes}


def _dies_at(stage: Stage, number: int, *, heard: bool) -> None:
    """Have the process die at its write with this number: before the API server hears of it, or before its answer."""
    called, shown = stage.api._called, stage.api.shown

    async def dying(verb: str, kind: str, name: str) -> None:
        if len(stage.api.calls) >= number + heard:
            raise LeadershipLost("it is dead")
        await called(verb, kind, name)

    def unheard(kind: str, data: bytes) -> None:
        if len(stage.api.calls) <= number:
            shown(kind, data)

    stage.api._called, stage.api.shown = dying, unheard  # type: ignore[method-assign]


@pytest.mark.parametrize("heard", [False, True], ids=["before the API server has it", "before the answer"])
async def test_a_new_leader_sees_what_the_last_one_saw_wherever_it_died(heard: bool) -> None:
    number = 0
    while True:
        stage = _afflicted()
        _dies_at(stage, number, heard=heard)
        await stage.look()
        last, heir = _seen(stage.cluster.fleet), _seen(stage.successor().cluster.fleet)
        for name, (exclusion, fault, suspicion) in last.items():
            known = stage.cluster.healths.store.get(("", name))
            stored = stage.api.objects.get(("nodehealths", name), {}).get("status", {})
            if (
                isinstance(known, NodeHealth)
                and known.status == NodeHealth(metadata=known.metadata, status=stored).status
            ):
                recorded = fitness_of(known.status)
                assert heir[name] == (recorded.exclusion, recorded.fault, recorded.suspicion)
            if heir[name] != (exclusion, fault, suspicion):  # what is only decided moves no worker
                assert exclusion is None or exclusion.evacuate is Evacuate.NO, (number, name)
        if len(stage.api.calls) < number:
            break
        number += 1
    assert number >= 8
    assert last == heir
    assert {name for name, (exclusion, _, _) in last.items() if exclusion} == {"fatal", "degraded", "cordoned", "spot"}


async def test_a_last_choice_whose_fault_becomes_certain_is_none_before_that_is_on_record(stage: Stage) -> None:
    one_place(stage)
    degrade(stage, "n1")
    degrade(stage, "n2")
    await stage.look()
    held = next(name for name in ("n1", "n2") if (found := excluded(stage, name)) and found.last_choice)
    stage.api.refuses["PATCH", "nodehealths"] = Forbidden(403, "Forbidden", "cannot patch nodehealths")
    stage.say(held, 79)
    cordon = {"decision": "Cordon", "reason": "leak", "user": "ann", "time": "2026-01-31T11:00:00Z"}
    stage.api.put("nodehealths", {**stage.api.objects["nodehealths", held], "spec": {"override": cordon}})
    await stage.look()
    found = excluded(stage, held)
    assert found is not None
    assert not found.last_choice


async def test_no_worker_leaves_a_node_for_what_the_leader_has_taken_back(stage: Stage) -> None:
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    stage.api.refuses["PATCH", "nodehealths"] = Forbidden(403, "Forbidden", "cannot patch nodehealths")
    stage.policy(enforcement="Observe")
    await stage.look()
    found = excluded(stage)
    assert found is not None
    assert found.evacuate is Evacuate.NO


async def test_nothing_is_done_to_a_node_whose_record_cannot_be_read(stage: Stage) -> None:
    stage.policy(budgets=budgets(out=1))
    for number in range(4):
        stage.add(f"n{number}", rack=f"r{number}")
    degrade(stage, "n1")
    degrade(stage, "n2")
    await stage.look()
    held = next(name for name in ("n1", "n2") if name not in stage.tainted())
    stage.cluster.healths.store.assume(Undecodable("", held, f"health-{held}", 10_000, 1, "status.state: Peaky"))
    stage.policy()
    stage.nodes.reconciler.mark_all_nodes()
    await stage.look()
    assert held not in stage.tainted()


async def test_what_is_decided_about_a_node_outlives_its_node_object(stage: Stage) -> None:
    stage.api.refuses["PATCH", "nodehealths"] = Forbidden(403, "Forbidden", "cannot patch nodehealths")
    stage.add("a")
    stage.say("a", 79)
    await stage.look()
    stage.remove_node("a")
    await stage.look()
    stage.add("a")
    assert excluded(stage) is not None


def degrade(stage: Stage, name: str) -> None:
    mark(stage, name, "EVICT")


def one_place(stage: Stage) -> None:
    """Four nodes in a domain each; one of them may be out for what is not certain."""
    stage.policy(budgets=budgets(out=1))
    for number in range(4):
        stage.add(f"n{number}", rack=f"r{number}")


async def test_a_write_without_an_answer_keeps_its_place_although_the_watch_is_behind(stage: Stage) -> None:
    one_place(stage)
    degrade(stage, "n1")
    api, patch = stage.api, stage.api.patch

    async def answer_lost(path: str, *rest: Any, **more: Any) -> bytes:
        if "/n1/" in path:
            shown, api.shown = api.shown, lambda _kind, _data: None
            await patch(path, *rest, **more)
            api.shown = shown
            raise Unreachable(0, "", "no answer")
        return await patch(path, *rest, **more)

    api.patch = answer_lost  # type: ignore[method-assign]
    await stage.look()
    assert "takenOutTime" in stage.status("n1")["incidents"][-1]
    stage.rested("n1")
    stage.say("n0", 48)  # graver
    await stage.look()
    assert "takenOutTime" not in stage.status("n0")["incidents"][-1]


async def test_a_removal_is_charged_while_its_write_is_under_way(stage: Stage) -> None:
    one_place(stage)
    degrade(stage, "n1")
    stage.api.gates["n1"] = asyncio.Event()
    await stage.nodes.reconciler.reconcile()
    await asyncio.sleep(0)
    stage.say("n0", 48)  # graver
    await stage.nodes.reconciler.reconcile()
    stage.api.gates["n1"].set()
    await stage.look()
    assert "takenOutTime" in stage.status("n1")["incidents"][-1]
    assert "takenOutTime" not in stage.status("n0")["incidents"][-1]


async def test_the_record_is_read_once_the_api_server_answers(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeperform, "READ_AGAIN_SECONDS", 0.001)
    stage.add("a")
    stage.say("a", 79)
    stage.api.fails["a"] = [Unreachable(0, "", "no answer"), ServerError(503, "", "not yet"), Unreachable(0, "", "no")]
    await stage.look()
    assert stage.api.count("GET", "nodehealths") == 3
    stage.rested("a")
    await stage.look()
    assert "takenOutTime" in stage.status("a")["incidents"][-1]


async def test_the_place_of_a_node_is_free_once_its_return_is_on_record(stage: Stage) -> None:
    one_place(stage)
    degrade(stage, "n1")
    await stage.look()
    assert "takenOutTime" in stage.status("n1")["incidents"][-1]
    stage.now += timedelta(hours=1)
    mark(stage, "n1", "")
    degrade(stage, "n2")
    stage.api.refuses["PATCH", "nodehealths"] = Forbidden(403, "Forbidden", "cannot patch nodehealths")
    await stage.look()
    assert stage.nodes.engine.breaker is not None
    assert (stage.nodes.engine.breaker.out, stage.nodes.engine.breaker.held) == (1, 1)
    stage.api.refuses.clear()
    for name in ("n1", "n2"):
        stage.rested(name)
    await stage.look()
    assert "clearedTime" in stage.status("n1")["incidents"][-1]
    assert "takenOutTime" in stage.status("n2")["incidents"][-1]
