"""What is said about a job, word for word."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.answers.explanation import MAX_EVENTS, JobEvent, explain, newest_events
from muster.answers.jobstatus import JobStatusView, job_status
from muster.answers.reasons import NEXT_BY_REASON
from muster.api.trainingjob import TrainingJob
from muster.cli.status import render

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def ago(**units: float) -> str:
    return (NOW - timedelta(**units)).isoformat()


def condition(kind: str, status: str, reason: str, message: str, since: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def a_job(wanted: int = 16, generation: int = 1, **status: Any) -> TrainingJob:
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1", "command": ["train"]}]}}
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "llama", "namespace": "team-a", "uid": "u", "generation": generation},
            "spec": {"nodes": wanted, "template": template, "checkpoint": {"directory": "/shared/llama"}},
            "status": {"observedGeneration": 1, **status} if status else {},
        }
    )


WAITING = a_job(
    state="Pending",
    reason="TopologyUnsatisfied",
    nodesReady="0/16",
    conditions=[
        condition("Placed", "False", "TopologyUnsatisfied", "needs 16 free nodes in one block", ago(hours=2)),
        condition("Running", "False", "TopologyUnsatisfied", "another text", ago(days=1)),
    ],
    waiting={
        "needs": 16,
        "level": "block",
        "segmentSize": 4,
        "position": 2,
        "queued": 5,
        "fleet": 64,
        "suitable": 62,
        "free": 40,
        "domains": [{"domain": "b3", "free": 14, "suitable": 16}, {"domain": "b1", "free": 4, "suitable": 16}],
        "blockers": [{"reason": "in use by team-b/big", "nodes": 20}, {"reason": "cordoned", "nodes": 2}],
        "remedies": ["2 more nodes in block b3", "team-b/big ends or is suspended (holds 20 nodes it could use)"],
        "since": ago(minutes=12, seconds=22),
    },
)
RUNNING = a_job(
    wanted=4,
    state="Running",
    reason="Training",
    attempt=3,
    nodesReady="4/4",
    nodes=["gpu-001", "gpu-002", "gpu-003", "gpu-010"],
    topology=[{"level": "block", "domains": 1}, {"level": "rack", "domains": 2}],
    step=48210,
    checkpoint={"step": 48000, "path": "/shared/llama/step-48000", "time": ago(seconds=200)},
    restarts=2,
    incidents=[
        {
            "attempt": 1,
            "time": ago(days=1),
            "level": "R0",
            "faultClass": "Application",
            "reason": "RankFailed",
            "node": "gpu-002",
            "message": "rank 9 exited with code 1: \x1b[31mloss is nan\x1b[0m\nmore lines",
            "lostSteps": 1,
        },
        {
            "attempt": 2,
            "time": ago(minutes=66),
            "level": "R2",
            "faultClass": "Infrastructure",
            "reason": "NodeUnreachable",
            "message": "gpu-006 is lost",
        },
    ],
    conditions=[condition("Running", "True", "Training", "attempt 3 on gpu-001, ...", ago(minutes=65))],
)
FAILED = a_job(
    state="Failed",
    reason="RankFailed",
    attempt=4,
    restarts=3,
    nodesReady="0/16",
    checkpoint={"step": 9, "path": "/shared/llama/step-9", "time": ago(days=2, minutes=5)},
    completion={
        "result": "Failed",
        "reason": "RankFailed",
        "message": "no flash_attn",
        "time": ago(days=2),
        "attempt": 4,
    },
)
EVENTS = [
    JobEvent(time=NOW - timedelta(minutes=66), type="Warning", reason="NodeUnreachable", message="gpu-006 is lost"),
    JobEvent(time=NOW - timedelta(minutes=65), type="Normal", reason="Started", message="ranks started", count=3),
]


def stood(job: TrainingJob, events: Sequence[JobEvent] | None = ()) -> JobStatusView:
    return job_status(job, None, None, None, NOW, events=events)


def test_a_waiting_job_is_explained_with_numbers(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, stood(WAITING, []), NOW))
    assert (
        text
        == """\
team-a/llama is Pending: TopologyUnsatisfied, for 12m22s
needs 16 free nodes in one block

Needs     16 nodes, all at once, inside one block, in segments of 4
There is  40 free for it now, 62 if nothing else ran, 64 in the fleet

BEST BLOCK  FREE  SUITABLE  MISSING
b3            14        16        2
b1             4        16       12

NODES  NOT FREE BECAUSE
   20  in use by team-b/big
    2  cordoned

Workers  0/16 ready

WHAT COMES
-  place 2 of 5 in the queue; it starts when 16 nodes are free for it at once (40 are now)

WHAT YOU CAN DO
-  2 more nodes in block b3
-  team-b/big ends or is suspended (holds 20 nodes it could use)"""
    )


def test_a_running_job_is_told_where_it_is_and_what_happened(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, stood(RUNNING, EVENTS[::-1]), NOW), width=100)
    assert (
        text
        == """\
team-a/llama is Running: Training, for 1h5m

Step        48,210
Checkpoint  step 48,000, 3m20s old, 210 steps behind: /shared/llama/step-48000
Attempt     3 (2 restarts)
Workers     4/4 ready, in 1 block, 2 racks

WORKER  NODE
     0  gpu-001
     1  gpu-002
     2  gpu-003
     3  gpu-010

