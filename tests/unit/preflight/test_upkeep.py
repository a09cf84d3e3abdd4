"""Tests of idle nodes: which are due, what came of them, and who waits."""

from dataclasses import replace

import pytest
from tests.unit.lifecycle.builders import at

from muster.api.nodehealth import CheckOutcome, CheckRequest
from muster.api.preflight import PreflightPolicy, Profile
from muster.preflight.upkeep import IdleNode, Upkeep, plan_upkeep
from muster.preflight.verdict import Outcome
from muster.protocol.checks import READY, UNFIT, CheckAnswer, CheckReport, PassReport, ProbeReport
from muster.world.checks import CheckerView, ProbeThreshold

QUICK = PreflightPolicy(profile=Profile.QUICK)
WISH = CheckRequest(id="w1", profile=Profile.STANDARD, time=at(0))
GEMM = ProbeThreshold("gemm-bf16", "H200", "", "nccl", "1", 660.0, 0.85, 556.0, 0.01, "TFLOP/s", "the fleet's history")
NEW = "new/Quick/8/boot-1/this/"


FINE = (ProbeReport("gemm-bf16", "Result", 664.0, "TFLOP/s"), ProbeReport("context", "Result", 0.4, "s"))


def a_site(name: str = "n1", check_request: CheckRequest | None = None, **said: object) -> IdleNode:
    report = CheckReport(1, "boot-1", READY, identity="this", device="cuda", model="H200", library="nccl", version="1")
    return IdleNode(name, CheckerView(1.0, replace(report, **said)), 8, check_request)  # type: ignore[arg-type]


def answered(order: str, *probes: ProbeReport) -> tuple[CheckAnswer, ...]:
    return (CheckAnswer(order, "Node", "Result", probes=probes, seconds=21.4),)


def idle(granted: str) -> str:
    """The order by which a pass is renewed."""
    (order,) = plan_upkeep([a_site(passes=(PassReport("Quick", 7e5, granted, gpus=8),))], QUICK, ()).checks["n1"].orders
    return order.id


IDLE = idle("g")


@pytest.mark.parametrize(
    ("site", "policy", "order"),
    [
        pytest.param(a_site(), QUICK, NEW, id="it has no pass"),
        pytest.param(a_site(), PreflightPolicy(), None, id="nobody wants that"),
        pytest.param(a_site(check_request=WISH), PreflightPolicy(), "check/w1", id="somebody wishes it"),
        pytest.param(a_site(passes=(PassReport("Quick", 5.0, "g", gpus=8),)), QUICK, None, id="it has passed"),
        pytest.param(a_site(passes=(PassReport("Deep", 5.0, "g", gpus=8),)), QUICK, None, id="it has passed more"),
        pytest.param(a_site(passes=(PassReport("Deep", 5.0, "g", gpus=7),)), QUICK, NEW, id="with fewer GPUs"),
        pytest.param(
            a_site(passes=(PassReport("Quick", 5.0, "g", gpus=8),)),
            PreflightPolicy(profile=Profile.DEEP),
            NEW.replace("Quick", "Deep"),
            id="less",
        ),
        pytest.param(a_site(passes=(PassReport("Quick", 7e5, "g", gpus=8),)), QUICK, IDLE, id="long ago"),
        pytest.param(
            a_site(passes=(PassReport("Quick", 7e5, "g", gpus=8),)),
            PreflightPolicy(profile=Profile.QUICK, idle_max_age_seconds=0),
            None,
            id="long ago, and that does not matter",
        ),
        pytest.param(
            replace(a_site(passes=(PassReport("Quick", 50.0, "g", gpus=8),)), out_of_use=("t1", 40.0)),
            QUICK,
            "new/Quick/8/boot-1/this/t1",
            id="it was taken out since",
        ),
        pytest.param(
            replace(a_site(passes=(PassReport("Quick", 30.0, "g", gpus=8),)), out_of_use=("t1", 40.0)),
            QUICK,
            None,
            id="it has passed since it was taken out",
        ),
        pytest.param(
            replace(a_site(passes=(PassReport("Quick", 4e5, "g", gpus=8),)), offences=0.4),
            QUICK,
            None,
            id="not long ago, even for a machine with an old incident",
        ),
        pytest.param(
            replace(a_site(passes=(PassReport("Quick", 4e5, "g", gpus=8),)), offences=1.0),
            QUICK,
            IDLE,
            id="long ago for a machine with an incident",
        ),
        pytest.param(a_site(state=UNFIT), QUICK, None, id="it cannot"),
        pytest.param(replace(a_site(), view=replace(a_site().view, heard_age_seconds=60.0)), QUICK, None, id="silent"),
    ],
)
def test_what_is_due(site: IdleNode, policy: PreflightPolicy, order: str | None) -> None:
    found = plan_upkeep([site], policy, ())
    assert [each.id for checks in found.checks.values() for each in checks.orders] == ([order] if order else [])
    assert found.idle_results == ()


