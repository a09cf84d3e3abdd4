"""`report --experiment`: sums over the jobs of one namespace that share a label, and nothing of anybody else's."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.cli.test_fleetreport import DAY, EVIL, NOW, RECORDS, a_job, a_record, a_spec, found, listed, lives
from typer.testing import Result

from muster.answers.experimentreported import ExperimentReport, experiment_report
from muster.answers.fleet_text import remarks
from muster.answers.fleetreported import AccountedJob, fleet_report
from muster.api.endedjob import EndedJobSpec
from muster.cli.experimentreport import label_of, render
from muster.cli.fleetreport import render as render_fleet
from muster.goodput.prices import NO_PRICES, Prices
from muster.kube.errors import Forbidden

JOBS = "/apis/muster.dev/v1alpha1/namespaces/team-a/trainingjobs"
HOUR = timedelta(hours=1)


def reported(*specs: EndedJobSpec, prices: Prices = NO_PRICES) -> ExperimentReport:
    return experiment_report("lr", "team-a", lives(*specs), prices)


@settings(deadline=None, max_examples=40)
@given(listed.filter(bool))
def test_the_whole_is_the_sum_of_the_jobs(specs: tuple[EndedJobSpec, ...]) -> None:
    it = reported(*specs, prices=Prices(3.0))
    assert it.gpu_hours == pytest.approx(sum(each.gpu_hours for each in it.job_details))
    assert it.gpu_hours * 3600 == pytest.approx(sum(sum(each.gpu_seconds.values()) for each in specs))
    assert (it.cost or 0) == pytest.approx(3 * it.gpu_hours)
    assert it.failures == sum(each.failures for each in specs)
    assert sum(it.states.values()) == len(specs)
    assert it.busy_seconds <= it.elapsed_seconds + 1
    assert it.busy_seconds >= max(int((each.end_time - each.creation_time).total_seconds()) for each in specs) - 1


def test_time_to_train_is_from_the_first_beginning_to_the_last_end() -> None:
    first = a_spec(1, creation_time=NOW - 10 * DAY, end_time=NOW - 9 * DAY, state="Failed")
    beside = a_spec(2, creation_time=NOW - 9.5 * DAY, end_time=NOW - 8 * DAY, state="Deleted")
    last = a_spec(3, creation_time=NOW - 6 * DAY, end_time=NOW - 5 * DAY)
    it = reported(last, first, beside)
    assert it.time_to_train_seconds == it.elapsed_seconds == 5 * 86400
    assert it.busy_seconds == 3 * 86400
    assert [each.name for each in it.job_details] == ["job-1", "job-2", "job-3"]
    assert reported(first, beside).time_to_train_seconds is None, "nothing has come of it"
    running = experiment_report(
        "lr", "team-a", [*lives(first, last), AccountedJob(beside, "Running", running=True)], Prices(1.0)
    )
    assert (running.time_to_train_seconds, running.cost_to_train, running.running) == (None, None, 1)
    assert running.cost is not None


@pytest.mark.parametrize(
    ("one", "other"), [({}, {}), ({"parameters": 10**9}, {"parameters": 70 * 10**9}), ({"parameters": 10**9}, {})]
)
def test_jobs_whose_models_may_differ_are_not_compared(one: dict[str, int], other: dict[str, int]) -> None:
    """A model of 1B parameters on 8 accelerators beside one of 70B on 64, which is 80 times slower on each."""
    small = {"throughput": {"tokensPerStep": 1000, **one}, "steps": 1000, "seconds": {"compute": 1000}}
    large = {"throughput": {"tokensPerStep": 1000, **other}, "steps": 1000, "seconds": {"compute": 10_400}}
    it = reported(
        a_spec(1, gpus=8, gpu_model="one", gpu_seconds={"compute": 8000}, **small),
        a_spec(2, gpus=64, gpu_model="one", gpu_seconds={"compute": 665_600}, **large),
    )
    assert [each.scaling for each in it.job_details] == [None, None]
    assert all(note.startswith("no scaling of") for note in it.notes)
    assert any("neither parameters" in note for note in it.notes) == (not one or not other)


def test_scaling_is_by_the_job_with_the_fewest_accelerators() -> None:
    said = {"throughput": {"tokensPerStep": 1000, "parameters": 10**9}, "steps": 1000, "gpu_model": "one"}
    small = a_spec(1, gpus=8, seconds={"compute": 1000}, gpu_seconds={"compute": 8000}, **said)
    large = a_spec(2, gpus=32, seconds={"compute": 312}, gpu_seconds={"compute": 9984}, **said)
    it = reported(small, large)
    assert [each.tokens_per_second for each in it.job_details] == [1000, pytest.approx(3205.1, abs=0.1)]
    assert [each.scaling for each in it.job_details] == [1.0, pytest.approx(8000 / 9984)]
    assert (it.tokens, it.notes) == (2_000_000, [])
    for unknown in ("several", ""):
        mixed = [each.model_copy(update={"gpu_model": unknown}) for each in (small, large)]
        it = reported(*mixed)
        assert [each.scaling for each in it.job_details] == [None, None], "of which accelerators is not known"
        assert [note.partition(":")[0] for note in it.notes] == ["no scaling of 2 jobs"]
        assert ("several models" in it.notes[0]) == (unknown == "several")
    other = large.model_copy(update={"gpu_model": "another"})
    it = reported(small, other)
    assert [each.scaling for each in it.job_details] == [None, None], "other accelerators"
    assert it.notes == [
        "no scaling of 2 jobs: none of another size has the same accelerators, parameters and flopsPerToken"
    ]
    assert reported(small).notes == [], "one job is compared with nobody"
    assert [each.scaling for each in reported(small, a_spec(3)).job_details] == [None, None], (
        "there is nothing to compare with"
    )


def test_sizes_stand_beside_each_other_in_fleet_and_experiment(printed: Callable[..., str]) -> None:
    """Twice the accelerators, 1.8 times the speed: the same tokens cost 1.11 times as much."""
    said = {"throughput": {"tokensPerStep": 1000, "parameters": 10**9}, "steps": 900, "gpu_model": "one"}
    small = a_spec(1, gpus=8, seconds={"compute": 900}, gpu_seconds={"compute": 7200}, **said)
    large = a_spec(2, gpus=16, seconds={"compute": 500}, gpu_seconds={"compute": 8000}, **said)
    it = reported(small, large, prices=Prices(1.8))
    fleet = fleet_report(lives(small, large), NOW, prices=Prices(1.8))
    assert fleet.scaling == it.scaling
    assert [(each.times_speed, each.times_cost) for each in it.scaling] == [
        (1, 1),
        (pytest.approx(1.8), pytest.approx(10 / 9)),
    ]
    # 2 and 2 2/9 GPU-hours for 900,000 tokens
    assert [each.cost_per_million_tokens for each in it.scaling] == [pytest.approx(4), pytest.approx(40 / 9)]
    text = printed(lambda console: render(console, it), width=140)
    assert re.search(r"^1B, one +16 +1 +1,800 +2 +1\.8 +90\.0% +1\.11 +4\.44$", text, re.MULTILINE)
    assert "SCALING" in printed(lambda console: render_fleet(console, fleet), width=140)
    unknown = fleet_report(lives(small), NOW)
    assert (unknown.scaling, [each for each in remarks(unknown) if "scaling" in each]) == (
        [],
        ["scaling is unknown: of fewer than two jobs are the tokens per second known (spec.throughput)"],
    )
    apart = fleet_report(lives(small, large.model_copy(update={"gpu_model": "other"})), NOW)
    assert "none of another size" in apart.scaling_unknown


def test_the_example_of_the_documentation_is_what_is_printed(printed: Callable[..., str]) -> None:
    """80,000 s on 8 and 168,000 s on 64 H200, with 11.7 and 64 GPU-hours more that were no steps."""
    march = datetime(2026, 3, 22, tzinfo=UTC)
    said = {"throughput": {"tokensPerStep": 2**22, "parameters": 7 * 10**9}, "gpu_model": "NVIDIA-H200"}
    small = a_spec(
        1,
        name="lr-3-small",
        state="Failed",
        creation_time=march,
        end_time=march + DAY,
        steps=1600,
        seconds={"compute": 80_000, "restarting": 6_400},
        gpu_seconds={"compute": 640_000, "restarting": 48_000},
        failures=1,
        **said,
    )
    large = a_spec(
        2,
        name="lr-3",
        creation_time=march + 2 * DAY,
        end_time=march + 4 * DAY,
        gpus=64,
        steps=24_000,
        seconds={"compute": 168_000, "restarting": 4_800},
        gpu_seconds={"compute": 10_752_000, "restarting": 256_000},
        failures=2,
        **said,
    )
    it = experiment_report("lr-3", "team-a", lives(small, large), Prices(2.5))
    page = (Path(__file__).parents[3] / "docs" / "goodput.md").read_text()
    block = page.partition("$ kubectl muster report --experiment lr-3 --price 2.5\n")[2].partition(
        "\n**Time to train**"
    )[0]
    text = printed(lambda console: render(console, it), width=150)
    assert [line.split() for line in block.splitlines()] == [line.split() for line in text.splitlines()], text


def test_what_one_job_does_not_tell_is_not_told_of_all() -> None:
    told = a_spec(1, throughput={"tokensPerStep": 1000}, steps=1000, gpu_model="dear")
    it = reported(told, a_spec(2), prices=Prices(None, {"dear": 2.0}))
    assert (it.tokens, it.cost, it.cost_per_million_tokens) == (None, None, None)
    assert it.job_details[0].cost == pytest.approx(384)
    alone = reported(told, prices=Prices(None, {"dear": 2.0}))
    assert alone.cost_per_million_tokens == pytest.approx(384)


def test_live_and_ended_jobs_of_the_namespace_count_once_and_no_others(
    command: Callable[..., Result], api: Any
) -> None:
    live, other = a_job("aa"), a_job("bb")
    for job, label in ((live, "lr"), (other, "other")):
        job["metadata"] |= {"namespace": "team-a", "labels": {"muster.dev/experiment": label}}
    api.lists(JOBS, live, other)
    api.lists(
        RECORDS,
        a_record(a_spec(1, experiment="lr")),
        a_record(a_spec(2, experiment="lr", namespace="team-z")),
        a_record(a_spec(3, experiment="LR")),
        a_record(a_spec(4, experiment="lr", job_uid="aa", state="Unknown")),
    )
    it = found(command("report", "--experiment", "lr", "-o", "json"))
    assert (it["kind"], it["namespace"], it["running"]) == ("ExperimentReport", "team-a", 1)
    assert [each["name"] for each in it["jobDetails"]] == ["live-aa", "job-1"]
    assert "/apis/muster.dev/v1alpha1/trainingjobs" not in api.asked, "nobody else's jobs are even asked for"
    text = command("report", "--experiment", "lr").stdout
    assert "Experiment team-a/lr: 2 jobs (1 Running, 1 Succeeded)" in text


def test_who_may_not_read_the_history_is_told_of_living_jobs_and_of_that(
    command: Callable[..., Result], api: Any
) -> None:
    live = a_job("aa")
    live["metadata"] |= {"namespace": "team-a", "labels": {"muster.dev/experiment": "lr"}}
    api.lists(JOBS, live)
    api.errors[RECORDS] = Forbidden(403, "Forbidden", "no")
    result = command("report", "--experiment", "lr")
    assert result.exit_code == 0
    assert "muster-fleet-view" in result.stdout
    assert "so far (1 job not ended)" in result.stdout
    nothing = command("report", "--experiment", "none")
    assert nothing.exit_code != 0
    assert "no job in namespace team-a" in nothing.output


def test_an_experiment_is_not_over_while_a_job_of_it_waits_for_its_first_nodes(
    command: Callable[..., Result], api: Any
) -> None:
    waits, other = a_job("bb"), a_job("cc")
    for job, label in ((waits, "lr"), (other, "else")):
        labels = {"muster.dev/experiment": label}
        job["metadata"] |= {"namespace": "team-a", "labels": labels, "creationTimestamp": "2026-03-01T00:00:00Z"}
        del job["status"]["goodput"]
    api.lists(JOBS, waits, other)
    api.lists(RECORDS, a_record(a_spec(1, experiment="lr", namespace="team-a")))
    result = command("report", "--experiment", "lr")
    assert result.exit_code == 0, result.output
    assert "so far (1 job not ended)" in result.stdout


@pytest.mark.parametrize("wrong", ["", "a b", "../x", "x" * 64, "-a", "a\n", "é"])
def test_what_is_no_label_is_refused_before_anything_is_asked(
    command: Callable[..., Result], api: Any, wrong: str
) -> None:
    with pytest.raises(ValueError, match=r"muster\.dev/experiment"):
        label_of(wrong)
    assert command("report", "--experiment", wrong).exit_code == 2
    assert api.asked == []


@pytest.mark.parametrize(
    "words",
    [
        ("report", "llama", "--experiment", "x"),
        ("report", "--fleet", "--experiment", "x"),
        ("report", "--experiment", "x", "--since", "1d"),
        ("report", "--experiment", "x", "-o", "html"),
        ("report", "--experiment", "x", "--price", "-1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    command: Callable[..., Result], api: Any, words: tuple[str, ...]
) -> None:
    assert command(*words).exit_code == 2
    assert api.asked == []


def test_the_page_is_one_page_and_nothing_on_it_moves_the_terminal(printed: Callable[..., str]) -> None:
    specs = [a_spec(number, creation_time=NOW - number * HOUR, end_time=NOW) for number in range(1, 60)]
    it = experiment_report(
        "lr", "team-a", [AccountedJob(each, EVIL, running=True) for each in specs], NO_PRICES, [EVIL]
    )
    text = printed(lambda console: render(console, it), width=140)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "the newest 40 of 59" in text
    assert len(text.splitlines()) < 60
