"""What a waiting job is told: exact words, one row each."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.lifecycle.builders import GPU, a_job, a_node, at, tainted
from tests.unit.queueing.builders import NEEDS, answers, queue, tree, wants

from muster.api.fleetpolicy import Binding, FleetPolicySpec, NodePool
from muster.api.trainingjob import TrainingJob, TrainingJobStatus, Waiting
from muster.placement.eligibility import IN_USE, OUTSIDE_SCOPE, Requirements, refusal
from muster.placement.names import reserved_refusal
from muster.queueing import explain
from muster.queueing.enabling import NotEnabled
from muster.queueing.limits import OverLimit
from muster.queueing.queue import Behind
from muster.queueing.remedies import remedies
from muster.world.fleet import Fleet
from muster.world.queuedecision import (
    DomainCount,
    LentNodes,
    Nearest,
    NotPlaced,
    Payer,
    Placed,
    QueueDecision,
    Refusal,
    RefusalKind,
    RefusedNodes,
    Shortfall,
)

CORDONED, NOT_READY = Refusal(RefusalKind.CORDONED, "cordoned"), Refusal(RefusalKind.NOT_READY, "not ready")
SICK, PORT_DOWN = (Refusal(RefusalKind.UNHEALTHY, f"unhealthy ({what})") for what in ("Xid79", "IbPortDown"))
FAILED = Refusal(RefusalKind.AVOIDED_AFTER_FAILURE, "avoided after a failure there")
EDIT = "(kubectl edit fleetpolicy default)"
AGAIN = "(delete the job and create it again)"


def with_accelerators(there: int) -> Refusal:
    """The refusal of nodes that have so many, and fewer than the job asks for."""
    return Refusal(RefusalKind.TOO_FEW_ACCELERATORS, f"with {there}, fewer than 16 {GPU}", str(there))


def short(
    needs: int,
    free: int,
    suitable: int,
    domains: Iterable[tuple[str, int, int]] | None = None,
    inside: str | None = None,
    segment_size: int = 1,
    refused: Mapping[Refusal, int] | None = None,
    holders: Mapping[str, int] | None = None,
    ever: bool = True,
    named: Mapping[Refusal, tuple[str, ...]] | None = None,
    fewer: int | None = None,
    more_holders: int = 0,
    held_by_more: int = 0,
) -> Shortfall:
    """The numbers of a fleet of 64 nodes, all in the nearest domain where one is needed."""
    counts = tuple(DomainCount(*domain) for domain in ([("", free, suitable)] if domains is None else domains))
    several = tuple(RefusedNodes(why, count, (named or {}).get(why, ())) for why, count in (refused or {}).items())
    able = [domain for domain in counts if domain.suitable >= needs]
    domain = max(able, key=lambda d: d.free, default=None) or max(counts, key=lambda d: d.suitable, default=None)
    nearest = Nearest(domain, several, holders or {}, more_holders, held_by_more)
    room = (domain.free if ever else domain.suitable) if domain else 0
    fewer = (0 if segment_size > 1 else min(room, needs - 1)) if fewer is None else fewer
    return Shortfall(
        needs, inside, segment_size, 64, suitable, free, several, holders or {}, counts, nearest, ever, fewer
    )


def lacking(shortfall: Shortfall | None, reason: str = "InsufficientNodes") -> NotPlaced:
    return NotPlaced(reason, "needs nodes: there are too few", shortfall)


def over(**changes: Any) -> OverLimit:
    values = {
        "reason": "NamespaceLimit",
        "message": "needs 16 nodes: too many",
        "namespace": "team-a",
        "limit": 64,
        "held": 64,
        "needs": 16,
        "adds": 16,
        "fits": True,
    }
    return OverLimit(**(values | changes))


def of(nodes: int = 16, segment_size: int | None = None) -> TrainingJob:
    return a_job("mine", nodes=nodes, placement={"segmentSize": segment_size} if segment_size else {})


def in_namespace(job: TrainingJob, namespace: str) -> TrainingJob:
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"namespace": namespace})})


CASES = yaml.safe_load((Path(__file__).parents[2] / "data/queueing/remedies.yaml").read_text())
REFUSALS = {
    "outside": OUTSIDE_SCOPE,
    "in use": IN_USE,
    "cordoned": CORDONED,
    "not ready": NOT_READY,
    "Xid79": SICK,
    "IbPortDown": PORT_DOWN,
}


def answer_of(case: dict[str, Any]) -> NotPlaced:
    """The answer of a case: over a limit, behind others, or too few nodes."""
    numbers = case.get("short")
    if numbers is not None:
        refused = {REFUSALS.get(why) or with_accelerators(why): n for why, n in numbers.get("refused", {}).items()}
        named = {REFUSALS[why]: tuple(nodes) for why, nodes in numbers.get("named", {}).items()}
        numbers = short(**{**numbers, "refused": refused, "named": named})
    if "limit" in case:
        return over(**case["limit"], shortfall=numbers)
    if "behind" in case:
        return Behind("BehindInQueue", "", numbers, case["behind"])
    return lacking(numbers, case.get("reason", "InsufficientNodes"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_would_help(case: dict[str, Any]) -> None:
    job = case.get("job", {})
    assert remedies(of(job.get("nodes", 16), job.get("segmentSize")), answer_of(case)) == case["remedies"]


NODE = a_node("n0", allocatable={GPU: 8, "memory": 100})
DIRECT = FleetPolicySpec(pools=[NodePool(name="all", binding=Binding.DIRECT)])
ASKS_FOR_MEMORY = replace(NEEDS, requests={"memory": 200})


@pytest.mark.parametrize(
    ("node", "needs", "changes", "expected"),
    [
        pytest.param(replace(NODE, unschedulable=True), NEEDS, {}, "uncordon 1 node", id="cordoned"),
        pytest.param(replace(NODE, ready=False), NEEDS, {}, "bring back 1 node that is not ready", id="not ready"),
        pytest.param(
            NODE, NEEDS, {"lease_age_seconds": {"n0": 99.0}}, "bring back 1 node without a heartbeat", id="no heartbeat"
        ),
        pytest.param(
            tainted(NODE, "sick"),
            NEEDS,
            {},
            f"take the taint sick off 1 node, or tolerate it in spec.template {AGAIN}",
            id="taint",
        ),
        pytest.param(
            NODE,
            replace(NEEDS, template_spec={"nodeSelector": {"zone": "a"}}),
            {},
            f"let the node selector and affinity of spec.template admit 1 more node {AGAIN}",
            id="selector",
        ),
        pytest.param(
            NODE,
            ASKS_FOR_MEMORY,
            {},
            f"request less memory in spec.template, for 1 node with too little {AGAIN}",
            id="too little",
        ),
        pytest.param(
            NODE,
            replace(NEEDS, requests={"memory": 60}),
            {"used": {"n0": {"memory": 50}}},
            "other pods give back memory on 1 node",
            id="too little left",
        ),
        pytest.param(
            NODE,
            replace(NEEDS, scheduler_for="volume data"),
            {"policy": DIRECT},
            f"set binding Scheduler for 1 node in FleetPolicy, or leave volume data out of spec.template {AGAIN}",
            id="bound directly",
        ),
        pytest.param(NODE, replace(NEEDS, accelerators=16), {}, None, id="too few accelerators: nothing to do"),
        pytest.param(NODE, NEEDS, {"holders": {"n0": {"other"}}}, None, id="in use: its holder is named instead"),
        pytest.param(
            NODE,
            replace(NEEDS, avoid={"n0": Refusal(RefusalKind.AVOIDED_BY_SPEC, "in spec.placement.avoidNodes")}),
            {},
            "take 1 node out of spec.placement.avoidNodes",
            id="avoided by wish",
        ),
        pytest.param(
            NODE,
            replace(NEEDS, avoid={"n0": FAILED}),
            {},
            "wait until 1 node that failed lately is taken again, ten minutes after the failure",
            id="avoided after a failure",
        ),
        pytest.param(
            NODE,
            replace(NEEDS, avoid={"n0": reserved_refusal("default/big")}),
            {},
            "default/big starts or is deleted (1 node is reserved for it)",
            id="reserved",
        ),
    ],
)
def test_each_reason_of_a_node_has_its_remedy(
    node: Any, needs: Requirements, changes: dict[str, Any], expected: str | None
) -> None:
    why = refusal(node, needs, Fleet.from_parts({"n0": node}, **changes), "me")
    assert why
    told = remedies(of(4), lacking(short(4, 0, 64, refused={why: 1})))
    assert told == ["4 more nodes that it can use", *([expected] if expected else [])]


def test_several_nodes() -> None:
    refused = {NOT_READY: 2, FAILED: 3, reserved_refusal("default/big"): 4}
    assert remedies(of(4), lacking(short(4, 0, 64, refused=refused)))[1:] == [
        "bring back 2 nodes that are not ready",
        "wait until 3 nodes that failed lately are taken again, ten minutes after the failure",
        "default/big starts or is deleted (4 nodes are reserved for it)",
    ]


def test_the_numbers_of_a_waiting_job() -> None:
    shortfall = short(
        16,
        40,
        60,
        [("b3", 14, 16)],
        inside="block",
        segment_size=2,
        refused={IN_USE: 20, CORDONED: 4, reserved_refusal("default/big"): 5},
        holders={"default/llama": 12, "default/tiny": 3},
    )
    told = explain.waiting(of(), QueueDecision(3, 12, lacking(shortfall), reserved=7), at(5))
    assert told.model_dump(exclude={"remedies"}) == {
        "needs": 16,
        "level": "block",
        "segment_size": 2,
        "position": 3,
        "queued": 12,
        "fleet": 64,
        "suitable": 60,
        "free": 40,
        "reserved": 7,
        "domains": [{"domain": "b3", "free": 14, "suitable": 16}],
        "blockers": [
            {"reason": "in use by default/llama", "nodes": 12},
            {"reason": "in use by others", "nodes": 5},
            {"reason": "reserved for default/big", "nodes": 5},
            {"reason": "cordoned", "nodes": 4},
            {"reason": "in use by default/tiny", "nodes": 3},
        ],
        "since": at(5),
    }
    assert told.remedies[0] == "2 more nodes in block b3"


def test_a_holder_that_nobody_names_is_in_use() -> None:
    told = explain.waiting(of(), QueueDecision(1, 1, lacking(short(16, 1, 60, refused={IN_USE: 20}))), at(0))
    assert [(b.reason, b.nodes) for b in told.blockers] == [("in use", 20)]


@pytest.mark.parametrize(
    ("answer", "reason", "nodes"),
    [
        pytest.param(over(), "limit of namespace team-a: 64, 64 held", 16, id="over the limit"),
        pytest.param(
            over(held=60, needs=4, adds=4, kept_for={"team-a/big": 32}),
            "limit of namespace team-a: 64, 60 held",
            32,
            id="behind",
        ),
    ],
)
def test_a_limit_blocks_so_many_nodes(answer: OverLimit, reason: str, nodes: int) -> None:
    told = explain.waiting(of(), QueueDecision(1, 1, answer), at(0))
    assert [(b.reason, b.nodes) for b in told.blockers] == [(reason, nodes)]
    assert told.needs == answer.needs


def test_a_job_without_numbers_says_what_its_spec_says() -> None:
    job = a_job("mine", nodes=6, placement={"required": "rack", "segmentSize": 3})
    told = explain.waiting(job, QueueDecision(1, 1, lacking(None)), at(0))
    assert (told.needs, told.level, told.segment_size, told.fleet, told.domains) == (6, "rack", 3, 0, [])


def test_a_promise_has_nothing_to_unblock() -> None:
    told = explain.waiting(of(2), QueueDecision(1, 2, Placed(("a", "b"), ("c",))), at(0))
    assert (told.needs, told.blockers, told.remedies) == (3, [], [])


def test_the_wait_began_when_it_was_first_told() -> None:
    turn = QueueDecision(1, 1, lacking(None))
    first = explain.waiting(of(), turn, at(5))
    job = of().model_copy(update={"status": TrainingJobStatus(waiting=first)})
    assert first.since == at(5)
    assert explain.waiting(job, turn, at(5) + timedelta(hours=1)).since == at(5)


def test_everything_stays_within_the_bounds_of_the_fields() -> None:
    many = {Refusal(RefusalKind.TAINTED, f"taint {'x' * 700}{n}", f"{'x' * 700}{n}"): 2 for n in range(50)}
    domains = [("/".join(["d" * 63] * 16), n, 99) for n in range(40)]
    shortfall = short(64, 9, 99, domains, inside="rack", refused=many, holders={"h" * 600: 4})
    answer = NotPlaced("InsufficientNodes", "m" * 3000, shortfall)
    told = explain.waiting(of(64), QueueDecision(1, 2, answer), at(0))
    assert Waiting.model_validate(told.to_json()) == told
    assert (len(told.domains), len(told.blockers), len(told.remedies)) == (16, 32, 8)
    assert told.blockers[-1].reason == "20 more reasons"
    assert told.remedies[-1] == "48 more; the blockers say what else keeps nodes from it"
    assert sum(blocker.nodes for blocker in told.blockers) == 4 + 2 * 50
    assert len(explain.message(of(64), QueueDecision(1, 2, answer))) <= 1024


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        pytest.param(
            QueueDecision(3, 12, NotPlaced("InsufficientNodes", "needs 16 nodes: 14 are free", short(16, 14, 20))),
            "needs 16 nodes: 14 are free; would help: 2 more nodes that it can use; number 3 of 12 in the queue",
            id="in a queue",
        ),
        pytest.param(
            QueueDecision(1, 1, NotPlaced("InsufficientNodes", "needs 16 nodes: 14 are free.", short(16, 14, 20))),
            "needs 16 nodes: 14 are free; would help: 2 more nodes that it can use",
            id="alone",
        ),
        pytest.param(
            QueueDecision(1, 1, lacking(None), lent=LentNodes(2, at(0))),
            "needs nodes: there are too few; 2 nodes of what is reserved for it are lent to jobs that have passed it, "
            "until 2026-01-01 00:00 UTC at the latest",
            id="nodes are lent",
        ),
        pytest.param(
            QueueDecision(1, 1, lacking(None), no_backfill_until=at(0)),
            "needs nodes: there are too few; backfill is closed to namespace default until 2026-01-01 00:00 UTC: 3 "
            "estimates were too short within a day",
            id="backfill is closed",
        ),
        pytest.param(
            QueueDecision(1, 1, lacking(None), preempts_from=at(0)),
            "needs nodes: there are too few; jobs of lower priority keep their nodes for a while "
            "(spec.queueing.preemption of FleetPolicy default), the first of them until 2026-01-01 00:00 UTC",
            id="it may preempt none yet",
        ),
        pytest.param(
            QueueDecision(9, 9, lacking(None), too_many_before=True),
            "needs nodes: there are too few; it preempts no job yet: too many jobs before it do, or lack nodes "
            "(docs/queueing.md); number 9 of 9 in the queue",
            id="too many preempt before it",
        ),
        pytest.param(
            QueueDecision(2, 2, Behind("BehindInQueue", "needs 1 node: it is reserved for default/a", None, {})),
            "needs 1 node: it is reserved for default/a; number 2 of 2 in the queue; to pass where it ends before the "
            "reserved nodes are needed, give it an estimate (spec.queueing.expectedDurationSeconds)",
            id="behind another",
        ),
        pytest.param(QueueDecision(1, 1, lacking(None)), "needs nodes: there are too few", id="nothing is known"),
        pytest.param(
            QueueDecision(1, 1, NotPlaced("NeverFits", "needs 16 nodes: 9 are suitable", short(16, 4, 9, ever=False))),
            f"needs 16 nodes: 9 are suitable; would help: lower spec.nodes to 9 {AGAIN}",
            id="never",
        ),
        pytest.param(QueueDecision(1, 1, Placed(("a",))), "1 node is promised to it", id="promised one"),
        pytest.param(QueueDecision(1, 2, Placed(("a",), ("b",))), "2 nodes are promised to it", id="promised two"),
    ],
)
def test_the_condition_says_it_in_one_sentence(turn: QueueDecision, expected: str) -> None:
    assert explain.message(of(), turn) == expected


@pytest.mark.parametrize(
    ("may_pass", "said"),
    [
        (True, "it passes where, as far as is known, it ends before the reserved nodes are needed"),
        (
            False,
            "it does not pass: its spec.queueing.expectedDurationSeconds is used up (raise it), or its gang was not "
            "assembled",
        ),
    ],
)
def test_a_job_with_an_estimate_is_told_whether_it_passes(may_pass: bool, said: str) -> None:
    behind = Behind("BehindInQueue", "needs 1 node: it is reserved for default/a", None, {}, may_pass)
    job = a_job("mine", queueing={"expectedDurationSeconds": 3600})
    assert explain.message(job, QueueDecision(1, 1, behind)) == f"{behind.message}; {said}"


@pytest.mark.parametrize("replacement", [True, False])
def test_a_gang_that_lacks_a_node_is_not_told_how_to_pass(replacement: bool) -> None:
    waiting = wants("first", 2, replacement=True), wants("last", 1, seconds=1, replacement=replacement)
    last = list(answers(tree("b1/r1:1+3"), queue(*waiting)).values())[-1]
    assert isinstance(last, Behind)
    assert ("to pass where it ends" in explain.message(of(), QueueDecision(2, 2, last))) is not replacement


def test_only_a_sentence_that_alone_is_too_long_is_cut() -> None:
    told = explain.message(of(), QueueDecision(1, 2, NotPlaced("InsufficientNodes", "m" * 3000, short(16, 14, 20))))
    assert len(told) == 1024
    assert told.endswith("m…; 2 hints left out")


def test_hints_are_left_out_before_the_sentence_is_cut() -> None:
    space = "n" * 63
    before = [wants(letter * 40, 2, namespace=space, required="rack") for letter in "abcd"]
    racks = "b1/r1:1+1 b2/r1:1+1 b3/r1:1+1 b4/r1:1+1"
    behind = answers(tree(racks), queue(*before, wants("mine", 1, namespace=space)))["mine"]
    assert isinstance(behind, Behind)
    assert len(behind.reserved_for) == 4
    full = QueueDecision(5, 10000, behind, Payer.NAMESPACE, 1, at(0), LentNodes(10000, at(0)), at(0))
    told = explain.message(in_namespace(of(1), space), full)
    assert told.startswith(f"{behind.message}; ")
    assert f"; would help: {space}/" in told, "what helps matters most"
    assert f"; namespace {space} stands behind other namespaces and preempts none, " in told, "then why it is last"
    assert told.endswith("; number 5 of 10000 in the queue; 2 hints left out")
    assert len(told) <= 1024


@pytest.mark.parametrize(("length", "is_cut"), [(900, False), (1006, False), (1007, True)])
def test_the_longest_names_of_objects_leave_the_sentence_whole(length: int, is_cut: bool) -> None:
    sentence = f"needs 1 node: ResourceQuota {'q' * 253} of namespace {'n' * 63} has no room".ljust(length, "r")
    full = QueueDecision(5, 10000, NotPlaced("QuotaExceeded", sentence), Payer.NAMESPACE, 1, at(0), LentNodes(9, at(0)))
    told = explain.message(of(1), full)
    assert (len(told) > 1024, told.startswith(sentence)) == (False, not is_cut)


def test_what_a_plan_says_of_a_limit_is_explained() -> None:
    jobs = queue(wants("first", 3, namespace="team-a"), wants("mine", 4, namespace="team-a"))
    answer = answers(tree("b1/r1:12"), jobs, {"team-a": 8}, {"team-a": 2})["mine"]
    assert explain.message(of(4), QueueDecision(2, 2, answer)) == (
        "needs 4 nodes: namespace team-a holds 5 of the 8 that its limit allows; would help: raise the limit of "
        "namespace team-a from 8 to 9 (kubectl edit fleetpolicy default) or wait until its jobs release 1 node; "
        "number 2 of 2 in the queue"
    )


def test_a_job_in_a_namespace_that_is_not_enabled_names_the_command() -> None:
    remedy = "an administrator enables it: kubectl label namespace team-a muster.dev/training=enabled"
    closed = {"team-a": NotEnabled("NotEnabled", "namespace team-a is not enabled for training", remedy=remedy)}
    answer = answers(tree("b1/r1:12"), [wants("mine", 4, namespace="team-a")], closed=closed)["mine"]
    decision = QueueDecision(1, 1, answer)
    assert explain.message(of(4), decision) == (f"namespace team-a is not enabled for training; would help: {remedy}")
    waiting = explain.waiting(of(4), decision, at(0))
    assert (waiting.needs, waiting.remedies, waiting.blockers) == (4, [remedy], [])
