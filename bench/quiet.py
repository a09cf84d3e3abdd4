"""`python -m bench.quiet`: what a large fleet costs the operator while nothing happens in it, into
build/bench/quiet.json.

A control plane without any kubelet: the bench makes the nodes (each with 50 images in its status, as a kubelet reports
them), a record of a healthy agent and a Ready agent pod for each, and sends what kubelets send by themselves: the
status of each node every five minutes, and its lease every ten seconds, as many of these as asked for at most
(`lease_rate`): beyond some hundred writes a second it is the API server's share of the machine that is measured.
Nothing else happens for `seconds`; then the operator's CPU and its requests are read.

`bare` is the floor: a process that watches the same nodes and leases meanwhile, and does no more than decode each line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from bench.api import STRATEGIC_PATCH, Connection, Object
from bench.bed import ROOT, Bed, documents
from bench.child import Child
from bench.facts import facts
from bench.nodepods import share
from bench.peers.muster import Muster
from bench.processes import cpu_seconds, peak_mebibytes, reset_peaks, spent
from bench.sick.requests import all_requests, nodes_by_verdict, requests_made, writes
from localcluster.api import ApiError, wait_for
from localcluster.errors import LocalClusterError
from localcluster.kwok import KwokControlPlane
from localcluster.kwok import fleet as fleet_nodes

OUTPUT = ROOT / "build" / "bench" / "quiet.json"
NODES, SECONDS, LEASE_RATE = 16_384, 120.0, 400.0
GOALS = {"core_percent": 1.0, "requests_per_second": 30.0}
STATUS_SECONDS, LEASE_SECONDS = 300.0, 10.0
"""How often a kubelet says that nothing has changed (nodeStatusReportFrequency), and renews its lease."""

_AGENTS = "muster-agent"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_HEALTHS = "/apis/muster.dev/v1alpha1/nodehealths"
_IMAGES, _GPUS = 50, 8
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
# They would act on nodes of which no kubelet runs.
_CONTROLLERS = ",".join(f"-{name}-controller" for name in ("node-lifecycle", "taint-eviction", "pod-garbage-collector"))
_SETTLED_SECONDS = 1200.0
_QUIET_SECONDS = 10.0
_SENDERS = 8


def main() -> None:
    """Run what the command line asks for, and show it."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        measured = measure(arguments.nodes, arguments.seconds, arguments.rate)
    except KeyboardInterrupt:
        sys.exit("stopped: nothing is written")
    except LocalClusterError as error:
        sys.exit(str(error))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({**facts(), **measured}, indent=1) + "\n")
    print(
        f"{measured['nodes']} quiet nodes, {measured['events_per_second']} events a second of "
        f"{measured['events_per_second_of_the_fleet']}: {measured['core_percent']} % of a core (bare: "
        f"{measured['bare']['core_percent']} %), {measured['requests_per_second']} requests a second, "
        f"{measured['rss_mb']} MiB; after a start all were judged within {measured['start_seconds']} s, at most "
        f"{measured['start_rss_mb']} MiB"
    )
    print(f"written: {os.path.relpath(arguments.output)}")
    missed = [f"{name}: {measured[name]}, goal {goal}" for name, goal in GOALS.items() if measured[name] > goal]
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def measure(nodes: int, seconds: float, lease_rate: float) -> dict[str, Any]:
    """All figures."""
    rate = min(lease_rate, nodes / LEASE_SECONDS)
    plane = KwokControlPlane.temporary_with(
        0,
        scheduler=False,
        controllers=f"*,{_CONTROLLERS}",
        api_server_arguments=["--disable-admission-plugins=TaintNodesByCondition"],
    )
    with plane as cluster:
        bed = Bed(cluster, nodes)
        system = Muster(bed, "Scheduler", "Plain")
        system.install()
        names = _make(bed, nodes)
        started = time.monotonic()
        system.begin()
        try:
            wait_for(
                lambda: nodes_by_verdict(system.metrics()).get("Healthy") == nodes,
                "every node judged",
                _SETTLED_SECONDS,
            )
            took = time.monotonic() - started
            _wait_still(system)
            start_peak, start_cpu = peak_mebibytes(system.managers().values()), cpu_seconds(system.managers())["muster"]
            with closing(Kubelets(bed, names, rate)) as kubelets, closing(_bare(bed)) as bare:
                found = _observe(system, kubelets, bare, seconds) | _sizes(bed, system, names[0])
        finally:
            system.end()
    per_second = nodes / STATUS_SECONDS + nodes / LEASE_SECONDS
    return {
        "nodes": nodes,
        "seconds": seconds,
        "start_seconds": round(took, 1),
        "start_rss_mb": round(start_peak, 1),
        "start_cpu_seconds": round(start_cpu, 1),
        **found,
        "events_per_second_of_the_fleet": round(per_second, 1),
        "goals": GOALS,
    }


