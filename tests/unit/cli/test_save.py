"""`save`: the request stands in the job's spec, and what came of it in the record."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.test_commands import a_job, failed, forbidden, path_of
from tests.unit.cli.test_move import GANG, STRICT, TIME, a_gang
from typer.testing import Result

from muster.cli import waiting
from muster.kube.errors import Conflict

Run = Callable[..., Result]
DIRECTORY = {"directory": "/ckpt/llama", "saveTimeoutSeconds": 2}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.0)


def put(api: Any, checkpoint: Any = None, metadata: Any = None, mode: str = "Managed", **changes: Any) -> None:
    raw = a_job("llama", checkpoint=DIRECTORY if checkpoint is None else checkpoint, launch={"mode": mode})
    raw["metadata"] |= {"generation": 1, **(metadata or {})}
    raw["spec"]["eject"] = changes.pop("eject", False)
    raw["status"] |= {"observedGeneration": 1, **changes}
    api.put(path_of("llama"), raw)
    api.put(GANG, a_gang("n0", "n1"))


def becomes(api: Any, monkeypatch: pytest.MonkeyPatch, after: int = 3, status: Any = None, **recorded: Any) -> None:
    """The API server takes the patch; the operator records what came of it after so many looks."""
    looks, get, write = iter(range(999)), api.get, api.patch

    async def patch(path: str, body: Any, content_type: str = "", query: Any = None, **_: Any) -> bytes:
        api.bodies[path]["spec"]["checkpoint"] |= body["spec"]["checkpoint"]
        return bytes(await write(path, body, content_type, query))

    async def read(path: str, query: Any = None, **_: Any) -> bytes:
        raw = api.bodies[path_of("llama")]
        if path == GANG and api.written and next(looks) == after:
            name = raw["spec"]["checkpoint"]["saveRequest"]
            request = {"name": name, "attempt": 1, "number": 1, "since": TIME, "deadline": TIME, **recorded}
            api.bodies[GANG]["spec"]["saveRequest"] = request
            raw["status"] |= status or {}
        return bytes(await get(path, query))

    monkeypatch.setattr(api, "patch", patch)
    monkeypatch.setattr(api, "get", read)


def test_it_asks_waits_and_says_what_was_saved(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api)
    becomes(api, monkeypatch, over=True, savedStep=1234)
    result = command("save", "llama")
    assert result.exit_code == 0, result.output
    ((verb, path, body),) = api.written
    assert (verb, path) == (STRICT, path_of("llama"))
    request = body["spec"]["checkpoint"]["saveRequest"]
    assert body == {"metadata": {"uid": "uid-llama"}, "spec": {"checkpoint": {"saveRequest": request}}}
    assert result.stderr.splitlines() == [
        f"request {request}: waiting for a new complete checkpoint, at most 2 s",
        "Running (Training)",
    ]
    assert result.stdout == "team-a/llama has saved step 1234\n"


def test_it_need_not_wait(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api)
    becomes(api, monkeypatch)
    result = command("save", "llama", "--no-wait")
    request = api.written[0][2]["spec"]["checkpoint"]["saveRequest"]
    assert result.stdout == f"team-a/llama is asked to save ({request})\n"
    assert result.stderr == ""


@pytest.mark.parametrize("options", [(), ("--no-wait",)], ids=["waits", "no-wait"])
def test_of_a_job_that_leaves_nodes_it_says_what_serves_the_request(
    api: Any, command: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    put(api, state="Saving", reason="Suspended")
    becomes(api, monkeypatch, over=True, savedStep=1234)
    result = command("save", "llama", *options)
    assert (result.exit_code, "has saved step 1234" in result.stdout) == (0, not options)
    assert result.stderr.startswith("the job saves to leave nodes: that save serves the request, or the program is ")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"over": True}, "has no new complete checkpoint: its program does not look for requests"),
        ({"name": "another"}, "has not saved after 62 s, and the request stands: Running (Training)"),
        ({}, "has not saved after 62 s"),
    ],
)
def test_what_was_not_saved_is_an_error(
    api: Any, command: Run, monkeypatch: pytest.MonkeyPatch, what: Any, says: str
) -> None:
    put(api)
    becomes(api, monkeypatch, **what)
    result = command("save", "llama")
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr.splitlines()[-1]


def test_a_job_that_ends_meanwhile_ends_the_wait(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api)
    end = {"attempt": 1, "time": TIME, "result": "Succeeded", "reason": "AllRanksSucceeded", "message": ""}
    becomes(api, monkeypatch, status={"state": "Succeeded", "completion": end})
    assert "has ended meanwhile (Succeeded)" in command("save", "llama").stderr


def test_another_request_in_its_place_is_said(api: Any, command: Run) -> None:
    put(api, {**DIRECTORY, "saveRequest": "of another user"})
    assert "was asked to save by another user at the same time" in command("save", "llama").stderr


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"state": "Pending", "reason": "InsufficientNodes"}, "is Pending (InsufficientNodes): only ranks that train"),
        ({"state": "Starting"}, "Try again once it is Running"),
        ({"state": "Failed"}, "has ended (Failed)"),
        ({"metadata": {"deletionTimestamp": TIME}}, "is being deleted"),
        ({"eject": True}, "leaves Muster, or has left it"),
        ({"mode": "Plain", "checkpoint": {}}, "cannot be asked: Muster sees checkpoints only in mode Managed"),
        ({"checkpoint": {}}, "in spec.checkpoint.directory"),
        ({"checkpoint": {**DIRECTORY, "saveTimeoutSeconds": 0}}, "its spec.checkpoint.saveTimeoutSeconds is 0"),
    ],
)
def test_what_cannot_save_is_refused(api: Any, command: Run, changes: Any, says: str) -> None:
    put(api, **changes)
    assert says in failed(command("save", "llama"))
    assert api.written == []


def test_a_job_that_was_replaced_is_not_asked(api: Any, command: Run) -> None:
    put(api)
    api.refuses[path_of("llama")] = Conflict(409, "Conflict", "another uid")
    assert "was deleted or replaced just now" in failed(command("save", "llama"))


def test_without_its_record_it_is_said(api: Any, command: Run) -> None:
    put(api)
    api.errors[GANG] = forbidden("gangs", "muster.dev", "in the namespace")
    assert "what becomes of the request is not known: its record may not be read" in command("save", "llama").stderr
