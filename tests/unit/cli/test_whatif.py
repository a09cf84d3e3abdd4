"""`kubectl muster what-if`: what people read, what programs read, and what is refused."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.asked import QUICK, Command, asked, assert_that_what_muster_would_not_allow_is_noted
from tests.unit.cli.conftest import Api
from tests.unit.whatif.builders import a_plan

from muster.answers.explanation import OUTPUT_VERSION
from muster.cli.whatif import MAX_FAILURES, SearchProgress
from muster.kube.errors import Forbidden


def test_the_question_of_the_docs_is_answered_on_one_screen_without_a_cluster(command: Command, api: Api) -> None:
    result = command(
        *("what-if", "--nodes", "2048", "--mttf-days", "50", "--spares", "4", "--checkpoint-minutes", "10"),
        *("--save-seconds", "30", *QUICK),
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "2,048 nodes, 16,384 GPUs, 5 days: a failure every 35m9s, one of a node every 50 days"
    assert len(lines) <= 30
    text = result.stdout
    for part in ("ETTR", "Closed form", "LOST TO", "HBM3 memory", "one spare more (5): +", "one spare fewer (3): -"):
        assert part in text
    assert "Young/Daly says 5m26s" in text
    assert "A spare is a free node that no other job takes" in text
    assert api.asked == []


def test_programs_get_the_same(command: Command) -> None:
    found = asked(command, "--nodes", "256", "--spares", "2", "--checkpoint-minutes", "20")
    assert (found["apiVersion"], found["kind"]) == (OUTPUT_VERSION, "WhatIf")
    assert found["plan"]["checkpointSeconds"] == 1200
    assert found["rates"]["name"] == "llama3"
    answer = found["answer"]
    assert answer["ettr"]["low"] <= answer["ettr"]["mean"] <= answer["ettr"]["high"]
    assert [option["spares"] for option in answer["spares"]] == [1, 3]
    lost = sum(row["gpuHours"] for row in answer["causes"])
    assert answer["usefulGpuHours"] + answer["savingGpuHours"] + lost == pytest.approx(256 * 8 * 5 * 24)


def test_the_shape_for_programs_is_what_the_page_says(command: Command) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "what-if.md").read_text().partition("## WhatIf")[2]
    parts = page.split("\nFields of the answer")
    whole, answer = (set(re.findall(r"^\| (.+?) \|", part, re.MULTILINE)) for part in parts)
    found = asked(command, "--nodes", "64")
    assert {name for cell in whole for name in re.findall(r"`(\w+)`", cell)} == set(found)
    assert {name for cell in answer for name in re.findall(r"`(\w+)`", cell)} == set(found["answer"]) - {
        "usefulGpuHours",  # in the row of their sum
        "savingGpuHours",
    }
    for name in (*found["answer"]["causes"][0], *found["answer"]["spares"][0], *found["answer"]["ettr"]):
        assert name in page


def test_the_seed_decides(command: Command) -> None:
    first, again, other = (asked(command, "--nodes", "512", "--seed", seed) for seed in ("7", "7", "8"))
    assert first == again
    assert first["answer"]["ettr"] != other["answer"]["ettr"]


def test_causes_and_rates_of_ones_own(command: Command) -> None:
    found = asked(
        command, "--nodes", "512", "--mttf-days", "90", "--cause", "cable=3:IbPortDown", "--cause", "us=1:Crash"
    )
    assert found["plan"]["mttfDays"] == 90
    assert {row["name"] for row in found["answer"]["causes"]} == {"cable", "us"}
    assert found["rates"]["source"].startswith("as given")


def test_nodes_with_half_the_gpus_fail_half_as_often(command: Command) -> None:
    eight, four = (asked(command, "--nodes", "64", *more) for more in ((), ("--gpus-per-node", "4")))
    assert four["plan"]["mttfDays"] == pytest.approx(2 * eight["plan"]["mttfDays"])


def test_what_muster_would_not_allow_is_noted(command: Command) -> None:
    assert_that_what_muster_would_not_allow_is_noted(command, "--days", "1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--checkpoint-minutes", "1", "--save-seconds", "120"),
            "--checkpoint-minutes 1 is less than --save-seconds 120: more time goes into saving than into training; "
            "give --checkpoint-minutes 2 or more (Young/Daly says 2h32m), or a shorter --save-seconds",
        ),
        (
            ("--durable-seconds", "1000"),
            "--checkpoint-minutes 10 is less than --durable-seconds 1000: a save waits until the one before is "
            "complete, so that one comes every 16m40s; give --checkpoint-minutes 16.67 or more, or a shorter "
            "--durable-seconds",
        ),
    ],
)
def test_times_that_do_not_go_together_are_noted_with_both_names(
    command: Command, arguments: tuple[str, ...], says: str
) -> None:
    assert asked(command, "--nodes", "64", *arguments)["notes"] == [says]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--nodes"),
        (("--nodes", "0"), "--nodes"),
        (("--nodes", "many"), "--nodes"),
        (("--nodes", "4", "--mttf-days", "0"), "--mttf-days"),
        (("--nodes", "4", "--save-seconds", "-1"), "--save-seconds"),
        (("--nodes", "4", "--save-seconds", "nan"), "--save-seconds"),
        (("--nodes", "4", "--start-seconds", "inf"), "--start-seconds"),
        (("--nodes", "4", "--mttf-days", "nan"), "'nan' is not a number: give one from 0.01 to 1e+06"),
        (("--nodes", "4", "--mttf-days", "often"), "'often' is not a number"),
        (("--nodes", "4", "--days", "0.001"), "--days: give a number from 0.01 to 3650, not 0.001"),
        (
            ("--nodes", "4", "--checkpoint-minutes", "0.08", "--step-seconds", "5"),
            "--checkpoint-minutes: 0.08 min are less than a step takes (--step-seconds 5), and checkpoints are saved "
            "between steps: give 0.09 or more, or shorter --step-seconds",
        ),
        (("--nodes", "4", "--days", "1e9"), "--days"),
        (("--nodes", "4", "--lives", "1"), "--lives"),
        (("--nodes", "4", "--rates", "mine"), "choose one of llama3, ft-hsdp, fleet"),
        (("--nodes", "4", "--cause", "GPU"), "write NAME=SHARE:SYMPTOM"),
        (("--nodes", "4", "--cause", "GPU=1:Xid9999"), "'Xid9999' is no symptom of a failure"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_flag(command: Command, arguments: tuple[str, ...], says: str) -> None:
    result = command("what-if", *arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_what_would_take_hours_is_refused_with_what_to_change(command: Command) -> None:
    result = command("what-if", "--nodes", "16384", "--mttf-days", "1", "--lives", "1000")
    assert result.exit_code == 1
    assert "give --lives 22, fewer --days, or a longer --mttf-days" in result.stderr


def test_where_fewer_lives_do_not_help_the_remedy_is_another_and_does(command: Command) -> None:
    asked = ("what-if", "--nodes", "65536", "--mttf-days", "0.01", "--lives", "20")
    result = command(*asked)
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "with --lives 20, the fewest, give one of --days 0.152 or less, --nodes 185 or less, --mttf-days 3.54 or more\n"
    )
    base = {"nodes": 65536, "mttf_days": 0.01, "days": 54.0}
    for remedy in ({"days": 0.152}, {"nodes": 185}, {"mttf_days": 3.54}):
        plan = a_plan(**{**base, **remedy})
        assert 20 * plan.seconds / plan.gang_mttf_seconds <= MAX_FAILURES


def test_who_has_to_wait_is_told_for_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    waiting = SearchProgress(100, lambda: now[0])
    waiting.begin(1_000_000, 10)
    for done in range(1, 101):
        now[0] += 2.0
        waiting.lived(done)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("1,000,000 failures in 100 lives under 10 plans: about 50s of a core")
    assert said[1] == "15 of 100 lives, about 2m50s more"
    assert len(said) == 1 + 6


def test_who_need_not_wait_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = SearchProgress(100, lambda: 0.0)
    waiting.begin(1_000, 10)
    waiting.lived(1)
    assert capsys.readouterr().err == ""


JOBS, GANGS = "/apis/muster.dev/v1alpha1/trainingjobs", "/apis/muster.dev/v1alpha1/gangs"


def ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


def a_fleet_that_remembers(api: Api, *incidents: dict[str, Any]) -> None:
    metadata = {"name": "a", "namespace": "t", "uid": "u", "creationTimestamp": ago(10)}
    api.lists(JOBS, {"metadata": metadata, "spec": {"nodes": 20, "template": {}}, "status": {}})
    spec = {"jobUid": "u", "attempt": 1, "time": ago(10), "level": "Start", "reason": "Started"}
    api.lists(GANGS, {"metadata": {**metadata, "uid": "g"}, "spec": {**spec, "incidents": list(incidents)}})


def test_rates_of_this_fleet_come_from_the_records_of_its_jobs(command: Command, api: Api) -> None:
    lost = {"attempt": 1, "time": ago(3), "level": "R2", "faultClass": "Infrastructure", "reason": "NodeUnreachable"}
    a_fleet_that_remembers(api, lost, {**lost, "time": ago(2)})
    found = asked(command, "--nodes", "64", "--rates", "fleet")
    assert found["plan"]["mttfDays"] == pytest.approx(100, rel=0.01)
    assert found["rates"]["source"] == "this fleet: 2 failures in 200 node-days of the jobs that are on record"
    assert [(row["name"], row["symptom"]) for row in found["answer"]["causes"]] == [("NodeUnreachable", "Silent")]


def test_a_fleet_without_failures_says_so(command: Command, api: Api) -> None:
    a_fleet_that_remembers(api)
    result = command("what-if", "--nodes", "64", "--rates", "fleet")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: the fleet's records have no failure in 200 node-days: give --mttf-days, or --rates llama3\n"
    )


def test_without_the_right_to_see_the_records_the_role_is_named(command: Command, api: Api) -> None:
    a_fleet_that_remembers(api)
    api.errors[GANGS] = Forbidden(403, "Forbidden", "gangs is forbidden at the cluster scope")
    result = command("what-if", "--nodes", "64", "--rates", "fleet")
    assert result.exit_code == 1
    assert "muster-fleet-view" in result.stderr
