"""`cordon` and `release`: what is written, what is refused before anything is, and what is said of both."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_commands import HEALTHS, JOBS, failed, forbidden, no_such, with_fleet
from typer.testing import Result

from muster.cli.decide import missing_right_text
from muster.kube.errors import Denied, NotFound, ServerError

Run = Callable[..., Result]
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NO_KIND = NotFound(404, "NotFound", "the server could not find the requested resource")


def put_nodes(api: Any, *names: str) -> None:
    """A fleet of these nodes, none of which has a NodeHealth, and a user whom the API server calls bob."""
    with_fleet(api)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    api.lists("/api/v1/nodes", *({"metadata": {"name": n, "resourceVersion": "1"}, "status": ready} for n in names))
    for name in names:
        api.errors[f"{HEALTHS}/{name}"] = no_such(name, "nodehealths")
    api.put(WHO, {"status": {"userInfo": {"username": "bob"}}, "metadata": {"creationTimestamp": None}})


def patches(api: Any) -> list[tuple[str, str, Any]]:
    return [written for written in api.written if written[0].startswith("PATCH")]


def test_the_decision_is_applied_to_each_node_once(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1", "gpu-2", "gpu-3")
    before = datetime.now(UTC)
    result = command("cordon", "gpu-2", "node/gpu-1", "gpu-2", "--reason", " liquid ", "-o", "json")
    found = json.loads(result.stdout)
    assert [path for _, path, _ in patches(api)] == [f"{HEALTHS}/gpu-2", f"{HEALTHS}/gpu-1"]
    for verb, path, body in patches(api):
        assert verb == "PATCH application/apply-patch+yaml {'fieldManager': 'muster-human', 'force': 'true'}"
        human = body["spec"].pop("override")
        name = path.rpartition("/")[2]
        assert body == {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "NodeHealth",
            "metadata": {"name": name},
            "spec": {},
        }
        assert human == {"decision": "Cordon", "reason": "liquid", "user": "bob", "time": found["time"]}
    assert before <= datetime.fromisoformat(found["time"]) <= datetime.now(UTC)
    assert [node["name"] for node in found["nodes"]] == ["gpu-2", "gpu-1"]
    assert (found["decision"], found["reason"], found["user"], found["notes"]) == ("Cordon", "liquid", "bob", [])
    assert found["nodes"][0]["usedBy"] == []


def test_people_read_what_follows(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1", "gpu-2")
    assert command("cordon", "gpu-1", "gpu-2", "--reason", "liquid").stdout.splitlines() == [
        "gpu-[1-2] cordoned",
        "-  it takes no new worker of a training job",
        "-  new pods of other systems still come: kubectl cordon keeps them away, too",
        "to end the cordon: kubectl muster release gpu-1 gpu-2 --reason TEXT",
    ]
    del api.errors[f"{HEALTHS}/gpu-1"]
    api.put(
        f"{HEALTHS}/gpu-1",
        {
            "metadata": {"name": "gpu-1", "resourceVersion": "1"},
            "spec": {
                "override": {
                    "decision": "Cordon",
                    "reason": "liquid\x1b[2J",
                    "user": "ann",
                    "time": "2026-01-31T12:00:00.000000Z",
                }
            },
            "status": {"state": "Quarantined", "reason": "Cordoned"},
        },
    )
    assert command("release", "gpu-1", "--reason", "dry").stdout.splitlines() == [
        "gpu-1 released",
        "-  the cordon by ann ends: liquid",
        "to see findings on nodes: kubectl muster nodes --unhealthy",
    ]
    assert patches(api)[-1][2]["spec"]["override"]["decision"] == "Release"
    found = yaml.safe_load(command("release", "gpu-1", "--reason", "dry", "-o", "yaml").stdout)
    assert found["nodes"][0]["healthBefore"]["override"]["user"] == "ann"


def test_the_time_is_the_api_servers_where_this_machines_is_wrong(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    review = {"status": {"userInfo": {"username": "bob"}}, "metadata": {"creationTimestamp": "2026-01-31T12:00:00Z"}}
    api.put(WHO, review)
    found = json.loads(command("release", "gpu-1", "--reason", "dry", "-o", "json").stdout)
    assert found["time"] == "2026-01-31T12:00:00.000000Z"


def test_who_an_older_api_server_does_not_tell_is_who_the_kubeconfig_says(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    api.refuses[WHO] = NO_KIND
    found = json.loads(command("release", "gpu-1", "--reason", "dry", "-o", "json").stdout)
    assert found["user"] == "u"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["gpu-01"], "there is no node gpu-01: did you mean gpu-1 or gpu-10? Nothing was changed"),
        (["gpu-1", "x"], "there is no node x: kubectl muster nodes --wide lists them, e.g. gpu-1. Nothing was changed"),
        (
            ["x1", "x2", "x3", "x4", "x5", "x6"],
            "there is no node x1, x2, x3, x4, x5 and 1 more: kubectl muster nodes --wide lists them, e.g. gpu-1. "
            "Nothing was changed",
        ),
    ],
    ids=["near", "one of two", "many"],
)
def test_unknown_nodes_are_refused_before_anything_is_written(
    api: Any, command: Run, names: list[str], says: str
) -> None:
    put_nodes(api, "gpu-1", "gpu-10", "login")
    assert failed(command("cordon", *names, "--reason", "liquid")) == says
    assert patches(api) == []


def test_a_cluster_without_nodes_has_no_near_ones(api: Any, command: Run) -> None:
    put_nodes(api)
    says = "there is no node n1, nor any other: choose another cluster with --context"
    assert failed(command("cordon", "n1", "--reason", "liquid")) == says


@pytest.mark.parametrize("where", ["/api/v1/nodes", f"{HEALTHS}/gpu-1", "write"])
def test_who_may_not_decide_is_told_which_role_may(api: Any, command: Run, where: str) -> None:
    put_nodes(api, "gpu-1")
    refused = forbidden("nodehealths", "muster.dev", "at the cluster scope")
    if where == "write":
        api.refuses[f"{HEALTHS}/gpu-1"] = refused
    else:
        api.errors[where] = refused
    assert failed(command("cordon", "gpu-1", "--reason", "liquid")).endswith(
        ": ask for ClusterRole muster-fleet-edit (a ClusterRoleBinding), which has every right that this command needs"
    )
    assert patches(api) == []


def test_what_admission_denies_is_told_in_its_own_words_and_no_role_is_named() -> None:
    message = 'admission webhook "policy.example.org" denied the request: not at night'
    assert missing_right_text(Denied(403, "Forbidden", message)) == message


def test_an_older_installation_is_told_as_that(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    api.errors[f"{HEALTHS}/gpu-1"] = NO_KIND
    line = failed(command("cordon", "gpu-1", "--reason", "liquid"))
    assert line.startswith("the cluster of context prod keeps no NodeHealth: install Muster, or a newer one, ")


def test_a_failure_half_way_says_what_was_done(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1", "gpu-2", "gpu-3")
    api.refuses[f"{HEALTHS}/gpu-3"] = ServerError(500, "InternalError", "etcd is full")
    line = failed(command("cordon", "gpu-1", "gpu-2", "gpu-3", "--reason", "liquid"))
    refused = "gpu-3: the API server of context prod refused: etcd is full (HTTP 500 InternalError)"
    assert line == f"{refused} (2 nodes before it done: gpu-1, gpu-2)"
    api.refuses[f"{HEALTHS}/gpu-1"] = NO_KIND
    assert "done" not in failed(command("cordon", "gpu-1", "--reason", "liquid"))


def test_each_node_is_treated_as_its_pool(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1", "gpu-2")
    pools = [{"name": "first", "nodeSelector": {"kubernetes.io/hostname": "gpu-1"}, "health": {"enforcement": "Nodes"}}]
    policy = {"metadata": {"name": "default", "resourceVersion": "1"}, "spec": {"pools": pools}}
    path = "/apis/muster.dev/v1alpha1/fleetpolicies/default"
    del api.errors[path]
    api.put(path, policy)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"gpu-1": {"kubernetes.io/hostname": "gpu-1"}, "gpu-2": {}}
    nodes = [{"metadata": {"name": n, "resourceVersion": "1", "labels": labels[n]}, "status": ready} for n in labels]
    api.lists("/api/v1/nodes", *nodes)
    found = json.loads(command("cordon", "gpu-1", "gpu-2", "--reason", "liquid", "-o", "json").stdout)
    assert [node["consequences"][-1] for node in found["nodes"]] == [
        "the taint muster.dev/unhealthy keeps new pods of other systems away, too",
        "new pods of other systems still come: kubectl cordon keeps them away, too",
    ]


def test_who_may_not_see_jobs_or_policy_may_decide_all_the_same(api: Any, command: Run) -> None:
    put_nodes(api, "gpu-1")
    api.errors[JOBS] = forbidden("trainingjobs", "muster.dev", "at the cluster scope")
    found = json.loads(command("cordon", "gpu-1", "--reason", "liquid", "-o", "json").stdout)
    told = "jobs that have workers here are evacuated after their next checkpoint"
    others = "new pods of other systems still come: kubectl cordon keeps them away, too"
    (node,) = found["nodes"]
    assert "usedBy" not in node
    assert node["consequences"][1:] == [told, others]
    assert found["notes"] == ["which jobs use these nodes may not be read: ask for ClusterRole muster-fleet-view"]
    policy = "/apis/muster.dev/v1alpha1/fleetpolicies/default"
    api.errors[policy] = forbidden("fleetpolicies", "muster.dev", "at the cluster scope")
    (node,) = json.loads(command("cordon", "gpu-1", "--reason", "liquid", "-o", "json").stdout)["nodes"]
    assert node["consequences"][1:] == [told]
    assert len(patches(api)) == 2
