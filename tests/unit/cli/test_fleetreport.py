"""`report --fleet`: figures are sums over jobs, each counted once; what is an estimate is told; nothing that others
wrote is markup."""

import html.parser
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import Result

from muster.answers.fleet_text import figures, remarks
from muster.answers.fleetreported import AccountedJob, FleetReport, fleet_report
from muster.api.endedjob import EndedJobSpec, Ending
from muster.api.fleethours import FleetHours
from muster.api.goodput import Bucket
from muster.cli.fleetpage import markdown, page
from muster.cli.fleetreport import moment_of, render
from muster.goodput.prices import Prices
from muster.kube.errors import Forbidden

NOW = datetime(2026, 4, 1, tzinfo=UTC)
DAY = timedelta(days=1)
JOBS = "/apis/muster.dev/v1alpha1/trainingjobs"
RECORDS = "/apis/muster.dev/v1alpha1/namespaces/muster-system/endedjobs"
BUCKETS = [str(bucket) for bucket in Bucket]
TAKEN = ("lostWork", "undetected", "reclaim", "requeued", "restarting")


def a_spec(number: int = 1, **values: Any) -> EndedJobSpec:
    made: dict[str, Any] = {
        "job_uid": f"0000-{number}",
        "namespace": "team-a",
        "name": f"job-{number}",
        "creation_time": NOW - 10 * DAY,
        "end_time": NOW - 9 * DAY,
        "state": "Succeeded",
        "gpus": 8,
        "nodes": 1,
        "seconds": {"compute": 80_000, "restarting": 6_400},
        "gpu_seconds": {"compute": 640_000, "restarting": 51_200},
        "failures": 2,
        "causes": [{"faultClass": "Hardware", "reason": "NodeLost", "incidents": 2, "gpuSeconds": 51_200}],
        "blamed_nodes": [{"node": "bad", "incidents": 2, "gpuSeconds": 51_200}],
    }
    return EndedJobSpec.model_validate(made | values)


def lives(*specs: EndedJobSpec) -> list[AccountedJob]:
    return [AccountedJob(spec, str(spec.state), running=False) for spec in specs]


amounts = st.dictionaries(st.sampled_from(BUCKETS), st.integers(0, 10**9), max_size=6)


def test_failures_of_a_job_with_unknown_runtime_are_left_out_of_rates() -> None:
    """They would be divided by the running time of other jobs."""
    well = a_spec(1, seconds={"compute": 360_000}, gpu_seconds={}, failures=0, causes=[], blamed_nodes=[])
    plain = a_spec(
        2, seconds={"starting": 60, "unknown": 360_000}, gpu_seconds={}, failures=50, causes=[], blamed_nodes=[]
    )
    it = fleet_report(lives(well, plain), NOW)
    assert (it.failures, it.mttf_failures, it.runtime_unknown_jobs) == (50, 0, 1)
    assert it.mttf_hours is None
    assert it.mttf_at_least_hours == pytest.approx(100 / 2.9957, rel=1e-3)
    assert it.failures_per_thousand_node_days == 0
    assert fleet_report(lives(plain), NOW).mttf_hours is None
    failed = a_spec(
        3, seconds={"compute": 36_000, "unknown": 100}, gpu_seconds={}, failures=2, causes=[], blamed_nodes=[]
    )
    it = fleet_report(lives(plain, failed), NOW)
    assert (it.mttf_hours, it.mttf_failures, it.runtime_unknown_jobs) == (5.0, 2, 1)
    started = failed.model_copy(update={"failures": 9, "failed_starts": 7})
    assert fleet_report(lives(started), NOW).mttf_hours == 5.0, "the time of starts is not in it either"


@st.composite
def specs(draw: st.DrawFn, number: int) -> EndedJobSpec:
    gpu_seconds = draw(amounts)
    left = sum(gpu_seconds.get(bucket, 0) for bucket in TAKEN)
    causes = []
    for place in range(draw(st.integers(0, 3)) if left else 0):
        part = left if place == 2 else draw(st.integers(0, left))
        causes.append({"faultClass": "Hardware", "reason": f"R{place}", "incidents": 1, "gpuSeconds": part})
        left -= part
    if left:
        causes.append({"faultClass": "Unknown", "reason": "Rest", "incidents": 0, "gpuSeconds": left})
    begun = NOW - draw(st.integers(0, 400)) * DAY
    return a_spec(
        number,
        creation_time=begun,
        end_time=begun + timedelta(microseconds=draw(st.integers(0, 10**13))),
        seconds=draw(amounts),
        gpu_seconds=gpu_seconds,
        causes=causes,
        blamed_nodes=[],
        namespace=draw(st.sampled_from(["a", "b", "c"])),
    )


