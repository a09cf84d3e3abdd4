"""`queue`: places, holders, estimates with their reasons, and the score, as printed."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.cli.test_status import NOW, a_job, ago, rfc3339
from typer.testing import Result

from muster.answers.queue import NOT_COUNTED, head_text, queue_view, score_of, score_text, start_text
from muster.api.trainingjob import TrainingJob
from muster.cli.queue import render
from muster.kube.errors import Forbidden

Run = Callable[..., Result]
ALL = "/apis/muster.dev/v1alpha1/trainingjobs"
OWN = "/apis/muster.dev/v1alpha1/namespaces/team-a/trainingjobs"
MINUTE = 60.0


def a_named(name: str, spec: dict[str, Any] | None = None, namespace: str = "team-a", **status: Any) -> dict[str, Any]:
    job = a_job(**status)
    metadata = {**job["metadata"], "name": name, "uid": name, "namespace": namespace}
    return {**job, "metadata": metadata, "spec": {**job["spec"], **(spec or {})}}


def waits(name: str, position: int, needs: int, estimate: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    waiting = {"needs": needs, "position": position, "queued": 3, "since": ago(7500), **more}
    status = {"state": "Pending", "reason": "InsufficientNodes", "nodes": [], "step": None, "goodput": None}
    return a_named(name, waiting=waiting, **status, **({"startEstimate": estimate} if estimate else {}))


def starts(minutes: float, reason: str) -> dict[str, Any]:
    return {"time": rfc3339(NOW + timedelta(minutes=minutes)), "reason": reason, "generation": 1}


def started(name: str, late_minutes: float, minutes_ago: float = 60) -> dict[str, Any]:
    """A job that started so long ago, so much later than was estimated first."""
    start = NOW - timedelta(minutes=minutes_ago)
    estimate = {
        "reason": "team-a/old ends",
        "firstTime": rfc3339(start - timedelta(minutes=late_minutes)),
        "firstEstimatedTime": ago(9000),
        "startedTime": rfc3339(start),
    }
    done = {"result": "Succeeded", "reason": "Done", "message": "", "attempt": 1, "time": ago(60)}
    return a_named(name, state="Succeeded", nodes=[], completion=done, startEstimate=estimate)


JOBS = [
    a_named("llama", {"progress": {"totalSteps": 6001}}),
    a_named("bert", {"queueing": {"expectedDurationSeconds": 3000}}, nodes=["gpu-2"], step=None),
    a_named("notes", nodes=["gpu-3"], step=None, namespace="team-b"),
    waits("next", 2, 1),
    waits("big", 1, 4, starts(40, "team-a/llama ends by its step rate"), level="rack", reserved=3),
    waits("far", 17, 8),
    waits("odd", 3, 2, {"reason": "when team-b/notes ends is not known", "generation": 1}),
    started("a", 12),
    started("b", -3),
    started("c", 20),
]

SCREEN = """\
all namespaces: 4 jobs wait for 15 nodes, 3 jobs hold 4, 3 free nodes are reserved; times are UTC

PLACE  JOB                  NODES  WAITS  RESERVED  STARTS ABOUT   WHY
    1  team-a/big   4 in one rack  2h5m          3  04:40, in 40m  team-a/llama ends by its step rate
    2  team-a/next              1  2h5m             not known      not estimated yet
    3  team-a/odd               2  2h5m             not known      when team-b/notes ends is not known
   17  team-a/far               8  2h5m             not known      only the first 16 of the queue, and of those
                                                                   that wait for nodes, are estimated

NODES  HELD BY       STATE    ENDS ABOUT     WHY
    2  team-a/llama  Running  04:40, in 40m  by its step rate: step 1200 of 6001, 0.5 s each
    1  team-a/bert   Running  not known      should have ended 6m41s ago by its expectedDurationSeconds: 3000 s
                                             in all, 3401 s so far
    1  team-b/notes  Running  not known      neither its steps nor expectedDurationSeconds nor earlier jobs say
                                             it