def test_a_pass_is_granted_first_and_told_once_the_checker_knows() -> None:
    site = a_site(check_request=WISH, answers=answered("check/w1", *FINE))
    found = plan_upkeep([site], QUICK, (GEMM,))
    assert [grant.id for grant in found.checks["n1"].grants] == ["check/w1"]
    assert found.idle_results == ()
    knows = a_site(
        check_request=WISH,
        answers=answered("check/w1", *FINE),
        passes=(PassReport("Standard", 0.1, "check/w1", gpus=8),),
    )
    (idle_result,) = plan_upkeep([knows], QUICK, (GEMM,)).idle_results
    result = idle_result.result(WISH, at(9))
    assert (idle_result.outcome, result.id, result.seconds, result.device) == (Outcome.PASS, "w1", 21, "H200")
    assert [(p.probe, p.outcome, p.value, p.threshold) for p in result.probes] == [
        ("gemm-bf16", CheckOutcome.PASS, "664 TFLOP/s", "561 TFLOP/s (the fleet's history)"),
        ("context", CheckOutcome.PASS, "0.4 s", ""),
    ]


def test_a_failure_names_the_probe_and_grants_nothing() -> None:
    slow = (ProbeReport("gemm-bf16", "Result", 400.0, "TFLOP/s", message="GPU 3"), FINE[1])
    mate = a_site("n2", passes=(PassReport("Quick", 5.0, "g", gpus=8),))
    twice = (*answered("check/w1", *slow), *answered("check/w1/again", *slow))
    found = plan_upkeep([a_site(check_request=WISH, answers=twice), mate], QUICK, (GEMM,))
    (idle_result,) = found.idle_results
    assert found.checks["n1"].grants == ()
    assert idle_result.outcome is Outcome.FAIL
    assert "gemm-bf16 measured 400 TFLOP/s, at least 561 is expected" in idle_result.message
    assert [probe.outcome for probe in idle_result.probes] == [CheckOutcome.FAIL, CheckOutcome.PASS]


@pytest.mark.parametrize(
    "first",
    [ProbeReport("gemm-bf16", "Result", 400.0, "TFLOP/s"), ProbeReport("memory-pattern", "NoResult")],
    ids=["slow", "hung"],
)
@pytest.mark.parametrize("name", ["check/w1", NEW])
def test_who_is_slow_or_hangs_is_asked_once_more_and_the_second_answer_counts(first: ProbeReport, name: str) -> None:
    request = WISH if name == "check/w1" else None
    mate = a_site("n2", passes=(PassReport("Quick", 5.0, "g", gpus=8),))

    def after(*answers: CheckAnswer) -> Upkeep:
        return plan_upkeep([a_site(check_request=request, answers=answers), mate], QUICK, (GEMM,))

    once = after(*answered(name, first))
    assert [order.id for order in once.checks["n1"].orders] == [name, f"{name}/again"]
    assert (once.idle_results, once.checks["n1"].grants) == ((), ())
    (idle_result,) = after(*answered(name, first), *answered(f"{name}/again", first)).idle_results
    assert idle_result.outcome is Outcome.FAIL
    fine = after(*answered(name, first), *answered(f"{name}/again", *FINE))
    assert ([grant.id for grant in fine.checks["n1"].grants], fine.idle_results) == ([f"{name}/again"], ())


