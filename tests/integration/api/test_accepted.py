"""What the API server makes of objects that are valid: defaults, the status subresource, updates, and what people
see."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from apidocs import render
from muster.api.base import ApiModel
from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.nodehealth import NodeHealth
from muster.api.repairrequest import RepairRequest
from muster.api.trainingjob import ProgressPreset, ResumePreset, TrainingJob

TIME = "2026-01-31T12:00:00.000000Z"
MODELS: dict[str, type[ApiModel]] = {
    "TrainingJob": TrainingJob,
    "Gang": Gang,
    "FleetPolicy": FleetPolicy,
    "NodeHealth": NodeHealth,
    "RepairRequest": RepairRequest,
}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        pytest.param("TrainingJob", {}, id="smallest TrainingJob"),
        pytest.param(
            "TrainingJob",
            {
                "spec.launch": {"mode": "Plain"},
                "spec.placement": {"required": "block"},
                "spec.checkpoint": {"saveTimeoutSeconds": 0},
                "spec.recovery": {"applicationRestartsPerDay": 0},
                "spec.completion": {},
            },
            id="TrainingJob with parts of parts",
        ),
        pytest.param("Gang", {}, id="smallest Gang"),
        pytest.param(
            "Gang",
            {
                "spec.members": [{}],  # numbers that its place says are not written
                "spec.unfencedWorkers": [
                    {
                        "pod": "a",
                        "fencedTime": TIME,
                        "fenceSeconds": 15,
                        "remainingSeconds": 9,
                        "attempt": 1,
                        "proof": "Fence",
                        "fenceFileId": "",
                    }
                ],
            },
            id="Gang",
        ),
        pytest.param("FleetPolicy", {}, id="FleetPolicy without a spec"),
        pytest.param("FleetPolicy", {"spec.topology": {}}, id="FleetPolicy with an empty topology"),
        pytest.param("FleetPolicy", {"spec.topology.levels": []}, id="FleetPolicy without levels"),
        *(
            pytest.param("FleetPolicy", {path: selector}, id=f"FleetPolicy for {name} in {path}")
            for path in ("spec.queueing.namespaceSelector", "spec.scope.nodeSelector")
            for name, selector in (
                ("all", {}),
                ("those with a label", {"matchLabels": {"muster.dev/training": "enabled", "team": ""}}),
                (
                    "those by expressions",
                    {
                        "matchExpressions": [
                            {"key": "team", "operator": "In", "values": ["a", "b"]},
                            {"key": "example.org/stage", "operator": "NotIn", "values": ["retired"]},
                            {"key": "owner", "operator": "Exists"},
                            {"key": "muster.dev/closed", "operator": "DoesNotExist"},
                        ]
                    },
                ),
            )
        ),
        pytest.param(
            "FleetPolicy",
            {
                "spec.health": {
                    "budgets": [{"nodes": "50%"}, {"nodes": "4", "windowSeconds": 600}],
                    "sources": [{"name": "eks"}],
                    "rules": [
                        {"name": "a", "condition": {"type": "GpuSick"}, "severity": "Fatal"},
                        {"name": "b", "condition": {"type": "GpuSick", "badWhenFalse": True}, "severity": "Info"},
                        {"name": "c", "label": {"key": "example.org/health"}, "severity": "Degraded", "planned": True},
                        {"name": "d", "taint": {"key": "example.org/repair"}, "severity": "Warning"},
                    ],
                }
            },
            id="FleetPolicy with rules of its own",
        ),
        pytest.param(
            "FleetPolicy",
            {
                "spec.preflight.limits": [
                    {"probe": "gemm-bf16", "model": "NVIDIA H200", "minimum": "640.5"},
                    {"probe": "gemm-bf16", "minimumPercent": 90},
                    {"probe": "storage", "minimum": "0"},
                ]
            },
            id="FleetPolicy with limits of its own for the burn-in",
        ),
        *(
            pytest.param(
                "TrainingJob", {"spec.progress.preset": preset.value}, id=f"TrainingJob with preset {preset.value}"
            )
            for preset in ProgressPreset
        ),
        *(
            pytest.param(
                "TrainingJob",
                {"spec.checkpoint.directory": "/c", "spec.checkpoint.resumePreset": preset.value},
                id=f"TrainingJob resumed by {preset.value}",
            )
            for preset in ResumePreset
        ),
        *(
            pytest.param(
                "TrainingJob",
                {"spec.checkpoint.directory": "/c", "spec.checkpoint.resumeFrom": wish},
                id=f"TrainingJob from {wish}",
            )
            for wish in ("job/base", "job/base-2@5000", f"job/{'a' * 40}@0", "s3://bucket/base/step-9", "/base/step-9")
        ),
        *(
            pytest.param(
                "TrainingJob",
                {"spec.checkpoint.directory": url, "spec.checkpoint.resumeFrom": f"{url}/step-9"},
                id=f"TrainingJob with {url}",
            )
            for url in ("s3://bucket/run-7", "gs://bucket", "abfs://c@account.dfs.core.windows.net/x", "file:///mnt/x")
        ),
        *(
            pytest.param(
                "TrainingJob",
                {"spec.checkpoint.directory": "s3://bucket/run-7", "spec.checkpoint.resumeFrom": wish},
                id=f"TrainingJob in a store from {wish}",
            )
            for wish in ("job/base@5000", "/base/step-9", 9, "Scratch")
        ),
        pytest.param("NodeHealth", {}, id="NodeHealth about which nobody has said anything"),
        pytest.param(
            "NodeHealth",
            {"spec.override": {"decision": "Cordon", "reason": "loose cable", "time": TIME}},
            id="NodeHealth with a decision",
        ),
        pytest.param("RepairRequest", {}, id="smallest RepairRequest"),
        pytest.param("RepairRequest", {"spec.machine": {"gpuSerials": ["1650"]}}, id="RepairRequest for a machine"),
        pytest.param(
            "FleetPolicy",
            {"spec.health": {"repair": {"actions": ["Reset", "Reboot"]}}},
            id="FleetPolicy that asks for repairs",
        ),
    ],
)
def test_the_defaults_of_the_server_are_those_of_the_models(
    kind: str, changes: dict[str, Any], manifest: Callable[..., Any], tried: Callable[..., Any]
) -> None:
    asked = manifest(kind, changes)
    stored, refused = tried(asked)
    assert not refused
    by_models = MODELS[kind].model_validate(asked).to_json()["spec"]
    assert stored["spec"] == by_models
    assert MODELS[kind].model_validate(stored).to_json()["spec"] == by_models


MUTABLE = {
    "spec.suspend": True,
    "spec.eject": True,
    "spec.acceptedWarnings": ["DirectoryInUse"],
    "spec.placement.avoidNodes": ["node-4"],
    "spec.preflight.profile": "Standard",
    "spec.preflight.maxAgeSeconds": 60,
    "spec.recovery.applicationRestartsPerDay": 9,
    "spec.recovery.hardwareRestartsPerDay": 9,
    "spec.recovery.unfencedTimeoutSeconds": 900,
    "spec.recovery.fallBackFromUnloadable": False,
    "spec.recovery.onFailure": "Hold",
    "spec.recovery.holdSeconds": 60,
    "spec.checkpoint.resumeFrom": "Scratch",  # while nothing runs
    "spec.checkpoint.resumePreset": "Off",
    "spec.throughput.tokensPerStep": 4096,
    "spec.throughput.parameters": 7,
    "spec.throughput.flopsPerToken": 42,
    "spec.throughput.peakTflopsPerGpu": 989,
    "spec.completion.ttlSecondsAfterFinished": 60,
    "spec.queueing.expectedDurationSeconds": 3600,
    "spec.queueing.preemptible": True,
}
IMMUTABLE = {
    # Another value, and the field that is blamed.
    "spec.nodes": (3, "spec.nodes"),
    "spec.gpusPerNode": (4, "spec.gpusPerNode"),
    "spec.template": ({"spec": {"containers": [{"name": "trainer", "image": "example.org/t:2"}]}}, "spec.template"),
    "spec.launch.mode": ("Plain", "spec.launch"),
    "spec.launch.processesPerNode": (8, "spec.launch"),
    "spec.launch.workerContainer": ("trainer", "spec.launch"),
    "spec.placement.required": ("rack", "spec.placement.required"),
    "spec.placement.preferred": ("rack", "spec.placement.preferred"),
    "spec.placement.segmentSize": (1, "spec.placement.segmentSize"),
    "spec.checkpoint.directory": ("/elsewhere", "spec.checkpoint.directory"),
    "spec.checkpoint.localDirectory": ("/local", "spec.checkpoint.localDirectory"),
    "spec.checkpoint.resumeArgument": (["--load", "/c"], "spec.checkpoint.resumeArgument"),
    "spec.checkpoint.moveIncomplete": (True, "spec.checkpoint.moveIncomplete"),
    "spec.checkpoint.saveTimeoutSeconds": (60, "spec.checkpoint.saveTimeoutSeconds"),
    "spec.recovery.unreachableTimeoutSeconds": (60, "spec.recovery.unreachableTimeoutSeconds"),
}
OF_ITS_OWN = {"spec.checkpoint.saveRequest"}  # which needs a directory; test_a_save_may_be_asked_for_at_any_time
WHILE_SUSPENDED = {
    # What the pods get at their creation, and the field that is blamed while there may be some.
    "spec.checkpoint.pattern": ("state-{step}.npz", "spec.checkpoint.pattern"),
    "spec.progress.preset": ("Megatron", "spec.progress"),
    "spec.progress.stepPattern": ("step ([0-9]+)", "spec.progress"),
    "spec.progress.stepTimeoutSeconds": (60, "spec.progress"),
    "spec.progress.startTimeoutSeconds": (60, "spec.progress"),
    "spec.progress.totalSteps": (5000, "spec.progress"),
}
REMEDY = (
    "this field cannot change while the job exists: delete the job and create it again, or begin another one from its "
    "checkpoint (kubectl muster fork)"
)


def test_every_field_is_known_to_be_mutable_or_not() -> None:
    (resource,) = (resource for resource in render.RESOURCES if resource.kind == "TrainingJob")
    fields = render.leaves(render.object_schema(resource)["properties"]["spec"], "spec")
    ends = {path for path, schema in fields if "properties" not in schema and "spec.template." not in path}
    assert ends | {"spec.template"} == set(MUTABLE) | set(IMMUTABLE) | set(WHILE_SUSPENDED) | OF_ITS_OWN


@pytest.fixture(scope="module")
def job(manifest: Callable[..., Any], apply: Callable[..., Any]) -> Any:
    """A job in which no optional field is set."""
    job = manifest("TrainingJob", {"metadata.name": "updated"})
    result = apply(job)
    assert result.returncode == 0, result.stderr
    return job


@pytest.fixture(scope="module")
def placed_job(manifest: Callable[..., Any], apply: Callable[..., Any]) -> Any:
    levels = {"required": "block", "preferred": "block", "segmentSize": 2}
    job = manifest("TrainingJob", {"metadata.name": "updated-placed", "spec.placement": levels})
    result = apply(job)
    assert result.returncode == 0, result.stderr
    return job


class TestUpdates:
    """Tried out on jobs that exist, without changing them."""

    @pytest.mark.parametrize("path", MUTABLE)
    def test_what_may_change(self, path: str, job: Any, tried: Callable[..., Any]) -> None:
        stored, refused = tried(job, {path: MUTABLE[path]})
        assert not refused
        for step in path.split("."):
            stored = stored[step]
        assert stored == MUTABLE[path]

    @pytest.mark.parametrize("path", IMMUTABLE)
    def test_what_may_not_change(self, path: str, job: Any, tried: Callable[..., Any]) -> None:
        value, blamed = IMMUTABLE[path]
        stored, refused = tried(job, {path: value})
        assert not stored
        assert f"{blamed}: Invalid value" in refused
        assert REMEDY in refused

    @pytest.mark.parametrize("path", WHILE_SUSPENDED)
    def test_what_pods_get_may_not_change_while_there_may_be_some(
        self, path: str, job: Any, tried: Callable[..., Any]
    ) -> None:
        value, blamed = WHILE_SUSPENDED[path]
        stored, refused = tried(job, {path: value})
        assert not stored
        assert f"{blamed}: Invalid value" in refused
        assert "set spec.suspend to true first" in refused

    @pytest.mark.parametrize("value", ["rack", None], ids=["changed", "taken away"])
    @pytest.mark.parametrize("path", ["spec.placement.required", "spec.placement.preferred"])
    def test_a_level_may_neither_change_nor_go(
        self, path: str, value: str | None, placed_job: Any, tried: Callable[..., Any]
    ) -> None:
        stored, refused = tried(placed_job, {path: value})
        assert not stored
        assert f"{path}: Invalid value" in refused
        assert REMEDY in refused

    @pytest.mark.parametrize(
        "part",
        ["metadata", "spec.nodeSelector", "spec.containers[0].env"],
    )
    def test_the_template_may_not_change_where_nothing_is_spelled_out(
        self, part: str, job: Any, tried: Callable[..., Any]
    ) -> None:
        value: Any = [{"name": "A", "value": "b"}] if part.endswith("env") else {"labels": {"a": "b"}}
        stored, refused = tried(job, {f"spec.template.{part}": value})
        assert not stored
        assert "spec.template: Invalid value" in refused
        assert REMEDY in refused


def test_a_save_may_be_asked_for_at_any_time(
    manifest: Callable[..., Any], apply: Callable[..., Any], kubectl: Callable[..., Any], tried: Callable[..., Any]
) -> None:
    checkpoint = {"directory": "/c", "saveRequest": "first"}
    job = manifest("TrainingJob", {"metadata.name": "asked", "spec.checkpoint": checkpoint})
    assert apply(job).returncode == 0
    for state in ("Pending", "Running", "Stalled"):
        status = json.dumps({"status": {"state": state}})
        written = kubectl("patch", "trainingjob", "asked", "--subresource=status", "--type=merge", "-p", status)
        assert written.returncode == 0, written.stderr
        for name in ("2026-05-01T12:00:00.000000Z", None):
            stored, refused = tried(job, {"spec.checkpoint.saveRequest": name})
            assert not refused
            assert stored["spec"]["checkpoint"].get("saveRequest") == name


def test_a_preemptible_job_stays_preemptible(
    manifest: Callable[..., Any], apply: Callable[..., Any], tried: Callable[..., Any]
) -> None:
    job = manifest("TrainingJob", {"metadata.name": "preemptible", "spec.queueing": {"preemptible": True}})
    assert apply(job).returncode == 0
    for path, value in (("spec.queueing.preemptible", False), ("spec.queueing", None)):
        stored, refused = tried(job, {path: value})
        assert not stored, path
        assert "spec.queueing.preemptible: Invalid value" in refused
        assert "a preemptible job may hold nodes that are reserved for others" in refused


def test_what_pods_get_may_change_while_the_job_is_suspended_and_not_before(
    namespace: str, manifest: Callable[..., Any], apply: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    def patch(data: Mapping[str, Any], *arguments: str) -> Any:
        text = json.dumps(data)
        return kubectl(
            "patch", "trainingjob", "small", "--namespace", namespace, "--type=merge", "-p", text, *arguments
        )

    begun = {"spec.checkpoint.directory": "/c", "spec.progress.stepPattern": "a([0-9]+)"}
    assert apply(manifest("TrainingJob", begun), "--namespace", namespace).returncode == 0
    change = {"progress": {"stepPattern": "b([0-9]+)"}, "checkpoint": {"pattern": "{step}.pt"}}
    for state, suspend, accepted in (
        ("Running", False, False),
        ("Running", True, False),  # its pods may still save
        ("Suspended", True, True),
    ):
        assert patch({"status": {"state": state}}, "--subresource=status").returncode == 0
        assert patch({"spec": {"suspend": suspend}}).returncode == 0
        result = patch({"spec": change})
        assert (result.returncode == 0) == accepted, result.stdout + result.stderr
    for data, accepted in (
        ({"checkpoint": {"pattern": None}, "progress": {"stepPattern": None, "preset": "Off"}}, True),
        ({"suspend": False, "progress": {"preset": "Auto"}}, True),  # in one
        ({"progress": {"preset": "Off"}}, False),  # its status says Suspended until the operator has seen it
    ):
        result = patch({"spec": data})
        assert (result.returncode == 0) == accepted, result.stdout + result.stderr


END = {"result": "Failed", "reason": "CrashLoop", "message": "", "time": TIME, "attempt": 4}


class TestTheEndOfAJob:
    """Once written it never changes."""

    @pytest.fixture
    def patch(self, kubectl: Callable[..., Any], namespace: str, manifest: Callable[..., Any], apply: Any) -> Any:
        result = apply(manifest("TrainingJob"), "--namespace", namespace)
        assert result.returncode == 0, result.stderr

        def run(status: dict[str, Any]) -> Any:
            data = json.dumps({"status": status})
            arguments = ("--namespace", namespace, "--subresource=status", "--type=merge", "-p", data)
            return kubectl("patch", "trainingjob", "small", *arguments)

        return run

    def test_may_be_written_and_written_again_as_it_is(self, patch: Callable[..., Any]) -> None:
        for status in ({"state": "Running"}, {"completion": END}, {"completion": END, "state": "Failed"}):
            result = patch(status)
            assert result.returncode == 0, result.stderr

    @pytest.mark.parametrize(
        "later", [{"result": "Succeeded"}, {"message": "on second thought"}, None], ids=["result", "message", "gone"]
    )
    def test_may_not_change(self, later: dict[str, Any] | None, patch: Callable[..., Any]) -> None:
        assert patch({"completion": END}).returncode == 0
        result = patch({"completion": later})
        assert result.returncode != 0, f"accepted: {result.stdout}"
        assert "status.completion: Invalid value" in result.stderr
        assert "create a new job instead" in result.stderr


@pytest.fixture(scope="module")
def ended(kubectl: Callable[..., Any], manifest: Callable[..., Any], apply: Callable[..., Any]) -> Any:
    """A fork that has failed, with a budget of its own."""
    changes = {
        "metadata.name": "ended",
        "spec.checkpoint": {"directory": "/ckpt", "resumeFrom": "job/base@50"},
        "spec.recovery": {"applicationRestartsPerDay": 5},
    }
    job = manifest("TrainingJob", changes)
    assert apply(job).returncode == 0
    status = json.dumps({"status": {"state": "Failed", "completion": END}})
    result = kubectl("patch", "trainingjob", "ended", "--subresource=status", "--type=merge", "-p", status)
    assert result.returncode == 0, result.stderr
    return job


class TestAJobThatHasEnded:
    """What can have no effect any more is refused with the way back; everything else is as before."""

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("spec.suspend", True),
            ("spec.eject", True),
            ("spec.checkpoint.resumeFrom", 50),
            ("spec.recovery.applicationRestartsPerDay", 6),
            ("spec.recovery.hardwareRestartsPerDay", 51),
        ],
    )
    def test_is_asked_for_nothing_more(self, path: str, value: Any, ended: Any, tried: Callable[..., Any]) -> None:
        stored, refused = tried(ended, {path: value})
        assert not stored
        assert f"{path}: Invalid value" in refused
        assert "the job has ended" in refused
        assert "kubectl muster requeue" in refused
        assert "kubectl muster fork" in refused
        assert "set spec.suspend to true first" not in refused

    def test_does_not_follow_a_suspension_either(self, ended: Any, tried: Callable[..., Any]) -> None:
        _, refused = tried(ended, {"spec.suspend": True, "spec.checkpoint.resumeFrom": 50})
        assert "spec.checkpoint.resumeFrom: Invalid value" in refused

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"spec.suspend": False},
            {"spec.checkpoint.resumeFrom": None},
            {"spec.recovery.applicationRestartsPerDay": 3},
            {"spec.completion.ttlSecondsAfterFinished": 60},
            {"spec.placement.avoidNodes": ["node-4"]},
        ],
        ids=lambda changes: next(iter(changes), "the same manifest"),
    )
    def test_takes_the_old_manifest_and_what_still_counts(
        self, changes: dict[str, Any], ended: Any, tried: Callable[..., Any]
    ) -> None:
        assert tried(ended, changes)[1] == ""

    def test_may_be_labelled(self, ended: Any, apply: Callable[..., Any], change: Callable[..., Any]) -> None:
        result = apply(change(ended, {"metadata.labels": {"paper": "yes"}}))
        assert result.returncode == 0, result.stderr


class TestAResumeThatIsRequested:
    def test_waits_until_the_job_is_suspended(
        self, kubectl: Callable[..., Any], manifest: Callable[..., Any], apply: Callable[..., Any], tried: Any
    ) -> None:
        job = manifest("TrainingJob", {"metadata.name": "runs", "spec.checkpoint": {"directory": "/ckpt"}})
        assert apply(job).returncode == 0
        status = ("patch", "trainingjob", "runs", "--subresource=status", "--type=merge", "-p")
        assert kubectl(*status, json.dumps({"status": {"state": "Running"}})).returncode == 0
        assert "set spec.suspend to true first" in tried(job, {"spec.checkpoint.resumeFrom": 50})[1]
        assert tried(job, {"spec.checkpoint.resumeFrom": 50, "spec.suspend": True})[1] == ""
        assert kubectl(*status, json.dumps({"status": {"state": "Stalled"}})).returncode == 0
        assert tried(job, {"spec.checkpoint.resumeFrom": 50})[1] == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"spec.attempt": 3, "spec.level": "R2"}, None, id="a later attempt"),
        pytest.param({"spec.reason": "Else"}, None, id="the same attempt"),
        pytest.param({"spec.attempt": 1}, ("spec.attempt", "commit a later one"), id="an earlier attempt"),
        pytest.param({"spec.jobUid": "other"}, ("spec.jobUid", "delete and re-create it"), id="another job"),
    ],
)
def test_updates_of_a_gang(
    changes: dict[str, Any],
    says: tuple[str, ...] | None,
    namespace: str,
    manifest: Callable[..., Any],
    apply: Callable[..., Any],
) -> None:
    assert apply(manifest("Gang"), "--namespace", namespace).returncode == 0
    result = apply(manifest("Gang", changes), "--namespace", namespace)
    assert (result.returncode == 0) == (says is None), result.stdout + result.stderr
    for words in says or ():
        assert words in result.stderr


def test_an_ejected_gang_is_never_taken_back(
    namespace: str, manifest: Callable[..., Any], apply: Callable[..., Any]
) -> None:
    for changes, accepted in (
        ({}, True),
        ({"spec.ejected": True}, True),
        ({"spec.ejected": False}, False),
        ({}, False),
    ):
        result = apply(manifest("Gang", changes), "--namespace", namespace)
        assert (result.returncode == 0) == accepted, result.stdout + result.stderr
    assert "spec.ejected: Invalid value" in result.stderr
    assert "delete the job and create it again" in result.stderr


def test_users_cannot_write_status(
    namespace: str, manifest: Callable[..., Any], apply: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    asked = manifest("TrainingJob", {"status.state": "Running", "status.observedGeneration": 1})
    assert apply(asked, "--namespace", namespace).returncode == 0
    stored = json.loads(kubectl("get", "tj", "small", "--namespace", namespace, "--output=json").stdout)
    assert stored["status"] == {"observedGeneration": 0}, "not what the user wrote, and not as if it had been seen"


def test_kubectl_get_shows_what_a_person_wants_to_know(
    namespace: str, manifest: Callable[..., Any], apply: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    assert apply(manifest("TrainingJob"), "--namespace", namespace).returncode == 0
    status = {
        "state": "Running",
        "reason": "Training",
        "nodesReady": "2/2",
        "attempt": 3,
        "step": 120,
        "checkpoint": {"step": 100, "path": "/checkpoints/100", "format": "TorchDCP", "time": TIME},
        "warnings": [
            {"reason": "DirectoryShared", "message": "that of bert, too", "since": TIME},
            {"reason": "StepsNotSeen", "message": "no step was seen", "since": TIME},
        ],
    }
    data = json.dumps({"status": status})
    arguments = ("--namespace", namespace, "--subresource=status", "--type=merge", "-p", data)
    assert kubectl("patch", "tj", "small", *arguments).returncode == 0
    header, row = kubectl("get", "tj", "--namespace", namespace).stdout.splitlines()
    assert header.split() == ["NAME", "STATE", "REASON", "NODES", "ATTEMPT", "STEP", "CHECKPOINT", "WARNING", "AGE"]
    assert row.split()[:8] == ["small", "Running", "Training", "2/2", "3", "120", "100", "DirectoryShared"]
    assert "trainingjob.muster.dev/small" in kubectl("get", "muster", "--namespace", namespace).stdout


def test_a_nodehealth_says_nothing_before_anybody_has_looked(
    manifest: Callable[..., Any], apply: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    asked = manifest("NodeHealth", {"metadata.name": "silent", "status.state": "Unhealthy"})
    assert apply(asked).returncode == 0
    stored = json.loads(kubectl("get", "nodehealth", "silent", "--output=json").stdout)
    assert "status" not in stored, "neither what the user wrote nor made up"
    _, row = kubectl("get", "nh", "silent").stdout.splitlines()
    assert row.split()[0] == "silent"
    assert len(row.split()) == 2, "nothing but the name and the age"


def test_kubectl_get_shows_how_a_node_is(
    manifest: Callable[..., Any], apply: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    assert apply(manifest("NodeHealth", {"metadata.name": "sick"})).returncode == 0
    status = {
        "state": "Unhealthy",
        "reason": "Xid79",
        "recommendedAction": "Reboot",
        "since": TIME,
        "agent": {"gpus": 7, "driver": "580.159.04"},
    }
    data = json.dumps({"status": status})
    assert kubectl("patch", "nh", "sick", "--subresource=status", "--type=merge", "-p", data).returncode == 0
    header, row = kubectl("get", "nh", "sick").stdout.splitlines()
    assert header.split() == ["NAME", "STATE", "REASON", "ACTION", "SINCE", "GPUS", "DRIVER", "AGE"]
    name, state, reason, action, since, gpus, driver, _ = row.split()
    assert (name, state, reason, action) == ("sick", "Unhealthy", "Xid79", "Reboot")
    assert since.rstrip("dhmy0123456789") == "", f"how long ago, not {since}"
    assert (gpus, driver) == ("7", "580.159.04")
