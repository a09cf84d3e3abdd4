"""The keeper of RepairRequests with the keeper of health, over an API server that is played: from a fault to a proved
return."""

import asyncio
import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.repair_shop import KIND, REPAIRS, STEPS, Shop, live_through

from muster.api.installation import InstallationProfile
from muster.controller import repairs as module
from muster.health.repairs import LOOK_SECONDS
from muster.kube.errors import Forbidden, ServerError


@pytest.fixture
def shop() -> Shop:
    made = Shop()
    made.add("a")
    return made


async def test_from_the_fault_to_the_proved_return(shop: Shop) -> None:
    await shop.asked()
    found = shop.request()
    assert found is not None
    spec = found["spec"]
    assert (spec["node"], spec["action"], spec["reason"], spec["nodeUid"]) == ("a", "Reboot", "Xid79", "a")
    assert [each["reason"] for each in spec["evidence"]] == ["Xid79"]
    assert (spec["machine"]["systemUuid"], spec["machine"]["bootId"]) == ("board of a", "boot-1")
    assert shop.reasons() == ["RepairRequested"]
    shop.becomes("InProgress", "rebooting")
    await shop.turn()
    shop.say("a", boot="boot-2")  # it looks well
    await shop.turn()
    assert (shop.state(), shop.reasons()) == ("Degraded", ["RepairInProgress"])
    assert shop.tainted() == {"a"}
    shop.becomes("Done")
    await shop.turn(2)
    assert (shop.state(), shop.reasons()) == ("Degraded", ["RepairNotVerified"])
    assert shop.request() is not None
    await shop.turn(3, LOOK_SECONDS)
    assert (shop.state(), shop.tainted()) == ("Healthy", set())
    assert shop.request() is None
    told = [reason for _, reason in shop.told.reasons if reason.startswith("Repair")]
    assert told == ["RepairRequested", "RepairInProgress", "RepairDone"]
    assert shop.api.count("POST", KIND) == 1


async def test_who_only_observes_takes_back_what_nobody_has_begun(shop: Shop) -> None:
    await shop.asked()
    observer = shop.restarted(InstallationProfile.OBSERVE)
    await observer.turn()
    assert (observer.request(), observer.reasons()) == (None, [])
    assert observer.repairs._is_wanted() is False, "the kind is not asked for any more"
    await observer.turn()
    assert observer.api.count("POST", KIND) == 1


@pytest.mark.parametrize(("profile", "is_over"), [("observe", True), ("health", False)])
async def test_without_the_right_to_requests_only_a_profile_that_makes_them_waits_for_it(
    shop: Shop, profile: str, is_over: bool
) -> None:
    await shop.asked()
    shop.api.refuses["LIST", KIND] = Forbidden(403, "Forbidden", "no")
    other = shop.restarted(InstallationProfile(profile))
    with contextlib.suppress(Forbidden):
        await other.repairs.reconcile()
    await other.look()
    assert (other.reasons() == []) is is_over


async def test_it_is_on_record_that_the_node_is_held_before_anybody_is_asked(shop: Shop) -> None:
    shop.say("a", 79)
    await shop.look()
    shop.api.fails["a"] = [ServerError(500, "", "not written")] * 3
    await shop.repairs.reconcile()
    await shop.look()
    await shop.repairs.reconcile()
    assert (shop.reasons(), shop.request()) == ([], None)
    shop.api.fails.clear()
    shop.rested("a")
    await shop.turn()
    assert shop.reasons() == ["RepairRequested"]
    assert shop.request() is not None


async def test_nobody_is_asked_while_the_policy_wants_nothing_and_nothing_is_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.001)
    shop.policy()
    shop.say("a", 79)
    await shop.look()
    task = asyncio.create_task(shop.repairs.run())
    await asyncio.sleep(0.02)
    assert shop.api.lists == 0
    shop.policy(**REPAIRS)
    while shop.api.lists < 2:  # noqa: ASYNC110 - nobody would set an event
        await asyncio.sleep(0.001)
    task.cancel()


async def test_a_node_with_a_job_is_not_asked_for(shop: Shop) -> None:
    shop.cluster.fleet.occupy("a job", "uid-of-a-job", frozenset({"a"}))
    shop.say("a", 79)
    await shop.look()
    await shop.turn()
    assert (shop.request(), shop.reasons()) == (None, [])
    shop.cluster.fleet.occupy("a job", "uid-of-a-job", frozenset())
    await shop.turn()
    assert shop.request() is not None