the last 3 starts came 12m later than first estimated in the median, half of them between 4m30s later and 16m
later (not counted: jobs that were deleted, suspended or changed while they waited, or started before there was
an estimate)"""


def viewed(jobs: list[dict[str, Any]], namespace: str = "") -> Any:
    return queue_view([TrainingJob.model_validate(job) for job in jobs], namespace, NOW)


def test_the_screen(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, viewed(JOBS)), width=112)
    assert text == SCREEN


@pytest.mark.parametrize(
    ("late", "says"),
    [
        ([], "no start could be compared with an estimate yet"),
        ([12], "the last start came 12m later than first estimated"),
        ([-0.5], "the last start came as first estimated"),
        (
            [12, -3, 20],
            "the last 3 starts came 12m later than first estimated in the median, half of them between 4m30s later "
            "and 16m later",
        ),
        (
            [-10, -5, 0, 5],
            "the last 4 starts came 2m30s earlier than first estimated in the median, half of them between "
            "6m15s earlier and 1m15s later",
        ),
    ],
)
def test_the_score_in_words(late: list[float], says: str) -> None:
    jobs = [TrainingJob.model_validate(started(f"job-{number}", minutes)) for number, minutes in enumerate(late)]
    assert score_text(score_of(jobs)) == says


def test_the_newest_twenty_starts_count() -> None:
    jobs = [started(f"new-{number}", 2, minutes_ago=number) for number in range(20)]
    jobs += [started(f"old-{number}", 500, minutes_ago=100 + number) for number in range(30)]
    score = score_of([TrainingJob.model_validate(job) for job in jobs])
    assert score is not None
    assert (score.starts, score.median_late_seconds) == (20, 2 * MINUTE)


def test_who_has_no_estimate_is_told_why() -> None:
    rows = {row.name: row.why for row in viewed([*JOBS, waits("new", 4, 1)]).queue}
    assert rows["far"] == "only the first 16 of the queue, and of those that wait for nodes, are estimated"
    assert rows["new"] == "not estimated yet"
    gang = waits("gang", 1, 1)
    gang["status"] |= {"state": "Recovering", "nodes": ["gpu-7", ""]}
    view = viewed([gang])
    assert view.queue[0].why == "its gang waits for other nodes, and comes before jobs that start"
    assert [(row.name, row.nodes) for row in view.holders] == [("gang", 1)]


def test_who_gives_way_is_shown() -> None:
    saves = {"checkpoint": {"directory": "/ckpt"}}
    spot = {"queueing": {"preemptible": True}}
    jobs = [*JOBS, a_named("spot", {**saves, **spot}), a_named("small", saves, backfilled=True)]
    view = viewed([*jobs, a_named("unsaved", spot)])
    assert {row.name: row.why.partition(";")[0] for row in view.holders if row.gives_way} == {
        "spot": "it is preemptible, and gives way to jobs that are not",
        "small": "it backfills, and gives way to jobs before it in the queue",
        "unsaved": "it is preemptible, and gives way to jobs that are not, without waiting for a save "
        "(spec.checkpoint.directory is not set)",
    }
    assert "6 jobs hold 10, 6 of these until other jobs need them, 3 free nodes are reserved" in head_text(view)


def test_nodes_that_are_lent_for_a_time_are_not_said_to_be_given_back_before() -> None:
    until = NOW + timedelta(hours=2)
    (holder,) = (view := viewed([a_named("small", backfilled=True, lentUntil=rfc3339(until))])).holders
    assert (holder.gives_way, holder.lent_until) == (True, until)
    assert "1 job holds 2, 2 of these are lent for a while;" in head_text(view)
    (holder,) = (view := viewed([a_named("small", backfilled=True, lentUntil=ago(5))])).holders
    assert holder.lent_until is None
    assert "1 job holds 2, 2 of these until other jobs need them;" in head_text(view)


def test_an_estimate_of_an_earlier_wait_is_not_shown() -> None:
    over = {**starts(-50, "x"), "startedTime": ago(3000)}
    assert viewed([waits("again", 1, 1, over)]).queue[0].why == "not estimated yet"


def test_an_estimate_that_has_passed(printed: Callable[..., str]) -> None:
    job = waits("big", 1, 4, starts(-5, "x"))
    text = printed(lambda console: render(console, viewed([job])), width=120)
    assert "any moment" in text
    assert start_text(TrainingJob.model_validate(job), NOW) == "by Muster's estimate it starts any moment: x"


def test_for_programs(command: Run, api: Any) -> None:
    api.lists(ALL, *JOBS)
    found = command("queue", "-o", "json")
    assert found.exit_code == 0, found.output
    body = json.loads(found.stdout)
    assert (body["kind"], [row["name"] for row in body["queue"]]) == ("QueueView", ["big", "next", "odd", "far"])
    assert body["score"]["starts"] == 3


def test_without_the_right_to_all_it_shows_the_own_namespace(command: Run, api: Any) -> None:
    api.errors[ALL] = Forbidden(403, "Forbidden", "no")
    api.lists(OWN, *JOBS)
    found = command("queue")
    assert "note: only namespace team-a: jobs of others have places between these" in found.stdout.replace("\n", " ")
    assert NOT_COUNTED.split(":")[0] in found.stdout
