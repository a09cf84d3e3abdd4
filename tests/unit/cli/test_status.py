"""`status`: what one screen says of a job, from what this user may read."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from typer.testing import Result

from muster.answers.jobstatus import job_status
from muster.answers.training import STILL
from muster.api.base import rfc3339
from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJob
from muster.cli.status import render
from muster.kube.errors import Forbidden, NotFound
from muster.world.names import gang_name

NOW = datetime(2026, 1, 5, 4, tzinfo=UTC)
JOBS = "/apis/muster.dev/v1alpha1/namespaces/team-a/trainingjobs"
GANG = f"/apis/muster.dev/v1alpha1/namespaces/team-a/gangs/{gang_name('llama', 'u')}"
PODS = "/api/v1/namespaces/team-a/pods"
EVENTS = "/api/v1/namespaces/team-a/events"
Run = Callable[..., Result]


def ago(seconds: float) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))


def incident(**more: Any) -> dict[str, Any]:
    base = {
        "attempt": 2,
        "time": ago(60),
        "level": "R2",
        "faultClass": "Hardware",
        "reason": "NodeLost",
        "node": "gpu-1",
    }
    return {**base, "message": "node gpu-1 is \x1b[31mgone", **more}


def a_job(**status: Any) -> dict[str, Any]:
    told = {
        "state": "Running",
        "reason": "Training",
        "attempt": 3,
        "restarts": 2,
        "step": 1200,
        "nodesReady": "2/2",
        "nodes": ["gpu-0", "gpu-1"],
        "checkpoint": {"step": 1000, "path": "/ckpt/1000", "time": ago(180)},
        "goodput": {
            "creationTime": ago(3600),
            "countedUntil": ago(1),
            "seconds": {"compute": 3400, "queued": 199},
            "ettrPermille": 944,
            "ettrAfterQueuePermille": 1000,
            "stepMilliseconds": 500,
            "checkpointSteps": 500,
        },
    }
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1"}]}}
    return {
        "metadata": {"name": "llama", "namespace": "team-a", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodes": 2, "template": template},
        "status": {name: value for name, value in (told | status).items() if value is not None},
    }


def fresh(job: dict[str, Any]) -> dict[str, Any]:
    """The same with figures that are not old by the real clock, which commands ask."""
    goodput = {**job["status"]["goodput"], "countedUntil": rfc3339(datetime.now(UTC) + timedelta(days=1))}
    return {**job, "status": {**job["status"], "goodput": goodput}}


def a_record(**more: Any) -> dict[str, Any]:
    members = [{"node": f"gpu-{index}"} for index in range(2)]
    base = {"jobUid": "u", "attempt": 3, "time": ago(50), "level": "R2", "reason": "NodeLost", "members": members}
    return {**base, **more}


def a_gang(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": gang_name("llama", "u"), "namespace": "team-a", "uid": "g", "resourceVersion": "8"},
        "spec": a_record(**more),
    }


def a_pod(index: int, phase: str = "Running", owner: str = "u", incarnation: int = 1) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"llama-x-{index}-{incarnation}",
            "namespace": "team-a",
            "uid": f"p{index}{incarnation}{owner}",
            "resourceVersion": "9",
            "labels": {
                "muster.dev/job-uid": "u",
                "muster.dev/index": str(index),
                "muster.dev/incarnation": str(incarnation),
            },
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "spec": {"nodeName": f"gpu-{index}", "containers": [{"name": "main"}]},
        "status": {"phase": phase},
    }


def a_health(name: str, state: str, reason: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "3"},
        "status": {"state": state, "reason": reason, "since": ago(60)},
    }


def health_path(name: str) -> str:
    return f"/apis/muster.dev/v1alpha1/nodehealths/{name}"


def no_such(name: str) -> NotFound:
    return NotFound(404, "NotFound", f"{name} not found", {"name": name})


def with_job(api: Any, *, record: dict[str, Any] | None = None, **status: Any) -> None:
    api.put(f"{JOBS}/llama", a_job(**status))
    api.put(GANG, a_gang(**(record or {})))
    api.lists(PODS, a_pod(0), a_pod(1))
    api.lists(EVENTS)
    api.put(health_path("gpu-0"), a_health("gpu-0", "Healthy"))
    api.put(health_path("gpu-1"), a_health("gpu-1", "Degraded", "Xid79"))


def stood(record: dict[str, Any] | None = None, **status: Any) -> Any:
    job = TrainingJob.model_validate(a_job(**status))
    return job_status(job, GangSpec.model_validate(a_record(**(record or {}))), [], {}, NOW)


def test_warnings_stand_right_below_the_state_without_the_one_that_is_the_reason(printed: Callable[..., str]) -> None:
    warnings = [
        {"reason": "StepsNotSeen", "message": "no step was seen", "since": ago(60)},
        {"reason": "DirectoryShared", "message": "that of \x1b[31mbert, too", "since": ago(3600)},
    ]
    text = printed(lambda console: render(console, stood(reason="StepsNotSeen", warnings=warnings), NOW))
    head = text.partition("Step  ")[0]
    assert "WARNINGS\n- DirectoryShared, for 1h: that of" in head
    assert "\x1b" not in text
    assert "no step was seen" not in head.partition("WARNINGS")[2]
    assert "WARNINGS" not in printed(lambda console: render(console, stood(), NOW))


@pytest.mark.parametrize(
    ("progress", "says"),
    [
        (
            {},
            "(those of frameworks, or step 12 | loss 0.53; the bars of Lightning's TQDMProgressBar and torchtune only",
        ),
        ({"preset": "Auto"}, "docs/trainer-contract.md"),
        ({"preset": "Megatron"}, "from the printed lines of Megatron, or from the file in MUSTER_PROGRESS"),
        ({"stepPattern": "s=([0-9]+)"}, "by spec.progress.stepPattern in what is printed"),
        ({"preset": "Off"}, "spec.progress.preset is Off, so that they are read from the file"),
    ],
)
def test_a_step_that_nobody_has_seen_is_not_step_0(
    progress: dict[str, Any], says: str, printed: Callable[..., str]
) -> None:
    def told(**status: Any) -> str:
        made = a_job(**{"checkpoint": None, **status})
        made["spec"]["progress"] = progress
        job = TrainingJob.model_validate(made)
        found = job_status(job, None, [], {}, NOW)
        return " ".join(printed(lambda console: render(console, found, NOW)).split())

    running = told(reason="RanksStarted", step=None)
    assert "Step not seen yet: " in running
    assert says in running
    assert "Checkpoint none seen yet" in running
    assert "not seen yet" not in told(step=7)
    assert "not seen yet" not in told(state="Pending", step=None)


def test_an_ended_job_has_no_workers_and_says_how_it_goes_on(printed: Callable[..., str]) -> None:
    job = a_job(state="Failed", reason="RankFailed", incidents=[incident()])
    for directory, says in (
        ("/shared/llama", "go on from an older checkpoint: kubectl muster fork team-a/llama --from-step STEP"),
        (None, "create it again"),
    ):
        job["spec"]["checkpoint"] = {"directory": directory} if directory else {}
        found = job_status(TrainingJob.model_validate(job), None, [], {}, NOW)
        assert found.workers == []
        assert found.next == []
        assert found.actions[0] == "what the failed rank printed: kubectl muster logs team-a/llama --failed"
        assert found.actions[-1].endswith(says)
        assert "Workers" not in printed(lambda console, it=found: render(console, it, NOW))


def test_a_running_job_is_told_with_speed_checkpoint_and_verdicts(api: Any, command: Run) -> None:
    with_job(api)
    api.put(f"{JOBS}/llama", fresh(a_job()))
    found = json.loads(command("status", "llama", "-o", "json").stdout)
    assert (found["kind"], found["state"], found["step"], found["ettr"]) == ("JobStatus", "Running", 1200, 0.944)
    assert found["stepsPerSecond"] == 2.0
    assert (found["checkpoint"]["step"], found["checkpoint"]["stepsSince"]) == (1000, 200)
    assert [(row["worker"], row["node"], row["pod"], row["podState"]) for row in found["workers"]] == [
        (0, "gpu-0", "llama-x-0-1", "Running"),
        (1, "gpu-1", "llama-x-1-1", "Running"),
    ]
    assert [row["health"]["state"] for row in found["workers"]] == ["Healthy", "Degraded"]
    assert "openIncident" not in found
    assert found["notes"] == []
    again = yaml.safe_load(command("status", "llama", "-o", "yaml").stdout)
    assert {**again, "time": ""} == {**found, "time": ""}
    text = command("status", "team-a/llama").stdout
    assert "1,200, 2.0/s" in text
    assert "degraded: Xid79" in text


def test_pods_of_others_that_bear_the_label_are_not_the_jobs(api: Any, command: Run) -> None:
    with_job(api)
    api.lists(PODS, a_pod(0), a_pod(1, owner="stranger", incarnation=7))
    found = json.loads(command("status", "llama", "-o", "json").stdout)
    assert [(row.get("pod"), row["podState"]) for row in found["workers"]] == [("llama-x-0-1", "Running"), ("", "gone")]


def test_a_tenant_is_told_what_is_missing_and_gets_the_rest(api: Any, command: Run) -> None:
    with_job(api)
    for path in (GANG, PODS, EVENTS, health_path("gpu-0")):
        api.errors[path] = Forbidden(403, "Forbidden", "no")
    found = json.loads(command("status", "llama", "-o", "json").stdout)
    assert [row["node"] for row in found["workers"]] == ["gpu-0", "gpu-1"]
    assert found["step"] == 1200
    assert [note.split(" may not")[0] for note in found["notes"]] == [
        "its record",
        "its pods",
        "the health of its nodes",
        "its Events",
    ]
    assert "ClusterRole muster-fleet-view" in found["notes"][2]


def test_many_nodes_are_read_with_one_list(api: Any, command: Run) -> None:
    names = [f"gpu-{index}" for index in range(20)]
    api.put(f"{JOBS}/llama", a_job(nodes=names))
    api.errors[GANG] = no_such("x")
    api.lists(PODS)
    api.lists(EVENTS)
    api.lists(
        "/apis/muster.dev/v1alpha1/nodehealths", a_health("gpu-3", "Suspect", "Eee"), a_health("other", "Suspect")
    )
    found = json.loads(command("status", "llama", "-o", "json").stdout)
    assert [row["node"] for row in found["workers"] if "health" in row] == ["gpu-3"]
    assert sum("nodehealths" in path for path in api.asked) == 1


def test_a_large_gang_shows_only_those_of_whom_there_is_something_to_say(printed: Callable[..., str]) -> None:
    members = [{"node": f"gpu-{index:03}"} for index in range(300)]
    job = TrainingJob.model_validate(a_job(nodes=[]))
    record = GangSpec.model_validate(a_record(members=members))
    found = job_status(job, record, None, None, NOW)
    text = printed(lambda console: render(console, found, NOW))
    assert "300 more workers without problems, on nodes without findings" in text
    sick = job_status(job, record, [], None, NOW)  # pods may be read, and none is there
    text = printed(lambda console: render(console, sick, NOW))
    assert "280 more workers with something to report" in text
    assert len(text.splitlines()) < 50


def test_what_comes_and_what_can_be_done_in_a_recovery(printed: Callable[..., str]) -> None:
    unfenced_worker = {"pod": "p", "node": "gpu-1", "fencedTime": ago(0), "attempt": 2}
    found = stood(
        {"unfencedWorkers": [unfenced_worker], "holdUntil": rfc3339(NOW + timedelta(seconds=40))},
        state="Recovering",
        reason="NodeLost",
        nodesReady="1/2",
        incidents=[incident(faultClass="Application")],
    )
    assert found.next == [
        "it waits for proof that the ranks of 1 earlier pod have ended (gpu-1); none start before",
        "attempt 3 starts in 40s (back-off after failures)",
    ]
    assert found.actions[:2] == [
        "see what was seen and decided: kubectl muster report team-a/llama --incident 2",
        "what the failed rank printed: kubectl muster logs team-a/llama --failed",
    ]
    text = printed(lambda console: render(console, found, NOW))
    assert "OPEN INCIDENT 2\nNodeLost on gpu-1, seen 1m ago (Application); is repaired by a new node" in text
    last = stood(state="Recovering", reason="AwaitingEvidence", incidents=[incident()])
    assert "(Hardware); no restart is left" in printed(lambda console: render(console, last, NOW))
    assert "\x1b[31m" not in text


@pytest.mark.parametrize(
    ("ready", "next_steps"), [("1/2", ["attempt 3 starts when all workers are ready (1/2)"]), ("2/2", [])]
)
def test_a_start_waits_for_workers_only_while_one_is_not_ready(ready: str, next_steps: list[str]) -> None:
    assert stood(state="Starting", reason="AwaitingCheckpoint", nodesReady=ready).next == next_steps


def test_a_planned_leave_of_a_job_whose_checkpoints_are_not_seen_promises_none() -> None:
    leave = {"reason": "NodeCordoned", "nodes": ["gpu-1"], "since": ago(1), "deadline": rfc3339(NOW)}
    assert stood({"evacuation": leave}).next[0] == "it leaves gpu-1 without a checkpoint, now (NodeCordoned)"


@pytest.mark.parametrize("over", [True, False])
def test_a_save_that_was_asked_for_is_foreseen(over: bool) -> None:
    until = rfc3339(NOW + timedelta(seconds=120))
    asked = {"name": "first", "attempt": 3, "number": 1, "since": ago(1), "deadline": until, "over": over}
    expected = [] if over else ["it was asked to save (first), which is waited for 2m more"]
    assert [line for line in stood({"saveRequest": asked}).next if "asked" in line] == expected


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"backfilled": True}, ["it backfills, and gives way to jobs before it in the queue"]),
        ({"backfilled": True, "lentUntil": ago(5)}, ["it backfills, and gives way to jobs before it in the queue"]),
        (
            {"backfilled": True, "lentUntil": rfc3339(NOW + timedelta(minutes=130))},
            ["it backfills, keeps its nodes for 2h10m, then gives way to jobs before it in the queue"],
        ),
        ({}, []),
    ],
)
def test_a_job_that_gives_way_says_to_which_jobs(status: dict[str, Any], says: list[str]) -> None:
    at_once = ", without waiting for a save (spec.checkpoint.directory is not set)"
    assert [line.removesuffix(at_once) for line in stood(**status).next if line.endswith(at_once)] == says


def test_a_planned_leave_and_the_next_checkpoint_are_foreseen() -> None:
    leave = {"reason": "Suspended", "nodes": [], "since": ago(5), "deadline": rfc3339(NOW + timedelta(seconds=600))}
    start = {"time": ago(40), "masterAddress": "a", "masterPort": 1}
    raw = a_job()
    raw["spec"]["checkpoint"] = {"directory": "/ckpt"}
    record = GangSpec.model_validate(a_record(evacuation=leave, start=start))
    found = job_status(TrainingJob.model_validate(raw), record, [], {}, NOW)
    assert found.next == [
        "it leaves all its nodes after its next complete checkpoint, in 10m at the latest (Suspended)",
        "the next checkpoint is due at step 1500, in about 2m30s",
    ]
    assert found.actions == []


def test_a_job_that_makes_no_step_any_more_says_so_and_promises_no_checkpoint(printed: Callable[..., str]) -> None:
    job = TrainingJob.model_validate(a_job())
    later = NOW + STILL
    found = job_status(job, None, [], {}, later, written=NOW)
    assert found.still_since is not None
    assert found.next == []
    text = printed(lambda console: render(console, found, later))
    assert stood().next, "a checkpoint is due while it makes steps"
    assert stood(reason="RanksStarted").next == [], "none while ranks load"
    assert re.search(r"Step +1,200; no other for 1m\d+s, although a step takes 0\.5 s\n", text)


def test_a_waiting_job_says_its_place_and_what_would_unblock_it() -> None:
    waiting = {"needs": 16, "position": 2, "queued": 3, "free": 4, "fleet": 20, "remedies": ["2 more nodes"]}
    found = stood({"members": []}, state="Pending", reason="InsufficientNodes", waiting=waiting, step=None)
    assert found.next == ["place 2 of 3 in the queue; it starts when 16 nodes are free for it at once (4 are now)"]
    assert found.actions == ["2 more nodes"]
    assert found.steps_per_second is None


def test_a_job_that_fits_nowhere_is_not_promised_a_start() -> None:
    waiting = {"needs": 99, "position": 1, "queued": 1, "free": 0, "fleet": 4}
    found = stood({"members": []}, state="Pending", reason="NeverFits", waiting=waiting, step=None)
    assert found.next == [
        "place 1 of 1 in the queue; it cannot start on the fleet as it is; Muster looks again whenever a node changes"
    ]


def test_a_job_whose_namespace_is_not_enabled_names_the_command_and_no_place() -> None:
    remedy = "an administrator enables it: kubectl label namespace team-a muster.dev/training=enabled"
    waiting = {"needs": 2, "position": 1, "queued": 1, "remedies": [remedy]}
    found = stood({"members": []}, state="Pending", reason="NotEnabled", waiting=waiting, step=None)
    assert found.next == ["it starts only once an administrator has enabled its namespace"]
    assert found.actions == [remedy]


def test_one_node_is_free() -> None:
    waiting = {"needs": 1, "position": 1, "queued": 1, "free": 1, "fleet": 4}
    found = stood({"members": []}, state="Pending", reason="InsufficientNodes", waiting=waiting, step=None)
    assert found.next == ["place 1 of 1 in the queue; it starts when 1 node is free for it at once (1 is now)"]


def test_a_fork_without_its_base_can_go_on_from_its_own_checkpoint() -> None:
    saved = {"step": 725, "path": "/ckpt/725", "time": ago(9)}
    own = stood({}, state="Stalled", reason="ResumeFromNotFound", checkpoint=saved)
    assert own.next == [], "a stalled job waits for a person, not for its workers"
    patch = "kubectl -n team-a patch tj llama --type=merge -p"
    remove = '{"spec":{"checkpoint":{"resumeFrom":null}}}'
    name = '{"spec":{"checkpoint":{"resumeFrom":"/path/of/it"}}}'
    assert own.actions == [f"name a checkpoint that all workers see: {patch} '{name}'"], "no directory of its own"
    job = a_job(state="Stalled", reason="ResumeFromNotFound", checkpoint=saved)
    job["spec"]["checkpoint"] = {"directory": "/ckpt"}
    found = job_status(TrainingJob.model_validate(job), None, None, None, NOW)
    assert found.actions[0] == f"go on from its own newest checkpoint, step 725: {patch} '{remove}'"


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"state": "Running"}, "none seen yet: after a failure Muster has none to resume from"),
        ({"state": "Succeeded", "reason": "Completed"}, "none was seen"),
        ({"state": "Failed", "reason": "RankFailed"}, "none was seen"),
    ],
)
def test_a_job_without_a_checkpoint_is_not_said_to_lose_everything(
    status: dict[str, Any], says: str, printed: Callable[..., str]
) -> None:
    found = job_status(TrainingJob.model_validate(a_job(checkpoint=None, **status)), None, None, None, NOW)
    text = printed(lambda console: render(console, found, NOW))
    assert f"Checkpoint  {says}\n" in text
    assert "everything" not in text


def test_figures_say_how_old_they_are(api: Any, command: Run) -> None:
    job = fresh(a_job())
    with_job(api)
    job["metadata"]["managedFields"] = [
        {"manager": "muster", "operation": "Update", "subresource": "status", "time": rfc3339(datetime.now(UTC))},
        {"manager": "kubectl", "operation": "Update", "time": rfc3339(datetime.now(UTC) + timedelta(days=1))},
    ]
    api.put(f"{JOBS}/llama", job)
    assert re.search(r"^Step +1,200, 2\.0/s \(as of \d+s ago\)$", command("status", "llama").stdout, re.MULTILINE)
    job["metadata"].pop("managedFields")
    api.put(f"{JOBS}/llama", job)
    assert "as of" not in command("status", "llama").stdout, "it is not known"
    ended = job_status(TrainingJob.model_validate(a_job(state="Failed")), None, None, None, NOW, written=NOW)
    assert ended.status_time == NOW


def test_of_a_job_that_only_a_limit_keeps_waiting_no_free_nodes_are_told(printed: Callable[..., str]) -> None:
    waiting = {"needs": 2, "position": 1, "queued": 1, "remedies": ["raise the limit of namespace team-a from 8 to 9"]}
    found = stood({"members": []}, state="Pending", reason="NamespaceLimit", waiting=waiting, step=None)
    assert found.next == ["place 1 of 1 in the queue; it starts on 2 nodes, all at once"]
    text = printed(lambda console: render(console, found, NOW))
    assert "are now" not in text
    assert "free for it" not in text


def test_nothing_a_tenant_wrote_reaches_the_terminal_raw(api: Any, command: Run) -> None:
    evil = "a\x1b]0;title\x07\u202ereversed\x9b31m"
    with_job(api, state="Recovering", reason=evil, incidents=[incident(message=evil, reason=evil, node=evil)])
    for form in ("table", "json", "yaml"):
        out = command("status", "llama", "-o", form).stdout
        assert not {"\x1b", "\x07", "\u202e", "\x9b", "\x7f"} & set(out), form
