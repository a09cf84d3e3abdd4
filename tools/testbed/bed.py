"""A cluster with Muster in it: the local one, or the one in KUBECONFIG when CLUSTER=existing says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from localcluster.api import ApiError
from localcluster.cluster import Cluster
from localcluster.layout import DEFAULT_NAME
from localcluster.patience import PATIENCE_SECONDS
from testbed.faults import AGENT_NAMESPACE, CHECKER_NAMESPACE, Faults, agent_patch, checker_patch
from testbed.kube import Kubectl, KubectlError, find_kubectl, wait_until

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_NAMESPACE = "muster-system"
OVERLAYS = Path("manifests", "overlays")
DEFINITIONS = Path("manifests", "definitions")
PAGE = Path("manifests", "components", "page")
PAGE_NAMESPACE = "muster-page"
AGENT_PATCH = "agent-of-a-test-node.yaml"
CHECKERS = Path("manifests", "components", "checkers")
CHECKER_PATCH = "checker-of-a-test-node.yaml"
OWN_POLICY = "muster.dev/test-bed"  # the label of a FleetPolicy that the test bed has made
IMAGES = ROOT / "build" / "images" / "images.json"


@dataclass(frozen=True)
class Bed:
    """The cluster to work on. `local` is None for an existing one: then no node can be made to fail."""

    kubectl: Kubectl
    local: Cluster | None

    @classmethod
    def open(cls) -> Bed:
        """The bed that the environment asks for: CLUSTER=existing, or the local cluster CLUSTER_NAME of this clone.

        Raises:
            SystemExit: the cluster that is asked for is not there; says how to go on.
        """
        if os.environ.get("CLUSTER", "") == "existing":
            path = os.environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")
            if not Path(path).is_file():
                raise SystemExit(f"CLUSTER=existing: no kubeconfig at {path}; set KUBECONFIG.")
            return cls(Kubectl(Path(path), find_kubectl()), None)
        name = os.environ.get("CLUSTER_NAME", DEFAULT_NAME)
        cluster = Cluster(name)
        if not cluster.runs():
            raise SystemExit(
                f"The local cluster {name!r} is not running: `make cluster-up CLUSTER_NAME={name}` starts it."
            )
        return cls(Kubectl(cluster.kubeconfig, str(cluster.kubectl)), cluster)

    @cached_property
    def images(self) -> dict[str, str]:
        """Image reference by short name (operator, agent, torch-ddp): as built last, or where IMAGE_PREFIX has them."""
        if self.local is None:
            prefix, tag = os.environ.get("IMAGE_PREFIX", ""), os.environ.get("IMAGE_TAG", "dev")
            if not prefix:
                raise SystemExit(
                    "CLUSTER=existing: set IMAGE_PREFIX to where the images are, e.g. registry.example.org/"
                )
            return {
                name: f"{prefix}muster/{name}:{tag}"
                for name in ("operator", "agent", "launcher", "torch-ddp", "burn-in", "recipes")
            }
        if not IMAGES.is_file():
            raise SystemExit(f"{IMAGES} does not exist: run `make images` first.")
        return {name: entry["image"] for name, entry in json.loads(IMAGES.read_text()).items()}

    @property
    def cluster(self) -> Cluster:
        """The local cluster, for faults.

        Raises:
            SystemExit: this is an existing cluster.
        """
        if self.local is None:
            raise SystemExit("This needs the local cluster: nodes of an existing one are never touched.")
        return self.local

    @cached_property
    def faults(self) -> Faults:
        """Faults that the agents of local nodes see.

        Raises:
            SystemExit: this is an existing cluster.
        """
        return Faults(self.cluster, self.kubectl)

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        """What the API server lists at a path, without the items' kinds.

        On the local cluster without a process of kubectl: what is looked at again and again costs little.

        Args:
            path: such as "/api/v1/nodes".
            query: such as labelSelector="muster.dev/job=llama".

        Raises:
            KubectlError: there is no answer, or a refusal.
        """
        asked = f"{path}?{urlencode(query)}"
        if self.local is None:
            answer = json.loads(self.kubectl("get", "--raw", asked))
        else:
            try:
                answer = replace(self.local.api, request_seconds=PATIENCE_SECONDS).get(asked)
            except ApiError as error:
                raise KubectlError(str(error)) from error
        found: list[dict[str, Any]] = answer["items"]
        return found

    def install(
        self,
        nvml: Path | None = None,
        tree: Path = ROOT,
        images: Mapping[str, str] | None = None,
        *,
        keep_definitions: bool = False,
    ) -> None:
        """Install Muster the way a user does, with the images built here, and wait until both replicas are ready.

        On the local cluster also until the agents are; nobody waits for all nodes of somebody else's. Where there is no
        FleetPolicy, it makes one by which every namespace trains.

        Args:
            nvml: folder with an NVML for the agents of local nodes, which have no GPU; None: they have no driver.
            tree: whose manifests are applied; another one than this for what was installed before an upgrade.
            images: that tree's.
            keep_definitions: leave those that are there, which are newer: the way back.
        """
        folder = self._overlay_folder
        folder.mkdir(parents=True, exist_ok=True)
        default = tree / OVERLAYS / "default"
        (folder / "kustomization.yaml").write_text(self._overlay(default, images or self.images))
        if self.local is not None:
            (folder / AGENT_PATCH).write_text(json.dumps(agent_patch(), indent=2))
            self.faults.prepare(nvml)
        if (tree / DEFINITIONS).is_dir() and not keep_definitions:  # a release of before has them in its overlay
            self.kubectl("apply", "-k", str(tree / DEFINITIONS))
        self._apply_to_operators(folder)
        if self.kubectl.find("get", "fleetpolicy", "default") is None:
            self.open_fleet()
            wait_until("the API server takes jobs", self._takes_jobs)
        if self.local is not None:
            self.rolled_out("daemonset/muster-agent", AGENT_NAMESPACE)

    def open_fleet(self) -> None:
        """Have a FleetPolicy by which every namespace trains, and which says nothing else."""
        self.apply_policy({}, "open")

    def _takes_jobs(self) -> bool:
        """Whether the API server knows the FleetPolicy by which it admits jobs: a new kind it may notice late."""
        pod = {"containers": [{"name": "trainer", "image": "none", "command": ["true"]}]}
        job = {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "asked", "namespace": "default"},
            "spec": {"nodes": 1, "template": {"spec": pod}},
        }
        return bool(self.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(job), check=False).strip())

    def apply_policy(self, spec: Mapping[str, Any], label: str) -> None:
        """Have this FleetPolicy in place of the one that the test bed has made."""
        body = {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "FleetPolicy",
            "metadata": {"name": "default", "labels": {OWN_POLICY: label}},
            "spec": spec,
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def install_checkers(self) -> None:
        """Install Muster with the checkers, and wait until all have imported torch."""
        folder = self._overlay_folder.parent / "checkers"
        folder.mkdir(parents=True, exist_ok=True)
        component = os.path.relpath(ROOT / CHECKERS, folder)
        patches = ""
        if self.local is not None:
            (folder / CHECKER_PATCH).write_text(json.dumps(checker_patch(), indent=2))
            patches = f"patches:\n  - path: {CHECKER_PATCH}\n"
        (folder / "kustomization.yaml").write_text(
            "# Generated: Muster as it is, and the checkers with the image that was built here.\n"
            "apiVersion: kustomize.config.k8s.io/v1beta1\n"
            "kind: Kustomization\n"
            f"resources:\n  - {os.path.relpath(self._overlay_folder, folder)}\n"
            f"components:\n  - {component}\n"
            f"{patches}"
            f"{image_entries(ROOT / OVERLAYS / 'burn-in', self.images)}"
        )
        self._apply_to_operators(folder)
        self.rolled_out("daemonset/muster-check", CHECKER_NAMESPACE)

    def uninstall_checkers(self) -> None:
        """Take them out again, and the operator's trust in them, if it is there."""
        gone = ("delete", "namespace", CHECKER_NAMESPACE, "--ignore-not-found")
        self.kubectl(*gone, "--wait=false")
        if self.kubectl.find("get", "deployment", "-n", SYSTEM_NAMESPACE, "muster"):
            self._apply_to_operators(self._overlay_folder)
        self.kubectl(*gone)

    def install_page(self) -> None:
        """Install the page beside Muster, and wait until it has read the cluster."""
        folder = self._overlay_folder.parent / "page"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kustomization.yaml").write_text(
            "# Generated: the page with the image that was built here.\n"
            "apiVersion: kustomize.config.k8s.io/v1beta1\n"
            "kind: Kustomization\n"
            f"components:\n  - {os.path.relpath(ROOT / PAGE, folder)}\n"
            f"{image_entries(ROOT / OVERLAYS / 'page', self.images)}"
        )
        self.kubectl("apply", "-k", str(folder))
        self.rolled_out("deployment/muster-page", PAGE_NAMESPACE)

    def uninstall_page(self) -> None:
        folder = self._overlay_folder.parent / "page"
        self.kubectl("delete", "-k", str(folder), "--ignore-not-found")

    def _apply_to_operators(self, folder: Path) -> None:
        """Apply an overlay that has the operator, and wait until one leads."""
        self.kubectl("apply", "-k", str(folder))
        self.rolled_out("deployment/muster", SYSTEM_NAMESPACE)
        wait_until("a leader", self.leader)

    @property
    def _overlay_folder(self) -> Path:
        return (ROOT / "build" / "existing" if self.local is None else self.local.output) / "overlay"

    def rolled_out(self, workload: str, namespace: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until a workload's pods are those that it asks for now."""
        limit = f"--timeout={seconds:.0f}s"
        self.kubectl("rollout", "status", workload, "-n", namespace, limit, timeout_seconds=seconds + 30)

    def remove_operator(self) -> None:
        """Delete the overlay alone: definitions, jobs, their pods and the history stay."""
        self.kubectl("delete", "-k", str(self._overlay_folder), "--ignore-not-found")

    def remove_definitions(self) -> None:
        """Delete the definitions with all custom resources, and the namespace with the history."""
        self.kubectl("delete", "-k", str(ROOT / DEFINITIONS), "--ignore-not-found")

    def muster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`kubectl muster ...` of this tree, as its users run it; the caller judges the result."""
        command = [sys.executable, "-m", "muster.cli", *arguments]
        environment = os.environ | {
            "KUBECONFIG": str(self.kubectl.kubeconfig),
            "PYTHONPATH": str(ROOT / "operator"),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment
        )

    def leader(self) -> dict[str, Any] | None:
        """The pod of the leading replica, once its Service has it."""
        here = f"namespaces/{SYSTEM_NAMESPACE}"
        leases = self.items(f"/apis/coordination.k8s.io/v1/{here}/leases", fieldSelector="metadata.name=muster-leader")
        holders = {item["spec"].get("holderIdentity", "").rpartition("_")[0] for item in leases}
        listed = self.items(f"/api/v1/{here}/pods", labelSelector="app.kubernetes.io/name=muster")
        pods = [pod for pod in listed if pod["metadata"]["name"] in holders]
        slices = self.items(
            f"/apis/discovery.k8s.io/v1/{here}/endpointslices",
            labelSelector="kubernetes.io/service-name=muster-coordinator",
        )
        served = {
            address
            for entry in slices
            for endpoint in entry.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready")
            for address in endpoint["addresses"]
        }
        return next((pod for pod in pods if pod["status"].get("podIP") in served), None)

    def repair(self) -> None:
        """Make the local cluster whole again: its nodes on, Ready, uncordoned and connected, and two operators."""
        for node in self.cluster.describe()["nodes"]:
            if node["pid"] is None:
                self.cluster.power_on(node["name"])
            else:
                self.cluster.heal(node["name"])
        for node in self.items("/api/v1/nodes"):
            if node["spec"].get("unschedulable"):
                self.kubectl("uncordon", node["metadata"]["name"])
        wait_until("every node Ready", lambda: all(map(_is_ready, self.items("/api/v1/nodes"))))
        self.kubectl("scale", "deployment/muster", "-n", SYSTEM_NAMESPACE, "--replicas=2")
        # What has ended again and again is started anew by its kubelet after five minutes.
        self.rolled_out("deployment/muster", SYSTEM_NAMESPACE, 420)
        wait_until("a leader", self.leader)
        wait_until("the API server to find what its policies refer to", self._policies_have_parameters)

    def _policies_have_parameters(self) -> bool:
        """Whether a TrainingJob is judged. An API server that has just started may not know the kind FleetPolicy yet;
        it then refuses every job, and looks again after half a minute."""
        spec = {"nodes": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}}
        job = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "none"}, "spec": spec}
        try:
            self.kubectl("create", "--dry-run=server", "-f", "-", "--namespace=default", stdin=json.dumps(job))
        except KubectlError as error:
            return "paramKind" not in str(error)
        return True

    def _overlay(self, default: Path, images: Mapping[str, str]) -> str:
        base = os.path.relpath(default, self._overlay_folder)
        patches = "" if self.local is None else f"patches:\n  - path: {AGENT_PATCH}\n"
        # A release of before has the right to taint in its base.
        taint = default.parents[1] / "components" / "node-taint"
        components = f"components:\n  - {os.path.relpath(taint, self._overlay_folder)}\n" if taint.is_dir() else ""
        return (
            "# Generated: the default overlay with the images that were built here.\n"
            "apiVersion: kustomize.config.k8s.io/v1beta1\n"
            "kind: Kustomization\n"
            f"resources:\n  - {base}\n"
            f"{components}"
            f"{patches}"
            f"{image_entries(default, images)}"
        )


def image_entries(overlay: Path, images: Mapping[str, str]) -> str:
    """`images` of a kustomization: for each name that an overlay sets, the image that was built here under its last
    part."""
    lines = ["images:\n"]
    for entry in yaml.safe_load((overlay / "kustomization.yaml").read_text(encoding="utf-8"))["images"]:
        repository, _, tag = images[entry["name"].rpartition("/")[2]].rpartition(":")
        lines.append(f"  - name: {entry['name']}\n    newName: {repository}\n    newTag: {tag}\n")
    return "".join(lines)


def _is_ready(node: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
