"""The watch notes the first time of each state, and goes on after the server has ended it."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from bench.api import Connection
from bench.podwatch import PodWatch, latest
from tests.unit.bench.watched import Server

from localcluster.patience import PATIENCE_SECONDS


def pod(
    uid: str = "u1", version: str = "8", node: str = "", phase: str = "Pending", deleting: bool = False
) -> dict[str, Any]:
    metadata = {"name": f"pod-{uid}", "uid": uid, "resourceVersion": version}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def watch(server: Server) -> Iterator[PodWatch]:
    made = PodWatch(cast("Connection", server), "bench")
    yield made
    made.close()
    server.lines.put(None)


def test_a_pod_is_followed_from_its_creation_until_it_runs(server: Server, watch: PodWatch):
    server.say("ADDED", pod())
    server.say("MODIFIED", pod(node="gpu-00001"))
    server.say("MODIFIED", pod(node="gpu-00001", phase="Running"))
    assert watch.wait(lambda seen: seen.running == 1, PATIENCE_SECONDS)
    seen = watch.pods()["u1"]
    assert (seen.name, seen.node) == ("pod-u1", "gpu-00001")
    assert seen.created is not None
    assert seen.bound is not None
    assert seen.running is not None
    assert seen.created <= seen.bound <= seen.running
    assert watch.events == 3


@pytest.mark.parametrize("end", [{"phase": "Failed"}, {"phase": "Running", "deleting": True}])
def test_a_pod_that_failed_or_is_deleted_runs_no_more(server: Server, watch: PodWatch, end: dict[str, Any]):
    server.say("ADDED", pod(node="gpu-00001", phase="Running"))
    assert watch.wait(lambda seen: seen.any_runs(["u1"]), PATIENCE_SECONDS)
    server.say("MODIFIED", pod(node="gpu-00001", **end))
    assert watch.wait(lambda seen: not seen.any_runs(["u1"]), PATIENCE_SECONDS)
    assert watch.present == 1
    server.say("DELETED", pod(node="gpu-00001", **end))
    assert watch.wait(lambda seen: seen.present == 0, PATIENCE_SECONDS)


def test_a_watch_that_ends_is_taken_up_where_it_was(server: Server, watch: PodWatch):
    server.say("ADDED", pod(version="11"))
    assert watch.wait(lambda seen: seen.present == 1, PATIENCE_SECONDS)
    server.lines.put(None)
    server.say("ADDED", pod(uid="u2", version="12"))
    assert watch.wait(lambda seen: seen.present == 2, PATIENCE_SECONDS)
    assert server.versions == ["7", "11"]
    assert watch.relists == 0


def test_after_an_expired_watch_the_list_says_what_was_missed(server: Server, watch: PodWatch):
    server.say("ADDED", pod())
    assert watch.wait(lambda seen: seen.present == 1, PATIENCE_SECONDS)
    server.items = [pod("u2", node="gpu-00002", phase="Running")]
    server.say("ERROR", {"kind": "Status", "status": "Failure", "code": 410, "metadata": {}})
    assert watch.wait(lambda seen: seen.running == 1, PATIENCE_SECONDS)
    assert set(watch.pods()) == {"u2"}
    assert watch.relists == 1


def test_the_last_of_some_times_counts_and_a_missing_one_makes_it_unknown():
    assert latest([12.0, 15.0, 13.0], 10.0) == 5.0
    assert latest([12.0, None], 10.0) is None
    assert latest([], 10.0) is None
