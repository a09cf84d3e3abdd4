"""`submit`: the job that is created, what is said of it, and how the command follows it to its end."""

import copy
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.conftest import Api
from tests.unit.cli.test_status import JOBS, a_job
from typer.testing import CliRunner, Result

from muster.cli import confirmation, progress
from muster.cli.main import app
from muster.kube.errors import AlreadyExists, Invalid, NotFound

Run = Callable[..., Result]
SCRIPT = '#!/bin/bash\n#SBATCH -J llama -N 2 --gres=gpu:8\n#SBATCH --time=1:00:00\nsrun torchrun train.py "$@"\n'
ARRAY = SCRIPT.replace("--time=1:00:00", "--array=0-9")


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "train.sh"
    file.write_text(SCRIPT)
    return str(file)


@pytest.fixture
def followed(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The versions of the created job that its watch brings; what is no version is raised."""
    versions: list[Any] = []

    async def watch(path: str, query: Any, **_: Any) -> AsyncIterator[bytes]:
        while versions:
            version = versions.pop(0)
            if isinstance(version, BaseException):
                raise version
            api.put(f"{JOBS}/llama", version)
            yield json.dumps({"type": "MODIFIED", "object": version}).encode()

    async def post(path: str, body: Any, query: Any = None, **_: Any) -> bytes:
        api.written.append(("POST", path, body))
        return json.dumps({**body, "metadata": {**body["metadata"], "uid": "u"}}).encode()

    monkeypatch.setattr(api, "watch", watch, raising=False)
    monkeypatch.setattr(api, "post", post)
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    api.put(f"{JOBS}/llama", a_job(state="Pending", reason="InsufficientNodes"))
    return versions


def ended(result: str, reason: str = "Completed") -> dict[str, Any]:
    job = copy.deepcopy(a_job(state=result, reason=reason))
    end = {"result": result, "reason": reason, "message": "rank 3 exited with code 1", "attempt": 3}
    job["status"]["completion"] = {**end, "time": "2026-01-05T03:00:02Z"}
    return job


def test_a_script_becomes_a_job_and_every_line_is_accounted_for(command: Run, api: Api, script: str) -> None:
    found = command("submit", script, "--image", "registry.example.org/llama:7", "--", "--lr", "1e-4")
    assert found.exit_code == 0, found.output
    ((verb, path, job),) = api.written
    assert (verb, path) == ("POST", JOBS)
    assert (job["metadata"]["name"], job["spec"]["nodes"], job["spec"]["gpusPerNode"]) == ("llama", 2, 8)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.org/llama:7"
    assert container["command"] == ["/bin/bash", "-c", 'torchrun train.py "$@"\n', "train.sh", "--lr", "1e-4"]
    assert job["spec"]["queueing"] == {"expectedDurationSeconds": 3600}
    assert "line 3: --time=1:00:00 -> spec.queueing.expectedDurationSeconds: 3600: it is no limit" in found.stdout
    assert "line 4: srun: Muster starts the program" in found.stdout
    assert "trainingjob team-a/llama created" in found.stdout


def test_a_dry_run_prints_what_convert_prints(command: Run, api: Api, script: str) -> None:
    dry = command("submit", script, "--image=i", "--dry-run")
    converted = command("convert", script, "--image=i")
    assert (dry.exit_code, converted.exit_code) == (0, 0)
    assert yaml.safe_load(dry.stdout) == yaml.safe_load(converted.stdout)
    assert "line 3: --time=1:00:00 -> spec.queueing.expectedDurationSeconds: 3600" in dry.stderr
    assert f"sbatch script ({script}): TrainingJob llama" in converted.stderr
    assert [verb for verb, *_ in api.written] == ["POST dry run"]


def test_a_script_that_no_gang_can_run_creates_nothing(command: Run, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "array.sh"
    file.write_text(ARRAY.replace("srun torchrun", "scancel 1; srun torchrun"))
    for found in (command("submit", str(file), "--image=i"), command("convert", str(file), "--image=i")):
        assert found.exit_code == 2
        assert found.stdout == ""
        assert "line 3: --array=0-9: write one job for each" in found.stderr
        assert "line 4: scancel: the job ends with its program" in found.stderr
    assert api.written == []


def test_what_the_command_line_says_counts(command: Run, api: Api, script: str) -> None:
    options = ["-N", "4", "--gpus-per-node=4", "--name=mine", "--volume=/ckpt=claim", "--checkpoint-directory=/ckpt/a"]
    options += ["--time=1-0", "--hold-on-failure=600"]
    assert command("submit", script, "--image=i", "-n", "team-b", *options).exit_code == 0
    ((_, path, job),) = api.written
    assert path.endswith("/namespaces/team-b/trainingjobs")
    assert (job["metadata"]["name"], job["spec"]["nodes"], job["spec"]["gpusPerNode"]) == ("mine", 4, 4)
    assert job["spec"]["checkpoint"] == {"directory": "/ckpt/a"}
    assert job["spec"]["queueing"] == {"expectedDurationSeconds": 86400}
    assert job["spec"]["recovery"] == {"onFailure": "Hold", "holdSeconds": 600}
    claim = {"name": "volume-0", "persistentVolumeClaim": {"claimName": "claim"}}
    assert job["spec"]["template"]["spec"]["volumes"][1] == claim


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["submit", "no-such.sh"], "error: no-such.sh: No such file or directory: give the path of an sbatch script"),
        (["submit", "{script}", "--volume=shared"], "shared: write the path and the claim, as /shared=my-claim"),
        (["submit", "{script}"], "--image: the script names none that a node could pull"),
        (["submit", "{script}", "--image=i", "--time=1d"], "--time: 1d: write minutes, hours:minutes:seconds"),
        (["submit", "{script}", "--image=i", "--hold-on-failure=90000"], "spec.recovery.holdSeconds"),
        (["submit", "{script}", "--image=i", "--name=A_B"], "--name: 'A_B' becomes part of host names"),
    ],
)
def test_bad_input_is_named_with_its_remedy(
    command: Run, api: Api, script: str, arguments: list[str], why: str
) -> None:
    found = command(*(argument.format(script=script) for argument in arguments))
    assert found.exit_code in (1, 2)
    assert why in " ".join(found.stderr.split())
    assert api.written == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            AlreadyExists(409, "AlreadyExists", "x"),
            "there is a job team-a/llama already: choose another name with --name",
        ),
        (
            Invalid(422, "Invalid", "spec.nodes: too many"),
            "the API server does not take job llama: spec.nodes: too many",
        ),
        (NotFound(404, "NotFound", "x"), "does not know Muster's objects"),
    ],
)
def test_what_the_api_server_refuses_is_said_in_a_line(
    command: Run, api: Api, script: str, error: Exception, why: str
) -> None:
    api.refuses[JOBS] = error  # type: ignore[assignment]
    found = command("submit", script, "--image=i")
    assert found.exit_code == 1
    assert why in found.stderr


def test_it_is_followed_until_it_has_succeeded(command: Run, followed: list[Any], script: str) -> None:
    followed += [a_job(state="Running", reason="Training", step=7), ended("Succeeded")]
    found = command("submit", script, "--image=i", "--wait")
    assert found.exit_code == 0, found.output
    lines = [line for line in found.stderr.splitlines() if line.startswith(("Pending", "Running", "Succeeded"))]
    assert [line.partition(" ")[0] for line in lines] == ["Pending", "Running", "Succeeded"]
    assert "step 7" in lines[1]


def test_no_message_of_a_job_moves_the_text_of_a_terminal(command: Run, followed: list[Any], script: str) -> None:
    end = ended("Failed")
    end["status"]["completion"]["message"] = "x\x1b[2Jy"
    followed += [a_job(state="Pending", reason="X", message="a\x1b[2Jb"), end]
    found = command("submit", script, "--image=i", "--wait")
    assert found.exit_code == 1
    assert "\x1b" not in found.stderr


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (
            ended("Failed", "ApplicationRestartsExhausted"),
            "job team-a/llama has failed: ApplicationRestartsExhausted: rank 3 exited with code 1; kubectl",
        ),
        (a_job(state="Stalled", reason="TemplateInvalid"), "job team-a/llama stalls: TemplateInvalid: "),
    ],
    ids=["failed", "stalled"],
)
def test_it_ends_with_1_where_the_job_does_not_succeed(
    command: Run, followed: list[Any], script: str, version: Any, why: str
) -> None:
    followed.append(version)
    found = command("submit", script, "--image=i", "--wait")
    assert found.exit_code == 1
    assert f"error: {why}" in found.stderr


@pytest.mark.parametrize(
    ("answer", "deleted", "says"),
    [
        ("cancel\n", 1, "job team-a/llama was deleted: its ranks end within seconds, and its checkpoints stay"),
        ("\n", 0, "detached: job team-a/llama goes on. kubectl muster status team-a/llama shows it"),
        ("cancle\n", 0, "detached: job team-a/llama goes on"),
        ("", 0, "detached: job team-a/llama goes on"),
        (None, 0, "detached: job team-a/llama goes on"),
    ],
    ids=["cancel", "detach", "another word", "a second Ctrl-C", "no terminal"],
)
@pytest.mark.usefixtures("command")
def test_ctrl_c_asks_whether_to_detach_or_to_cancel(
    api: Api,
    followed: list[Any],
    script: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    deleted: int,
    says: str,
) -> None:
    monkeypatch.setattr(confirmation, "is_terminal", lambda: answer is not None)
    followed.append(KeyboardInterrupt())
    found = CliRunner().invoke(app, ["submit", script, "--image=i", "--wait"], input=answer)
    assert found.exit_code == 130, found.output
    assert [verb for verb, *_ in api.written].count("DELETE") == deleted
    assert says in found.stderr
