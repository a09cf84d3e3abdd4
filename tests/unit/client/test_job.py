"""One job: what a wait ends with, its logs and account, and what suspends and cancels it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.test_status import GANG, JOBS, PODS, a_gang, a_job, a_pod, fresh, no_such
from tests.unit.client.conftest import WatchedApi

from muster.cli import follow
from muster.cli.printed import MAX_WORKERS
from muster.client import (
    InvalidJobError,
    Job,
    JobFailedError,
    JobGoneError,
    JobHaltedError,
    JobProgress,
    JobStalledError,
    MusterError,
    NoLogError,
    NotPermittedError,
    WaitTimeoutError,
)
from muster.client import job as job_module
from muster.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound

Stands = Callable[..., dict[str, Any]]
STALLED = {"type": "Stalled", "status": "True", "reason": "ImagePull", "lastTransitionTime": "2026-01-05T03:00:02Z"}


def test_a_wait_shows_its_progress_and_ends_with_the_state(api: WatchedApi, job: Job, stands: Stands) -> None:
    api.put(f"{JOBS}/llama", stands("Pending"))
    api.watches = [[stands("Starting"), stands("Starting"), stands("Running")]]
    seen: list[JobProgress] = []
    assert job.wait("Running", progress=seen.append).state == "Running"
    assert [now.state for now in seen] == ["Pending", "Starting", "Running"]


@pytest.mark.parametrize("until", ["Running", "Suspended", "Succeeded"])
def test_a_job_that_has_succeeded_ends_every_wait(api: WatchedApi, job: Job, stands: Stands, until: Any) -> None:
    api.watches = [[stands("Pending"), stands("Succeeded")]]
    api.put(f"{JOBS}/llama", stands("Starting"))
    assert job.wait(until).state == "Succeeded"


@pytest.mark.parametrize("until", ["Running", "Suspended", "Succeeded"])
def test_a_job_that_has_failed_ends_it_with_its_reason(api: WatchedApi, job: Job, stands: Stands, until: Any) -> None:
    api.put(f"{JOBS}/llama", stands("Failed"))
    with pytest.raises(
        JobFailedError, match="has failed: ApplicationRestartsExhausted: rank 3 exited with code 1; logs"
    ):
        job.wait(until)


def test_a_job_that_stalls_ends_it_with_the_message(api: WatchedApi, job: Job, stands: Stands) -> None:
    condition = {**STALLED, "message": "no such image"}
    api.put(f"{JOBS}/llama", stands("Stalled", reason="ImagePull", conditions=[condition]))
    with pytest.raises(JobStalledError, match=r"stalls: ImagePull: no such image; status\(\)\.actions") as stalled:
        job.wait()
    assert stalled.value.reason == "ImagePull"
    assert isinstance(stalled.value, JobHaltedError)
    assert not isinstance(stalled.value, JobFailedError)


def test_a_status_from_before_the_newest_change_ends_nothing(api: WatchedApi, job: Job, stands: Stands) -> None:
    old = stands("Stalled")
    old["metadata"]["generation"] = 2
    api.put(f"{JOBS}/llama", old)
    api.watches = [[stands("Running")]]
    assert job.wait("Running").state == "Running"


def test_a_wait_that_takes_too_long_says_for_what(api: WatchedApi, job: Job, stands: Stands) -> None:
    api.put(f"{JOBS}/llama", stands("Pending", reason="WaitingForNodes", step=None, checkpoint=None))
    with pytest.raises(TimeoutError) as late:
        job.wait("Running", timeout=0.05)
    assert isinstance(late.value, WaitTimeoutError)
    assert str(late.value) == "job team-a/llama is not Running after 0.05 s; it is Pending (WaitingForNodes)"


def test_a_wait_without_time_asks_once(api: WatchedApi, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = api.get

    async def get(path: str, query: Any = None, **more: Any) -> bytes:
        await asyncio.sleep(0.02)
        return await answer(path, query, **more)

    monkeypatch.setattr(api, "get", get)
    assert job.wait("Running", timeout=0).state == "Running"
    with pytest.raises(WaitTimeoutError, match="is not Suspended after 0 s; it is Running"):
        job.wait("Suspended", timeout=0)


def test_an_ejected_job_is_waited_for_no_longer(api: WatchedApi, job: Job, stands: Stands) -> None:
    api.put(f"{JOBS}/llama", stands("Running", conditions=[{**STALLED, "type": "Ejected"}]))
    with pytest.raises(JobGoneError, match="was ejected"):
        job.wait()


def test_no_other_state_can_be_waited_for(job: Job) -> None:
    with pytest.raises(ValueError, match="until: 'Failed' cannot be waited for: write one of Running, Suspended, Succ"):
        job.wait("Failed")  # type: ignore[arg-type]


def test_status_and_account_are_those_of_the_commands(api: WatchedApi, job: Job) -> None:
    api.put(f"{JOBS}/llama", fresh(a_job()))
    assert (job.status().state, job.status().step) == ("Running", 1200)
    assert {bucket.bucket: bucket.seconds for bucket in job.report().buckets} == {"compute": 3400, "queued": 199}
    api.put(f"{JOBS}/llama", a_job(goodput=None))
    with pytest.raises(MusterError, match="has no figures yet: it is new"):
        job.report()


@pytest.fixture
def logs(api: WatchedApi, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The logs that pods have."""
    texts = {"llama-x-0-1": "zero\n", "llama-x-1-1": "one\ntwo\n"}
    plain = api.get

    async def get(path: str, query: Any = None, **more: Any) -> bytes:
        pod = path.removeprefix(f"{PODS}/").removesuffix("/log")
        return texts[pod].encode() if pod in texts and path not in api.errors else await plain(path, query, **more)

    monkeypatch.setattr(api, "get", get)
    return texts


