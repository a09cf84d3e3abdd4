"""What the loop over nodes makes of jobs' failures: from the records that the operator has, to placement and
Events."""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.controller.failing_jobs import Jobs, an_owner_who_fails_everywhere_costs_little
from tests.unit.controller.health_stage import NOW

from muster.api.gang import Gang
from muster.controller import failurereports
from muster.controller import nodereconciler as module
from muster.world.fleet import Suspicion


@pytest.fixture
def jobs() -> Jobs:
    made = Jobs()
    made.policy()
    made.add("n0", "n1", "n2", "n3")
    return made


async def test_a_pool_tests_no_more_nodes_at_once_than_its_budget(jobs: Jobs) -> None:
    """The next nodes have their turn after that."""
    jobs.policy(budgets=[{"nodes": "50%", "windowSeconds": 600}])
    for number in range(4):
        for owner in "ab":
            jobs.job(f"team-{owner}/job-{number}", (f"n{number}", NOW))
    await jobs.look()
    assert [jobs.status(f"n{number}")["reason"] for number in range(4)] == ["CheckRequested"] * 4
    doubts = {node: doubt for node in ("n0", "n1", "n2", "n3") if (doubt := jobs.doubt(node)) is not None}
    first = {node for node, doubt in doubts.items() if doubt.wants_check}
    assert (len(doubts), len(first)) == (4, 2)
    await jobs.look()
    assert {node for node in doubts if jobs.doubt(node) == Suspicion(NOW, True)} == first, "they keep their turns"
    jobs.now += timedelta(minutes=1)
    for node in first:
        jobs.passed[node] = jobs.now
        jobs.nodes.reconciler.checker_heard(node)
    await jobs.look()
    assert {node for node in doubts if jobs.doubt(node) == Suspicion(NOW, True)} == doubts.keys() - first


async def test_of_nodes_that_ask_at_once_those_with_the_first_names_are_tested_first(jobs: Jobs) -> None:
    """And not those that were noticed first: the order of a set of names differs from process to process."""
    names = [f"n{number:02}" for number in range(16)]
    jobs.add(*names)
    jobs.policy(budgets=[{"nodes": "4", "windowSeconds": 600}])
    await jobs.look()
    jobs.nodes.queue._clock = itertools.count().__next__
    for name in reversed(names):
        for owner in "ab":
            jobs.job(f"team-{owner}/job-{name}", (name, NOW))
    await jobs.look()
    assert [name for name in names if jobs.doubt(name) == Suspicion(NOW, True)] == names[:4]


async def test_failures_of_two_owners_ask_for_a_check_and_take_no_node_out(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW))
    await jobs.look()
    assert (jobs.doubt("n1"), jobs.api.calls) == (None, [])
    jobs.job("team-b/gpt", ("n1", NOW))
    await jobs.look()
    status = jobs.status("n1")
    assert (status["state"], status["reason"], status["effect"]) == ("Suspect", "CheckRequested", "")
    assert jobs.doubt("n1") == Suspicion(NOW, True)
    assert (jobs.tainted(), list(jobs.cluster.fleet.excluded), status["incidents"]) == (set(), [], [])
    assert jobs.cluster.fleet.node_fault("n1") == ""
    assert [jobs.doubt(node) for node in ("n0", "n2", "n3")] == [None] * 3


async def test_one_owner_makes_it_suspect(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW), ("n1", NOW))
    await jobs.look()
    assert (jobs.status("n1")["state"], jobs.status("n1")["reason"]) == ("Suspect", "FollowedByFailures")
    assert jobs.doubt("n1") == Suspicion(NOW)


async def test_what_failed_is_told_to_those_who_may_see_it_and_to_nobody_else(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.job("team-b/gpt", ("n1", NOW), signal=11, exit_code=None)
    await jobs.look()
    status = jobs.status("n1")
    (finding,) = status["findings"]
    assert "team-a/llama attempt 1 RankFailed (exit code 1)" in finding["message"]
    assert "team-b/gpt attempt 1 RankFailed (signal 11)" in finding["message"]
    assert "secret" not in finding["message"]
    assert jobs.words
    for text in (status["message"], *(note for _, _, note in jobs.words)):
        assert "llama" not in text
        assert "gpt" not in text
    assert {reason for _, reason, _ in jobs.words} == {"NodeSuspect"}


async def test_an_event_tells_when_a_check_is_asked_for_of_a_node_that_was_suspect_before(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW), ("n1", NOW))
    await jobs.look()
    jobs.job("team-b/gpt", ("n1", NOW))
    await jobs.look()
    about_node = [note for kind, _, note in jobs.words if kind == "Node"]
    assert [note.partition(":")[0] for note in about_node] == ["FollowedByFailures", "CheckRequested"]


async def test_a_job_that_crashes_everywhere_takes_back_what_it_said(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW), ("n1", NOW))
    await jobs.look()
    assert jobs.doubt("n1") is not None
    jobs.job("team-a/llama", ("n1", NOW), ("n1", NOW), ("n2", NOW), ("n3", NOW))
    await jobs.look()
    assert [jobs.doubt(f"n{i}") for i in range(4)] == [None] * 4
    assert jobs.status("n1").get("state") is None


