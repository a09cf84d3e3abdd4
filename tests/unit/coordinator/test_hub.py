"""What the coordinator remembers of launchers, and when it speaks up."""

import dataclasses
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.auth import Caller
from muster.coordinator.hub import MAX_STRAYS, STEP_NEWS_SECONDS, Hub, Membership
from muster.protocol import messages
from muster.protocol.messages import CheckpointReport, PeerReport, RankReport, Report
from muster.world.fleet import SilentShare
from muster.world.views import RankView

RUNNING = Report(
    sequence=1,
    state=messages.RUNNING,
    attempt=3,
    ranks=(RankReport(rank=4, local_rank=0, alive=True),),
    step=7,
    step_age_seconds=0.5,
    started_age_seconds=9.0,
)


def caller(uid: str = "u1") -> Caller:
    return Caller("team", f"pod-{uid}", uid, "node", "node-uid")


@pytest.fixture
def hub(clock: Any) -> Hub:
    return Hub(clock, max_launchers=3)


def test_ages_grow_after_receipt(hub: Hub, clock: Any) -> None:
    hub.record(caller(), RUNNING)
    clock.advance(2.0)
    view = hub.views_of(["u1"])["u1"]
    assert (view.heard_age_seconds, view.step_age_seconds, view.started_age_seconds) == (2.0, 2.5, 11.0)
    assert (view.attempt, view.state, view.step, view.ranks[0].rank) == (3, "Running", 7, 4)
    assert hub.views_of(["u1", "u2"]) == {"u1": view}
    assert hub.last("u2") is None


def test_ranks_that_run_are_not_made_anew_for_each_look(hub: Hub, clock: Any) -> None:
    """A decision about 2,048 workers of eight ranks each looks at 16,384 of them at once."""
    ended = replace(RUNNING.ranks[0], alive=False, exit_code=1, exited_age_seconds=1.0)
    hub.record(caller(), RUNNING)
    clock.advance(1.0)
    assert hub.views_of(["u1"])["u1"].ranks is RUNNING.ranks
    hub.record(caller(), replace(RUNNING, sequence=2, ranks=(ended,), previous_ranks=RUNNING.ranks))
    clock.advance(2.0)
    view = hub.views_of(["u1"])["u1"]
    assert [rank.exited_age_seconds for rank in view.ranks] == [3.0]
    assert view.previous_ranks == RUNNING.ranks


def test_a_last_word_may_be_too_old(hub: Hub, clock: Any) -> None:
    hub.record(caller(), RUNNING)
    clock.advance(15.0)
    assert hub.last("u1", 15.0) == hub.last("u1") == RUNNING
    clock.advance(1.0)
    assert (hub.last("u1", 15.0), hub.last("u1"), hub.last("u2")) == (None, RUNNING, None)


def test_an_attempt_is_as_old_as_the_first_word_of_it(hub: Hub, clock: Any) -> None:
    hub.record(caller(), RUNNING)
    clock.advance(5.0)
    hub.record(caller(), replace(RUNNING, sequence=2))
    assert hub.views_of(["u1"])["u1"].attempt_age_seconds == 5.0
    hub.record(caller(), replace(RUNNING, sequence=3, attempt=4))
    clock.advance(2.0)
    assert hub.views_of(["u1"])["u1"].attempt_age_seconds == 2.0


@pytest.mark.parametrize(("pause", "talking"), [(14.0, 15.0), (15.0, 1.0)])
def test_after_a_silence_it_talks_anew(hub: Hub, clock: Any, pause: float, talking: float) -> None:
    hub.record(caller(), RUNNING)
    clock.advance(pause)
    hub.record(caller(), replace(RUNNING, sequence=2))
    clock.advance(1.0)
    assert hub.views_of(["u1"])["u1"].talking_age_seconds == talking


