"""`logs --follow`: each line once, also where a connection breaks, and also of the pod that takes a lost one's
place."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from tests.unit.cli.test_status import GANG, JOBS, PODS, a_gang, a_job, a_pod
from typer.testing import Result

from muster.cli import follow
from muster.cli.follow import LogPosition, Stamp
from muster.kube.errors import ApiError, Forbidden, Invalid, ServerError, Unreachable

Run = Callable[..., Result]
ENDED = {"result": "Failed", "reason": "Broken", "message": "", "time": "2026-01-05T03:00:02Z", "attempt": 2}


def at(second: str, text: str) -> bytes:
    return f"2026-01-05T03:00:{second}Z {text}".encode()


class Logs:
    """What each pod's log answers, one request after the other: lines, errors, and what happens then."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.answers: dict[str, list[list[bytes | ApiError | Callable[[], None]]]] = {}
        self.queries: dict[str, list[Mapping[str, Any]]] = {}

    async def follow(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        pod = path.removeprefix(f"{PODS}/").removesuffix("/log")
        self.queries.setdefault(pod, []).append(query)
        left = self.answers.get(pod) or [[]]
        for item in left.pop(0) if len(left) > 1 else left[0]:
            await asyncio.sleep(0)
            if isinstance(item, bytes):
                yield item
            elif isinstance(item, ApiError):
                raise item
            else:
                item()

    def ends(self) -> None:
        self.api.put(f"{JOBS}/llama", a_job(attempt=2, state="Failed", reason="Broken", completion=ENDED))


@pytest.fixture
def logs(api: Any, monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs(api)
    monkeypatch.setattr(api, "follow", made.follow, raising=False)
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(follow, "LAST_LINES_SECONDS", 0.05)
    api.put(f"{JOBS}/llama", a_job(attempt=2))
    api.put(GANG, a_gang(attempt=2))
    api.lists(PODS, a_pod(0), a_pod(1))
    return made


def followed(command: Run, *arguments: str) -> list[str]:
    result = command("logs", "llama", "--follow", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_lines_come_with_their_worker_until_the_job_has_ended(command: Run, logs: Logs) -> None:
    logs.answers = {"llama-x-0-1": [[at("01", "zero")]], "llama-x-1-1": [[at("02", "10%\r20%\x1b[31m"), logs.ends]]}
    lines = followed(command)
    assert sorted(lines[:-1]) == [
        "==> worker 0, rank 0, pod llama-x-0-1 on gpu-0 <==",
        "==> worker 1, rank 1, pod llama-x-1-1 on gpu-1 <==",
        "worker 0 | zero",
        "worker 1 | 20%",
    ]
    assert lines[-1] == "==> team-a/llama has failed: Broken <=="
    assert logs.queries["llama-x-0-1"][0] == {
        "follow": "true", "timestamps": "true", "container": "main", "tailLines": 10
    }  # fmt: skip


def test_where_a_connection_breaks_no_line_is_lost_and_none_comes_twice(command: Run, logs: Logs) -> None:
    broken = Unreachable(0, "Unreachable", "no answer")
    logs.answers = {
        "llama-x-1-1": [
            [Invalid(400, "BadRequest", "ContainerCreating")],
            [at("01.5", "a"), at("02", "b"), at("02", "c"), broken],
            [ServerError(500, "", "kubelet")],
            [at("01.5", "a"), at("02", "b"), at("02", "c"), at("02", "d"), at("02.25", "e"), broken],
            [at("02.25", "e"), at("02.3", "f"), logs.ends],
        ]
    }
    lines = followed(command, "--rank", "1", "--tail", "7")
    assert [line for line in lines if len(line) == 1] == ["a", "b", "c", "d", "e", "f"]
    lost = "note: worker 1: its log cannot be read, gpu-1 may be lost: no answer"
    assert [line for line in lines if "may be lost" in line] == [lost] * 2
    asked = [(query.get("tailLines"), query.get("sinceTime")) for query in logs.queries["llama-x-1-1"]]
    assert asked[:5] == [
        (7, None),
        (7, None),
        (None, "2026-01-05T03:00:02Z"),
        (None, "2026-01-05T03:00:02Z"),
        (None, "2026-01-05T03:00:02.25Z"),
    ]


def test_the_pod_that_takes_its_place_is_read_whole(api: Any, command: Run, logs: Logs) -> None:
    after = a_pod(1)
    after["metadata"] |= {"name": "llama-x-1-2", "uid": "another"}
    after["metadata"]["labels"] |= {"muster.dev/incarnation": "2"}
    logs.answers = {
        "llama-x-1-1": [[at("01", "old"), lambda: api.lists(PODS, a_pod(0), after)]],
        "llama-x-1-2": [[at("01", "new"), logs.ends]],
    }
    lines = followed(command, "--rank", "1")
    assert lines == [
        "==> worker 1, rank 1, pod llama-x-1-1 on gpu-1 <==",
        "old",
        "==> worker 1, rank 1, pod llama-x-1-2 on gpu-1 <==",
        "new",
        "==> team-a/llama has failed: Broken <==",
    ]
    assert "tailLines" not in logs.queries["llama-x-1-2"][0]


def test_a_job_that_has_no_pods_yet_is_waited_for(api: Any, command: Run, logs: Logs) -> None:
    api.lists(PODS)
    answer, looks = api.get, 0

    async def get(path: str, query: Any = None, **more: Any) -> bytes:
        nonlocal looks
        looks += path == PODS
        if looks == 3:
            api.lists(PODS, a_pod(0))
        found: bytes = await answer(path, query, **more)
        return found

    api.get = get
    logs.answers = {"llama-x-0-1": [[at("01", "zero"), logs.ends]]}
    lines = followed(command)
    assert lines[0] == "note: no worker has a pod now: kubectl muster status llama says why"
    assert "worker 0 | zero" in lines


def test_logs_that_may_not_be_read_end_it(command: Run, logs: Logs) -> None:
    logs.answers = {pod: [[Forbidden(403, "Forbidden", "no")]] for pod in ("llama-x-0-1", "llama-x-1-1")}
    result = command("logs", "llama", "-f")
    assert result.exit_code == 1
    assert "may not be read: ask for the cluster's role view" in result.stderr


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--failed",), 2, "an attempt that has ended cannot be followed"),
        (("--attempt", "1"), 2, "an attempt that has ended cannot be followed"),
        (("-o", "json"), 2, "--follow prints lines as they come"),
        (("--rank", "9"), 1, "there is no rank 9: its ranks are 0 to 1"),
    ],
)
def test_what_cannot_be_followed_is_told(command: Run, arguments: tuple[str, ...], code: int, says: str) -> None:
    result = command("logs", "llama", "--follow", *arguments)
    assert result.exit_code == code
    assert says in " ".join(result.stderr.replace("│", " ").split())


def test_times_of_lines_are_compared_to_the_nanosecond() -> None:
    texts = ["05Z", "05.000000001Z", "05.1Z", "05.12Z", "06Z"]
    stamps = [Stamp.from_text(f"2026-01-05T03:00:{text}") for text in texts]
    assert None not in stamps
    assert sorted(stamps) == stamps  # type: ignore[type-var]
    assert Stamp.from_text("2026-01-05T04:00:05.1+01:00") == stamps[2]
    assert Stamp.from_text("") is Stamp.from_text("step") is Stamp.from_text("...") is None
    assert LogPosition().line_if_new(b"no time \xff here") == "no time \ufffd here"
