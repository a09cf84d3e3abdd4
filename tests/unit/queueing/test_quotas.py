"""ResourceQuotas in the plan: who takes no node, what it is told, and what that costs."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import GPU, a_fleet, a_job, a_node, at
from tests.unit.queueing.builders import queue, told, tree, wants
from tests.unit.queueing.planned import plan

from muster.placement.eligibility import Requirements
from muster.queueing import explain
from muster.queueing.queue import NamespaceRules, plan_steps
from muster.queueing.quotas import PART, Held, NamespaceQuotas, OverQuota, amount_text
from muster.queueing.remedies import remedies
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed, QueueDecision
from muster.world.quotas import QuotaClaim, QuotaView, Scope

GPUS = f"requests.{GPU}"
CLAIM = QuotaClaim({"pods": 1, "count/pods": 1, GPUS: 8, "cpu": 4000, "requests.cpu": 4000})


def quota(hard: Mapping[str, int], used: Mapping[str, int] | None = None, *scopes: Scope, name: str = "q") -> QuotaView:
    return QuotaView("default", name, f"uid-{name}", 1, hard, used or {}, scopes)


def of(*quotas: QuotaView, held: tuple[Held, ...] = ()) -> Callable[[str], NamespaceQuotas]:
    """These are the quotas of the namespace `default`; others have none."""
    return lambda namespace: NamespaceQuotas(quotas, held) if namespace == "default" else NamespaceQuotas()


def counted(name: str, count: int, **changes: Any) -> WaitingJob:
    return replace(wants(name, count, **changes), claim=CLAIM)


def answers(fleet: Fleet, jobs: list[WaitingJob], quotas: Any) -> dict[str, Placed | NotPlaced]:
    turns = plan(fleet, jobs, NamespaceRules(quotas=quotas))
    return {job.name.partition("/")[2]: turns[job.job_uid].answer for job in jobs}


def test_a_job_for_the_fleet_with_quota_for_one_node_keeps_nobody_waiting() -> None:
    """64 nodes, one of them in use by somebody who ends some day: seven others have theirs meanwhile."""
    fleet = tree("b1/r1:56+8")
    greedy = counted("greedy", 64)
    others = [counted(f"other{n}", 8, namespace=f"team-{n}") for n in range(7)]
    found = answers(fleet, queue(greedy, *others), of(quota({GPUS: 8})))
    assert told(found) == {"greedy": "QuotaExceeded", **{f"other{n}": 8 for n in range(7)}}
    without = answers(fleet, queue(greedy, *others), of())
    assert told(without) == {"greedy": "InsufficientNodes", **{f"other{n}": "BehindInQueue" for n in range(7)}}


ROOM = [
    pytest.param({GPUS: 32}, {}, 4, 4, id="room for all"),
    pytest.param({GPUS: 31}, {}, 4, "QuotaExceeded", id="one accelerator too few"),
    pytest.param({GPUS: 32}, {GPUS: 1}, 4, "QuotaExceeded", id="what is used counts"),
    pytest.param({"pods": 3}, {}, 4, "QuotaExceeded", id="pods"),
    pytest.param({"count/pods": 5}, {"count/pods": 2}, 4, "QuotaExceeded", id="count/pods"),
    pytest.param({"requests.cpu": 16000}, {}, 4, 4, id="just enough CPU"),
    pytest.param({"cpu": 15999}, {}, 4, "QuotaExceeded", id="too little CPU"),
    pytest.param({"requests.cpu": 15999}, {}, 4, "QuotaExceeded", id="too little CPU, by its other name"),
    pytest.param({"limits.cpu": 1}, {"limits.cpu": 5}, 4, 4, id="what it does not use, though that is exceeded"),
]


@pytest.mark.parametrize(("hard", "used", "count", "expected"), ROOM)
def test_room(hard: Mapping[str, int], used: Mapping[str, int], count: int, expected: int | str) -> None:
    assert told(answers(tree("b1/r1:8"), [counted("a", count)], of(quota(hard, used)))) == {"a": expected}


def test_a_quota_of_other_pods_does_not_count() -> None:
    narrow = quota({"pods": 0}, {}, Scope("Terminating"))
    assert told(answers(tree("b1/r1:4"), [counted("a", 2)], of(narrow))) == {"a": 2}


def test_the_quota_with_the_least_room_is_named() -> None:
    wide, tight = quota({"pods": 3}, name="wide"), quota({GPUS: 8}, name="tight")
    found = answers(tree("b1/r1:8"), [counted("a", 4)], of(wide, tight))["a"]
    assert isinstance(found, OverQuota)
    assert (found.quota, found.room, found.ever) == ("tight", 1, False)


def test_a_replacement_is_left_to_the_api_server() -> None:
    hurt = counted("hurt", 1, replacement=True)
    assert told(answers(tree("b1/r1:4"), [hurt], of(quota({GPUS: 8}, {GPUS: 8})))) == {"hurt": 1}


def test_a_job_of_which_nothing_is_known_is_left_to_the_api_server() -> None:
    assert told(answers(tree("b1/r1:4"), [wants("a", 2)], of(quota({"pods": 0})))) == {"a": 2}


def test_what_the_plan_has_promised_is_used() -> None:
    jobs = queue(counted("a", 2), counted("b", 2), counted("c", 1))
    assert told(answers(tree("b1/r1:8"), jobs, of(quota({GPUS: 24})))) == {"a": 2, "b": "QuotaExceeded", "c": 1}


SMALL = Requirements(1, {}, {})
ONE_GPU = QuotaClaim({"pods": 1, GPUS: 1})


def one_gpu(name: str, count: int) -> WaitingJob:
    return replace(wants(name, count, needs=SMALL), claim=ONE_GPU)


def test_accelerators_count_by_the_nodes_that_workers_hold() -> None:
    """`gpusPerNode: 1` on nodes of eight: eight GPUs of quota are one node, not eight."""
    jobs = queue(one_gpu("a", 8), one_gpu("b", 1))
    found = answers(tree("b1/r1:8"), jobs, of(quota({GPUS: 8})))
    assert told(found) == {"a": "QuotaExceeded", "b": 1}
    assert isinstance(found["a"], OverQuota)
    assert (found["a"].needed, found["a"].room) == (64, 1)


def test_nodes_of_several_sizes_count_as_what_they_are() -> None:
    nodes = [a_node("small-0", allocatable={GPU: 2}), a_node("small-1", allocatable={GPU: 2}), a_node("big-0")]
    found = answers(a_fleet(nodes), [one_gpu("a", 3)], of(quota({GPUS: 11})))
    assert told(found) == {"a": "QuotaExceeded"}
    assert told(answers(a_fleet(nodes), [one_gpu("a", 3)], of(quota({GPUS: 12})))) == {"a": 3}


def test_a_job_that_would_keep_more_from_others_than_its_quota_allows_keeps_nothing() -> None:
    """By the smallest nodes there would be room, but the template admits large ones alone."""
    small = [a_node(f"small-{n}", allocatable={GPU: 1}) for n in range(4)]
    big = [replace(a_node(f"big-{n}"), labels={"size": "big"}) for n in range(4)]
    fleet = a_fleet([*small, *big], holders={"big-3": {"busy"}})
    needs = Requirements(1, {"nodeSelector": {"size": "big"}}, {})
    first = replace(wants("first", 4, needs=needs), claim=ONE_GPU)
    second = replace(wants("second", 3, needs=needs, namespace="other"), claim=ONE_GPU)
    assert told(answers(fleet, queue(first, second), of(quota({GPUS: 8})))) == {"first": "QuotaExceeded", "second": 3}


def test_gangs_count_with_what_they_hold_beyond_their_pods() -> None:
    held = (Held(ONE_GPU, podless=1, accelerators=15),)  # two nodes of eight, and one pod, which asks for one
    found = answers(tree("b1/r1:8"), [one_gpu("a", 1)], of(quota({GPUS: 24}, {GPUS: 1}), held=held))
    assert told(found) == {"a": 1}
    found = answers(tree("b1/r1:8"), [one_gpu("a", 1)], of(quota({GPUS: 23}, {GPUS: 1}), held=held))
    assert told(found) == {"a": "QuotaExceeded"}
    found = answers(tree("b1/r1:8"), [one_gpu("a", 1)], of(quota({"pods": 2}, {"pods": 1}), held=held))
    assert told(found) == {"a": "QuotaExceeded"}, "the pod that is about to be created counts"


def test_each_namespace_is_asked_once_and_each_quotas_names_are_read_once() -> None:
    """However long the queue is: a tenant may have hundreds of quotas with a thousand names each."""
    asked = Counter[str]()
    read = 0

    class Hard(dict[str, int]):
        def __iter__(self) -> Iterator[str]:
            nonlocal read
            read += 1
            return super().__iter__()

        def items(self) -> Any:
            raise AssertionError("a job's own names are looked up")

    others = {f"count/kind{n}.example.org": 1 for n in range(1000)}

    def quotas(namespace: str) -> NamespaceQuotas:
        asked[namespace] += 1
        return NamespaceQuotas([QuotaView(namespace, "q", "uid", 1, Hard({GPUS: 8, **others}))])

    jobs = queue(*(counted(f"j{n}", 2, namespace=f"team-{n % 5}") for n in range(100)))
    plan(tree("b1/r1:8"), jobs, NamespaceRules(quotas=quotas))
    assert asked == {f"team-{n}": 1 for n in range(5)}
    assert read == 5


def over(**changes: Any) -> OverQuota:
    values = {
        "reason": "QuotaExceeded",
        "message": "needs 16 nodes: too many",
        "quota": "gpus",
        "resource": GPUS,
        "hard": 128,
        "used": 64,
        "needed": 128,
        "needs": 16,
        "room": 8,
        "most": 16,
        "fits": True,
    }
    return OverQuota(**(values | changes))


AGAIN = "(delete the job and create it again)"
REMEDIES = [
    pytest.param(
        over(),
        [
            f"raise {GPUS} of ResourceQuota gpus from 128 to 192 or wait until pods of the namespace release 64",
            f"lower spec.nodes to 8 {AGAIN}",
        ],
        id="others use it up",
    ),
    pytest.param(
        over(hard=64, used=0, most=8),
        [f"raise {GPUS} of ResourceQuota gpus from 64 to 128", f"lower spec.nodes to 8 {AGAIN}"],
        id="larger than the quota",
    ),
    pytest.param(
        over(fits=False, used=128, room=0),
        [
            f"raise {GPUS} of ResourceQuota gpus from 128 to 256 or wait until pods of the namespace release 128; "
            "that alone does not suffice"
        ],
        id="nodes are missing, too",
    ),
    pytest.param(
        over(quota=""),
        ["delete or merge ResourceQuotas of namespace default: there are more than Muster reads"],
        id="more quotas than are read",
    ),
]


@pytest.mark.parametrize(("answer", "expected"), REMEDIES)
def test_remedies(answer: OverQuota, expected: list[str]) -> None:
    assert remedies(a_job("mine", nodes=16), answer) == expected


def test_the_message_names_quota_resource_amounts_and_what_to_do() -> None:
    found = answers(tree("b1/r1:8"), [counted("a", 8)], of(quota({GPUS: 8}, name="gpus")))
    turn, job = QueueDecision(1, 1, found["a"]), a_job("a", nodes=8)
    assert explain.message(job, turn) == (
        f"needs 8 nodes: ResourceQuota gpus of namespace default leaves too little room for {GPUS}: hard 8, used 0, "
        f"needed 64 (a worker holds its node whole, 8 each); would help: raise {GPUS} of ResourceQuota gpus from 8 "
        "to 64"
    )
    shown = explain.waiting(job, turn, at(0))
    assert (shown.needs, shown.position) == (8, 1)
    assert [(each.reason, each.nodes) for each in shown.blockers] == [(f"ResourceQuota gpus: {GPUS} hard 8, used 0", 7)]
    assert shown.remedies[1] == f"lower spec.nodes to 1 {AGAIN}"


def test_the_message_of_a_namespace_with_more_quotas_than_are_read_says_so() -> None:
    unread = replace(quota({"pods": 0}, name=""), problem="namespace default has 65 ResourceQuotas: too many")
    found = answers(tree("b1/r1:8"), [counted("a", 8)], of(unread))
    turn, job = QueueDecision(1, 1, found["a"]), a_job("a", nodes=8)
    assert explain.message(job, turn) == (
        "namespace default has 65 ResourceQuotas: too many; would help: delete or merge ResourceQuotas of namespace "
        "default: there are more than Muster reads"
    )
    assert explain.waiting(job, turn, at(0)).blockers[0].reason == "more ResourceQuotas than Muster reads"


def test_what_many_jobs_hold_is_counted_in_parts() -> None:
    counts = [0]

    def each() -> Iterator[Held]:
        for _ in range(10 * PART):
            counts[-1] += 1
            yield Held(CLAIM, 0, 8)

    quotas = NamespaceQuotas([quota({GPUS: 80 * PART})], each())
    steps = plan_steps(tree("b1/r1:8"), [counted("a", 1)], NamespaceRules(quotas=lambda _: quotas))
    answers = []
    for step in steps:
        answers += [step[1].answer] if step else []
        counts.append(0)
    assert [answer.reason for answer in answers] == ["QuotaExceeded"]
    assert (sum(counts), max(counts)) == (10 * PART, PART)


@pytest.mark.parametrize(
    ("resource", "value", "expected"),
    [
        ("requests.cpu", 1500, "1500m"),
        ("limits.cpu", 64000, "64"),
        ("requests.memory", 64 * 1024**3, "64Gi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("pods", 2048, "2048"),
        (GPUS, 512, "512"),
    ],
)
def test_amounts_in_words(resource: str, value: int, expected: str) -> None:
    assert amount_text(resource, value) == expected