@pytest.mark.usefixtures("logs")
def test_logs_are_lines_with_their_worker(job: Job) -> None:
    assert list(job.logs()) == ["worker 0 | zero", "worker 1 | one", "worker 1 | two"]
    assert list(job.logs(rank=1, tail=1)) == ["two"]
    with pytest.raises(MusterError, match="team-a/llama: there is no rank 7: its ranks are 0 to 1"):
        job.logs(rank=7)


@pytest.mark.usefixtures("logs")
def test_where_no_log_may_be_read_it_says_what_to_ask_for(api: WatchedApi, job: Job) -> None:
    for index in (0, 1):
        api.errors[f"{PODS}/llama-x-{index}-1/log"] = Forbidden(403, "Forbidden", "no")
    with pytest.raises(NoLogError, match="worker 1: its log may not be read: ask for the cluster's role view"):
        job.logs()
    api.errors[PODS] = Forbidden(403, "Forbidden", "no")
    with pytest.raises(NoLogError, match="its pods may not be read: ask for the cluster's role view"):
        job.logs()
    with pytest.raises(MusterError, match="its pods may not be read: ask for the cluster's role view"):
        list(job.logs(follow=True))


@pytest.mark.usefixtures("logs")
def test_a_part_of_the_logs_comes_with_a_warning(api: WatchedApi, job: Job) -> None:
    api.errors[f"{PODS}/llama-x-1-1/log"] = Forbidden(403, "Forbidden", "no")
    with pytest.warns(UserWarning, match="^logs of job team-a/llama: worker 1: its log may not be read") as warned:
        assert list(job.logs()) == ["worker 0 | zero"]
    assert warned[0].filename == __file__


def test_a_worker_that_has_printed_nothing_is_no_warning(
    job: Job, logs: dict[str, str], recwarn: pytest.WarningsRecorder
) -> None:
    logs["llama-x-1-1"] = ""
    assert list(job.logs()) == ["worker 0 | zero"]
    assert not recwarn.list
    with pytest.raises(NoLogError, match="worker 1: it has printed nothing yet"):
        job.logs(rank=1)


