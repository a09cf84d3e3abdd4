"""`nodes NODE`: one node's life, from its NodeHealth, its Node and the jobs that name it."""

import json
from collections.abc import Callable
from typing import Any

import yaml
from tests.unit.cli.test_status import a_gang, a_job, health_path, incident, no_such
from typer.testing import Result

from muster.kube.errors import Forbidden

Run = Callable[..., Result]
NODES = "/api/v1/nodes"
JOBS, GANGS = "/apis/muster.dev/v1alpha1/trainingjobs", "/apis/muster.dev/v1alpha1/gangs"
POLICY = "/apis/muster.dev/v1alpha1/fleetpolicies/default"
EVIL = "a\x1b]0;title\x07\u202er\x9b31m"


def a_node(name: str = "gpu-1") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": "3",
            "labels": {"topology.muster.dev/block": "b1", "topology.muster.dev/rack": "r2", "x": "y"},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def a_health(**status: Any) -> dict[str, Any]:
    times = {"firstSeen": "2026-01-03T00:00:00Z", "lastSeen": "2026-01-04T00:00:00Z"}
    told = {
        "state": "Degraded",
        "reason": "Xid79",
        "message": f"Xid 79 {EVIL}",
        "since": "2026-01-03T00:00:01Z",
        "effect": "excluded, tainted",
        "recommendedAction": "Reboot",
        "evidence": [{"kind": "Xid", "code": 79, "subject": "GPU-1", "message": EVIL, "count": 3, **times}],
        "findings": [
            {
                "source": "agent",
                "reason": "Xid79",
                "severity": "Fatal",
                "since": "2026-01-03T00:00:01Z",
                "message": EVIL,
            }
        ],
        "incidents": [
            {
                "time": "2026-01-01T00:00:00Z",
                "state": "Suspect",
                "reason": "Old",
                "clearedTime": "2026-01-02T00:00:00Z",
                "clearedBy": "a reboot",
            }
        ],
        "offences": {"score": "1.5", "asOf": "2026-01-03T00:00:01Z"},
        "agent": {"version": "1", "gpus": 7, "gpuModel": "H200", "driver": "580", "gpuSerials": ["s1"], "problem": ""},
        "check": {
            "id": "c",
            "profile": "Quick",
            "outcome": "Fail",
            "time": "2026-01-02T12:00:00Z",
            "seconds": 61,
            "probes": [{"probe": "gemm", "outcome": "Fail", "value": "1", "threshold": "2"}],
        },
    }
    human = {"decision": "Cordon", "reason": "liquid", "user": "ann", "time": "2026-01-04T12:00:00Z"}
    return {
        "metadata": {"name": "gpu-1", "uid": "n", "resourceVersion": "3"},
        "spec": {"override": human},
        "status": {**told, **status},
    }


def with_node(api: Any) -> None:
    api.put(health_path("gpu-1"), a_health())
    api.lists(NODES, a_node())
    api.put(POLICY, {"metadata": {"name": "default"}, "spec": {}})
    here = incident(attempt=1, time="2026-01-02T06:00:00Z", message=f"gone; its last lines: {EVIL}", node="gpu-1")
    api.lists(JOBS, a_job(incidents=[here, incident(attempt=2, node="gpu-7")]))
    failure = {"node": "gpu-1", "time": "2026-01-02T09:00:00Z", "probe": "all-reduce", "partners": ["gpu-2"]}
    api.lists(
        GANGS,
        a_gang(
            burnIn={"time": "2026-01-02T09:00:00Z", "failures": [failure]},
            excludedNodes={"gpu-1": "2026-01-06T00:00:00Z"},
        ),
    )


def test_a_nodes_life_is_one_page(api: Any, command: Run) -> None:
    with_node(api)
    found = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)
    assert (found["kind"], found["exists"], found["ready"], found["cordoned"]) == ("NodeLife", True, True, True)
    assert found["health"]["state"] == "Degraded"
    assert found["labels"] == {"topology.muster.dev/block": "b1", "topology.muster.dev/rack": "r2"}
    assert [(each["kind"], each["time"][:13]) for each in found["history"]] == [
        ("Human", "2026-01-04T12"),
        ("Evidence", "2026-01-03T00"),
        ("Check", "2026-01-02T12"),
        ("BurnIn", "2026-01-02T09"),
        ("Job", "2026-01-02T06"),
        ("Verdict", "2026-01-01T00"),
    ]
    assert found["history"][3]["event"] == "failed all-reduce for team-a/llama beside gpu-2"
    assert found["history"][4]["event"] == "team-a/llama incident 1: NodeLost (Hardware): gone"
    (job,) = found["jobs"]
    assert (job["name"], job["workers"], job["failures"]) == ("team-a/llama", [1], 1)
    assert job["avoidsUntil"].startswith("2026-01-06")
    assert found["notes"] == []
    assert yaml.safe_load(command("nodes", "node/gpu-1", "-o", "yaml").stdout) == found
    text = command("nodes", "gpu-1").stdout
    for part in (
        "Ready, cordoned",
        "b1/r2",
        "7 x H200, driver 580",
        "1.5, as of",
        "Xid 79 on GPU-1",
        "LAST TEST: Quick, Fail",
    ):
        assert part in text
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(text)


