"""`move`: what is asked for stands in the job's spec, and is waited for."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.test_commands import a_job, failed, forbidden, path_of
from typer.testing import Result

from muster.cli import waiting
from muster.kube.errors import ApiError, Conflict
from muster.world.names import gang_name

Run = Callable[..., Result]
GANG = f"/apis/muster.dev/v1alpha1/namespaces/team-a/gangs/{gang_name('llama', 'uid-llama')}"
TIME = "2026-01-01T00:00:00Z"
STRICT = "PATCH  {'fieldValidation': 'Strict'}"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.0)


def a_gang(*nodes: str) -> dict[str, Any]:
    members = [{"node": node, "podUid": f"p{index}", "incarnation": 1} for index, node in enumerate(nodes)]
    spec = {"jobUid": "uid-llama", "attempt": 1, "time": TIME, "level": "Start", "reason": "Placed", "members": members}
    return {"metadata": {"name": "g", "namespace": "team-a", "uid": "g"}, "spec": spec}


def put(api: Any, *nodes: str, avoids: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    raw = a_job("llama", placement={"required": "rack", "avoidNodes": list(avoids)})
    raw["metadata"] |= {"generation": 1, **changes.pop("metadata", {})}
    raw["spec"] |= changes.pop("spec", {})
    raw["status"] |= {"observedGeneration": 1, **changes}
    api.put(path_of("llama"), raw)
    api.put(GANG, a_gang(*nodes))
    return raw


def obeys(api: Any, monkeypatch: pytest.MonkeyPatch, *then: str) -> None:
    """The API server takes the patch; the operator moves the workers after two looks."""
    looks, write = iter(range(99)), api.patch

    async def patch(path: str, body: Any, content_type: str = "", query: Any = None, **_: Any) -> bytes:
        api.bodies[path]["spec"]["placement"] |= body["spec"]["placement"]
        api.bodies[path]["metadata"]["generation"] += 1
        return bytes(await write(path, body, content_type, query))

    get = api.get

    async def read(path: str, query: Any = None, **_: Any) -> bytes:
        raw = api.bodies[path_of("llama")]
        if path == GANG and api.written and then:
            look = next(looks)
            if look == 1:
                raw["status"] |= {"observedGeneration": 2, "state": "Saving", "reason": "NodeAvoided"}
            if look > 3:
                api.bodies[GANG] = a_gang(*then)
        return bytes(await get(path, query))

    monkeypatch.setattr(api, "patch", patch)
    monkeypatch.setattr(api, "get", read)


def test_it_asks_waits_and_says_where_the_workers_are(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, "n0", "n1", avoids=("n9",))
    obeys(api, monkeypatch, "n0", "n2")
    result = command("move", "llama", "--node", "node/n1")
    assert result.exit_code == 0, result.output
    ((verb, path, body),) = api.written
    assert (verb, path) == (STRICT, path_of("llama"))
    assert body == {
        "metadata": {"uid": "uid-llama", "resourceVersion": "7"},
        "spec": {"placement": {"avoidNodes": ["n9", "n1"]}},
    }
    assert result.stderr.splitlines() == ["the operator has not seen the request yet", "Saving (NodeAvoided)"]
    assert result.stdout.splitlines() == [
        "team-a/llama has left n1",
        "its workers are on n0, n2",
        "to let it use them again: kubectl muster move -n team-a llama --node n1 --undo",
    ]


def test_it_need_not_wait(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, "n0", "n1")
    obeys(api, monkeypatch)
    result = command("move", "llama", "--node", "n1", "--node", "n0", "--no-wait")
    assert result.stdout.startswith("team-a/llama leaves n1, n0 after its next save, once other nodes are free")
    assert api.written[0][2]["spec"] == {"placement": {"avoidNodes": ["n1", "n0"]}}


def test_one_that_was_asked_before_is_only_waited_for(api: Any, command: Run) -> None:
    put(api, "n0", "n2", avoids=("n1",))
    result = command("move", "llama", "--node", "n1")
    assert "has left n1" in result.stdout
    assert api.written == []


def test_the_end_of_the_job_ends_the_wait(api: Any, command: Run) -> None:
    raw = put(api, "n0", "n1", avoids=("n1",))
    raw["status"]["completion"] = None
    end = {"attempt": 1, "time": TIME, "result": "Succeeded", "reason": "AllRanksSucceeded", "message": ""}
    reads, get = iter(range(9)), api.get

    async def read(path: str, query: Any = None, **_: Any) -> bytes:
        if path == GANG and next(reads) == 1:
            raw["status"]["completion"] = end
        return bytes(await get(path, query))

    api.get = read
    assert "has left n1" in command("move", "llama", "--node", "n1").stdout


def test_a_wait_that_is_too_long_names_its_cause(api: Any, command: Run) -> None:
    message = "The job should leave n1 (NodeAvoided), but no other suitable node is free."
    running = {"type": "Running", "status": "True", "reason": "x", "message": message, "lastTransitionTime": TIME}
    put(api, "n0", "n1", avoids=("n1",), state="Saving", reason="NoNodeToMoveTo", conditions=[running])
    result = command("move", "llama", "--node", "n1", "--timeout", "3")
    assert result.exit_code == 1
    progress, error = result.stderr.splitlines()
    assert progress == f"Saving (NoNodeToMoveTo): {message}"
    assert f"has not left n1 after 3 s: {progress}" in error
    assert "run the command with --undo" in error


def test_undo_takes_out_only_these(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, "n0", "n2", avoids=("n9", "n1"))
    obeys(api, monkeypatch)
    result = command("move", "llama", "--node", "n1", "--undo")
    assert api.written[0][2]["spec"] == {"placement": {"avoidNodes": ["n9"]}}
    assert result.stdout.splitlines() == ["team-a/llama may use n1 again", "its workers are on n0, n2"]


@pytest.mark.parametrize(
    ("nodes", "changes", "options", "says"),
    [
        (("n0", "n1"), {}, (), "has no worker on n7: its workers are on n0, n1"),
        ((), {}, (), "has no worker on n7: it has no nodes now"),
        (("n0", "n1"), {}, ("--undo",), "does not avoid n7: it avoids no node"),
        (("n0", "n1"), {"avoids": ("n3",)}, ("--undo",), "does not avoid n7: it avoids n3"),
        (("n0",), {"state": "Succeeded"}, (), "has ended (Succeeded)"),
        (("n0",), {"metadata": {"deletionTimestamp": TIME}}, (), "is being deleted"),
        (("n0",), {"spec": {"eject": True}}, (), "leaves Muster, or has left it"),
    ],
)
def test_what_makes_no_sense_is_refused(
    api: Any, command: Run, nodes: Any, changes: Any, options: Any, says: str
) -> None:
    put(api, *nodes, **changes)
    assert says in failed(command("move", "llama", "--node", "n7", *options))
    assert api.written == []


def test_without_a_node_nothing_is_asked(command: Run) -> None:
    assert command("move", "llama").exit_code == 2


def test_without_its_record_it_is_not_guessed(api: Any, command: Run) -> None:
    put(api, "n0")
    api.errors[GANG] = forbidden("gangs", "muster.dev", "in the namespace")
    assert "are is not known: its record may not be read" in failed(command("move", "llama", "--node", "n0"))


@pytest.mark.parametrize("conflicts", [1, 99])
def test_what_others_write_meanwhile_is_kept(
    api: Any, command: Run, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    raw = put(api, "n0", "n1")
    error: ApiError = Conflict(409, "Conflict", "the object has been modified")
    left, write = iter(range(conflicts)), api.patch

    async def patch(path: str, body: Any, content_type: str = "", query: Any = None, **_: Any) -> bytes:
        if next(left, None) is not None:
            raw["spec"]["placement"]["avoidNodes"] = ["n5"]
            raise error
        return bytes(await write(path, body, content_type, query))

    monkeypatch.setattr(api, "patch", patch)
    result = command("move", "llama", "--node", "n1", "--no-wait")
    if conflicts == 1:
        assert api.written[0][2]["spec"] == {"placement": {"avoidNodes": ["n5", "n1"]}}
    else:
        assert "is changed by others all the time" in failed(result)