listed = st.integers(0, 5).flatmap(lambda count: st.tuples(*(specs(number) for number in range(count))))


@settings(deadline=None, max_examples=40)
@given(listed)
def test_the_sums_of_the_fleet_are_the_sums_of_its_jobs(found: tuple[EndedJobSpec, ...]) -> None:
    it = fleet_report(lives(*found), NOW)
    assert it.jobs == len(found)
    assert it.wall_seconds == sum(sum(each.seconds.values()) for each in found)
    assert it.gpu_seconds == sum(sum(each.gpu_seconds.values()) for each in found)
    for name in BUCKETS:
        (total,) = [each for each in it.buckets if each.bucket == name] or [None]
        assert (total.gpu_seconds if total else 0) == sum(each.gpu_seconds.get(name, 0) for each in found)
        assert (total.seconds if total else 0) == sum(each.seconds.get(name, 0) for each in found)
    assert sum(each.gpu_seconds for each in it.causes) == sum(
        each.gpu_seconds.get(name, 0) for each in found for name in TAKEN
    )
    assert sum(each.gpu_seconds for each in it.namespaces) == it.gpu_seconds
    assert sum(each.gpu_hours for each in it.job_details) == pytest.approx(it.gpu_hours)
    assert it.estimated_share == 0


@settings(deadline=None, max_examples=40)
@given(listed, st.integers(0, 400))
def test_a_cut_never_counts_more_than_there_is_and_is_told(found: tuple[EndedJobSpec, ...], days: int) -> None:
    since = NOW - days * DAY
    it, whole = fleet_report(lives(*found), NOW, since), fleet_report(lives(*found), NOW)
    assert it.gpu_seconds <= whole.gpu_seconds
    assert sum(each.gpu_seconds for each in it.buckets) == it.gpu_seconds
    taken = sum(each.gpu_seconds for each in it.buckets if each.bucket in TAKEN)
    assert sum(each.gpu_seconds for each in it.causes) == taken
    later = [each for each in found if each.creation_time >= since and each.end_time > since]
    assert it.gpu_seconds >= sum(sum(each.gpu_seconds.values()) for each in later)
    assert 0 <= it.estimated_share <= 1
    assert {each.uid for each in it.job_details} == {each.job_uid for each in found if each.end_time > since}


def test_a_job_that_began_before_counts_by_its_share_of_the_time() -> None:
    halved = a_spec(1, creation_time=NOW - 4 * DAY, end_time=NOW)
    whole = a_spec(2, creation_time=NOW - DAY, end_time=NOW)
    it = fleet_report(lives(halved, whole, a_spec(3)), NOW, NOW - 2 * DAY)
    assert [each.counted_share for each in it.job_details] == [1.0, 0.5]
    assert it.failures == 3.0
    assert it.gpu_seconds == 691_200 * 1.5
    assert it.estimated_share == pytest.approx(1 / 3)
    assert it.causes[0].incidents == 3.0
    assert it.causes[0].gpu_seconds == 51_200 * 1.5
    assert (it.offenders[0].node, it.offenders[0].jobs, it.offenders[0].incidents) == ("bad", 2, 3.0)


def test_a_quarter_is_what_lies_between_two_moments() -> None:
    begin, end = NOW - 3 * DAY, NOW - DAY
    across = a_spec(1, creation_time=NOW - 4 * DAY, end_time=NOW)
    running = AccountedJob(
        a_spec(2, creation_time=NOW - 2 * DAY, end_time=NOW - DAY - timedelta(hours=1)), "Running", running=True
    )
    late, early = a_spec(3, creation_time=end, end_time=NOW), a_spec(4, creation_time=NOW - 9 * DAY, end_time=begin)
    it = fleet_report([*lives(across, late, early), running], NOW, begin, until=end)
    assert [(each.name, each.counted_share) for each in it.job_details] == [("job-2", 1.0), ("job-1", 0.5)]
    assert (it.since, it.until, it.time) == (begin, end, NOW)
    assert it.gpu_seconds == 691_200 * 1.5
    assert it.uncounted_seconds == 3600, "its figures end an hour before the end that was asked for"
    assert markdown(it).startswith("# The fleet, from 2026-03-29 00:00:00 UTC to 2026-03-31 00:00:00 UTC")
    assert "a part of the job's life lies outside" in markdown(it)


