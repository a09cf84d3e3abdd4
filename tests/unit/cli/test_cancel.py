"""`cancel`: what is said before a job is deleted, and that only this job is."""

import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.conftest import Api
from tests.unit.cli.test_status import JOBS, a_job
from typer.testing import Result

from muster.api.trainingjob import TrainingJob
from muster.cli import cancel, confirmation
from muster.cli.cancel import consequences
from muster.kube.errors import Conflict, Forbidden

Run = Callable[..., Result]
PATH = f"{JOBS}/llama"
SAVED = {"step": 1000, "path": "/shared/llama/step-1000", "format": "Own", "time": "2026-01-05T02:00:00Z"}


def said(owner: dict[str, Any] | None = None, **status: Any) -> str:
    raw = a_job(**status)
    if owner:
        raw["metadata"]["ownerReferences"] = [owner]
    return "\n".join(consequences(TrainingJob.model_validate(raw)))


def test_it_says_what_is_lost_and_what_stays() -> None:
    running = said(state="Running", step=1210, checkpoint=SAVED)
    assert "its ranks end within seconds, without a last save" in running
    assert "210 steps since its newest complete checkpoint, 1,000, are lost" in running
    assert "its checkpoints stay" in running
    assert "its account stays in kubectl muster report --fleet" in running
    assert "its 7 steps may be lost" in said(state="Running", step=7, checkpoint=None)
    assert "are lost" not in said(state="Running", step=1000, checkpoint=SAVED)


def test_of_a_job_that_has_ended_nothing_ends() -> None:
    end = {"result": "Succeeded", "reason": "Completed", "message": "", "attempt": 1, "time": "2026-01-05T03:00:02Z"}
    assert said(state="Succeeded", completion=end).startswith("it has ended: nothing runs any more")


def test_who_makes_it_again_is_named() -> None:
    owner = {"apiVersion": "v1", "kind": "Workflow", "name": "sweep", "uid": "w", "controller": True}
    assert "it belongs to Workflow sweep, which may make it again" in said(owner, state="Running")


def test_without_a_terminal_and_without_yes_nothing_is_deleted(command: Run, api: Api) -> None:
    api.put(PATH, a_job())
    found = command("cancel", "llama")
    assert found.exit_code == 1
    assert "add --yes. Nothing was changed" in found.stderr
    assert "to have it save before: kubectl patch -n team-a tj llama --type=merge -p '{" in found.stderr
    assert api.written == []


@pytest.mark.parametrize(("answer", "deleted"), [(True, 1), (False, 0)])
def test_on_a_terminal_it_asks(
    command: Run, api: Api, monkeypatch: pytest.MonkeyPatch, answer: bool, deleted: int
) -> None:
    api.put(PATH, a_job())
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    monkeypatch.setattr(cancel.typer, "confirm", lambda *_, **__: answer)
    assert command("cancel", "team-a/llama").exit_code == 1 - deleted
    assert len(api.written) == deleted


def test_ctrl_c_at_the_question_ends_it(command: Run, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> bool:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise cancel.typer.Abort from error
        return True

    api.put(PATH, a_job())
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    monkeypatch.setattr(cancel.typer, "confirm", interrupted)
    found = command("cancel", "llama")
    assert (found.exit_code, api.written) == (1, [])
    assert "Aborted" in found.stderr


def test_only_the_job_that_was_shown_is_deleted(command: Run, api: Api) -> None:
    api.put(PATH, a_job())
    found = command("cancel", "llama", "--yes")
    assert found.exit_code == 0, found.output
    assert api.written == [("DELETE", PATH, {"preconditions": {"uid": a_job()["metadata"]["uid"]}})]
    assert found.stdout.startswith("trainingjob team-a/llama deleted")
    assert "kubectl patch" not in found.stdout, "it is too late for that"
    api.put(PATH, a_job())
    api.refuses[PATH] = Conflict(409, "Conflict", "the UID in the precondition does not match")
    again = command("cancel", "llama", "--yes")
    assert (again.exit_code, "was deleted or replaced meanwhile" in again.stderr) == (1, True)


def test_who_may_not_write_is_told_the_role_that_may(command: Run, api: Api) -> None:
    message = (
        'trainingjobs.muster.dev "llama" is forbidden: User "bob" cannot delete resource "trainingjobs" in API group'
    )
    api.put(PATH, a_job())
    api.refuses[PATH] = Forbidden(403, "Forbidden", message, {"kind": "trainingjobs", "group": "muster.dev"})
    found = command("cancel", "llama", "--yes")
    assert (
        "ask for ClusterRole muster-edit in this namespace (the cluster's roles edit and admin have it)" in found.stderr
    )


def test_a_job_that_is_not_there_is_said(command: Run, api: Api) -> None:
    api.lists(JOBS, a_job())
    api.lists("/apis/muster.dev/v1alpha1/trainingjobs", a_job())
    found = command("cancel", "lama", "--yes")
    assert found.exit_code == 1