async def test_it_is_remembered_when_the_job_is_gone_until_it_has_faded(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.gone("team-a/llama")
    jobs.job("team-b/gpt", ("n1", NOW))
    jobs.gone("team-b/gpt")
    await jobs.look()
    assert jobs.doubt("n1") == Suspicion(NOW, True)
    jobs.now += timedelta(hours=47)
    await jobs.look()
    assert jobs.doubt("n1") == Suspicion(NOW, True)
    jobs.now += timedelta(hours=2)
    await jobs.look()
    assert (jobs.doubt("n1"), jobs.status("n1").get("state")) == (None, None)
    assert jobs.nodes.engine.moments() == []


async def test_a_thorough_test_that_is_passed_answers_it(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.job("team-b/gpt", ("n1", NOW))
    await jobs.look()
    jobs.now += timedelta(hours=1)
    jobs.passed["n1"] = jobs.now
    jobs.nodes.reconciler.checker_heard("n1")
    await jobs.look()
    assert (jobs.doubt("n1"), jobs.status("n1").get("state")) == (None, None)
    jobs.job("team-b/gpt", ("n1", NOW), ("n1", NOW + timedelta(hours=2)))
    jobs.now += timedelta(hours=2)
    await jobs.look()
    assert jobs.doubt("n1") is None, "one failure since"


async def test_a_policy_that_only_observes_avoids_nothing(jobs: Jobs) -> None:
    jobs.policy(enforcement="Observe")
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.job("team-b/gpt", ("n1", NOW))
    await jobs.look()
    assert (jobs.status("n1")["state"], jobs.doubt("n1")) == ("Suspect", None)


async def test_a_warning_of_the_agent_makes_another_node_the_better_choice_too(jobs: Jobs) -> None:
    jobs.say("n2", 92)
    await jobs.look()
    assert jobs.doubt("n2") == Suspicion()
    jobs.say("n2")
    await jobs.look()
    assert jobs.doubt("n2") is None


async def test_a_node_that_is_gone_and_one_whose_name_comes_back(jobs: Jobs) -> None:
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.job("team-b/gpt", ("n1", NOW))
    jobs.job("team-c/x", ("nowhere", NOW))
    await jobs.look()
    jobs.cluster.nodes.store.assume_deleted(("", "n1"), "n1")
    await jobs.look()
    assert jobs.doubt("n1") is None
    jobs.now += timedelta(minutes=1)
    jobs.api.put("nodes", {"metadata": {"name": "n1", "uid": "another"}, "spec": {}})
    await jobs.look()
    assert "n1" in jobs.cluster.fleet.nodes
    assert jobs.doubt("n1") is None, "nobody knows that it is the same machine"
    jobs.job("team-a/bert", ("n1", jobs.now + timedelta(seconds=1)))
    jobs.job("team-b/bert", ("n1", jobs.now + timedelta(seconds=1)))
    jobs.now += timedelta(minutes=1)
    await jobs.look()
    assert jobs.doubt("n1") is not None


async def test_what_was_said_of_another_machine_does_not_count(jobs: Jobs) -> None:
    jobs.say("n1")
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.job("team-b/gpt", ("n1", NOW))
    await jobs.look()
    assert jobs.doubt("n1") == Suspicion(NOW, True)
    jobs.say("n1", boot="boot-2")
    await jobs.look()
    assert jobs.doubt("n1") == Suspicion(NOW, True), "a boot repairs nothing"
    jobs.now += timedelta(minutes=1)
    known = jobs.api.objects["nodehealths", "n1"]
    agent = {**known["status"]["agent"], "systemUuid": "another board"}
    jobs.api.put("nodehealths", {**known, "status": {**known["status"], "agent": agent}})
    await jobs.look()
    assert (jobs.doubt("n1"), jobs.status("n1")["state"]) == (None, "Healthy")


async def test_an_exception_about_one_record_ends_nothing(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    words_of = failurereports.failures_that_followed

    def odd(gang: Gang) -> Any:
        if gang.metadata.namespace == "team-x":
            raise ValueError("a defect")
        return words_of(gang)

    monkeypatch.setattr(failurereports, "failures_that_followed", odd)
    jobs.job("team-x/odd", ("n1", NOW))
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.job("team-b/gpt", ("n1", NOW))
    await jobs.look()
    assert jobs.doubt("n1") is not None


async def test_a_new_leader_waits_for_the_checkers_before_it_suspects_anybody_anew(jobs: Jobs) -> None:
    jobs.cluster.fleet.policy  # noqa: B018
    jobs.policy()
    known = jobs.cluster.policies.store.get(("", "default"))
    assert known is not None
    jobs.api.version += 1
    raw = {
        "metadata": {"name": "default", "uid": "policy", "resourceVersion": str(jobs.api.version)},
        "spec": {"preflight": {"profile": "Quick"}},
    }
    jobs.cluster.policies.store.assume(type(known).model_validate(raw))  # type: ignore[union-attr]
    jobs.nodes.failures._leads_since = 0.0
    jobs.job("team-a/llama", ("n1", NOW))
    jobs.job("team-b/gpt", ("n1", NOW))
    await jobs.look()
    assert (jobs.doubt("n1"), jobs.api.calls) == (None, [])
    jobs.clock, jobs.now = 16.0, NOW + timedelta(seconds=16)
    await jobs.look()
    assert jobs.doubt("n1") == Suspicion(NOW, True)


async def test_a_record_that_changes_and_says_nothing_new_has_no_node_judged(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.job("team-a/llama", ("n1", NOW))
    await jobs.look()
    judged: list[str] = []
    monkeypatch.setattr(module, "assess", lambda world: judged.append(world.facts.node.name))
    for _ in range(10):
        jobs.job("team-a/llama", ("n1", NOW))
        await jobs.nodes.reconciler.reconcile()
    assert judged == []


async def test_an_owner_who_fails_everywhere_costs_little_too() -> None:
    """Five hundred jobs: tests/unit/nightly/controller/test_failurereports.py."""
    await an_owner_who_fails_everywhere_costs_little(50)
