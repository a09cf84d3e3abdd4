"""Whole lives: the shipped operator and launchers in simulated time."""

import functools
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.nightly.simulate.defects import DEFECTS
from tests.unit.simulate.test_stories import HERE, KEPT

from muster.node.launcher.supervisor import Supervisor
from muster.queueing.preemption import Borrower, Preemption
from muster.queueing.queue import _Planner
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import NotPlaced
from simulate import stories
from simulate.apiserver import Object, Where, owned
from simulate.fault import FOR_EVER, Fault
from simulate.faults import KINDS
from simulate.jobs import BACKFILLED, CONTENDED_DAYS, OUTRANKED, PREEMPTED
from simulate.life import Life
from simulate.machines import _pinned_to
from simulate.play import Story, play, story
from simulate.shrink import rule_of, shrunk
from simulate.surroundings import NAMESPACE
from simulate.training import Script
from simulate.violation import ViolationError
from simulate.worker import Answers, Exchange, Looker


def test_where_nothing_goes_wrong_a_job_trains_in_one_attempt_to_its_end() -> None:
    life = Life(1)
    uid = life.submit("a", 4, Script(total_steps=30))
    assert life.run_until(lambda: life.state_of("a") == "Succeeded", 600), life.describe()
    assert list(life.trainers[uid].attempts) == [1]
    assert max(save.step for save in life.directories[uid].whole().values()) == 30
    life.run(30)
    assert life.checks.waits.free_nodes() == life.machines.keys(), "its record names its nodes still"
    life.close()


