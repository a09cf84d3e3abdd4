"""Which jobs give way to which, and how many: lent nodes, and nodes of jobs of lower priority. One row each."""

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.lifecycle.builders import a_fleet, a_node, at
from tests.unit.queueing.builders import told, wants
from tests.unit.queueing.outranked_fleets import no_two_jobs_take_turns

from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.placement.space import Space
from muster.queueing.charges import Charged
from muster.queueing.lending import LendingOffer
from muster.queueing.preemption import Borrower, Preemption, Victim, place_of
from muster.queueing.queue import MAX_PREEMPTORS, NamespaceRules, order, plan_steps
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import Backfill, LentNodes, NotPlaced, Placed, Preemptor, Refusal, RefusalKind


def fleet_of(text: str) -> Fleet:
    """`b1/r1:..ab` is a rack with two free nodes, one that job a holds, and one of job b."""
    nodes, holders = [], {}
    for part in text.split():
        path, _, places = part.partition(":")
        block, rack = path.split("/")
        for number, holder in enumerate(places):
            nodes.append(a_node(f"{rack}-{number}", block, rack))
            if holder != ".":
                holders[nodes[-1].name] = {holder}
    fleet = a_fleet(nodes, holders=holders)
    fleet.names.update({name: f"default/{name}" for names in holders.values() for name in names})
    return fleet


def running(*names: str, leaves: str = "") -> Preemption:
    """Preemptible jobs of these names hold nodes, each younger than the one before."""
    jobs = [(name, Borrower(f"default/{name}", at(number), name in leaves)) for number, name in enumerate(names)]
    return Preemption(dict(jobs))


def spot(job: WaitingJob) -> WaitingJob:
    return replace(job, preemptible=True)


def plan(fleet: Fleet, preemption: Preemption, *jobs: WaitingJob) -> Mapping[str, Placed | NotPlaced]:
    waiting = [replace(job, created=at(number)) for number, job in enumerate(jobs)]
    turns = dict(step for step in plan_steps(fleet, waiting, preemption=preemption) if step is not None)
    return {job.name.partition("/")[2]: turns[job.job_uid].answer for job in order(waiting)}


@pytest.mark.parametrize(
    ("fleet", "preemptible", "jobs", "expected"),
    [
        pytest.param(
            "b1/r1:..xx",
            "",
            [wants("big", 4), spot(wants("p", 2))],
            {"big": "InsufficientNodes", "p": 2},
            id="it starts on reserved nodes",
        ),
        pytest.param(
            "b1/r1:..xx",
            "",
            [wants("big", 4), wants("p", 2)],
            {"big": "InsufficientNodes", "p": "BehindInQueue"},
            id="another does not",
        ),
        pytest.param(
            "b1/r1:...",
            "",
            [spot(wants("p", 2)), wants("a", 2)],
            {"a": 2, "p": "InsufficientNodes"},
            id="it stands behind younger jobs",
        ),
        pytest.param(
            "b1/r1:..pp",
            "p",
            [wants("a", 2), wants("b", 2)],
            {"a": 2, "b": "WaitingForPreemption"},
            id="it gives way where too few are free",
        ),
        pytest.param("b1/r1:.xpp", "p", [wants("a", 4)], {"a": "InsufficientNodes"}, id="not where that does not help"),
        pytest.param(
            "b1/r1:ppxx", "p", [spot(wants("q", 2))], {"q": "InsufficientNodes"}, id="not to preemptible jobs"
        ),
        pytest.param(
            "b1/r1:pp..",
            "p",
            [wants("a", 3), spot(wants("q", 2))],
            {"a": "WaitingForPreemption", "q": "InsufficientNodes"},
            id="no free node is given away again for whom it gives way",
        ),
    ],
)
def test_plan(fleet: str, preemptible: str, jobs: list[WaitingJob], expected: Mapping[str, int | str]) -> None:
    giving = running(*preemptible)
    assert told(plan(fleet_of(fleet), giving, *jobs)) == expected
    assert bool(giving.preempted_by) == ("WaitingForPreemption" in expected.values())


@pytest.mark.parametrize(
    ("fleet", "leaves", "expected"),
    [
        pytest.param("b1/r1:aabb..xx", "", "b", id="the younger one"),
        pytest.param("b1/r1:aabb..xx", "a", "a", id="the one that leaves already"),
        pytest.param("b1/r1:aaaabxxx", "", "a", id="the older one where that is enough"),
    ],
)
def test_no_more_give_way_than_have_to(fleet: str, leaves: str, expected: str) -> None:
    giving = running("a", "b", leaves=leaves)
    plan(fleet_of(fleet), giving, wants("c", 4))
    assert giving.preempted_by == {expected: (Preemptor("default/c"),)}


