"""Objects that later versions have written, of each kind: what this version does not know stays, or is unreadable."""

import json
from typing import Any

import pytest
from tests.unit.skew.next_version import UNKNOWN, VALUE

from muster.api.base import ApiModel
from muster.api.endedjob import EndedJob
from muster.api.fleetpolicy import FleetPolicy
from muster.api.repairrequest import RepairRequest
from muster.api.trainingjob import TrainingJob
from muster.controller.perform import _replacing
from muster.kube import decode
from muster.kube.lease import ADDRESS_ANNOTATION, LeaderLease

NOW = "2026-01-01T00:00:00Z"
JOB: Any = {"spec": {"nodes": 2, "template": {"spec": {"containers": []}}}}
CONDITION = {"type": "OfLater", "status": "True", "reason": "OfLater", "lastTransitionTime": NOW}
ENDED: Any = {"jobUid": "u", "namespace": "a", "name": "b", "creationTime": NOW, "endTime": NOW, "state": "Failed"}
REQUEST: Any = {"node": "n0", "action": "Reboot", "incidentTime": NOW}


def read(model: type[ApiModel], body: Any) -> Any:
    document = {"metadata": {"name": "n0", "resourceVersion": "5"}, **body}
    return decode.custom(model)(json.dumps(document).encode())


def test_unknown_fields_of_a_jobs_status_are_no_part_of_its_patch() -> None:
    checkpoint = {"step": 1, "path": "/c", "time": NOW, UNKNOWN: VALUE}
    status = {"state": "OfLater", "checkpoint": checkpoint, "conditions": [CONDITION], UNKNOWN: VALUE}
    job = read(TrainingJob, JOB | {"status": status})
    assert isinstance(job, TrainingJob)
    current = job.status.to_json()
    patch = _replacing(current, current | {"step": 5, "checkpoint": {"step": 5, "path": "/d"}})
    assert UNKNOWN not in patch
    assert UNKNOWN not in patch["checkpoint"]


UNREADABLE = {
    "a mode": (TrainingJob, {"spec": {**JOB["spec"], "launch": {"mode": "OfLater"}}}, "spec.launch.mode"),
    "a condition's status": (
        TrainingJob,
        JOB | {"status": {"conditions": [{**CONDITION, "status": "Perhaps"}]}},
        "status.conditions.0.status",
    ),
    "how a job ended": (
        TrainingJob,
        JOB | {"status": {"completion": {"result": "Paused", "reason": "x", "time": NOW, "attempt": 1}}},
        "status.completion.result",
    ),
    "a job without its nodes": (TrainingJob, {"spec": {"template": JOB["spec"]["template"]}}, "spec.nodes"),
    "a policy": (FleetPolicy, {"spec": {"health": {"enforcement": "Gently"}}}, "spec.health.enforcement"),
    "a policy's form": (FleetPolicy, {"spec": {"topology": ["rack"]}}, "spec.topology"),
    "an end": (EndedJob, {"spec": {**ENDED, "state": "Preempted"}}, "spec.state"),
    "an action": (RepairRequest, {"spec": {**REQUEST, "action": "Bless"}}, "spec.action"),
    "a phase": (RepairRequest, {"spec": REQUEST, "status": {"phase": "Ordered"}}, "status.phase"),
}


@pytest.mark.parametrize(("model", "body", "field"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unknown_value_is_unreadable_and_named(model: type[ApiModel], body: Any, field: str) -> None:
    found = read(model, body)
    assert isinstance(found, decode.Undecodable)
    assert found.error.startswith(f"{field}: ")


class Leases:
    """An API server with one Lease."""

    def __init__(self, lease: Any) -> None:
        self.lease = lease

    async def get(self, _path: str, **_: Any) -> bytes:
        return json.dumps(self.lease).encode()

    async def put(self, _path: str, body: Any, **_: Any) -> bytes:
        self.lease = body
        return json.dumps(body).encode()


async def test_what_a_later_leader_has_written_into_the_lease_stays() -> None:
    annotations = {UNKNOWN: "a", ADDRESS_ANNOTATION: "there"}
    metadata = {"name": "muster-leader", "resourceVersion": "5", "annotations": annotations}
    leases = Leases({"metadata": metadata, "spec": {"holderIdentity": "", UNKNOWN: VALUE}})
    lease = LeaderLease(leases, "muster-system", "muster-leader", "me")  # type: ignore[arg-type]
    lease.address = "here"
    await lease.acquire()
    assert leases.lease["spec"].items() >= {"holderIdentity": "me", UNKNOWN: VALUE}.items()
    assert leases.lease["metadata"]["annotations"] == {UNKNOWN: "a", ADDRESS_ANNOTATION: "here"}


READABLE = {
    "a job": (TrainingJob, JOB["spec"]),
    "a policy": (FleetPolicy, {"health": {"enforcement": "Jobs"}}),
    "an ended job": (EndedJob, ENDED),
    "a request": (RepairRequest, REQUEST),
}


@pytest.mark.parametrize(("model", "spec"), READABLE.values(), ids=READABLE.keys())
def test_an_unknown_field_changes_nothing_else(model: type[ApiModel], spec: Any) -> None:
    known, later = read(model, {"spec": spec}), read(model, {"spec": {**spec, UNKNOWN: VALUE}, UNKNOWN: VALUE})
    assert {**later.spec.to_json(), UNKNOWN: None} == {**known.spec.to_json(), UNKNOWN: None}
