"""`requeue`: the same job again, from its own newest checkpoint, and never lost on the way."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_commands import failed, path_of
from tests.unit.cli.test_fork import CREATED, a_job
from typer.testing import Result

from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJob
from muster.cli import confirmation, requeue
from muster.cli.errors import CliError
from muster.cli.requeue import Again, made_again
from muster.kube.errors import AlreadyExists, Conflict, Denied, Forbidden, Invalid, NotFound, Unreachable
from muster.world.names import gang_name

Run = Callable[..., Result]
OWN = "/ckpt/llama"
EXISTS = AlreadyExists(409, "AlreadyExists", "it exists")
TIME = "2026-01-01T00:00:00Z"
GANG = f"/apis/muster.dev/v1alpha1/namespaces/team-a/gangs/{gang_name('llama', 'u')}"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(requeue, "PAUSE_SECONDS", 0.0)


def job_with(resume_from: Any = None, saved: str | None = f"{OWN}/checkpoint-725", **metadata: Any) -> dict[str, Any]:
    checkpoint = {"directory": OWN, **({"resumeFrom": resume_from} if resume_from is not None else {})}
    raw = a_job(checkpoint=checkpoint)
    raw["spec"]["checkpoint"] = checkpoint
    raw["metadata"] |= {"ownerReferences": [], **metadata}
    kept = {"step": 725, "path": saved, "time": TIME} if saved else None
    raw["status"] = {"state": "Failed", **({"checkpoint": kept} if kept else {})}
    return raw


def again(raw: dict[str, Any], branch: dict[str, Any] | None = None, *, record_known: bool = True) -> Again:
    base = {"jobUid": "u", "attempt": 3, "time": TIME, "level": "R0", "reason": "RankFailed"}
    record = GangSpec.model_validate({**base, **({"branch": branch} if branch else {})})
    return made_again(TrainingJob.model_validate(raw), raw, record if record_known else None, record_known=record_known)


@pytest.mark.parametrize(
    ("raw", "branch", "resume_from", "start"),
    [
        pytest.param(job_with(), None, None, f"it goes on from step 725 in {OWN}", id="its own newest"),
        pytest.param(
            job_with("job/base@50"),
            {"resumeFrom": "job/base@50", "step": 50},
            None,
            f"it goes on from step 725 in {OWN}",
            id="a fork that has saved",
        ),
        pytest.param(
            job_with("job/base@50", "/ckpt/base/checkpoint-50"),
            {"resumeFrom": "job/base@50", "step": 50},
            "job/base@50",
            "it begins from job/base@50, as spec.checkpoint.resumeFrom asks",
            id="a fork that has saved nothing of its own",
        ),
        pytest.param(
            job_with(500),
            {"resumeFrom": "500", "step": 500, "excludedCheckpoints": "900:1700000000000000000"},
            f"{OWN}/checkpoint-725",
            f"it goes on from step 725 in {OWN}",
            id="later checkpoints are of another branch",
        ),
        pytest.param(job_with(saved=None), None, None, "it begins without a checkpoint from Muster", id="nothing yet"),
    ],
)
def test_it_goes_on_from_its_own_checkpoints(
    raw: dict[str, Any], branch: dict[str, Any] | None, resume_from: str | None, start: str
) -> None:
    found = again(raw, branch)
    assert found.start == start
    assert found.manifest["spec"]["checkpoint"].get("resumeFrom") == resume_from


def test_without_the_record_nothing_counts_that_may_be_excluded() -> None:
    assert again(job_with(500), record_known=False).manifest["spec"]["checkpoint"]["resumeFrom"].endswith("-725")
    assert "resumeFrom" not in again(job_with(), record_known=False).manifest["spec"]["checkpoint"]


def test_it_is_the_same_job_otherwise() -> None:
    raw = job_with(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "paper": "yes"})
    asked = {**raw["spec"], "checkpoint": {**raw["spec"]["checkpoint"], "saveRequest": "before"}}
    found = again({**raw, "spec": asked})
    spec = {name: value for name, value in raw["spec"].items() if name != "suspend"}
    assert found.manifest == {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "llama", "namespace": "team-a", "labels": {"team": "a"}, "annotations": {"paper": "yes"}},
        "spec": spec,
    }
    assert found.changed == ["spec.suspend: taken out"]


def test_a_job_that_something_else_makes_is_left_to_that() -> None:
    owner = {"kind": "Workflow", "name": "nightly", "uid": "w", "controller": True}
    with pytest.raises(CliError, match="belongs to Workflow nightly"):
        again(job_with(ownerReferences=[owner]))


def put(api: Any, raw: dict[str, Any] | None = None) -> Path:
    """The job is there, and the API server would take it again; returns where its manifest will lie."""
    api.put(path_of("llama"), raw or job_with())
    api.refuses[CREATED] = EXISTS
    api.after_deletion = lambda _: api.refuses.pop(CREATED, None)
    return Path("llama.requeue.yaml")


def writes(api: Any) -> list[tuple[str, str]]:
    return [(verb, path) for verb, path, _ in api.written]


def test_it_is_deleted_with_its_pods_and_created(api: Any, command: Run) -> None:
    file = put(api)
    result = command("requeue", "llama", "--yes")
    assert result.exit_code == 0, result.output
    assert writes(api) == [("DELETE", path_of("llama")), ("POST", CREATED)]
    (_, _, options), (_, _, created) = api.written
    assert options == {"preconditions": {"uid": "u"}, "propagationPolicy": "Foreground"}
    assert created["metadata"]["name"] == "llama"
    assert f"trainingjob team-a/llama created again: it goes on from step 725 in {OWN}" in result.stdout
    assert f"the manifest is in {file} until the job exists again" in result.stderr
    assert not file.exists()


def test_the_manifest_is_kept_before_anything_is_deleted(api: Any, command: Run) -> None:
    file = put(api)
    modes: list[int] = []
    kept: list[Any] = []

    def look(_: str) -> None:
        modes.append(stat.S_IMODE(file.stat().st_mode))
        kept.append(yaml.safe_load(file.read_text(encoding="utf-8")))
        del api.refuses[CREATED]

    api.after_deletion = look
    assert command("requeue", "llama", "--yes").exit_code == 0
    assert modes == [0o600], "variables may hold secrets"
    assert kept == [api.written[-1][2]]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            Denied(403, "Forbidden", "a quota"),
            "was deleted and could not be created again: a quota. Its manifest is in",
        ),
        (Unreachable(0, "", "no answer"), "was deleted and could not be created again"),
        (EXISTS, "something else, e.g. GitOps, has created it meanwhile"),
    ],
)
def test_a_job_that_cannot_be_created_again_is_in_the_file(error: Exception, says: str, api: Any, command: Run) -> None:
    file = put(api)
    api.after_deletion = lambda _: api.refuses.update({CREATED: error})
    result = command("requeue", "llama", "--yes")
    assert result.exit_code == 1
    assert says in result.stderr
    assert str(file) in result.stderr.splitlines()[-1]
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["metadata"]["name"] == "llama"


def test_pods_that_do_not_end_leave_the_manifest(api: Any, command: Run) -> None:
    file = put(api)
    api.after_deletion = lambda path: api.put(path, job_with(deletionTimestamp=TIME))
    result = command("requeue", "llama", "--yes")
    assert "is not gone after 300 s, as its pods do not end" in result.stderr
    assert file.exists()
    assert writes(api) == [("DELETE", path_of("llama"))]


@pytest.mark.parametrize("error", [Conflict(409, "Conflict", "uid"), NotFound(404, "NotFound", "gone", {})])
def test_another_job_of_the_name_is_not_deleted(error: Exception, api: Any, command: Run) -> None:
    put(api)
    api.refuses[path_of("llama")] = error
    assert "was deleted by another user just now" in command("requeue", "llama", "--yes").stderr
    assert api.written == []


def test_a_deletion_that_is_forbidden_leaves_everything(api: Any, command: Run) -> None:
    file = put(api)
    api.refuses[path_of("llama")] = Forbidden(403, "Forbidden", "you may not delete")
    assert command("requeue", "llama", "--yes").exit_code == 1
    assert not file.exists()


def test_what_the_api_server_would_not_take_again_is_not_deleted(api: Any, command: Run) -> None:
    file = put(api)
    api.refuses[CREATED] = Invalid(422, "Invalid", "spec.nodes: too many")
    said = failed(command("requeue", "llama", "--yes"))
    assert said == "the API server does not take job llama again: spec.nodes: too many. Nothing was changed"
    assert api.written == []
    assert not file.exists()


def test_a_file_that_is_there_is_not_written_over(api: Any, command: Run) -> None:
    put(api).write_text("mine", encoding="utf-8")
    assert "perhaps of a command that did not end" in failed(command("requeue", "llama", "--yes"))
    assert "No such file or directory" in failed(command("requeue", "llama", "--yes", "--save", "no/such.yaml"))
    assert api.written == []
    assert command("requeue", "llama", "--yes", "--save", "other.yaml").exit_code == 0
    assert [each.name for each in Path().iterdir()] == ["llama.requeue.yaml"]


def test_nothing_is_deleted_without_a_yes(api: Any, command: Run) -> None:
    raw = job_with()
    raw["status"]["state"] = "Running"
    put(api, raw)
    result = command("requeue", "llama")
    assert result.exit_code == 1
    assert "add --yes" in result.stderr
    assert "without a last save" in result.stderr
    assert api.written == []


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_is_asked(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    put(api)
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    monkeypatch.setattr(requeue.typer, "confirm", lambda *_, **__: answer)
    result = command("requeue", "llama")
    assert (result.exit_code, len(api.written)) == ((0, 2) if answer else (1, 0))
    assert "without a last save" not in result.stderr


def test_a_dry_run_prints_what_kubectl_can_create(api: Any, command: Run) -> None:
    put(api)
    result = command("requeue", "llama", "--dry-run")
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "llama"
    assert "it goes on from step 725" in result.stderr
    assert api.written == []
    assert not list(Path().iterdir())


def test_programs_get_the_manifest(api: Any, command: Run) -> None:
    put(api)
    found = json.loads(command("requeue", "llama", "--dry-run", "-o", "json").stdout)
    assert (found["kind"], found["name"], found["created"]) == ("Requeue", "llama", False)
    assert found["manifest"]["kind"] == "TrainingJob"


def test_a_job_that_is_being_deleted_is_left(api: Any, command: Run) -> None:
    put(api, job_with(deletionTimestamp=TIME))
    assert "is being deleted" in failed(command("requeue", "llama", "--yes"))


def test_a_record_that_may_not_be_read_is_no_hindrance(api: Any, command: Run) -> None:
    put(api, job_with("job/base@50"))
    api.errors[GANG] = Forbidden(403, "Forbidden", "gangs")
    assert command("requeue", "llama", "--yes").exit_code == 0
    assert api.written[-1][2]["spec"]["checkpoint"]["resumeFrom"] == f"{OWN}/checkpoint-725"