def test_who_gives_way_gives_all_of_its_nodes() -> None:
    giving = running("a", "b")
    found = plan(fleet_of("b1/r1:aaaabbbb"), giving, wants("c", 2), wants("d", 2))
    assert told(found) == {"c": "WaitingForPreemption", "d": "WaitingForPreemption"}
    assert giving.preempted_by == {"b": (Preemptor("default/c"), Preemptor("default/d"))}


def test_its_nodes_count_for_the_limit() -> None:
    jobs = [spot(wants("p", 2)), spot(wants("q", 2))]
    turns = dict(filter(None, plan_steps(fleet_of("b1/r1:...."), jobs, NamespaceRules({"default": 2}))))
    assert told({uid: turn.answer for uid, turn in turns.items()}) == {"uid-of-p": 2, "uid-of-q": "NamespaceLimit"}


def test_who_waits_is_not_told_the_names_of_others() -> None:
    job = wants("c", 4, viewer="team")
    answer = plan(fleet_of("b1/r1:aabb"), running("a", "b"), job)["c"]
    assert isinstance(answer, NotPlaced)
    assert answer.message == "needs 4 nodes: jobs of other namespaces give way to it after a save"


def test_who_waits_is_told_how_many_nodes_the_others_give() -> None:
    answer = plan(fleet_of("b1/r1:aaab"), running("a", "b"), wants("c", 4))["c"]
    assert isinstance(answer, NotPlaced)
    assert answer.message == "needs 4 nodes: default/a (3) and default/b (1) give way to it after a save"


def test_nodes_of_jobs_that_give_way_are_no_nodes_in_use() -> None:
    fleet = fleet_of("b1/r1:.ppxxqq")
    giving = Preemption(running("p").borrowers | {"q": Borrower("default/q", at(0), place=(0, at(0), ""))})
    answer = plan(fleet, giving, wants("c", 5))["c"]
    assert isinstance(answer, NotPlaced)
    short = answer.shortfall
    assert short is not None
    assert (short.free, short.lent, short.holders) == (3, 2, {"default/q": 2, "default/x": 2})
    assert answer.message == (
        "needs 5 nodes: 1 of the fleet's 7 is free and suitable, 2 are held by jobs that give way to it (2 in use by "
        "default/q, 2 in use by default/x)"
    )


def test_what_gives_way_to_another_job_is_reserved_for_that_one() -> None:
    jobs = [wants("a", 1), wants("b", 3, viewer="team")]
    answer = plan(fleet_of("b1/r1:ppxx"), running("p"), *jobs)["b"]
    assert isinstance(answer, NotPlaced)
    assert answer.message == (
        "needs 3 nodes: 0 of the fleet's 4 are free and suitable, 1 is held by jobs that give way to it (2 in use by "
        "jobs of other namespaces, 1 promised to jobs of other namespaces)"
    )


def test_who_has_left_the_nodes_already_is_not_asked_again() -> None:
    preemption = Preemption({"p": Borrower("default/p", at(0), leaves=True, old_nodes=frozenset({"r1-0", "r1-1"}))})
    found = plan(fleet_of("b1/r1:pp b1/r2:p"), preemption, wants("a", 2, required="rack"))
    assert told(found) == {"a": "WaitingForPreemption"}
    assert preemption.preempted_by == {}


@pytest.mark.parametrize("becomes", ["another", ""])
@pytest.mark.parametrize("pauses", range(12))
def test_the_fleet_may_change_in_every_pause(pauses: int, becomes: str) -> None:
    fleet = fleet_of("b1/r1:aabbccdd")
    steps = plan_steps(fleet, [wants("e", 5)], preemption=running(*"abcd"))
    for number, step in enumerate(steps):
        if number == pauses:
            for name, nodes in {name: frozenset(fleet.nodes_of(name)) for name in "abcd"}.items():
                for node in nodes:
                    fleet.occupy((node, name), becomes, frozenset({node} if becomes else ()))
        if step is not None:
            answer = step[1].answer
    reasons = ("WaitingForPreemption", "InsufficientNodes")
    assert answer.reason in reasons if isinstance(answer, NotPlaced) else not becomes


@pytest.mark.parametrize("pauses", range(12))
def test_a_reserved_node_may_become_free_in_every_pause(pauses: int) -> None:
    """It is reserved for the first job as a node that another gives back. The second cannot use the other free one."""
    fleet, avoided = fleet_of("b1/r1:.axx"), Refusal(RefusalKind.AVOIDED_BY_SPEC, "in spec.placement.avoidNodes")
    jobs = [wants("big", 4), wants("small", 1, seconds=1, needs=Requirements(8, {}, {"r1-0": avoided}))]
    for number, step in enumerate(plan_steps(fleet, jobs, preemption=running("a"))):
        if number == pauses:
            fleet.occupy(("r1-1", "a"), "", frozenset())
        if step is not None:
            answer = step[1].answer
            assert isinstance(answer, NotPlaced)
            assert answer.reason in ("InsufficientNodes", "BehindInQueue")


