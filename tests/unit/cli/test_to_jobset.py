"""`convert --to jobset`: nothing is printed while a pod of the job, or of its ejected gang, may live."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_commands import failed, path_of
from tests.unit.cli.test_eject import PODS, a_pod, job
from typer.testing import Result

from muster.kube.errors import Forbidden
from muster.world.names import pod_name

Run = Callable[..., Result]
POLICY = "/apis/muster.dev/v1alpha1/fleetpolicies/default"


def put(api: Any, raw: dict[str, Any], *pods: dict[str, Any]) -> None:
    api.put(path_of("llama"), raw)
    api.lists(PODS, *pods)


def test_a_job_that_has_ended_is_printed(api: Any, command: Run) -> None:
    put(api, job("Failed"), a_pod(0, "Failed", owned=True))
    api.put(POLICY, {"metadata": {"name": "default"}, "spec": {"acceleratorResource": "example.org/gpu"}})
    found = command("convert", "--to", "jobset", "llama")
    assert found.exit_code == 0, found.output
    made = yaml.safe_load(found.stdout)
    assert (made["kind"], made["metadata"]) == ("JobSet", {"name": "llama", "namespace": "team-a"})
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"example.org/gpu": "8"}
    assert found.stderr.startswith("TrainingJob llama: JobSet llama\n")
    assert api.written == []


@pytest.mark.parametrize("owned", [True, False], ids=["its own", "ejected"])
@pytest.mark.parametrize("phase", ["Running", "Pending", "Unknown"])
def test_a_pod_that_may_live_is_named_and_nothing_is_printed(api: Any, command: Run, phase: str, owned: bool) -> None:
    put(api, job("Failed"), a_pod(0, "Succeeded"), a_pod(1, phase, owned))
    said = failed(command("convert", "--to", "jobset", "llama"))
    assert f"may still train and save: {pod_name('llama', 'u', 1, 1)}. Wait until they have ended" in said
    assert "kubectl -n team-a delete pods -l muster.dev/job=llama ends them" in said


@pytest.mark.parametrize("state", ["Running", "Pending", "Recovering", "Stalled"])
def test_a_job_that_may_start_again_is_refused(api: Any, command: Run, state: str) -> None:
    put(api, job(state))
    assert "has not ended, and may train beside the JobSet" in failed(command("convert", "--to", "jobset", "llama"))


def test_the_manifest_of_an_ejected_job_is_converted_once_its_pods_have_ended(
    api: Any, command: Run, tmp_path: Path
) -> None:
    raw = job()
    for part in ("uid", "resourceVersion", "generation", "ownerReferences"):
        del raw["metadata"][part]
    file = tmp_path / "llama.eject.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in raw.items() if key != "status"}))
    api.lists(PODS, a_pod(0))
    assert "may still train and save" in failed(command("convert", "--to", "jobset", str(file)))
    api.lists(PODS, a_pod(0, "Succeeded"))
    assert yaml.safe_load(command("convert", "--to", "jobset", str(file)).stdout)["kind"] == "JobSet"
    said = failed(command("convert", "--to", "jobset", "-n", "lab", str(file)))
    assert "is of namespace team-a: add -n team-a" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Job\n", "has no TrainingJob"),
        ("[1", "cannot be read"),
        ("kind: TrainingJob\nmetadata: {name: a}\nspec: {}\n", "has no TrainingJob that can be read"),
    ],
)
def test_a_file_without_a_job_is_named(api: Any, command: Run, tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    assert says in failed(command("convert", "--to", "jobset", str(file)))


def test_who_may_not_list_pods_gets_no_jobset(api: Any, command: Run) -> None:
    put(api, job("Failed"))
    api.errors[PODS] = Forbidden(403, "Forbidden", "pods")
    assert "you may not list pods there" in failed(command("convert", "--to", "jobset", "llama"))


def test_what_a_jobset_cannot_do_is_refused(api: Any, command: Run) -> None:
    raw = job("Failed")
    raw["spec"]["launch"] = {"processesPerNode": 8}
    put(api, raw)
    assert "cannot be a JobSet: spec.launch.processesPerNode" in failed(command("convert", "--to", "jobset", "llama"))