def test_what_is_wrong_is_not_asked_for_again() -> None:
    bad = (ProbeReport("bit-exact", "Result", wrong=True), ProbeReport("gemm-bf16", "Result", 400.0, "TFLOP/s"))
    mate = a_site("n2", passes=(PassReport("Quick", 5.0, "g", gpus=8),))
    found = plan_upkeep([a_site(answers=answered(NEW, *bad)), mate], QUICK, (GEMM,))
    assert [idle_result.outcome for idle_result in found.idle_results] == [Outcome.FAIL]
    assert [order.id for order in found.checks["n1"].orders] == [NEW]


def test_what_could_not_run_says_why_and_blames_nobody() -> None:
    used = (ProbeReport("gemm-bf16", "Environment", message="GPU 0 is in use: process 7"),)
    (idle_result,) = plan_upkeep(
        [a_site(check_request=WISH, answers=answered("check/w1", *used))], QUICK, (GEMM,)
    ).idle_results
    assert (idle_result.outcome, idle_result.message) == (Outcome.INCONCLUSIVE, "n1: GPU 0 is in use: process 7")


def test_old_passes_are_renewed_by_a_few_at_a_time_the_oldest_first() -> None:
    sites = [a_site(f"n{i:02}", passes=(PassReport("Quick", 7e5 + i, f"g{i}", gpus=8),)) for i in range(40)]
    assert sorted(plan_upkeep(sites, QUICK, ()).checks) == ["n38", "n39"]
    begun = replace(sites[3], view=replace(sites[3].view, given={idle("g3"): 4.0}))
    assert sorted(plan_upkeep([*sites[:3], begun, *sites[4:]], QUICK, ()).checks) == ["n03", "n39"]


def test_a_machine_with_incidents_goes_first_and_a_recent_one_is_tested_more_deeply() -> None:
    sites = [a_site(f"n{i:02}", passes=(PassReport("Quick", 7e5 + i, f"g{i}", gpus=8),)) for i in range(40)]
    sites[7] = replace(sites[7], offences=0.2)  # a few months ago
    sites[9] = replace(sites[9], offences=0.9)
    checks = plan_upkeep(sites, QUICK, ()).checks
    assert {node: checks[node].orders[0].profile for node in checks} == {"n07": "Quick", "n09": "Standard"}
    deep = plan_upkeep([replace(sites[9])], PreflightPolicy(profile=Profile.DEEP), ()).checks["n09"]
    assert deep.orders[0].profile == "Deep"


@pytest.mark.parametrize(("bad", "outcome"), [(3, Outcome.FAIL), (5, Outcome.INCONCLUSIVE)])
def test_what_fails_on_many_nodes_is_not_the_nodes(bad: int, outcome: Outcome) -> None:
    wrong = (ProbeReport("devices", "Result", wrong=True, message="7 GPUs, expected 8"),)
    sites = [a_site(f"n{i}", answers=answered(NEW, *wrong)) for i in range(bad)]
    sites += [a_site(f"n{i}", passes=(PassReport("Quick", 5.0, "g", gpus=8),)) for i in range(bad, 12)]
    idle_results = plan_upkeep(sites, QUICK, ()).idle_results
    assert {idle_result.outcome for idle_result in idle_results} == {outcome}
    assert [bool(idle_result.fails) for idle_result in idle_results] == [outcome is Outcome.FAIL] * bad
    if outcome is Outcome.INCONCLUSIVE:
        assert idle_results[0].message.startswith(
            "devices fails on 5 of the idle nodes and 7 have passed: it may not be"
        )


def test_nobody_is_blamed_before_anybody_has_passed() -> None:
    wrong = (ProbeReport("devices", "Result", wrong=True, message="7 GPUs, expected 8"),)
    sites = [a_site(f"n{i}", answers=answered(NEW, *wrong)) for i in range(2)]
    assert {idle_result.outcome for idle_result in plan_upkeep(sites, QUICK, ()).idle_results} == {Outcome.INCONCLUSIVE}