def test_lent_nodes_count_as_free_for_the_choice_of_what_is_reserved() -> None:
    jobs = [wants("big", 4, required="rack"), wants("small", 2)]
    found = plan(fleet_of("b1/r1:.ppx b1/r2:..xx"), running("p"), *jobs)
    assert told(found) == {"big": "TopologyUnsatisfied", "small": 2}
    assert found["small"] == Placed(("r2-0", "r2-1"))


HOUR = 3600.0


def backfill(
    fleet: str, *jobs: WaitingJob, offers: Mapping[str, float | LendingOffer]
) -> Mapping[str, Placed | NotPlaced]:
    """The answers where jobs can start in so many seconds at the earliest, by name."""
    by_uid = {
        f"uid-of-{name}": it if isinstance(it, LendingOffer) else LendingOffer(it, it) for name, it in offers.items()
    }
    waiting = [replace(job, created=at(number)) for number, job in enumerate(jobs)]
    preemption = Preemption(now=at(0))
    turns = dict(filter(None, plan_steps(fleet_of(fleet), waiting, preemption=preemption, offers=by_uid)))
    return {job.name.partition("/")[2]: turns[job.job_uid].answer for job in waiting}


def lasts(job: WaitingJob, seconds: float) -> WaitingJob:
    return replace(job, expected_seconds=seconds)


@pytest.mark.parametrize(
    ("jobs", "offers", "expected"),
    [
        pytest.param([lasts(wants("s", 2), HOUR)], {"big": HOUR}, 2, id="who ends in time passes"),
        pytest.param([lasts(wants("s", 2), HOUR + 1)], {"big": HOUR}, "BehindInQueue", id="not who ends later"),
        pytest.param(
            [lasts(wants("s", 2), HOUR + 1)], {"big": LendingOffer(HOUR, HOUR, 2)}, 2, id="unless it leaves enough"
        ),
        pytest.param(
            [lasts(wants("s", 2), HOUR + 1)], {"big": LendingOffer(HOUR, HOUR, 1)}, "BehindInQueue", id="or too few"
        ),
        pytest.param(
            [wants("s", 2)], {"big": LendingOffer(HOUR, HOUR, 2)}, "BehindInQueue", id="nor without an estimate"
        ),
        pytest.param([wants("s", 2)], {"big": HOUR}, "BehindInQueue", id="not who has no estimate"),
        pytest.param([lasts(wants("s", 2), HOUR)], {}, "BehindInQueue", id="not where no start is known"),
        pytest.param([lasts(wants("s", 3), HOUR)], {"big": HOUR}, "InsufficientNodes", id="not on nodes in use"),
    ],
)
def test_backfill(jobs: list[WaitingJob], offers: Mapping[str, float | LendingOffer], expected: int | str) -> None:
    found = backfill("b1/r1:..xx", wants("big", 4), *jobs, offers=offers)
    assert told(found) == {"big": "InsufficientNodes", "s": expected}
    assert isinstance(found["s"], NotPlaced) or found["s"].backfill


def test_who_backfills_takes_no_node_of_a_job_that_starts_before_it_ends() -> None:
    jobs = [wants("now", 4, required="rack"), wants("later", 4, required="rack"), lasts(wants("s", 2), HOUR)]
    found = backfill("b1/r1:..xx b1/r2:..xx", *jobs, offers={"now": 60.0, "later": HOUR})
    assert found["s"] == Placed(("r2-0", "r2-1"), backfill=Backfill(HOUR, at(HOUR)))


def test_who_backfills_avoids_what_its_spec_avoids() -> None:
    avoided = Refusal(RefusalKind.AVOIDED_BY_SPEC, "in spec.placement.avoidNodes")
    small = lasts(wants("s", 1, needs=Requirements(8, {}, {"r1-0": avoided})), HOUR)
    found = backfill("b1/r1:..xx", wants("big", 4), small, offers={"big": HOUR})
    assert found["s"] == Placed(("r1-1",), backfill=Backfill(HOUR, at(HOUR)))


def test_what_was_reserved_for_a_job_that_has_passed_is_free_for_those_behind() -> None:
    small = [lasts(wants("s", 3), HOUR), lasts(wants("t", 1), HOUR)]
    found = backfill("b1/r1:..xx b1/r2:..xx", wants("big", 4, required="rack"), *small, offers={"big": HOUR})
    assert told(found) == {"big": "TopologyUnsatisfied", "s": 3, "t": 1}


