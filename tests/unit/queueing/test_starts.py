"""When waiting jobs start: what they wait for, in which order, what is said where it is not known, and to whom."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_fleet, a_node, at
from tests.unit.queueing.builders import queue, tree, wants
from tests.unit.queueing.planned import plan

from muster.placement.parts import at_once
from muster.queueing import starts as module
from muster.queueing.ends import EndBasis, JobEnd, RemainingTime
from muster.queueing.limits import OverLimit
from muster.queueing.preemption import Borrower, Preemption, Victim, WaitingForPreemption
from muster.queueing.queue import NamespaceRules, order, plan_steps
from muster.queueing.starts import Ends, start_times
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import LendingTerms, NotPlaced, Placed, StartEstimate

NOW = at(0)
HOUR = 3600.0


def busy(text: str, **counts: str) -> Fleet:
    """A fleet as of `tree`, of which the nodes named in `counts` are held by the jobs of these names."""
    fleet = tree(text)
    for job, nodes in counts.items():
        fleet.names[f"uid-of-{job}"] = f"default/{job}"
        fleet.occupy(job, f"uid-of-{job}", frozenset(nodes.split()))
    return fleet


def starts(fleet: Fleet, jobs: list[WaitingJob], *said: Any, **also: Any) -> dict[str, tuple[float | None, str]]:
    """The estimates by job, as seconds from now and the reason; see `estimates`."""
    found = estimates(fleet, jobs, *said, **also)
    return {
        uid.removeprefix("uid-of-"): (None if one.time is None else (one.time - NOW).total_seconds(), one.reason)
        for uid, one in found.items()
    }


def estimates(
    fleet: Fleet,
    jobs: list[WaitingJob],
    ends: Mapping[str, float | JobEnd] | None = None,
    lasts: Mapping[str, float] | None = None,
    limits: Mapping[str, int] | None = None,
    held: Mapping[str, int] | None = None,
    giving: Mapping[str, Borrower] | None = None,
    outranked: Mapping[str, Victim] | None = None,
) -> dict[str, StartEstimate]:
    """The estimates by the uid of the job.

    Args:
        ends: when running jobs end, in seconds from now by their steps; of the others it is not known.
        lasts: for how long waiting jobs would hold nodes.
        giving: running jobs that may have to give way.
        outranked: running jobs whose nodes priority may take.
    """
    unknown = JobEnd(None, None, "")

    def of_holder(holder: str) -> JobEnd:
        end = (ends or {}).get(holder.removeprefix("uid-of-"), unknown)
        return end if isinstance(end, JobEnd) else JobEnd(at(end), EndBasis.STEPS, "")

    def of_waiting(uid: str) -> RemainingTime:
        seconds = (lasts or {}).get(uid.removeprefix("uid-of-"))
        return RemainingTime(seconds, EndBasis.EXPECTED if seconds is not None else None, "")

    borrowers = {f"uid-of-{name}": holder for name, holder in (giving or {}).items()}
    preemption = Preemption(borrowers, {f"uid-of-{name}": it for name, it in (outranked or {}).items()}, NOW)
    answers = dict(
        filter(None, plan_steps(fleet, jobs, NamespaceRules(limits or {}, held or {}), preemption=preemption))
    )
    queued = [(job, answers[job.job_uid].answer) for job in order(jobs)]
    return at_once(start_times(fleet, queued, Ends(of_holder, of_waiting), preemption, NOW))


GIVES_WAY = Borrower("default/p", at(0))
LENT = replace(GIVES_WAY, place=(0, at(5), "p"), lent_until=at(1800))
TWO = busy("b1/r1:4", a="b1-r1-0 b1-r1-1", b="b1-r1-2 b1-r1-3")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (2, (600, "default/a ends by its step rate")),
        (3, (HOUR, "default/b ends by its step rate")),
        (4, (HOUR, "default/b ends by its step rate")),
    ],
)
def test_it_waits_for_the_last_of_the_nodes_that_it_needs(nodes: int, said: tuple[float, str]) -> None:
    assert starts(TWO, [wants("job", nodes)], {"a": 600, "b": HOUR}) == {"job": said}


@pytest.mark.parametrize(
    ("job", "lends"),
    [
        pytest.param(wants("job", 2, seconds=9), (600, 0), id="it needs all that are free then"),
        pytest.param(wants("job", 1, seconds=9), (600, 1), id="one is left"),
        pytest.param(wants("job", 3, seconds=9), (HOUR, 1), id="one is left later"),
        pytest.param(wants("job", 1, required="rack", seconds=9), (600, 0), id="in its domain"),
        pytest.param(wants("job", 2, segment_size=2), None, id="segments are not counted"),
        pytest.param(wants("job", 5, seconds=1), (HOUR, 0), id="who has passed it is not asked"),
        pytest.param(wants("job", 7, seconds=1), (2 * HOUR, 0), id="nor is it once its nodes are no longer lent"),
    ],
)
def test_to_which_jobs_it_lends(job: WaitingJob, lends: tuple[float, int] | None) -> None:
    nodes = {name: f"b1-r1-{number} b1-r2-{number}" for number, name in enumerate("abps")}
    ends = {"a": 600, "b": 2 * HOUR, "p": HOUR}
    giving = {"p": LENT, "s": replace(LENT, lent_until=NOW)}
    found = estimates(busy("b1/r1:4 b1/r2:4", **nodes), [job], ends, giving=giving)["uid-of-job"]
    assert found.lends == (None if lends is None else LendingTerms(at(lends[0]), at(lends[0]), lends[1]))


@pytest.mark.parametrize(("days", "until"), [(6.9, 2 * HOUR), (7.1, 1800)])
def test_after_a_week_it_lends_only_until_it_can_start(days: float, until: float) -> None:
    giving = {"p": replace(LENT, place=(0, at(0), "p"))}
    job = wants("job", 2, seconds=-days * 86400)
    ends = {"a": 600, "p": 2 * HOUR}
    found = estimates(busy("b1/r1:2", a="b1-r1-0", p="b1-r1-1"), [job], ends, giving=giving)["uid-of-job"]
    assert (found.time, found.reason) == (at(1800), "nodes are lent to default/p until then")
    assert found.lends == LendingTerms(at(2 * HOUR), at(until))


@pytest.mark.parametrize(("ends", "extra_nodes"), [({"p": 300}, 1), ({}, 0)])
def test_nodes_that_are_lent_no_longer_are_left_if_their_job_ends_by_then(
    ends: dict[str, float | JobEnd], extra_nodes: int
) -> None:
    giving = {"p": replace(LENT, lent_until=NOW)}
    fleet = busy("b1/r1:4", a="b1-r1-0 b1-r1-1", p="b1-r1-2 b1-r1-3")
    found = estimates(fleet, [wants("job", 3)], {"a": 600, **ends}, giving=giving)["uid-of-job"]
    assert found.lends == LendingTerms(at(600), at(600), extra_nodes)


def test_the_nodes_that_a_job_counts_on() -> None:
    jobs = queue(wants("first", 2, required="rack"), wants("second", 2, required="rack"), wants("third", 4))
    fleet = busy("b1/r1:2 b1/r2:2", a="b1-r1-0", b="b1-r2-0 b1-r2-1")
    found = estimates(fleet, jobs, {"a": HOUR, "b": 600}, {"first": 100, "second": 100})
    counted = {"first": {"b1-r2-0", "b1-r2-1"}, "second": set(), "third": {"b1-r1-0", "b1-r1-1"}}
    assert {uid.removeprefix("uid-of-"): set(one.nodes) for uid, one in found.items()} == counted


def test_the_domain_that_is_free_first_counts() -> None:
    fleet = busy("b1/r1:2 b1/r2:2", a="b1-r1-0", b="b1-r2-0 b1-r2-1")
    job = wants("job", 2, required="rack")
    assert starts(fleet, [job], {"a": HOUR, "b": 600}) == {"job": (600, "default/b ends by its step rate")}
    assert starts(fleet, [job], {"b": 600}) == {"job": (600, "default/b ends by its step rate")}


def test_segments_need_whole_ones_in_a_domain() -> None:
    fleet = busy("b1/r1:3 b1/r2:3", a="b1-r1-0", b="b1-r1-1 b1-r2-0 b1-r2-1")
    ends = {"a": 600, "b": HOUR}
    assert starts(fleet, [wants("job", 2, segment_size=2)], ends)["job"][0] == 600
    assert starts(fleet, [wants("job", 4, segment_size=2)], ends)["job"][0] == HOUR


def test_jobs_behind_wait_for_those_before_them() -> None:
    jobs = queue(wants("first", 4), wants("second", 2), wants("third", 4))
    assert starts(TWO, jobs, {"a": 600, "b": HOUR}, {"first": 100, "second": 50}) == {
        "first": (HOUR, "default/b ends by its step rate"),
        "second": (
            HOUR + 100,
            "default/first, before it in the queue, has started, and ends by its expectedDurationSeconds",
        ),
        "third": (
            HOUR + 150,
            "default/second, before it in the queue, has started, and ends by its expectedDurationSeconds",
        ),
    }


def test_what_is_reserved_is_not_taken_before() -> None:
    fleet = busy("b1/r1:3 b1/r2:2", a="b1-r2-0 b1-r2-1")
    jobs = queue(wants("first", 4), wants("second", 1))
    ends = dict.fromkeys(("first", "second"), (600, "default/a ends by its step rate"))
    assert starts(fleet, jobs, {"a": 600}) == ends


def test_segments_keep_no_more_than_they_need() -> None:
    fleet = busy("b1/r1:3 b1/r2:2", a="b1-r2-0 b1-r2-1")
    jobs = queue(wants("first", 4, segment_size=2), wants("second", 1))
    assert starts(fleet, jobs, {"a": 600}).keys() == {"first"}, "the other one is given a node now"


KNOWN = "set spec.queueing.expectedDurationSeconds there"


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (JobEnd(None, None, ""), f"when default/b ends is not known: {KNOWN}"),
        (
            JobEnd(None, EndBasis.EXPECTED, "", at(-1200)),
            "default/b should have ended at 2025-12-31 23:40 UTC by its expectedDurationSeconds: raise "
            "spec.queueing.expectedDurationSeconds there",
        ),
        (
            JobEnd(None, EndBasis.STEPS, "", at(-1200)),
            "default/b should have ended at 2025-12-31 23:40 UTC by its step rate",
        ),
        (JobEnd(None, EndBasis.STEPS, ""), "when default/b ends is not known: it makes no steps"),
    ],
    ids=["unknown", "overdue", "overdue by its steps", "no steps"],
)
def test_an_end_that_is_not_known_is_named(end: JobEnd, says: str) -> None:
    assert starts(TWO, [wants("job", 4)], {"a": 600, "b": end}) == {"job": (None, says)}


def test_a_job_behind_it_says_so() -> None:
    jobs = queue(wants("first", 4), wants("second", 1))
    assert starts(TWO, jobs, {"a": 600})["second"] == (
        None,
        "when default/first starts, before it in the queue, is not known",
    )
    assert starts(TWO, jobs, {"a": 600, "b": 700})["second"] == (
        None,
        f"when default/first, before it in the queue, ends is not known: {KNOWN}",
    )


def test_names_of_other_namespaces_are_hidden() -> None:
    jobs = queue(wants("first", 3, viewer="team-b"), wants("second", 1, viewer="team-b"))
    hidden = starts(TWO, jobs, {"a": 600, "b": 700}, {"first": 100})
    assert [reason for _, reason in hidden.values()] == [
        "jobs of other namespaces end by their step rate",
        "jobs of other namespaces end by their step rate",
    ]
    third = starts(TWO, [*jobs, wants("third", 4, viewer="team-b")], {"a": 600, "b": 700}, {"first": 100, "second": 1})
    words = "jobs of other namespaces, before it in the queue, have started, and end by their expectedDurationSeconds"
    assert third["third"] == (800, words)
    assert starts(TWO, jobs)["first"] == (None, "when jobs of other namespaces end is not known")


def test_pods_that_hold_nodes() -> None:
    fleet = tree("b1/r1:2")
    fleet.occupy("p", "pod/default/notebook", frozenset({"b1-r1-0"}))
    assert starts(fleet, [wants("job", 2)]) == {"job": (None, "when pod default/notebook ends is not known")}


def test_without_waiting_for_nodes_there_is_no_estimate() -> None:
    jobs = queue(wants("limited", 3), wants("huge", 5), wants("other", 4, namespace="b"))
    assert starts(TWO, jobs, {"a": 600, "b": 700}, limits={"default": 2}) == {
        "limited": (None, "it is not known for how long NamespaceLimit keeps it waiting"),
        "huge": (None, "it is not known for how long NeverFits keeps it waiting"),
        "other": (700, "default/b ends by its step rate"),
    }


@pytest.mark.parametrize(
    ("before", "estimated"),
    [
        ([NotPlaced("InsufficientNodes", "")], 16),
        ([NotPlaced("NeverFits", "")], 17),
        ([NotPlaced("NotEnabled", "")] * 20, 32),
        ([OverLimit("BehindInQueue", "")] * 3, 19),
        ([Placed(("n0",), ())], 16),
        ([WaitingForPreemption("WaitingForPreemption", "")], 16),
    ],
)
def test_which_jobs_have_an_estimate(before: list[Placed | NotPlaced], estimated: int) -> None:
    answers = before + [NotPlaced("TopologyUnsatisfied", "")] * 40
    waiting = [(wants(f"job-{number}", 1), answer) for number, answer in enumerate(answers)]
    found = module.jobs_to_estimate(waiting)
    assert found[:16] == waiting[:16]
    assert found[16:] == waiting[max(16, len(before)) :][: estimated - 16]


LIMITED = busy("b1/r1:9", a="b1-r1-0 b1-r1-1", b="b1-r1-2 b1-r1-3 b1-r1-4 b1-r1-5")


@pytest.mark.parametrize(
    ("nodes", "ends", "said"),
    [
        (2, {"a": 600, "b": HOUR}, (600, "its namespace is at its limit until default/a ends by its step rate")),
        (3, {"a": 600, "b": HOUR}, (HOUR, "its namespace is at its limit until default/b ends by its step rate")),
        (3, {"a": 600}, (None, f"its namespace is at its limit, and when default/b ends is not known: {KNOWN}")),
        (6, {"a": 600, "b": HOUR}, (HOUR, "its namespace is at its limit until default/b ends by its step rate")),
    ],
)
def test_a_limit_has_room_once_jobs_of_the_namespace_end(
    nodes: int, ends: dict[str, float], said: tuple[float | None, str]
) -> None:
    assert starts(LIMITED, [wants("job", nodes)], ends, limits={"default": 6}, held={"default": 6}) == {"job": said}


def test_the_jobs_of_a_namespace_at_its_limit_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 1)
    job, asked = wants("job", 2), [0]

    def of_holder(_: str) -> JobEnd:
        asked[-1] += 1
        return JobEnd(None, None, "")

    (answer,) = plan(LIMITED, [job], NamespaceRules({"default": 6}, {"default": 6})).values()
    ends = Ends(of_holder, lambda _: RemainingTime(None, None, ""))
    asked.extend(0 for _ in start_times(LIMITED, [(job, answer.answer)], ends, Preemption(), NOW))
    assert (sum(asked), max(asked)) == (2, 1)


def test_a_limit_alone_may_not_be_what_it_waits_for() -> None:
    fleet = busy("b1/r1:4", a="b1-r1-0 b1-r1-1")
    fleet.names["uid-of-x"] = "other/x"
    fleet.occupy("x", "uid-of-x", frozenset({"b1-r1-2", "b1-r1-3"}))
    job = [wants("job", 3)]
    limits, held = {"default": 3}, {"default": 2}
    assert starts(fleet, job, {"a": 600, "x": HOUR}, limits=limits, held=held) == {
        "job": (HOUR, "other/x ends by its step rate")
    }
    assert starts(fleet, job, {"a": 600}, limits=limits, held=held)["job"][0] is None


def test_a_job_that_is_placed_has_none_and_takes_its_nodes() -> None:
    jobs = queue(wants("first", 1), wants("second", 4))
    assert starts(tree("b1/r1:4"), jobs, lasts={"first": 60}) == {
        "second": (60, "default/first, before it in the queue, has started, and ends by its expectedDurationSeconds"),
    }


def test_replacements_come_first_and_have_none() -> None:
    jobs = [wants("gang", 2, replacement=True), wants("job", 2)]
    assert list(starts(TWO, jobs, {"a": 600, "b": HOUR}).items()) == [
        ("job", (HOUR, "default/b ends by its step rate"))
    ]


AFTER_A_SAVE = (0, "other jobs give way after a save")


def test_a_job_behind_does_not_have_what_another_gives_way_for() -> None:
    fleet = busy("b1/r1:4", a="b1-r1-0", p="b1-r1-1 b1-r1-2 b1-r1-3")
    jobs = queue(wants("first", 2), wants("second", 1), wants("third", 1))
    assert starts(fleet, jobs, {"a": 600}, {"first": HOUR}, giving={"p": GIVES_WAY}) == {
        "first": AFTER_A_SAVE,
        "second": AFTER_A_SAVE,
        "third": (600, "default/a ends by its step rate"),
    }


def test_what_a_job_leaves_beside_is_free_for_all() -> None:
    fleet = busy("b1/r1:4", a="b1-r1-0", p="b1-r1-1 b1-r1-2 b1-r1-3")
    jobs = [*queue(wants("first", 2)), replace(wants("spot", 1), preemptible=True)]
    found = starts(fleet, jobs, {"a": 600}, giving={"p": GIVES_WAY})
    assert found == {"first": AFTER_A_SAVE, "spot": AFTER_A_SAVE}


@pytest.mark.parametrize(
    ("holder", "job", "seconds"),
    [
        pytest.param(GIVES_WAY, wants("job", 4), 600, id="to a job that is not preemptible"),
        pytest.param(GIVES_WAY, replace(wants("job", 4), preemptible=True), HOUR, id="to no preemptible job"),
        pytest.param(replace(GIVES_WAY, place=(0, at(5), "p")), wants("job", 4, seconds=1), 600, id="to an older job"),
        pytest.param(replace(GIVES_WAY, place=(0, at(5), "p")), wants("job", 4, seconds=9), HOUR, id="to no younger"),
        pytest.param(
            replace(GIVES_WAY, leaves=True), replace(wants("job", 4), preemptible=True), 600, id="it leaves already"
        ),
        pytest.param(LENT, wants("job", 4, seconds=1), 1800, id="once what was lent to it is over"),
        pytest.param(LENT, wants("job", 4, seconds=9), HOUR, id="which is nothing to a younger one"),
    ],
)
def test_a_job_counts_as_gone_for_those_to_which_it_gives_way(
    holder: Borrower, job: WaitingJob, seconds: float
) -> None:
    fleet = busy("b1/r1:4", a="b1-r1-0", p="b1-r1-1 b1-r1-2 b1-r1-3")
    assert starts(fleet, [job], {"a": 600, "p": HOUR}, giving={"p": holder})["job"][0] == seconds


@pytest.mark.parametrize(
    ("job", "changes", "said"),
    [
        ({}, {}, (1800, "default/p keeps its nodes until then, and has lower priority")),
        ({"preempts_by": ""}, {}, (HOUR, "default/p ends by its step rate")),
        ({}, {"priority": 9}, (HOUR, "default/p ends by its step rate")),
        ({}, {"exempt_until": at(2 * HOUR)}, (HOUR, "default/p ends by its step rate")),
        ({}, {"exempt_until": NOW}, (600, "default/a ends by its step rate")),
    ],
    ids=["later", "not by its class", "a like one", "it ends before", "once there are enough"],
)
def test_a_job_counts_as_gone_once_priority_may_take_its_nodes(
    job: dict[str, Any], changes: dict[str, Any], said: tuple[float, str]
) -> None:
    fleet = busy("b1/r1:4", a="b1-r1-0", p="b1-r1-1 b1-r1-2 b1-r1-3")
    victim = replace(Victim("default/p", 0, 3, placed=at(-60), exempt_until=at(1800)), **changes)
    urgent = replace(wants("job", 4, priority=9), **{"preempts_by": "urgent"} | job)
    assert starts(fleet, [urgent], {"a": 600, "p": HOUR}, outranked={"p": victim}) == {"job": said}


URGENT = replace(wants("job", 4, priority=9), preempts_by="urgent")
OUTRANKED = {"p": Victim("default/p", 0, 3, placed=at(-60), exempt_until=at(1800))}
MOST = busy("b1/r1:4", a="b1-r1-0", p="b1-r1-1 b1-r1-2 b1-r1-3")


def test_a_job_that_will_preempt_lends_until_it_does() -> None:
    found = estimates(MOST, [URGENT], {"a": 600, "p": HOUR}, outranked=OUTRANKED)["uid-of-job"]
    assert found.lends == LendingTerms(at(1800), at(1800))


def test_who_is_preempted_for_a_job_has_left_for_those_behind_it() -> None:
    jobs = [replace(URGENT, request=replace(URGENT.request, count=2)), wants("behind", 1, seconds=1)]
    found = starts(MOST, jobs, {"p": HOUR}, {"job": 9 * HOUR}, outranked=OUTRANKED)
    assert found == {
        "job": (1800, "default/p keeps its nodes until then, and has lower priority"),
        "behind": (1800, "default/p gives way to a job before it in the queue then"),
    }


def test_the_plan_knows_why_it_preempts_no_job_now() -> None:
    """The nodes are those of a job of a namespace in which another one waits for its limit."""
    now = {"p": replace(OUTRANKED["p"], name="team-b/p", exempt_until=NOW)}
    jobs = [wants("over", 1, priority=10, namespace="team-b"), URGENT]
    found = starts(MOST, jobs, {"a": 0, "p": HOUR}, limits={"team-b": 3}, held={"team-b": 3}, outranked=now)
    assert found["job"] == (HOUR, "default/p ends by its step rate")


def test_a_job_that_waits_for_what_is_lent_knows_to_which_job() -> None:
    found = starts(busy("b1/r1:2", p="b1-r1-0"), [wants("job", 2, seconds=1)], {"p": HOUR}, giving={"p": LENT})
    assert found == {"job": (1800, "nodes are lent to default/p until then")}


@pytest.mark.parametrize(("leaves", "seconds"), [(True, 0), (False, HOUR)])
def test_a_limit_is_waited_for_until_jobs_leave(leaves: bool, seconds: float) -> None:
    fleet = busy("b1/r1:4", p="b1-r1-0 b1-r1-1")
    holder = replace(GIVES_WAY, leaves=leaves)
    found = starts(
        fleet,
        [wants("job", 2)],
        {"p": HOUR},
        limits={"default": 2},
        held={"default": 2},
        giving={"p": holder},
    )
    assert found["job"][0] == seconds


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(
    sizes=SIZES,
    racks=st.lists(st.booleans(), min_size=6, max_size=6),
    ends=st.lists(st.integers(0, 10**9) | st.none(), min_size=4, max_size=4),
    lasts=st.lists(st.integers(-100, 10**9) | st.none(), min_size=6, max_size=6),
    later=st.integers(0, 10**6),
)
def test_never_in_the_past_and_no_sooner_for_later_ends(
    sizes: list[int], racks: list[bool], ends: list[int | None], lasts: list[int | None], later: int
) -> None:
    nodes = [a_node(f"n{number}", "b1", f"r{number % 2}") for number in range(8)]
    fleet = a_fleet(nodes, holders={node.name: {f"h{number // 2}"} for number, node in enumerate(nodes)})
    jobs = queue(
        *(
            wants(f"job-{number}", size, required="rack" if rack else None)
            for number, (size, rack) in enumerate(zip(sizes, racks, strict=False))
        )
    )
    known = {f"h{number}": float(end) for number, end in enumerate(ends) if end is not None}
    for_long = {f"job-{number}": float(last) for number, last in enumerate(lasts) if last is not None}

    def first(shift: float) -> float:
        found = starts(fleet, jobs, {name: end + shift for name, end in known.items()}, for_long)
        assert all(seconds is None or seconds >= 0 for seconds, _ in found.values())
        assert all(reason for _, reason in found.values())
        seconds = found["job-0"][0]
        return float("inf") if seconds is None else seconds

    assert first(0) <= first(later)


def test_the_reason_stays_while_time_goes_on() -> None:
    first, later = (
        starts(TWO, [wants("job", 3)], {"a": 600 - passed, "b": HOUR - passed})["job"] for passed in (0, 60)
    )
    assert first[1] == later[1]
    assert timedelta(seconds=first[0] or 0) - timedelta(seconds=later[0] or 0) == timedelta(seconds=60)