def test_every_field_of_a_report_is_shown_and_every_age_grows(hub: Hub, clock: Any) -> None:
    given: dict[str, Any] = {}
    for number, field in enumerate(dataclasses.fields(Report), start=10):
        if field.name.endswith("ranks"):
            given[field.name] = (RankReport(number, 0, alive=False, exit_code=1, exited_age_seconds=1.0, tail="no"),)
        elif field.name == "peers":
            given[field.name] = (PeerReport(number, 3.0),)
        elif field.name == "checkpoints":
            given[field.name] = (CheckpointReport(number, "/c"),)
        else:
            given[field.name] = {"str": f"text {number}", "bool": True}.get(str(field.type), number)
    hub.record(caller(), Report(**given))
    clock.advance(2.0)
    view = hub.views_of(["u1"])["u1"]
    for name, value in given.items():
        shown = getattr(view, name)
        if name.endswith("ranks"):
            assert shown == (RankView(**vars(replace(value[0], exited_age_seconds=3.0))),)
        else:
            assert shown == (value + 2.0 if name.endswith("_age_seconds") else value), name


def test_last_lines_are_read_once_when_they_come_and_not_for_each_decision(clock: Any) -> None:
    read: list[str] = []

    def cause_of(rank: RankReport) -> str:
        read.append(rank.tail)
        return f"why {rank.tail}"

    hub = Hub(clock, cause_of=cause_of)
    dead = RankReport(0, 0, alive=False, exit_code=1, exited_age_seconds=1.0, tail="no")
    for sequence in (1, 2):
        ranks = (replace(dead, exited_age_seconds=float(sequence)), replace(dead, rank=1, tail="nor this"))
        hub.record(caller(), Report(sequence=sequence, state=messages.EXITED, ranks=ranks, previous_ranks=(dead,)))
        clock.advance(1.0)
        view = hub.views_of(["u1"])["u1"]
        causes = [rank.cause for rank in (*view.ranks, *view.previous_ranks) if isinstance(rank, RankView)]
        assert causes == ["why no", "why nor this", "why no"]
    assert read == ["no", "nor this", "no"]


def test_older_report_is_no_sign_of_life(hub: Hub, clock: Any) -> None:
    assert hub.record(caller(), replace(RUNNING, sequence=5))
    clock.advance(3.0)
    for sequence in (4, 5):
        assert not hub.record(caller(), replace(RUNNING, sequence=sequence, state=messages.IDLE))
    view = hub.views_of(["u1"])["u1"]
    assert (view.state, view.heard_age_seconds) == (messages.RUNNING, 3.0)