def test_who_backfills_takes_no_node_that_a_job_before_counts_on() -> None:
    soon = LendingOffer(HOUR, HOUR, nodes=frozenset({"r2-0"}))
    jobs = [wants("soon", 4, required="rack"), wants("later", 7), lasts(wants("s", 1), 2 * HOUR)]
    found = backfill("b1/r1:..xx b1/r2:.xxx", *jobs, offers={"soon": soon, "later": 3 * HOUR})
    assert told(found)["s"] == "BehindInQueue", "r2-0 is reserved for the other one"
    found = backfill("b1/r1:..xx b1/r2:.xxx", *jobs, offers={"soon": soon._replace(extra_nodes=1), "later": 3 * HOUR})
    assert found["s"] == Placed(("r2-0",), backfill=Backfill(2 * HOUR, at(HOUR), leaves_enough=True))


@pytest.mark.parametrize(
    ("waited", "passing"),
    [
        pytest.param({"s": 0, "t": 0, "u": 0}, "tu", id="new ones by their length"),
        pytest.param({"s": 9, "t": 0.5, "u": 3}, "su", id="the longest after a wait of three times as long"),
        pytest.param({"s": 6, "t": 1, "u": 1}, "st", id="the longest before the shortest"),
        pytest.param({"s": -3, "t": -2, "u": -1}, "tu", id="by their length where a clock is behind"),
    ],
)
def test_those_pass_first_that_have_waited_longest_for_their_length(waited: Mapping[str, float], passing: str) -> None:
    hours = {"s": 3, "t": 1, "u": 2}
    small = [lasts(wants(name, 1, seconds=-waited[name] * HOUR), hours[name] * HOUR) for name in "stu"]
    waiting = [wants("big", 4, seconds=-99 * HOUR), *small]
    offers, preemption = {"uid-of-big": LendingOffer(9 * HOUR, 9 * HOUR)}, Preemption(now=at(0))
    steps = plan_steps(fleet_of("b1/r1:..xx"), waiting, preemption=preemption, offers=offers)
    answers = {uid: decision.answer for uid, decision in filter(None, steps)}
    assert "".join(name for name in "stu" if isinstance(answers[f"uid-of-{name}"], Placed)) == passing


def test_none_passes_on_the_terms_of_a_job_behind_it() -> None:
    """The one behind waits for a rack that is another than that of the first."""
    first, behind = wants("first", 4, required="rack"), wants("behind", 4, required="rack")
    jobs = first, lasts(wants("s", 1), 2 * HOUR), behind
    begins = {"first": HOUR, "behind": 9 * HOUR}
    assert told(backfill("b1/r1:..xx b1/r2:xxxx", *jobs, offers=begins))["s"] == "BehindInQueue"
    assert told(backfill("b1/r1:..xx b1/r2:xxxx", *jobs, offers=begins | {"first": 3 * HOUR}))["s"] == 1


@pytest.mark.parametrize(("limit", "passing"), [(2, ["s", "t"]), (1, ["s"])])
def test_those_who_pass_keep_their_limit(limit: int, passing: list[str]) -> None:
    small = [lasts(wants(name, 1, namespace="team", seconds=9), seconds) for name, seconds in (("s", HOUR), ("t", 1))]
    offers = {"uid-of-big": LendingOffer(2 * HOUR, 2 * HOUR)}
    steps = plan_steps(
        fleet_of("b1/r1:..xx"), [wants("big", 4), *small], NamespaceRules({"team": limit}), offers=offers
    )
    answers = {uid: decision.answer for uid, decision in filter(None, steps)}
    assert [name for name in "st" if isinstance(answers[f"uid-of-{name}"], Placed)] == passing


def test_all_jobs_that_pass_leave_enough_together() -> None:
    jobs = wants("big", 6), *(lasts(wants(name, 1), 2 * HOUR) for name in "stu"), lasts(wants("in-time", 1), HOUR)
    found = backfill("b1/r1:....xx", *jobs, offers={"big": LendingOffer(HOUR, HOUR, 2)})
    assert told(found) == {"big": "InsufficientNodes", "s": 1, "t": 1, "u": "BehindInQueue", "in-time": 1}
    assert found["t"] == Placed(("r1-2",), backfill=Backfill(2 * HOUR, at(HOUR), leaves_enough=True))


@pytest.mark.parametrize(
    ("big", "lent"),
    [(LendingOffer(90 * HOUR, 90 * HOUR), 48 * HOUR), (LendingOffer(2 * HOUR, 90 * HOUR), 2 * HOUR)],
)
def test_nodes_are_lent_until_the_start_and_for_two_days_at_most(big: LendingOffer, lent: float) -> None:
    found = backfill("b1/r1:..xx", wants("big", 4), lasts(wants("s", 2), 80 * HOUR), offers={"big": big})
    assert found["s"] == Placed(("r1-0", "r1-1"), backfill=Backfill(80 * HOUR, at(lent)))