def test_a_tenant_is_told_what_is_missing_and_sees_his_own_jobs(api: Any, command: Run) -> None:
    with_node(api)
    no = Forbidden(403, "Forbidden", "no")
    for path in (NODES, JOBS, GANGS, POLICY, health_path("gpu-1")):
        api.errors[path] = no
    own = "/apis/muster.dev/v1alpha1/namespaces/team-a"
    api.lists(f"{own}/trainingjobs", a_job(incidents=[incident(attempt=1)]))
    api.lists(f"{own}/gangs", a_gang())
    found = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)
    assert [job["name"] for job in found["jobs"]] == ["team-a/llama"]
    assert "exists" not in found
    assert len(found["notes"]) == 3
    assert all("muster-fleet-view" in note for note in found["notes"])
    api.errors[f"{own}/trainingjobs"] = no
    result = command("nodes", "gpu-1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: nothing is known of node gpu-1 here: its health may not be read")


def test_without_jobs_a_node_has_none(api: Any, command: Run) -> None:
    with_node(api)
    for path in (JOBS, GANGS):
        del api.bodies[path]
    found = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)
    assert (found["health"]["state"], found["jobs"], found["notes"]) == ("Degraded", [], [])


def test_a_node_that_is_gone_is_remembered(api: Any, command: Run) -> None:
    with_node(api)
    api.lists(NODES)
    found = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)
    assert found["exists"] is False
    assert "no Node of this name" in found["notes"][0]


def test_a_name_that_is_not_there_is_answered_with_one_that_is(api: Any, command: Run) -> None:
    with_node(api)
    api.errors[health_path("gpu-11")] = no_such("gpu-11")
    assert command("nodes", "gpu-11").stderr == "error: there is no node gpu-11: did you mean gpu-1?\n"


def test_what_does_not_fit_is_a_note(api: Any, command: Run) -> None:
    with_node(api)
    api.put(health_path("gpu-1"), a_health(state="Strange"))
    found = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)
    assert "its NodeHealth cannot be read" in found["notes"][0]
    assert found["ready"] is True


def a_request(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "gpu-1", "uid": "r", "creationTimestamp": "2026-01-03T01:00:00Z", "resourceVersion": "3"},
        "spec": {"node": "gpu-1", "action": "Reboot", "incidentTime": "2026-01-03T00:00:01Z", "reason": "Xid79"},
        "status": status,
    }


REQUEST = "/apis/muster.dev/v1alpha1/repairrequests/gpu-1"


def test_what_is_asked_for_is_told_with_its_state(api: Any, command: Run) -> None:
    with_node(api)
    api.put(REQUEST, a_request())
    found = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)
    assert found["repair"] == {
        "action": "Reboot",
        "phase": "Requested",
        "message": "",
        "reason": "Xid79",
        "since": "2026-01-03T01:00:00.000000Z",
    }
    assert [each["event"] for each in found["history"] if each["kind"] == "Repair"] == ["Reboot asked for: Xid79"]
    api.put(REQUEST, a_request(phase="Failed", message=f"no BMC {EVIL}"))
    text = command("nodes", "gpu-1").stdout
    assert "Reboot: Failed, requested" in text
    assert "no BMC" in text
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(text)


def test_a_repair_that_has_ended_is_part_of_the_life(api: Any, command: Run) -> None:
    with_node(api)
    once = {
        "time": "2026-01-01T00:00:00Z",
        "state": "Unhealthy",
        "reason": "Xid79",
        "repairEndedTime": "2026-01-01T05:00:00Z",
    }
    api.put(health_path("gpu-1"), a_health(incidents=[once]))
    found = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)
    assert [each["event"] for each in found["history"] if each["kind"] == "Repair"] == ["its repair ended (Xid79)"]
    assert "repair" not in found


def test_a_request_that_may_not_be_read_is_a_note(api: Any, command: Run) -> None:
    with_node(api)
    api.errors[REQUEST] = Forbidden(403, "Forbidden", "no")
    (note,) = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)["notes"]
    assert "repairrequests" in note
    assert "muster-fleet-view" in note
    del api.errors[REQUEST]
    api.put(REQUEST, {**a_request(), "spec": {"node": "gpu-1", "action": "Pray", "incidentTime": "never"}})
    (note,) = json.loads(command("nodes", "gpu-1", "-o", "json").stdout)["notes"]
    assert "cannot be read by this version" in note


def test_a_failed_burn_in_says_whose_it_was(api: Any, command: Run) -> None:
    with_node(api)
    failed = {"source": "burn-in", "reason": "BurnInFailed", "severity": "Degraded", "since": "2026-01-03T00:00:01Z"}
    found = {**failed, "subject": "bit-exact", "message": "burn-in: bits differ", "job": "team-a/llama"}
    api.put(health_path("gpu-1"), a_health(findings=[found]))
    assert "burn-in: bits differ (burn-in of team-a/llama)" in " ".join(command("nodes", "gpu-1").stdout.split())