@pytest.mark.parametrize("phase", ["", "InProgress", "Done", "Failed"])
async def test_a_restart_at_any_stage_changes_nothing_and_asks_nobody_twice(shop: Shop, phase: str) -> None:
    await shop.asked()
    if phase:
        shop.becomes(phase)
        await shop.turn()
    found, reasons = shop.request(), shop.reasons()
    shop = shop.restarted()
    await shop.look()
    assert shop.reasons() == reasons
    assert shop.tainted() == {"a"}
    await shop.turn()
    assert (shop.request(), shop.reasons()) == (found, reasons)
    assert shop.api.count("POST", KIND) == 1


async def test_what_was_done_while_nobody_led_is_seen_to_have_been_done(shop: Shop) -> None:
    await shop.asked()
    shop.becomes("Done")
    shop = shop.restarted()
    shop.say("a", boot="boot-2")
    await shop.look()
    await shop.turn()
    assert shop.reasons() == ["RepairNotVerified"]


async def test_a_request_that_was_deleted_while_nobody_led_holds_its_node_no_longer(shop: Shop) -> None:
    await shop.asked()
    del shop.api.objects[KIND, "a"]
    shop.say("a", boot="boot-2")
    shop = shop.restarted()
    await shop.look()
    assert shop.reasons() == ["RepairRequested"], "no request has been read yet"
    await shop.turn()
    assert (shop.state(), shop.reasons(), shop.tainted()) == ("Healthy", [], set())


async def test_a_fault_that_clears_withdraws_its_repair_request_unless_taken_on(shop: Shop) -> None:
    await shop.asked()
    shop.say("a", boot="boot-2")
    await shop.look()
    assert (shop.state(), shop.tainted()) == ("Degraded", {"a"})  # until it is gone
    listed = await shop.repairs._listed()
    shop.becomes("InProgress")
    assert not await shop.repairs._deleted("a", listed["a"], "it is over")
    await shop.turn()
    assert (shop.request() is not None, shop.reasons()) == (True, ["RepairInProgress"])


async def test_a_fault_that_goes_away_takes_the_request_with_it(shop: Shop) -> None:
    await shop.asked()
    shop.say("a", boot="boot-2")
    await shop.look()
    await shop.turn()
    assert (shop.request(), shop.state(), shop.tainted()) == (None, "Healthy", set())


@pytest.mark.parametrize(("phase", "stays"), [("", False), ("InProgress", True), ("Done", True), ("Failed", True)])
async def test_the_policy_wants_no_repairs_any_more(shop: Shop, phase: str, stays: bool) -> None:
    await shop.asked()
    if phase:
        shop.becomes(phase)
        await shop.turn()
    shop.policy()
    await shop.look()
    await shop.turn()
    assert (shop.request() is not None) is stays
    shop.say("a", boot="boot-2")
    if phase == "InProgress":
        await shop.turn()
        assert shop.reasons() == ["RepairInProgress"]
        shop.becomes("Done")
    if phase != "Failed":
        await shop.turn(4, LOOK_SECONDS)
        assert (shop.state(), shop.request()) == ("Healthy", None)
        assert not shop.nodes.worlds.knows_of_repairs()  # nothing is read any more
    else:
        await shop.turn(4, LOOK_SECONDS)
        assert (shop.state(), shop.reasons()) == ("Degraded", ["RepairFailed"])


async def test_a_failed_repair_stays_until_its_request_is_deleted(shop: Shop) -> None:
    """The repair is requested anew then."""
    await shop.asked()
    shop.becomes("Failed", "no answer from the BMC")
    await shop.turn(3, LOOK_SECONDS)
    assert set(shop.reasons()) == {"RepairFailed"}
    assert ("a", "RepairFailed") in shop.told.reasons
    assert "kubectl delete repairrequest a" in shop.status("a")["message"]
    del shop.api.objects[KIND, "a"]
    await shop.turn()
    found = shop.request()
    assert found is not None
    assert "status" not in found