@pytest.mark.parametrize(
    ("job", "gives"),
    [
        pytest.param(wants("older", 4, seconds=1), False, id="not to the jobs that it has passed"),
        pytest.param(wants("urgent", 4, priority=1), False, id="not by the order of the queue"),
        pytest.param(replace(wants("urgent", 4, priority=1), preempts_by="high"), True, id="to one that preempts it"),
        pytest.param(replace(wants("older", 4, seconds=1), preempts_by="high"), False, id="only a lower priority"),
        pytest.param(wants("a", 4, replacement=True), True, id="to a gang that lacks nodes"),
    ],
)
@pytest.mark.parametrize(("now", "leaves"), [(99, False), (100, False), (99, True)])
def test_who_backfills_keeps_its_nodes_for_as_long_as_they_are_lent(
    job: WaitingJob, gives: bool, now: int, leaves: bool
) -> None:
    holder = Borrower("default/b", at(0), leaves, place=(0, at(5), "default/b"), lent_until=at(100))
    preemption = Preemption({"b": holder}, now=at(now))
    list(plan_steps(fleet_of("b1/r1:..bb"), [job], preemption=preemption))
    assert bool(preemption.preempted_by) == (gives or now >= 100 or leaves)


@pytest.mark.parametrize(
    ("job", "now", "lent"),
    [
        pytest.param(wants("older", 4, seconds=1), 99, LentNodes(2, at(100)), id="for a while"),
        pytest.param(wants("older", 4, seconds=1), 100, None, id="it leaves now"),
        pytest.param(wants("younger", 4, seconds=9), 99, None, id="it has not passed this one"),
    ],
)
def test_who_waits_knows_what_is_lent_of_its_nodes(job: WaitingJob, now: int, lent: LentNodes | None) -> None:
    holder = Borrower("default/b", at(0), place=(0, at(5), "default/b"), lent_until=at(100))
    steps = plan_steps(fleet_of("b1/r1:..bb"), [job], preemption=Preemption({"b": holder}, now=at(now)))
    assert dict(filter(None, steps))[job.job_uid].lent == lent


def test_what_is_lent_counts_as_reserved() -> None:
    lent = Borrower("default/p", at(0), place=(0, at(5), "default/p"), lent_until=at(100))
    jobs = [wants("big", 4, required="rack"), wants("small", 2)]
    found = plan(fleet_of("b1/r1:.ppx b1/r2:..xx"), Preemption({"p": lent}, now=at(0)), *jobs)
    assert found["small"] == Placed(("r2-0", "r2-1"))


@pytest.mark.parametrize(
    ("job", "gives"),
    [
        pytest.param(wants("older", 4, seconds=1), True, id="to an older job"),
        pytest.param(wants("younger", 4, seconds=9), False, id="to no younger one"),
        pytest.param(wants("urgent", 4, seconds=9, priority=1), True, id="to one of higher priority"),
        pytest.param(spot(wants("spot", 4, seconds=1)), False, id="to no preemptible one"),
    ],
)
def test_who_backfills_gives_way_to_jobs_before_it(job: WaitingJob, gives: bool) -> None:
    holder = Borrower("default/b", at(0), place=(0, at(5), "default/b"))
    preemption = Preemption({"b": holder})
    list(plan_steps(fleet_of("b1/r1:..bb"), [job], preemption=preemption))
    assert preemption.preempted_by == ({"b": (Preemptor(job.name),)} if gives else {})


def test_each_of_several_jobs_has_those_that_give_way_to_it() -> None:
    passed = {name: Borrower(f"default/{name}", at(0), place=(0, at(int(name)), f"default/{name}")) for name in "258"}
    kept = Borrower("default/6", at(0), place=(0, at(6), "default/6"), lent_until=at(100))
    preemption = Preemption({"p": Borrower("default/p", at(0)), "6": kept, **passed}, now=at(50))
    for seconds, owing in ((4, "568p"), (1, "2568p"), (7, "8p"), (9, "p"), (4, "568p")):
        job = wants("a", 4, seconds=seconds)
        assert preemption.owing(job) == {*owing}
        assert preemption.owing_now(job) == {*owing} - {"6"}
        assert preemption.owing_now(replace(job, replacement=True)) == {*"2568p"}
        assert preemption.owing_now(replace(job, priority=1, preempts_by="high")) == {*"2568p"}
    assert not preemption.owing(spot(wants("spot", 4)))


def test_a_gang_that_waits_for_a_replacement_does_not_give_way_to_itself() -> None:
    job = wants("b", 1, kept=("r1-0",), replacement=True)
    own = Borrower(job.name, at(0), place=place_of(job))
    other = Borrower("default/c", at(0), place=(0, at(99), "default/c"))
    assert Preemption({job.job_uid: own, "other": other}).owing_now(job) == {"other"}