def _observe(system: Muster, kubelets: Kubelets, bare: Child, seconds: float) -> dict[str, Any]:
    """Let the fleet be quiet for so long."""
    time.sleep(_QUIET_SECONDS)  # the kubelets are at their pace
    pids = {**system.managers(), "bare": bare.pid}
    reset_peaks(system.managers().values())
    before, asked, sent, begun = cpu_seconds(pids), all_requests(system.metrics()), kubelets.sent, time.monotonic()
    seen = bare.ask({})
    time.sleep(seconds)
    seen = bare.ask({}) - seen
    elapsed, cost = time.monotonic() - begun, spent(before, cpu_seconds(pids))
    made = {key: count - asked.get(key, 0) for key, count in all_requests(system.metrics()).items()}
    if kubelets.failure:
        raise LocalClusterError(f"the played kubelets failed: {kubelets.failure}")
    return {
        "events_per_second": round((kubelets.sent - sent) / elapsed, 1),
        "core_percent": round(100 * cost["muster"] / elapsed, 2),
        "us_per_event": round(1e6 * cost["muster"] / max(kubelets.sent - sent, 1), 1),
        "requests_per_second": round(sum(made.values()) / elapsed, 2),
        "requests": {key: count for key, count in made.items() if count},
        "rss_mb": round(peak_mebibytes(system.managers().values()), 1),
        "bare": {
            "core_percent": round(100 * cost["bare"] / elapsed, 2),
            "us_per_event": round(1e6 * cost["bare"] / max(seen, 1), 1),
            "events": seen,
        },
    }


def _sizes(bed: Bed, system: Muster, node: str) -> dict[str, int]:
    """How large the record of a healthy node is as the API server sends it, and how many rows a scrape has."""
    return {
        "record_bytes": len(json.dumps(bed.connection.get(f"{_HEALTHS}/{node}"), separators=(",", ":"))),
        "series": sum(not line.startswith("#") for line in system.metrics().splitlines()),
    }


