"""`logs`: whose log answers, which of its lines, and what is said where there is none."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.test_status import GANG, JOBS, PODS, a_gang, a_job, a_pod
from typer.testing import Result

from muster.cli.printed import MAX_WORKERS, lines_of, of_attempt
from muster.kube.errors import Forbidden, Invalid, Unreachable

Run = Callable[..., Result]
LOG = (
    "muster: attempt 1: ranks 2 to 3 of 4 starting, without a checkpoint from Muster\nstep 1\n"
    "muster: attempt 1: rank 3 exited with code 1\n"
    "muster: attempt 2: ranks 2 to 3 of 4 starting, resuming from /c/1\n\x1b[31mred\x1b[0m\r10%\r20%\nstep 2\n"
)
INCIDENT = {
    "attempt": 1,
    "time": "2026-01-05T03:00:02Z",
    "level": "R0",
    "faultClass": "Application",
    "reason": "RankFailed",
    "node": "gpu-1",
    "index": 1,
    "rank": 3,
    "message": "rank 3 exited with code 1; its last lines: Traceback | \x1b[31mboom",
}


def log_path(pod: str) -> str:
    return f"{PODS}/{pod}/log"


@pytest.fixture
def logs(api: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The logs that pods have; the API server answers them as text."""
    texts: dict[str, str] = {"llama-x-0-1": "zero\n", "llama-x-1-1": LOG}
    queries: dict[str, Any] = {}
    plain = api.get

    async def get(path: str, query: Any = None, **more: Any) -> bytes:
        pod = path.removeprefix(f"{PODS}/").removesuffix("/log")
        if pod in texts and path not in api.errors:
            queries[pod] = query
            return texts[pod].encode()
        answer: bytes = await plain(path, query, **more)
        return answer

    monkeypatch.setattr(api, "get", get)
    monkeypatch.setattr(api, "queries", queries, raising=False)
    job = a_job(attempt=2)
    job["spec"]["launch"] = {"processesPerNode": 2}
    api.put(f"{JOBS}/llama", job)
    api.put(GANG, a_gang(attempt=2, incidents=[INCIDENT]))
    api.lists(PODS, a_pod(0), a_pod(1))
    return texts


def asked(command: Run, *arguments: str) -> Any:
    result = command("logs", "llama", *arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.usefixtures("logs")
def test_every_worker_is_shown_with_its_ranks(api: Any, command: Run) -> None:
    found = asked(command)
    assert [(each["worker"], each["ranks"], each["pod"]) for each in found["logs"]] == [
        (0, "0-1", "llama-x-0-1"),
        (1, "2-3", "llama-x-1-1"),
    ]
    assert found["logs"][0]["lines"] == ["zero"]
    assert api.queries["llama-x-0-1"]["container"] == "main"
    assert api.queries["llama-x-0-1"]["tailLines"] == 10
    text = command("logs", "llama").stdout
    assert "==> worker 1, ranks 2-3, pod llama-x-1-1 (Running) on gpu-1 <==\n" in text
    assert "\n20%\nstep 2\n" in text
    assert "\x1b" not in text
    assert "\r" not in text


@pytest.mark.usefixtures("logs")
def test_a_rank_is_looked_for_in_its_workers_log_by_attempt(command: Run) -> None:
    found = asked(command, "--rank", "3", "--attempt", "2", "--tail", "2")
    (log,) = found["logs"]
    assert (log["worker"], log["lines"], log["omittedLines"]) == (1, ["20%", "step 2"], 1)
    failed = asked(command, "--failed")
    assert failed["attempt"] == 1
    assert failed["logs"][0]["lines"] == LOG.splitlines()[:3]


def test_of_a_pod_that_is_gone_the_record_is_told(api: Any, command: Run, logs: dict[str, str]) -> None:
    api.lists(PODS, a_pod(0))
    (log,) = asked(command, "--failed")["logs"]
    assert (log["lines"], log["problem"]) == ([], "its pod is gone, and its log with it")
    assert log["incidents"][0]["lastLines"] == ["Traceback", "\x1b[31mboom"]
    text = command("logs", "llama", "--failed").stdout
    assert "what the record of incident 1 (RankFailed) has: rank 3 exited with code 1\n  Traceback\n  boom\n" in text
    api.lists(PODS, a_pod(1, incarnation=2))  # a new one in its place, in which that attempt never was
    logs["llama-x-1-2"] = "muster: attempt 2: ranks 2 to 3 of 4 starting, without a checkpoint from Muster\n"
    (log,) = asked(command, "--failed")["logs"]
    assert log["problem"].startswith("attempt 1 did not run in this pod")
    assert log["incidents"][0]["incident"] == 1


@pytest.mark.usefixtures("logs")
def test_a_rank_by_the_number_that_torchrun_gave_it_is_found_on_its_worker(api: Any, command: Run) -> None:
    api.put(GANG, a_gang(incidents=[{**INCIDENT, "rank": 13}]))
    found = asked(command, "--rank", "13")
    assert ([log["worker"] for log in found["logs"]], found["notes"]) == ([1], [])
    assert "there is no rank 14" in command("logs", "llama", "--rank", "14").stderr
    api.put(GANG, a_gang(incidents=[{**INCIDENT, "rank": 0}]))
    found = asked(command, "--rank", "0")
    assert [log["worker"] for log in found["logs"]] == [0]
    assert found["notes"] == ["rank 0 that failed in attempt 1 was on worker 1: --attempt 1 has it"]
    assert [log["worker"] for log in asked(command, "--rank", "0", "--attempt", "1")["logs"]] == [1]


def test_an_older_pod_that_is_still_there_is_found_by_its_attempt(api: Any, command: Run, logs: dict[str, str]) -> None:
    api.lists(PODS, a_pod(1), a_pod(1, incarnation=2))
    logs["llama-x-1-2"] = "muster: attempt 2: ranks 2 to 3 of 4 starting, without a checkpoint from Muster\n"
    (log,) = asked(command, "--failed")["logs"]
    assert (log["pod"], log["lines"][1]) == ("llama-x-1-1", "step 1")


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Forbidden(403, "Forbidden", "no"), "ask for the cluster's role view"),
        (Invalid(400, "BadRequest", "container main is waiting to start"), "it has no log: container main is waiting"),
        (Unreachable(0, "Unreachable", "no answer"), "gpu-1 may be lost"),
    ],
)
def test_a_log_that_cannot_be_read_hides_no_other(api: Any, command: Run, error: Exception, says: str) -> None:
    api.errors[log_path("llama-x-1-1")] = error
    first, second = asked(command)["logs"]
    assert first["lines"] == ["zero"]
    assert says in second["problem"]
    assert second["incidents"][0]["reason"] == "RankFailed"