@pytest.mark.parametrize(
    ("charged", "gives"),
    [
        pytest.param(set(), True, id="none is charged"),
        pytest.param({"bad"}, False, id="the older one stands behind"),
        pytest.param({"bad", "default"}, True, id="both stand behind"),
    ],
)
def test_who_backfills_gives_way_to_no_older_job_that_stands_behind_it(charged: set[str], gives: bool) -> None:
    borrower = Borrower("default/b", at(0), place=(0, at(5), "default/b"))
    preemption = Preemption({"b": borrower}, charged=Charged(namespaces=frozenset(charged)))
    older = wants("older", 4, seconds=1, namespace="bad")
    list(plan_steps(fleet_of("b1/r1:..bb"), [older], preemption=preemption))
    assert bool(preemption.preempted_by) == gives


@pytest.mark.parametrize(
    ("replaces", "gives"),
    [
        pytest.param("plain", True, id="of a gang that does not"),
        pytest.param("uid-of-younger", False, id="of a younger gang that backfills as well"),
        pytest.param("uid-of-older", True, id="of an older one"),
    ],
)
def test_who_backfills_gives_way_to_replacements(replaces: str, gives: bool) -> None:
    holders = {
        "b": Borrower("default/b", at(0), place=(0, at(5), "default/b")),
        "uid-of-older": Borrower("default/older", at(0), place=(0, at(1), "default/older")),
        "uid-of-younger": Borrower("default/younger", at(0), place=(0, at(9), "default/younger")),
    }
    preemption = Preemption(holders)
    seconds = {"uid-of-older": 1, "uid-of-younger": 9}.get(replaces, 9)
    job = wants(replaces.removeprefix("uid-of-"), 1, seconds=seconds, replacement=True, kept=("r1-0",))
    list(plan_steps(fleet_of("b1/r1:xbb"), [job], preemption=preemption))
    assert bool(preemption.preempted_by) == gives


def test_a_long_queue_tries_few_jobs_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    find = Space.find

    def noted(self: Space, request: Request) -> Generator[None, None, Placed | None]:
        tried.append(len(request.given_back))
        return find(self, request)

    monkeypatch.setattr(Space, "find", noted)
    names = [chr(ord("A") + number) for number in range(40)]
    giving = running(*names)
    fleet = fleet_of(" ".join(f"b1/r{number}:{name}{name}" for number, name in enumerate(names)))
    found = plan(fleet, giving, *(wants(f"job-{number}", 2) for number in range(40)))
    assert set(told(found).values()) == {"WaitingForPreemption"}
    assert len(giving.preempted_by) == 40
    assert sum(tried) <= 80, "who has been asked for all of its nodes is not tried again"


NOW = at(10 * HOUR)


def victim(name: str, nodes: int, priority: int = 0, **changes: Any) -> Victim:
    """A job that has trained for an hour."""
    fields = {"placed": NOW - timedelta(seconds=HOUR), "exempt_until": NOW, **changes}
    return Victim(f"default/{name}", priority, nodes, **fields)


def outranked(fleet: str, priorities: Mapping[str, int] | None = None, **changes: Mapping[str, Any]) -> Preemption:
    """The jobs on a fleet, each with its priority (0), and with changes by name."""
    nodes = Counter(fleet.replace(":", "").translate(str.maketrans("", "", ".x br/0123456789")))
    victims = {
        name: victim(name, count, (priorities or {}).get(name, 0), **changes.get(name, {}))
        for name, count in nodes.items()
    }
    return Preemption(victims=victims, now=NOW)


def urgent(name: str, nodes: int, priority: int = 10, **changes: Any) -> WaitingJob:
    return replace(wants(name, nodes, priority=priority, **changes), preempts_by="urgent")


def leaves_for(fleet: str, preemption: Preemption, *jobs: WaitingJob) -> set[str]:
    """Who has to leave."""
    list(plan_steps(fleet_of(fleet), jobs, preemption=preemption))
    return set(preemption.preempted_by)


