"""How failures go, by how they show; rates that are published, given and measured."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.whatif.builders import a_plan

from muster.api.gang import FaultClass, Gang
from muster.api.trainingjob import TrainingJob
from muster.whatif.measured import measured
from muster.whatif.rates import FT_HSDP, LLAMA3, PUBLISHED, RatesError, causes_from, of_nodes
from muster.whatif.recovery_model import Leaves, SymptomError, silent_seconds, way_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_fatal_evidence_takes_the_node_degraded_one_only_if_another_is_free() -> None:
    plan = a_plan()
    found = {
        symptom: way_of(symptom, plan).leaves
        for symptom in ("Xid79", "IbPortDown", "DiskError", "Xid13", "Crash", "Hang")
    }
    assert found == {
        "Xid79": Leaves.ALWAYS,
        "IbPortDown": Leaves.ALWAYS,
        "DiskError": Leaves.IF_FREE,
        "Xid13": Leaves.NEVER,
        "Crash": Leaves.NEVER,
        "Hang": Leaves.NEVER,
    }
    assert way_of("Silent", plan).leaves is Leaves.ALWAYS


def test_a_hang_lasts_as_long_as_its_limit() -> None:
    plan = a_plan(hang_seconds=300)
    assert way_of("Hang", plan).noticed_seconds - way_of("Crash", plan).noticed_seconds == 300


def test_a_lost_node_is_given_up_by_the_longer_of_time_out_and_fence() -> None:
    assert silent_seconds(a_plan(step_seconds=1)) == 20
    assert silent_seconds(a_plan(step_seconds=1, unreachable_seconds=90)) == 90
    # A fence has room for three steps. These stand in docs/what-if.md.
    assert [silent_seconds(a_plan(step_seconds=seconds)) for seconds in (4, 6, 25)] == [20, 32, 122]
    assert silent_seconds(a_plan(nodes=1)) == 20 + 80  # nobody misses it: the fence file has to be seen


@pytest.mark.parametrize("symptom", ["Xid9999", "crash", "Xid", "Gone"])
def test_what_shows_as_nothing_is_refused_with_what_does(symptom: str) -> None:
    with pytest.raises(SymptomError, match="write Crash, Hang, Silent, an XID like Xid79"):
        way_of(symptom, a_plan())


def test_published_rates_are_what_was_published() -> None:
    assert sum(cause.share for cause in LLAMA3.causes) == 419
    assert 1000 / LLAMA3.mttf_days == pytest.approx(3.79, abs=0.005)  # failures in 1,000 node-days
    assert 1000 / FT_HSDP.mttf_days == pytest.approx(2.3)
    assert 95 < sum(cause.share for cause in FT_HSDP.causes) <= 100
    for rates in PUBLISHED.values():
        assert all(way_of(cause.symptom, a_plan()) for cause in rates.causes)


def test_a_node_with_half_the_gpus_fails_half_as_often() -> None:
    assert of_nodes(LLAMA3, 4).mttf_days == pytest.approx(2 * LLAMA3.mttf_days)
    assert of_nodes(LLAMA3, 8) == LLAMA3


def test_causes_are_read_as_they_are_written() -> None:
    found = causes_from(["GPU=60:Xid79", "own code=12.5:Crash"])
    assert [(cause.name, cause.share, cause.symptom) for cause in found] == [
        ("GPU", 60, "Xid79"),
        ("own code", 12.5, "Crash"),
    ]


@pytest.mark.parametrize("text", ["GPU", "GPU=60", "GPU=0:Crash", "GPU=-1:Crash", "=1:Crash", "GPU=x:Crash", "G=1:Bad"])
def test_a_cause_that_cannot_be_read_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(RatesError, match="write"):
        causes_from([text])


def test_a_cause_that_is_given_twice_is_refused() -> None:
    with pytest.raises(RatesError, match="GPU is given twice"):
        causes_from(["GPU=1:Crash", "GPU=2:Hang"])


def a_job(name: str, nodes: int, days: float, ended_days: float | None = None) -> TrainingJob:
    status: dict[str, Any] = {}
    if ended_days is not None:
        time = (NOW - timedelta(days=ended_days)).isoformat()
        status["completion"] = {"result": "Succeeded", "reason": "Completed", "time": time, "attempt": 1}
    return TrainingJob.model_validate(
        {
            "metadata": {"name": name, "uid": name, "creationTimestamp": (NOW - timedelta(days=days)).isoformat()},
            "spec": {"nodes": nodes, "template": {}},
            "status": status,
        }
    )


def a_record(name: str, *incidents: tuple[str, str, float], fault_class: FaultClass = FaultClass.HARDWARE) -> Gang:
    return Gang.model_validate(
        {
            "metadata": {"name": name},
            "spec": {
                "jobUid": name,
                "attempt": 1,
                "time": NOW.isoformat(),
                "level": "Start",
                "reason": "Started",
                "incidents": [
                    {
                        "attempt": 1,
                        "time": (NOW - timedelta(days=days)).isoformat(),
                        "level": level,
                        "faultClass": fault_class,
                        "reason": reason,
                    }
                    for reason, level, days in incidents
                ],
            },
        }
    )


def test_the_fleets_own_rate_is_its_failures_by_the_node_days_of_its_jobs() -> None:
    jobs = [a_job("a", 4, 10), a_job("b", 2, 30, ended_days=10)]
    gangs = [
        a_record("a", ("NodeUnhealthy", "R2", 5), ("RankFailed", "R0", 2)),
        a_record("b", ("NodeUnreachable", "R2", 20), ("StepTimeout", "R0", 15)),
    ]
    found = measured(jobs, gangs, timedelta(days=90), NOW)
    assert found.mttf_days == pytest.approx((4 * 10 + 2 * 20) / 4)
    hows = {cause.name: way_of(cause.symptom, a_plan()).leaves for cause in found.causes}
    assert hows == {
        "NodeUnhealthy": Leaves.ALWAYS,
        "RankFailed": Leaves.NEVER,
        "NodeUnreachable": Leaves.ALWAYS,
        "StepTimeout": Leaves.NEVER,
    }


def test_neither_what_is_long_ago_nor_what_was_planned_counts() -> None:
    jobs = [a_job("a", 1, 100), a_job("b", 1, 5)]
    planned = a_record("b", ("NodeCordoned", "R2", 2), fault_class=FaultClass.PLANNED)
    gangs = [a_record("a", ("RankFailed", "R0", 99), ("RankFailed", "R0", 5)), planned]
    assert measured(jobs, gangs, timedelta(days=10), NOW).mttf_days == pytest.approx(10 + 5)


def test_a_record_that_may_have_forgotten_counts_from_its_oldest_incident_on() -> None:
    often = a_record("a", *(("RankFailed", "R0", 32.0 - number) for number in range(32)))
    found = measured([a_job("a", 1, 300)], [often], timedelta(days=1000), NOW)
    assert found.mttf_days == pytest.approx(32 / 31)


def test_a_fleet_without_a_failure_has_no_rate() -> None:
    with pytest.raises(RatesError, match=r"no failure in 20 node-days: give --mttf-days"):
        measured([a_job("a", 2, 10)], [a_record("a")], timedelta(days=90), NOW)