@pytest.mark.parametrize(
    "change",
    [
        {"state": messages.EXITED},
        {"attempt": 4},
        {"ranks": (RankReport(rank=4, local_rank=0, alive=False, exit_code=1),)},
        {"fenced": True},
        {"step": None},
        {"checkpoints": (CheckpointReport(7, "/c/7"),)},
        {"checkpoints_scanned_for_attempt": 3},
        {"listing_round": 1},
        {"checkpoint_error": "denied"},
        {"checkpoint_error_kind": "Unverified"},
        {"other_directory_error_kind": "Unverified"},
        {"checkpoint_warning": "torn"},
        {"checkpoint_trap": "torn"},
        {"lists_after_end": True},
        {"first_step": 7},
        {"stamps": "10:7"},
        {"fence_file_attempt": 4},
        {"fence_file_id": "abc"},
        {"fence_file_age_seconds": 0.0},
        {"fence_file_error": "denied"},
        {"progress_error": "the pattern takes for ever"},
        {"peers": (PeerReport(2, 3.0),)},
        {"address": "10.0.0.9"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_news(hub: Hub, change: dict[str, object]) -> None:
    heard: list[Report] = []
    hub.record(caller(), RUNNING)
    hub.subscribe(lambda _, report: heard.append(report))
    hub.record(caller(), replace(RUNNING, sequence=2))
    assert heard == []
    changed = replace(RUNNING, sequence=3, **change)  # type: ignore[arg-type]
    hub.record(caller(), changed)
    assert heard == [changed]


def test_a_word_about_wrong_results_that_reaches_further_back_is_news(hub: Hub) -> None:
    heard: list[Report] = []
    said = RankReport(rank=4, local_rank=0, alive=True, corruption=messages.NON_FINITE_LOSS, found_at=24)
    hub.record(caller(), replace(RUNNING, ranks=(said,)))
    hub.subscribe(lambda _, report: heard.append(report))
    hub.record(caller(), replace(RUNNING, sequence=2, ranks=(said,)))
    assert heard == []
    hub.record(caller(), replace(RUNNING, sequence=3, ranks=(replace(said, last_good=9),)))
    assert len(heard) == 1


def test_steps_are_news_now_and_then(hub: Hub, clock: Any) -> None:
    heard: list[int | None] = []
    hub.subscribe(lambda _, report: heard.append(report.step))
    hub.record(caller(), replace(RUNNING, step=None))
    for sequence in range(2, 22):
        clock.advance(STEP_NEWS_SECONDS / 10)
        hub.record(caller(), replace(RUNNING, sequence=sequence, step=sequence))
    assert heard == [None, 2, 12]


def test_steps_of_a_gang_are_news_once_however_many_tell_them(clock: Any) -> None:
    hub = Hub(clock)
    heard: list[tuple[str, float]] = []
    workers = [Caller("team", f"{job}-{i}-1", f"{job}{i}", "n", "nu") for job in ("a", "b") for i in range(8)]
    began = clock.now
    for sequence in range(1, 42):
        for worker in workers:
            hub.record(worker, replace(RUNNING, sequence=sequence, step=sequence))
        if sequence == 1:
            hub.subscribe(lambda caller, _: heard.append((caller.pod_name[0], clock.now - began)))
        clock.advance(STEP_NEWS_SECONDS / 10)
    assert heard == [(job, STEP_NEWS_SECONDS * n) for n in range(1, 5) for job in ("a", "b")]


def test_last_words_prove_death(hub: Hub) -> None:
    leaving = replace(RUNNING, sequence=2, state=messages.TERMINATING)
    hub.record(caller(), RUNNING)
    assert not hub.proved_dead("u1")
    hub.record(caller(), leaving)
    assert not hub.proved_dead("u1")  # a rank of it is alive
    hub.record(caller(), replace(leaving, sequence=3, ranks=(replace(RUNNING.ranks[0], alive=False),)))
    assert hub.proved_dead("u1")
    assert not hub.proved_dead("never heard")


def test_silence_counts_those_who_are_expected_to_talk(hub: Hub, clock: Any) -> None:
    hub.record(caller("u1"), RUNNING)
    hub.record(caller("u2"), Report(sequence=1, state=messages.TERMINATING))
    clock.advance(21.0)
    hub.record(caller("u3"), RUNNING)
    assert hub.silence(20.0, "team") == SilentShare(1, 2)
    hub.retire("u1")
    assert hub.silence(20.0, "team") == SilentShare(0, 1)
    assert hub.last("u1") is not None
    hub.forget("u1")
    assert hub.last("u1") is None


def test_counting_the_silent_ones_meets_nobody_who_has_finished(clock: Any) -> None:
    hub = Hub(clock)
    for number in range(500):
        hub.record(caller(f"left{number}"), Report(sequence=1, state=messages.TERMINATING))
        hub.record(caller(f"ended{number}"), RUNNING)
        hub.retire(f"ended{number}")
        hub.record(caller(f"ended{number}"), replace(RUNNING, sequence=2))
    hub.record(caller("silent"), RUNNING)
    clock.advance(21.0)
    hub.record(caller("talks"), RUNNING)
    met: list[float] = []

    class Met(OrderedDict[str, float]):
        def items(self) -> Any:
            return (met.append(item[1]) or item for item in super().items())

    hub._present = Met(hub._present)
    assert hub.silence(20.0, "team") == SilentShare(1, 2)
    assert len(met) == 2
    assert hub.last("left0") is not None


def test_a_stranger_is_not_heard_and_a_former_member_is_not_missed(clock: Any, hub: Hub) -> None:
    known = {"u1": Membership.MEMBER, "u2": Membership.FORMER}
    heard: list[str] = []
    hub.subscribe(lambda caller, _: heard.append(caller.pod_uid))
    for uid in ("u1", "u2", "u3"):
        hub.record(caller(uid), RUNNING, lambda caller: known.get(caller.pod_uid, Membership.NONE))
    assert set(hub.views_of(["u1", "u2", "u3"])) == {"u1", "u2"} == set(heard)
    clock.advance(21.0)
    assert hub.silence(20.0, "team") == SilentShare(1, 1)
    assert hub.expected_launchers() == 1


def test_of_pods_that_no_record_names_few_reports_of_a_namespace_are_kept(clock: Any) -> None:
    """A tenant can make its job the owner of thousands of pods, and each report takes as much memory as it likes."""
    known = {"member": Membership.MEMBER, "former": Membership.FORMER}
    hub = Hub(clock)

    def membership_of(caller: Caller) -> Membership:
        return known.get(caller.pod_uid, Membership.STRAY)

    others = [f"u{number}" for number in range(MAX_STRAYS + 5)]
    for uid in ("member", "former", *others):
        hub.record(caller(uid), RUNNING, membership_of)
    hub.record(replace(caller("neighbour"), namespace="other"), RUNNING, membership_of)
    assert set(hub.views_of(["member", "former", "neighbour", *others])) == {
        "member",
        "former",
        "neighbour",
        *others[5:],
    }
    for uid in (*others, "neighbour"):
        hub.forget(uid)
    assert hub._strays == {}


def test_nothing_is_left_of_a_namespace_whose_launchers_are_gone(hub: Hub) -> None:
    hub.record(replace(caller("u1"), namespace="gone"), RUNNING)
    hub.record(caller("u2"), RUNNING)
    hub.forget("u1")
    assert dict(hub.expected_by_namespace()) == {"team": 1}


def test_one_namespace_that_falls_silent_holds_up_nobody_else(clock: Any) -> None:
    hub = Hub(clock)

    def heard(namespace: str, *numbers: int) -> None:
        for number in numbers:
            who = replace(caller(f"{namespace}{number}"), namespace=namespace)
            hub.record(who, replace(RUNNING, sequence=int(clock.now) + 1))

    heard("noisy", *range(100))
    heard("small", *range(8))
    clock.advance(21.0)
    heard("small", *range(1, 8))
    assert hub.silence(20.0, "noisy").widespread
    assert hub.silence(20.0, "small") == SilentShare(1, 8), "one worker is silent: its node, not the network"
    clock.advance(21.0)
    assert hub.silence(20.0, "small").widespread, "all of both are silent"
    for number in range(100):
        hub.forget(f"noisy{number}")
    hub.retire("small0")
    assert hub.silence(20.0, "noisy") == SilentShare(0, 0)
    assert hub.silence(20.0, "small") == SilentShare(7, 7)


def test_memory_is_bounded_and_keeps_those_heard_last(hub: Hub) -> None:
    for uid in ("u1", "u2", "u3"):
        hub.record(caller(uid), RUNNING)
    hub.record(caller("u1"), replace(RUNNING, sequence=2))
    hub.record(caller("u4"), RUNNING)
    assert set(hub.views_of(["u1", "u2", "u3", "u4"])) == {"u1", "u3", "u4"}


def test_the_last_report_is_there_as_it_came(hub: Hub, clock: Any) -> None:
    hub.record(caller(), RUNNING)
    clock.advance(9.0)
    assert hub.last("u1") is RUNNING
    assert hub.last("u2") is None


def test_a_crowd_is_a_power_of_two_that_does_not_flap(clock: Any) -> None:
    hub = Hub(clock)
    seen = [hub.expected_launchers()]
    for number in range(600):
        hub.record(caller(f"u{number}"), RUNNING)
        seen.append(hub.expected_launchers())
    assert sorted(set(seen)) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    for number in range(600):
        hub.retire(f"u{number}")
        assert hub.expected_launchers() == seen[-1] or 600 - number - 1 < seen[-1] * 0.4
        seen.append(hub.expected_launchers())
    assert seen[-1] == 1
    assert seen[601 : 601 + 190] == [1024] * 190, "between 410 and 600 nothing changes"


def test_serving_age(hub: Hub, clock: Any) -> None:
    clock.advance(5.0)
    assert hub.serving_age_seconds() == 0.0
    hub.start_serving()
    clock.advance(5.0)
    assert hub.serving_age_seconds() == 5.0
