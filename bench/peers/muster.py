"""Muster: its operator beside the cluster, with the rights of its manifests, and launchers that are simulated.

Managed: one process (bench.launchers) speaks the real protocol for all workers, because KWOK's pods have no inside; it
is no component of a cluster, its CPU is not counted, and it stands back where others want to run: launchers have
processors of their own. Plain: pods run as they are.
"""

from __future__ import annotations

import http
import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench.api import Object
from bench.bed import NAMESPACE, ROOT, Bed, documents, pod_spec
from bench.child import Child
from bench.peers.manager import HOST, Manager
from bench.peers.system import GANG, System
from bench.plan import BINDINGS
from localcluster.api import wait_for
from localcluster.controlplane import free_port
from localcluster.errors import LocalClusterError
from localcluster.kwok import NODES_PER_BLOCK
from monitoring.scrape import scrape

LAUNCHER_IMAGE = "muster/launcher:bench"

_GROUP = "/apis/muster.dev/v1alpha1"
_JOBS = f"{_GROUP}/namespaces/{NAMESPACE}/trainingjobs"
_SYSTEM_NAMESPACE = "muster-system"
# The Deployment would only leave pods pending: the operator is run by hand.
_MANIFESTS = (
    "definitions/namespace.yaml",
    *(f"base/{name}.yaml" for name in ("service-account", "operator-rbac")),
    *(f"components/{name}/rights.yaml" for name in ("health", "node-taint", "burn-in", "jobs")),
)
_TOKEN_SECONDS = 7200
_LEADER_SECONDS = 60.0
_RESTARTS_PER_DAY = 100
# A checkpoint each second: failures without one between them are a crash loop, and Muster backs off from those.
_PACE = ("--step-seconds", "0.2", "--checkpoint-steps", "5")
_CHECKPOINTS = "/shared/gang"
_CHECKPOINT_HEARD_SECONDS = 6.0


@dataclass(frozen=True)
class Started:
    """All ranks of one attempt were started."""

    attempt: int
    workers: int
    time: float


def training_job(size: int, mode: str) -> Object:
    """The gang as a TrainingJob."""
    level = "required" if size <= NODES_PER_BLOCK else "preferred"
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": GANG},
        "spec": {
            "nodes": size,
            "launch": {"mode": mode},
            "placement": {level: "block"},
            **({"checkpoint": {"directory": _CHECKPOINTS}} if mode == "Managed" else {}),
            "recovery": {"applicationRestartsPerDay": _RESTARTS_PER_DAY},
            "template": {"spec": pod_spec()},
        },
    }