def test_of_a_large_job_16_workers_are_read_and_it_says_so(
    api: WatchedApi, job: Job, logs: dict[str, str], stands: Stands
) -> None:
    large = stands("Running", nodes=[f"gpu-{index}" for index in range(20)])
    large["spec"]["nodes"] = 20
    api.put(f"{JOBS}/llama", large)
    api.put(GANG, a_gang(members=[{"node": f"gpu-{index}"} for index in range(20)]))
    api.lists(PODS, *(a_pod(index) for index in range(20)))
    logs |= {f"llama-x-{index}-1": "line\n" for index in range(20)}
    says = "4 more workers: choose one with rank=N, or the one that failed with failed=True$"
    with pytest.warns(UserWarning, match=says):
        assert len(list(job.logs())) == 16
    assert "at most 16 workers" in str(Job.logs.__doc__)
    assert MAX_WORKERS == 16


@pytest.fixture
def followed(api: WatchedApi, stands: Stands, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines of the log of each pod, which the job has printed when it ends; to be filled."""
    printed: list[bytes] = []

    async def lines(path: str, query: Any) -> Any:
        for line in list(printed):
            printed.remove(line)
            yield b"2026-01-05T03:00:01Z " + line
        api.put(f"{JOBS}/llama", stands("Succeeded"))

    monkeypatch.setattr(api, "follow", lines, raising=False)
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(follow, "LAST_LINES_SECONDS", 0.05)
    api.lists(PODS, a_pod(0))
    return printed


def test_followed_logs_are_what_ranks_print_until_the_end(job: Job, followed: list[bytes]) -> None:
    followed += [b"note: mine", b"==> mine <=="]
    assert list(job.logs(rank=0, follow=True)) == ["note: mine", "==> mine <=="]


def test_a_note_on_followed_logs_is_a_warning(api: WatchedApi, job: Job, followed: list[bytes]) -> None:
    api.put(GANG, a_gang(members=[{"node": f"gpu-{index}"} for index in range(20)]))
    followed.append(b"line")
    with pytest.warns(UserWarning, match=r"^logs of job .*: 4 more workers: choose one with rank=N$") as warned:
        assert list(job.logs(follow=True)) == ["worker 0 | line"]
    assert warned[0].filename == __file__


def test_a_reader_that_is_behind_holds_the_follower_up_and_misses_nothing(
    job: Job, followed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "LINES_AHEAD", 3)
    expected = [str(number) for number in range(20)]
    followed += [text.encode() for text in expected]
    lines = job.logs(rank=0, follow=True)
    found = [next(lines)]
    time.sleep(0.2)  # longer than the follower waits for last lines
    assert len(followed) >= 20 - 6
    assert found + list(lines) == expected


def test_a_reader_that_leaves_ends_the_follower(
    job: Job, followed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "LINES_AHEAD", 1)
    followed += [b"line"] * 9
    for _ in job.logs(rank=0, follow=True):
        break
    assert followed


@pytest.mark.usefixtures("logs", "followed")
@pytest.mark.parametrize(
    "read",
    [Job.status, Job.report, Job.logs, lambda job: list(job.logs(follow=True)), lambda job: job.logs(rank=7)],
    ids=["status", "report", "logs", "followed logs", "an error"],
)
def test_another_job_of_the_name_is_not_read(api: WatchedApi, job: Job, read: Callable[[Job], object]) -> None:
    api.put(f"{JOBS}/llama", fresh(a_job()))
    api.bodies[f"{JOBS}/llama"]["metadata"] |= {"uid": "another"}
    with pytest.raises(JobGoneError, match="job team-a/llama was deleted; its checkpoints stay"):
        read(job)
    api.errors[f"{JOBS}/llama"] = no_such("llama")
    api.lists("/apis/muster.dev/v1alpha1/trainingjobs")
    with pytest.raises(JobGoneError):
        read(job)


def test_what_contradicts_is_refused(job: Job) -> None:
    with pytest.raises(ValueError, match=r"^failed: "):
        job.logs(failed=True, rank=1)
    with pytest.raises(ValueError, match=r"^follow: "):
        job.logs(failed=True, follow=True)


@pytest.mark.usefixtures("operator")
def test_a_save_is_waited_for_and_has_its_step(api: WatchedApi, job: Job) -> None:
    saved = job.save()
    assert saved.step == 1234
    ((_, path, body),) = api.written
    spec = {"checkpoint": {"saveRequest": saved.request}}
    assert (path, body) == (f"{JOBS}/llama", {"metadata": {"uid": "u"}, "spec": spec})
    assert job.save(wait=False).step is None


@pytest.mark.usefixtures("operator")
def test_a_move_is_waited_for_and_can_be_undone(job: Job) -> None:
    moved = job.move(["gpu-1"])
    assert (moved.clear, moved.workers_on, moved.avoid_nodes) == (True, ["gpu-0", "gpu-2"], ["gpu-1"])
    undone = job.move(["gpu-1"], undo=True)
    assert (undone.undone, undone.avoid_nodes) == (True, [])


@pytest.mark.usefixtures("operator")
def test_what_does_not_come_in_time_is_said_as_python_has_it(api: WatchedApi, job: Job) -> None:
    assert not job.move(["gpu-0"], timeout=0).clear
    api.put(GANG, a_gang())
    with pytest.raises(WaitTimeoutError, match=r"has not left gpu-0 after 2 s: .* run the command with undo=True"):
        job.move(["gpu-0"], timeout=2)


@pytest.mark.usefixtures("operator")
def test_what_makes_no_sense_is_not_asked(api: WatchedApi, job: Job) -> None:
    with pytest.raises(MusterError, match="has no worker on gpu-9: its workers are on gpu-0, gpu-1"):
        job.move(["gpu-9"])
    for nodes in ("gpu-1", []):
        with pytest.raises(ValueError, match=r"^nodes: "):
            job.move(nodes)
    api.bodies[f"{JOBS}/llama"]["metadata"] |= {"uid": "another"}
    for ask in (job.save, lambda: job.move(["gpu-1"])):
        with pytest.raises(JobGoneError, match="job team-a/llama was deleted"):
            ask()
    assert api.written == []


def test_suspending_and_cancelling_are_for_this_job_alone(api: WatchedApi, job: Job) -> None:
    job.suspend()
    job.resume()
    job.cancel()
    here = f"{JOBS}/llama"
    merge = "PATCH  {}"
    assert api.written == [
        (merge, here, {"metadata": {"uid": "u"}, "spec": {"suspend": True}}),
        (merge, here, {"metadata": {"uid": "u"}, "spec": {"suspend": False}}),
        ("DELETE", here, {"preconditions": {"uid": "u"}}),
    ]


ANOTHER_UID = {"causes": [{"field": "metadata.uid", "message": "field is immutable"}]}


@pytest.mark.parametrize(
    "answer",
    [
        Conflict(409, "Conflict", "the UID in the precondition"),
        Invalid(422, "Invalid", "field is immutable", ANOTHER_UID),
        no_such("llama"),
    ],
    ids=["a deletion of another one", "a patch of another one", "none"],
)
def test_a_job_that_was_deleted_before_is_not_changed(api: WatchedApi, job: Job, answer: ApiError) -> None:
    api.refuses[f"{JOBS}/llama"] = answer
    for change in (job.cancel, job.suspend, job.resume):
        with pytest.raises(JobGoneError, match="job team-a/llama was deleted before"):
            change()


def test_a_change_that_the_server_refuses_says_why(api: WatchedApi, job: Job) -> None:
    causes = {"causes": [{"field": "spec.suspend", "message": "the job has ended"}] * 2}
    api.refuses[f"{JOBS}/llama"] = Invalid(422, "Invalid", "is invalid", causes)
    with pytest.raises(InvalidJobError, match=r"^spec\.suspend: the job has ended$"):
        job.suspend()
    api.refuses[f"{JOBS}/llama"] = NotFound(404, "NotFound", "the server could not find the requested resource")
    with pytest.raises(MusterError, match="does not know Muster's objects"):
        job.cancel()


def test_without_the_right_to_cancel_it_names_the_role(api: WatchedApi, job: Job) -> None:
    api.refuses[f"{JOBS}/llama"] = Forbidden(403, "Forbidden", "cannot delete resource trainingjobs")
    with pytest.raises(NotPermittedError, match="ask for the cluster's role edit in this namespace"):
        job.cancel()
