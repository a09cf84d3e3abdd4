"""`eject`: the gang trains on, whatever becomes of the command on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_commands import failed, path_of
from tests.unit.cli.test_fork import a_job
from typer.testing import Result

from muster.cli import confirmation, eject, requeue
from muster.kube.errors import Conflict, Forbidden, Invalid, NotFound
from muster.world.names import gang_name, pod_name

Run = Callable[..., Result]
TIME = "2026-01-01T00:00:00Z"
PODS = "/api/v1/namespaces/team-a/pods"
FILE = Path("llama.eject.yaml")
LEAVES = ("PATCH  {'fieldValidation': 'Strict'}", path_of("llama"))
GOES = ("DELETE", path_of("llama"))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(eject, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(requeue, "PAUSE_SECONDS", 0.0)


def job(state: str = "Running", ejected: str = "", asked: bool = False, **metadata: Any) -> dict[str, Any]:
    raw = a_job(nodes=2, eject=asked)
    raw["spec"].pop("suspend", None)
    raw["metadata"] |= {"ownerReferences": [], "generation": 2, **metadata}
    conditions = [{"type": "Running", "status": "True", "reason": "Training", "message": "all is well"}]
    if ejected:
        reason = "Ejected" if ejected == "True" else "Ejecting"
        conditions.append({"type": "Ejected", "status": ejected, "reason": reason, "message": "worker 1 is silent"})
    raw["status"] = {
        "state": state,
        "reason": "Training",
        "observedGeneration": 2,
        "conditions": [{**each, "lastTransitionTime": TIME} for each in conditions],
    }
    return raw


def a_pod(index: int, phase: str = "Running", owner: str = "") -> dict[str, Any]:
    owners = [{"kind": "TrainingJob" if owner == "u" else "ReplicaSet", "name": "o", "uid": owner, "controller": True}]
    labels = {"muster.dev/job": "llama", "muster.dev/job-uid": "u", "muster.dev/index": str(index)}
    metadata = {
        "name": pod_name("llama", "u", index, 1),
        "namespace": "team-a",
        "uid": f"p{index}",
        "resourceVersion": "9",
    }
    return {
        "metadata": {**metadata, "labels": labels, "ownerReferences": owners if owner else []},
        "spec": {"nodeName": f"n{index}", "containers": [{"name": "main"}]},
        "status": {"phase": phase},
    }


def put(api: Any, raw: dict[str, Any] | None = None, *pods: dict[str, Any]) -> None:
    api.put(path_of("llama"), raw or job(ejected="True"))
    api.lists(PODS, *(pods or (a_pod(0), a_pod(1))))


def writes(api: Any) -> list[tuple[str, str]]:
    return [(verb, path) for verb, path, _ in api.written]


def test_it_asks_waits_deletes_and_says_what_remains(api: Any, command: Run) -> None:
    put(api)
    result = command("eject", "llama", "--yes")
    assert result.exit_code == 0, result.output
    assert writes(api) == [LEAVES, GOES]
    (_, _, asked), (_, _, options) = api.written
    assert asked == {"metadata": {"uid": "u"}, "spec": {"eject": True}}
    assert options == {"preconditions": {"uid": "u"}, "propagationPolicy": "Orphan"}
    kept = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    assert (kept["kind"], kept["spec"].get("eject")) == ("TrainingJob", None), "it is to be created again"
    text = " ".join(result.stdout.split())
    assert "team-a/llama is ejected: 2 pods may train on" in text
    for part in (
        pod_name("llama", "u", 0, 1),
        f"the fence file /ckpt/llama/.muster-{gang_name('llama', 'u')} stays",
        "kubectl -n team-a delete pods,services,configmaps,poddisruptionbudgets -l muster.dev/job-uid=u",
        f"its Gang {gang_name('llama', 'u')} stays",
        f"its manifest is in {FILE}",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"state": "Pending"}, "is Pending (Training): only ranks that train can go on"),
        ({"state": "Starting"}, "is Starting"),
        ({"state": "Recovering"}, "Try again once it is Running"),
        ({"state": "Saving"}, "is Saving"),
        ({"state": "Stalled"}, "is Stalled"),
        ({"state": ""}, "is new"),
        ({"state": "Succeeded"}, "has ended (Succeeded): none of its ranks trains"),
        ({"state": "Failed"}, "has ended (Failed)"),
        ({"deletionTimestamp": TIME}, "is being deleted, and its pods with it"),
        (
            {"ownerReferences": [{"kind": "Workflow", "name": "w", "uid": "w", "controller": True}]},
            "belongs to Workflow w",
        ),
    ],
)
def test_what_has_no_rank_to_train_on_is_left(api: Any, command: Run, changes: dict[str, Any], says: str) -> None:
    put(api, job(**changes))
    assert says in failed(command("eject", "llama", "--yes"))
    assert api.written == []
    assert not FILE.exists()


def test_a_job_that_is_to_be_suspended_is_left(api: Any, command: Run) -> None:
    raw = job()
    raw["spec"]["suspend"] = True
    put(api, raw)
    assert "is suspended, or about to be" in failed(command("eject", "llama", "--yes"))


def test_nothing_is_done_without_a_yes_and_promises_are_named(api: Any, command: Run) -> None:
    put(api)
    result = command("eject", "llama")
    assert result.exit_code == 1
    for promise in eject.PROMISES_THAT_END:
        assert promise in result.stderr
    assert "add --yes" in result.stderr
    assert api.written == []


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_is_asked(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    put(api)
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    monkeypatch.setattr(eject.typer, "confirm", lambda *_, **__: answer)
    assert command("eject", "llama").exit_code == (0 if answer else 1)
    assert writes(api) == ([LEAVES, GOES] if answer else [])


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (job(generation=3), "the operator has not seen the request. The job goes on as it was. Run the command again"),
        (job("Recovering", asked=True), "Recovering (Training): all is well. Run the command again"),
        (job(ejected="False", asked=True), "worker 1 is silent. Run the command again to go on, or end the job"),
    ],
)
def test_what_is_not_ejected_in_time_is_not_deleted(api: Any, command: Run, raw: dict[str, Any], says: str) -> None:
    put(api, raw)
    line = command("eject", "llama", "--yes", "--timeout", "2").stderr.splitlines()[-1]
    assert says in line
    assert writes(api) == [LEAVES]
    assert FILE.exists()


def test_a_second_run_finishes_what_the_first_began(api: Any, command: Run) -> None:
    put(api, job(ejected="False", asked=True))
    assert command("eject", "llama", "--yes", "--timeout", "1").exit_code == 1
    api.put(path_of("llama"), job(ejected="True", asked=True))
    assert command("eject", "llama", "--yes").exit_code == 0
    assert writes(api)[-1] == GOES


def test_a_file_of_another_job_is_not_taken_for_the_manifest(api: Any, command: Run) -> None:
    other = "kind: TrainingJob\nmetadata: {name: llama, namespace: team-b}\n"
    FILE.write_text(other, encoding="utf-8")
    put(api, job(ejected="True", asked=True))
    assert f"there is a file {FILE}" in failed(command("eject", "llama", "--yes"))
    assert api.written == []
    assert FILE.read_text(encoding="utf-8") == other


def test_a_first_run_that_died_after_the_deletion_leaves_only_the_listing(api: Any, command: Run) -> None:
    api.lists(PODS, a_pod(0), a_pod(1, "Failed"), a_pod(2, owner="u"))
    api.errors[path_of("llama")] = NotFound(404, "NotFound", "no", {"name": "llama"})
    api.lists("/apis/muster.dev/v1alpha1/trainingjobs")
    result = command("eject", "llama", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["training"], found["ended"]) == ([pod_name("llama", "u", 0, 1)], [pod_name("llama", "u", 1, 1)])
    assert any(note.startswith(f"failed: {pod_name('llama', 'u', 1, 1)}") for note in found["notes"])
    assert api.written == []


def test_a_pod_that_something_else_has_adopted_is_listed(api: Any, command: Run) -> None:
    put(api, None, a_pod(0), a_pod(1, owner="r"))
    result = command("eject", "llama", "--yes", "-o", "json")
    assert json.loads(result.stdout)["training"] == [pod_name("llama", "u", index, 1) for index in (0, 1)]


def test_while_the_collector_lets_go_of_the_pods_it_waits(api: Any, command: Run) -> None:
    put(api, job(ejected="True", asked=True, deletionTimestamp=TIME))
    said = failed(command("eject", "llama", "--timeout", "2"))
    assert "is ejected and deleted, and not gone after 2 s" in said
    assert "Its ranks train on. Run the command again" in said
    assert api.written == []


def test_a_gang_that_lost_pods_on_the_way_says_so(api: Any, command: Run) -> None:
    put(api, None, a_pod(0))
    text = " ".join(command("eject", "llama", "--yes").stdout.split())
    assert "1 of its 2 pods are gone: the others may wait for them" in text


def test_a_job_that_cannot_be_read_is_no_ejected_one(api: Any, command: Run) -> None:
    raw = job()
    raw["spec"]["nodes"] = "two"
    put(api, raw)
    assert "does not fit its definition" in failed(command("eject", "llama", "--yes"))
    assert api.written == []


def test_a_job_that_there_never_was_is_no_ejected_one(api: Any, command: Run) -> None:
    api.lists(PODS)
    api.errors[path_of("llama")] = NotFound(404, "NotFound", "no", {"name": "llama"})
    api.lists("/apis/muster.dev/v1alpha1/trainingjobs")
    assert "there is no TrainingJob llama" in failed(command("eject", "llama", "--yes"))


@pytest.mark.parametrize(
    ("path", "error", "says"),
    [
        (path_of("llama"), Conflict(409, "Conflict", "uid"), "was deleted or replaced just now"),
        (path_of("llama"), Invalid(422, "Invalid", 'unknown field "spec.eject"'), "unknown field"),
    ],
)
def test_a_request_that_is_refused_changes_nothing(api: Any, command: Run, path: str, error: Any, says: str) -> None:
    put(api)
    api.refuses[path] = error
    assert says in command("eject", "llama", "--yes").stderr
    assert api.written == []


def test_who_may_not_list_pods_does_not_know_what_remains(api: Any, command: Run) -> None:
    put(api)
    api.errors[PODS] = Forbidden(403, "Forbidden", "pods")
    assert "you may not list pods" in command("eject", "llama", "--yes").stderr
