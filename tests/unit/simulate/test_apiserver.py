"""The simulated API server keeps the rules that Muster counts on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from muster.kube.errors import AlreadyExists, Conflict, Gone, NotFound
from simulate.apiserver import ApiServer, Where, where
from simulate.clocks import WallClock
from simulate.loop import SimulatedLoop

GANG = Where("gangs", "ns", "g", "")


class Cluster:
    """An API server, and a clock to turn."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.server = ApiServer(self.loop.agenda, WallClock(self.loop.time))

    def turn(self, seconds: float) -> None:
        done: list[int] = []
        self.loop.agenda.after(seconds, lambda: done.append(1))
        while not done:
            self.loop.agenda.run_one_due()

    def watch(self, at: Where, since: int = 0, lag: float = 0.0, **query: Any) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []

        def tell(line: bytes) -> None:
            event = json.loads(line or b"{}")
            if event.get("type") not in (None, "BOOKMARK"):
                seen.append((event["type"], event["object"]["metadata"]["name"]))

        self.server.watch(at, {"resourceVersion": since, **query}, tell, lag)
        return seen


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def a_gang(name: str = "g", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def a_pod(name: str, labels: dict[str, str] | None = None, node: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"nodeName": node} if node else {}}


def test_who_asks_for_any_version_may_get_an_old_list_that_a_watch_goes_on_from(cluster: Cluster) -> None:
    server, gangs = cluster.server, Where("gangs", "", "", "")
    server.create(GANG, a_gang(attempt=1))
    server.create(Where("gangs", "ns", "gone", ""), a_gang("gone"))
    cluster.turn(10.0)
    server.patch(GANG, {"spec": {"attempt": 2}}, "merge")
    server.delete(Where("gangs", "ns", "gone", ""), None)
    server.create(Where("gangs", "ns", "new", ""), a_gang("new"))

    def listed(lag: float, **query: str) -> tuple[dict[str, Any], int]:
        answer = json.loads(server.list(gangs, query, lag))
        found = {item["metadata"]["name"]: item["spec"].get("attempt") for item in answer["items"]}
        return found, int(answer["metadata"]["resourceVersion"])

    assert listed(5.0)[0] == {"g": 2, "new": None}, "who asks for nothing gets the newest"
    old, version = listed(5.0, resourceVersion="0")
    assert old == {"g": 1, "gone": None}
    seen = cluster.watch(gangs, version)
    cluster.turn(1.0)
    assert seen == [("MODIFIED", "g"), ("DELETED", "gone"), ("ADDED", "new")]
    assert listed(0.0, resourceVersion="0")[0] == {"g": 2, "new": None}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/api/v1/nodes/n0", Where("nodes", "", "n0", "")),
        ("/api/v1/namespaces/ns/pods", Where("pods", "ns", "", "")),
        ("/api/v1/namespaces/ns/pods/p/binding", Where("pods", "ns", "p", "binding")),
        ("/apis/muster.dev/v1alpha1/gangs", Where("gangs", "", "", "")),
        ("/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", Where("leases", "ns", "l", "")),
    ],
)
def test_paths(path: str, want: Where) -> None:
    assert where(path) == want


def test_of_two_who_write_the_same_version_one_is_refused(cluster: Cluster) -> None:
    made = json.loads(cluster.server.create(GANG, a_gang(attempt=1)))
    version = {"name": "g", "resourceVersion": made["metadata"]["resourceVersion"]}
    cluster.server.update(GANG, {"metadata": version, "spec": {"attempt": 2}})
    with pytest.raises(Conflict):
        cluster.server.update(GANG, {"metadata": version, "spec": {"attempt": 3}})
    assert json.loads(cluster.server.get(GANG))["spec"] == {"attempt": 2}


def test_what_exists_is_not_created_again_and_what_is_gone_is_not_found(cluster: Cluster) -> None:
    cluster.server.create(GANG, a_gang())
    with pytest.raises(AlreadyExists):
        cluster.server.create(GANG, a_gang())
    cluster.server.delete(GANG, None)
    for call in (cluster.server.get, lambda at: cluster.server.delete(at, None)):
        with pytest.raises(NotFound):
            call(GANG)


def test_a_no_op_patch_makes_no_version_and_a_spec_patch_a_generation(cluster: Cluster) -> None:
    def patched(spec: dict[str, Any]) -> tuple[str, int]:
        metadata = json.loads(cluster.server.patch(GANG, {"spec": spec}, "merge"))["metadata"]
        return metadata["resourceVersion"], metadata["generation"]

    cluster.server.create(GANG, a_gang(a=1, b=2))
    first = patched({"a": 1})
    assert patched({"b": 2}) == first
    assert patched({"b": None})[1] == first[1] + 1
    assert json.loads(cluster.server.get(GANG))["spec"] == {"a": 1}


def test_what_a_manager_applies_no_more_is_removed_and_what_others_applied_stays(cluster: Cluster) -> None:
    def applied(manager: str, **status: Any) -> Any:
        at = Where("nodehealths", "", "n0", "status")
        answer = cluster.server.patch(at, {"status": status}, "application/apply-patch+yaml", manager)
        return json.loads(answer)["status"]

    cluster.server.create(Where("nodehealths", "", "n0", ""), {"metadata": {"name": "n0"}})
    applied("agent", evidence=[1])
    assert applied("muster", state="Degraded", exclusion={"reason": "Xid79", "lastChoice": True}) == {
        "evidence": [1],
        "state": "Degraded",
        "exclusion": {"reason": "Xid79", "lastChoice": True},
    }
    assert applied("muster", exclusion={"reason": "Xid79"}) == {"evidence": [1], "exclusion": {"reason": "Xid79"}}
    assert applied("muster", state="Healthy") == {"evidence": [1], "state": "Healthy"}


