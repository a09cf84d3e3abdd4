"""A cluster with Muster in it: the local one, or the one in KUBECONFIG when CLUSTER=existing says so."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from localcluster.cluster import Cluster
from testbed.kube import Kubectl, find_kubectl, wait_until

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_NAMESPACE = "muster-system"
OVERLAY = ROOT / "build" / "cluster" / "overlay"
DEFAULT_OVERLAY = ROOT / "manifests" / "overlays" / "default"
IMAGE_FIELDS = "image-fields.yaml"
IMAGES = ROOT / "build" / "images" / "images.json"


@dataclass(frozen=True)
class Bed:
    """The cluster to work on. `local` is None for an existing one: then no node can be made to fail."""

    kubectl: Kubectl
    local: Cluster | None

    @classmethod
    def open(cls) -> Bed:
        """The bed that the environment asks for.

        Raises:
            SystemExit: the cluster that is asked for is not there; says how to go on.
        """
        if os.environ.get("CLUSTER", "") == "existing":
            path = os.environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")
            if not Path(path).is_file():
                raise SystemExit(f"CLUSTER=existing: no kubeconfig at {path}; set KUBECONFIG.")
            return cls(Kubectl(Path(path), find_kubectl()), None)
        cluster = Cluster()
        if not cluster.runs():
            raise SystemExit("The local cluster is not running: `make cluster-up` starts it.")
        return cls(Kubectl(cluster.kubeconfig, str(cluster.kubectl)), cluster)

    @cached_property
    def images(self) -> dict[str, str]:
        """Image reference by short name (operator, launcher, torch-ddp): as built last, or where IMAGE_PREFIX has them."""
        if self.local is None:
            prefix, tag = os.environ.get("IMAGE_PREFIX", ""), os.environ.get("IMAGE_TAG", "dev")
            if not prefix:
                raise SystemExit(
                    "CLUSTER=existing: set IMAGE_PREFIX to where the images are, e.g. registry.example.org/"
                )
            return {name: f"{prefix}muster/{name}:{tag}" for name in ("operator", "launcher", "torch-ddp")}
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

    def install(self) -> None:
        """Install Muster the way a user does, with the images built here, and wait until both replicas are ready."""
        OVERLAY.mkdir(parents=True, exist_ok=True)
        (OVERLAY / "kustomization.yaml").write_text(self._overlay())
        shutil.copy(DEFAULT_OVERLAY / IMAGE_FIELDS, OVERLAY)
        self.kubectl("apply", "-k", str(OVERLAY))
        self.kubectl(
            "rollout", "status", "deployment/muster", "-n", SYSTEM_NAMESPACE, "--timeout=120s", timeout_seconds=150
        )
        wait_until("a leader", self.leader)

    def uninstall(self) -> None:
        """Take out what `install` put in; custom resources go with their definitions."""
        self.kubectl("delete", "-k", str(OVERLAY), "--ignore-not-found", "--timeout=120s", timeout_seconds=150)

    def leader(self) -> dict[str, Any] | None:
        """The pod of the leading replica, once its Service has it."""
        pods = self.kubectl.json("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "muster.dev/leader=true")["items"]
        slices = self.kubectl.json(
            "get", "endpointslices", "-n", SYSTEM_NAMESPACE, "-l", "kubernetes.io/service-name=muster-coordinator"
        )["items"]
        served = {
            address
            for entry in slices
            for endpoint in entry.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready")
            for address in endpoint["addresses"]
        }
        return next((pod for pod in pods if pod["status"].get("podIP") in served), None)

    def _overlay(self) -> str:
        def entry(name: str) -> str:
            reference = self.images[name]
            repository, _, tag = reference.rpartition(":")
            return f"  - name: muster/{name}\n    newName: {repository}\n    newTag: {tag}\n"

        base = os.path.relpath(DEFAULT_OVERLAY, OVERLAY)
        return (
            "# Generated: the default overlay with the images that were built here.\n"
            "apiVersion: kustomize.config.k8s.io/v1beta1\n"
            "kind: Kustomization\n"
            f"resources:\n  - {base}\n"
            f"configurations:\n  - {IMAGE_FIELDS}\n"
            f"images:\n{entry('operator')}{entry('launcher')}"
        )
