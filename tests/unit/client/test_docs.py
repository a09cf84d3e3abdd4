"""docs/python.md: each block of code runs, and its tables have every call with its parameters, and every error."""

import inspect
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_status import GANG, JOBS, PODS, a_gang, fresh
from tests.unit.client.conftest import WatchedApi

from muster import client
from muster.client import Job, Muster, MusterError, training_job

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text()
BLOCKS = [dedent(block) for block in re.findall(r"^ {4}from muster.*\n(?:(?: {4}.*)?\n)*", TEXT, re.MULTILINE)]
INCIDENT = {
    "attempt": 1,
    "time": "2026-01-05T03:00:02Z",
    "level": "R0",
    "faultClass": "Application",
    "reason": "RankFailed",
    "node": "gpu-1",
    "index": 1,
    "message": "rank 3 exited with code 1; its last lines: Traceback | boom",
}


@pytest.fixture
def folder(api: WatchedApi, stands: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a notebook runs, in a cluster in which `llama` has succeeded."""
    manifest = training_job("llama", image="i:1", command=["torchrun", "train.py"], nodes=2)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    monkeypatch.chdir(tmp_path)
    ended = fresh(stands("Succeeded"))
    api.put(f"{JOBS}/llama", ended)
    api.lists(JOBS, ended)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_each_block_runs(number: int, request: pytest.FixtureRequest) -> None:
    if ".save()" in BLOCKS[number]:
        request.getfixturevalue("operator")
    exec(compile(BLOCKS[number], f"docs/python.md, block {number + 1}", "exec"), {})


@pytest.mark.usefixtures("folder")
def test_the_first_block_is_five_lines_that_show_how_the_job_went(
    api: WatchedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(BLOCKS) == 6
    assert len(BLOCKS[0].strip().splitlines()) == 5
    exec(BLOCKS[0], {})
    ((_, path, sent),) = api.written
    assert (path, sent["spec"]["nodes"], sent["spec"]["checkpoint"]) == (JOBS, 16, {"directory": "/shared/llama"})
    assert capsys.readouterr().out.splitlines() == [
        "Succeeded (Completed), step 1,200, checkpoint 1,000: rank 3 exited with code 1",
        "{'compute': 3400, 'queued': 199}",
    ]


@pytest.mark.usefixtures("folder")
def test_the_block_that_waits_shows_why_a_job_failed(
    api: WatchedApi, stands: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = (block for block in BLOCKS if "JobFailedError" in block)
    api.put(f"{JOBS}/llama", stands("Failed"))
    api.put(GANG, a_gang(incidents=[INCIDENT]))
    api.lists(PODS)
    with pytest.warns(UserWarning, match="worker 1: its pod is gone, and its log with it$"):
        exec(block, {})
    printed = capsys.readouterr().out
    assert "ApplicationRestartsExhausted job team-a/llama has failed: Appl" in printed
    assert printed.endswith("\nTraceback\nboom\n")


def rows(head: str) -> list[list[str]]:
    table = TEXT.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


def test_the_table_has_every_call_with_its_parameters() -> None:
    listed = {call for row in rows("call") for call in re.findall(r"`(\w+\.\w+\(.*?\))`", row[0])}
    calls = set()
    for name, kind in (("muster", Muster), ("job", Job)):
        for method, function in inspect.getmembers(kind, inspect.isfunction):
            if not method.startswith("_") and method != "close":
                parameters = list(inspect.signature(function).parameters.values())[1:]
                calls.add(f"{name}.{method}({', '.join(map(as_written, parameters))})")
    assert listed == calls


def as_written(parameter: inspect.Parameter) -> str:
    default = str(parameter.default).replace("Succeeded", '"Succeeded"')
    return parameter.name if parameter.default is inspect.Parameter.empty else f"{parameter.name}={default}"


def test_the_table_has_every_error() -> None:
    listed = {name for row in rows("error") for name in re.findall(r"^`(\w+)`", row[0])}
    kinds = [getattr(client, name) for name in client.__all__]
    errors = {kind.__name__ for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)}
    assert listed == errors - {MusterError.__name__}


def test_the_package_says_that_it_has_types() -> None:
    assert files("muster").joinpath("py.typed").is_file()
