"""How a job stands, from a watch that may be cut, and as one line."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.test_status import JOBS, no_such
from tests.unit.client.conftest import WatchedApi

from muster.api.trainingjob import TrainingJob
from muster.cli import progress
from muster.cli.progress import JobProgress, progress_of
from muster.client import Job, JobGoneError, NotAuthenticatedError, NotConnectedError
from muster.kube.errors import Gone, ServerError, Unauthorized, Unreachable

Stands = Callable[..., dict[str, Any]]


def test_each_change_is_seen_once_until_the_end(api: WatchedApi, job: Job, stands: Stands) -> None:
    api.put(f"{JOBS}/llama", stands("Starting"))
    api.watches = [
        [stands("Running", step=1), ("BOOKMARK", stands("Running")), stands("Running", step=1), stands("Succeeded")]
    ]
    assert [(now.state, now.step) for now in job.watch()] == [("Starting", 1200), ("Running", 1), ("Succeeded", 1200)]
    ((path, query),) = api.queries
    assert (path, query["fieldSelector"], query["resourceVersion"]) == (JOBS, "metadata.name=llama", "7")


@pytest.mark.parametrize(
    "cut",
    [
        Unreachable(0, "Unreachable", "no answer"),
        ServerError(500, "", "etcd"),
        Gone(410, "Expired", "too old"),
        ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}),
    ],
    ids=["connection", "server", "version", "event"],
)
def test_where_a_watch_is_cut_the_job_is_read_again(api: WatchedApi, job: Job, stands: Stands, cut: Any) -> None:
    changed = stands("Recovering")
    api.watches = [[stands("Running", step=2), lambda: api.put(f"{JOBS}/llama", changed), cut], [stands("Succeeded")]]
    assert [now.state for now in job.watch()] == ["Running", "Running", "Recovering", "Succeeded"]
    assert len(api.queries) == 2


def test_an_api_server_that_stays_away_ends_it(
    api: WatchedApi, job: Job, stands: Stands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "UNANSWERED_SECONDS", 0.05)
    seen = job.watch()
    assert next(seen).state == "Running"
    api.errors[f"{JOBS}/llama"] = Unreachable(0, "Unreachable", "no answer")
    with pytest.raises(NotConnectedError, match=r"^no answer from the API server of context prod"):
        next(seen)


def test_one_failure_after_a_quiet_watch_is_passed_over(
    api: WatchedApi, job: Job, stands: Stands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "UNANSWERED_SECONDS", 0.05)
    failures: list[Exception] = []
    answer = api.get

    async def get(path: str, query: Any = None, **more: Any) -> bytes:
        if failures:
            raise failures.pop()
        return await answer(path, query, **more)

    monkeypatch.setattr(api, "get", get)
    no_answer = Unreachable(0, "Unreachable", "no answer")
    api.watches = [[lambda: time.sleep(0.1), lambda: failures.append(no_answer)], [stands("Succeeded")]]
    assert [now.state for now in job.watch()] == ["Running", "Succeeded"]
    assert failures == []


def test_a_token_that_expires_ends_it(api: WatchedApi, job: Job) -> None:
    seen = job.watch()
    next(seen)
    api.errors[f"{JOBS}/llama"] = Unauthorized(401, "Unauthorized", "expired")
    with pytest.raises(NotAuthenticatedError, match="does not accept your credentials: log in again"):
        next(seen)


def test_a_job_that_is_deleted_is_gone(api: WatchedApi, job: Job, stands: Stands) -> None:
    api.watches = [[("DELETED", stands("Running"))]]
    with pytest.raises(JobGoneError, match="job team-a/llama was deleted; its checkpoints stay: submit it again"):
        list(job.watch())
    other = stands("Pending")
    other["metadata"]["uid"] = "another"
    api.put(f"{JOBS}/llama", other)
    with pytest.raises(JobGoneError):
        list(job.watch())
    api.errors[f"{JOBS}/llama"] = no_such("llama")
    api.lists("/apis/muster.dev/v1alpha1/trainingjobs")
    with pytest.raises(JobGoneError):
        list(job.watch())


@pytest.mark.parametrize(
    ("stood", "text"),
    [
        (JobProgress(""), "New: no operator has looked at the job yet"),
        (
            JobProgress("Pending", "TopologyUnsatisfied", "needs 8 free nodes", position=2),
            "Pending (TopologyUnsatisfied), place 2 in the queue: needs 8 free nodes",
        ),
        (
            JobProgress("Running", "Training", "trains on 2 nodes", 48210, 48000, warnings=("DirectoryInUse",)),
            "Running (Training), step 48,210, checkpoint 48,000, see DirectoryInUse in status()",
        ),
        (JobProgress("Suspended", "Suspended"), "Suspended"),
    ],
)
def test_it_is_one_line(stood: JobProgress, text: str) -> None:
    assert str(stood) == text


def test_it_has_the_message_of_its_state(stands: Stands) -> None:
    condition = {
        "type": "Placed",
        "status": "False",
        "reason": "WaitingForNodes",
        "message": "needs 2 free\n\x1b[31mnodes",
        "lastTransitionTime": "2026-01-05T03:00:02Z",
    }
    pending = stands("Pending", reason="WaitingForNodes", conditions=[condition], step=None)
    assert str(progress_of(TrainingJob.model_validate(pending))).endswith(
        "(WaitingForNodes), checkpoint 1,000: needs 2 free nodes"
    )