@settings(deadline=None, max_examples=40)
@given(listed, st.integers(0, 400))
def test_two_times_that_adjoin_are_the_whole(found: tuple[EndedJobSpec, ...], days: int) -> None:
    cut, some = NOW - days * DAY, lives(*(each for each in found if each.end_time > each.creation_time))
    before, after = fleet_report(some, NOW, until=cut), fleet_report(some, NOW, cut)
    whole = fleet_report(some, NOW)
    both = before.gpu_seconds + after.gpu_seconds
    assert whole.gpu_seconds - len(found) <= both <= whole.gpu_seconds, "less what is rounded down of each job"
    assert before.failures + after.failures == pytest.approx(whole.failures)


@pytest.mark.parametrize(
    ("since", "until", "unsaved"),
    [(100, 0, 8.0), (2, 0, 8.0), (1, 0, 8.0), (0.5, 0, 4.0), (50, 0.5, 4.0), (50, 1, 0.0), (50, 25, 0.0)],
)
def test_unsaved_steps_are_the_newest_ones_wherever_a_period_begins_and_ends(
    since: float, until: float, unsaved: float
) -> None:
    """Eight GPUs have made steps for 100 h, and those of the last hour are not saved yet."""
    spec = a_spec(
        creation_time=NOW - timedelta(hours=100),
        end_time=NOW,
        seconds={"compute": 360_000},
        gpu_seconds={"compute": 8 * 360_000},
        causes=[],
        blamed_nodes=[],
    )
    life = AccountedJob(spec, "Running", running=True, unsaved_seconds=3600)
    it = fleet_report([life], NOW, NOW - timedelta(hours=since), until=NOW - timedelta(hours=until))
    assert it.unsaved_gpu_hours == pytest.approx(unsaved)


def test_figures_are_what_the_words_say() -> None:
    it = fleet_report(lives(a_spec(1), a_spec(2, failures=0, causes=[], blamed_nodes=[])), NOW, prices=Prices(2.0))
    assert it.goodput == pytest.approx(640 / 691.2)
    assert it.ettr == pytest.approx(80_000 / 86_400)
    assert it.mttf_hours == pytest.approx(160_000 / 2 / 3600)
    assert it.failures_per_thousand_node_days == pytest.approx(2 / (160_000 / 86_400) * 1000)
    assert it.cost == pytest.approx(2 * it.gpu_hours)
    assert it.causes[0].cost == pytest.approx(2 * 51_200 / 3600)
    unharmed = fleet_report(lives(a_spec(failures=0)), NOW)
    assert unharmed.mttf_hours is None
    assert unharmed.mttf_at_least_hours is not None
    nothing = fleet_report([], NOW)
    assert (nothing.goodput, nothing.ettr, nothing.mttf_hours, nothing.gpu_hours) == (None, None, None, 0)


def test_unknown_gpu_hours_are_told_beside_the_figures_that_they_limit() -> None:
    amounts = {"compute": 80_000, "unknown": 20_000}
    it = fleet_report(lives(a_spec(seconds=amounts, gpu_seconds=amounts, causes=[], blamed_nodes=[])), NOW)
    said = "20.0% of the GPU-hours are unknown, so goodput and ETTR are at least what is said here"
    assert said in remarks(it)
    assert "20.0% of the GPU-hours are unknown" in remarks(it.model_copy(update={"ettr": None, "goodput": None}))
    assert not any("are unknown" in each for each in remarks(fleet_report(lives(a_spec()), NOW)))


def a_job(uid: str, *, ended: bool = False, state: str = "Running", compute: int = 3600) -> dict[str, Any]:
    end = {"result": "Succeeded", "reason": "Completed", "time": "2026-03-01T01:00:00Z", "attempt": 1}
    return {
        "metadata": {"name": f"live-{uid}", "namespace": "team-b", "uid": uid, "resourceVersion": "7"},
        "spec": {"nodes": 2, "template": {"spec": {"containers": [{"name": "main", "image": "trainer:1"}]}}},
        "status": {
            "state": state,
            "attempt": 1,
            "nodes": ["n1", "n2"],
            "goodput": {
                "creationTime": "2026-03-01T00:00:00Z",
                "countedUntil": "2026-03-01T01:00:00Z",
                "seconds": {"compute": compute},
                "gpuSeconds": {"compute": 16 * compute},
            },
            **({"completion": end} if ended else {}),
        },
    }