@pytest.mark.parametrize(
    ("fleet", "priorities", "job", "expected"),
    [
        pytest.param("b1/r1:aa..", {}, urgent("u", 4), {"a"}, id="lower priority leaves"),
        pytest.param("b1/r1:aa..", {"a": 10}, urgent("u", 4), set(), id="equal priority does not"),
        pytest.param("b1/r1:aa..", {}, wants("u", 4, priority=10), set(), id="not for a class that may not preempt"),
        pytest.param("b1/r1:aax.", {}, urgent("u", 4), set(), id="not where that does not help"),
        pytest.param("b1/r1:aa..", {}, urgent("u", 2), set(), id="not where enough is free"),
        pytest.param("b1/r1:aa..", {}, spot(urgent("u", 4)), set(), id="not for a preemptible job"),
        pytest.param("b1/r1:aacc", {"a": 5}, urgent("u", 2), {"c"}, id="the lowest priority first"),
        pytest.param("b1/r1:aaac", {}, urgent("u", 1), {"c"}, id="the smallest that is enough"),
        pytest.param("b1/r1:aaacccdddd", {}, urgent("u", 4), {"d"}, id="one larger where two take more"),
        pytest.param("b1/r1:acee", {}, urgent("u", 2), {"e"}, id="of as many nodes fewer jobs"),
        pytest.param("b1/r1:aac.", {}, urgent("u", 3), {"a"}, id="none without which the others are enough"),
        pytest.param("b1/r1:aaaac", {"c": 5}, urgent("u", 1), {"a"}, id="priority before nodes"),
        pytest.param("b1/r1:ac b1/r2:ee", {}, urgent("u", 2, required="rack"), {"e"}, id="in one domain"),
        pytest.param("b1/r1:a", {"a": -(2**31)}, urgent("u", 1, 1 - 2**31), {"a"}, id="the least priority there is"),
        pytest.param("b1/r1:a", {"a": 2**31 - 2}, urgent("u", 1, 2**31 - 1), {"a"}, id="the highest there is"),
        pytest.param("b1/r1:a", {"a": -(2**31)}, urgent("u", 1, -(2**31)), set(), id="both the least"),
    ],
)
def test_which_jobs_priority_preempts(
    fleet: str, priorities: Mapping[str, int], job: WaitingJob, expected: set[str]
) -> None:
    assert leaves_for(fleet, outranked(fleet, priorities), job) == expected


LATER = NOW + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"c": {"exempt_until": LATER}, "a": {"exempt_until": LATER}}, set(), id="who is exempt stays"),
        pytest.param({"a": {"exempt_until": LATER, "leaves": True}}, {"a"}, id="but not who leaves already"),
        pytest.param({"c": {"placed": NOW}}, {"c"}, id="who has run least"),
        pytest.param({"c": {"placed": NOW}, "a": {"answered": False}}, {"a"}, id="who did not answer comes before"),
        pytest.param({"a": {"saved": NOW - timedelta(minutes=9)}, "c": {"saved": NOW}}, {"c"}, id="who loses least"),
        pytest.param({"a": {"saved": NOW - timedelta(minutes=9)}}, {"c"}, id="no save spares no job"),
        pytest.param(
            {"a": {"saved": at(0)}, "c": {"saved": NOW - timedelta(minutes=61)}}, {"a"}, id="of that an hour counts"
        ),
        pytest.param({"c": {"placed": NOW, "saved": at(0)}}, {"c"}, id="running time before lost work"),
    ],
)
def test_of_like_jobs_leaves(changes: Mapping[str, Mapping[str, Any]], expected: set[str]) -> None:
    fleet = "b1/r1:aacc"
    assert leaves_for(fleet, outranked(fleet, **changes), urgent("u", 2)) == expected


def test_what_is_lent_is_given_back_first() -> None:
    preemption = replace(outranked("b1/r1:aa"), borrowers=running("p").borrowers)
    assert leaves_for("b1/r1:aapp", preemption, urgent("u", 2)) == {"p"}


def test_a_job_that_has_lost_its_place_preempts_none() -> None:
    preemption = replace(outranked("b1/r1:aa"), charged=Charged(frozenset({"uid-of-u"})))
    assert leaves_for("b1/r1:aa", preemption, urgent("u", 2)) == set()


def test_nodes_of_jobs_of_lower_priority_are_not_reserved() -> None:
    preemption = outranked("b1/r1:aa", a={"exempt_until": LATER})
    found = plan(fleet_of("b1/r1:aa.x b1/r2:...x"), preemption, urgent("u", 4, required="rack"), wants("s", 2))
    assert told(found) == {"u": "TopologyUnsatisfied", "s": "BehindInQueue"}
    found = plan(fleet_of("b1/r1:aa.x b1/r2:...x"), preemption, urgent("u", 4, required="rack"), wants("s", 1))
    assert found["s"] == Placed(("r1-2",)), "the rack with more free nodes is reserved"


def test_victims_are_sought_for_the_first_jobs_only() -> None:
    names = "acdefghijklmnopq"
    fleet = " ".join(f"b1/r{number}:{name}" for number, name in enumerate(names))
    preemption = Preemption(victims={name: victim(name, 1) for name in names}, now=NOW)
    jobs = [urgent(f"u{number}", 1, seconds=number) for number in range(len(names))]
    assert len(leaves_for(fleet, preemption, *jobs)) == MAX_PREEMPTORS
    found = {name for to in preemption.preempted_by.values() for name, _ in to}
    assert found == {f"default/u{number}" for number in range(MAX_PREEMPTORS)}
    queue = plan_steps(fleet_of(fleet), [*jobs, wants("plain", 1)], preemption=replace(preemption, preempted_by={}))
    later = {uid for uid, decision in filter(None, queue) if decision.too_many_before}
    assert later == {f"uid-of-u{number}" for number in range(MAX_PREEMPTORS, len(names))}


