"""The local cluster keeps its promises: real nodes, faults as in nature, and nothing left behind, whatever happened.

These tests start small clusters of their own beside the one that other tests use.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localcluster import images
from localcluster.api import wait_for
from localcluster.build import binaries
from localcluster.cluster import Cluster
from localcluster.controlplane import KUBERNETES_SERVICE_ADDRESS, ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.kernel import processes_with_environment
from localcluster.layout import API_PORT, CONTROL_PLANE_ADDRESS, MARK, SHARED_IN_NODE
from localcluster.node import PAUSE_IMAGE
from localcluster.patience import PATIENCE_SECONDS

TOOLS = Path(__file__).resolve().parents[3] / "tools"
WRITTEN_BY_THE_KUBELET = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
HOST_SETTINGS = (
    *WRITTEN_BY_THE_KUBELET,
    "kernel/hostname",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/forwarding",
    "net/netfilter/nf_conntrack_max",
)


def quiet(_: str) -> None:
    pass


def host_settings() -> dict[str, str]:
    files = {name: Path("/proc/sys") / name for name in HOST_SETTINGS}
    return {name: file.read_text() for name, file in files.items() if file.exists()}


def host_interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def control_groups(pattern: str) -> list[Path]:
    """The control groups of a cluster: not below those of others, whose containers come and go meanwhile."""
    root = Path("/sys/fs/cgroup")
    return [*root.glob(pattern), *root.glob(f"*/{pattern}")]


def traces_of(cluster: Cluster) -> list[str]:
    """Everything on the host that belongs to the cluster."""
    processes = [f"process {p.pid} {p.command}" for p in processes_with_environment(MARK, cluster.id)]
    contained = [
        f"process {file.parent.name} in {cluster.id}'s control group"
        for file in Path("/proc").glob("[0-9]*/cgroup")
        if cluster.id in read_or_empty(file)
    ]
    groups = [f"control group {path}" for path in control_groups(f"{cluster.id}*")]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if cluster.id in line]
    namespaces = [
        str(path) for folder in ("/run/netns", "/var/run/netns") for path in Path(folder).glob(f"{cluster.id}*")
    ]
    state = [str(cluster.state)] if cluster.state.exists() else []
    files = [str(path) for path in cluster.output.glob("**/*")]
    return [*processes, *contained, *groups, *mounts, *namespaces, *state, *files]


def read_or_empty(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture(scope="module")
def settings_before() -> dict[str, str]:
    """The host's settings before the first node of this module booted."""
    return host_settings()


@pytest.fixture(scope="module")
def cluster(settings_before: dict[str, str]) -> Iterator[Cluster]:
    assert settings_before
    made = Cluster("selftest")
    made.down(quiet)
    made.up(nodes=2, progress=quiet)
    yield made
    made.down(quiet)


def pod_path(name: str) -> str:
    return f"/api/v1/namespaces/default/pods/{name}"


def make_pod(cluster: Cluster, name: str, node: str, image: str = PAUSE_IMAGE, **spec: object) -> None:
    container = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    body = {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }
    cluster.api.create("/api/v1/namespaces/default/pods", body)


def wait_for_pod(cluster: Cluster, name: str, restarts: int = 0) -> None:
    def runs() -> bool:
        statuses = cluster.api.get(pod_path(name))["status"].get("containerStatuses", [])
        return bool(statuses) and statuses[0]["ready"] and statuses[0]["restartCount"] >= restarts

    wait_for(runs, f"pod {name} running", PATIENCE_SECONDS)


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(node: str, **options: object) -> str:
        name = f"pod-{len(made)}-{random.randrange(1 << 32):08x}"
        make_pod(cluster, name, node, **options)  # type: ignore[arg-type]
        made.append(name)
        wait_for_pod(cluster, name)
        return name

    yield make
    for name in made:
        cluster.api.delete(pod_path(name) + "?gracePeriodSeconds=0")


def node_address(cluster: Cluster, name: str) -> str:
    return str(next(node["address"] for node in cluster.describe()["nodes"] if node["name"] == name))


KUBELET_PORT = 10250
TALK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))
print("connected", flush=True)
sys.stdin.readline()
connection.settimeout(2)
try:
    print("closed" if connection.recv(1) == b"" else "data", flush=True)
except TimeoutError:
    print("silence", flush=True)
except OSError as error:
    print("broken", error, flush=True)