def a_record(spec: EndedJobSpec) -> dict[str, Any]:
    metadata = {"name": spec.job_uid, "namespace": "muster-system", "uid": "u", "resourceVersion": "3"}
    return {"metadata": metadata, "spec": spec.to_json()}


def found(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    made: dict[str, Any] = json.loads(result.output)
    return made


def test_no_job_is_counted_twice(command: Callable[..., Result], api: Any) -> None:
    api.lists(JOBS, a_job("both", ended=True), a_job("running"), a_job("unseen"))
    unseen = a_spec(job_uid="unseen", state=Ending.UNKNOWN)
    api.lists(RECORDS, a_record(a_spec(job_uid="both")), a_record(a_spec(job_uid="gone")), a_record(unseen))
    api.is_at(datetime(2026, 3, 1, 1, tzinfo=UTC))
    it = found(command("report", "--fleet", "-o", "json"))
    assert sorted(each["uid"] for each in it["jobDetails"]) == ["both", "gone", "running", "unseen"]
    assert it["running"] == 2, "who is there was not gone"
    assert it["states"] == {"Running": 2, "Succeeded": 2}
    assert it["gpuSeconds"] == 2 * 691_200 + 2 * 16 * 3600


@pytest.mark.parametrize(("state", "bucket"), [("Running", "unknown"), ("Starting", "restarting")])
def test_who_runs_and_is_not_heard_counts_up_to_now(
    command: Callable[..., Result], api: Any, state: str, bucket: str
) -> None:
    """Ten days in which nobody saw a step, or that a start hung: its accelerators are held, and money is spent."""
    job = a_job("running", state=state)
    job["status"]["goodput"]["openPhase"] = {"bucket": bucket, "since": "2026-03-01T01:00:00Z", "gpus": 16}
    api.lists(JOBS, job)
    api.is_at(datetime(2026, 3, 11, 1, tzinfo=UTC))
    it = found(command("report", "--fleet", "--since", "5d", "-o", "json"))
    assert (it["jobs"], it["running"], it["uncountedSeconds"]) == (1, 1, 0)
    assert it["gpuSeconds"] == pytest.approx(5 * 86400 * 16, rel=1e-5)
    assert next(each for each in it["buckets"] if each["bucket"] == bucket)["gpuSeconds"] > 0.99 * it["gpuSeconds"]


def test_running_jobs_count_by_the_api_servers_clock_whatever_the_leaders_shows(
    command: Callable[..., Result], api: Any
) -> None:
    job = a_job("running")
    job["status"]["goodput"]["clockAheadSeconds"] = -3 * 3600  # it says 01:00, and trains on at 04:01
    api.lists(JOBS, job)
    api.is_at(datetime(2026, 3, 1, 4, 1, tzinfo=UTC))
    it = found(command("report", "--fleet", "-o", "json"))
    assert (it["wallSeconds"], it["uncountedSeconds"], it["buckets"][0]["bucket"]) == (3600, 0, "compute")
    assert it["jobDetails"][0]["endTime"] == "2026-03-01T04:00:00.000000Z"


def test_what_may_not_be_read_is_told_with_the_right_that_is_needed(command: Callable[..., Result], api: Any) -> None:
    api.lists(JOBS, a_job("running"))
    api.errors[RECORDS] = Forbidden(403, "Forbidden", "endedjobs is forbidden")
    it = found(command("report", "--fleet", "-o", "json"))
    assert it["jobs"] == 1
    assert "endedjobs in namespace muster-system: list" in it["notes"][0]
    assert "muster-fleet-view" in it["notes"][0]
    words = "trainingjobs is forbidden at the cluster scope"
    api.errors[JOBS] = Forbidden(403, "Forbidden", words, {"group": "muster.dev", "kind": "trainingjobs"})
    refused = command("report", "--fleet")
    assert refused.exit_code == 1
    assert "muster-fleet-view" in refused.output


POLICY = "/apis/muster.dev/v1alpha1/fleetpolicies/default"


@pytest.mark.parametrize(
    ("history", "since", "says"),
    [
        (
            {"maxJobs": 4},
            "90d",
            "jobs of a that ended before 2026-02-26 00:00 UTC may be missing: the history is full (4 accounts",
        ),
        ({"maxJobs": 4}, "2d", ""),
        ({"maxJobs": 5}, "90d", ""),
        ({"maxAgeDays": 30}, "90d", "jobs that ended before 2026-01-31 are missing: accounts are kept for 30 days"),
        ({"maxAgeDays": 30}, "20d", ""),
        ({"maxJobs": 0}, "90d", "jobs that end leave no account: spec.history.maxJobs of the FleetPolicy is 0"),
    ],
)
def test_what_the_history_has_given_up_is_said(
    command: Callable[..., Result], api: Any, history: dict[str, Any], since: str, says: str
) -> None:
    """Of a full history the namespace with most accounts has given up its oldest ones."""
    api.lists(JOBS)
    day = datetime(2026, 2, 26, tzinfo=UTC)
    for_a = [
        a_spec(number, namespace="a", creation_time=day - DAY, end_time=day + number * timedelta(hours=1))
        for number in range(3)
    ]
    api.lists(
        RECORDS,
        *(
            a_record(each)
            for each in [*for_a, a_spec(9, namespace="b", creation_time=day - 2 * DAY, end_time=day - DAY)]
        ),
    )
    api.put(POLICY, {"metadata": {"name": "default", "uid": "p"}, "spec": {"history": history}})
    api.is_at(datetime(2026, 3, 2, tzinfo=UTC))
    it = found(command("report", "--fleet", "--since", since, "-o", "json"))
    assert [note for note in it["notes"] if not note.startswith(says)] == []
    assert len(it["notes"]) == bool(says)
    assert api.asked.count(POLICY) == 1, "for prices and history alike"
    api.errors[POLICY] = Forbidden(403, "Forbidden", "no")
    assert found(command("report", "--fleet", "--since", since, "-o", "json"))["notes"] == [], "it may not know"


def test_an_older_cluster_has_no_history(command: Callable[..., Result], api: Any) -> None:
    api.lists(JOBS, a_job("running"))
    it = found(command("report", "--fleet", "-o", "json"))
    assert "keeps no history" in it["notes"][0]


def test_objects_that_make_no_sense_hide_no_others(command: Callable[..., Result], api: Any) -> None:
    api.lists(JOBS, a_job("running"), {"metadata": {"name": "x"}, "spec": {"nodes": "two"}})
    forged = a_record(a_spec(job_uid="mine")) | {"metadata": {"name": "another", "namespace": "muster-system"}}
    api.lists(RECORDS, a_record(a_spec(1)), {"metadata": {"name": "y"}, "spec": 7}, forged)
    it = found(command("report", "--fleet", "-o", "json"))
    assert it["jobs"] == 2
    assert it["notes"] == ["1 job cannot be read by this version", "2 ended jobs cannot be read by this version"]


def test_the_text_tells_the_figures_and_their_limits(command: Callable[..., Result], api: Any) -> None:
    api.lists(JOBS, a_job("long", ended=True))
    api.lists(RECORDS, a_record(a_spec(1, end_time=datetime.now(UTC), creation_time=datetime.now(UTC) - 4 * DAY)))
    text = command("report", "--fleet", "--since", "2d", "--price", "2.5").output
    assert re.search(r"NodeLost +Hardware +1 +7\.1 +7\.4% +17\.78", text)
    assert re.search(r"^bad +1 +1 +7\.1", text, re.MULTILINE)
    assert "100.0% of the GPU-hours are an estimate" in text
    assert "team-a/job-1" in text
    assert "live-long" not in text, "it has not counted anything in two days"
    cut = json.loads(command("report", "--fleet", "--since", "3d", "--until", "1d", "-o", "json").output)
    assert cut["gpuHours"] == pytest.approx(192 / 2, rel=1e-3)
    assert cut["until"] < cut["time"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a job, or say --fleet"),
        (("--fleet", "job"), "name a job, or say --fleet"),
        (("job", "--since", "3d"), "are for --fleet"),
        (("job", "-o", "html"), "are for --fleet"),
        (("--fleet", "--since", "yesterday"), "write how long ago"),
        (("--fleet", "--since", "2999-01-01"), "future"),
        (("job", "--until", "3d"), "are for --fleet"),
        (("--fleet", "--until", "2999-01-01"), "--until 2999-01-01: it is in the future"),
        (("--fleet", "--since", "3d", "--until", "4d"), "--since 3d is not before --until 4d"),
        (("--fleet", "--price", "-1"), "what one GPU-hour costs"),
        (("--fleet", "--price", "nan"), "what one GPU-hour costs"),
        (("--fleet", "--price", "1e308"), "what one GPU-hour costs"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    command: Callable[..., Result], api: Any, arguments: tuple[str, ...], says: str
) -> None:
    result = command("report", *arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", " ").split())
    assert api.asked == []


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90d", NOW - 90 * DAY),
        ("12h", NOW - DAY / 2),
        ("2w", NOW - 14 * DAY),
        ("99999w", datetime(1970, 1, 1, tzinfo=UTC)),
        ("0001-01-01", datetime(1970, 1, 1, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00:00+01:00", datetime(2026, 1, 31, 11, tzinfo=UTC)),
    ],
)
def test_when_is_understood(text: str, moment: datetime) -> None:
    assert moment_of(text, NOW) == moment
    assert moment_of(text, NOW).utcoffset() == timedelta(0), "it is told as UTC"
    assert fleet_report([], NOW, moment_of(text, NOW)).since == moment


EVIL = "<script>alert(1)</script>|`x`\n# y ![i](http://e)&\"'\x1b[31m\u202e*b*"


def evil() -> FleetReport:
    spec = a_spec(
        namespace=EVIL[:60],
        name=EVIL[:60],
        owner=EVIL[:60],
        creation_time=NOW - 4 * DAY,
        end_time=NOW,
        causes=[{"faultClass": EVIL[:30], "reason": EVIL[:60], "incidents": 1, "gpuSeconds": 51_200}],
        blamed_nodes=[{"node": EVIL, "incidents": 1, "gpuSeconds": 51_200}],
        gpu_seconds={"compute": 640_000, EVIL: 5},
    )
    return fleet_report([AccountedJob(spec, EVIL, running=True)], NOW, NOW - DAY, Prices(3.0), [EVIL])


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        for _, value in attrs:
            assert "http" not in (value or "") or "alert" in (value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else_and_nothing_in_it_is_anybodys_markup() -> None:
    text = page(evil())
    reader = Reader()
    reader.feed(text)
    assert "script" not in reader.tags
    assert "img" not in reader.tags
    assert "link" not in reader.tags
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("src", "href")}
    assert "<script>alert(1)</script>" in reader.text, "it is there, as text"
    assert "default-src 'none'" in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert "&lt;script&gt;" in text


def test_in_markdown_nothing_is_anybodys_markup() -> None:
    text = markdown(evil())
    assert "<script" not in text
    assert not re.search(r"(?<!\\)`", text)
    assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\(", text)
    for line in text.splitlines():
        if line.startswith("|"):
            heads = re.findall(r"(?<!\\)\|", line)
            assert len(heads) in {5, 6, 7, 8}, line
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1
    assert not {"\x1b", "\u202e"} & set(text)


def test_a_table_that_is_cut_says_how_many_rows_it_lacks(printed: Callable[..., str]) -> None:
    specs = [a_spec(each, namespace=f"team-{each}", blamed_nodes=[blamed(f"n{each}")]) for each in range(130)]
    it = fleet_report(lives(*specs), NOW)
    assert (len(it.offenders), it.unlisted_offenders) == (100, 30)
    text = printed(lambda console: render(console, it), 200)
    assert "WORST NODES (the first 10 of 100 or more)" in text
    assert "NAMESPACES (the first 20 of 130)" in text
    assert "## Namespaces (the first 100 of 130)" in markdown(it)
    whole = printed(lambda console: render(console, fleet_report(lives(*specs[:3]), NOW)), 200)
    assert "WORST NODES\n" in whole
    assert "NAMESPACES\n" in whole


def blamed(node: str) -> dict[str, Any]:
    return {"node": node, "incidents": 2, "gpuSeconds": 51_200}


def test_the_terminal_is_not_moved(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, evil()), 200)
    assert not {"\x1b", "\u202e"} & set(text)
    assert "* an estimate" in text


@pytest.mark.parametrize("form", ["markdown", "html", "yaml", "text", "table"])
def test_every_form_is_printed(command: Callable[..., Result], api: Any, form: str) -> None:
    api.lists(JOBS, a_job("running"))
    api.lists(RECORDS, a_record(a_spec(1)))
    result = command("report", "--fleet", "-o", form)
    assert result.exit_code == 0
    assert "NodeLost" in result.output


HOURS = "/api/v1/namespaces/muster-system/configmaps/muster-fleet-hours"


def test_what_the_fleets_accelerators_did_is_told_with_how_much_of_it_was_idle() -> None:
    spans = {"2026-03-31T05": {"held": 60 * 3_600_000, "free": 30 * 3_600_000, "reserved": 5 * 3_600_000}}
    spans |= {"2026-03-31T06": {"notObserved": 5 * 3_600_000}, "2026-01-01": {"free": 10**12}}
    hours = FleetHours.model_validate({"until": NOW, "gpus": 100, "spans": spans})
    it = fleet_report(lives(a_spec()), NOW, NOW - 30 * DAY, hours=hours)
    assert [(each.state, each.gpu_hours, each.share) for each in it.gpu_states] == [
        ("held", 60, 0.6),
        ("free", 30, 0.3),
        ("notObserved", 5, 0.05),
        ("reserved", 5, 0.05),
    ]
    assert (it.idle_share, it.counted_until) == (0.35, NOW)
    assert ("Idle accelerators", "35.0%") in figures(it)
    assert any("5.0% of the fleet's GPU-hours no operator ran" in remark for remark in remarks(it))
    for text in (markdown(it), page(it)):
        assert "reserved" in text
    assert fleet_report(lives(a_spec()), NOW).idle_share is None, "nobody knows"


def test_what_failed_jobs_cost_and_the_share_of_all_spend_that_became_progress() -> None:
    """400 GPU-hours in March: a Succeeded job of 192 (640,000 of 691,200 s in steps), a Failed one of half the size,
    idle nodes."""
    failed = a_spec(
        2,
        state="Failed",
        seconds={"compute": 43_200, "lostWork": 43_200},
        gpu_seconds={"compute": 172_800, "lostWork": 172_800},
        causes=[],
        blamed_nodes=[],
    )
    spans = {"2026-02-28": {}, "2026-03-22": {"held": 288 * 3_600_000, "quarantined": 40 * 3_600_000}}
    spans |= {"2026-03-23": {"maintenance": 32 * 3_600_000, "free": 40 * 3_600_000}}
    hours = FleetHours.model_validate({"until": NOW, "gpus": 100, "spans": spans})
    it = fleet_report(lives(a_spec(), failed), NOW, NOW - 31 * DAY, Prices(2.5), hours=hours)
    outcomes = [(each.state, each.jobs, each.gpu_hours, each.share, each.goodput, each.cost) for each in it.outcomes]
    assert outcomes == [
        ("Succeeded", 1, 192, pytest.approx(2 / 3), pytest.approx(640 / 691.2), 480),
        ("Failed", 1, 96, pytest.approx(1 / 3), 0.5, 240),
    ]
    progress = 640_000 / 3600 + 48
    assert it.spend.gpu_hours == pytest.approx(400)
    assert it.spend.progress == it.spend.progress_at_most == pytest.approx(progress / 400)
    assert it.spend.cost == pytest.approx(1000)
    assert {each.part: each.gpu_hours for each in it.spend.parts if each.part != "progress"} == {
        "noProgress": pytest.approx(288 - progress),
        "quarantined": 40,
        "maintenance": 32,
        "free": 40,
    }
    assert ("Became progress, of all GPU-hours", "56.4%") in figures(it)
    for text in (markdown(it), page(it)):
        assert "What jobs took, by their end" in text
        assert "noProgress" in text
    unknown = fleet_report(lives(a_spec()), NOW)
    assert figures(unknown)[3][1].startswith("unknown: the fleet's accelerators were not counted yet"), figures(unknown)
    running = AccountedJob(a_spec(), "Starting", running=True)
    assert [each.state for each in fleet_report([running], NOW).outcomes] == ["running"]


def a_quarter() -> FleetReport:
    """128 H200 from January to March, 276,480 GPU-hours, of which three jobs held 216,000."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)

    def job(name: str, gpus: int, days: int, from_day: int, lost_share: float, **values: Any) -> EndedJobSpec:
        seconds = days * 86_400
        lost = int(seconds * lost_share)
        spent = {"compute": seconds - lost, "restarting": lost // 3, "lostWork": lost - lost // 3}
        return a_spec(
            job_uid=name,
            name=name,
            gpus=gpus,
            nodes=gpus // 8,
            creation_time=begin + from_day * DAY,
            end_time=begin + (from_day + days) * DAY,
            seconds=spent,
            gpu_seconds={bucket: gpus * each for bucket, each in spent.items()},
            gpu_model="NVIDIA-H200",
            failures_by_class={"Hardware": values["failures"]},
            causes=[
                {
                    "faultClass": "Hardware",
                    "reason": "NodeLost",
                    "incidents": values["failures"],
                    "gpuSeconds": gpus * lost,
                }
            ],
            blamed_nodes=[],
            **values,
        )

    jobs = lives(
        job(
            "llama",
            64,
            80,
            5,
            0.08,
            failures=12,
            steps=800_000,
            throughput={"tokensPerStep": 2**22, "parameters": 7 * 10**9},
        ),
        job(
            "tuned",
            32,
            75,
            10,
            0.05,
            failures=4,
            steps=200_000,
            throughput={"tokensPerStep": 2**23, "parameters": 7 * 10**9},
        ),
        job("trial", 32, 45, 0, 0.4, failures=30, state="Failed"),
    )
    held = 64 * 80 + 32 * 75 + 32 * 45  # accelerators times days
    rest = {"free": 1_360, "quarantined": 400, "maintenance": 480, "reserved": 320}
    assert held + sum(rest.values()) == 128 * 90
    spans: dict[str, Any] = {"2025-12-31": {}}
    spans["2026-02-14"] = {state: days * 24 * 3_600_000 for state, days in {"held": held, **rest}.items()}
    hours = FleetHours.model_validate({"until": NOW, "gpus": 128, "spans": spans})
    return fleet_report(jobs, NOW, begin, Prices(2.5, currency="EUR"), hours=hours, until=NOW)


def test_the_example_of_the_documentation_is_what_is_printed(printed: Callable[..., str]) -> None:
    it = a_quarter()
    page = (Path(__file__).parents[3] / "docs" / "goodput.md").read_text()
    block = page.partition("$ kubectl muster report --fleet --since 2026-01-01 --until 2026-04-01\n")[2]
    block = block.partition("\n    ...\n")[0]
    text = printed(lambda console: render(console, it), width=150)
    told, shown = ([line.split() for line in each.splitlines()] for each in (block, text))
    assert len(told) > 30
    assert told == shown[: len(told)], text


def test_costs_that_nobody_held_are_not_guessed_from_several_prices() -> None:
    spans = {"2026-01-01": {}, "2026-03-22": {"held": 3_600_000, "free": 3_600_000}}
    hours = FleetHours.model_validate({"until": NOW, "gpus": 100, "spans": spans})
    jobs = lives(a_spec(gpu_model="H200"))
    it = fleet_report(jobs, NOW, NOW - 31 * DAY, Prices(2.0, {"H200": 3.0}), hours=hours)
    assert (it.cost, it.spend.cost) == (pytest.approx(192 * 3), None)
    (remark,) = [each for each in remarks(it) if "that no job held is not known" in each]
    assert "models have different prices" in remark
    assert "give one price for all (--price)" in remark
    assert "perGpuHour" not in remark
    it = fleet_report(jobs, NOW, NOW - 31 * DAY, Prices(None, {"H200": 3.0, "B200": 4.0}), hours=hours)
    assert it.idle_cost_unknown == "models have different prices"
    it = fleet_report(jobs, NOW, NOW - 31 * DAY, Prices(None, {"H200": 3.0}), hours=hours)
    assert (it.cost, it.spend.cost) == (576, None)
    (remark,) = [each for each in remarks(it) if "that no job held is not known" in each]
    assert "models that are not listed have no price" in remark
    assert "set spec.prices.perGpuHour of the FleetPolicy, or give" in remark
    assert "different" not in remark
    it = fleet_report(jobs, NOW, NOW - 31 * DAY, Prices(3.0, {"H200": 3.0}), hours=hours)
    assert it.spend.cost == pytest.approx(193 * 3)
    assert it.idle_cost_unknown == ""


def test_the_hours_are_read_and_what_may_not_be_read_is_told(command: Callable[..., Result], api: Any) -> None:
    api.lists(JOBS, a_job("running"))
    api.lists(RECORDS)
    told = json.dumps({"until": "2026-01-31T05:00:00Z", "gpus": 8, "spans": {"2026-01-31": {"free": 3_600_000}}})
    api.put(HOURS, {"data": {"hours": told}})
    it = found(command("report", "--fleet", "-o", "json"))
    assert (it["idleShare"], it["gpuStates"]) == (1.0, [{"state": "free", "gpuHours": 1.0, "share": 1.0}])
    api.put(HOURS, {"data": {"hours": "nonsense"}})
    assert "makes no sense" in found(command("report", "--fleet", "-o", "json"))["notes"][-1]
    api.errors[HOURS] = Forbidden(403, "Forbidden", "no")
    assert "muster-fleet-view" in found(command("report", "--fleet", "-o", "json"))["notes"][-1]
