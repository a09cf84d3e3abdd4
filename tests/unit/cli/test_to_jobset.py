"""`convert --to jobset`: nothing is printed while a rank may train that saves to the same directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_commands import failed, path_of
from tests.unit.cli.test_eject import PODS, TIME, a_pod, job
from typer.testing import Result

from muster.api.trainingjob import parsed
from muster.checkpoints.location import saves_to
from muster.kube.errors import Forbidden
from muster.world.names import gang_name, pod_name

Run = Callable[..., Result]
POLICY = "/apis/muster.dev/v1alpha1/fleetpolicies/default"
GANG = f"/apis/muster.dev/v1alpha1/namespaces/team-a/gangs/{gang_name('llama', 'u')}"
NODES = "/api/v1/nodes"


def put(api: Any, raw: dict[str, Any], *pods: dict[str, Any]) -> None:
    api.put(path_of("llama"), raw)
    api.lists(PODS, *pods)


def test_a_job_that_has_ended_is_printed(api: Any, command: Run) -> None:
    put(api, job("Failed"), a_pod(0, "Failed", owner="u"))
    api.put(POLICY, {"metadata": {"name": "default"}, "spec": {"acceleratorResource": "example.org/gpu"}})
    found = command("convert", "--to", "jobset", "llama")
    assert found.exit_code == 0, found.output
    made = yaml.safe_load(found.stdout)
    assert (made["kind"], made["metadata"]) == ("JobSet", {"name": "llama", "namespace": "team-a"})
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"example.org/gpu": "8"}
    assert found.stderr.startswith("TrainingJob llama: JobSet llama\n")
    assert api.written == []


def suspended(generation: int = 2) -> dict[str, Any]:
    raw = job("Suspended", generation=generation)
    raw["spec"]["suspend"] = True
    return raw


def put_record(api: Any, **worker: Any) -> None:
    """The Gang of a suspended job, with one former worker."""
    left = {"pod": "llama-0", "podUid": "p0", "node": "n0", "proof": "Death", "fencedTime": TIME, **worker}
    spec = {
        "jobUid": "u",
        "attempt": 2,
        "time": TIME,
        "level": "Start",
        "reason": "Suspended",
        "unfencedWorkers": [left],
    }
    metadata = {"name": gang_name("llama", "u"), "namespace": "team-a", "resourceVersion": "1", "uid": "g"}
    api.put(GANG, {"metadata": metadata, "spec": spec})


def a_node(ready: str) -> dict[str, Any]:
    metadata = {"name": "n0", "uid": "n", "resourceVersion": "1"}
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize("owner", ["u", ""], ids=["its own", "ejected"])
@pytest.mark.parametrize("phase", ["Running", "Pending", "Unknown"])
def test_a_pod_that_may_live_is_named_and_nothing_is_printed(api: Any, command: Run, phase: str, owner: str) -> None:
    put(api, job("Failed"), a_pod(0, "Succeeded"), a_pod(1, phase, owner))
    said = failed(command("convert", "--to", "jobset", "llama"))
    assert f"may still train and save: {pod_name('llama', 'u', 1, 1)}. Wait until they have ended" in said
    assert "kubectl -n team-a delete pods -l muster.dev/job=llama ends them" in said


@pytest.mark.parametrize(
    "raw",
    [*map(job, ("Running", "Pending", "Recovering", "Stalled")), job("Suspended"), suspended(generation=3)],
    ids=["Running", "Pending", "Recovering", "Stalled", "just resumed", "resumed and suspended again"],
)
def test_a_job_that_may_start_again_is_refused(api: Any, command: Run, raw: dict[str, Any]) -> None:
    put(api, raw)
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


@pytest.mark.parametrize("ready", [["True"], ["Unknown"], []], ids=["ready", "cut off", "gone"])
def test_ranks_without_a_pod_may_live_where_the_kubelet_is_silent(api: Any, command: Run, ready: list[str]) -> None:
    put(api, suspended())
    put_record(api)
    api.lists(NODES, *map(a_node, ready))
    result = command("convert", "--to", "jobset", "llama")
    if ready == ["True"]:
        assert yaml.safe_load(result.stdout)["kind"] == "JobSet"
    else:
        assert "may still train, on nodes that are gone or not Ready: llama-0 on n0. Wait until" in failed(result)


@pytest.mark.parametrize("until", [TIME, "9999-01-01T00:00:00Z"], ids=["over", "counts"])
def test_ranks_end_with_their_fence(api: Any, command: Run, until: str) -> None:
    put(api, suspended())
    put_record(api, proof="Fence", fencedTime=until)
    api.lists(NODES)
    result = command("convert", "--to", "jobset", "llama")
    assert (result.exit_code == 0) is (until == TIME), result.output


def test_who_may_not_list_nodes_is_told_which_to_check(api: Any, command: Run) -> None:
    put(api, suspended())
    put_record(api)
    api.errors[NODES] = Forbidden(403, "Forbidden", "nodes")
    found = command("convert", "--to", "jobset", "llama")
    assert found.exit_code == 0, found.output
    assert "its last nodes: ranks train on where one is cut off (n0)" in found.stderr


def test_a_record_that_cannot_be_read_proves_nothing(api: Any, command: Run) -> None:
    put(api, job("Failed"))
    api.errors[GANG] = Forbidden(403, "Forbidden", "gangs")
    said = failed(command("convert", "--to", "jobset", "llama"))
    assert "whether ranks of team-a/llama have ended is not known: its record may not be read" in said


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_pods_of_another_name_that_save_to_its_directory_are_named(
    api: Any, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    raw = job()
    first = parsed(raw)
    raw["metadata"] = {"name": "llama-2"}
    file = tmp_path / "llama.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in raw.items() if key != "status"}))
    pod = a_pod(0, phase)
    pod["metadata"]["annotations"] = {"muster.dev/saves-to": saves_to(first)}
    api.lists(PODS, pod)
    everything = api.get

    async def get(path: str, query: Any = None, **_: Any) -> bytes:
        """No pod has the new name."""
        named = (query or {}).get("labelSelector") == "muster.dev/job=llama-2"
        return b'{"metadata": {}, "items": []}' if named else await everything(path, query)

    monkeypatch.setattr(api, "get", get)
    result = command("convert", "--to", "jobset", str(file))
    if phase == "Succeeded":
        assert yaml.safe_load(result.stdout)["metadata"]["name"] == "llama-2"
    else:
        said = failed(result)
        assert (
            f"another job may still train and save to the directory of team-a/llama-2: {pod['metadata']['name']}"
            in said
        )


def test_pods_that_a_kubelet_made_for_its_own_files_are_no_workers(api: Any, command: Run) -> None:
    raw = job("Failed")
    pod = a_pod(0)
    pod["metadata"]["annotations"] = {
        "muster.dev/saves-to": saves_to(parsed(raw)),
        "kubernetes.io/config.mirror": "hash",
    }
    put(api, raw, pod)
    assert yaml.safe_load(command("convert", "--to", "jobset", "llama").stdout)["kind"] == "JobSet"


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
