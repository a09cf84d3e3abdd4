"""`kubectl muster what-if`: what people read, what programs read, and what is refused."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Api
from typer.testing import Result

from muster.cli.explanation import OUTPUT_VERSION
from muster.kube.errors import Forbidden

Command = Callable[..., Result]
QUICK = ("--lives", "20", "--days", "5")


def asked(command: Command, *arguments: str) -> dict[str, Any]:
    result = command("what-if", *QUICK, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


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
    assert "A spare is a free node that nobody else takes" in text
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
    whole, answer = (set(re.findall(r"^\| (.+?) \|", part, re.MULTILINE)) for part in page.split("\nOf the answer"))
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
    found = asked(command, "--nodes", "8192", "--mttf-days", "60")
    notes = " ".join(found["notes"])
    assert "a TrainingJob has at most 4,096 nodes" in notes
    assert asked(command, "--nodes", "64")["notes"] == []


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
        (("--nodes", "4", "--days", "1e9"), "--days"),
        (("--nodes", "4", "--lives", "1"), "--lives"),
        (("--nodes", "4", "--rates", "mine"), "choose one of llama3, ft-hsdp, fleet"),
        (("--nodes", "4", "--cause", "GPU"), "write NAME=SHARE:HOW"),
        (("--nodes", "4", "--cause", "GPU=1:Xid9999"), "nothing shows as 'Xid9999'"),
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
    assert [(row["name"], row["how"]) for row in found["answer"]["causes"]] == [("NodeUnreachable", "Silent")]


def test_a_fleet_without_failures_says_so(command: Command, api: Api) -> None:
    a_fleet_that_remembers(api)
    result = command("what-if", "--nodes", "64", "--rates", "fleet")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: the fleet's records tell of no failure in 200 node-days: give --mttf-days, or --rates llama3\n"
    )


def test_without_the_right_to_see_the_records_the_role_is_named(command: Command, api: Api) -> None:
    a_fleet_that_remembers(api)
    api.errors[GANGS] = Forbidden(403, "Forbidden", "gangs is forbidden at the cluster scope")
    result = command("what-if", "--nodes", "64", "--rates", "fleet")
    assert result.exit_code == 1
    assert "muster-fleet-view" in result.stderr
