"""`run`: the job of a command, and that it is followed unless that is not wanted."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.conftest import Api
from tests.unit.cli.test_status import JOBS
from typer.testing import Result

from muster.cli import submitted

Run = Callable[..., Result]


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of jobs that a command has followed."""
    names: list[str] = []
    monkeypatch.setattr(submitted, "attach", lambda _, name, uid: names.append(name))
    return names


def test_a_command_runs_on_nodes_of_its_own(command: Run, api: Api, attached: list[str]) -> None:
    words = ["torchrun", "src/Train_X.py", "--rank", "$(NODE_RANK)"]
    found = command("run", "-N", "16", "--image=i", "--time=1:00", "--", *words)
    assert found.exit_code == 0, found.output
    ((verb, path, job),) = api.written
    assert (verb, path) == ("POST", JOBS)
    assert job["metadata"]["name"].startswith("train-x-")
    assert attached == [job["metadata"]["name"]]
    assert (job["spec"]["nodes"], job["spec"]["gpusPerNode"]) == (16, 8)
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == words
    assert job["spec"]["queueing"] == {"expectedDurationSeconds": 60}


def test_options_behind_the_program_are_its_own(command: Run, api: Api, attached: list[str]) -> None:
    found = command(
        "run", "--image=i", "-n", "team-a", "python", "train.py", "--name", "bert", "-t", "3", "-N", "--", "-n"
    )
    assert found.exit_code == 0, found.output
    ((_, _, job),) = api.written
    words = ["python", "train.py", "--name", "bert", "-t", "3", "-N", "--", "-n"]
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == words
    assert (job["metadata"]["name"][:6], job["spec"]["nodes"]) == ("train-", 1)


def test_two_runs_of_a_program_have_two_names(command: Run, api: Api, attached: list[str]) -> None:
    for _ in range(2):
        command("run", "--image=i", "--no-wait", "--", "./a")
    names = [job["metadata"]["name"] for *_, job in api.written]
    assert names[0] != names[1]
    assert attached == []


def test_processes_and_gpus_are_those_that_are_asked_for(command: Run, api: Api, attached: list[str]) -> None:
    options = ["--ntasks-per-node=4", "--gpus-per-node=0", "--name=llama", "--checkpoint-directory=/ckpt"]
    assert command("run", "--image=i", *options, "--", "./a").exit_code == 0
    ((_, _, job),) = api.written
    assert (job["spec"]["launch"], job["spec"]["gpusPerNode"]) == ({"processesPerNode": 4}, 0)
    assert (job["metadata"]["name"], job["spec"]["checkpoint"]) == ("llama", {"directory": "/ckpt"})
    assert attached == ["llama"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--", "a"], "Missing option '--image'"),
        (["--image=i"], "Missing argument"),
        (["--image=i", "--name=A_B", "--", "a"], "A_B: becomes part of host names"),
        (["--image=i", "-t", "x", "--", "a"], "--time: x: write minutes"),
        (["--image=i", "--nodes=0", "--", "a"], "greater than or equal to 1"),
        (["--image=i", "--nodes=100000", "--", "a"], "spec.nodes"),
    ],
)
def test_bad_input_is_named(command: Run, api: Api, arguments: list[str], why: Any) -> None:
    found = command("run", *arguments)
    assert found.exit_code == 2
    assert why in " ".join(found.stderr.split())
    assert api.written == []
