"""What is kept of a job that has ended: every second of it, in few enough bytes, whatever the job did and was
called."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_job, an_incident, at

from muster.api.base import ObjectMeta
from muster.api.endedjob import MAX_BLAMED, MAX_CAUSES, EndedJobSpec, Ending, is_named_well
from muster.api.gang import FaultClass, Gang, GangIncident, GangSpec, Level
from muster.api.goodput import LONGEST_MILLISECONDS, Account, Bucket, Goodput
from muster.api.throughput import MAX_FLOPS, MAX_PARAMETERS, MAX_PEAK, MAX_TOKENS
from muster.api.trainingjob import CompletionRecord, CompletionResult
from muster.goodput.history import (
    MAX_SPEC_BYTES,
    NOT_RECORDED,
    OTHERS,
    OWNER_LABEL,
    SUSPENSION,
    TAKEN,
    allot_amount,
    ended_job_record,
    last_known,
    size,
)

UID = "6f1cb1de-0a4f-4f27-9f0e-6c1d2f3a4b5c"
hostile = st.text(st.sampled_from('a<>&"\\\x00\x1b\u202e\u2028🂡é…%{}\n'), max_size=5000)
numbers = st.sampled_from([0, 1, 7, 86_399, 2**31 - 1, LONGEST_MILLISECONDS])
amounts = st.dictionaries(
    st.sampled_from([str(bucket) for bucket in Bucket] + ["ofANewerOperator"]), numbers, max_size=15
)


def a_goodput(**figures: Any) -> Goodput:
    values: dict[str, Any] = {
        "creation_time": at(0),
        "counted_until": at(1000),
        "seconds": {"compute": 900, "restarting": 100},
    }
    return Goodput(**(values | figures))


def a_gang(*incidents: GangIncident, **spec: Any) -> Gang:
    values: dict[str, Any] = {"job_uid": UID, "attempt": 1 + len(incidents), "time": at(0), "level": Level.START}
    made = GangSpec(**(values | {"reason": "Started", "incidents": list(incidents)} | spec))
    return Gang(metadata=ObjectMeta(name="job-1", namespace="ns"), spec=made)


@st.composite
def incidents(draw: st.DrawFn) -> list[GangIncident]:
    kinds = draw(st.integers(1, 40))
    return [
        an_incident(
            number,
            draw(st.sampled_from(list(FaultClass))),
            reason=f"{draw(hostile)[:40]}{number % kinds}"[:64],
            node=f"{'<&' * 120}{number % kinds}",
            time=at(draw(st.integers(0, 2000))),
            fault_time=draw(st.sampled_from([None, at(-5), at(10**7)])),
            lost_milliseconds=draw(st.sampled_from([None, 0, LONGEST_MILLISECONDS])),
        )
        for number in range(draw(st.sampled_from([0, 1, 9, 256])))
    ]


@given(amounts, amounts, incidents(), st.lists(hostile, min_size=5, max_size=5), numbers)
def test_whatever_a_job_did_its_account_is_whole_and_fits(
    seconds: dict[str, int], gpu_seconds: dict[str, int], listed: list[GangIncident], texts: list[str], number: int
) -> None:
    said = {
        "tokensPerStep": MAX_TOKENS,
        "parameters": MAX_PARAMETERS,
        "flopsPerToken": MAX_FLOPS,
        "peakTflopsPerGpu": MAX_PEAK,
    }
    job = a_job(uid=UID, nodes=4096, throughput=said)
    ended = CompletionRecord(
        result=CompletionResult.FAILED, reason=texts[0][:64] or "Failed", message=texts[1], time=at(1000), attempt=1
    )
    labels = {"muster.dev/experiment": texts[2], OWNER_LABEL: texts[3], "muster.dev/other": "x" * 9999}
    job = job.model_copy(
        update={
            "metadata": job.metadata.model_copy(update={"labels": labels, "name": "n" * 40, "namespace": "s" * 63}),
            "status": job.status.model_copy(update={"completion": ended, "attempt": 2**40, "step": 2**53 - 1}),
        }
    )
    goodput = a_goodput(
        seconds=seconds,
        gpu_seconds=gpu_seconds,
        failures=2**31 - 1,
        failures_by_class={str(each): 2**31 - 1 for each in FaultClass},
        steps=2**53 - 1,
        lost_steps=2**53 - 1,
        ettr_permille=1000,
        ettr_after_queue_permille=1000,
        first_checkpoint_seconds=number,
    )
    made = ended_job_record(job, a_gang(*listed), goodput, Ending.DELETED, texts[4])
    assert size(made) <= MAX_SPEC_BYTES
    assert made == EndedJobSpec.model_validate(json.loads(json.dumps(made.to_json()))), "the API server takes it"
    assert made.state is Ending.FAILED
    assert (made.steps, made.throughput) == (2**53 - 1, job.spec.throughput)
    if sum(seconds.values()) <= LONGEST_MILLISECONDS:
        assert sum(made.seconds.values()) == sum(seconds.values())
    taken = sum(gpu_seconds.get(bucket, 0) for bucket in TAKEN)
    if taken <= LONGEST_MILLISECONDS:
        assert sum(each.gpu_seconds for each in made.causes) == taken
    assert sum(each.incidents for each in made.causes) == len(listed)
    blamed = {each.node for each in listed if each.fault_class is FaultClass.HARDWARE or each.reason.startswith("Node")}
    assert len(made.blamed_nodes) + made.other_blamed_nodes == len(blamed)
    assert len(made.causes) <= MAX_CAUSES
    assert len(made.blamed_nodes) <= MAX_BLAMED
    assert not {"\x00", "\x1b", "\u202e", "\n"} & set("".join((made.reason, made.message, made.owner, made.gpu_model)))


def test_time_is_allotted_to_causes_and_nodes_by_what_each_incident_took() -> None:
    listed = (
        an_incident(1, FaultClass.HARDWARE, reason="NodeLost", node="bad", time=at(100), resumed_time=at(190)),
        an_incident(
            2,
            FaultClass.APPLICATION,
            reason="Exit",
            node="n2",
            time=at(300),
            lost_milliseconds=10_000,
            resumed_time=at(320),
        ),
        an_incident(3, FaultClass.PLANNED, reason="Drain", node="n3", time=at(400), resumed_time=at(430)),
        an_incident(4, FaultClass.HARDWARE, reason="NodeLost", node="bad", time=at(500), resumed_time=at(550)),
    )
    goodput = a_goodput(
        seconds={"compute": 900, "restarting": 100, "lostWork": 90, "undetected": 10, "suspended": 86_400},
        gpu_seconds={"compute": 9000, "restarting": 1000, "lostWork": 900, "undetected": 100},
    )
    made = ended_job_record(a_job(uid=UID), a_gang(*listed), goodput, Ending.DELETED)
    assert [(each.reason, each.incidents, each.gpu_seconds) for each in made.causes] == [
        ("NodeLost", 2, 1400),
        ("Drain", 1, 300),
        ("Exit", 1, 300),
    ]
    assert [(each.node, each.incidents, each.gpu_seconds) for each in made.blamed_nodes] == [("bad", 2, 1400)]
    assert made.lost_seconds == 10
    assert (made.attempts, made.state) == (5, Ending.DELETED)
    # Suspended for a day after the third failure: that is nobody's.
    listed = (*listed[:2], an_incident(3, FaultClass.PLANNED, reason="Drain", node="n3", time=at(400)))
    goodput = goodput.model_copy(update={"counted_until": at(86_800)})
    made = ended_job_record(a_job(uid=UID), a_gang(*listed), goodput, Ending.DELETED)
    assert {each.reason: each.gpu_seconds for each in made.causes} == {"NodeLost": 850, "Drain": 850, "Exit": 300}


def test_suspensions_are_not_charged_to_failures_and_nodes() -> None:
    """A lost node was replaced within 29 s; then the user suspended the job five times. 32 accelerators."""
    lost = an_incident(1, FaultClass.HARDWARE, reason="NodeLost", node="n0", time=at(100), resumed_time=at(129))
    taken = {"lostWork": 3000, "reclaim": 130, "requeued": 900, "restarting": 2000}
    goodput = a_goodput(
        seconds={"compute": 36_000, "suspended": 50_000, **taken},
        gpu_seconds={name: 32 * seconds for name, seconds in {"compute": 36_000, **taken}.items()},
    )
    made = ended_job_record(a_job(uid=UID), a_gang(lost), goodput, Ending.DELETED)
    hours = {(each.fault_class, each.reason, each.incidents): each.gpu_seconds / 3600 for each in made.causes}
    assert hours == {
        ("Hardware", "NodeLost", 1): pytest.approx(0.26, abs=0.005),
        ("Planned", SUSPENSION, 0): pytest.approx(53.6 - 0.26, abs=0.005),
    }
    assert [(each.node, each.gpu_seconds / 3600) for each in made.blamed_nodes] == [
        ("n0", pytest.approx(0.26, abs=0.005))
    ]
    alone = ended_job_record(
        a_job(uid=UID),
        a_gang(lost),
        a_goodput(seconds={"lostWork": 600}, gpu_seconds={"lostWork": 600}),
        Ending.DELETED,
    )
    assert {each.reason: each.gpu_seconds for each in alone.causes} == {"NodeLost": 29, NOT_RECORDED: 571}


@pytest.mark.parametrize(
    ("fault_class", "reason", "is_blamed"),
    [
        (FaultClass.HARDWARE, "RankFailed", True),
        (FaultClass.INFRASTRUCTURE, "NodeUnreachable", True),
        (FaultClass.INFRASTRUCTURE, "NodeGone", True),
        (FaultClass.INFRASTRUCTURE, "PodDeleted", False),
        (FaultClass.INFRASTRUCTURE, "PodGone", False),
        (FaultClass.INFRASTRUCTURE, "Evicted", False),
        (FaultClass.INFRASTRUCTURE, "LauncherSilent", False),
        (FaultClass.UNKNOWN, "StepTimeout", False),
        (FaultClass.PLANNED, "Drain", False),
    ],
)
def test_a_tenant_cannot_have_a_node_blamed(fault_class: FaultClass, reason: str, is_blamed: bool) -> None:
    incident = an_incident(1, fault_class, reason=reason, node="n0", time=at(100), resumed_time=at(200))
    made = ended_job_record(a_job(uid=UID), a_gang(incident), a_goodput(gpu_seconds={"lostWork": 900}), Ending.DELETED)
    assert [each.node for each in made.blamed_nodes] == ["n0"] * is_blamed
    assert [each.reason for each in made.causes] == [reason], "as a cause it is told in any case"


@pytest.mark.parametrize("ahead", [10_800, -10_800])
def test_an_account_is_dated_by_the_clock_of_the_api_server(ahead: int) -> None:
    """A clock that is three hours off must not move a job of January to February."""
    goodput = a_goodput(creation_time=at(ahead), counted_until=at(ahead + 1000), clock_ahead_seconds=ahead)
    found = ended_job_record(a_job(), None, goodput, Ending.DELETED)
    assert (found.creation_time, found.end_time) == (at(0), at(1000))


def test_many_causes_are_told_as_others_and_time_without_an_incident_is_told_as_such() -> None:
    many = [an_incident(n, FaultClass.HARDWARE, reason=f"R{n}", time=at(n)) for n in range(20)]
    goodput = a_goodput(gpu_seconds={"restarting": 20_000})
    made = ended_job_record(a_job(uid=UID), a_gang(*many), goodput, Ending.DELETED)
    assert len(made.causes) == MAX_CAUSES
    assert (made.causes[-1].reason, made.causes[-1].incidents, made.causes[-1].fault_class) == (OTHERS, 13, "Hardware")
    assert sum(each.gpu_seconds for each in made.causes) == 20_000
    alone = ended_job_record(a_job(uid=UID), None, goodput, Ending.DELETED)
    assert [(each.reason, each.gpu_seconds) for each in alone.causes] == [(NOT_RECORDED, 20_000)]


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**9), max_size=50))
def test_what_is_allotted_is_the_whole(amount: int, weights: list[int]) -> None:
    parts = allot_amount(amount, weights)
    assert sum(parts) == (amount if sum(weights) else 0)
    assert all(
        abs(part - amount * weight / max(sum(weights), 1)) <= 1 for part, weight in zip(parts, weights, strict=True)
    )


def test_the_account_counts_where_it_has_come_further_than_what_was_told() -> None:
    job = a_job(uid=UID)
    account = Account(creation_time=at(0), counted_until=at(500), milliseconds={"queued": 500_000})
    told = a_goodput(creation_time=at(0), counted_until=at(400), seconds={"queued": 400})

    def known(told: Goodput | None, account: Account | None) -> dict[str, int] | None:
        here = job.model_copy(update={"status": job.status.model_copy(update={"goodput": told})})
        found = last_known(here, a_gang(account=account))
        return None if found is None else found.seconds

    assert known(None, None) is None
    assert known(told, None) == {"queued": 400}
    assert known(told, account) == {"queued": 500}
    assert known(told.model_copy(update={"counted_until": at(600), "seconds": {"queued": 600}}), account) == {
        "queued": 600
    }


@pytest.mark.parametrize(
    ("name", "well"),
    [(UID, True), ("", False), ("../x", False), ("A", False), ("-a", False), ("a" * 65, False), ("é", False)],
)
def test_only_an_uid_names_an_account(name: str, well: bool) -> None:
    assert is_named_well(name) is well