@pytest.mark.parametrize(
    ("job", "answer", "expected"),
    [
        pytest.param(urgent("ninth", 2, seconds=9), "BehindInQueue", True, id="it is told"),
        pytest.param(urgent("ninth", 2, priority=0, seconds=9), "BehindInQueue", False, id="not if it outranks none"),
        pytest.param(urgent("ninth", 1, seconds=9), "WaitingForPreemption", False, id="nor if lent nodes are enough"),
        pytest.param(lasts(urgent("ninth", 2, seconds=9), HOUR), 2, False, id="nor if it passes"),
    ],
)
def test_who_comes_after_the_first_eight_is_told_so(job: WaitingJob, answer: int | str, expected: bool) -> None:
    racks = {f"r{number}": name for number, name in enumerate("acdefghi")}
    fleet = " ".join(f"b1/{rack}:{name * 3}" for rack, name in racks.items()) + " b1/free:..xx b1/lent:p"
    victims = {name: victim(name, 3) for name in racks.values()}
    preemption = Preemption(running("p").borrowers, victims, now=NOW)
    first = [urgent(f"u{number}", 3, required="rack") for number in range(len(racks))]
    big = wants("big", 4, priority=20, required="rack")  # has the free nodes reserved
    offers = {big.job_uid: LendingOffer(HOUR, HOUR)}
    steps = plan_steps(fleet_of(fleet), [big, *first, job], preemption=preemption, offers=offers)
    decisions = dict(filter(None, steps))
    assert {decisions[it.job_uid].answer.reason for it in first} == {"WaitingForPreemption"}
    of_it = decisions[job.job_uid]
    assert told({"ninth": of_it.answer}) == {"ninth": answer}
    assert of_it.too_many_before is expected


def test_who_is_preempted_knows_by_which_class() -> None:
    preemption = outranked("b1/r1:aa")
    leaves_for("b1/r1:aa", preemption, urgent("u", 2))
    (by,) = preemption.preempted_by["a"]
    assert str(by) == "default/u (PriorityClass urgent)"


def test_none_leaves_for_nodes_that_a_job_before_would_get() -> None:
    """Found by a random fleet: the freed node was then reserved for the first job, and neither started."""
    fleet, first = "b1/r1:aaxx", wants("first", 3, priority=20)
    assert leaves_for(fleet, outranked("b1/r1:aa"), first, urgent("u", 2)) == set()
    in_a_rack = replace(first, request=replace(first.request, required="rack"))
    fleet = "b1/r1:aaxx b1/r2:cc"
    assert leaves_for(fleet, outranked("b1/r1:aacc"), in_a_rack, urgent("u", 2)) == {"c"}


def test_who_gives_lent_nodes_may_do_so_with_others_than_those_of_a_job_before() -> None:
    fleet = "b1/r1:..cx b1/r2:paxx"
    first = replace(wants("first", 4, required="rack"), priority=20)
    preemption = replace(outranked(fleet.replace("p", "x"), {"a": 1}), borrowers=running("p").borrowers)
    assert leaves_for(fleet, preemption, first, urgent("u", 2)) == {"p", "a"}


def test_it_is_asked_what_each_job_before_would_get() -> None:
    """Also where the plan has given nodes away before."""
    fleet = "b1/r1:.xx b1/r2:..x b1/r3:..x b1/r4:aa"
    starts = wants("starts", 1, priority=30)
    before = [wants(name, 3, priority=20, required="rack") for name in ("first", "second")]
    assert leaves_for(fleet, outranked("b1/r4:aa"), starts, *before, urgent("u", 2, required="rack")) == {"a"}


@pytest.mark.parametrize(("namespace", "leaves"), [("default", set()), ("third", {"a"})])
def test_none_leaves_where_a_job_before_waits_for_room_in_its_namespace(namespace: str, leaves: set[str]) -> None:
    """With what it leaves of its namespace's limit that job would start on its nodes."""
    preemption = outranked("b1/r1:aa")
    first = wants("first", 2, priority=20, namespace=namespace)
    waiting = [first, replace(urgent("u", 2), name="other/u", namespace="other")]
    held = {namespace: 2}
    list(plan_steps(fleet_of("b1/r1:aa"), waiting, NamespaceRules(held, held), preemption=preemption))
    assert preemption.preempted_by.keys() == leaves


def test_no_two_jobs_take_turns() -> None:
    assert sum(no_two_jobs_take_turns(seed) for seed in range(20)) > 5