def test_the_same_story_is_the_same_life(tmp_path: Path) -> None:
    """Also in another process, where other addresses could bring another order."""
    path = tmp_path / "story.json"
    stories.write(path, replace(story(6), faults=story(6).faults[:12]))
    program = (
        "import pathlib, sys; from simulate import play, stories; "
        "life = play.play(stories.read(pathlib.Path(sys.argv[1]))); "
        "print(life.seconds, life.events, sorted(life.checks.items()), life.violation or 'sound')"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    told = {
        subprocess.run(
            [sys.executable, "-c", program, str(path)], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(told) == 1, told
    assert told.pop().strip().endswith("sound")


def test_a_life_depends_on_neither_the_machines_speed_nor_other_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = (
        "ApiAway",
        "LeaderCutOff",
        "ApiRefuses",
        "WatchesEnd",
        "RankExits",
        "HistoryForgotten",
        "ApiSlow",
        "PowerCut",
    )
    told = Story(
        1,
        [
            Fault(20.0 + 25.0 * number, name, seconds=25.0, job="a" * KINDS[name].of_job)
            for number, name in enumerate(kinds)
        ],
    )
    as_it_is = play(told)
    for name in ("monotonic", "time", "perf_counter", "thread_time", "process_time"):
        jumping = itertools.count(1e6, 60.0)
        # Each look at a clock takes one of the process's lots, too.
        monkeypatch.setattr(time, name, lambda jumping=jumping: next(jumping) + 0.0 * random.random())
    other = play(told)
    assert (other.seconds, other.events, other.checks) == (as_it_is.seconds, as_it_is.events, as_it_is.checks)
    assert other.violation == as_it_is.violation == ""


def test_an_answer_that_is_given_again_is_the_one_that_a_look_would_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while storage is late, and when checkpoints are lost."""
    kinds = ("StorageLags", "ShardLost", "CheckpointRemoved", "RankKilled")
    told = Story(1, [Fault(60.0 + 20.0 * n, kind, job="a", seconds=10.0, amount=3.0) for n, kind in enumerate(kinds)])
    given: list[bool] = []
    again = Answers.again

    def noted(self: Answers, data: bytes) -> list[bytes]:
        found = again(self, data)
        given.append(bool(found))
        return found

    monkeypatch.setattr(Answers, "again", noted)
    as_it_is = play(told)
    monkeypatch.setattr(Answers, "again", lambda *_: [])
    looked = play(told)
    assert sum(given) > len(given) / 4
    assert (looked.seconds, looked.events, looked.checks) == (as_it_is.seconds, as_it_is.events, as_it_is.checks)
    assert looked.violation == as_it_is.violation == ""


def test_after_every_kind_of_fault_every_job_comes_to_its_end() -> None:
    faults = [
        Fault(
            at=20.0 + 25.0 * number,
            kind=name,
            job="ab"[number % 2] if kind.of_job else "",
            number=number,
            seconds=min(kind.seconds[1], 20.0),
            amount=kind.amounts[-1],
        )
        for number, (name, kind) in enumerate(sorted(KINDS.items(), key=lambda item: not item[1].of_job))
    ]  # those of jobs first, which may have ended by then
    outcome = play(Story(3, faults))
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
    assert {kind for _, kind in outcome.cells} == set(KINDS)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_a_life_at_random(seed: int) -> None:
    outcome = play(story(seed))
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])


def test_what_is_created_for_a_job_that_is_gone_is_collected_too() -> None:
    life = Life(1)
    uid = life.submit("a", 1, Script(total_steps=30))
    life.run(20)
    (pod,) = life.server.all("pods")
    life.server.delete(Where("trainingjobs", NAMESPACE, "a", ""), None)
    life.run(60)
    assert not list(life.server.all("pods"))
    metadata = {key: pod["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    life.server.create(Where("pods", NAMESPACE, "", ""), {**pod, "metadata": metadata, "status": {}})
    assert [owned(pod, uid) for pod in life.server.all("pods")] == [True]
    life.run(60)
    assert not list(life.server.all("pods"))
    life.close()


@pytest.mark.parametrize("job", ["a", "plain"])
def test_a_job_whose_record_is_deleted_starts_anew_once_its_pods_have_ended(job: str) -> None:
    """Before its go, while it trains, and once more while its old pods end."""
    faults = [Fault(at, "RecordDeleted", job=job) for at in (1.0, 60.0, 61.0, 66.0)]
    outcome = play(Story(1, [*faults, Fault(100.0, "WatchesEnd")]))
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
    assert sum(number for (_, kind), number in outcome.cells.items() if kind == "RecordDeleted") >= 3


def test_what_is_mended_one_after_the_other_is_mended() -> None:
    faults = [
        Fault(60.0 + number, name, number=number, seconds=FOR_EVER, amount=KINDS[name].amounts[-1])
        for number, name in enumerate(("ApiSlow", "CutFromOperator", "KubeletStops", "WatchesSilent", "PingsLost"))
    ]
    for seed in (1, 2):  # at one moment, and in another order
        outcome = play(Story(seed, faults))
        assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])


def test_some_lives_are_contended_and_some_a_part_of_a_large_fleet() -> None:
    told = [story(seed) for seed in range(200)]
    contended = Counter((one.sparse, one.day in (*CONTENDED_DAYS, PREEMPTED, OUTRANKED, BACKFILLED)) for one in told)
    large = Counter((one.sparse, one.large) for one in told)
    assert 0.2 < contended[False, True] / sum(not one.sparse for one in told) < 0.47
    assert 0.08 < contended[True, True] / sum(one.sparse for one in told) < 0.3
    assert 0.35 < large[False, True] / sum(not one.sparse for one in told) < 0.65
    assert 0.6 < large[True, True] / sum(one.sparse for one in told) < 0.9


def test_jobs_that_last_train_until_the_trouble_is_over_and_end_soon_after_it() -> None:
    faults = [Fault(at, "WatchesEnd") for at in (5.0, 400.0)]
    limited, lasting = (play(Story(1, faults, lasts=lasts)) for lasts in (False, True))
    assert not limited.violation, limited.violation
    assert not lasting.violation, lasting.violation
    assert limited.cells["Succeeded", "WatchesEnd"] == 1
    assert lasting.cells["Succeeded", "WatchesEnd"] == 0
    assert 400.0 < lasting.seconds < 600.0


def test_launchers_of_a_large_fleet_report_and_look_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    begin, write = Exchange.begin, Looker.write
    monkeypatch.setattr(Exchange, "begin", lambda self: (asked.append(0.0), begin(self))[1])
    monkeypatch.setattr(Looker, "write", lambda self, data: (asked.append(1.0), write(self, data))[1])
    faults = [Fault(at, "WatchesEnd") for at in (5.0, 300.0)]
    found = {}
    for large in (False, True):
        asked.clear()
        life = play(Story(1, faults, large=large, lasts=True))
        assert not life.violation, life.violation
        found[large] = Counter(asked)
    assert found[True][0.0] < found[False][0.0] / 2
    assert found[True][1.0] < found[False][1.0] / 2


def test_a_container_has_not_ended_before_a_rank_that_cannot_be_killed() -> None:
    """As the kernel has it: the first process of a container is gone last."""
    faults = [Fault(60.0, "RankUnkillable", job="b", count=2, seconds=90.0), Fault(61.0, "OutOfMemory", job="b")]
    outcome = play(Story(1, faults))
    assert not outcome.violation, outcome.violation


def test_a_plain_pod_late_behind_its_record_is_of_the_attempt_before() -> None:
    """Otherwise the pod after it would be taken for one that had trained already, and never train."""
    life = Life(1)
    uid = life.submit("plain", 1, Script(total_steps=30), launch={"mode": "Plain"}, checkpoint={})
    first: list[str] = []

    def interrupt(resource: str, _before: Object | None, after: Object | None) -> None:
        """The first node is closed until the record has gone on, and whoever wrote that dies before he deletes the
        pod."""
        if resource == "pods" and after is not None and not first:
            first.append(_pinned_to(after))
            life.agenda.after(0.0, lambda: life.server.change("nodes", "", first[0], {"spec": {"unschedulable": True}}))
        elif resource == "gangs" and after is not None and after["spec"]["attempt"] == 2 and len(first) == 1:
            first.append("is open")
            life.agenda.after(0.0, lambda: life.server.change("nodes", "", first[0], {"spec": {"unschedulable": None}}))
            for one in life.replicas:
                life.agenda.after(0.0, functools.partial(life.kill_replica, one))

    life.server.listen(interrupt)
    assert life.run_until(lambda: life.state_of("plain") == "Succeeded", 300), life.describe()
    attempts = life.trainers[uid].attempts.items()
    trained = {number: [rank.worker.name[-1] for rank in attempt.ranks.values()] for number, attempt in attempts}
    assert trained == {1: ["1"], 2: ["2"]}
    life.close()


def test_without_a_fence_two_attempts_train_and_the_story_is_shrunk_to_the_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the checks are there for: a defect that was put back is found, told in few faults, kept and played again."""
    monkeypatch.setattr(Supervisor, "_why_to_fence", lambda *_: "")
    cut = Fault(30.0, "CutOffButStorage", number=0, count=1, seconds=150.0)
    noise = [Fault(at, "WatchesEnd") for at in (10.0, 40.0, 80.0)]
    outcome = play(Story(1, [*noise, cut]))
    assert "no rank starts while one of another attempt is alive" in outcome.violation
    smallest = shrunk(outcome, most_lives=20)
    assert [fault.kind for fault in smallest.story.faults] == ["CutOffButStorage"]
    assert rule_of(smallest) == rule_of(outcome)


def test_a_story_is_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    told = story(4)
    stories.write(path, told, "a rule: broken")
    assert stories.read(path) == told
    path.write_text(path.read_text().replace(told.faults[0].kind, "Nonsense"))
    with pytest.raises(stories.StoryError, match=r"faults\[0\].kind, 'Nonsense': input should be 'RankExits', "):
        stories.read(path)


def test_a_violation_is_seen_whatever_the_operator_makes_of_it() -> None:
    life = Life(1)
    life.submit("a", 2, Script(total_steps=1000))
    life.run(20)
    with pytest.raises(ViolationError):
        life.checks._hold("a rule", holds=False, text="is broken")
    with pytest.raises(ViolationError):
        life.run(20)
    life.close()


@pytest.mark.parametrize("trouble", ["ApiAway", "CutFromOperator"])
def test_what_the_operator_could_not_see_is_charged_once_it_can(trouble: str) -> None:
    """A rank is killed, and for longer than that is seen otherwise nothing can be written, or nobody be heard."""
    faults = [
        Fault(60.0, trouble, count=8, seconds=FOR_EVER),
        Fault(61.0, "RankKilled", job="a"),
        Fault(450.0, "PingsLost", seconds=5.0, amount=0.05),
    ]
    life = play(Story(1, faults))
    assert not life.violation, "\n".join([*life.tail[-100:], life.violation])
    assert life.checks["hardware uses up no restart of the program"]


def test_a_plain_job_whose_pod_is_not_scheduled_says_so() -> None:
    """Its nodes are closed while it waits for proof that its old ranks have ended."""
    faults = [
        Fault(60.0, "RankUnkillable", job="plain", seconds=50.0),
        Fault(60.1, "NodeSick", job="plain", seconds=200.0, amount=79.0),
        Fault(70.0, "Cordon", count=8, seconds=400.0),
    ]
    life = play(Story(1, faults))
    assert not life.violation, "\n".join([*life.tail[-100:], life.violation])


def _none_gives_way(_planner: object, _job: object, answer: NotPlaced) -> Generator[None, None, NotPlaced]:
    yield
    return answer


def test_preemptible_jobs_give_way_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where they do not, that is found."""
    told = Story(1, [Fault(at, "WatchesEnd") for at in (5.0, 400.0)], day=PREEMPTED)
    outcome = play(told)
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
    assert outcome.checks["who waits for others to give way starts within one leave"]
    assert outcome.checks["no job gives way twice for nothing"] >= 3
    monkeypatch.setattr(_Planner, _Planner._preempting.__name__, _none_gives_way)
    assert "no job waits behind those that owe it nodes" in play(told).violation


def test_priority_preempts_in_time() -> None:
    told = Story(1, [Fault(at, "WatchesEnd") for at in (5.0, 400.0)], day=OUTRANKED)
    outcome = play(told)
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
    assert outcome.checks["priority preempts from above only"] >= 2
    assert outcome.checks["who waits for others to give way starts within one leave"]


PASSING = Story(1, [Fault(at, "WatchesEnd") for at in (5.0, 800.0)], day=BACKFILLED)


def test_jobs_that_pass_give_way_in_time() -> None:
    """There are some, of which two at least do not end as their users said."""
    outcome = play(PASSING)
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
    assert outcome.checks["who passes is trusted to end in time"] >= 5
    assert outcome.checks["who passes gives way to those before only"] >= 3
    assert outcome.checks["an estimate is short only once it is over"] >= 2
    assert outcome.checks["who gives way stands behind"]
    assert outcome.checks["who waits for others to give way starts within one leave"]


def _all_give_way(plan: Preemption, job: WaitingJob) -> frozenset[str]:
    return frozenset() if job.preemptible else frozenset(plan.borrowers)


def _nothing_is_lent(_plan: Preemption, _holder: Borrower) -> bool:
    return False


@pytest.mark.parametrize(
    ("owner", "function", "defect", "rule"),
    [
        (_Planner, _Planner._preempting, _none_gives_way, "no job waits behind those that owe it nodes"),
        (Preemption, Preemption.owing, _all_give_way, "who passes gives way to those before only"),
        (Preemption, Preemption._is_lent, _nothing_is_lent, "who passes keeps what is lent to it"),
    ],
    ids=["never asked", "asked for younger jobs", "asked too soon"],
)
def test_jobs_that_pass_and_do_not_give_way_as_they_should_are_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, function: Callable[..., object], defect: object, rule: str
) -> None:
    monkeypatch.setattr(owner, function.__name__, defect)
    assert rule in play(PASSING).violation


LIVES = 5
# A job that a defect keeps from ending would be played for two simulated hours: half an hour of a core.
QUIET_SECONDS = 600.0
STORIES = Path(__file__).parents[2] / "simulate" / "stories"


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_that_is_put_back_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a story needs luck, one of a few lives shows it."""
    path = STORIES / f"{name}.json"
    told, rule = stories.read(path), json.loads(path.read_text())["violation"].partition(":")[0]
    monkeypatch.setattr("simulate.play.QUIET_SECONDS", QUIET_SECONDS)

    def shows_it(life: Story) -> bool:
        with monkeypatch.context() as patch:
            DEFECTS[name](patch)
            return rule in play(life).violation

    lives = (replace(told, seed=told.seed + n) for n in range(LIVES))
    found = next(filter(shows_it, lives), None)
    assert found is not None
    assert not play(found).violation


@pytest.mark.parametrize("name", [name for name, told in KEPT.items() if told.until or name not in HERE])
def test_a_story_violates_nothing_to_its_end(name: str) -> None:
    """The gate plays it until it has shown what it is kept for, or not at all."""
    outcome = play(replace(KEPT[name], until=0.0))
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