class Kubelets:
    """What the kubelets of a fleet send while nothing happens.

    Args:
        lease_rate: renewals a second of all of them together.
    """

    def __init__(self, bed: Bed, names: Sequence[str], lease_rate: float) -> None:
        self.sent = 0
        self.failure = ""
        self._over = threading.Event()
        self._names = names
        status_rate = len(names) / STATUS_SECONDS
        self._connections = [bed.connect() for _ in range(2 * _SENDERS)]
        work = [(each, self._status, status_rate, number) for number, each in enumerate(self._connections[:_SENDERS])]
        work += [(each, self._lease, lease_rate, number) for number, each in enumerate(self._connections[_SENDERS:])]
        self._threads = [threading.Thread(target=self._send, args=each, daemon=True) for each in work]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """They are still."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        for connection in self._connections:
            connection.close()

    def _send(self, connection: Connection, act: Any, rate: float, number: int) -> None:
        mine, pause = self._names[number::_SENDERS], _SENDERS / rate
        due, turn = time.monotonic(), 0
        try:
            while not self._over.wait(max(due - time.monotonic(), 0.0)):
                act(connection, mine[turn % len(mine)])
                self.sent += 1
                turn, due = turn + 1, max(due + pause, time.monotonic() - 1.0)
        except (ApiError, OSError, HTTPException) as error:
            self.failure = repr(error)

    def _status(self, connection: Connection, name: str) -> None:
        connection.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": _conditions()}}, STRATEGIC_PATCH)

    def _lease(self, connection: Connection, name: str) -> None:
        connection.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now("%Y-%m-%dT%H:%M:%S.%fZ")}})


def _make(bed: Bed, count: int) -> list[str]:
    """The nodes with all that belongs to each."""
    folder = ROOT / "manifests"
    files = sorted([*folder.glob("*/*.yaml"), *folder.glob("components/checkers/*.yaml")])
    shipped = [each for file in files for each in documents(file) if "metadata" in each]
    for kind in ("Namespace", "ServiceAccount", "Role", "RoleBinding"):  # else the operator tries again and again
        bed.apply([each for each in shipped if each["kind"] == kind])
    manifests = {node.name: node.manifest() for node in fleet_nodes(count)}
    started = time.monotonic()

    def some(mine: Sequence[str]) -> None:
        with closing(bed.connect()) as connection:
            for name in mine:
                _make_one(connection, name, manifests[name])

    share(some, list(manifests))
    print(f"{count} nodes: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return list(manifests)


def _make_one(connection: Connection, name: str, node: Object) -> None:
    images = [
        {"names": [f"registry.example.org/team/image-{each}@sha256:{each:064x}"], "sizeBytes": 10**9 + each}
        for each in range(_IMAGES)
    ]
    boot = str(uuid.uuid4())
    info = {"bootID": boot, "machineID": uuid.uuid4().hex, "systemUUID": str(uuid.uuid4()), "kernelVersion": "6.8.0"}
    info |= dict.fromkeys(
        ("osImage", "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
        "x",
    )
    node["metadata"].pop("annotations", None)
    node["spec"] = {}
    node["status"] |= {"conditions": _conditions(), "images": images, "nodeInfo": info}
    connection.post("/api/v1/nodes", node)
    lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now("%Y-%m-%dT%H:%M:%S.%fZ")}
    connection.post(_LEASES, {"metadata": {"name": name}, "spec": lease})
    connection.post(_HEALTHS, {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": name}})
    agent = {
        "version": "bench",
        "bootId": boot,
        "systemUuid": info["systemUUID"],
        "gpuSerials": [f"{name}-{gpu}" for gpu in range(_GPUS)],
        "gpuModel": "NVIDIA H200",
        "gpus": _GPUS,
        "gpusExpected": _GPUS,
        "driver": "580.95.05",
    }
    connection.patch(f"{_HEALTHS}/{name}/status", {"status": {"agent": agent, "evidence": []}})
    spec = {
        "nodeName": name,
        "serviceAccountName": _AGENTS,
        "automountServiceAccountToken": False,
        "containers": [{"name": "agent", "image": "muster/agent:bench"}],
    }
    metadata = {"name": f"{_AGENTS}-{name}", "labels": {"app.kubernetes.io/name": "muster-agent"}}
    pods = f"/api/v1/namespaces/{_AGENTS}/pods"
    connection.post(pods, {"metadata": metadata, "spec": spec})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    connection.patch(f"{pods}/{_AGENTS}-{name}/status", {"status": ready}, STRATEGIC_PATCH)


def _conditions() -> list[Object]:
    now = _now("%Y-%m-%dT%H:%M:%SZ")
    return [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": "KubeletReady",
            "message": "as it should be",
            "lastHeartbeatTime": now,
            "lastTransitionTime": "2026-11-01T00:00:00Z",
        }
        for kind in _CONDITIONS
    ]


def _now(form: str) -> str:
    return datetime.now(UTC).strftime(form)


def _bare(bed: Bed) -> Child:
    connection = bed.connection
    log = bed.cluster.directory / "logs" / "bare.log"
    arguments = [connection.server, str(connection.ca), "/api/v1/nodes", _LEASES]
    return Child("bench.sick.watcher", arguments, {"BENCH_TOKEN": connection.token}, log)


def _wait_still(system: Muster) -> None:
    """Until the operator has written nothing for a while."""
    state = {"writes": -1, "since": time.monotonic()}

    def still() -> bool:
        made, now = writes(requests_made(system.metrics())), time.monotonic()
        if made != state["writes"]:
            state.update(writes=made, since=now)
        time.sleep(1.0)
        return now - state["since"] >= _QUIET_SECONDS

    wait_for(still, "an operator that has nothing to write", _SETTLED_SECONDS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.quiet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help=f"default {NODES}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"that it is watched, default {SECONDS:.0f}")
    parser.add_argument(
        "--rate", type=float, default=LEASE_RATE, help=f"renewals a second at most, default {LEASE_RATE:.0f}"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
