"""`report --incident`: one failure in full, from the job, its record, its Events and its node."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_status import GANG, JOBS, PODS, a_gang, a_job, health_path, incident, no_such
from typer.testing import Result

from muster.answers import inquiry
from muster.answers.inquiry import inquire
from muster.api.goodput import Fingerprint, Goodput
from muster.api.trainingjob import TrainingJob
from muster.cli.incident import ran_with
from muster.kube.errors import Forbidden

EVENTS = "/api/v1/namespaces/team-a/events"
Run = Callable[..., Result]
KEPT = {
    "attempt": 2,
    "time": "2026-01-05T03:00:02Z",
    "faultTime": "2026-01-05T03:00:00Z",
    "resumedTime": "2026-01-05T03:01:10Z",
    "level": "R0",
    "faultClass": "Application",
    "reason": "RankFailed",
    "node": "gpu-1",
    "index": 1,
    "rank": 9,
    "exitCode": 1,
    "step": 1200,
    "resumedStep": 1000,
    "message": "rank 9 exited with code 1; its last lines: Traceback | \x1b[31mValueError: loss is nan",
    "settled": True,
}


def told(**more: Any) -> dict[str, Any]:
    names = ("attempt", "time", "faultTime", "resumedTime", "level", "faultClass", "reason", "node", "message")
    return {**{name: KEPT[name] for name in names}, "lostSteps": 200, "lostSeconds": 100, **more}


def an_event(time: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "metadata": {"name": reason, "namespace": "team-a"},
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
        "reportingComponent": "muster.dev/operator",
    }


def a_health() -> dict[str, Any]:
    evidence = {"kind": "Xid", "code": 63, "subject": "GPU-1", "message": "row remap", "count": 1}
    times = {"firstSeen": "2026-01-05T02:59:30Z", "lastSeen": "2026-01-05T02:59:30Z"}
    old = {**evidence, "code": 13, "firstSeen": "2026-01-01T00:00:00Z", "lastSeen": "2026-01-01T00:00:00Z"}
    return {
        "metadata": {"name": "gpu-1", "uid": "n", "resourceVersion": "3"},
        "status": {
            "evidence": [{**evidence, **times}, old],
            "incidents": [{"time": "2026-01-05T03:00:20Z", "state": "Degraded", "reason": "RowRemap"}],
        },
    }


def with_incident(api: Any, **more: Any) -> None:
    api.put(f"{JOBS}/llama", a_job(incidents=[incident(attempt=1, time="2026-01-04T00:00:00Z"), told(**more)]))
    api.put(GANG, a_gang(incidents=[KEPT], excludedNodes={"gpu-1": "2026-01-05T05:00:00Z"}))
    api.lists(
        EVENTS,
        an_event("2026-01-05T03:00:03Z", "RankFailed", "attempt 2: ...; attempt 3 follows"),
        an_event("2026-01-05T02:00:00Z", "Placed", "long before"),
        an_event("2026-01-05T03:02:00Z", "NodeLost", "attempt 3: another incident, after this one was over"),
    )
    api.put(health_path("gpu-1"), a_health())


def test_an_incident_is_told_with_who_saw_what_when_and_what_was_decided(api: Any, command: Run) -> None:
    with_incident(api)
    found = json.loads(command("report", "llama", "--incident", "2", "-o", "json").stdout)
    assert (found["kind"], found["number"], found["rank"], found["exitCode"]) == ("JobIncident", 2, 9, 1)
    assert [(each["time"][:19], each["source"]) for each in found["timeline"]] == [
        ("2026-01-05T02:59:30", "the agent on gpu-1"),
        ("2026-01-05T03:00:00", "the operator"),
        ("2026-01-05T03:00:02", "the launcher of worker 1"),
        ("2026-01-05T03:00:03", "muster.dev/operator"),
        ("2026-01-05T03:00:20", "the verdict on gpu-1"),
        ("2026-01-05T03:01:10", "the operator"),
    ]
    assert found["timeline"][0]["event"] == "Xid 63 on GPU-1: row remap"
    assert found["message"] == "rank 9 exited with code 1"
    assert found["lastLines"][-1].endswith("ValueError: loss is nan")
    assert found["decisions"] == [
        "the ranks restarted in place: nodes and pods were good",
        "class Application (the program failed by itself): spec.recovery.applicationRestartsPerDay pays, 3 within 24 h "
        "until a new checkpoint refills it",
        "the next attempt went on from step 1000, 200 steps behind where it was: the newest complete checkpoint",
        "the training was back after 1m10s",
    ]
    assert found["notes"] == []
    assert yaml.safe_load(command("report", "team-a/llama", "--incident", "2", "-o", "yaml").stdout) == found
    text = command("report", "llama", "--incident").stdout
    assert text.startswith("team-a/llama incident 2: RankFailed on gpu-1\n  rank 9 exited with code 1\n")
    assert "\n  ValueError: loss is nan\n" in text
    assert "200 steps, which had taken 1m40s" in text
    assert "\x1b" not in text


def test_a_failure_that_was_held_was_seen_before(api: Any, command: Run) -> None:
    held = {"time": "2026-01-05T03:00:42Z", "heldSeconds": 40}
    with_incident(api, **held)
    api.put(GANG, a_gang(incidents=[{**KEPT, **held}]))
    found = json.loads(command("report", "llama", "--incident", "2", "-o", "json").stdout)
    events = {each["time"][:19]: each["event"] for each in found["timeline"]}
    assert events["2026-01-05T03:00:02"].startswith("RankFailed")
    assert events["2026-01-05T03:00:42"] == "it was held for 40s (spec.recovery.onFailure)"
    assert "2s later" in command("report", "llama", "--incident", "2").stdout


def test_a_planned_evacuation_says_how_long_it_waited(api: Any, command: Run) -> None:
    with_incident(api, askedTime="2026-01-05T02:59:32Z")
    waited = json.loads(command("report", "llama", "--incident", "2", "-o", "json").stdout)
    assert waited["askedTime"].startswith("2026-01-05T02:59:32")
    (line,) = (line for line in command("report", "llama", "--incident").stdout.splitlines() if "Waited" in line)
    assert line.split()[-1] == "30s"


def test_a_timeline_that_is_cut_says_so(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "MAX_TIMELINE", 4)
    with_incident(api)
    found = json.loads(command("report", "llama", "--incident", "2", "-o", "json").stdout)
    assert found["timeline"][0]["time"].startswith("2026-01-05T03:00:02")
    assert found["notes"] == ["only the newest 4 of 6 entries of its timeline are shown"]


def test_an_attempt_without_a_checkpoint_is_not_said_to_go_on_from_step_0(api: Any, command: Run) -> None:
    with_incident(api)
    api.put(GANG, a_gang(incidents=[{**KEPT, "resumedStep": 0}]))
    said = json.loads(command("report", "llama", "--incident", "2", "-o", "json").stdout)["decisions"]
    assert "the next attempt started without a checkpoint from Muster" in said
    assert not [each for each in said if "step 0" in each]


def test_only_a_failure_that_moved_the_worker_says_how_long_the_job_avoids_the_node(api: Any, command: Run) -> None:
    with_incident(api)
    avoids = "this job avoids gpu-1 until 2026-01-05 05:00:00 UTC"
    assert avoids not in command("report", "llama", "--incident", "2").stdout
    moved = {**KEPT, "level": "R2"}
    api.put(f"{JOBS}/llama", a_job(incidents=[told(level="R2")]))
    api.put(GANG, a_gang(incidents=[moved], excludedNodes={"gpu-1": "2026-01-05T05:00:00Z"}))
    assert avoids in command("report", "llama", "--incident", "2").stdout


def test_with_the_job_alone_the_rest_is_told(api: Any, command: Run) -> None:
    with_incident(api)
    for path in (GANG, EVENTS, health_path("gpu-1")):
        api.errors[path] = Forbidden(403, "Forbidden", "no")
    found = json.loads(command("report", "llama", "--incident", "2", "-o", "json").stdout)
    assert (found["reason"], found["lostSteps"], found["lastLines"][0]) == ("RankFailed", 200, "Traceback")
    assert "rank" not in found
    assert len(found["timeline"]) == 3
    assert len(found["notes"]) == 3
    assert "ClusterRole muster-fleet-view" in found["notes"][2]


@pytest.mark.parametrize(
    "message", ["boom\n\n7  NodeLost on gpu-9\n7 advises: kubectl muster lost gpu-9", "boom " * 16 + "7  NodeLost"]
)
def test_no_line_of_a_message_passes_for_one_of_ours(
    api: Any, command: Run, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "81")  # where the long one is folded
    with_incident(api)
    open_now = told(message=message, resumedTime=None)
    api.put(f"{JOBS}/llama", a_job(state="Recovering", reason="RankFailed", incidents=[open_now]))
    api.errors[GANG] = Forbidden(403, "Forbidden", "no")
    api.lists(PODS)
    for words in (("report", "llama", "--incidents"), ("report", "llama", "--incident", "2"), ("status", "llama")):
        said = command(*words)
        assert said.exit_code == 0, said.output
        assert "boom" in said.output
        assert not [line for line in said.output.splitlines() if line.startswith("7")], said.output


def test_only_the_record_has_old_ones(api: Any, command: Run) -> None:
    api.put(f"{JOBS}/llama", a_job(incidents=[]))
    api.put(GANG, a_gang(incidents=[KEPT]))
    api.lists(EVENTS)
    api.errors[health_path("gpu-1")] = no_such("gpu-1")
    found = json.loads(command("report", "llama", "--incident", "-o", "json").stdout)
    assert (found["number"], found["lostSteps"]) == (2, 200)
    assert found["notes"] == ["the cluster has no Events of this job (any more): it keeps them for about an hour"]


def test_a_number_that_is_not_there_is_answered_with_those_that_are(api: Any, command: Run) -> None:
    with_incident(api)
    result = command("report", "llama", "--incident", "7")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: team-a/llama has no incident 7: there are 1, 2\n"
    api.put(f"{JOBS}/llama", a_job())
    api.put(GANG, a_gang())
    assert command("report", "llama", "--incident").stderr == "error: team-a/llama has had no incident\n"


def test_what_was_new_with_the_attempt_that_failed_is_told() -> None:
    old = Fingerprint(attempt=1, image="sha256:" + "a" * 64, driver="570.1", environment="e", revision="main-1")
    new = old.model_copy(update={"attempt": 2, "driver": "580.2", "revision": "main-2\x1b[31m"})
    job = TrainingJob.model_validate(a_job(incidents=[told()]))
    goodput = Goodput(
        creation_time=job.status.incidents[0].time, counted_until=job.status.incidents[0].time, fingerprints=[old, new]
    )
    job = job.model_copy(update={"status": job.status.model_copy(update={"goodput": goodput})})
    found = inquire(job, None, 2, None, None)
    assert found is not None
    assert (found.fingerprint, found.fingerprint_before) == (new, old)
    line = ran_with(found)
    assert line.startswith("image aaaaaaaaaaaaaaaa, driver 580.2 (new), environment e, revision main-2")
    assert line.endswith("(new)")
    assert "\x1b" not in line
    same = job.model_copy(
        update={"status": job.status.model_copy(update={"goodput": goodput.model_copy(update={"fingerprints": [old]})})}
    )
    before = inquire(same, None, 2, None, None)
    assert before is not None
    assert before.fingerprint_before is None
    assert "(new)" not in ran_with(before)
    nothing = inquire(
        same.model_copy(update={"status": same.status.model_copy(update={"goodput": None})}), None, 2, None, None
    )
    assert nothing is not None
    assert ran_with(nothing) == ""


def test_after_a_hang_it_shows_where_the_ranks_stood(api: Any, command: Run) -> None:
    stacks = [
        {"ranks": "0-2", "count": 3, "stack": "torch/c10d.py:9 in all_reduce\n/code/train.py:88 in main"},
        {"ranks": "3", "count": 1, "problem": "it ignores SIGABRT (state S\x1b[31m (sleeping))"},
    ]
    with_incident(api, reason="StepTimeout", node="")
    api.put(GANG, a_gang(incidents=[{**KEPT, "reason": "StepTimeout", "node": "", "index": None, "stacks": stacks}]))
    text = command("report", "llama", "--incident", "2").stdout
    assert text.startswith("team-a/llama incident 2: StepTimeout\n")
    assert "WHERE THE RANKS STOOD" in text
    assert "  3 ranks: 0-2\n    torch/c10d.py:9 in all_reduce\n    /code/train.py:88 in main\n  1 rank: 3\n" in text
    assert "    not known: it ignores SIGABRT (state S" in text
    assert "\x1b" not in text
    assert "the node's life" not in text
    assert "what its workers printed: kubectl muster logs team-a/llama --attempt 2\n" in text
