"""`shell`: which pod and container kubectl is asked for, with which words, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Api
from tests.unit.cli.test_status import JOBS, PODS, a_job, a_pod
from typer.testing import Result

from muster.kube.errors import Forbidden

Run = Callable[..., Result]


@pytest.fixture
def job(api: Api) -> None:
    api.put(f"{JOBS}/llama", a_job())
    api.lists(PODS, a_pod(0), a_pod(1))


def asked(seen: Path) -> list[str]:
    _, words, _ = json.loads(seen.read_text())
    return list(words)


@pytest.mark.usefixtures("job")
def test_it_is_in_the_container_that_trains(command: Run, kubectl: Callable[[str], Path]) -> None:
    seen = kubectl("sys.exit(7)")
    found = command("shell", "llama", "--worker", "1")
    assert found.exit_code == 7, "it ends as the shell did"
    words = asked(seen)
    pod = a_pod(1)["metadata"]["name"]
    assert words[0] == "exec"
    assert "--tty" not in words, "without a terminal"
    assert {"--stdin", "--namespace=team-a", "--context=prod"} <= {*words}
    assert words[words.index(pod) :][:4] == [pod, "--", "/bin/sh", "-c"]


@pytest.mark.usefixtures("job")
def test_a_command_takes_the_place_of_the_shell(command: Run, kubectl: Callable[[str], Path]) -> None:
    seen = kubectl("")
    assert command("shell", "llama", "--", "nvidia-smi", "-L").exit_code == 0
    words = asked(seen)
    assert words[words.index("--") :] == ["--", "nvidia-smi", "-L"]
    assert a_pod(0)["metadata"]["name"] in words


@pytest.mark.usefixtures("job")
def test_a_worker_that_does_not_run_is_named_with_those_that_do(command: Run) -> None:
    found = command("shell", "llama", "-w", "9")
    assert found.exit_code == 1
    assert "worker 9 of job team-a/llama has no pod that runs: give one that runs with --worker: 0, 1" in found.stderr


def test_no_worker_runs(command: Run, api: Api) -> None:
    api.put(f"{JOBS}/llama", a_job())
    api.lists(PODS)
    assert "none runs now; kubectl muster status team-a/llama shows why" in command("shell", "llama").stderr


@pytest.mark.usefixtures("job")
def test_a_pod_that_only_claims_to_be_the_jobs_is_not_entered(command: Run, api: Api) -> None:
    foreign = a_pod(0)
    foreign["metadata"]["ownerReferences"] = []
    api.lists(PODS, foreign)
    assert "none runs now" in command("shell", "llama").stderr


@pytest.mark.usefixtures("job")
def test_without_kubectl_or_a_right_it_says_so(
    command: Run, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = command("shell", "llama")
    assert (found.exit_code, "there is no kubectl on the PATH" in found.stderr) == (1, True)
    api.errors[PODS] = Forbidden(403, "Forbidden", "pods is forbidden")
    assert "its pods may not be read: ask for the cluster's role view" in command("shell", "llama").stderr
