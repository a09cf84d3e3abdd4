"""`lost`: what is written, what is refused before anything is, and that somebody has to say yes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.test_commands import HEALTHS, JOBS, failed, forbidden, with_fleet
from typer.testing import Result

from muster.api.namespaces import NODE_LEASES
from muster.cli import confirmation, lost
from muster.kube import paths

Run = Callable[..., Result]
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SURE = ("--reason", "pulled the plug", "--yes")


def put_nodes(api: Any, *names: str, ready: str = "Unknown") -> None:
    """A fleet of these nodes, and a user whom the API server calls bob."""
    with_fleet(api)
    status = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": "boot-1"}}
    api.lists("/api/v1/nodes", *({"metadata": {"name": n, "resourceVersion": "1"}, "status": status} for n in names))
    api.put(WHO, {"status": {"userInfo": {"username": "bob"}}, "metadata": {"creationTimestamp": None}})


def put_lease(api: Any, node: str) -> None:
    lease = {"metadata": {"name": node, "resourceVersion": "7"}, "spec": {"renewTime": "2026-01-01T00:00:07.123456Z"}}
    api.put(paths.leases(NODE_LEASES, node), lease)


def patches(api: Any) -> list[tuple[str, str, Any]]:
    return [written for written in api.written if written[0].startswith("PATCH")]


def test_the_word_is_applied_to_each_node_by_a_manager_of_its_own(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1", "gpu-2")
    put_lease(api, "gpu-1")
    found = json.loads(command("lost", "gpu-2", "node/gpu-1", *SURE, "-o", "json").stdout)
    assert [path for _, path, _ in patches(api)] == [f"{HEALTHS}/gpu-2", f"{HEALTHS}/gpu-1"]
    for verb, _, body in patches(api):
        assert verb == "PATCH application/apply-patch+yaml {'fieldManager': 'muster-human-lost', 'force': 'true'}"
        word = {"time": found["time"], "reason": "pulled the plug", "user": "bob", "bootId": "boot-1"}
        word["lastRenewal"] = "2026-01-01T00:00:07.123456Z" if body["metadata"]["name"] == "gpu-1" else ""
        assert body["spec"] == {"lost": word}
    assert [node["name"] for node in found["nodes"]] == ["gpu-2", "gpu-1"]


def test_people_read_what_follows(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    said = command("lost", "gpu-1", *SURE).stdout
    assert "gpu-1 is declared lost" in said
    assert "no job holds it now" in said
    assert "to take it back: kubectl muster lost gpu-1 --undo" in said


def test_who_starts_elsewhere_is_named_with_the_danger() -> None:
    told = lost.follows(["team-a/llama", "pod x/y"])
    assert told[0].startswith("team-a/llama starts on other nodes without waiting")
    assert "two attempts may write to one checkpoint directory" in told[-1]
    assert lost.follows(None)[0].startswith("every job")


def test_a_node_that_is_ready_is_not_lost(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1", ready="True")
    assert "Power the machine off first" in failed(command("lost", "gpu-1", *SURE))
    assert patches(api) == []


def test_nothing_is_written_without_a_yes(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    result = command("lost", "gpu-1", "--reason", "dark")
    assert result.exit_code == 1
    assert "add --yes" in result.stderr
    assert "no job holds it now" in result.stderr
    assert patches(api) == []


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_is_asked(api: Any, command: Run, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    put_nodes(api, "gpu-1")
    asked: list[str] = []
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    monkeypatch.setattr(lost.typer, "confirm", lambda text, **_: asked.append(text) or answer)
    result = command("lost", "gpu-1", "--reason", "dark")
    assert asked == ["Is it powered off, or gone, for certain?"]
    assert (result.exit_code, len(patches(api))) == ((0, 1) if answer else (1, 0))


def test_an_unknown_node_is_refused(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    assert "did you mean gpu-1?" in failed(command("lost", "gpu-11", *SURE))


def with_a_job(api: Any, **spec: Any) -> None:
    """One that has a record."""
    name = {"namespace": "team-a", "resourceVersion": "1"}
    container = {"name": "worker", "image": "x", "command": ["true"]}
    job = {"nodes": 1, "template": {"spec": {"containers": [container]}}}
    api.lists(JOBS, {"metadata": {**name, "name": "llama", "uid": "j1"}, "spec": job})
    moment = {"time": "2026-01-01T00:00:00Z", "level": "R2", "reason": "NodeGone"}
    record = {"jobUid": "j1", "attempt": 2, **moment, "members": [], **spec}
    api.lists(
        "/apis/muster.dev/v1alpha1/gangs", {"metadata": {**name, "name": "llama-j1", "uid": "g1"}, "spec": record}
    )


UNFENCED_WORKER = {
    "pod": "llama-0",
    "podUid": "p0",
    "node": "gpu-9",
    "fencedTime": "2026-01-01T00:00:00Z",
    "proof": "Death",
}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"unfencedWorkers": [UNFENCED_WORKER]}, id="an unfenced worker was there"),
        pytest.param({"members": [{"index": 0, "rank": 0, "node": "gpu-9"}]}, id="a member is there"),
    ],
)
def test_a_node_that_is_gone_is_lost_if_a_job_names_it_still(api: Any, command: Run, spec: Any) -> None:
    put_nodes(api, "gpu-1")
    with_a_job(api, **spec)
    said = command("lost", "gpu-9", *SURE)
    assert "team-a/llama starts on other nodes without waiting" in said.stdout
    assert "gone from the cluster, so nothing here shows whether the machine still runs" in said.stdout
    ((_, path, body),) = patches(api)
    assert path == f"{HEALTHS}/gpu-9"
    assert body["spec"]["lost"].get("bootId", "") == ""


def test_a_node_that_nothing_names_is_refused_though_others_are_gone(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    with_a_job(api, unfenced_workers=[UNFENCED_WORKER])
    assert "did you mean gpu-9" in failed(command("lost", "gpu-99", "gpu-9", *SURE))
    assert patches(api) == []


def test_who_may_not_see_what_names_a_gone_node_is_told_which_role_has_the_right(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    api.errors[JOBS] = forbidden("trainingjobs", "muster.dev", "at the cluster scope")
    assert "muster-fleet-view" in failed(command("lost", "gpu-9", *SURE))


def test_who_may_not_is_told_which_role_to_ask_for(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    api.refuses[f"{HEALTHS}/gpu-1"] = forbidden("nodehealths", "muster.dev", "at the cluster scope")
    assert "muster-fleet-edit" in failed(command("lost", "gpu-1", *SURE))


def test_who_may_not_read_heartbeats_is_told_what_the_word_rests_on(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    api.errors[paths.leases(NODE_LEASES, "gpu-1")] = forbidden("leases", "coordination.k8s.io", "there")
    said = command("lost", "gpu-1", *SURE)
    assert "the clocks of the nodes" in said.stdout
    ((_, _, body),) = patches(api)
    assert body["spec"]["lost"]["lastRenewal"] == ""


def test_a_reason_is_needed(command: Run) -> None:
    assert command("lost", "gpu-1", "--yes").exit_code == 2


def test_the_word_is_taken_back(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1", ready="True")
    assert "gpu-1 is no longer declared lost" in command("lost", "gpu-1", "--undo").stdout
    assert [body["spec"] for _, _, body in patches(api)] == [{}]
