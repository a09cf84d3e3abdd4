"""The models themselves: what they forgive and what they do not."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from muster.api.fleetpolicy import DisruptionBudget
from muster.api.gang import FaultClass, GangIncident, GangSpec
from muster.api.trainingjob import CompletionRecord, Condition, Incident, TrainingJob, TrainingJobSpec

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
END = {"reason": "CrashLoop", "time": NOW, "attempt": 4}
FAULT = {"attempt": 1, "time": NOW, "level": "R0", "fault_class": "Application", "reason": "ProcessExited"}


@pytest.mark.parametrize(
    ("model", "fields", "length"),
    [
        pytest.param(CompletionRecord, {**END, "result": "Failed"}, 4096, id="completion"),
        pytest.param(
            Condition,
            {"type": "Succeeded", "status": "False", "reason": "CrashLoop", "last_transition_time": NOW},
            1024,
            id="condition",
        ),
        pytest.param(Incident, FAULT, 1024, id="incident"),
        pytest.param(GangIncident, FAULT, 2048, id="incident of a Gang"),
    ],
)
def test_a_message_that_is_too_long_is_cut_and_shows_it(model: Any, fields: dict[str, Any], length: int) -> None:
    assert model(**fields, message="x" * length).message == "x" * length
    assert model(**fields, message="x" * (length + 1)).message == "x" * (length - 1) + "…"


def test_a_message_that_is_no_text_is_an_error() -> None:
    with pytest.raises(ValidationError, match="message"):
        Incident.model_validate({**FAULT, "message": 7})


def test_a_time_without_a_zone_is_an_error_that_says_how_to_write_it() -> None:
    with pytest.raises(ValidationError, match="write it as RFC 3339"):
        Incident.model_validate({**FAULT, "time": "2026-01-31T12:00:00"})


@pytest.mark.parametrize("nodes", ["9E", "-1", "1e3", "101%", "10 %", "٣", "", "4\n"])
def test_a_budget_that_was_stored_without_its_rule_is_an_error_and_never_counted(nodes: str) -> None:
    with pytest.raises(ValidationError, match="not a number of nodes or a percentage of them"):
        DisruptionBudget(nodes=nodes)


def test_times_are_written_with_microseconds_in_utc() -> None:
    assert Incident.model_validate(FAULT).to_json()["time"] == "2026-01-31T12:00:00.000000Z"


def test_fields_of_a_newer_version_are_ignored() -> None:
    job = TrainingJob.model_validate(
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "small", "managedFields": []},
            "spec": {"nodes": 2, "template": {"spec": {"containers": []}}, "spares": 1},
        }
    )
    assert job.spec.nodes == 2
    assert "spares" not in job.to_json()["spec"]


RECORD = {"jobUid": "u", "attempt": 1, "time": "2026-01-01T00:00:00Z", "level": "Start", "reason": "Started"}


def test_a_record_whose_members_make_no_gang_is_none() -> None:
    with pytest.raises(ValidationError, match="members: 2 have the index 1, and each needs one of its own"):
        GangSpec.model_validate({**RECORD, "members": [{"index": 0}, {"index": 1}, {"index": 1}]})
    with pytest.raises(ValidationError, match="none of them is the worker of rank 0"):
        GangSpec.model_validate({**RECORD, "members": [{"index": 0, "rank": 1}, {"index": 1, "rank": 2}]})
    of_old = GangSpec.model_validate({**RECORD, "members": [{}, {}, {}]})
    assert [member.index for member in of_old.members] == [0, 1, 2]


def test_a_record_has_room_for_every_worker_of_the_largest_job() -> None:
    job = TrainingJobSpec.model_validate({"nodes": 4096, "template": {"spec": {"containers": []}}})
    members = [{"index": place, "rank": place} for place in range(job.nodes)]
    assert GangSpec.model_validate({**RECORD, "members": members}).node_count == 4096


def test_a_record_of_the_largest_job_of_which_every_worker_was_lost_fits_into_etcd() -> None:
    long = "n" * 58  # with its number as long as the label kubernetes.io/hostname can be
    known = {"bootId": "01234567", "podUid": "x" * 36, "gpus": 8, "readsFenceFile": True, "incarnation": 2}
    members = [{"node": f"{long}{place:05d}", **known} for place in range(4096)]
    lost = {"bootId": "01234567", "podUid": "x" * 36, "fencedTime": RECORD["time"], "remainingSeconds": 14}
    gone = [{"pod": f"train-{place}-1", "node": f"{long}{place + 4096:05d}", **lost} for place in range(4096)]
    record = GangSpec.model_validate({**RECORD, "members": members, "unfencedWorkers": gone})
    assert len(json.dumps(record.to_json(), separators=(",", ":"))) < 1_536_000, "etcd takes 1.5 MiB with all else"


def test_numbers_of_members_are_written_only_where_their_places_do_not_say_them() -> None:
    members = [{"index": 0, "rank": 1}, {"index": 1, "rank": 0}, {"index": 3}, {"index": 2}, {"index": 4}]
    record = GangSpec.model_validate({**RECORD, "members": members})
    written = [{name: each[name] for name in ("index", "rank") if name in each} for each in record.to_json()["members"]]
    assert written == [{"rank": 1}, {"rank": 0}, {"index": 3}, {"index": 2}, {}]
    assert GangSpec.model_validate(record.to_json()) == record


def test_the_workers_of_a_copied_record_are_counted_anew() -> None:
    record = GangSpec.model_validate({**RECORD, "members": [{}, {}, {}]})
    assert record.node_count == 3
    fewer = record.model_copy(update={"members": record.members[:2]})
    assert (fewer.node_count, record.node_count) == (2, 3)
    assert record == GangSpec.model_validate(record.to_json())
    assert "nodeCount" not in record.to_json()


def test_a_copy_with_a_name_that_is_no_field_is_refused() -> None:
    record = GangSpec.model_validate(RECORD)
    for name in ("incidentz", "jobUid", "node_count", "to_json"):
        with pytest.raises(ValidationError, match=rf"for GangSpec\n{name}\n  Object has no attribute"):
            record.model_copy(update={name: [1]})


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"attempt": "three"}, "attempt"),
        ({"attempt": 3, "releases": -1}, "releases"),
        ({"incidents": [1]}, "incidents.0"),
        ({"incidents": [{**FAULT, "attempt": None}]}, "incidents.0.attempt"),
        ({"excluded_nodes": {"n0": datetime(2026, 1, 31)}}, "excluded_nodes.n0"),  # noqa: DTZ001 - no zone is the point
        ({"level": "R9"}, "level"),
    ],
)
def test_a_copy_with_a_value_that_is_none_of_its_field_is_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=rf"for GangSpec\n{place}\n"):
        GangSpec.model_validate(RECORD).model_copy(update=changes)


def test_what_is_right_already_is_in_the_copy_as_it_is() -> None:
    record = GangSpec.model_validate(
        {**RECORD, "members": [{}, {}], "incidents": [FAULT], "checkpoint": {"step": 5, "path": "/c"}}
    )
    parts: dict[str, Any] = {"members": record.members, "incidents": record.incidents, "checkpoint": record.checkpoint}
    copied = record.model_copy(update={**parts, "time": NOW, "hold_until": None, "level": record.level})
    assert copied == record.model_copy(update={"time": NOW})
    assert copied.time is NOW
    assert copied.checkpoint is record.checkpoint
    assert all(one is other for one, other in zip(copied.members, record.members, strict=True))
    assert all(one is other for one, other in zip(copied.incidents, record.incidents, strict=True))


def test_a_copy_forgives_what_the_model_forgives() -> None:
    record = GangSpec.model_validate({**RECORD, "incidents": [FAULT]})
    incident = record.incidents[0].model_copy(update={"message": "x" * 2049, "fault_class": "Hardware"})
    assert (incident.message[-2:], len(incident.message)) == ("x…", 2048)
    assert incident.fault_class is FaultClass.HARDWARE
    of_dicts = record.model_copy(update={"incidents": ({**FAULT, "fault_class": "Hardware"},)})
    assert of_dicts.incidents == [record.incidents[0].model_copy(update={"fault_class": FaultClass.HARDWARE})]


def test_the_fields_of_parts_that_are_models_already_are_not_validated_again() -> None:
    made = GangIncident.model_construct(attempt=-1)
    assert GangSpec.model_validate(RECORD).model_copy(update={"incidents": [made]}).incidents == [made]


def test_excluded_nodes_beyond_the_limit_keep_those_that_last_longest() -> None:
    """A gang of 4,096 workers, all of which come late, on nodes that join those of the burn-in before."""
    before = {f"old-{number}": NOW for number in range(512)}
    late = {f"late-{number}": NOW + timedelta(hours=1) for number in range(4096)}
    record = GangSpec.model_validate({**RECORD, "excludedNodes": before})
    assert record.model_copy(update={"excluded_nodes": {**late, **before}}).excluded_nodes == late