@pytest.mark.usefixtures("logs")
def test_without_rights_on_pods_the_record_is_told(api: Any, command: Run) -> None:
    api.errors[PODS] = Forbidden(403, "Forbidden", "no")
    found = asked(command, "--failed")
    assert found["logs"][0]["incidents"][0]["message"] == "rank 3 exited with code 1"
    assert "role view" in found["notes"][0]


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rank", "4"), "there is no rank 4: its ranks are 0 to 3"),
        (("--attempt", "99"), "there is no attempt 99: it is in attempt 2"),
        (("--rank", "1", "--attempt", "3"), "there is no attempt 3: it is in attempt 2"),
        (("--failed", "--attempt", "2"), "attempt 2 did not end by a failure that the record has: 1 did"),
    ],
)
def test_what_is_not_there_is_told(command: Run, arguments: tuple[str, ...], says: str) -> None:
    result = command("logs", "llama", *arguments)
    assert (result.exit_code, result.stderr) == (1, f"error: team-a/llama: {says}\n")


@pytest.mark.usefixtures("logs")
def test_failed_of_a_job_that_never_failed(api: Any, command: Run) -> None:
    api.put(GANG, a_gang())
    assert "none of its workers has failed" in command("logs", "llama", "--failed").stderr
    assert command("logs", "llama", "--failed", "--rank", "1").exit_code == 2


HUNG = "no step finished for 31 s (limit 30 s); which rank hangs is not known: no worker has reported a step yet"


@pytest.mark.usefixtures("logs")
def test_failed_of_a_hang_of_no_worker_says_what_it_was_and_where_its_ranks_stood(api: Any, command: Run) -> None:
    api.put(GANG, a_gang(incidents=[{**INCIDENT, "reason": "StepTimeout", "index": None, "node": "", "message": HUNG}]))
    result = command("logs", "llama", "--failed")
    assert (result.exit_code, result.stderr) == (
        1,
        f"error: team-a/llama: attempt 1 hung, and no worker failed: {HUNG}; to see where its ranks stood: kubectl "
        "muster report team-a/llama --incident 1; or give --rank N\n",
    )


@pytest.mark.usefixtures("logs")
def test_failed_of_a_hang_prints_the_log_and_says_where_its_ranks_stood(api: Any, command: Run) -> None:
    api.put(GANG, a_gang(incidents=[{**INCIDENT, "reason": "StepTimeout"}]))
    found = asked(command, "--failed")
    assert [log["worker"] for log in found["logs"]] == [1]
    assert found["notes"] == [
        "attempt 1 hung; to see where its ranks stood: kubectl muster report team-a/llama --incident 1"
    ]


@pytest.mark.usefixtures("logs")
def test_of_a_large_gang_not_every_pod_is_asked(api: Any, command: Run) -> None:
    api.put(GANG, a_gang(members=[{"node": f"gpu-{index}"} for index in range(100)]))
    api.lists(PODS)
    found = asked(command)
    assert len(found["logs"]) == MAX_WORKERS
    assert found["notes"] == [
        f"{100 - MAX_WORKERS} more workers: choose one with --rank N, or the one that failed with --failed"
    ]


@pytest.mark.parametrize(("started_by", "each"), [("", 8), ("torchrun", 8), ("torchrun", 1), ("deepspeed", 1)])
def test_the_log_is_cut_where_the_launcher_says_that_an_attempt_begins(started_by: str, each: int) -> None:
    """In the words of the launcher itself."""
    from muster.node.launcher.supervisor import Supervisor

    said: list[str] = []

    class Directive:
        node_rank, processes_per_node, node_count, attempt, resume_path = 1, each, 4, 3, "/c/100"

    class Host:
        starter = started_by

    class Stub:
        _host = Host
        _log = staticmethod(said.append)

    Supervisor._announce(Stub(), Directive())  # type: ignore[arg-type]
    line = f"half a line of a rankmuster: {said[0]}"
    assert of_attempt(["before", line, "after"], 3) == [line, "after"]
    assert of_attempt(["before", line, "after"], 2) is None


def test_lines_of_a_progress_bar_are_its_last_state() -> None:
    assert lines_of(b"a\r\n10%\r20%\r\n\xff\n") == ["a", "20%", "\ufffd"]
    assert lines_of(b"") == []
