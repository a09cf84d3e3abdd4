"""What the coordinator remembers of checkers, what it tells them, and when it speaks up."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.clock import Clock

from fuzz.samples import CHECKED
from muster.coordinator import checkers
from muster.coordinator.auth import Caller
from muster.coordinator.checkers import SILENT_SECONDS, CheckerHub
from muster.coordinator.endpoints import checker_endpoint
from muster.protocol import checks, messages
from muster.protocol.checks import (
    CheckAnswer,
    CheckDirective,
    CheckGrant,
    CheckOrder,
    CheckReport,
    PassReport,
    Put,
    decode_check_directive,
)
from muster.world.checks import NodeChecks

READY = replace(CHECKED, sequence=1, gpus=1, answers=CHECKED.answers[:1], figures=CHECKED.figures[:1], running="")


def caller(node: str = "n1", pod: str = "") -> Caller:
    return Caller("muster-check", f"muster-check-{node}", pod or f"pod-{node}", node, "u", "muster-check")


def orders(*ids: str) -> NodeChecks:
    return NodeChecks(tuple(CheckOrder(order, checks.NODE) for order in ids))


def told(hub: CheckerHub, node: str = "n1", pod: str = "") -> list[str] | None:
    """The orders of a node; None where it is told that the leader does not know."""
    directive = hub.directive_for(node, pod)
    return [order.id for order in directive.orders] if directive.known else None


@pytest.fixture
def hub(clock: Clock) -> CheckerHub:
    made = CheckerHub(clock, max_nodes=3)
    made.start_serving()
    made.note_all_decided()
    return made


def test_a_checker_that_takes_over_has_its_orders_from_then_on(hub: CheckerHub, clock: Clock) -> None:
    hub.set_orders("job", {"n1": orders("o1")})
    hub.record(caller(pod="old"), READY)
    clock.advance(100.0)
    hub.record(caller(pod="new"), replace(READY, answers=()))
    clock.advance(5.0)
    assert hub.views_of(["n1"])["n1"].given == {"o1": 5.0}


def test_ages_of_passes_and_of_orders_grow_by_our_clock(hub: CheckerHub, clock: Clock) -> None:
    hub.set_orders("job", {"n1": orders("o1")})
    hub.record(caller(), READY)
    clock.advance(2.0)
    hub.set_orders("job", {"n1": orders("o1", "o2")})
    clock.advance(1.0)
    views = hub.views_of(["n1", "n2"])
    assert set(views) == {"n1"}
    view = views["n1"]
    assert (view.heard_age_seconds, view.given) == (3.0, {"o1": 3.0, "o2": 1.0})
    assert view.report == replace(READY, passes=(replace(READY.passes[0], age_seconds=103.5),))


def test_an_order_that_comes_back_counts_from_then(hub: CheckerHub, clock: Clock) -> None:
    hub.record(caller(), READY)
    for wanted in (orders("o1"), orders("o2"), orders("o2", "o1")):
        hub.set_orders("job", {"n1": wanted})
        clock.advance(1.0)
    assert hub.views_of(["n1"])["n1"].given == {"o2": 2.0, "o1": 1.0}


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"state": checks.UNFIT}, True, id="state"),
        pytest.param({"identity": "other"}, True, id="identity"),
        pytest.param({"boot_id": "other"}, True, id="boot"),
        pytest.param({"answers": ()}, True, id="answers"),
        pytest.param({"running": "o2"}, False, id="running"),
        pytest.param({"passes": ()}, True, id="passes"),
        pytest.param({"passes": (PassReport("Quick", 5.0, "g"),)}, False, id="age of a pass"),
        pytest.param({"passes": (PassReport("Quick", 5.0, "h"),)}, True, id="another pass"),
        pytest.param({"figures": ()}, False, id="figures"),
        pytest.param({"directive_seen": "x", "hold_seconds": 5.0}, False, id="how it asks"),
    ],
)
def test_news_are_what_a_decision_may_depend_on(hub: CheckerHub, changes: dict[str, Any], want: bool) -> None:
    news: list[str] = []
    hub.subscribe(news.append)
    hub.record(caller(), READY)
    assert news == ["n1"]
    hub.record(caller(), replace(READY, sequence=2, **changes))
    assert (len(news) == 2) is want


def test_to_be_heard_again_after_silence_is_news(hub: CheckerHub, clock: Clock) -> None:
    hub.record(caller(), READY)
    news: list[str] = []
    hub.subscribe(news.append)
    clock.advance(SILENT_SECONDS - 1.0)
    hub.record(caller(), replace(READY, sequence=2))
    assert news == []
    clock.advance(SILENT_SECONDS)
    hub.record(caller(), replace(READY, sequence=3))
    assert news == ["n1"]


def test_figures_that_change_are_told_to_whom_they_matter(hub: CheckerHub) -> None:
    told: list[int] = []
    hub.subscribe_figures(lambda: told.append(1))
    hub.record(caller(), READY)
    hub.record(caller(), replace(READY, sequence=2, figures=(replace(READY.figures[0], age_seconds=99.0),)))
    assert len(told) == 1
    hub.record(caller(), replace(READY, sequence=3, figures=(replace(READY.figures[0], figure=1.0),)))
    hub.record(caller(), replace(READY, sequence=4, library="other"))
    assert len(told) == 3


def test_a_late_report_changes_nothing(hub: CheckerHub, clock: Clock) -> None:
    hub.record(caller(), replace(READY, sequence=5))
    clock.advance(1.0)
    assert not hub.record(caller(), replace(READY, sequence=4, state=checks.UNFIT))
    assert not hub.record(caller(), replace(READY, sequence=3, state=checks.UNFIT))
    assert (hub.views_of(["n1"])["n1"].heard_age_seconds, hub.heard()[0].report.state) == (1.0, checks.READY)
    assert hub.record(caller(), replace(READY, sequence=6))


def test_a_restarted_process_in_a_pod_is_heard_from_its_second_report(hub: CheckerHub) -> None:
    hub.record(caller(), replace(READY, sequence=500))
    assert not hub.record(caller(), CheckReport(1))
    assert hub.record(caller(), CheckReport(2))
    assert hub.heard()[0].report.state == checks.STARTING


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_the_last_report_of_a_process_counts_whatever_was_missed(numbers: list[int]) -> None:
    hub = CheckerHub(Clock())
    for lives, last in enumerate(numbers):
        for sequence in range(1, last + 2):  # a process that says less than two things has said nothing yet
            hub.record(caller(), replace(READY, sequence=sequence, boot_id=str(lives)))
    assert hub.heard()[0].report.boot_id == str(len(numbers) - 1)


def test_of_two_pods_on_a_node_the_one_that_came_last_speaks_once_it_is_ready(hub: CheckerHub, clock: Clock) -> None:
    hub.set_orders("job", {"n1": orders("o1")})
    hub.record(caller(pod="old"), READY)
    clock.advance(1.0)
    hub.record(caller(pod="new"), replace(READY, state=checks.STARTING, boot_id="new"))
    assert hub.heard()[0].report.boot_id == READY.boot_id
    assert (told(hub, pod="old"), told(hub, pod="new")) == (["o1"], None)
    news: list[str] = []
    hub.subscribe(news.append)
    hub.record(caller(pod="new"), replace(READY, sequence=2, boot_id="new"))
    assert news == ["n1"]
    for sequence in (2, 3):  # both go on talking
        hub.record(caller(pod="old"), replace(READY, sequence=sequence))
        assert hub.heard()[0].report.boot_id == "new"
    assert (told(hub, pod="old"), told(hub, pod="new"), told(hub)) == ([], ["o1"], ["o1"])
    assert sorted(hub.pods_on(["n1"])) == ["new", "old"]


def test_whom_a_silent_pod_leaves_behind_speaks(hub: CheckerHub, clock: Clock) -> None:
    hub.set_orders("job", {"n1": orders("o1")})
    hub.record(caller(pod="old"), READY)
    hub.record(caller(pod="new"), replace(READY, state=checks.UNFIT))
    clock.advance(1.0)
    hub.record(caller(pod="newer"), replace(READY, state=checks.STARTING))
    assert (told(hub, pod="new"), told(hub, pod="newer"), told(hub, pod="unheard")) == (None, None, None)
    clock.advance(SILENT_SECONDS)
    hub.record(caller(pod="new"), replace(READY, state=checks.UNFIT, sequence=2))
    assert (told(hub, pod="new"), hub.pods_on(["n1"])) == (["o1"], ["new"])


def test_nodes_that_are_gone_are_forgotten_and_so_are_too_many(hub: CheckerHub) -> None:
    for number in range(5):
        hub.record(caller(f"n{number}"), READY)
    assert hub.nodes == ["n2", "n3", "n4"]
    hub.record(caller("n2"), replace(READY, sequence=2))
    hub.forget("n3")
    hub.forget("n3")
    assert hub.nodes == ["n4", "n2"]
    assert hub.views_of(["n3"]) == {}


def test_what_the_figures_of_the_process_say(hub: CheckerHub) -> None:
    def count(state: str) -> float:
        return checkers._checkers.labels(state)._value.get()

    hub.record(caller("n1"), READY)
    hub.record(caller("n2"), replace(READY, state="Dancing"))
    assert (count(checks.READY), count("Other")) == (1, 1)
    hub.record(caller("n1"), replace(READY, sequence=2, state=checks.UNFIT))
    hub.forget("n2")
    assert (count(checks.READY), count(checks.UNFIT), count("Other")) == (0, 1, 0)
    hub.set_orders("job", {"n1": orders("o1", "o2"), "n3": orders("o3")})
    assert checkers._orders._value.get() == 2, "o1 is answered"
    hub.record(caller("n3"), replace(READY, answers=(CheckAnswer("o3", checks.NODE, "Result"),)))
    assert checkers._orders._value.get() == 1
    hub.set_orders("job", None)
    assert checkers._orders._value.get() == 0


def test_a_leader_says_that_it_does_not_know_until_it_does(clock: Clock) -> None:
    hub = CheckerHub(clock)
    assert told(hub) is None
    hub.start_serving()
    hub.set_orders("job", {"n1": orders("o1"), "n2": NodeChecks()})
    assert (told(hub, "n1"), told(hub, "n2"), told(hub, "n3")) == (["o1"], [], None)
    clock.advance(SILENT_SECONDS - 1.0)
    assert told(hub, "n3") is None
    clock.advance(1.0)
    assert told(hub, "n3") == []


def test_once_everything_was_decided_who_was_given_nothing_has_nothing(clock: Clock) -> None:
    hub = CheckerHub(clock)
    hub.start_serving()
    hub.set_orders("job", {"n1": orders("o1")})
    hub.note_all_decided()
    assert (told(hub, "n1"), told(hub, "n2")) == (["o1"], [])
    assert hub.set_orders("job", None) == ["n1"]
    assert told(hub, "n1") == []


def test_a_grant_is_told_with_the_orders(hub: CheckerHub) -> None:
    wanted = NodeChecks(orders("o1").orders, (CheckGrant("g", "Quick"),))
    hub.set_orders("job", {"n1": wanted})
    assert hub.directive_for("n1") == CheckDirective(orders=wanted.orders, grants=wanted.grants)


def test_a_node_does_what_a_job_wants_before_what_is_done_when_it_is_idle(hub: CheckerHub) -> None:
    assert hub.set_orders("idle", {"n1": orders("i1"), "n2": orders("i2")}, job=False) == ["n1", "n2"]
    assert hub.set_orders("job", {"n1": orders("j1")}) == ["n1"]
    assert hub.set_orders("idle", {"n1": orders("i3"), "n2": orders("i2")}, job=False) == []
    assert hub.set_orders("late", {"n1": orders("l1")}) == [], "who asked first"
    assert (told(hub, "n1"), told(hub, "n2")) == (["j1"], ["i2"])
    assert hub.set_orders("job", {"n1": orders("j1")}) == []
    assert hub.set_orders("job", None) == ["n1"]
    assert told(hub, "n1") == ["l1"]
    assert hub.set_orders("late", {}) == ["n1"]
    assert told(hub, "n1") == ["i3"]


OWNERS = {"idle": False, "repair": False, "job-a": True, "job-b": True}
NODES = ["n1", "n2", "n3"]
wishes = st.none() | st.dictionaries(
    st.sampled_from(NODES), st.lists(st.sampled_from("abc"), unique=True).map(lambda ids: orders(*ids))
)


@given(st.lists(st.tuples(st.sampled_from(sorted(OWNERS)), wishes, st.floats(0.0, 5.0)), max_size=20))
def test_any_owners_in_any_order(gifts: list[tuple[str, dict[str, NodeChecks] | None, float]]) -> None:
    """Beside a model: who wants something, since when; who is told, since when."""
    clock = Clock()
    hub = CheckerHub(clock)
    hub.start_serving()
    hub.note_all_decided()
    for node in NODES:
        hub.record(caller(node), READY)
    wanted: dict[str, dict[str, NodeChecks]] = {}
    asked: dict[tuple[str, str], int] = {}
    since: dict[str, dict[str, float]] = {node: {} for node in NODES}
    for number, (owner, gift, pause) in enumerate(gifts):
        before = {node: told(hub, node) for node in NODES}
        changed = hub.set_orders(owner, gift, job=OWNERS[owner])
        wanted[owner] = dict(gift or {})
        for node in NODES:
            for each in OWNERS:
                if node in wanted.get(each, {}):
                    asked.setdefault((each, node), number)
                else:
                    asked.pop((each, node), None)
            holders = sorted((not OWNERS[one], at, one) for (one, where), at in asked.items() if where == node)
            want = [order.id for order in wanted[holders[0][2]][node].orders] if holders else []
            assert told(hub, node) == want
            assert (node in changed) or before[node] == want
            since[node] = {order: since[node].get(order, clock.now) for order in want}
            given_ages = hub.views_of([node])[node].given
            assert given_ages == {order: clock.now - at for order, at in since[node].items()}
        clock.advance(pause)
    for owner in OWNERS:
        hub.set_orders(owner, None)
    assert (hub._claims, hub._nodes_of, hub._told, hub._given) == ({}, {}, {}, {})
    assert (hub._unanswered, hub._outstanding) == (0, {})


@pytest.fixture
def done(hub: CheckerHub) -> list[str]:
    found: list[str] = []
    hub.subscribe_done(found.append)
    return found


def test_an_owner_is_told_of_the_last_answer_once(hub: CheckerHub, done: list[str]) -> None:
    plain = replace(READY, answers=(), passes=())
    for number in (1, 2):
        hub.record(caller(f"n{number}"), plain)
    hub.set_orders("job", {"n1": orders("o1"), "n2": orders("o1")})
    assert hub.awaited("n1") == 2
    answered = replace(plain, sequence=2, answers=(CheckAnswer("o1", "Node", "Result"),))
    hub.record(caller("n1"), answered)
    assert (done, hub.awaited("n1")) == ([], 1)
    hub.record(caller("n2"), answered)
    assert (done, hub.awaited("n1")) == (["job"], 0)
    hub.record(caller("n2"), replace(answered, sequence=3, state=checks.UNFIT))
    assert done == ["job"]


def test_a_node_that_does_not_know_of_its_pass_is_waited_for(hub: CheckerHub, done: list[str]) -> None:
    plain = replace(READY, answers=(), passes=())
    hub.record(caller(), plain)
    hub.set_orders("job", {"n1": NodeChecks(grants=(CheckGrant("g", "Quick"),))})
    assert hub.awaited("n1") == 1
    hub.record(caller(), replace(plain, sequence=2, passes=(PassReport("Quick", 0.0, "g"),)))
    assert (done, hub.awaited("n1")) == (["job"], 0)


def test_what_is_withdrawn_is_waited_for_no_longer(hub: CheckerHub, done: list[str]) -> None:
    hub.record(caller(), replace(READY, answers=(), passes=()))
    hub.set_orders("job", {"n1": orders("o1")})
    hub.set_orders("job", None)
    assert hub.awaited("n1") == 0
    hub.record(caller(), replace(READY, sequence=2))
    assert done == []


def met(hub: CheckerHub, *nodes: str, order: str = "pair", kind: str = checks.PAIR) -> NodeChecks:
    """These nodes have an order together."""
    for rank, node in enumerate(nodes):
        wanted = NodeChecks((CheckOrder(order, kind, gpus=1, node_rank=rank, nodes=len(nodes)),))
        hub.set_orders(f"job-of-{node}", {node: wanted})
    return wanted


def puts(rank: int, *keys: str) -> tuple[Put, ...]:
    return tuple(Put(rank, key, "eJwDAAAAAAE=") for key in keys)


def handed(hub: CheckerHub, node: str) -> tuple[Put, ...]:
    """What a checker on the node is handed of the others in its meeting, as it is sent."""
    found = checker_endpoint(hub, "muster-check", lambda _: True).encoded_for(caller(node))
    assert found is not None
    return decode_check_directive(found[1]).puts


HERE = replace(READY, meeting="pair", puts=puts(0, "here"))


def test_what_one_node_of_a_pair_puts_the_other_is_handed(hub: CheckerHub) -> None:
    met(hub, "n1", "n2")
    hub.record(caller("n1"), HERE)
    assert (hub.directive_for("n1").meeting, handed(hub, "n1")) == ("pair", ())
    hub.record(caller("n2"), replace(HERE, puts=puts(1, "here", "address")))
    assert handed(hub, "n1") == puts(1, "here", "address")
    assert handed(hub, "n2") == puts(0, "here")


def test_nobody_reads_or_fills_a_meeting_of_others(hub: CheckerHub) -> None:
    met(hub, "n1", "n2")
    hub.record(caller("n1"), HERE)
    hub.record(caller("n2"), replace(HERE, puts=puts(1, "here")))
    hub.record(caller("n3"), replace(HERE, puts=puts(1, "forged")))  # without such an order
    hub.set_orders("another", {"n3": orders("other")})
    assert (hub.directive_for("n3").meeting, handed(hub, "n3")) == ("", ())
    assert handed(hub, "n1") == puts(1, "here")
    assert handed(hub, "n2") == puts(0, "here")


@pytest.mark.parametrize(("device", "processes"), [("cpu", 1), ("cuda", 8)])
def test_a_node_puts_nothing_in_the_name_of_another_ones_process(hub: CheckerHub, device: str, processes: int) -> None:
    for rank, node in enumerate(("n1", "n2", "n3")):
        order = CheckOrder(
            "gang", checks.GANG, gpus=1, node_rank=rank, nodes=3
        )  # of the node's eight the job needs one
        hub.set_orders(f"job-of-{node}", {node: NodeChecks((order,))})
    own = [
        tuple(put for rank in range(at * processes, (at + 1) * processes) for put in puts(rank, "key"))
        for at in range(3)
    ]
    for at, node in enumerate(("n1", "n2")):
        hub.record(caller(node), replace(READY, device=device, gpus=8, meeting="gang", puts=own[at]))
    forged = replace(READY, device="cpu", gpus=1, meeting="gang", puts=(*own[0], *own[2], *own[1]))
    hub.record(caller("n3"), forged)
    assert handed(hub, "n1") == (*own[1], *own[2])
    assert handed(hub, "n2") == (*own[0], *own[2])


@pytest.mark.parametrize("value", ["A" * 8000, "\N{OCTOPUS}"])
def test_values_beyond_what_a_checker_puts_are_handed_to_nobody(hub: CheckerHub, value: str) -> None:
    met(hub, "n1", "n2")
    hub.record(caller("n1"), HERE)
    fair = tuple(Put(1, f"k{number}", "A" * 8000) for number in range(8))
    hub.record(caller("n2"), replace(HERE, puts=fair))
    assert handed(hub, "n1") == fair
    hub.record(caller("n2"), replace(HERE, sequence=3, puts=(*fair, Put(1, "more", value))))
    assert handed(hub, "n1") == ()


def test_a_meeting_lives_as_long_as_its_order_and_its_process(hub: CheckerHub) -> None:
    met(hub, "n1", "n2")
    for rank, node in enumerate(("n1", "n2")):
        hub.record(caller(node), replace(HERE, puts=puts(rank, "here")))
    hub.record(caller("n2"), replace(READY, sequence=2))  # it has come to an end there
    assert handed(hub, "n1") == ()
    hub.set_orders("job-of-n1", None)
    hub.record(caller("n2"), replace(HERE, sequence=3, puts=puts(1, "here")))
    assert (hub.directive_for("n1").meeting, handed(hub, "n2")) == ("", ())
    hub.set_orders("job-of-n2", None)
    assert hub._meetings == {}


def test_a_new_leader_hears_what_was_put_again(clock: Clock) -> None:
    hub = CheckerHub(clock)
    for rank, node in enumerate(("n1", "n2")):
        hub.record(caller(node), replace(HERE, puts=puts(rank, "here")))
    assert hub.directive_for("n1").meeting == ""
    met(hub, "n1", "n2")
    assert handed(hub, "n1") == puts(1, "here")


def test_two_thousand_nodes_meet_in_pairs_with_two_reports_and_one_word_each(clock: Clock) -> None:
    hub = CheckerHub(clock)
    told_of: list[str] = []
    hub.subscribe_meetings(told_of.extend)
    for pair in range(1000):
        met(hub, f"a{pair}", f"b{pair}", order=f"job/1/{pair}")
    for rank, side in enumerate("ab"):
        for pair in range(1000):
            report = replace(READY, meeting=f"job/1/{pair}", puts=puts(rank, "here"))
            hub.record(caller(f"{side}{pair}"), report)
    assert sorted(told_of) == sorted(f"a{pair}" for pair in range(1000)), "who comes last is told in its own answer"
    for rank, side in enumerate("ab"):
        for pair in range(1000):
            report = replace(READY, sequence=2, meeting=f"job/1/{pair}", puts=puts(rank, "here", "address"))
            hub.record(caller(f"{side}{pair}"), report)
    assert len(told_of) == 3000
    assert all(len(handed(hub, f"a{pair}")) == 2 for pair in range(1000))


def test_a_gang_is_told_once_all_are_there(clock: Clock) -> None:
    hub = CheckerHub(clock)
    told_of: list[set[str]] = []
    hub.subscribe_meetings(lambda nodes: told_of.append(set(nodes)))
    nodes = [f"n{number}" for number in range(64)]
    met(hub, *nodes, order="gang", kind=checks.GANG)
    for rank, node in enumerate(nodes):
        hub.record(caller(node), replace(READY, meeting="gang", puts=puts(rank, f"here/{rank}")))
    assert told_of == [set(nodes[:-1])]
    assert len(handed(hub, "n7")) == 63


def test_what_a_node_has_put_is_encoded_once_for_all_that_read_it(hub: CheckerHub, monkeypatch: Any) -> None:
    met(hub, "n1", "n2", "n3")
    encoded: list[Put] = []
    encode = messages.encode
    monkeypatch.setattr(messages, "encode", lambda put: encoded.append(put) or encode(put))
    for rank, node in enumerate(("n1", "n2", "n3")):
        hub.record(caller(node), replace(HERE, puts=puts(rank, "here")))
    for _ in range(2):
        for node in ("n1", "n2", "n3"):
            hub.puts_for(node, "pair")
    hub.record(caller("n1"), replace(HERE, sequence=2, puts=puts(0, "here"), running="pair"))
    hub.puts_for("n2", "pair")
    assert sorted(put.rank for put in encoded) == [0, 1, 2]
    hub.record(caller("n1"), replace(HERE, sequence=3, puts=puts(0, "here", "address")))
    hub.puts_for("n2", "pair")
    assert sorted(put.rank for put in encoded) == [0, 0, 0, 1, 2]