def test_what_could_not_be_tested_is_asked_again() -> None:
    used = (ProbeReport("gemm-bf16", "Environment", message="GPU 0 is in use: process 7"),)
    site = a_site(answers=answered(NEW, *used))
    assert plan_upkeep([site], QUICK, ()).checks["n1"].orders
    old = replace(site, view=replace(site.view, given={NEW: 601.0}))
    assert not plan_upkeep([old], QUICK, ()).checks["n1"].orders


def test_a_pass_is_renewed_by_another_order_each_time() -> None:
    granted = ["first"]
    for _ in range(20):
        granted.append(idle(granted[-1]))
    assert len(set(granted)) == len(granted)
    assert max(map(len, granted)) < 64


def test_a_wish_for_a_node_that_cannot_be_tested_is_answered_with_the_reason() -> None:
    site = a_site(check_request=WISH, state=UNFIT, problem="torch cannot be imported: no such file")
    (idle_result,) = plan_upkeep([site], QUICK, ()).idle_results
    assert idle_result.outcome is Outcome.INCONCLUSIVE
    assert idle_result.result(WISH, at(0)).message == (
        "nothing can be tested there: torch cannot be imported: no such file"
    )


STORAGE = ProbeThreshold("storage", "H200", "", "nccl", "1", None, 0.75, 1.0, 0.01, "GB/s", "spec.preflight.limits")
SLOW = (ProbeReport("storage", "Result", 0.1, "GB/s"),)


def failed_once(*others: float, given: dict[str, float] | None = None, answers: tuple[CheckAnswer, ...] = ()) -> Upkeep:
    """A look at a node whose storage was slow in a test given 60 seconds ago, beside others whose passes are so old."""
    site = a_site(answers=(*answered(NEW, *SLOW), *answers))
    site = replace(site, view=replace(site.view, given={NEW: 60.0, **(given or {})}))
    mates = [a_site(f"m{i}", passes=(PassReport("Quick", age, "g", gpus=8),)) for i, age in enumerate(others)]
    return plan_upkeep([site, *mates], QUICK, (STORAGE,))


def test_what_many_share_is_no_fault_of_a_node_while_nobody_else_has_passed_since() -> None:
    found = failed_once(61.0, 7000.0)
    (idle_result,) = found.idle_results
    assert (idle_result.outcome, idle_result.fails) == (Outcome.INCONCLUSIVE, ())
    assert "storage measured 0.1 GB/s" in idle_result.message
    assert "none of them has passed since" in idle_result.message
    assert [order.id for order in found.checks["n1"].orders] == [NEW]


def test_one_that_passes_does_not_speak_for_what_all_use() -> None:
    """Its mount may be missing, so that it writes on a disk of its own."""
    (idle_result,) = failed_once(30.0, 7000.0).idle_results
    assert (idle_result.outcome, idle_result.fails) == (Outcome.INCONCLUSIVE, ())
    assert "only one of them has passed since" in idle_result.message


def test_once_others_have_passed_it_is_asked_again_and_then_it_is_the_node() -> None:
    found = failed_once(30.0, 40.0)
    assert [order.id for order in found.checks["n1"].orders] == [NEW, f"{NEW}/again"]
    assert found.idle_results == ()
    # What has begun goes on, whoever is heard.
    assert failed_once(given={f"{NEW}/again": 5.0}).checks["n1"].orders == found.checks["n1"].orders
    found = failed_once(30.0, 40.0, answers=answered(f"{NEW}/again", *SLOW))
    (idle_result,) = found.idle_results
    assert (idle_result.outcome, [fail.probe for fail in idle_result.fails]) == (Outcome.FAIL, ["storage"])
    fine = (ProbeReport("storage", "Result", 3.0, "GB/s"),)
    granted = failed_once(30.0, 40.0, answers=answered(f"{NEW}/again", *fine)).checks["n1"].grants
    assert [grant.id for grant in granted] == [f"{NEW}/again"]
