"""The control plane with fake nodes: pods run on them, a machine that dies falls silent, and nothing is left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from localcluster.api import Object, wait_for
from localcluster.errors import LocalClusterError
from localcluster.kwok import BLOCK_LABEL, FLEET, RACK_LABEL, TOLERATION, FakeNode, KwokControlPlane, fleet
from localcluster.patience import PATIENCE_SECONDS

PODS = "/api/v1/namespaces/default/pods"
NODES = 20
VICTIM = FakeNode("victim", "b0", "r1", machine="victim")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KwokControlPlane]:
    with KwokControlPlane.temporary_with(NODES) as started:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_for(lambda: bool(started.api.get(account)), "the default service account", PATIENCE_SECONDS)
        yield started


@pytest.fixture
def create(cluster: KwokControlPlane) -> Iterator[Callable[..., str]]:
    """Create a pod that asks for a whole node; what is left goes when the test ends."""

    def create_pod(name: str, **spec: object) -> str:
        container = {"name": "main", "image": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        whole = {"tolerations": [TOLERATION], "containers": [container], **spec}
        cluster.api.create(PODS, {"metadata": {"name": name}, "spec": whole})
        return name

    yield create_pod
    for pod in cluster.api.get(PODS)["items"]:
        cluster.api.delete(f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")


def running(cluster: KwokControlPlane) -> dict[str, Object]:
    pods = cluster.api.get(PODS)["items"]
    return {pod["metadata"]["name"]: pod for pod in pods if pod["status"]["phase"] == "Running"}


def test_the_fleet_is_ready_with_gpus_racks_and_blocks(cluster: KwokControlPlane):
    nodes = {node["metadata"]["name"]: node for node in cluster.api.get("/api/v1/nodes")["items"]}
    assert set(nodes) == {node.name for node in fleet(NODES)}
    last = nodes["gpu-00019"]
    assert last["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert (last["metadata"]["labels"][BLOCK_LABEL], last["metadata"]["labels"][RACK_LABEL]) == ("b0", "r1")
    assert [taint["key"] for taint in last["spec"]["taints"]] == [TOLERATION["key"]]
    leases = cluster.api.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
    assert {lease["metadata"]["name"] for lease in leases} >= set(nodes)


def test_scheduled_pods_run_with_addresses_each_on_a_node_of_its_own_and_go_at_once(
    cluster: KwokControlPlane, create: Callable[..., str]
):
    names = {create(f"pod-{number}") for number in range(4)}
    wait_for(lambda: names == set(running(cluster)), "pods Running", PATIENCE_SECONDS)
    pods = running(cluster).values()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 4
    assert all(pod["status"]["podIP"] for pod in pods)
    for name in names:
        cluster.api.delete(f"{PODS}/{name}")
    wait_for(lambda: not cluster.api.get(PODS)["items"], "pods gone", PATIENCE_SECONDS)


def test_a_dead_machine_falls_silent_and_the_fleet_does_not(cluster: KwokControlPlane, create: Callable[..., str]):
    cluster.add_nodes([VICTIM])
    pod = create("doomed", nodeSelector={"kubernetes.io/hostname": VICTIM.name})
    wait_for(lambda: pod in running(cluster), "the pod Running", PATIENCE_SECONDS)
    cluster.power_off(VICTIM.machine)
    heard = _heartbeat(cluster, VICTIM.name), _heartbeat(cluster, "gpu-00000")
    cluster.api.delete(f"{PODS}/{pod}")
    # Leases are renewed each 10 s.
    wait_for(lambda: _heartbeat(cluster, "gpu-00000") != heard[1], "a heartbeat of the fleet", PATIENCE_SECONDS)
    time.sleep(1)
    assert _heartbeat(cluster, VICTIM.name) == heard[0]
    assert cluster.api.get(f"{PODS}/{pod}")["metadata"]["deletionTimestamp"]
    cluster.remove_nodes([VICTIM.name])
    assert VICTIM.name not in {node["metadata"]["name"] for node in cluster.api.get("/api/v1/nodes")["items"]}


def test_the_fleet_itself_cannot_be_powered_off(cluster: KwokControlPlane):
    with pytest.raises(LocalClusterError, match="machine of their own"):
        cluster.power_off(FLEET)


def test_nothing_is_left_behind():
    with KwokControlPlane.temporary_with(1) as cluster:
        pids, folder = cluster.pids(), cluster.directory
        assert "kwok" in pids
    assert not folder.exists()
    assert not [name for name, pid in pids.items() if _lives(pid)]


def test_racks_and_blocks_follow_the_numbers_of_the_nodes():
    nodes = fleet(3, first=62)
    assert [(node.name, node.block, node.rack) for node in nodes] == [
        ("gpu-00062", "b0", "r3"),
        ("gpu-00063", "b0", "r3"),
        ("gpu-00064", "b1", "r4"),
    ]


def _heartbeat(cluster: KwokControlPlane, node: str) -> str:
    lease = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
    renewed: str = lease["spec"]["renewTime"]
    return renewed


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
