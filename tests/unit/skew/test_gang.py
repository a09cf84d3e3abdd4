"""What a later version has recorded of a gang outlives this one, and restarts no rank."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import EPOCH, SETTINGS, Scene, a_job, failed, running
from tests.unit.lifecycle.growth import silent
from tests.unit.lifecycle.testbed import OneJob, steps
from tests.unit.skew.next_version import NAMES, UNKNOWN, VALUE, VALUES, of_next_version, parts

from muster.api.base import rfc3339
from muster.api.gang import Gang, GangSpec, Proof
from muster.kube import decode
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.step import decide

TIME = rfc3339(EPOCH)
POINT = {"step": 40, "path": "/checkpoints/40"}
INCIDENT = {"time": TIME, "level": "R0", "faultClass": "Application", "reason": "RankFailed", "settled": True}
STACK = {"ranks": "0", "count": 1, "stack": "a.py:1"}
FAILURE = {"node": "n9", "time": TIME, "probe": "gemm"}
FULL: Mapping[str, Any] = {
    "topology": [{"level": "rack", "domains": 2}],
    "unfencedWorkers": [
        {"pod": "job-0-0", "podUid": "old-0", "node": "n8", "fencedTime": TIME, "proof": "Death"},
        {"pod": "job-1-0", "podUid": "old-1", "node": "n9"},
    ],
    "evacuation": {"reason": "NodeCordoned", "nodes": ["n2"], "since": TIME, "deadline": "2026-01-01T01:00:00Z"},
    "incidents": [{**INCIDENT, "attempt": 1, "resumedStep": 40, "stacks": [STACK]}, {**INCIDENT, "attempt": 2}],
    "excludedNodes": {"n3": "2026-01-02T00:00:00Z"},
    "moveIncompleteBeyond": POINT,
    "lastPublishedCheckpoint": POINT,
    "branch": {"resumeFrom": "", "step": 60},
    "burnIn": {"time": TIME, "failures": [FAILURE], "allReduce": {"time": TIME, "message": "fast"}},
    "corruption": {
        "attempt": 1,
        "time": TIME,
        "reason": "ReplayMismatch",
        "foundAt": 50,
        "suspectBeyondStep": 49,
        "open": False,
        "newestCheckpoint": POINT,
    },
    "suspectCheckpoint": {"checkpoint": POINT, "attempts": [2], "fallback": POINT},
    "account": {
        "creationTime": TIME,
        "countedUntil": TIME,
        "milliseconds": {"queued": 5, "ofLater": 7},
        "segments": [{"afterStep": 0, "step": 40, "gpus": 8, "milliseconds": {"compute": 9}}],
        "fingerprints": [{"attempt": 1, "image": "a"}],
        "progress": {f"{when}Milliseconds": 1 for when in ("start", "firstStep", "lastStep")}
        | {"firstStep": 1, "step": 2},
    },
}
AWAITED = ("unfencedWorkers", "evacuation")  # what keeps other decisions waiting
NEW_WITH_AN_ATTEMPT = (".topology", ".account.progress")


def a_scene(*without: str, **spec: Any) -> Scene:
    """A gang in its third attempt that runs, with everything on record."""
    scene = Scene(a_job(**spec)).fleet(6).gang(3, resume=40).pods().all(running(3, 45))
    assert scene.record is not None
    recorded = {name: value for name, value in FULL.items() if name not in without}
    scene.record = GangSpec.model_validate({**scene.record.to_json(), **recorded})
    return scene


def is_silent() -> Scene:
    scene = silent(3, 600.0)
    scene.record = a_scene(*AWAITED).record
    return scene


SCENES: Mapping[str, Callable[[], Scene]] = {
    "a rank fails": lambda: a_scene(*AWAITED).launcher(1, failed(3, 1)),
    "a rank finds wrong results": lambda: a_scene(*AWAITED).launcher(1, failed(3, 1, code=86)),
    "a pod has ended": lambda: a_scene(*AWAITED).ended(1),
    "no launcher is heard": is_silent,
    "the evacuation is over": lambda: a_scene("unfencedWorkers"),
    "the job is suspended": lambda: a_scene(*AWAITED, suspend=True),
}


def committed(scene: Scene) -> GangSpec:
    (commit,) = (action for action in decide(scene.world(), SETTINGS).actions if isinstance(action, CommitGang))
    return commit.spec


def identity_of(path: str, part: Any) -> Any:
    """What a part is known by: where it stands, and what it is about; of the record itself the attempt changes."""
    names = ("attempt", "index", "incarnation", "pod", "after_step", "ranks", "node") if path else ()
    return re.sub(r"\[[0-9]+\]", "", path), *(getattr(part, name, None) for name in names)


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
@settings(max_examples=10, deadline=None)
@given(unknown=st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
def test_unknown_fields_are_committed_again(scene: Callable[[], Scene], unknown: dict[str, Any]) -> None:
    of_before = scene()
    assert of_before.record is not None
    known = committed(scene())
    of_before.record = GangSpec.model_validate(of_next_version(of_before.record, unknown))
    record = committed(of_before)
    had = {identity_of(path, part) for path, part, _ in parts(of_before.record, of_before.record.to_json())}
    has = {identity_of(path, part): (path, found) for path, part, found in parts(record, record.to_json())}
    kept = {
        name: found for name, (path, found) in has.items() if name in had and not path.startswith(NEW_WITH_AN_ATTEMPT)
    }
    assert {name for name, found in kept.items() if not unknown.items() <= found.items()} == set()
    assert ("",) in kept, "and the record itself"
    assert [path for path, *_ in parts(record, record.to_json())] == [
        path for path, *_ in parts(known, known.to_json())
    ]


def of_job(life: OneJob) -> Any:
    """The Gang of the job as it is stored."""
    return next(gang for gang in life.server.all("gangs") if gang["spec"]["jobUid"] == life.uid)


def unknown_in(spec: Mapping[str, Any]) -> set[str]:
    """The paths of the parts that have the unknown field."""
    record = GangSpec.model_validate(spec)
    return {path for path, _, found in parts(record, record.to_json()) if found.get(UNKNOWN) == VALUE}


def test_a_rollback_while_a_gang_trains_restarts_nothing_and_loses_nothing() -> None:
    with closing(OneJob(nodes=4, script=steps(total=150))) as life:
        life.until_step(7)
        life.rank(0).kill()
        life.until_attempt(2)
        life.until_step(12)
        life.operator_dies()
        go = of_job(life)["spec"]["start"]  # which no version changes
        life.server.restore("gangs", {**of_job(life), "spec": of_next_version(life.record) | {"start": go}})
        assert {"", ".members[0]", ".members[1]", ".incidents[0]", ".account"} <= unknown_in(of_job(life)["spec"])
        life.run(30.0)
        assert (life.attempt, life.step > 12) == (2, True)
        life.rank(1).kill()
        life.until_attempt(3)
        life.until_go(3)
        assert {"", ".members[0]", ".members[1]", ".incidents[0]", ".account"} <= unknown_in(of_job(life)["spec"])
        life.machine(1).cut_power()
        life.until_go(4)
        assert {"", ".members[0]", ".incidents[0]", ".account"} <= unknown_in(of_job(life)["spec"])
        assert ".members[1]" not in unknown_in(of_job(life)["spec"]), "it has a pod of this version's"
        life.succeeds()
        assert {"", ".incidents[0]"} <= unknown_in(of_job(life)["spec"])


FORMS: Mapping[str, Any] = {
    "spec.level": {"level": "R7"},
    "spec.members.0.role": {"members": [{"role": "Judge"}]},
    "spec.unfencedWorkers.0.proof": {"unfencedWorkers": [{"pod": "p", "fencedTime": TIME, "proof": "Oath"}]},
    "spec.incidents.0.faultClass": {"incidents": [{**INCIDENT, "attempt": 1, "faultClass": "Weather"}]},
    "spec.account.reportedBuckets.0": {
        "account": {"creationTime": TIME, "countedUntil": TIME, "reportedBuckets": ["dreaming"]}
    },
    "spec.attempt": {"attempt": {"number": 1}},  # another form
    "spec.reason": {"reason": None},  # an older form
}


@pytest.mark.parametrize(("field", "change"), FORMS.items(), ids=FORMS.keys())
def test_a_record_of_another_form_is_unreadable_and_not_empty(field: str, change: Mapping[str, Any]) -> None:
    record = a_scene(*AWAITED).record
    assert record is not None
    spec = {name: value for name, value in {**record.to_json(), **change}.items() if value is not None}
    owner = {"kind": "TrainingJob", "name": "j", "uid": "uid-j", "controller": True}
    metadata = {"name": "j-1", "namespace": "ns", "uid": "g", "resourceVersion": "5", "ownerReferences": [owner]}
    found = decode.custom(Gang)(json.dumps({"metadata": metadata, "spec": spec}).encode())
    assert isinstance(found, decode.Undecodable)
    assert (found.name, found.owner_uid) == ("j-1", "uid-j")
    assert found.error.startswith(f"{field}: ")


def test_a_record_of_an_older_form_has_defaults() -> None:
    oldest = {"jobUid": "u", "attempt": 1, "time": TIME, "level": "Start", "reason": "Started"}
    unfenced = [{"pod": "p", "fencedTime": TIME}]
    record = GangSpec.model_validate({**oldest, "members": [{"node": "n0"}, {}], "unfencedWorkers": unfenced})
    assert [(member.index, member.rank, member.incarnation) for member in record.members] == [(0, 0, 1), (1, 1, 1)]
    assert record.unfenced_workers[0].proof is Proof.FENCE