"""


def start_talk(
    cluster: Cluster, node: str, address: str, timeout_seconds: float = 5, port: int = KUBELET_PORT
) -> subprocess.Popen[str]:
    """A connection from `node` to the kubelet at `address`; on a line of input it tells what it hears."""
    pid = next(entry["pid"] for entry in cluster.describe()["nodes"] if entry["name"] == node)
    command = ["nsenter", "--target", str(pid), "--net", "--", sys.executable, "-c", TALK]
    arguments = [address, str(port), str(timeout_seconds)]
    return subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def can_reach(cluster: Cluster, node: str, address: str, port: int = KUBELET_PORT) -> bool:
    talk = start_talk(cluster, node, address, timeout_seconds=1, port=port)
    output, _ = talk.communicate("\n")
    return output.startswith("connected")


def in_pod_network(cluster: Cluster, node: str, name: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run Python of the host in the network of a pod."""
    process = cluster.pids_of(node, "default", name)[0]
    command = ["nsenter", "--target", str(process.pid), "--net", "--", sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# --- what runs
# ---------------------------------------------------------------------------------------------------------


def test_nodes_carry_topology_and_gpus_and_identities_of_their_own(cluster: Cluster) -> None:
    nodes = cluster.api.get("/api/v1/nodes")["items"]

    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2"]
    for node in nodes:
        labels = node["metadata"]["labels"]
        assert labels["topology.muster.dev/block"] == "b1"
        assert labels["topology.muster.dev/rack"] == "r1"
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    for identity in ("bootID", "machineID", "systemUUID"):
        assert len({node["status"]["nodeInfo"][identity] for node in nodes}) == 2


def test_a_second_up_keeps_what_runs(cluster: Cluster) -> None:
    before = cluster.describe()

    cluster.up(nodes=2, progress=quiet)

    assert cluster.describe() == before


def test_the_host_sees_one_loopback_port_and_nothing_else(cluster: Cluster) -> None:
    description = json.loads((cluster.output / "cluster.json").read_text())
    port = int(description["server"].rpartition(":")[2])
    supervisor = Path(f"/proc/{description['supervisor_pid']}/ns/net").readlink()

    assert description["server"].startswith("https://127.0.0.1:")
    listening = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout
    pids = {process.pid for process in processes_with_environment(MARK, cluster.id)}
    ours = [line for line in listening.splitlines() if any(f"pid={pid}," in line for pid in pids)]
    assert [line.split()[3] for line in ours] == [f"127.0.0.1:{port}"]
    assert supervisor != Path("/proc/self/ns/net").readlink()
    assert not host_interfaces() & {"nodes", "node-1", "node-2"}


def test_the_kubelet_sees_the_kernel_settings_it_wants_and_the_host_keeps_its_own(
    cluster: Cluster, settings_before: dict[str, str]
) -> None:
    mounts = cluster.node_exec("node-1", ["cat", "/proc/self/mountinfo"]).stdout

    assert cluster.node_exec("node-1", ["cat", "/proc/sys/kernel/panic"]).stdout.strip() == "10"
    # A host that has these very values already would prove nothing: the node must be looking at files of its own.
    for setting in WRITTEN_BY_THE_KUBELET:
        assert f" /proc/sys/{setting} " in mounts
    assert host_settings() == settings_before


def test_pods_reach_the_api_server_by_service_and_verify_it(cluster: Cluster, pod: Callable[..., str]) -> None:
    name = pod("node-2")
    authority = cluster.state / "control-plane" / "pki" / "ca.crt"
    script = f"""
import socket, ssl
context = ssl.create_default_context(cafile={str(authority)!r})
with socket.create_connection(({KUBERNETES_SERVICE_ADDRESS!r}, 443), timeout=10) as plain:
    with context.wrap_socket(plain, server_hostname="kubernetes.default.svc") as secure:
        secure.sendall(b"GET /version HTTP/1.1\\r\\nHost: kubernetes.default.svc\\r\\nConnection: close\\r\\n\\r\\n")
        print(secure.recv(12).decode())
"""

    answer = in_pod_network(cluster, "node-2", name, script)

    assert answer.stdout.strip() == "HTTP/1.1 200", answer.stderr


def test_pods_resolve_cluster_names_and_learn_at_once_that_others_do_not_exist(
    cluster: Cluster, pod: Callable[..., str]
) -> None:
    name = pod("node-1")
    script = f"""
import socket, struct
def ask(name):
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\\0"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.sendto(struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + question + struct.pack(">2H", 1, 1),
                      ({CONTROL_PLANE_ADDRESS!r}, 53))
        answer = client.recv(512)
    return answer[3] & 15, socket.inet_ntoa(answer[-4:])
print(ask("kubernetes.default.svc.cluster.local"), ask("example.com")[0])
"""

    answer = in_pod_network(cluster, "node-1", name, script)

    assert answer.stdout.strip() == f"(0, '{KUBERNETES_SERVICE_ADDRESS}') 3", answer.stderr


def make_claim(cluster: Cluster, name: str) -> str:
    claim = f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"
    cluster.api.apply(
        claim,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "shared",
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    return claim


def test_a_shared_claim_binds_and_is_one_folder_on_all_nodes(cluster: Cluster) -> None:
    claim = make_claim(cluster, "data")
    folder = cluster.folder_of_claim("default", "data")
    (folder / "hello").write_text("from the host")

    for node in cluster.node_names:
        assert cluster.node_exec(node, ["cat", f"{SHARED_IN_NODE}/{folder.name}/hello"]).stdout == "from the host"
    assert folder.stat().st_mode & 0o777 == 0o777
    cluster.api.delete(claim)


def test_a_volume_for_one_claim_is_not_given_to_another_and_made_again_it_is_empty(cluster: Cluster) -> None:
    volume = cluster.make_shared_volume("reserved", claim_namespace="default")
    (volume.folder / "old").touch()

    again = cluster.make_shared_volume("reserved", claim_namespace="default")

    found = cluster.api.get("/api/v1/persistentvolumes/reserved")
    assert found["spec"]["claimRef"] == {"namespace": "default", "name": "reserved"}
    assert again == volume
    assert list(again.folder.iterdir()) == []
    cluster.api.delete("/api/v1/persistentvolumes/reserved")


def test_a_released_volume_is_emptied_and_offered_again(cluster: Cluster) -> None:
    claim = make_claim(cluster, "short-lived")
    folder = cluster.folder_of_claim("default", "short-lived")
    (folder / "old").touch()
    cluster.api.delete(claim)
    volume = f"/api/v1/persistentvolumes/{folder.name}"
    wait_for(lambda: cluster.api.get(volume)["status"].get("phase") == "Released", "released", PATIENCE_SECONDS)

    cluster.recycle_shared_volumes()

    wait_for(lambda: cluster.api.get(volume)["status"].get("phase") == "Available", "available", PATIENCE_SECONDS)
    assert list(folder.iterdir()) == []


def test_processes_of_a_container_are_found_on_the_host(cluster: Cluster, pod: Callable[..., str]) -> None:
    name = pod("node-1")

    found = cluster.pids_of("node-1", "default", name, "main")

    assert [process.command for process in found] == [("/pause",)]
    os.kill(found[0].pid, signal.SIGKILL)
    wait_for_pod(cluster, name, restarts=1)


# --- images
# ------------------------------------------------------------------------------------------------------------


def write_image(folder: Path, name: str, content: bytes) -> Path:
    """An archive of an image whose program is `pause` with something added, so that no other image equals it."""
    program = folder / name
    program.write_bytes((binaries(quiet) / "pause").read_bytes() + content)
    archive = folder / f"{name}.tar"
    images.write_archive(archive, program, f"localcluster.local/{name}:1")
    return archive


def test_images_reach_idle_and_busy_nodes(cluster: Cluster, pod: Callable[..., str], tmp_path: Path) -> None:
    busy = pod("node-1")
    archive = write_image(tmp_path, "loaded", os.urandom(16))

    cluster.load([archive], quiet)

    for node in cluster.node_names:
        assert pod(node, image="localcluster.local/loaded:1")
    status = cluster.api.get(pod_path(busy))["status"]
    assert status["containerStatuses"][0]["restartCount"] == 0


def test_node_stores_share_their_files_and_not_their_databases(cluster: Cluster) -> None:
    stores = [cluster.state / "nodes" / node / "containerd" for node in cluster.node_names]
    blobs = [{file.name: file.stat().st_ino for file in store.glob("*content*/blobs/sha256/*")} for store in stores]
    databases = [next(store.glob("*.bolt/meta.db")).stat().st_ino for store in stores]

    common = blobs[0].keys() & blobs[1].keys()

    assert common
    assert any(blobs[0][name] == blobs[1][name] for name in common)
    assert databases[0] != databases[1]


def test_a_broken_archive_is_refused_with_its_name(cluster: Cluster, tmp_path: Path) -> None:
    archive = tmp_path / "broken.tar"
    archive.write_bytes(b"this is no archive")

    with pytest.raises(LocalClusterError, match=r"broken\.tar"):
        cluster.load([archive], quiet)


# --- faults
# ------------------------------------------------------------------------------------------------------------


def test_a_power_cut_is_silent_and_total_and_the_node_returns_as_itself(
    cluster: Cluster, pod: Callable[..., str]
) -> None:
    name = pod("node-2")
    before = cluster.api.get("/api/v1/nodes/node-2")["status"]["nodeInfo"]
    victims = [process.pid for process in cluster.pids_of("node-2", "default", name)]
    talk = start_talk(cluster, "node-1", node_address(cluster, "node-2"))
    assert talk.stdout is not None
    assert talk.stdout.readline() == "connected\n"

    cluster.power_off("node-2")

    heard, _ = talk.communicate("\n")
    assert heard == "silence\n"
    assert victims
    assert not any(Path(f"/proc/{pid}").exists() for pid in victims)
    assert not control_groups(f"{cluster.id}/node-2")
    assert cluster.describe()["nodes"][1]["pid"] is None

    cluster.power_on("node-2")

    after = cluster.api.get("/api/v1/nodes/node-2")["status"]
    assert after["nodeInfo"]["bootID"] != before["bootID"]
    assert after["nodeInfo"]["machineID"] == before["machineID"]
    assert after["allocatable"]["nvidia.com/gpu"] == "8"
    wait_for_pod(cluster, name, restarts=1)
    assert can_reach(cluster, "node-1", node_address(cluster, "node-2"))


def test_dropped_packets_are_lost_until_healed_while_the_node_lives_on(
    cluster: Cluster, pod: Callable[..., str]
) -> None:
    name = pod("node-2")
    address = node_address(cluster, "node-2")

    cluster.drop_packets("node-2")

    assert not can_reach(cluster, "node-1", address)
    assert not can_reach(cluster, "node-2", node_address(cluster, "node-1"))
    assert not can_reach(cluster, "node-2", CONTROL_PLANE_ADDRESS, API_PORT)
    assert cluster.pids_of("node-2", "default", name)

    cluster.heal("node-2")

    assert can_reach(cluster, "node-1", address)


def test_nodes_that_are_cut_off_together_hear_each_other_and_nobody_else(cluster: Cluster) -> None:
    address = node_address(cluster, "node-2")

    cluster.cut_off(["node-1", "node-2"])

    assert can_reach(cluster, "node-1", address)
    assert not can_reach(cluster, "node-2", CONTROL_PLANE_ADDRESS, API_PORT)

    cluster.cut_off(["node-1"])

    assert not can_reach(cluster, "node-1", address)

    cluster.heal("node-1")
    cluster.heal("node-2")

    assert can_reach(cluster, "node-2", CONTROL_PLANE_ADDRESS, API_PORT)


def test_the_api_server_restarts_with_its_data_at_its_address(cluster: Cluster) -> None:
    server = cluster.api.server

    cluster.stop_apiserver()
    with pytest.raises(LocalClusterError):
        cluster.api.get("/api/v1/nodes")
    cluster.start_apiserver()

    assert cluster.api.server == server
    assert len(cluster.api.get("/api/v1/nodes")["items"]) == 2


def test_a_paused_control_plane_does_not_answer_and_comes_back(cluster: Cluster) -> None:
    cluster.pause_control_plane()
    try:
        with pytest.raises(LocalClusterError):
            cluster.api.get("/version")
    finally:
        cluster.resume_control_plane()

    wait_for(lambda: bool(cluster.api.get("/version")), "API server back", PATIENCE_SECONDS)


def test_an_unknown_node_is_refused_by_naming_the_nodes(cluster: Cluster) -> None:
    with pytest.raises(LocalClusterError, match="node-1, node-2"):
        cluster.power_off("node-9")


# --- endings
# -----------------------------------------------------------------------------------------------------------


def start_command(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "localcluster", *arguments],
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_down_leaves_a_clean_machine(cluster: Cluster) -> None:
    settings, interfaces = host_settings(), host_interfaces()
    other = Cluster("other")

    other.up(nodes=1, progress=quiet)
    assert traces_of(other)
    other.down(quiet)

    assert traces_of(other) == []
    assert host_settings() == settings
    assert host_interfaces() == interfaces
    assert cluster.runs(), "a second cluster of the clone went down with the first"


def assert_down_cleans_after(starting: subprocess.Popen[bytes], crashed: Cluster, moment: str) -> None:
    settings, interfaces = host_settings(), host_interfaces()
    starting.kill()
    starting.wait()

    crashed.down(quiet)

    assert traces_of(crashed) == [], f"killed {moment}"
    assert host_settings() == settings
    assert host_interfaces() == interfaces


MILESTONES: dict[str, Callable[[Cluster], bool]] = {
    "state folder": lambda crashed: crashed.state.exists(),
    "image store": lambda crashed: (crashed.state / "nodes" / "node-1" / "containerd").exists(),
    "first process": lambda crashed: any(processes_with_environment(MARK, crashed.id)),
    "keys": lambda crashed: (crashed.state / "control-plane" / "pki").exists(),
    "etcd": lambda crashed: (crashed.state / "control-plane" / "etcd").exists(),
    "node": lambda crashed: bool(control_groups(f"{crashed.id}/node-1")),
    "kubelet": lambda crashed: (crashed.state / "nodes" / "node-2" / "log" / "kubelet.log").exists(),
    "answering": lambda crashed: crashed.runs(),
    "kubeconfig": lambda crashed: crashed.kubeconfig.exists(),
}


@pytest.mark.parametrize("milestone", MILESTONES)
def test_down_cleans_after_up_was_killed_at(milestone: str) -> None:
    crashed = Cluster("crash")
    starting = start_command("up", "--name", "crash", "--nodes", "2")
    end = time.monotonic() + PATIENCE_SECONDS
    while not MILESTONES[milestone](crashed):
        assert starting.poll() is None, f"`up` ended before: {milestone}"
        assert time.monotonic() < end, f"`up` did not come to: {milestone}"

    assert_down_cleans_after(starting, crashed, f"at {milestone}")


@pytest.mark.parametrize("round_number", range(20))
def test_down_cleans_after_up_was_killed_at_any_moment(round_number: int) -> None:
    seconds = random.uniform(0, 0.6) * (round_number + 1)
    starting = start_command("up", "--name", "crash", "--nodes", "2")
    with contextlib.suppress(subprocess.TimeoutExpired):
        starting.wait(timeout=seconds)

    assert_down_cleans_after(starting, Cluster("crash"), f"after {seconds:.3f} s")


def test_up_repairs_what_a_killed_supervisor_left() -> None:
    crashed = Cluster("crash")
    try:
        crashed.up(nodes=1, progress=quiet)
        os.kill(crashed.describe()["supervisor_pid"], signal.SIGKILL)
        wait_for(lambda: not crashed.runs(), "supervisor gone", PATIENCE_SECONDS)

        crashed.up(nodes=1, progress=quiet)

        assert len(crashed.api.get("/api/v1/nodes")["items"]) == 1
    finally:
        crashed.down(quiet)
    assert traces_of(crashed) == []


def test_down_of_what_never_ran_is_no_error() -> None:
    Cluster("never").down(quiet)

    assert traces_of(Cluster("never")) == []


# --- the control plane alone
# -------------------------------------------------------------------------------------------


def test_a_control_plane_keeps_its_data_over_a_restart(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as plane:
        plane.api.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})

        plane.restart_apiserver()

        assert plane.api.get("/api/v1/namespaces/kept")["metadata"]["name"] == "kept"


def test_a_control_plane_publishes_its_ca_to_every_namespace(tmp_path: Path) -> None:
    with ControlPlane(tmp_path, controller_manager=True) as plane:
        path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
        wait_for(lambda: bool(plane.api.get(path)), "root CA published", PATIENCE_SECONDS)

        assert plane.api.get(path)["data"]["ca.crt"] == plane.pki.ca.read_text()


def test_a_control_plane_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom localcluster.controlplane import ControlPlane\n"
        "plane = ControlPlane(sys.argv[1])\nplane.start()\n"
        "print(*plane.pids().values(), flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = parent.stdout.readline().split()
    assert len(pids) == 2

    parent.kill()
    parent.wait()

    end = time.monotonic() + PATIENCE_SECONDS
    while any(Path(f"/proc/{pid}/cmdline").exists() and read_or_empty(Path(f"/proc/{pid}/cmdline")) for pid in pids):
        assert time.monotonic() < end, "etcd or the API server outlived its parent"
        time.sleep(0.05)