@pytest.mark.parametrize(
    ("node", "options", "gone"),
    [("n0", {}, False), ("", {}, True), ("n0", {"gracePeriodSeconds": 0}, True)],
)
def test_a_pod_that_a_kubelet_knows_is_terminating_first(
    cluster: Cluster, node: str, options: dict[str, int], gone: bool
) -> None:
    at = Where("pods", "ns", "p", "")
    cluster.server.create(at, a_pod("p", node=node))
    answer = json.loads(cluster.server.delete(at, options))
    assert (answer.get("kind") == "Status") is gone
    assert (cluster.server.peek("pods", "ns", "p") is None) is gone


def test_a_pod_of_another_uid_is_not_deleted(cluster: Cluster) -> None:
    at = Where("pods", "ns", "p", "")
    cluster.server.create(at, a_pod("p"))
    with pytest.raises(Conflict):
        cluster.server.delete(at, {"preconditions": {"uid": "another"}})


def test_a_pod_is_bound_once(cluster: Cluster) -> None:
    at = Where("pods", "ns", "p", "binding")
    cluster.server.create(Where("pods", "ns", "p", ""), a_pod("p"))
    body = {"metadata": {}, "target": {"name": "n0"}}
    cluster.server.create(at, body)
    with pytest.raises(Conflict):
        cluster.server.create(at, {**body, "target": {"name": "n1"}})
    assert (cluster.server.peek("pods", "ns", "p") or {})["spec"]["nodeName"] == "n0"


def test_a_watch_goes_on_from_where_the_list_was_and_shows_all_in_order_and_late(cluster: Cluster) -> None:
    cluster.server.create(GANG, a_gang())
    version = int(json.loads(cluster.server.list(Where("gangs", "", "", ""), {}))["metadata"]["resourceVersion"])
    cluster.server.create(Where("gangs", "ns", "h", ""), a_gang("h"))
    seen = cluster.watch(Where("gangs", "", "", ""), version, lag=5.0)
    cluster.server.patch(GANG, {"spec": {"x": 1}}, "merge")
    cluster.server.delete(GANG, None)
    cluster.turn(4.0)
    assert seen == []
    cluster.turn(2.0)
    assert seen == [("ADDED", "h"), ("MODIFIED", "g"), ("DELETED", "g")]


def test_what_comes_into_a_selection_is_added_and_what_leaves_it_deleted(cluster: Cluster) -> None:
    at = Where("pods", "ns", "p", "")
    running = cluster.watch(Where("pods", "", "", ""), fieldSelector="status.phase!=Succeeded,status.phase!=Failed")
    ours = cluster.watch(Where("pods", "", "", ""), labelSelector="job")
    others = cluster.watch(Where("pods", "", "", ""), labelSelector="!job")
    named, misnamed = (cluster.watch(Where("pods", "", "", ""), labelSelector=f"job={name}") for name in "xy")
    cluster.server.create(at, a_pod("p"))
    cluster.server.patch(at, {"metadata": {"labels": {"job": "x"}}}, "merge")
    cluster.server.change("pods", "ns", "p", {"status": {"phase": "Failed"}})
    cluster.turn(1.0)
    assert running == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]
    assert ours == [("ADDED", "p"), ("MODIFIED", "p")]
    assert others == [("ADDED", "p"), ("DELETED", "p")]
    assert named == ours
    assert misnamed == []


def test_a_watch_cannot_go_on_from_what_is_forgotten(cluster: Cluster) -> None:
    cluster.server.create(GANG, a_gang())
    cluster.server.patch(GANG, {"spec": {"x": 1}}, "merge")
    cluster.server.forget_history("gangs")
    with pytest.raises(Gone):
        cluster.watch(Where("gangs", "", "", ""), 1)


def test_a_watch_that_is_ended_shows_nothing_more(cluster: Cluster) -> None:
    lines: list[bytes] = []
    tell: Callable[[bytes], None] = lines.append
    cluster.server.watch(Where("gangs", "", "", ""), {}, tell, 1.0)
    cluster.server.create(GANG, a_gang())
    cluster.server.end_watches()
    cluster.turn(5.0)
    assert lines == [b""]


def test_a_watch_that_falls_silent_shows_nothing_more_and_does_not_end(cluster: Cluster) -> None:
    at = Where("gangs", "", "", "")
    cluster.server.create(GANG, a_gang())
    seen = cluster.watch(at)
    cluster.server.silent.add("gangs")
    cluster.server.patch(GANG, {"spec": {"x": 1}}, "merge")
    cluster.server.silent.clear()
    cluster.server.patch(GANG, {"spec": {"x": 2}}, "merge")
    later = cluster.watch(at)
    cluster.turn(100.0)
    assert seen == [("ADDED", "g")]
    assert later == [("ADDED", "g"), ("MODIFIED", "g"), ("MODIFIED", "g")]