class Muster(System):
    """The gang as a TrainingJob."""

    name = "muster"
    watches = True
    settings: ClassVar[Mapping[str, str]] = {}
    """More of the operator's environment."""

    def __init__(self, bed: Bed, binding: str, mode: str, health: Object | None = None) -> None:
        super().__init__(bed)
        assert binding in BINDINGS
        self.binding, self.mode = binding, mode
        self._health = health or {}
        if mode == "Managed":
            self.calm_seconds = _CHECKPOINT_HEARD_SECONDS
        self._operator = Manager(bed, "muster")
        self._launchers: Launchers | None = None
        self.coordinator = ""
        self._metrics_port = 0
        self._dark: set[str] = set()

    def begin(self) -> None:
        """Install the definitions and rights, start the operator and wait until it leads; then the launchers."""
        self.install()
        port, probes = free_port(), free_port()
        self._metrics_port, self.coordinator = free_port(), f"https://{HOST}:{port}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._operator.folder),
            "PYTHONPATH": str(ROOT / "operator"),
            "KUBECONFIG": str(self._kubeconfig()),
            "MUSTER_NAMESPACE": _SYSTEM_NAMESPACE,
            "MUSTER_LAUNCHER_IMAGE": LAUNCHER_IMAGE,
            "MUSTER_COORDINATOR_PORT": str(port),
            "MUSTER_PROBE_PORT": str(probes),
            "MUSTER_METRICS_PORT": str(self._metrics_port),
            **self.settings,
        }
        self._operator.start([sys.executable, "-m", "muster"], probes, environment)
        wait_for(lambda: _leads(self.metrics()), "a leading operator", _LEADER_SECONDS)
        if self.mode == "Managed":
            self._launchers = Launchers(self.bed, self.coordinator)

    def end(self) -> None:
        """End both."""
        if self._launchers is not None:
            self._launchers.close()
            self._launchers = None
        self._operator.stop()
        # Nobody has to wait until the lease of a killed one is over.
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{_SYSTEM_NAMESPACE}/leases"
        self.bed.connection.delete(f"{leases}/muster-leader")

    def submit(self) -> None:
        """Create the TrainingJob."""
        assert self.mode is not None
        self.bed.connection.post(_JOBS, training_job(self.bed.size, self.mode))

    def remove(self) -> None:
        """Delete the TrainingJob; all of it follows."""
        self.bed.connection.delete(f"{_JOBS}/{GANG}", {"propagationPolicy": "Background"})

    def managers(self) -> Mapping[str, int]:
        """The operator."""
        return {"muster": self._operator.pid}

    def metrics(self) -> str:
        """What the operator serves under /metrics; "" while it does not."""
        status, text = scrape(self._metrics_port, self.bed.cluster.api.token)
        return text if status == http.HTTPStatus.OK else ""

    def power_cut(self, node: str) -> None:
        """Every launcher on the node falls silent."""
        if self._launchers is not None:
            self._launchers.tell({"silence_node": node})
            self._dark.add(node)

    def trained(self, since: float, deadline_seconds: float) -> float | None:
        """When the launchers say that all ranks were started."""
        if self._launchers is None:
            return since
        return self._launchers.started(self.bed.size, since, deadline_seconds)

    def prepare(self) -> None:
        """Forget the ranks of earlier gangs, and that nodes had no power."""
        if self._launchers is not None:
            self._launchers.forget()
            while self._dark:
                self._launchers.tell({"restore_node": self._dark.pop()})

    def install(self) -> None:
        """The definitions, the operator's rights and the FleetPolicy."""
        crds = [each for file in sorted((ROOT / "crds").glob("*.yaml")) for each in documents(file)]
        self.bed.install_definitions(crds)
        for name in _MANIFESTS:
            self.bed.apply(documents(ROOT / "manifests" / name))
        spec: dict[str, Any] = {"health": self._health}
        if self.binding == "Direct":
            spec["pools"] = [{"name": "kwok", "nodeSelector": {"type": "kwok"}, "binding": "Direct"}]
        policies = f"{_GROUP}/fleetpolicies"
        self.bed.connection.delete(f"{policies}/default")
        policy = {"apiVersion": "muster.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "default"}}
        self.bed.connection.post(policies, {**policy, "spec": spec})

    def _kubeconfig(self) -> Path:
        """Of the operator's service account: it has exactly the rights of the manifests."""
        accounts = f"/api/v1/namespaces/{_SYSTEM_NAMESPACE}/serviceaccounts"
        request = {"spec": {"expirationSeconds": _TOKEN_SECONDS, "audiences": []}}
        token = self.bed.connection.post(f"{accounts}/muster/token", request)["status"]["token"]
        cluster = {"server": self.bed.cluster.server, "certificate-authority": str(self.bed.cluster.pki.ca)}
        path = self._operator.folder / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "muster", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "muster"}}],
            "current-context": "local",
        }
        path.write_text(json.dumps(content))
        return path


class Launchers:
    """The process that plays all launchers, and the thread that reads what it says."""

    def __init__(self, bed: Bed, coordinator: str) -> None:
        arguments = ["--kubeconfig", str(bed.cluster.kubeconfig), "--coordinator", coordinator, *_PACE]
        log = bed.cluster.directory / "logs" / "launchers.log"
        self._process = Child("bench.launchers", [*arguments, "--namespace", NAMESPACE], {}, log)
        self._changed = threading.Condition()
        self._started: list[Started] = []
        self._ended = False
        threading.Thread(target=self._read, name="launchers", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, command: Mapping[str, Any]) -> None:
        """Give an order."""
        self._process.tell(command)

    def forget(self) -> None:
        """A new job: what was started before it does not count."""
        with self._changed:
            self._started.clear()

    def started(self, workers: int, since: float, deadline_seconds: float) -> float | None:
        """When all workers of an attempt were started after `since`; None: not in time."""

        def found() -> Started | None:
            ours = (each for each in self._started if each.workers == workers and each.time > since)
            return next(ours, None)

        with self._changed:
            self._changed.wait_for(lambda: found() or self._ended, deadline_seconds)
            if self._ended:
                raise LocalClusterError("the simulated launchers ended: see logs/launchers.log of the control plane")
            last = found()
        return last.time if last else None

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _read(self) -> None:
        for event in self._process.says():
            if event.get("event") == "started":
                with self._changed:
                    self._started.append(Started(event["attempt"], event["workers"], event["time"]))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _leads(metrics: str) -> bool:
    return "\nmuster_is_leader 1.0" in metrics