async def test_somebody_deletes_what_is_in_progress(shop: Shop) -> None:
    await shop.asked()
    shop.becomes("InProgress")
    await shop.turn()
    shop.say("a", boot="boot-2")
    await shop.look()
    del shop.api.objects[KIND, "a"]
    await shop.turn(1)
    assert shop.reasons() == ["RepairNotVerified"]
    await shop.turn(3, LOOK_SECONDS)
    assert shop.state() == "Healthy"


async def test_the_node_goes_while_it_is_repaired_and_comes_back(shop: Shop) -> None:
    await shop.asked()
    shop.becomes("InProgress")
    await shop.turn()
    node = shop.api.objects["nodes", "a"]
    shop.cluster.nodes.store.assume_deleted(("", "a"), "a")
    await shop.look()
    await shop.turn(3, 3600)
    assert shop.request() is not None
    shop.api.put("nodes", {**node, "metadata": {**node["metadata"], "uid": "another"}})
    await shop.look()
    await shop.turn()
    assert shop.reasons() == ["RepairInProgress"]


async def test_the_request_of_a_node_that_is_gone_for_good_is_deleted(shop: Shop) -> None:
    await shop.asked()
    shop.becomes("InProgress")
    await shop.turn()
    shop.cluster.nodes.store.assume_deleted(("", "a"), "a")
    await shop.look()
    await shop.turn(2, 1.1 * 86400)
    assert shop.request() is None
    await shop.turn(1)
    assert not shop.repairs._words


@pytest.mark.parametrize("phase", ["InProgress", "Done", ""])
async def test_a_request_that_cannot_be_read(shop: Shop, phase: str) -> None:
    await shop.asked()
    found = shop.request()
    assert found is not None
    broken = {**found, "spec": {**found["spec"], "action": "Demolish"}, "status": {"phase": phase} if phase else {}}
    shop.api.put(KIND, broken, show=False)
    await shop.turn()
    now = shop.request()
    if phase == "InProgress":
        assert now == broken
        assert "cannot be read" in json.dumps(shop.status("a"))
    else:
        assert now is not None  # it was asked for anew
        assert now["spec"]["action"] == "Reboot"


async def test_what_goes_wrong_at_one_node_ends_nothing_for_others(shop: Shop) -> None:
    shop.add("b")
    shop.say("a", 79)
    shop.say("b", 79)
    await shop.look()
    await shop.turn(1)
    shop.api.fails["a"] = [ServerError(500, "", "not made")] * 1
    await shop.turn(1)
    assert (shop.request("a"), shop.request("b") is None) == (None, False)
    await shop.turn(1)
    assert shop.request("a") is not None


async def test_a_request_of_which_the_answer_was_lost_is_met_again(shop: Shop) -> None:
    shop.say("a", 79)
    await shop.look()
    await shop.turn(1)
    case = shop.repairs._case("a")
    assert case is not None
    await shop.api.post(f"/x/{KIND}", {"metadata": {"name": "a"}, "spec": case.spec().to_json()})
    await shop.repairs._create("a")
    await shop.turn()
    assert shop.api.count("POST", KIND) == 2
    assert shop.reasons() == ["RepairRequested"]


async def test_no_more_at_once_than_the_policy_says(shop: Shop) -> None:
    shop.policy(repair={"actions": ["Reboot"], "maxConcurrent": 2})
    for name in ("a", "b", "c", "d"):
        shop.add(name)
        shop.say(name, 79)
    await shop.look()
    await shop.turn(5)
    there = [name for kind, name in shop.api.objects if kind == KIND]
    assert len(there) == 2
    shop.becomes("Done", name=there[0])
    await shop.turn()
    assert len([name for kind, name in shop.api.objects if kind == KIND]) == 3


async def test_a_quiet_fleet_costs_one_call_a_look(shop: Shop) -> None:
    await shop.asked()
    await shop.turn()
    shop.api.calls.clear()
    await shop.turn(5)
    assert [call[:2] for call in shop.api.calls] == [("LIST", KIND)] * 5


@settings(max_examples=5)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=20, max_size=60))
def test_whatever_anybody_does_nobody_is_disturbed_and_nobody_is_held_for_ever(steps: list[str]) -> None:
    """A hundred such lives: tests/unit/nightly/controller/test_repairs.py."""
    live_through(steps)