LAST EVENTS (2 of 2)
AGE   REASON           MESSAGE
1h5m  Started          ranks started (3 times)
1h6m  NodeUnreachable  gpu-006 is lost"""
    )


def test_more_events_than_are_kept_are_not_counted_as_all(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, stood(RUNNING, EVENTS[:1] * 20), NOW))
    assert "LAST EVENTS (5 of 16 or more)" in text


def test_a_failed_job_is_told_what_to_do(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, stood(FAILED, None), NOW), width=120)
    assert (
        text
        == """\
team-a/llama is Failed: RankFailed, for 2d
no flash_attn

Checkpoint  step 9, 2d old: /shared/llama/step-9
Attempt     4 (3 restarts)

WHAT YOU CAN DO
-  what the workers printed: kubectl -n team-a logs -l muster.dev/job=llama --prefix --tail=20
-  the same job once more, as it is: kubectl muster requeue team-a/llama
-  when the cause is repaired, delete the job and create it again: it goes on from step 9 in /shared/llama
-  go on from an older checkpoint: kubectl muster fork team-a/llama --from-step STEP

note: its Events may not be read: ask for the cluster's role view in this namespace"""
    )


def test_commands_are_not_folded(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, stood(FAILED, []), NOW), width=40)
    assert "kubectl -n team-a logs -l muster.dev/job=llama --prefix --tail=20\n" in text


def test_a_job_that_no_operator_has_seen(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, stood(a_job(), []), NOW))
    assert text.startswith("team-a/llama has not been looked at by an operator yet\n")
    assert "kubectl -n muster-system get pods" in text


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("Pending", "Placed"),
        ("Starting", "Reconciling"),
        ("Recovering", "Reconciling"),
        ("Running", "Running"),
        ("Saving", "Running"),
        ("Suspended", "Suspended"),
        ("Stalled", "Stalled"),
    ],
)
def test_each_state_is_told_by_its_own_condition(state: str, kind: str) -> None:
    kinds = ("Placed", "Reconciling", "Running", "Suspended", "Stalled", "Succeeded", "TemplateAccepted")
    conditions = [condition(each, "True", "Why", f"message of {each}", ago(hours=i)) for i, each in enumerate(kinds)]
    found = explain(a_job(state=state, reason="Why", conditions=conditions))
    assert found.message == f"message of {kind}"
    assert found.since == NOW - timedelta(hours=kinds.index(kind))


def test_a_change_that_the_operator_has_not_seen_yet_is_told() -> None:
    (note,) = explain(a_job(generation=2, state="Pending", reason="InsufficientNodes")).notes
    assert note.startswith("the operator has not looked at the newest change of the job yet")
    assert explain(a_job(state="Pending", reason="InsufficientNodes")).notes == []


def test_a_gang_that_looks_for_a_replacement_is_told_so(printed: Callable[..., str]) -> None:
    status = RUNNING.status.model_dump(by_alias=True) | {
        "state": "Recovering",
        "reason": "InsufficientNodes",
        "nodes": ["gpu-001", "", "gpu-003", "gpu-010"],
        "waiting": {"needs": 1, "fleet": 9, "since": ago(minutes=1)},
    }
    text = printed(lambda console: render(console, stood(a_job(wanted=4, **status), []), NOW))
    assert text.startswith("team-a/llama is Recovering: InsufficientNodes, for 1m\n")
    assert "\nNeeds     1 node, all at once\n" in text
    assert "\n     1  (none yet)\n" in text


def test_numbers_that_nobody_has_counted_are_not_told_as_zero(printed: Callable[..., str]) -> None:
    over = {
        "needs": 16,
        "position": 1,
        "queued": 1,
        "blockers": [{"reason": "limit of namespace team-a: 8", "nodes": 8}],
    }
    text = printed(
        lambda console: render(console, stood(a_job(state="Pending", reason="NamespaceLimit", waiting=over), []), NOW)
    )
    assert "There is" not in text
    assert "\n    8  limit of namespace team-a: 8" in text


def test_of_many_events_the_newest_are_kept_in_order() -> None:
    many = [JobEvent(time=NOW - timedelta(minutes=age), reason=f"R{age}") for age in range(30)]
    assert [event.reason for event in newest_events(many)] == [f"R{age}" for age in reversed(range(MAX_EVENTS))]


def test_programs_get_the_numbers_and_the_events() -> None:
    found = stood(WAITING, EVENTS).to_json()
    assert found["kind"] == "JobStatus"
    assert found["waiting"] == WAITING.status.to_json()["waiting"]
    assert [event["reason"] for event in found["events"]] == ["NodeUnreachable", "Started"]
    assert "events" not in stood(WAITING, None).to_json()


@pytest.mark.parametrize("reason", sorted(NEXT_BY_REASON))
def test_next_steps_name_the_job(reason: str) -> None:
    steps = explain(a_job(state="Starting", reason=reason)).next
    assert steps
    assert not [step for step in steps if re.search(r"\{\w*\}", step)]


def test_the_command_that_resumes_is_one_that_a_shell_takes() -> None:
    (step,) = explain(a_job(state="Suspended", reason="Suspended")).next
    words = shlex.split(step.partition(": ")[2])
    assert words[:5] == ["kubectl", "-n", "team-a", "patch", "tj"]
    assert json.loads(words[-1]) == {"spec": {"suspend": False}}
